"""How a chain lives in Slurm: the tag in the job comment, the job script and its shell part."""

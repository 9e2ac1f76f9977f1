"""A simulator of a Slurm cluster. Knows nothing of mirage."""

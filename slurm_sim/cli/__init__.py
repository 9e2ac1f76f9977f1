"""The command `slurm-sim` (docs/slurm-sim.md)."""

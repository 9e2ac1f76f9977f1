"""Mirage: chains of Slurm jobs without interruption."""

__version__ = "0.1.0"

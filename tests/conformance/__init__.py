"""Checks against Slurm itself, by many random cases: each is one command, `python -m tests.conformance.NAME`."""

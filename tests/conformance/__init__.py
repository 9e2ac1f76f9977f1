"""Checks against Slurm itself, by many random cases: each is one command, `python -m tests.conformance.NAME`.

`scripts/soak` runs one of them: a day of a site, with faults.
"""

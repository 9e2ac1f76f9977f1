"""Live GPU jobs on a real network: what Slurm shows, moves that help, one move after the other
(docs/placement-live.md).
"""

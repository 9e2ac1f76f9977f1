"""Four nodes in one partition, as a cluster file."""

from __future__ import annotations


def small_cluster(longest: str = "12:00:00") -> str:
    """TOML; ``longest``: the partition's MaxTime."""
    return f"""
[cluster]
name = "small"
[[nodes]]
name = "n"
count = 4
[[partitions]]
name = "gpu"
nodes = "ALL"
max_time_s = "{longest}"
"""

"""Routes jobs to partitions (`papers/mdrl-routing.txt`): one agent a partition, a plugin inside
slurmctld.
"""

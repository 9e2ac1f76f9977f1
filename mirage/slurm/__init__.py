"""The Cluster port: argv (pure), parsing (pure), one runner; on commands, on PySlurm, on the
simulator.
"""

"""Whole chains on a simulated cluster, decided by the service's own code."""

"""Policies: when the successor enters the queue."""

"""Clusters with measured speeds (Pollux, OSDI 2021) and their schedulers (docs/elastic-pollux.md)."""

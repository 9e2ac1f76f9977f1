"""Clusters with measured speeds (Pollux, OSDI 2021), their schedulers and the policy `set-rounds`
(docs/elastic-pollux.md).
"""

"""The service: one pure tick, and what carries out its actions."""

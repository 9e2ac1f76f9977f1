"""How an allocation policy learns: first from a scheduler's decisions, then from rewards."""

"""RL-TAPS's simulated world, its schedulers and agents, and how they are trained and judged."""

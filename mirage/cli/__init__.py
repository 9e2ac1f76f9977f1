"""One file a verb. `submit` imports nothing heavy: it runs in front of every sbatch."""

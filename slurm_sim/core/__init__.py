"""The C++ core. `slurm_sim.simulator` is its face."""

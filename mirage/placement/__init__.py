"""RL-TAPS: which GPUs for which job, with the network's topology in mind, jobs paused and moved.

Source: Ryu et al., "Towards Topology Aware Pre-Emptive Job Scheduling with Deep Reinforcement
Learning", CASCON 2020. Equation, table and section numbers of this package are that paper's.
"""

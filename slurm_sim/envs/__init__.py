"""Gymnasium environments on the simulator (docs/environments.md). Importing this registers
`slurm_sim/Submit-v0`.
"""

import gymnasium

from slurm_sim.envs.episode import Facts, Start, Task
from slurm_sim.envs.starts import Pair, equal_pair, live_start, starts
from slurm_sim.envs.submit import SubmitEnv
from slurm_sim.envs.vector import Buffers, SubmitVectorEnv

__all__ = [
    "Buffers",
    "Facts",
    "Pair",
    "Start",
    "SubmitEnv",
    "SubmitVectorEnv",
    "Task",
    "equal_pair",
    "live_start",
    "starts",
]

gymnasium.register(
    id="slurm_sim/Submit-v0",
    entry_point="slurm_sim.envs.submit:SubmitEnv",
    vector_entry_point="slurm_sim.envs.vector:SubmitVectorEnv",
)

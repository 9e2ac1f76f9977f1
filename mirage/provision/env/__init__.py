"""When shall the successor enter the queue: Gymnasium environments on the simulator
(docs/environments.md). Importing this registers
`mirage/Submit-v0`.
"""

import gymnasium

from mirage.provision.env.episode import Facts, Start, Task
from mirage.provision.env.starts import Pair, equal_pair, live_start, starts
from mirage.provision.env.submit import SubmitEnv
from mirage.provision.env.vector import Buffers, SubmitVectorEnv

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
    id="mirage/Submit-v0",
    entry_point="mirage.provision.env.submit:SubmitEnv",
    vector_entry_point="mirage.provision.env.vector:SubmitVectorEnv",
)

"""When shall the successor enter the queue: Gymnasium environments on the simulator
(docs/environments.md). Importing this registers
`mirage/Submit-v0`.
"""

import gymnasium

from mirage.provision.env.episode import Facts, Start, Task
from mirage.provision.env.starts import Pair, equal_pair, live_start, starts
from mirage.provision.env.submit import SubmitEnv

__all__ = [
    "Facts",
    "Pair",
    "Start",
    "SubmitEnv",
    "Task",
    "equal_pair",
    "live_start",
    "starts",
]

gymnasium.register(
    id="mirage/Submit-v0",
    entry_point="mirage.provision.env.submit:SubmitEnv",
)

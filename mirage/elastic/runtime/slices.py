"""A parameter slice on its server: values, optimiser state, version, and the gradients so far.

Each slice has an optimiser of `torch.optim` of its own, and is updated by the same calls on a tensor
of the same size wherever it lies, so its bits do not depend on the number of servers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from mirage.elastic.runtime import layout
from mirage.elastic.runtime.layout import Slice
from mirage.elastic.runtime.protocol import Adopt, Node, ProtocolError, TrainingJob
from mirage.elastic.runtime.snapshots import PARAMETER, Array, Buffers
from mirage.errors import InputError

OPTIMIZERS: dict[str, type[torch.optim.Optimizer]] = {
    kind.__name__: kind
    for kind in (
        torch.optim.SGD,
        torch.optim.Adam,
        torch.optim.AdamW,
        torch.optim.Adagrad,
        torch.optim.RMSprop,
    )
}
"""They treat each element alone, so slices can be updated apart."""
PREVIOUS = "previous"
"""The buffer with the parameters one version before; it moves with a slice, and is in no snapshot."""
_HOW = ("params", "foreach", "fused", "capturable", "differentiable", "initial_lr")
"""Options that say how to compute or what the user's own schedule began with."""


def options_of(optimizer: torch.optim.Optimizer) -> tuple[dict[str, Any], ...]:
    """The options of each parameter group. Raises InputError: an optimiser that cannot be cut."""
    name = type(optimizer).__name__
    if OPTIMIZERS.get(name) is not type(optimizer):
        raise InputError(f"optimizer {name}: use {', '.join(OPTIMIZERS)} of torch.optim.")
    return tuple(
        {key: _plain(value) for key, value in group.items() if key not in _HOW}
        for group in optimizer.param_groups
    )


def adoption(slices: Mapping[int, Buffers], **facts: Any) -> tuple[Adopt, list[Array]]:
    """Slices with their state as a message and its buffers. ``facts``: its other fields."""
    state = tuple(tuple(each) for each in slices.values())
    message = Adopt(slices=tuple(slices), state=state, **facts)
    return message, [values for each in slices.values() for values in each.values()]


def adopted(
    geometry: Sequence[Slice], message: Adopt, buffers: Sequence[memoryview]
) -> dict[int, Buffers]:
    """The reverse of `adoption`. ``geometry``: of all slices.

    Raises ProtocolError: buffers of another number or size than the slices' state has.
    """
    sizes = layout.sizes_of(geometry, message.slices)
    pairs = zip(message.slices, sizes, message.state, strict=False)
    names = [(index, size, name) for index, size, state in pairs for name in state]
    if len(names) != len(buffers) or len(message.state) != len(sizes):
        raise ProtocolError(f"adopt: {len(buffers)} buffers for {len(names)} names.")
    found: dict[int, Buffers] = {}
    for (index, size, name), buffer in zip(names, buffers, strict=True):
        if len(buffer) not in (4, 4 * size):
            raise ProtocolError(f"adopt: {name} of slice {index} has {len(buffer)} bytes.")
        found.setdefault(index, {})[name] = np.frombuffer(buffer, dtype=np.float32)
    if any(PARAMETER not in each for each in found.values()):
        raise ProtocolError("adopt: a slice without parameters.")
    return found


def warm_up() -> None:
    """The first step of an optimiser imports much of torch; better before others wait for it."""
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.grad = torch.zeros(1)
    torch.optim.SGD([parameter]).step()


def _plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.item()
    return list(value) if isinstance(value, tuple) else value


class ServedSlice:
    """One slice. `buffers` must hold `PARAMETER`; the rest is the optimiser's state."""

    def __init__(
        self, job: TrainingJob, geometry: Slice, buffers: Mapping[str, Array], version: int
    ):
        self._job, self.version = job, version
        self.frozen = False
        """It is moving to another server: no update until the view says who has it."""
        self._nodes: dict[tuple[int, int], tuple[torch.Tensor, float]] = {}
        values = torch.from_numpy(np.array(buffers[PARAMETER], dtype=np.float32))
        self._parameter = torch.nn.Parameter(values)
        self._previous = np.array(buffers.get(PREVIOUS, self.values), dtype=np.float32)
        options: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in job.groups[geometry.group].items()
        }
        self._rate = float(options["lr"])
        kind: Any = OPTIMIZERS[job.optimizer]
        self._optimizer = kind([self._parameter], foreach=False)
        self._optimizer.param_groups[0].update(options)
        own = (PARAMETER, PREVIOUS)
        state = {name: _state(values) for name, values in buffers.items() if name not in own}
        if state:
            self._optimizer.state[self._parameter].update(state)

    @property
    def values(self) -> Array:
        """The parameters, not copied."""
        return self._parameter.detach().numpy()

    def at(self, version: int) -> Array | None:
        """The parameters at this version, not copied; None: only this one and the last are here."""
        if version == self.version:
            return self.values
        return self._previous if version == self.version - 1 else None

    def moving_buffers(self) -> Buffers:
        """All that its next owner needs, copied."""
        return self.buffers() | {PREVIOUS: self._previous.copy()}

    def buffers(self) -> Buffers:
        """Parameters and optimiser state, copied."""
        state = self._optimizer.state[self._parameter]
        found = {PARAMETER: self.values.copy()}
        for name, value in state.items():
            if value is not None:
                found[name] = torch.as_tensor(value, dtype=torch.float32).numpy().copy().reshape(-1)
        return found

    def add(self, node: Node, gradient: torch.Tensor) -> None:
        """Takes a sum of gradients; one that is there already changes nothing."""
        self._nodes.setdefault((node.first, node.last), (gradient, node.loss))

    def step(self, rate: float) -> float | None:
        """Updates it once all micro-shards are there: the step's mean loss; None: not yet."""
        if self.frozen:
            return None
        found = layout.total(self._nodes, 0, self._job.micro_shards, _add)
        if found is None:
            return None
        gradient, loss = found
        self._nodes.clear()
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * rate
        np.copyto(self._previous, self.values)
        self._parameter.grad = gradient
        self._optimizer.step()
        self._parameter.grad = None
        self.version += 1
        return loss


def _add(left: tuple[torch.Tensor, float], right: tuple[torch.Tensor, float]) -> Any:
    return left[0] + right[0], left[1] + right[1]


def _state(values: Array) -> torch.Tensor:
    """`step` is a single number, everything else as long as the slice."""
    tensor = torch.from_numpy(np.array(values, dtype=np.float32))
    return tensor.reshape(()) if tensor.numel() == 1 else tensor

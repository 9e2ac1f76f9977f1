"""A model's trainable parameters as one flat vector, and their gradients as another."""

from __future__ import annotations

import numpy as np
import torch

from mirage.elastic.runtime.protocol import Parameter
from mirage.elastic.runtime.snapshots import Array
from mirage.errors import InputError


class FlatModel:
    """Makes the optimiser's parameters views into `values`, and their gradients into `gradients`.

    Both have the optimiser's groups in order, the tensors of a group in order: as `layout.cut`.
    Raises InputError: a parameter is not of 32-bit floats, on several devices, in no model; or the
    model keeps running statistics, which would depend on who computes which micro-shard.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> None:
        _check_layers(model)
        names = {id(tensor): name for name, tensor in model.named_parameters()}
        groups = [group["params"] for group in optimizer.param_groups]
        self.tensors: list[torch.Tensor] = [each for group in groups for each in group]
        for tensor in self.tensors:
            if id(tensor) not in names:
                raise InputError("optimizer: it has a parameter that is not the model's.")
            if tensor.dtype != torch.float32:
                raise InputError(
                    f"{names[id(tensor)]}: {tensor.dtype}; keep parameters as float32, and use"
                    " torch.autocast for faster arithmetic."
                )
        if len({tensor.device for tensor in self.tensors}) != 1:
            raise InputError("model: put all its trainable parameters on one device.")
        self.parameters = tuple(
            Parameter(name=names[id(tensor)], shape=tuple(tensor.shape), group=group)
            for group, tensors in enumerate(groups)
            for tensor in tensors
        )
        with torch.no_grad():
            self.values = torch.cat([tensor.detach().reshape(-1) for tensor in self.tensors])
        self.gradients = torch.zeros_like(self.values)
        self._point(self.values, gradients=False)

    def _point(self, flat: torch.Tensor, *, gradients: bool) -> None:
        start = 0
        for tensor in self.tensors:
            view = flat[start : start + tensor.numel()].view(tensor.shape)
            if gradients:
                tensor.grad = view
            else:
                tensor.data = view
            start += tensor.numel()

    def clear_gradients(self) -> None:
        """Zeroes them; they are views again even if the user's code replaced them."""
        self.gradients.zero_()
        self._point(self.gradients, gradients=True)

    def take_gradients(self) -> torch.Tensor:
        """A copy in the CPU's memory."""
        return self.gradients.detach().to("cpu", copy=True)

    def set_values(self, values: Array) -> None:
        """New parameters for the model."""
        with torch.no_grad():
            self.values.copy_(torch.from_numpy(np.ascontiguousarray(values)))

    def get_values(self) -> Array:
        """A copy in the CPU's memory."""
        return self.values.detach().to("cpu", copy=True).numpy()


def _check_layers(model: torch.nn.Module) -> None:
    for name, layer in model.named_modules():
        if getattr(layer, "track_running_stats", False):
            raise InputError(
                f"{name or 'model'}: {type(layer).__name__} keeps running statistics, which no"
                " member has for the whole batch. Use GroupNorm or LayerNorm, or"
                " track_running_stats=False."
            )

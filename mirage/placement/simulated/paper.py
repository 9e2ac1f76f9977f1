"""The paper's agent: one hidden layer, a softmax over the slots for each GPU (section 4.5.1)."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from mirage.errors import InputError
from mirage.placement.simulated.image import Image
from mirage.placement.simulated.setting import PlacementSetting
from mirage.placement.simulated.world import PlacementWorld
from mirage.placement.topology import Ints

HIDDEN_PER_OUTPUT = 1.5


def paper_image(setting: PlacementSetting) -> Image:
    """The image of a setting's clusters."""
    return Image(
        rows=setting.config.model.rows,
        gpus=len(setting.topology),
        slots=setting.slots,
        most_gpus=setting.workload.most_gpus,
        backlog=setting.backlog,
    )


class PaperNetwork(nn.Module):
    """Image -> logits of each GPU's choice: a slot, or none.

    With the paper's image and 32 GPUs: 1,580 inputs, 528 hidden units, 352 outputs, 1,020,976
    parameters.
    """

    def __init__(self, image: Image) -> None:
        super().__init__()
        self.image = image
        self.choices = image.slots + 1
        outputs = image.gpus * self.choices
        hidden = math.ceil(HIDDEN_PER_OUTPUT * outputs)
        self.hidden = nn.Linear(image.inputs, hidden)
        self.output = nn.Linear(hidden, outputs)

    def forward(self, images: Tensor) -> Tensor:
        """[B, inputs] -> [B, M, slots + 1]."""
        logits: Tensor = self.output(self.hidden(images).relu())
        return logits.view(len(images), self.image.gpus, self.choices)


class PaperAgent:
    """Gives each GPU to its most probable slot (the paper's inference)."""

    leaves_slots = False

    def __init__(self, network: PaperNetwork, name: str = "paper") -> None:
        self.network = network
        self.name = name

    def check(self, setting: PlacementSetting) -> None:
        """Raises InputError if the network's image is another than the setting's."""
        image, wanted = self.network.image, paper_image(setting)
        if image != wanted:
            raise InputError(
                f"the model is for {image.gpus} GPUs, {image.slots} slots and requests of up to"
                f" {image.most_gpus} GPUs; the setting has {wanted.gpus}, {wanted.slots} and"
                f" {wanted.most_gpus}: train one for it."
            )

    def reset(self, world: PlacementWorld) -> None:
        """Keeps nothing."""

    @torch.no_grad()
    def decide(self, world: PlacementWorld) -> Ints:
        image = self.network.image
        images = torch.from_numpy(image.scaled(image.colours(world)))
        choice = np.asarray(self.network(images).argmax(dim=-1), dtype=np.int64)
        return np.where(choice == image.slots, world.rows, choice)

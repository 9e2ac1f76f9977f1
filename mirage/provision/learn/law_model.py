"""Trained networks with a law head as a `Model`: their mean law, the exact stopping rule, and files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from mirage.errors import InputError
from mirage.provision.learn.episode import Floats, Vectors
from mirage.provision.learn.features import features_of
from mirage.provision.learn.law import DURATIONS_S, Law, assess
from mirage.provision.learn.law_network import LawNetwork, LawShape
from mirage.provision.learn.model import DEFAULT_TRAITS, Assessment, States, Traits
from mirage.provision.learn.network_files import (
    fill,
    read_header,
    read_tensors,
    record_of,
    take_arrays,
    write_network,
)
from mirage.provision.learn.neural import check_states
from mirage.provision.learn.scaling import Scaling, SummaryScaling
from mirage.rl.options import Count, MethodOptions

_BATCH = 512
MOST_NETWORKS = 64


@dataclass(frozen=True)
class Ensemble(MethodOptions):
    """How many networks there are, all of one shape."""

    networks: Count = 5


@dataclass(frozen=True)
class LawModel:
    """Implements `mirage.provision.learn.model.Model`. Make it by training, or with `read`."""

    name: str
    networks: nn.ModuleList
    """Of `LawNetwork`; the mean of their laws decides."""
    scaling: Scaling
    summaries: SummaryScaling
    traits: Traits = DEFAULT_TRAITS

    @property
    def _shape(self) -> LawShape:
        first = self.networks[0]
        assert isinstance(first, LawNetwork)
        return first.shape

    def assess(self, states: States) -> Assessment:
        """Raises InputError for states that `check_states` refuses, and without forecasts."""
        return assess(self.law(states), states)

    def law(self, states: States) -> Law:
        """Of the waits at these states."""
        return Law.of_chances(self._mean(states)[0])

    def gate(self, states: States) -> Floats:
        """(n, experts): the experts' weights at these states, as means over the networks."""
        return self._mean(states)[1]

    def _mean(self, states: States) -> tuple[Floats, Floats]:
        """Chances, (n, durations), and gates, (n, experts)."""
        check_states(states)
        asked = self.summaries.apply(features_of(states))
        chances = np.empty((len(states), len(DURATIONS_S)))
        gates = np.empty((len(states), self._shape.experts))
        for begin in range(0, len(states), _BATCH):
            part = slice(begin, begin + _BATCH)
            chances[part], gates[part] = self._batch(states.matrices[part], asked[part])
        return chances, gates

    def _batch(self, matrices: Vectors, asked: Vectors) -> tuple[Floats, Floats]:
        device = next(self.networks.parameters()).device
        summaries, states = torch.from_numpy(asked).to(device), None
        if self._shape.history:
            states = torch.from_numpy(self.scaling.apply(matrices)).to(device)
        self.networks.eval()
        with torch.no_grad():
            said = [network(states, summaries) for network in self.networks]
        chances = torch.stack([each.longer.exp() for each in said]).mean(0)
        gates = torch.stack([each.gate for each in said]).mean(0)
        return chances.double().cpu().numpy(), gates.double().cpu().numpy()

    def write(self, folder: Path) -> None:
        """Weights, scalings and everything else into an existing folder (`network_files.py`)."""
        header = {
            "name": self.name,
            "shape": asdict(self._shape),
            "ensemble": asdict(Ensemble(len(self.networks))),
        }
        arrays = {"scaling": self.scaling, "summaries": self.summaries}
        write_network(folder, header, self.networks, arrays)


def read(folder: Path) -> LawModel:
    """What `LawModel.write` wrote. Raises InputError for files that are missing, damaged, or do not
    fit each other.
    """
    header = read_header(folder)
    shape = record_of(LawShape, header, "shape", folder)
    count = record_of(Ensemble, header, "ensemble", folder).networks
    if count > MOST_NETWORKS:
        raise InputError(f"{folder}: {count} networks; give at most {MOST_NETWORKS}")
    tensors = read_tensors(folder)
    scaling = take_arrays(tensors, "scaling", Scaling)
    summaries = take_arrays(tensors, "summaries", SummaryScaling)
    with torch.device("meta"):
        networks = nn.ModuleList(LawNetwork(shape) for _ in range(count))
    fill(networks, tensors, folder)
    return LawModel(header["name"], networks, scaling, summaries)

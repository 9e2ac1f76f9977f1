"""A trained network as a `Model`: decisions for many pairs in one forward pass, and its files.

Serving is deterministic. Dropout is off, and a P-head releases where submitting is at least as
likely as waiting. The paper samples the action instead (section 4.4); a service that is asked to
explain a decision must be able to repeat it, so that is an option (`sampled`), and even then the
draw is a function of the state and a seed.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import torch

from mirage.errors import InputError
from mirage.provision.learn.episode import HISTORY, Floats
from mirage.provision.learn.foundation import Network, Shape
from mirage.provision.learn.model import Assessment, Flags, Model, States, Traits
from mirage.provision.learn.network_files import (
    fill,
    read_header,
    read_tensors,
    record_of,
    take_arrays,
    write_network,
)
from mirage.provision.learn.points import questions
from mirage.provision.learn.scaling import Scaling, forecast_inputs
from mirage.provision.learn.training import Head, prefers_release, score
from mirage.rl.options import Fraction, MethodOptions, Range
from mirage.state.variables import VARIABLES
from slurm_sim.seconds import HOUR_S

_BATCH = 512
Memory = Annotated[int, Range(1, HISTORY)]
"""Decision points over which a V-head's mean may decide: a day, since no more is remembered."""


@dataclass(frozen=True)
class Serving(MethodOptions):
    """How a network's output becomes decisions."""

    decides: Head = "value"
    """The V-head (supervised and DQN) or the P-head (policy gradient)."""
    share: Fraction | None = None
    """The only penalty share e_I / (e_I + e_O) that it was trained for; None: the share is an
    input.
    """
    memory: Memory = 1
    """V-head only: the mean difference of the two Q-values over so many decision points decides; 1:
    as in the paper.
    """
    sampled: bool = False
    """P-head only: release with the predicted probability, as the paper does."""
    seed: int = 0
    """Of the sampling."""
    interrupted: bool = False
    """Whether the training was cut short, so that these are the best weights until then."""


@dataclass(frozen=True)
class Neural:
    """Implements `mirage.provision.learn.model.Model`. Make it by training, or with `read`."""

    name: str
    network: Network
    scaling: Scaling
    serving: Serving = Serving()

    @property
    def traits(self) -> Traits:
        return Traits(
            uses_forecasts=self.network.shape.forecast_input,
            memory=self.serving.memory if self.serving.decides == "value" else 1,
            share=self.serving.share,
            interrupted=self.serving.interrupted,
        )

    def assess(self, states: States) -> Assessment:
        """Decisions of n pairs. Costs are the V-head's; NaN where it does not decide, or for a
        taste it was not taught.

        Raises InputError for matrices of another shape, values that are no numbers, penalties
        without a sum, and where forecasts are needed and not there.
        """
        check_states(states)
        if self.traits.uses_forecasts and states.forecast_s is None:
            raise InputError(
                "This network needs a forecast from the present queue with each state."
            )
        total = states.penalties.sum(axis=1)
        shares = states.penalties[:, 0] / total
        scores = self._scores(states, shares)
        release = self._release(states, scores)
        if self.serving.decides == "policy":
            return Assessment.plain(release)
        costs_s = -scores * float(self.network.scale_h) * HOUR_S * total[:, None]
        if self.serving.share is not None:
            costs_s[~np.isclose(shares, self.serving.share)] = np.nan
        return replace(
            Assessment.plain(release, costs_s[:, 0], costs_s[:, 1]),
            gain=scores[:, 0] - scores[:, 1],
        )

    def distance(self, base: Model) -> float:
        """Norm of the difference of all weights, as a share of the norm of the base's. Raises
        InputError for a base of another kind or shape.
        """
        if not isinstance(base, Neural) or base.network.shape != self.network.shape:
            raise InputError(f"{self.name} and {base.name} have networks of different shapes.")
        mine, theirs = (
            torch.cat([item.detach().cpu().flatten() for item in each.network.parameters()])
            for each in (self, base)
        )
        return float((mine - theirs).norm() / theirs.norm())

    def gate(self, states: States) -> Floats:
        """(n, experts): the experts' weights at these states."""
        check_states(states)
        self.network.eval()
        device = next(self.network.parameters()).device
        parts = []
        with torch.no_grad():
            for begin in range(0, len(states), _BATCH):
                scaled = self.scaling.apply(states.matrices[begin : begin + _BATCH])
                flat = torch.from_numpy(scaled).flatten(1).to(device)
                parts.append(self.network.foundation.weights(flat).double().cpu().numpy())
        return np.concatenate(parts)

    def _scores(self, states: States, shares: Floats) -> Floats:
        """(n, 2): Q-values or log-probabilities of submitting and of waiting."""
        self.network.eval()
        device = next(self.network.parameters()).device
        forecast_s = (
            np.zeros(len(states), dtype=np.int64)
            if states.forecast_s is None
            else states.forecast_s
        )
        asked = questions(shares[:, None], forecast_inputs(forecast_s, states.remaining_s))
        scores = [np.empty((0, 2))]
        with torch.no_grad():
            for begin in range(0, len(states), _BATCH):
                part = slice(begin, begin + _BATCH)
                matrices = torch.from_numpy(self.scaling.apply(states.matrices[part])).to(device)
                found = score(
                    self.network,
                    matrices,
                    torch.from_numpy(asked[part]).to(device),
                    self.serving.decides,
                )
                scores.append(found[:, 0].double().cpu().numpy())
        return np.concatenate(scores)

    def _release(self, states: States, scores: Floats) -> Flags:
        if self.serving.sampled and self.serving.decides == "policy":
            drawn: Flags = _uniform(states, self.serving.seed) < np.exp(scores[:, 0])
            return drawn
        return prefers_release(scores, self.serving.decides)

    def write(self, folder: Path) -> None:
        """Weights, scaling and everything else into an existing folder (`network_files.py`)."""
        header = {
            "name": self.name,
            "inputs": self.network.shape.inputs,
            "shape": asdict(self.network.shape),
            "serving": asdict(self.serving),
        }
        write_network(folder, header, self.network, {"scaling": self.scaling})


def read(folder: Path) -> Neural:
    """What `Neural.write` wrote. Raises InputError for files that are missing, damaged, or do not
    fit each other.
    """
    header = read_header(folder)
    shape = record_of(Shape, header, "shape", folder)
    serving = record_of(Serving, header, "serving", folder)
    tensors = read_tensors(folder)
    scaling = take_arrays(tensors, "scaling", Scaling)
    with torch.device("meta"):
        network = Network(shape)
    fill(network, tensors, folder)
    return Neural(header["name"], network, scaling, serving)


def check_states(states: States) -> None:
    expected = (len(states), HISTORY, len(VARIABLES))
    if states.matrices.shape != expected:
        raise InputError(
            f"state matrices have shape {states.matrices.shape}, the model needs {expected}"
        )
    if not np.isfinite(states.matrices).all():
        raise InputError(
            "a state matrix has values that are no numbers; the state could not be encoded"
        )
    penalties = states.penalties
    if (
        not np.isfinite(penalties).all()
        or (penalties < 0).any()
        or (penalties.sum(axis=1) <= 0).any()
    ):
        raise InputError("penalties must be at least 0, and one of each pair above it")


def _uniform(states: States, seed: int) -> Floats:
    """(n,): a number from 0 to 1 for each state, which depends on nothing but it and the seed."""
    return np.array([_fraction(matrix[-1].tobytes(), seed) for matrix in states.matrices])


def _fraction(state: bytes, seed: int) -> float:
    digest = hashlib.blake2b(
        state, digest_size=8, key=seed.to_bytes(8, "little", signed=True)
    ).digest()
    return int.from_bytes(digest, "little") / 2**64

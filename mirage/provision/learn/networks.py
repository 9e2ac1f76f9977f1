"""The neural methods: a transformer or a mixture of ten, alone or with a head that learns online.

torch is imported as one of them is trained or read.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from mirage.provision.learn.method import Method, Space, TrainingData

if TYPE_CHECKING:
    from mirage.provision.learn.dqn import DqnOptions
    from mirage.provision.learn.neural import Neural
    from mirage.provision.learn.pg import PgOptions
    from mirage.provision.learn.pretrain import PretrainOptions

_SPACE: Space = {
    "shape.patch": (4, 6, 12, 24),
    "shape.width": (32, 48, 64),
    "shape.heads": (2, 4, 8),
    "shape.layers": (1, 2, 3),
    "shape.feedforward": (64, 96, 192),
    "shape.dropout": (0.0, 0.1, 0.2),
    "rate": (3e-4, 1e-3, 3e-3),
}
FOUNDATION = "pretrain."
"""Prefix of the options that a head has for its foundation."""
_FOUNDATION_SPACE: Space = {f"{FOUNDATION}{name}": values for name, values in _SPACE.items()}


@dataclass(frozen=True)
class SupervisedMethod(Method["PretrainOptions"]):
    """The foundation, trained on observed rewards (`pretrain.py`)."""

    name: str
    about: str
    has_experts: bool = False
    space = _SPACE
    stops_early = True

    def defaults(self) -> PretrainOptions:
        return _pretrain_options(self.has_experts)

    def fit(self, data: TrainingData, options: PretrainOptions) -> Neural:
        from mirage.provision.learn.pretrain import train_supervised

        return train_supervised(
            data.episodes, data.held_out, options, progress=data.progress, seed=data.seed
        )

    def load(self, folder: Path) -> Neural:
        return _read(folder)


@dataclass(frozen=True)
class DeepQ(Method["DqnOptions"]):
    """The foundation with a V-head (`dqn.py`)."""

    name: str
    about: str
    foundation: str
    has_experts: bool = False
    space: ClassVar[Space] = {
        **_FOUNDATION_SPACE,
        "rate": (1e-4, 5e-4, 2e-3),
        "epsilon": (0.3, 0.5, 0.8),
        "sync": (10, 40, 160),
    }
    stops_early = True

    def defaults(self) -> DqnOptions:
        from mirage.provision.learn.dqn import DqnOptions

        if not self.has_experts:
            return DqnOptions()
        # Ten experts cost six times as much a round as one: half the rounds.
        return DqnOptions(pretrain=_pretrain_options(has_experts=True), rounds=20)

    def fit(self, data: TrainingData, options: DqnOptions) -> Neural:
        from mirage.provision.learn.dqn import train_dqn

        return train_dqn(data.episodes, data.held_out, options, **_online(data))

    def load(self, folder: Path) -> Neural:
        return _read(folder)


@dataclass(frozen=True)
class PolicyGradient(Method["PgOptions"]):
    """The foundation with a P-head (`pg.py`)."""

    name: str
    about: str
    foundation: str
    has_experts: bool = False
    in_all: bool = True
    space: ClassVar[Space] = {
        **_FOUNDATION_SPACE,
        "rate": (1e-3, 5e-3, 1e-2),
        "entropy": (0.0, 1e-3, 1e-2),
    }
    stops_early = True

    def defaults(self) -> PgOptions:
        from mirage.provision.learn.pg import PgOptions

        if not self.has_experts:
            return PgOptions()
        # Longer warmed up, and at a lower rate: at a single expert's pace it unlearns to release.
        return PgOptions(
            pretrain=_pretrain_options(has_experts=True), rounds=200, warm=40, rate=2e-4
        )

    def fit(self, data: TrainingData, options: PgOptions) -> Neural:
        from mirage.provision.learn.pg import train_pg

        return train_pg(data.episodes, data.held_out, options, **_online(data))

    def load(self, folder: Path) -> Neural:
        return _read(folder)


def _pretrain_options(has_experts: bool) -> PretrainOptions:
    from mirage.provision.learn.pretrain import MOE_OPTIONS, PretrainOptions

    return MOE_OPTIONS if has_experts else PretrainOptions()


def _online(data: TrainingData) -> dict[str, Any]:
    return {
        "fresh": data.fresh,
        "base": data.base,
        "progress": data.progress,
        "seed": data.seed,
    }


def _read(folder: Path) -> Neural:
    from mirage.provision.learn.neural import read

    return read(folder)


_ONE, _TEN = "a transformer", "a mixture of transformers"
NETWORKS: tuple[Method[Any], ...] = (
    SupervisedMethod("transformer", f"{_ONE} predicts two Q-values, as in the paper"),
    SupervisedMethod("moe", f"{_TEN} predicts two Q-values, as in the paper", has_experts=True),
    DeepQ("transformer-dqn", f"{_ONE} with a Q-head, trained online", "transformer"),
    DeepQ("moe-dqn", f"{_TEN} with a Q-head, trained online", "moe", has_experts=True),
    PolicyGradient("transformer-pg", f"{_ONE} with a policy head, trained online", "transformer"),
    # It hardly ever releases: docs/decisions/0013.
    PolicyGradient(
        "moe-pg",
        f"{_TEN} with a policy head, trained online",
        "moe",
        has_experts=True,
        in_all=False,
    ),
)

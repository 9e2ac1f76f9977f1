"""What agents learn from: the paper's episodes, or streams of arrivals at all partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from mirage.errors import InputError
from mirage.routing.agent import Agent, check_products
from mirage.routing.arrivals import stream_sizes
from mirage.routing.dqn import DqnOptions, train_on_episodes
from mirage.routing.flavors import PartitionKind
from mirage.routing.state import Variant, actions_of, width

EPISODES = 1000


@dataclass(frozen=True)
class Taught:
    """Agents, in the partitions' order, what they were trained on, and the settings."""

    agents: tuple[Agent, ...]
    lesson: str
    facts: dict[str, Any]


def teach(
    lesson: str,
    kinds: Sequence[PartitionKind],
    variant: Variant,
    episodes: int | None,
    trace: Path | None,
    seed: int,
    told: Callable[[str], None],
) -> Taught:
    """Trains by the lesson's name, ``paper`` or ``streams``. Raises InputError."""
    check_products(sum(_products(kind, variant) for kind in kinds))
    stream_sizes(kinds)
    if lesson == "paper":
        if variant is Variant.COUNTS:
            raise InputError(
                "--variant counts: these agents choose no server, as the paper's lesson asks; use"
                " `ours`."
            )
        return _paper(kinds, variant, episodes or EPISODES, seed, told)
    from mirage.routing.online import teach_on_streams

    return teach_on_streams(kinds, variant, episodes, trace, seed, told)


def _products(kind: PartitionKind, variant: Variant) -> int:
    sizes = (width(kind, variant), *DqnOptions().hidden, actions_of(kind, variant).count)
    return sum(inputs * outputs for inputs, outputs in pairwise(sizes))


def _paper(
    kinds: Sequence[PartitionKind],
    variant: Variant,
    episodes: int,
    seed: int,
    told: Callable[[str], None],
) -> Taught:
    options, agents = DqnOptions(), []
    for kind in kinds:
        agents.append(train_on_episodes(kind, variant, episodes, options, seed))
        told(f"{kind.name}: {episodes} episodes")
    return Taught(
        tuple(agents),
        f"{episodes} episodes of five jobs a partition",
        asdict(options) | {"hidden": list(options.hidden)},
    )

"""What agents learn from: the paper's episodes, or streams of arrivals at all partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

from mirage.routing.advantage import OPTIONS, train_on_streams
from mirage.routing.agent import check_products
from mirage.routing.arrivals import stream_sizes
from mirage.routing.dqn import train_on_episodes
from mirage.routing.flavors import PartitionKind
from mirage.routing.network import AgentOptions, TrainedAgents, layer_sizes
from mirage.routing.state import Variant

EPISODES = 1000


def train_agents(
    lesson: str,
    kinds: Sequence[PartitionKind],
    *,
    episodes: int | None,
    trace: Path | None,
    seed: int,
    report: Callable[[str], None],
) -> TrainedAgents:
    """Trains by the lesson's name, ``paper`` or ``streams``. Raises InputError."""
    variant = Variant.CHOICE if lesson == "streams" else Variant.PAPER
    check_products([_products(kind, variant, len(kinds)) for kind in kinds], variant)
    stream_sizes(kinds)
    if lesson == "streams":
        return train_on_streams(kinds, streams=episodes, trace=trace, seed=seed, report=report)
    options, agents, count = AgentOptions(), [], episodes or EPISODES
    for kind in kinds:
        agents.append(train_on_episodes(kind, count, options, seed))
        report(f"{kind.name}: {count} episodes")
    lesson = f"{count} episodes of five jobs a partition"
    return TrainedAgents(agents=tuple(agents), lesson=lesson, facts=options.plain)


def _products(kind: PartitionKind, variant: Variant, partitions: int) -> int:
    options = OPTIONS if variant is Variant.CHOICE else AgentOptions()
    sizes = layer_sizes(kind, variant, options.hidden, partitions)
    return sum(inputs * outputs for inputs, outputs in pairwise(sizes))

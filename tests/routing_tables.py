"""Tables, agents and jobs for the tests of routing: drawn by a seed, or made so that the right
choice is plain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from mirage.routing.agent import Agent, Layer
from mirage.routing.decide import Table
from mirage.routing.flavors import Demand, PartitionKind, paper_partitions
from mirage.routing.places import ExpectedWait, NodeShape, Place
from mirage.routing.state import PartitionState, Server, Variant, width

NOW_S = 1_700_000_000


def random_agent(
    kind: PartitionKind, variant: Variant, random: np.random.Generator, partitions: int = 2
) -> Agent:
    """With float32 weights, as trained ones have; hidden layers whose sizes are no multiples of
    four.
    """
    values = 1 if variant is Variant.CHOICE else kind.actions.count
    sizes = [width(kind, variant, partitions), 11, 3, values]
    return Agent(kind, variant, tuple(_layer(a, b, random) for a, b in pairwise(sizes)))


def _layer(inputs: int, outputs: int, random: np.random.Generator) -> Layer:
    weights = random.normal(size=(inputs, outputs)).astype(np.float32).astype(float)
    return Layer(tuple(map(tuple, weights.tolist())), tuple(random.normal(size=outputs).tolist()))


def rough(agent: Agent) -> Agent:
    """With weights of -1, 0 and 1 only, so that many values are equal."""
    return replace(
        agent,
        layers=tuple(Layer(tuple(map(_signs, x.weights)), _signs(x.bias)) for x in agent.layers),
    )


def _signs(row: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(round(max(-1.0, min(1.0, value)))) for value in row)


def random_table(kinds: Sequence[PartitionKind], random: np.random.Generator) -> Table:
    states = tuple(_random_state(kind, random) for kind in kinds)
    return Table(NOW_S, 600, states, tuple(random_place(kind.name, random) for kind in kinds))


def random_place(name: str, random: np.random.Generator) -> Place:
    """Of up to three shapes of nodes and four rows of waits."""

    def draw(most: int) -> int:
        return int(random.integers(1, most + 1))

    shapes = tuple(
        NodeShape(
            count=draw(6),
            cpus=draw(64),
            memory_mib=draw(200_000),
            gpus=int(random.choice([0, 2, 4, 8])),
            gpu_type=str(random.choice(["-", "a100", "v100"])),
        )
        for _ in range(draw(3))
    )
    rows = sorted((draw(8), draw(300_000), draw(50) * 60) for _ in range(draw(5) - 1))
    waits = tuple(ExpectedWait(nodes=row[0], limit_s=row[1], wait_s=row[2]) for row in rows)
    return Place(name=name, shapes=shapes, waits=waits)


def _random_state(kind: PartitionKind, random: np.random.Generator) -> PartitionState:
    servers = []
    for number in range(kind.servers):
        total = (kind.gpus, kind.cpus, kind.memory_mib)
        free = tuple(
            int(random.integers(each + 1)) if random.random() < 0.3 else each for each in total
        )
        ends = sorted(NOW_S + int(each) for each in random.integers(-5000, 400 * 3600, 2))
        busy = free != total
        up = bool(random.random() < 0.9)
        servers.append(
            Server(f"{kind.name}-{number}", total, free, ends[0] * busy, ends[1] * busy, up)
        )
    queued = [int(each) for each in random.integers(random.choice([3, 12]), size=len(kind.flavors))]
    if random.random() < 0.5:
        queued = [0] * len(kind.flavors)
    waits_s = [int(each) for each in random.integers(400 * 3600, size=len(kind.flavors))]
    return PartitionState(kind, servers, queued, int(random.integers(20_000_000)), waits_s)


def random_demand(random: np.random.Generator) -> Demand:
    limit_s = None if random.random() < 0.3 else int(random.integers(1, 340 * 3600))
    gpus, nodes = (
        int(random.choice([1, 1, 2, 2, 3, 4, 6, 8, 12])),
        1 if random.random() < 0.9 else 2,
    )
    return Demand(gpus, int(random.integers(1, 100)), int(random.integers(200_000)), limit_s, nodes)


def plain_agents() -> list[Agent]:
    """Of the paper's partitions: A100 is worth 2 and V100 1 where the job can run now; to wait is
    worth 0 and -1.
    """
    return [
        _plain(kind, bonus) for kind, bonus in zip(paper_partitions(), (0.0, -1.0), strict=True)
    ]


def _plain(kind: PartitionKind, bonus: float) -> Agent:
    actions, inputs = kind.actions.count, width(kind, Variant.PAPER)
    bias = tuple(
        (0.0 if action >= actions - len(kind.flavors) else 2.0) + bonus for action in range(actions)
    )
    return Agent(
        kind, Variant.PAPER, (Layer(tuple((0.0,) * actions for _ in range(inputs)), bias),)
    )


def idle_table(at_s: int, valid_s: int = 600) -> Table:
    """The paper's partitions; their nodes are of types a100 and v100, and jobs wait half as long in
    the latter.
    """
    kinds = paper_partitions()
    places = tuple(
        Place(
            name=kind.name,
            shapes=(
                NodeShape(
                    count=kind.servers,
                    cpus=kind.cpus,
                    memory_mib=kind.memory_mib,
                    gpus=kind.gpus,
                    gpu_type=kind.name.lower(),
                ),
            ),
            waits=(ExpectedWait(nodes=2, limit_s=86400, wait_s=wait_s),),
        )
        for kind, wait_s in zip(kinds, (1200, 600), strict=True)
    )
    return Table(at_s, valid_s, tuple(PartitionState.empty(kind) for kind in kinds), places)


def with_nan(agents_text: str) -> str:
    """The body with a weight of each agent replaced by nan; its first line has to be made anew."""
    return "\n".join(
        line.replace(" 0.0 ", " nan ", 1) if line.startswith("row") else line
        for line in agents_text.splitlines()[1:]
    )


def larger(kind: PartitionKind, servers: int) -> PartitionKind:
    """A partition of the same servers without its flavours of several."""
    return replace(kind, servers=servers, flavors=tuple(f for f in kind.flavors if f.servers == 1))

"""The scalable agent: attention over jobs and GPUs, one network for any number of them.

For each job it gives advice to the search (`planner.SearchAdvice`); for each GPU a choice of a job
or of none, equation 7's product policy, which is one more start of the search. `ScalableAgent` decides
by that policy alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from mirage.placement.simulated.planner import Queue, SearchAdvice, places, queue_of
from mirage.placement.simulated.world import PlacementWorld
from mirage.placement.speed import MinibatchCosts, SpeedEstimate
from mirage.placement.topology import Bools, Floats, Ints, Topology

WIDTH = 32
HEADS = 2
BLOCKS = 2
JOB_FEATURES = 14
GPU_FEATURES = 9
ADVICE = 2
"""Numbers that a job's advice has: weight and bend."""
_SIZES = np.array([1, 2, 4, 8, 16, 32])

Singles = npt.NDArray[np.float32]


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What the network sees of B clusters, padded to J jobs, the world's rows."""

    jobs: Tensor
    """[B, J, JOB_FEATURES]."""
    gpus: Tensor
    """[B, M, GPU_FEATURES]."""
    owner: Tensor
    """The job that holds each GPU, as an index of the cluster's queue; J: none. [B, M]."""
    filled: Tensor
    """Whether there is a job, [B, J]."""


def joined(scenes: Sequence[Scene]) -> Scene:
    """One after the other, with room for the same number of jobs."""
    return Scene(
        jobs=torch.cat([each.jobs for each in scenes]),
        gpus=torch.cat([each.gpus for each in scenes]),
        owner=torch.cat([each.owner for each in scenes]),
        filled=torch.cat([each.filled for each in scenes]),
    )


class Eyes:
    """Turns clusters of one topology into scenes."""

    def __init__(self, topology: Topology, law: SpeedEstimate, step_s: float) -> None:
        self._topology, self._law, self._step_s = topology, law, step_s
        self._near = _bandwidths(topology)

    def see(self, world: PlacementWorld, clusters: Ints) -> tuple[Scene, list[Queue]]:
        """Clusters with at least one job each."""
        queues = [queue_of(world, int(cluster)) for cluster in clusters]
        return self.scene(queues, world.waiting[clusters], world.rows), queues

    def scene(self, queues: Sequence[Queue], behind: Ints, most: int) -> Scene:
        """``behind``: jobs that wait behind each queue, [B]; ``most``: jobs that a scene has room
        for.
        """
        gpus = len(self._topology)
        jobs = np.zeros((len(queues), most, JOB_FEATURES), dtype=np.float32)
        owner = np.full((len(queues), gpus), most)
        places = np.zeros((len(queues), gpus, GPU_FEATURES), dtype=np.float32)
        for nth, queue in enumerate(queues):
            count = len(queue.rows)
            jobs[nth, :count] = self._jobs(queue, float(behind[nth]))
            held: Bools = np.asarray(queue.held.any(axis=0))
            owner[nth, held] = queue.held.argmax(axis=0)[held]
            places[nth] = self._gpus(queue, held)
        filled = np.arange(most) < np.array([len(queue.rows) for queue in queues])[:, None]
        return Scene(
            jobs=torch.from_numpy(jobs),
            gpus=torch.from_numpy(places),
            owner=torch.from_numpy(owner),
            filled=torch.from_numpy(filled),
        )

    def _jobs(self, queue: Queue, behind: float) -> Singles:
        gpus, costs = len(self._topology), queue.costs
        sizes = _SIZES[gpus >= _SIZES][:, None]
        steps = queue.left / (self._law.as_asked(sizes, costs) * self._step_s)
        asked_steps = queue.left / (self._law.as_asked(queue.asked, costs) * self._step_s)
        held = queue.held.sum(axis=1)
        count = np.full(len(queue.rows), len(queue.rows) / gpus)
        columns = [
            np.log(queue.length),
            np.log(queue.asked),
            np.log(asked_steps + 1e-3),
            np.log(steps[0] + 1e-3),
            np.log(steps.min(axis=0) + 1e-3),
            np.log(sizes[steps.argmin(axis=0), 0]),
            np.log(self._communication(costs) + 1e-3),
            np.log1p(held),
            held > 0,
            self._topology.racks(queue.held) / 4,
            np.log1p(queue.waited),
            queue.lost_s / self._step_s,
            4 * count,
            np.log1p(np.full(len(queue.rows), behind / gpus)),
        ]
        table: Singles = np.stack(columns, axis=1).astype(np.float32)
        return table

    def _communication(self, costs: MinibatchCosts) -> Floats:
        """Time of a reduction by the square root of the GPUs, as a share of the training's, [J]."""
        alone, pair = (self._law.as_asked(np.array(n), costs) for n in (1, 2))
        found: Floats = np.maximum(2 * alone / pair - 1, 0.0) / np.sqrt(2)
        return found

    def _gpus(self, queue: Queue, held: Bools) -> Singles:
        topology = self._topology
        columns = [held.astype(float)]
        for near in (topology.socket_of, topology.node_of, topology.rack_of):
            used = np.bincount(near, weights=held) / np.bincount(near)
            columns.append(used[near])
        across = queue.held[topology.racks(queue.held) > 1].any(axis=0)
        crossing = np.bincount(topology.rack_of, weights=across) / np.bincount(topology.rack_of)
        columns.append(crossing[topology.rack_of])
        table: Singles = np.concatenate([np.stack(columns, axis=1), self._near], axis=1)
        return table.astype(np.float32)


def _bandwidths(topology: Topology) -> Singles:
    """Of each GPU: the narrowest link to a GPU of its socket, node, rack and of another rack, as
    logarithms; 0 where there is no such GPU. [M, 4].
    """
    found = np.zeros((len(topology), 4), dtype=np.float32)
    same = [
        place[:, None] == place
        for place in (topology.socket_of, topology.node_of, topology.rack_of)
    ]
    other = ~np.eye(len(topology), dtype=bool)
    nearest = [same[0] & other, same[1] & ~same[0], same[2] & ~same[1], ~same[2]]
    for column, near in enumerate(nearest):
        some = near.any(axis=1)
        pairs = np.zeros((int(some.sum()), 1, len(topology)), dtype=bool)
        rows = np.arange(len(pairs))
        pairs[rows, 0, np.nonzero(some)[0]] = True
        pairs[rows, 0, near[some].argmax(axis=1)] = True
        found[some, column] = np.log(topology.limiting_gb_per_s(pairs)[0][:, 0]) / 4
    return found


class _Attention(nn.Module):
    """Tokens look at others: [B, N, d], [B, K, d], mask [B, K] -> [B, N, d]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query = nn.Linear(width, width)
        self.memory = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, tokens: Tensor, others: Tensor, there: Tensor | None) -> Tensor:
        query = self._heads(self.query(tokens))
        key, value = map(self._heads, self.memory(others).chunk(2, dim=-1))
        mask = None if there is None else there[:, None, None, :]
        found = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        result: Tensor = self.out(found.transpose(1, 2).flatten(2))
        return result

    @staticmethod
    def _heads(tokens: Tensor) -> Tensor:
        batch, count, width = tokens.shape
        return tokens.view(batch, count, HEADS, width // HEADS).transpose(1, 2)


class _Block(nn.Module):
    """Jobs look at jobs and at GPUs, then GPUs at jobs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.among_jobs, self.to_gpus = _Attention(width), _Attention(width)
        self.to_jobs = _Attention(width)
        self.norms = nn.ModuleList([nn.LayerNorm(width) for _ in range(5)])
        self.think = nn.ModuleList(
            [
                nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
                for _ in range(2)
            ]
        )

    def forward(self, jobs: Tensor, gpus: Tensor, filled: Tensor) -> tuple[Tensor, Tensor]:
        calm = self.norms[0](jobs)
        jobs = jobs + self.among_jobs(calm, calm, filled)
        jobs = jobs + self.to_gpus(self.norms[1](jobs), gpus, None)
        jobs = jobs + self.think[0](self.norms[2](jobs))
        gpus = gpus + self.to_jobs(self.norms[3](gpus), jobs, filled)
        gpus = gpus + self.think[1](self.norms[4](gpus))
        return jobs, gpus


class ScalableNetwork(nn.Module):
    """Scene -> advice [B, J, 2] and each GPU's logits over jobs and none, [B, M, J + 1].

    Untrained, its advice is 0.
    """

    def __init__(self, width: int = WIDTH, blocks: int = BLOCKS) -> None:
        super().__init__()
        self.width = width
        self.read_job = nn.Linear(JOB_FEATURES, width)
        self.read_gpu = nn.Linear(GPU_FEATURES, width)
        self.holder = nn.Linear(width, width)
        self.blocks = nn.ModuleList([_Block(width) for _ in range(blocks)])
        self.advice = nn.Linear(width, ADVICE)
        nn.init.zeros_(self.advice.weight)
        nn.init.zeros_(self.advice.bias)
        self.calm = nn.LayerNorm(width)
        self.seek, self.offer = nn.Linear(width, width), nn.Linear(width, width)
        self.nobody = nn.Parameter(torch.zeros(width))
        self.keep = nn.Parameter(torch.ones(1))

    def forward(self, scene: Scene) -> tuple[Tensor, Tensor]:
        tokens, logits = self.look(scene)
        return self.advice(tokens), logits

    def look(self, scene: Scene) -> tuple[Tensor, Tensor]:
        """The jobs' tokens, from which the advice comes, [B, J, width]; and the logits."""
        jobs = self.read_job(scene.jobs)
        most = jobs.shape[1]
        padded = functional.pad(self.holder(jobs), (0, 0, 0, 1))
        index = scene.owner[:, :, None].expand(-1, -1, self.width)
        gpus = self.read_gpu(scene.gpus) + padded.gather(1, index)
        for block in self.blocks:
            jobs, gpus = block(jobs, gpus, scene.filled)
        offers = torch.cat([self.offer(jobs), self.nobody.expand(len(jobs), 1, -1)], dim=1)
        logits = self.seek(gpus) @ offers.transpose(1, 2) / self.width**0.5
        logits = logits + self.keep * functional.one_hot(scene.owner, most + 1)
        there = functional.pad(scene.filled, (0, 1), value=True)
        tokens: Tensor = self.calm(jobs)
        return tokens, logits.masked_fill(~there[:, None, :], -torch.inf)


class NetworkGuide:
    """The network as the guide of a search."""

    def __init__(self, network: ScalableNetwork) -> None:
        self.network = network
        self._eyes: tuple[Topology, Eyes] | None = None

    def see(self, world: PlacementWorld) -> tuple[Ints, Scene | None, list[Queue]]:
        """The clusters with jobs, and what is seen of them; None: no cluster has a job."""
        topology = world.config.topology
        if self._eyes is None or self._eyes[0] is not topology:
            self._eyes = (topology, Eyes(topology, world.law, world.config.model.step_s))
        clusters = np.nonzero(~world.over & world.filled.any(axis=1))[0]
        if not len(clusters):
            return clusters, None, []
        return (clusters, *self._eyes[1].see(world, clusters))

    @torch.no_grad()
    def advise(self, world: PlacementWorld) -> dict[int, SearchAdvice]:
        clusters, scene, queues = self.see(world)
        if scene is None:
            return {}
        advice, logits = self.network(scene)
        return as_advice(clusters, queues, advice, logits)


def as_advice(
    clusters: Ints, queues: list[Queue], advice: Tensor, logits: Tensor
) -> dict[int, SearchAdvice]:
    """By cluster. ``advice`` [B, J, 2], ``logits`` [B, M, J + 1]."""
    numbers = advice.double().numpy()
    choice = logits.argmax(dim=-1).numpy()
    found = {}
    for nth, (cluster, queue) in enumerate(zip(clusters, queues, strict=True)):
        count = len(queue.rows)
        found[int(cluster)] = SearchAdvice(
            weight=numbers[nth, :count, 0],
            bend=numbers[nth, :count, 1],
            owner=np.where(choice[nth] < count, choice[nth], -1),
        )
    return found


class ScalableAgent:
    """Without a search: each job gets the number of GPUs that the policy gives it on average, packed
    close. GPUs that are alike choose alike, so the most probable job of each GPU would get them all.
    """

    leaves_slots = False

    def __init__(self, network: ScalableNetwork, name: str = "scalable") -> None:
        self.name = name
        self._guide = NetworkGuide(network)

    def reset(self, world: PlacementWorld) -> None:
        """Keeps nothing."""

    @torch.no_grad()
    def decide(self, world: PlacementWorld) -> Ints:
        actions = np.full((world.clusters, world.assigned.shape[-1]), world.rows)
        clusters, scene, queues = self._guide.see(world)
        if scene is None:
            return actions
        _, logits = self._guide.network(scene)
        expected = logits.softmax(dim=-1).sum(dim=1).double().numpy()
        for nth, (cluster, queue) in enumerate(zip(clusters, queues, strict=True)):
            sizes = rounded(expected[nth, : len(queue.rows)])
            owner = places(world.config.topology, queue, sizes, keep=True)
            given = owner >= 0
            actions[cluster, given] = queue.rows[owner[given]]
        return actions


def rounded(expected: Floats) -> Ints:
    """Whole numbers near these and not more in sum, by largest remainders, [J]; not all are 0."""
    sizes = np.floor(expected + 1e-6)
    remainders = expected - sizes
    spare = int(expected.sum() + 1e-6 - sizes.sum())
    sizes[np.argsort(-remainders, kind="stable")[:spare]] += 1
    if not sizes.any():
        sizes[expected.argmax()] = 1
    return sizes.astype(np.int64)

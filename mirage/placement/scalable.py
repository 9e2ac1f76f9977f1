"""The scalable agent: attention over jobs and GPUs, one network for any number of them.

For each job it gives advice to the search (`planner.SearchAdvice`); for each GPU a choice of a job
or of none, equation 7's product policy, which acts alone or is one more start of the search.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from mirage.placement.planner import Queue, SearchAdvice, queue_of
from mirage.placement.speed import SpeedModel
from mirage.placement.topology import Bools, Topology
from mirage.placement.world import Ints, PlacementWorld

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


class Eyes:
    """Turns clusters of one topology into scenes."""

    def __init__(self, topology: Topology, model: SpeedModel) -> None:
        self._topology, self._model = topology, model
        self._near = _bandwidths(topology)

    def see(self, world: PlacementWorld, clusters: Ints) -> tuple[Scene, list[Queue]]:
        """Clusters with at least one job each."""
        queues = [queue_of(world, int(cluster)) for cluster in clusters]
        most = world.rows
        gpus = len(self._topology)
        jobs = np.zeros((len(queues), most, JOB_FEATURES), dtype=np.float32)
        owner = np.full((len(queues), gpus), most)
        places = np.zeros((len(queues), gpus, GPU_FEATURES), dtype=np.float32)
        for nth, queue in enumerate(queues):
            count = len(queue.rows)
            behind = float(world.waiting[clusters[nth]])
            jobs[nth, :count] = self._jobs(queue, behind)
            held: Bools = np.asarray(queue.held.any(axis=0))
            owner[nth, held] = queue.held.argmax(axis=0)[held]
            places[nth] = self._gpus(queue, held)
        filled = np.arange(most) < np.array([len(queue.rows) for queue in queues])[:, None]
        scene = Scene(
            jobs=torch.from_numpy(jobs),
            gpus=torch.from_numpy(places),
            owner=torch.from_numpy(owner),
            filled=torch.from_numpy(filled),
        )
        return scene, queues

    def _jobs(self, queue: Queue, behind: float) -> Singles:
        model, gpus = self._model, len(self._topology)
        training_s = model.training_s(queue.distance)
        sizes = _SIZES[gpus >= _SIZES][:, None]
        reduction_s = np.where(sizes > 1, queue.per_root_s * np.sqrt(sizes), 0.0)
        speed = queue.distance * sizes / (training_s + reduction_s)
        steps = queue.left / (speed * model.step_s)
        asked_s = training_s + model.rack_reduction_s(queue.per_root_s, queue.asked)
        asked_steps = queue.left * asked_s / (queue.distance * queue.asked * model.step_s)
        held = queue.held.sum(axis=1)
        count = np.full(len(queue.rows), len(queue.rows) / gpus)
        columns = [
            np.log(queue.length),
            np.log(queue.asked),
            np.log(asked_steps + 1e-3),
            np.log(steps[0] + 1e-3),
            np.log(steps.min(axis=0) + 1e-3),
            np.log(sizes[steps.argmin(axis=0), 0]),
            np.log(queue.per_root_s / training_s + 1e-3),
            np.log1p(held),
            held > 0,
            self._topology.racks(queue.held) / 4,
            np.log1p(queue.waited),
            queue.lost_s / model.step_s,
            4 * count,
            np.log1p(np.full(len(queue.rows), behind / gpus)),
        ]
        table: Singles = np.stack(columns, axis=1).astype(np.float32)
        return table

    def _gpus(self, queue: Queue, held: Bools) -> Singles:
        topology = self._topology
        columns = [held.astype(float)]
        for places in (topology.socket_of, topology.node_of, topology.rack_of):
            used = np.bincount(places, weights=held) / np.bincount(places)
            columns.append(used[places])
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
        places[:, None] == places
        for places in (topology.socket_of, topology.node_of, topology.rack_of)
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
            self._eyes = (topology, Eyes(topology, world.config.model))
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
    """Each GPU to its most probable job, without a search."""

    leaves_slots = False

    def __init__(self, network: ScalableNetwork, name: str = "scalable") -> None:
        self.name = name
        self._guide = NetworkGuide(network)

    def reset(self, world: PlacementWorld) -> None:
        """Keeps nothing."""

    def decide(self, world: PlacementWorld) -> Ints:
        actions = np.full((world.clusters, world.assigned.shape[-1]), world.rows)
        clusters, _, queues = self._guide.see(world)
        advice = self._guide.advise(world)
        for cluster, queue in zip(clusters, queues, strict=True):
            owner = advice[int(cluster)].owner
            assert owner is not None
            given = owner >= 0
            actions[cluster, given] = queue.rows[owner[given]]
        return actions

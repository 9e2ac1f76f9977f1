"""Our network on DeepShare's jobs and measured interference: alone, and as the guide of the search.

    python -m benchmarks.placement_deepshare_agents train --data DIR --model MODEL --seed S
        [--minutes N] --out WEIGHTS
    python -m benchmarks.placement_deepshare_agents measure --data DIR --model MODEL...
        [--weights WEIGHTS...] --out FILE

MODEL is a folder of `mirage place train --agent scalable`; WEIGHTS, a safetensors file, what came
of it here. DIR and the world are those of `benchmarks.placement_deepshare`. Training sequences are
64 jobs that are drawn anew, with the models and sizes of the 256 jobs, never these 256 themselves.
Two stages, as in `mirage.placement.guided`: the choice of GPUs imitates the search, while advice
stays what MODEL gives; then the layer of advice explores. The reward is minus the mean of two
ratios to other episodes of the same jobs: mean completion time and mean running time.

The network sees the 24 jobs that the search sees. It knows of a job how fast it is alone, and
nothing of who disturbs whom; the search does.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from benchmarks.placement_deepshare import (
    GPUS_PER_NODE,
    JOBS,
    MODELS,
    NODES,
    PLACEMENTS,
    ROUND_S,
    Cluster,
    Job,
    JobAdvice,
    Rounds,
    RoundSearch,
    Tables,
    jobs_of,
    read_tables,
)
from mirage.figures.provenance import provenance
from mirage.placement.model import read_model
from mirage.placement.planner import Queue
from mirage.placement.scalable import Eyes, ScalableNetwork, Scene, joined
from mirage.placement.speed import MinibatchCosts
from mirage.placement.topology import Floats, Gpu, Topology, add_link
from mirage.placement.world import Ints
from mirage.rl.fit import BestWeights, descend, seeded
from mirage.rl.ppo import minibatches

Json = dict[str, Any]
GPUS = NODES * GPUS_PER_NODE
KINDS = list(MODELS.values())
TRAINING_JOBS, IMITATED = 64, 4
SEQUENCES, PAIRS, SPREAD, RATE = 2, 3, 0.05, 0.003


class IsolatedSpeed:
    """Samples a second of a job alone, in place of FLOPS; by model (kind) and GPUs."""

    def __init__(self, tables: Tables) -> None:
        self._table = np.zeros((len(KINDS), GPUS + 1))
        for kind, model in enumerate(KINDS):
            for gpus in (2, 4, 8):
                best = max(tables.isolated[f"{model},{gpus},{n}"] for n in (2, 4) if n <= gpus)
                self._table[kind, gpus:] = best
            self._table[kind, 3] = self._table[kind, 2]
            self._table[kind, 1] = self._table[kind, 2] / 2  # not measured

    def as_asked(self, gpus: Ints, costs: MinibatchCosts) -> Floats:
        """More GPUs than were measured help no more."""
        found: Floats = self._table[costs.kind, gpus]
        return found


def four_nodes() -> Topology:
    """Nodes as racks of their own."""
    graph: nx.Graph[str] = nx.Graph()
    gpus = []
    for node in range(NODES):
        add_link(graph, f"n{node}", "switch", gb_per_s=5.0, source="deepshare")
        for nth in range(GPUS_PER_NODE):
            name = f"n{node}/gpu{nth}"
            add_link(graph, name, f"n{node}", gb_per_s=16.0, source="deepshare")
            gpus.append(Gpu(name=name, node=f"n{node}", rack=f"n{node}", socket=f"n{node}"))
    return Topology(graph, gpus, source="deepshare")


class RoundView:
    """What the network sees of rounds."""

    def __init__(self, tables: Tables, search: RoundSearch) -> None:
        self.topology, self._search = four_nodes(), search
        self._law = IsolatedSpeed(tables)
        self._eyes = Eyes(self.topology, self._law, ROUND_S)

    def scene(self, rounds: Sequence[Rounds]) -> tuple[Scene, list[list[Job]]]:
        """And the jobs of each scene, in its order."""
        jobs = [self._search.chosen(each.waiting) for each in rounds]
        queues = [self._queue(own, each.clock_s) for own, each in zip(jobs, rounds, strict=True)]
        behind = np.array([len(r.waiting) - len(own) for own, r in zip(jobs, rounds, strict=True)])
        return self._eyes.scene(queues, behind, self._search.candidates), jobs

    def _queue(self, jobs: Sequence[Job], clock_s: int) -> Queue:
        kind = np.array([KINDS.index(job.model) for job in jobs])
        costs = MinibatchCosts(
            minibatch_distance=np.zeros(len(jobs)), per_root_s=np.zeros(len(jobs)), kind=kind
        )
        asked = np.array([job.gpus for job in jobs])
        samples = np.array([job.samples for job in jobs])
        alone_s = samples / self._law.as_asked(asked, costs)
        return Queue(
            rows=np.arange(len(jobs)),
            asked=asked,
            length=np.maximum(np.rint(alone_s / ROUND_S), 1).astype(np.int64),
            waited=np.full(len(jobs), clock_s // ROUND_S),
            held=owners(jobs) == np.arange(len(jobs))[:, None],
            left=samples - np.array([job.done for job in jobs]),
            costs=costs,
            lost_s=np.zeros(len(jobs)),
        )


def owners(jobs: Sequence[Job]) -> Ints:
    """The job of each GPU as an index, -1 for none, [M]; GPUs of a node are alike."""
    owner, used = np.full(GPUS, -1), [0] * NODES
    for nth, job in enumerate(jobs):
        for node in job.nodes:
            first, each = node * GPUS_PER_NODE + used[node], job.gpus // len(job.nodes)
            owner[first : first + each] = nth
            used[node] += each
    return owner


def as_advice(numbers: Tensor, jobs: Sequence[Job]) -> dict[int, JobAdvice]:
    """``numbers`` [J, 2]."""
    return {
        job.number: JobAdvice(weight=weight, bend=bend)
        for job, (weight, bend) in zip(jobs, numbers.tolist(), strict=False)
    }


def guided(tables: Tables, network: ScalableNetwork) -> Callable[[Rounds], list[Job]]:
    """The search with the network's advice."""
    search = RoundSearch(tables=tables)
    view = RoundView(tables, search)

    @torch.no_grad()
    def schedule(rounds: Rounds) -> list[Job]:
        scene, (jobs,) = view.scene([rounds])
        cluster = Cluster(tables=tables)
        search.plan(jobs, cluster, as_advice(network(scene)[0][0], jobs))
        return cluster.running

    return schedule


def alone(tables: Tables, network: ScalableNetwork) -> Callable[[Rounds], list[Job]]:
    """The network without a search: jobs by the share of their GPUs that the policy gives them on
    average, each on the nodes where it gives them most. Those with less than half wait; one runs.
    """
    view = RoundView(tables, RoundSearch(tables=tables))

    @torch.no_grad()
    def schedule(rounds: Rounds) -> list[Job]:
        scene, (jobs,) = view.scene([rounds])
        chance = network(scene)[1].softmax(dim=-1)[0, :, : len(jobs)].double().numpy()
        by_node = chance.reshape(NODES, GPUS_PER_NODE, -1).sum(axis=1)
        given = by_node.sum(axis=0) / np.array([job.gpus for job in jobs])
        cluster = Cluster(tables=tables)
        for nth in np.argsort(-given, kind="stable"):
            job = jobs[nth]
            if given[nth] < 0.5 and cluster.running:
                break
            free = cluster.free()
            fitting = [
                nodes
                for nodes in PLACEMENTS
                if job.gpus >= len(nodes) and all(free[n] >= job.gpus // len(nodes) for n in nodes)
            ]
            if fitting:
                job.nodes = max(fitting, key=lambda nodes: by_node[list(nodes), nth].mean())
                cluster.running.append(job)
        return cluster.running

    return schedule


def run(tables: Tables, words: Sequence[str], schedule: Callable[[Rounds], list[Job]]) -> Rounds:
    rounds = Rounds(tables, jobs_of(tables, words))
    while rounds.waiting:
        rounds.run(schedule(rounds))
    return rounds


# --- training


class GuideTraining:
    def __init__(self, tables: Tables, network: ScalableNetwork, seed: int) -> None:
        self._tables, self._network = tables, network
        self._search = RoundSearch(tables=tables, exchanges=False)
        self._view = RoundView(tables, self._search)
        self._rng = np.random.default_rng([seed, 5])
        self._explorer = torch.optim.Adam(network.advice.parameters(), lr=RATE)
        self._checks = [self._words() for _ in range(2)]
        self._plain = [self._figures(run(tables, words, self._unguided)) for words in self._checks]
        self.best = BestWeights(network)

    def _words(self) -> list[str]:
        words: list[str] = self._rng.choice(JOBS.split(), size=TRAINING_JOBS).tolist()
        return words

    def _unguided(self, rounds: Rounds) -> list[Job]:
        search, cluster = RoundSearch(tables=self._tables), Cluster(tables=self._tables)
        search.plan(search.chosen(rounds.waiting), cluster, {})
        return cluster.running

    @staticmethod
    def _figures(rounds: Rounds) -> Floats:
        found = rounds.figures()
        return np.array([found["mean_completion_s"], found["mean_running_s"]])

    def imitate(self) -> None:
        """The choice of GPUs, fitted to the search's."""
        network, optimizer = self._network, torch.optim.Adam(self._network.parameters(), lr=0.002)
        scenes: list[Scene] = []
        targets: list[Ints] = []

        def schedule(rounds: Rounds) -> list[Job]:
            scene, (jobs,) = self._view.scene([rounds])
            running = self._unguided(rounds)
            for job in jobs:
                job.nodes = job.nodes if job in running else ()
            owner = owners(jobs)
            scenes.append(scene)
            targets.append(np.where(owner < 0, self._search.candidates, owner))
            return running

        for _ in range(IMITATED):
            run(self._tables, self._words(), schedule)
        scene, wanted = joined(scenes), torch.from_numpy(np.stack(targets))
        with torch.no_grad():
            before = network(scene)[0]
        for picked in minibatches(len(scenes), 64, 4, self._rng):
            advice, logits = network(joined([scenes[nth] for nth in picked]))
            loss = functional.cross_entropy(logits.flatten(0, 1), wanted[picked].flatten())
            loss = loss + functional.mse_loss(advice, before[picked])  # what it knew, it keeps
            descend(optimizer, loss, most_norm=1.0)

    def explore(self) -> None:
        """One step of the layer of advice, from pairs of opposite shifts."""
        layer, climb = self._network.advice, torch.zeros(1)
        for _ in range(SEQUENCES):
            half = torch.randn(PAIRS, layer.out_features, layer.in_features + 1)
            noise = torch.stack([half, -half], dim=1).flatten(0, 1)
            rewards = self._rewards(self._words(), SPREAD * noise).reshape(PAIRS, 2)
            gain = torch.from_numpy((rewards[:, 0] - rewards[:, 1]) / SPREAD).float()
            climb = climb + (gain[:, None, None] * half).mean(dim=0)
        layer.weight.grad, layer.bias.grad = -climb[:, :-1], -climb[:, -1]
        self._explorer.step()

    @torch.no_grad()
    def _rewards(self, words: Sequence[str], shifts: Tensor) -> Floats:
        every = [Rounds(self._tables, jobs_of(self._tables, words)) for _ in shifts]
        while any(each.waiting for each in every):
            busy = [nth for nth, each in enumerate(every) if each.waiting]
            scene, jobs = self._view.scene([every[nth] for nth in busy])
            tokens, _ = self._network.look(scene)
            own = shifts[busy]
            moved = tokens @ own[:, :, :-1].transpose(1, 2) + own[:, None, :, -1]
            numbers = self._network.advice(tokens) + moved
            for place, nth in enumerate(busy):
                cluster = Cluster(tables=self._tables)
                self._search.plan(jobs[place], cluster, as_advice(numbers[place], jobs[place]))
                every[nth].run(cluster.running)
        figures = np.array([self._figures(each) for each in every])
        found: Floats = -(figures / figures.mean(axis=0)).mean(axis=1)
        return found

    def score(self) -> float:
        """The mean ratio to the search without a guide, on sequences apart."""
        schedule = guided(self._tables, self._network)
        found = [self._figures(run(self._tables, words, schedule)) for words in self._checks]
        return float(np.mean(np.array(found) / np.array(self._plain)))


def train(tables: Tables, network: ScalableNetwork, seed: int, most_s: float) -> None:
    """Leaves the weights with the best score."""
    began_s = time.monotonic()
    with seeded(seed):
        training = GuideTraining(tables, network, seed)
        training.imitate()
        score = training.score()
        training.best.offer(score)
        print(f"imitation, {time.monotonic() - began_s:.0f} s: {score:.4f}")
        updates = 0
        while time.monotonic() - began_s < most_s:
            training.explore()
            updates += 1
            if updates % 5 == 0:
                score = training.score()
                training.best.offer(score)
                print(f"{updates} updates, {time.monotonic() - began_s:.0f} s: {score:.4f}")
        training.best.restore()


# --- measuring


def measure(tables: Tables, networks: Mapping[str, ScalableNetwork]) -> dict[str, Json]:
    """DeepShare's 256 jobs, by scheduler and network."""
    found = {}
    for which, network in networks.items():
        for name, make in (("scalable", alone), ("scalable+search", guided)):
            rounds = run(tables, JOBS.split(), make(tables, network))
            found[f"{name}, {which}"] = rounds.figures()
    return found


def read_network(model: Path, weights: Path | None = None) -> ScalableNetwork:
    network = read_model(model).network
    if not isinstance(network, ScalableNetwork):
        raise SystemExit(f"{model}: no scalable model")
    if weights is not None:
        network.load_state_dict(load_file(weights))
    return network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["train", "measure"])
    parser.add_argument("--data", required=True, type=Path, help="folder of the three tables")
    parser.add_argument("--model", required=True, nargs="+", type=Path, help="model folders")
    parser.add_argument("--weights", nargs="+", default=[], type=Path, help="trained here")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--out", required=True, type=Path, help="weights, or a JSON file to add to")
    args = parser.parse_args()
    torch.set_num_threads(1)
    tables, began_s = read_tables(args.data), time.time()
    if args.what == "train":
        network = read_network(args.model[0])
        train(tables, network, args.seed, 60 * args.minutes)
        save_file(dict(network.state_dict()), args.out)
        return
    if args.weights:
        networks = {f"trained here, {w.stem}": read_network(args.model[0], w) for w in args.weights}
    else:
        networks = {
            f"trained by equation 12, {path.name}": read_network(path) for path in args.model
        }
    content = json.loads(args.out.read_text()) if args.out.exists() else {}
    content["agents"] = (
        content.get("agents", {})
        | measure(tables, networks)
        | {
            "provenance": provenance(
                ["python", "-m", "benchmarks.placement_deepshare_agents", "measure"],
                inputs={},
                split={"test": "the 256 jobs of trace0, in no training"},
                seed=0,
                started_s=began_s,
                wall_s=time.time() - began_s,
            )
        }
    )
    args.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Clusters of all-reduce jobs with measured speeds, in rounds of a minute, by Pollux's rules.

The differences to `ElasticWorld`: a job is an application with a batch size; its speed depends on
its placement and its epoch; a job that is placed again stands still for `restart_s` first; who
keeps its number of GPUs keeps its place. A worker is a GPU. Jobs arrive between rounds and are
seen at the next one. Time is in seconds, epochs and rounds end as in Pollux's public simulator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from mirage.elastic.measured.pollux import (
    Application,
    LocalBatch,
    Placement,
    applications,
    packed,
    read_rows,
)
from mirage.elastic.speed import JobType, TaskDemand
from mirage.elastic.workload import ElasticJobs
from mirage.elastic.world import Bools, ElasticConfig, ElasticWorld, Floats, Ints, TaskKind
from mirage.errors import InputError

NODES, GPUS_PER_NODE, ROUND_S, RESTART_S = 16, 4, 60.0, 30.0
"""Of the published comparison."""
MOST_GPUS = NODES * GPUS_PER_NODE
Batches = tuple[tuple[str, int | None], ...]
"""Application and total batch size of each type; None: the best one in each epoch."""
TRAINING_WORKLOADS, TEST_WORKLOADS = (1, 2, 3, 4), (5, 6, 7, 8)
"""Published workloads after which jobs for training are drawn, and those for tests alone."""
REST = 0
"""The row of `Rates` of a job without GPUs."""


@dataclass(frozen=True, kw_only=True)
class PolluxJobs(ElasticJobs):
    """Jobs of a workload; one entry a job, [K]. `epochs` are those of its application."""

    names: tuple[str, ...]
    submitted_s: Ints
    request: Ints
    """GPUs that its user asks for, tuned together with the batch size."""


@dataclass(frozen=True, kw_only=True)
class PolluxConfig(ElasticConfig):
    """The published comparison: 16 nodes of 4 GPUs, rounds of 60 s."""

    servers: int = NODES
    gpus_per_server: int = GPUS_PER_NODE
    cpus_per_server: int = 0
    slot_s: float = ROUND_S
    most_workers: int = MOST_GPUS
    most_ps: int = 0
    restart_s: float = RESTART_S
    batches: Batches = ()
    """Application and total batch size, as its user tuned it, of each type."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.restart_s >= 0:
            raise InputError("pollux world: restart_s must not be negative")

    def open(self, sequences: Sequence[ElasticJobs], *, seed: int = 0) -> PolluxWorld:
        """See `ElasticConfig`."""
        jobs = [each for each in sequences if isinstance(each, PolluxJobs)]
        if len(jobs) < len(sequences):
            raise InputError("pollux world: its jobs must be those of a Pollux workload")
        return PolluxWorld(self, jobs, seed=seed)


def pollux_config(**options: object) -> PolluxConfig:
    """With the types that the workloads have."""
    rows = read_rows("pollux", "workloads.csv")
    batches: Batches = tuple(sorted({(row["application"], int(row["batch"])) for row in rows}))
    types = tuple(_job_type(name, size) for name, size in batches)
    return PolluxConfig(types=types, batches=batches, **options)  # type: ignore[arg-type]


@cache
def _job_type(name: str, batch: int | None) -> JobType:
    """Its speeds on the fewest nodes, as an average over its epochs: epochs a second."""
    app = applications()[name]
    most = min(app.most_gpus(batch), MOST_GPUS)
    speeds = np.zeros(most + 1)
    for gpus in range(1, most + 1):
        rate = _packed_goodput(name, batch, gpus)
        if rate.all():
            speeds[gpus] = app.epochs / (np.diff(app.progress) / rate).sum()
    return JobType(
        name=name if batch is None else f"{name}-{batch}",
        steps_per_s=speeds[None],
        batches_per_epoch=1,
        worker=TaskDemand(gpus=1, cpus=0),
        ps=None,
    )


def goodput_of(app: Application, batch: int | LocalBatch | None, placement: Placement) -> Floats:
    """[E]: progress a second in each epoch, at a total batch size, one cut up, or the best."""
    if batch is None:
        return app.tuned_goodput(placement)
    if isinstance(batch, int):
        batch = app.cut(batch, sum(placement))
    return app.goodput(placement, batch)


def pollux_jobs(rows: Sequence[Mapping[str, str]], config: PolluxConfig) -> PolluxJobs:
    """Jobs from rows of a workload: name, submitted_s, application, gpus, batch. Raises InputError."""
    index = {kind: nth for nth, kind in enumerate(config.batches)}
    submitted = [int(row["submitted_s"]) for row in rows]
    kinds = []
    for row in rows:
        kind = (row["application"], int(row["batch"]))
        if kind not in index:
            raise InputError(f"job {row['name']}: unknown application or batch size {kind}")
        kinds.append(index[kind])
    epochs = np.array([float(applications()[row["application"]].epochs) for row in rows])
    return PolluxJobs(
        arrival_slot=-(-np.array(submitted) // int(config.slot_s)),
        type_index=np.array(kinds),
        epochs=epochs,
        estimate=epochs,
        names=tuple(row["name"] for row in rows),
        submitted_s=np.array(submitted),
        request=np.array([int(row["gpus"]) for row in rows]),
    )


def published_workload(nth: int, config: PolluxConfig) -> PolluxJobs:
    """Pollux's workload 1 to 8, of 160 jobs in eight hours."""
    rows = [row for row in read_rows("pollux", "workloads.csv") if row["workload"] == str(nth)]
    if not rows:
        raise InputError(f"pollux workload {nth}: there are 1 to 8")
    return pollux_jobs(rows, config)


class Rates:
    """Progress a second by epoch, a row for each application, batch and placement asked for."""

    def __init__(self) -> None:
        self._most_epochs = max(app.epochs for app in applications().values())
        self._rows: dict[tuple[str, int | LocalBatch | None, Placement], int] = {}
        self.table = np.zeros((64, self._most_epochs + 1))
        self._used = 1

    def row(self, app: Application, batch: int | LocalBatch | None, placement: Placement) -> int:
        """The row's number in `table`. What was not measured by its exact placement is known by
        nodes and GPUs.
        """
        key = (app.name, batch, _canonical(app, placement))
        if key not in self._rows:
            if self._used == len(self.table):
                self.table = np.concatenate([self.table, np.zeros_like(self.table)])
            self.table[self._used, : app.epochs] = goodput_of(app, batch, placement)
            self._rows[key] = self._used
            self._used += 1
        return self._rows[key]


def _canonical(app: Application, placement: Placement) -> Placement:
    key = min(placement[nth:] + placement[:nth] for nth in range(len(placement)))
    return key if key in app.by_placement else (-len(placement), sum(placement))


@cache
def shared_rates() -> Rates:
    """One for all worlds of a process: a row takes up to a tenth of a second."""
    return Rates()


class PolluxWorld(ElasticWorld):
    """B clusters with a workload each. `end_slot` places the jobs and runs a round."""

    config: PolluxConfig

    def __init__(
        self, config: PolluxConfig, sequences: Sequence[PolluxJobs], *, seed: int = 0
    ) -> None:
        self.submitted_s: Ints = np.stack([each.submitted_s for each in sequences])
        self.request: Ints = np.stack([each.request for each in sequences])
        self.applications = [applications()[name] for name, _ in config.batches]
        self.rates = shared_rates()
        super().__init__(config, sequences, seed=seed)
        self.adapt()
        most = max(app.epochs for app in self.applications)
        ends = np.full((len(self.applications), most + 2), np.inf)
        for nth, app in enumerate(self.applications):
            ends[nth, : app.epochs + 1] = app.progress
        self._epoch_ends = ends
        self._last_epoch = np.array([app.epochs for app in self.applications])[self.type_index]

    def adapt(self, *, tunes: bool = False, packs: bool = False) -> None:
        """What the scheduler does beside giving GPUs; without: as published for Tiresias, Optimus.

        ``tunes``: each job trains with the batch size that is best in each epoch, not its user's.
        ``packs``: GPUs are taken from the fullest node on which they fit, not from the freest.
        """
        batches = self.config.batches
        self.batches: Batches = tuple((name, None) for name, _ in batches) if tunes else batches
        self.packs = packs

    @property
    def most_gpus(self) -> Ints:
        """GPUs that each job can use, [B, K]."""
        return np.asarray(most_gpus(self.batches)[self.type_index], dtype=np.int64)

    def reset(self) -> None:
        """See `ElasticWorld`."""
        super().reset()
        shape = self.arrival.shape
        self.progress = np.zeros(shape)
        self.epoch = np.zeros(shape, dtype=np.int64)
        """Epochs that each job has completed, [B, K]."""
        self.restart_left_s = np.zeros(shape)
        self.attained_gpu_s = np.zeros(shape)
        self.placements = np.zeros(shape, dtype=np.int64)
        """How often each job was placed, [B, K]."""
        self.row = np.full(shape, REST)
        self.place = np.zeros((*shape, self.config.servers), dtype=np.int64)
        """GPUs of each job on each node since the last round, [B, K, S]."""
        self.finish_s = np.full(shape, np.nan)
        self.chosen_batch: dict[tuple[int, int], LocalBatch] = {}
        """Batches that a scheduler chose itself, by cluster and job."""

    @property
    def now_s(self) -> float:
        """When this round begins."""
        return self.slot * self.config.slot_s

    def begin_slot(self) -> None:
        """See `ElasticWorld`. Who gets as many GPUs as before keeps its place."""
        super().begin_slot()
        self.order = None
        """Ranks in which jobs are placed, [B, K]; None: the smallest first."""
        self._chosen_place: Ints | None = None
        self._cut_again: list[tuple[int, int]] = []

    order: Ints | None = None

    def _find_allowed(self) -> Bools:
        room = self.total_gpus > self.workers.sum(axis=1, keepdims=True)
        found = np.zeros((*self.arrival.shape, len(TaskKind)), dtype=np.bool_)
        running = self.active & ~self.over[:, None]
        found[..., TaskKind.WORKER] = running & room & (self.workers < self.most_gpus)
        return found

    def two_fit(self, kind: TaskKind) -> Bools:
        """See `ElasticWorld`."""
        if kind != TaskKind.WORKER:
            return np.zeros(self.arrival.shape, dtype=np.bool_)
        room = self.total_gpus >= self.workers.sum(axis=1, keepdims=True) + 2
        return np.asarray(room & (self.workers + 2 <= self.most_gpus), dtype=np.bool_)

    def _place(self, rows: Ints, job: Ints, task: int) -> None:  # noqa: ARG002, workers alone
        self.free_gpus[rows, self.free_gpus[rows].argmax(axis=1)] -= 1
        self.workers[rows, job] += 1
        self._allowed = None

    def give(self, gpus: Ints) -> None:
        """All GPUs of a round at once, [B, K]. Raises InputError for what cannot be."""
        wrong = (gpus > np.where(self.active, self.most_gpus, 0)) | (gpus < 0)
        if wrong.any() or (gpus.sum(axis=1) > self.total_gpus).any():
            raise InputError("pollux world: more GPUs than there are, or than a job can use")
        self.workers = gpus.astype(np.int64)
        self._allowed = None

    def give_places(self, place: Ints) -> None:
        """The GPUs of each job on each node, [B, K, S], as a scheduler chose them."""
        if (place.sum(axis=1) > self.config.gpus_per_server).any():
            raise InputError("pollux world: more GPUs on a node than it has")
        self.give(place.sum(axis=2))
        self._chosen_place = place.astype(np.int64)

    def end_slot(self) -> Floats:
        """Places the jobs and runs the round; returns equation 1's reward, [B]."""
        for cluster in np.nonzero(~self.over)[0].tolist():
            self._settle(cluster)
        for cluster, job in self._cut_again:
            place = self.place[cluster, job]
            if place.any():
                self._set_row(cluster, job, tuple(place[place > 0].tolist()))
        slowdown = self._slowdown()
        before = self._epochs_done()
        self._run(slowdown)
        self.trained = self._epochs_done()
        self.last_epochs = self.trained - before
        self.ran_slots += self.workers > 0
        self.finish = self.finish_s / self.config.slot_s
        self.slot += 1
        self._allowed = None
        reward: Floats = (self.last_epochs / self.estimate).sum(axis=1)
        return reward

    def _settle(self, cluster: int) -> None:
        """Gives each job of a cluster its nodes; who moves, starts again."""
        place = self.place[cluster]
        wanted = self.workers[cluster]
        if self._chosen_place is not None:
            moved = np.nonzero((place != self._chosen_place[cluster]).any(axis=1))[0]
            place[moved] = self._chosen_place[cluster, moved]
            self._restart(cluster, moved, [tuple(row[row > 0].tolist()) for row in place[moved]])
            return
        moved = np.nonzero(place.sum(axis=1) != wanted)[0]
        if not len(moved):
            return
        rank = wanted if self.order is None else self.order[cluster]
        moved = moved[np.argsort(rank[moved], kind="stable")]
        place[moved] = 0
        free = self.config.gpus_per_server - place.sum(axis=0)
        shapes = []
        for job in moved:
            nodes, gpus = take(free, int(wanted[job]), packed=self.packs)
            place[job, nodes] = gpus
            shapes.append(tuple(gpus))
        self._restart(cluster, moved, shapes)

    def _restart(self, cluster: int, jobs: Ints, shapes: Sequence[Placement]) -> None:
        for job, shape in zip(jobs.tolist(), shapes, strict=True):
            self.row[cluster, job] = REST
            if shape:
                self.restart_left_s[cluster, job] = self.config.restart_s
                self.placements[cluster, job] += 1
                self._set_row(cluster, job, shape)

    def _set_row(self, cluster: int, job: int, shape: Placement) -> None:
        kind = self.type_index[cluster, job]
        batch = self.chosen_batch.get((cluster, job), self.batches[kind][1])
        self.row[cluster, job] = self.rates.row(self.applications[kind], batch, shape)

    def choose_batch(self, cluster: int, job: int, cut: LocalBatch) -> None:
        """From this round on the job cuts its batch so; without a restart."""
        self.chosen_batch[cluster, job] = cut
        self._cut_again.append((cluster, job))

    def _slowdown(self) -> Floats | float:
        """Share of its speed that each job keeps, [B, K], beside others on the network."""
        if not self.config.interference:
            return 1.0
        spread = (self.place > 0).sum(axis=2) > 1
        here = (self.place > 0) & spread[..., None]
        crowded = here.sum(axis=1, keepdims=True) > 1
        return np.where((here & crowded).any(axis=2), 1 - self.config.interference, 1.0)

    def _run(self, slowdown: Floats | float) -> None:
        """Epochs of a round; their ends are in whole seconds."""
        left = np.where(self.active & (self.workers > 0), self.config.slot_s, 0.0)
        waits = np.minimum(self.restart_left_s, left)
        self.restart_left_s -= waits
        self.attained_gpu_s += self.workers * waits
        left -= waits
        kept = np.broadcast_to(slowdown, left.shape)
        end_s = self.now_s + self.config.slot_s
        at = np.nonzero(left > 0)
        while len(at[0]):
            rate = self.rates.table[self.row[at], self.epoch[at]] * kept[at]
            next_end = self._epoch_ends[self.type_index[at], self.epoch[at] + 1]
            reached = self.progress[at] + rate * left[at]
            ends = ~(reached < next_end)
            spent = np.where(ends, np.rint((next_end - self.progress[at]) / rate), left[at])
            self.progress[at] = np.where(ends, next_end, reached)
            self.epoch[at] += ends
            self.attained_gpu_s[at] += self.workers[at] * spent
            left[at] -= spent
            done = self.epoch[at] >= self._last_epoch[at]
            over = tuple(index[done] for index in at)
            self.finish_s[over] = end_s - left[over]
            left[over] = 0
            at = np.nonzero(left > 0)

    def _epochs_done(self) -> Floats:
        begin = self._epoch_ends[self.type_index, self.epoch]
        end = self._epoch_ends[self.type_index, self.epoch + 1]
        share: Floats = np.where(np.isinf(end), 0.0, (self.progress - begin) / (end - begin))
        return self.epoch + share

    def speeds_by_gpus(self) -> Floats:
        """Epochs a round in each job's present epoch on the fewest nodes, [B, K, MOST_GPUS + 1]."""
        table = packed_speeds(self.batches)
        epoch = np.minimum(self.epoch, self._last_epoch - 1)
        speeds: Floats = table[self.type_index, epoch] * self.config.slot_s
        return speeds

    def left_alone_s(self) -> Floats:
        """Seconds that each job still has to train on one GPU, [B, K]."""
        tail = tails_alone_s(self.batches)
        epoch = np.minimum(self.epoch, self._last_epoch - 1)
        now, later = tail[self.type_index, epoch], tail[self.type_index, epoch + 1]
        left: Floats = now - (self.trained - epoch) * (now - later)
        return left

    def speed_of(self, workers: Ints, ps: Ints) -> Floats:
        """See `speeds_by_gpus`; [B, K]."""
        gpus = np.minimum(workers, MOST_GPUS)[..., None]
        speed = np.take_along_axis(self.speeds_by_gpus(), gpus, axis=2)[..., 0]
        return np.where((workers <= self.most_gpus) & (ps == 0), speed, 0.0)

    def completion_slots(self) -> Floats:
        """From submission to end, in rounds and fractions, [B, K]. See `ElasticWorld`."""
        end_s = np.where(np.isnan(self.finish_s), self.now_s, self.finish_s)
        found: Floats = (end_s - self.submitted_s) / self.config.slot_s
        return found

    def bound_slots(self) -> Floats:
        """Each job alone: seen at its first round, started once, in each epoch with its best batch
        size and shape on the fewest nodes, [B, K].
        """
        best = packed_speeds(tuple((name, None) for name, _ in self.config.batches)).max(axis=2)
        train_s = np.divide(1.0, best, out=np.zeros_like(best), where=best > 0).sum(axis=1)
        wait_s = self.arrival * self.config.slot_s - self.submitted_s
        alone_s = wait_s + self.config.restart_s + train_s[self.type_index]
        found: Floats = alone_s / self.config.slot_s
        return found


def take(free: Ints, wanted: int, *, packed: bool) -> tuple[list[int], list[int]]:
    """Takes GPUs off ``free`` [S]; the nodes taken and how many of each.

    The freest node first, as published. ``packed``: the fullest node on which the rest fits.
    """
    nodes, gpus = [], []
    while wanted:
        fits = np.nonzero(free >= wanted)[0] if packed else ()
        node = int(fits[free[fits].argmin()]) if len(fits) else int(free.argmax())
        number = min(int(free[node]), wanted)
        free[node] -= number
        wanted -= number
        nodes.append(node)
        gpus.append(number)
    return nodes, gpus


@cache
def packed_speeds(batches: Batches) -> Floats:
    """Epochs a second by type, epoch and GPUs on the fewest nodes, [types, E, MOST_GPUS + 1]."""
    most = max(applications()[name].epochs for name, _ in batches)
    table = np.zeros((len(batches), most, MOST_GPUS + 1))
    for nth, (name, batch) in enumerate(batches):
        app = applications()[name]
        for gpus in range(1, min(app.most_gpus(batch), MOST_GPUS) + 1):
            rate = _packed_goodput(name, batch, gpus)
            table[nth, : app.epochs, gpus] = rate / np.diff(app.progress)
    return table


@cache
def most_gpus(batches: Batches) -> Ints:
    """GPUs that a job of each type can use, [types]."""
    speeds = packed_speeds(batches)[:, 0]
    found = [np.nonzero(speed)[0].max() for speed in speeds]
    return np.array(found, dtype=np.int64)


@cache
def tails_alone_s(batches: Batches) -> Floats:
    """Seconds on one GPU from the begin of each epoch to the last's end, [types, E + 1]."""
    alone = packed_speeds(batches)[..., 1]
    epoch_s = np.divide(1.0, alone, out=np.zeros_like(alone), where=alone > 0)
    tails = np.zeros((len(batches), alone.shape[1] + 1))
    tails[:, :-1] = np.cumsum(epoch_s[:, ::-1], axis=1)[:, ::-1]
    return tails


def drawn_workload(
    config: PolluxConfig,
    rng: np.random.Generator,
    *,
    like: Sequence[int] = TRAINING_WORKLOADS,
    jobs: int = 160,
) -> PolluxJobs:
    """New jobs like those of some published workloads: each job's application, GPUs and batch are
    one's of theirs, and its second of submission is drawn from the hours of all.
    """
    names = set(map(str, like))
    rows = [row for row in read_rows("pollux", "workloads.csv") if row["workload"] in names]
    hours = np.array([int(row["submitted_s"]) // 3600 for row in rows])
    submitted = np.sort(rng.choice(hours, jobs) * 3600 + rng.integers(0, 3600, jobs))
    chosen = rng.integers(len(rows), size=jobs)
    return pollux_jobs(
        [
            rows[nth] | {"name": f"{rows[nth]['application']}-{at}", "submitted_s": str(second)}
            for at, (nth, second) in enumerate(zip(chosen, submitted, strict=True))
        ],
        config,
    )


@cache
def _packed_goodput(name: str, batch: int | None, gpus: int) -> Floats:
    return goodput_of(applications()[name], batch, packed(gpus))

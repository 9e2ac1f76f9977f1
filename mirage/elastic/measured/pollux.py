"""Measured training of Pollux's six applications: time of a step, and worth of a batch size.

Source of the measurements: `data/README.md`. Source of the rules: Qiao et al., "Pollux", OSDI 2021,
section 5.3, and its public simulator (petuum/adaptdl, branch osdi21-artifact), whose rules these
are to the second. A placement is the GPUs of a job on each of its nodes, as (4, 2).
"""

from __future__ import annotations

import csv
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from mirage.errors import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Placement = tuple[int, ...]

EPOCHS = {"bert": 2, "cifar10": 100, "deepspeech2": 80, "imagenet": 90, "ncf": 10, "yolov3": 50}
"""Epochs until an application's target; the simulator's table of applications."""
MOST_LOCAL_BATCH = {"yolov3": 8}
"""Samples that a GPU's memory holds, where it is less than the largest measured."""
FIXED_BATCH = {"ncf": 32768}
"""Applications whose batch size nobody tunes; they run on one GPU."""
CANDIDATES = 50
"""Total batch sizes that a tuned job chooses from, in geometric steps."""


@dataclass(frozen=True, kw_only=True)
class LocalBatch:
    """How a total batch is cut: samples that a GPU takes at once, and how often before a step."""

    samples: int
    more_passes: int
    """Passes before the one that synchronises (gradient accumulation)."""


@dataclass(kw_only=True)
class Application:
    """What was measured of one application."""

    name: str
    progress: Floats
    """[E + 1]: progress at which each epoch ends, in steps of the smallest batch size."""
    batches: Ints
    """[N]: total batch sizes that were trained."""
    iterations: Floats
    """[N, E']: steps until the end of each epoch."""
    grad_sqr: Floats
    """[N, E']: squared norm of the gradient in each epoch."""
    grad_var: Floats
    """[N, E']: its variance, at the smallest batch size."""
    least_local: int
    most_local: int
    by_placement: Mapping[Placement, tuple[Floats, Floats]]
    """Local batch sizes [n], and step and synchronisation seconds [n, 2]."""
    by_size: tuple[Floats, Floats]
    """Nodes, GPUs, local batch [n, 3], and seconds [n, 2], for placements that nobody measured."""
    _between: Any = field(default=None, init=False, repr=False)

    @property
    def epochs(self) -> int:
        """E: epochs until the target."""
        return len(self.progress) - 1

    @property
    def init_batch(self) -> int:
        """The smallest total batch size; progress counts its steps."""
        return int(self.batches[0])

    @property
    def most_batch(self) -> int:
        """The largest total batch size."""
        return int(self.batches[-1])

    def most_gpus(self, batch: int | None) -> int:
        """GPUs that a job can use, at this total batch size or (None) at any."""
        if self.name in FIXED_BATCH:
            return 1
        return (self.most_batch if batch is None else batch) // self.least_local

    def seconds(self, placement: Placement, local: Ints) -> Floats:
        """[n, 2]: of a step and of its synchronisation, at local batch sizes [n].

        NaN where neither the placement nor larger and smaller ones were measured.
        """
        key = min(placement[nth:] + placement[:nth] for nth in range(len(placement)))
        if key in self.by_placement:
            sizes, seconds = self.by_placement[key]
            return np.stack([np.interp(local, sizes, seconds[:, nth]) for nth in (0, 1)], axis=1)
        if self._between is None:
            from scipy.interpolate import LinearNDInterpolator

            self._between = LinearNDInterpolator(*self.by_size)
        nodes = np.full(len(local), min(len(placement), 16))
        found: Floats = self._between(
            np.column_stack([nodes, np.full(len(local), sum(placement)), local])
        )
        return found

    def gain(self, batch: Ints) -> Floats:
        """[n, E]: progress of a step at total batch sizes [n] in each epoch.

        (var + sqr) / (var / scale + sqr), with scale = batch / init_batch (Pollux, equation 5).
        """
        sqr, var = (self._at(table, batch) for table in (self.grad_sqr, self.grad_var))
        scale = (batch / self.init_batch)[:, None]
        found: Floats = (var + sqr) / (var / scale + sqr)
        return found

    def gradient(self, batch: Ints, epoch: int) -> tuple[float, float]:
        """Squared norm and variance of the gradient at one total batch size, [1]."""
        at = min(epoch, self.epochs - 1)
        sqr, var = (
            float(self._at(table, batch)[0, at]) for table in (self.grad_sqr, self.grad_var)
        )
        return sqr, var

    def _at(self, table: Floats, batch: Ints) -> Floats:
        """Rows of a table [N, E'] at batch sizes between those measured, [n, E]."""
        if batch.min() < self.init_batch or batch.max() > self.most_batch:
            raise InputError(
                f"{self.name}: total batch sizes must be {self.init_batch} to {self.most_batch}"
            )
        upper = np.searchsorted(self.batches, batch)
        lower = np.where(self.batches[upper] == batch, upper, upper - 1)
        span = np.maximum(self.batches[upper] - self.batches[lower], 1)
        share = ((batch - self.batches[lower]) / span)[:, None]
        rows = table[lower] * (1 - share) + table[upper] * share
        return np.asarray(rows[:, : self.epochs], dtype=np.float64)

    def iterations_left(self, batch: int, epoch: int) -> float:
        """Steps from the end of an epoch to that of the last; 1 if there is none left."""
        steps = self._at(self.iterations, np.array([batch]))[0]
        last = self.epochs - 1
        return 1.0 if last <= epoch else float(steps[last] - steps[epoch])

    def cut(self, batch: int, gpus: int) -> LocalBatch:
        """How a job cuts its total batch."""
        local = math.ceil(batch / gpus - 1e-8)
        more = math.ceil(local / self.most_local - 1e-8) - 1
        if gpus == 1 and batch > self.init_batch:
            more = max(1, more)  # one pass gives no estimate of the gradient's variance
        return self._bounded(math.ceil(local / (more + 1) - 1e-8), more, gpus)

    def _bounded(self, samples: int, more: int, gpus: int) -> LocalBatch:
        most = int(self.most_batch / (gpus * (more + 1)))
        return LocalBatch(samples=min(samples, most), more_passes=more)

    def goodput(self, placement: Placement, cut: LocalBatch) -> Floats:
        """[E]: progress a second in each epoch; 0 where nobody measured."""
        rates = self._goodputs(placement, np.array([cut.samples]), np.array([cut.more_passes]))
        return np.asarray(rates[0], dtype=np.float64)

    def _goodputs(self, placement: Placement, samples: Ints, more: Ints) -> Floats:
        step_s, sync_s = self.seconds(placement, samples).T
        total_s = np.nan_to_num(step_s + (step_s - sync_s) * more, nan=np.inf)
        found: Floats = self.gain(sum(placement) * samples * (more + 1)) / total_s[:, None]
        return found

    def tuned_goodput(self, placement: Placement) -> Floats:
        """[E]: progress a second in each epoch at the batch size that is best there."""
        gpus = sum(placement)
        if self.name in FIXED_BATCH:
            return self.goodput(placement, self.cut(FIXED_BATCH[self.name], gpus))
        samples, more = candidates(self, np.array([gpus]))
        fits = (samples[:, 0] >= self.least_local) & (samples[:, 0] <= self.most_local)
        most = (self.most_batch / (gpus * (more[fits, 0] + 1))).astype(np.int64)
        samples = np.minimum(samples[fits, 0], most)
        best: Floats = self._goodputs(placement, samples, more[fits, 0]).max(axis=0)
        return best


def candidates(app: Application, gpus: Ints) -> tuple[Ints, Ints]:
    """Samples a GPU and further passes, [CANDIDATES, n] each, that n jobs of ``gpus`` try."""
    least = np.maximum(app.init_batch, app.least_local * gpus)
    local = np.geomspace(least, app.most_batch, CANDIDATES) / gpus
    more = np.ceil(local / app.most_local - 1e-8) - 1
    alone = (gpus == 1) & (local > app.init_batch + 1e-8)
    more = np.where(alone, np.maximum(more, 1), more).astype(np.int64)
    return np.ceil(local / (more + 1) - 1e-8).astype(np.int64), more


def packed(gpus: int, gpus_per_node: int = 4) -> Placement:
    """The placement on the fewest nodes."""
    full, rest = divmod(gpus, gpus_per_node)
    return (gpus_per_node,) * full + ((rest,) if rest else ())


@cache
def applications() -> Mapping[str, Application]:
    """All six, by name."""
    steps, efficiency = _by_application("steps.csv"), _by_application("efficiency.csv")
    return {name: _application(name, steps[name], efficiency[name]) for name in EPOCHS}


def _application(
    name: str, steps: list[Mapping[str, str]], efficiency: list[Mapping[str, str]]
) -> Application:
    batches = sorted({int(row["batch"]) for row in efficiency})
    by_batch = [[row for row in efficiency if int(row["batch"]) == batch] for batch in batches]
    epochs = min(map(len, by_batch))

    def table(column: str) -> Floats:
        return np.array([[float(row[column]) for row in rows[:epochs]] for rows in by_batch])

    progress = table("progress").min(axis=0)[: EPOCHS[name]]
    local = [int(row["local_batch"]) for row in steps if row["placement"]]
    return Application(
        name=name,
        progress=np.concatenate([[0.0], progress]),
        batches=np.array(batches),
        iterations=table("iteration"),
        grad_sqr=table("grad_sqr"),
        grad_var=table("grad_var"),
        least_local=min(local),
        most_local=MOST_LOCAL_BATCH.get(name, max(local)),
        by_placement=_by_placement(row for row in steps if row["placement"]),
        by_size=_by_size(steps),
    )


def _by_placement(rows: Iterable[Mapping[str, str]]) -> dict[Placement, tuple[Floats, Floats]]:
    found: dict[Placement, list[list[float]]] = defaultdict(list)
    for row in rows:
        placement = tuple(map(int, row["placement"]))
        found[placement].append([float(row[key]) for key in ("local_batch", "step_s", "sync_s")])
    tables = {placement: np.array(sorted(values)) for placement, values in found.items()}
    return {placement: (table[:, 0], table[:, 1:]) for placement, table in tables.items()}


def _by_size(rows: list[Mapping[str, str]]) -> tuple[Floats, Floats]:
    """Measured placements, averaged over those of the same nodes and GPUs; then larger ones."""
    means: dict[tuple[int, ...], list[tuple[float, float]]] = defaultdict(list)
    larger = []
    for row in rows:
        size = (int(row["nodes"]), int(row["gpus"]), int(row["local_batch"]))
        seconds = (float(row["step_s"]), float(row["sync_s"]))
        if row["placement"]:
            means[size].append(seconds)
        else:
            larger.append((size, seconds))
    points = [(size, np.mean(seconds, axis=0)) for size, seconds in sorted(means.items())]
    sizes, seconds = zip(*(points + larger), strict=True)
    return np.array(sizes, dtype=np.float64), np.array(seconds)


def _by_application(name: str) -> dict[str, list[Mapping[str, str]]]:
    found: dict[str, list[Mapping[str, str]]] = defaultdict(list)
    for row in read_rows("pollux", name):
        found[row["application"]].append(row)
    return found


@cache
def read_rows(*name: str) -> list[dict[str, str]]:
    """A table of this package's data."""
    text = resources.files("mirage.elastic").joinpath("data", *name).read_text()
    return list(csv.DictReader(text.splitlines()))

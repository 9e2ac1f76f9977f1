"""What Pollux knows of a job: a model of its step time fitted to what it ran, and goodput by it.

Source: Qiao et al., "Pollux", OSDI 2021, sections 3.2 (equations 8 to 11) and 4.1, with the priors and
weights of its public code:

    T_grad = a_c + b_c m                         m samples a GPU
    T_sync = a_n + b_n (K - 2) on several nodes, a_r + b_r (K - 2) on one, 0 for one GPU
    T_step = s T_grad + (T_grad^g + T_sync^g)^(1/g)          s further passes
    goodput = batch / T_step * efficiency(batch)
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mirage.elastic.measured.pollux import FIXED_BATCH, Application, LocalBatch, candidates
from mirage.elastic.world import Bools, Floats, Ints

TINY = STEP = 1e-8
_START = np.array([1e-1, 1e-2, 1e-1, 1e-2, 1e-1, 1e-2, 1.001])
_HIGH = np.array([1e3] * 6 + [10.0])
_LOW = np.array([TINY] * 6 + [1.0])


def grad_s(model: Floats, samples: Floats) -> Floats:
    """Seconds of a pass."""
    found: Floats = model[0] + model[1] * samples
    return found


def sync_s(model: Floats, several: Bools, gpus: Ints) -> Floats:
    """Seconds of a synchronisation."""
    more = np.maximum(gpus - 2, TINY)
    found: Floats = np.where(
        several,
        model[2] + model[3] * more,
        np.where(gpus > 1, model[4] + model[5] * more, 2 * TINY),
    )
    return found


def step_s(model: Floats, pass_s: Floats, network_s: Floats) -> Floats:
    """Seconds of a pass with its synchronisation, which overlap partly."""
    power = model[6]
    top = np.maximum(pass_s, network_s)
    found: Floats = top * ((pass_s / top) ** power + (network_s / top) ** power) ** (1 / power)
    return found


def fit_model(several: Bools, gpus: Ints, samples: Ints, seconds: Floats) -> Floats:
    """The seven parameters from measurements, [n] each; ``seconds``: of a step and of its
    synchronisation, [n, 2].
    """
    from scipy.optimize import minimize

    start, low, high = _START.copy(), _LOW.copy(), _HIGH.copy()
    pass_s = np.maximum(seconds[:, 0] - seconds[:, 1], TINY)
    fixed = {}
    if len(np.unique(samples)) == 1:
        fixed[0] = float(pass_s.mean() / 2)
    if not several.any():
        fixed |= {2: TINY, 3: TINY}
    if not (~several & (gpus > 1)).any():
        fixed |= {4: TINY, 5: TINY}
    if not (gpus > 2).any():
        fixed |= {3: TINY, 5: TINY}
    for nth, value in fixed.items():
        start[nth] = low[nth] = high[nth] = value
    local = samples.astype(np.float64)[:, None]
    log_pass, log_step = np.log(pass_s)[:, None], np.log(seconds[:, :1])
    steps = np.concatenate([np.zeros((7, 1)), STEP * np.eye(7)], axis=1)

    def loss(model: Floats) -> tuple[float, Floats]:
        """And its gradient: eight models at once are hardly slower than one."""
        models = model[:, None] + steps
        found = grad_s(models, local)
        step = step_s(models, found, sync_s(models, several[:, None], gpus[:, None]))
        errors = _rms(np.log(found) - log_pass) + _rms(np.log(step) - log_step)
        slopes = (models[3] / models[2]) ** 2 + (models[5] / models[4]) ** 2
        losses = errors + 1e-3 * (models[6] - 1) ** 2 + 1e-2 * slopes
        return float(losses[0]), (losses[1:] - losses[0]) / STEP

    bounds = list(zip(low, high, strict=True))
    model = minimize(loss, start, jac=True, bounds=bounds, options={"maxiter": 60}).x
    if not several.any():  # the network between nodes is no faster than that within one
        model[2], model[3] = max(model[2], model[4] * 1.1), max(model[3], model[5] * 1.1)
    return np.asarray(model, dtype=np.float64)


def _rms(values: Floats) -> Floats:
    """[m] of [n, m]."""
    found: Floats = np.sqrt((values**2).mean(axis=0))
    return found


@dataclass(kw_only=True)
class JobProfile:
    """One job's measurements, its model, and what follows from them."""

    app: Application
    first: int = 1
    """GPUs that it may have before anything is known."""
    growth: int = 2
    model: Floats | None = None
    noise: tuple[float, float] = (1.0, 1.0)
    """Squared norm and variance of the gradient, as last measured."""
    _seen: dict[tuple[int, int, int], Floats] = field(default_factory=dict)
    _fitted: int = 0
    _shapes: set[tuple[bool, int]] = field(default_factory=set)

    @property
    def most_gpus(self) -> int:
        """``growth`` times what it ran on: Pollux explores no faster than twice."""
        most = max((gpus for _, gpus, _ in self._seen), default=0)
        return min(max(self.growth * most, self.first), self.app.most_gpus(None), 64)

    def observe(self, nodes: int, gpus: int, cut: LocalBatch, seconds: Floats, epoch: int) -> None:
        """Takes in a round. Fits again for a new shape, or with half as many measurements more."""
        batch = np.array([gpus * cut.samples * (cut.more_passes + 1)])
        self.noise = self.app.gradient(batch, epoch)
        key = (nodes, gpus, cut.samples)
        if key in self._seen:
            return
        self._seen[key] = seconds
        shape = (nodes > 1, gpus)
        if shape not in self._shapes or len(self._seen) >= 1.5 * self._fitted:
            self._shapes.add(shape)
            self._fitted = len(self._seen)
            keys = np.array(list(self._seen))
            times = np.array(list(self._seen.values()))
            self.model = fit_model(keys[:, 0] > 1, keys[:, 1], keys[:, 2], times)

    def best(self, several: Bools, gpus: Ints) -> tuple[Floats, Ints, Ints]:
        """Goodput, samples a GPU and further passes that are best by the model, [n] each."""
        if self.app.name in FIXED_BATCH:
            cuts = [self.app.cut(FIXED_BATCH[self.app.name], int(number)) for number in gpus]
            samples = np.array([[cut.samples for cut in cuts]])
            more = np.array([[cut.more_passes for cut in cuts]])
        else:
            samples, more = candidates(self.app, gpus)
        goodput = self._goodput(several, gpus, samples, more)
        fits = (samples >= self.app.least_local) & (samples <= self.app.most_local)
        goodput = np.where(fits, goodput, 0.0)
        chosen = goodput.argmax(axis=0)
        at = (chosen, np.arange(len(gpus)))
        return goodput[at], samples[at], more[at]

    def _goodput(self, several: Bools, gpus: Ints, samples: Ints, more: Ints) -> Floats:
        if self.model is None:
            raise ValueError("no model yet")
        pass_s = grad_s(self.model, samples.astype(np.float64))
        total_s = more * pass_s + step_s(self.model, pass_s, sync_s(self.model, several, gpus))
        scale = gpus * samples * (more + 1) / self.app.init_batch
        sqr, var = self.noise
        found: Floats = (var + sqr) / (var / scale + sqr) / total_s
        return found

    def cut(self, several: bool, gpus: int) -> LocalBatch:
        """How it cuts its batch on this shape."""
        if self.model is None:
            least = max(self.app.init_batch, self.app.least_local * gpus)
            return self.app.cut(FIXED_BATCH.get(self.app.name, least), gpus)
        _, samples, more = self.best(np.array([several]), np.array([gpus]))
        most = int(self.app.most_batch / (gpus * (int(more[0]) + 1)))
        return LocalBatch(samples=min(int(samples[0]), most), more_passes=int(more[0]))

    def speedups(self, fair: int) -> Floats:
        """[2, 65]: on one node and on several, by GPUs; relative to a fair share on one node."""
        found = np.zeros((2, 65))
        gpus = np.arange(1, self.most_gpus + 1)
        if self.model is None:
            found[:, gpus] = gpus / fair
            return found
        shapes = np.concatenate([gpus[:4], gpus, [fair]])
        several = np.concatenate([gpus[:4] < 0, gpus > 1, [False]])
        goodput, _, _ = self.best(several, shapes)
        found[0, 1 : len(gpus[:4]) + 1] = goodput[: len(gpus[:4])]
        found[1, gpus] = goodput[len(gpus[:4]) : -1]
        found /= max(float(goodput[-1]), 1e-12)
        return found

    def by_gpus(self, on_a_node: int) -> tuple[float, Floats]:
        """Goodput on one GPU, 0 if nothing is known, and speedups by GPUs on the fewest nodes, [65]."""
        speedups = self.speedups(1)
        found: Floats = np.where(np.arange(65) > on_a_node, speedups[1], speedups[0])
        if self.model is None:
            return 0.0, found
        alone, _, _ = self.best(np.array([False]), np.array([1]))
        return float(alone[0]), found

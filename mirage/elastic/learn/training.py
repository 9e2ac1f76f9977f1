"""`train(plan)`: a policy for a setting, from a teacher's decisions, then from rewards."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from mirage.elastic.baselines import BASELINES, baseline
from mirage.elastic.learn.federated import (
    FederatedMember,
    Members,
    learn_federated,
)
from mirage.elastic.learn.online import OnlineLearner, OnlineOptions, learn_online
from mirage.elastic.learn.supervised import Examples, Loss, Recorder, agreement, imitate
from mirage.elastic.model import CurvePoint, ElasticModel, new_model, options_table, save_model
from mirage.elastic.observation import PaperEncoder
from mirage.elastic.policy import NetworkAct
from mirage.elastic.rollout import roll_out
from mirage.elastic.schedule_log import LogTeacher, ScheduleLog
from mirage.elastic.settings import ElasticSetting, Part
from mirage.elastic.workload import ElasticJobs
from mirage.errors import InputError
from mirage.rl.fit import FitResult, Progress, Report, seeded
from mirage.rl.options import Count, Fraction, MethodOptions, Rate


@dataclass(frozen=True, kw_only=True)
class SupervisedOptions(MethodOptions):
    """Of the first phase."""

    sequences: Count = 12
    """Job sequences that the teacher schedules, in each round."""
    rounds: Count = 3
    """In those after the first the policy acts itself in half of the slots."""
    steps: Count = 2000
    """Gradient steps of a round."""
    batch: Count = 256
    rate: Rate = 0.002
    loss: Loss = "cross-entropy"
    smoothing: Fraction = 0.0
    """Weight of all possible actions beside the teacher's: then there is more to explore online."""
    order: Literal["shuffled", "kept"] = "shuffled"
    """Of the jobs in an example, each time it is used; `kept`: by arrival. Online learning has
    jobs in a random order.
    """


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(MethodOptions):
    """All that `--set` changes."""

    hidden: tuple[Count, ...] = (512, 256)
    phases: Literal["both", "supervised", "online"] = "both"
    """Figure 10: which phases there are."""
    validation: Count = 12
    """Sequences that choose the weights that are kept."""
    score_every: Count = 20
    """Slots between two validations."""
    supervised: SupervisedOptions = field(default_factory=SupervisedOptions)
    online: OnlineOptions = field(default_factory=OnlineOptions)


INTERRUPTED = "Its training was interrupted: it is the best policy until then."


@dataclass(frozen=True, kw_only=True)
class ElasticPlan:
    """A training."""

    setting: ElasticSetting
    teacher: str = "drf"
    log: ScheduleLog | None = None
    """A recorded schedule as the teacher, whose name is then `teacher`."""
    seed: int = 1
    options: TrainingOptions = field(default_factory=TrainingOptions)
    start: ElasticModel | None = None
    """Whose networks the training begins with; None: untrained ones."""
    clusters: int = 0
    """Clusters of a federated training; 0: it is not federated."""


@dataclass(frozen=True, kw_only=True)
class ElasticTrainingResult:
    """A trained policy and its learning curve."""

    model: ElasticModel
    curve: Sequence[Progress]
    """Rounds that were scored; the score is the mean completion time in slots."""
    agreement: float
    """Share of the teacher's decisions that the policy takes too, after the first phase."""
    scores: dict[str, float]
    """Mean completion time in slots on the validation sequences, by phase; and the teacher's."""
    wall_s: float
    cpu_s: float
    interrupted: bool = False
    """Whether Ctrl-C ended it: the policy is the best until then."""


def train(plan: ElasticPlan, progress: Report | None = None) -> ElasticTrainingResult:
    """Trains a policy. Raises InputError."""
    if plan.teacher not in BASELINES and plan.log is None:
        raise InputError(
            f"no teacher {plan.teacher!r}; there are {', '.join(BASELINES)}, or give the file of a"
            " recorded schedule."
        )
    with seeded(plan.seed):
        return _Training(plan, progress).run()


class _Training:
    def __init__(self, plan: ElasticPlan, progress: Report | None) -> None:
        self.plan, self._options, self._progress = plan, plan.options, progress
        options = plan.options
        self.model = new_model(plan.setting, plan.teacher, hidden=options.hidden, seed=plan.seed)
        if plan.start:
            begin_with(self.model, plan.start)
        self._validation = plan.setting.sequences(Part.VALIDATION, 0, options.validation)
        self._rng = np.random.default_rng([int(Part.TRAINING), plan.seed])
        self._curve: list[Progress] = []
        self._scores: dict[str, float] = {}
        self._interrupted = False

    def run(self) -> ElasticTrainingResult:
        began, cpu = time.monotonic(), time.process_time()
        phases = self._options.phases
        if self.plan.log is None:
            self._scores[self.plan.teacher] = self._mean_jct(baseline(self.plan.teacher))
        if self.plan.start:
            self._scores["start"] = self._score()
        agreed = self._imitate() if phases != "online" else float("nan")
        if phases != "supervised":
            improved = self._improve()
            self._scores["online"], self._interrupted = improved.score, improved.interrupted
        model = replace(
            self.model,
            networks=self.model.networks.eval(),
            options=options_table(self._options),
            curve=[CurvePoint(row.stage, row.round, row.score) for row in self._curve],
            references=self._scores,
        )
        return ElasticTrainingResult(
            model=model,
            curve=self._curve,
            agreement=agreed,
            interrupted=self._interrupted,
            scores=self._scores,
            wall_s=time.monotonic() - began,
            cpu_s=time.process_time() - cpu,
        )

    def _draw(self, count: int) -> list[ElasticJobs]:
        return [self.plan.setting.draw(self._rng) for _ in range(count)]

    def _mean_jct(self, scheduler: Any) -> float:
        found = roll_out(scheduler, self.plan.setting.world, self._validation, seed=1)
        return float(found.mean_jct_slots.mean())

    def _score(self) -> float:
        return self._mean_jct(self.model.allocator())

    def _note(self, row: Progress) -> None:
        if row.score == row.score:
            self._curve.append(row)
        if self._progress:
            self._progress(row)

    def _imitate(self) -> float:
        plan, options = self.plan, self._options.supervised
        log = plan.log
        recorder = Recorder(
            teacher=LogTeacher(log=log) if log else baseline(plan.teacher, seed=plan.seed),
            encoder=PaperEncoder(),
            places=self.model.about.places,
        )
        examples: Examples | None = None
        # A log can't be asked what it would have done in the policy's own states: one round.
        for nth in range(1 if log else options.rounds):
            seed = 100 * plan.seed + nth
            sequences = log.sequences if log else self._draw(options.sequences)
            more = recorder.record(plan.setting.world, sequences, seed=seed)
            examples = more if examples is None else examples + more
            imitate(
                self.model.networks,
                examples,
                steps=options.steps,
                batch=options.batch,
                rate=options.rate,
                loss=options.loss,
                smoothing=options.smoothing,
                shuffle=options.order == "shuffled",
                seed=seed,
                progress=self._progress,
            )
            recorder.act = NetworkAct(networks=self.model.networks)
        assert examples is not None
        self._scores["supervised"] = self._score()
        return agreement(self.model.networks, examples)

    def _improve(self) -> FitResult:
        options, model = self._options, self.model
        scoring: dict[str, Any] = {
            "score": self._score,
            "score_every": options.score_every,
            "progress": self._note,
        }
        if self.plan.clusters:
            return self._federate(options.online, scoring)
        learner = OnlineLearner(
            model.networks,
            PaperEncoder(),
            self.plan.setting.world,
            self._draw,
            places=model.about.places,
            options=options.online,
            seed=self.plan.seed,
        )
        return learn_online(learner, model.networks, options.online, **scoring)

    def _federate(self, options: OnlineOptions, scoring: dict[str, Any]) -> FitResult:
        make = partial(_member, self.plan, self._options)
        pool = Members(make, self.plan.clusters)
        return learn_federated(pool, self.model.networks, options, **scoring)


def begin_with(model: ElasticModel, start: ElasticModel) -> None:
    """Gives a new model the weights of another. Raises InputError where they don't fit."""
    if model.about.types != start.about.types:
        raise InputError(
            f"--from: that model's job types are {', '.join(start.about.types)}; those of setting"
            f" {model.about.setting!r} are {', '.join(model.about.types)}."
        )
    try:
        model.networks.load_state_dict(start.networks.state_dict())
    except RuntimeError as error:
        raise InputError(
            f"--from: that model has {start.about.places} places and layers"
            f" {start.about.hidden}, not {model.about.places} and {model.about.hidden}."
        ) from error


def _member(plan: ElasticPlan, options: TrainingOptions, nth: int) -> FederatedMember:
    """A cluster of a federation, with jobs of its own."""
    model = new_model(plan.setting, plan.teacher, hidden=options.hidden, seed=plan.seed)
    rng = np.random.default_rng([int(Part.TRAINING), plan.seed, nth])
    learner = OnlineLearner(
        model.networks,
        PaperEncoder(),
        plan.setting.world,
        lambda count: [plan.setting.draw(rng) for _ in range(count)],
        places=model.about.places,
        options=options.online,
        seed=100 * plan.seed + nth,
    )
    return FederatedMember(model.networks, learner, members=plan.clusters)


def save_result(folder: Path, result: ElasticTrainingResult) -> None:
    """Writes the model folder with its card. Raises InputError."""
    about = result.model.about
    scores = "; ".join(f"{name} {value:.3f}" for name, value in result.scores.items())
    agreement = (
        f"Decisions that agree with the teacher's after the first phase: {result.agreement:.1%}."
    )
    if "start" in result.scores:
        agreement = "It began with a saved model."
    elif math.isnan(result.agreement):
        agreement = "It copied nobody."
    save_model(
        folder,
        result.model,
        summary=[
            f"Gives workers and parameter servers to training jobs. Teacher: {about.teacher}."
        ],
        facts=[
            f"Validation, mean completion time in slots: {scores}.",
            "",
            agreement,
            "",
            f"Trained in {result.wall_s:.0f} s ({result.cpu_s:.0f} s of CPU time).",
            *(["", INTERRUPTED] if result.interrupted else []),
        ],
    )

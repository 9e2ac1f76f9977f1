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
from torch import nn

from mirage.elastic.baselines import BASELINES, baseline
from mirage.elastic.gain_policy import GainNetwork
from mirage.elastic.learn.evolution import EvolutionLearner, EvolutionOptions, learn_by_evolution
from mirage.elastic.learn.federated import (
    FederatedMember,
    Members,
    learn_federated,
)
from mirage.elastic.learn.online import OnlineLearner, OnlineOptions, learn_online
from mirage.elastic.learn.rounds import RoundsLearner, RoundsOptions, train_rounds
from mirage.elastic.learn.supervised import Examples, Loss, Recorder, agreement, imitate
from mirage.elastic.measured.rounds import ValueNetwork
from mirage.elastic.measured.world import PolluxConfig
from mirage.elastic.model import CurvePoint, ElasticModel, new_model, options_table, save_model
from mirage.elastic.network import Networks
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
    """Of `dl2`: all that `--set` changes."""

    hidden: tuple[Count, ...] = (512, 256)
    phases: Literal["both", "supervised", "online"] = "both"
    """Figure 10: which phases there are."""
    validation: Count = 12
    """Sequences that choose the weights that are kept."""
    score_every: Count = 20
    """Slots between two validations."""
    supervised: SupervisedOptions = field(default_factory=SupervisedOptions)
    online: OnlineOptions = field(default_factory=OnlineOptions)


Options = TrainingOptions | RoundsOptions | EvolutionOptions


def default_options(method: str) -> Options:
    """The options of a policy: `RoundsOptions` for `set-rounds`, `EvolutionOptions` for `gain`."""
    if method == "set-rounds":
        return RoundsOptions()
    if method == "gain":
        return EvolutionOptions()
    return TrainingOptions()


INTERRUPTED = "Its training was interrupted: it is the best policy until then."


def default_teacher(method: str, setting: ElasticSetting) -> str:
    """Whom a policy copies first: the paper's DRF. Two policies are a rule when untrained."""
    if method == "gain":
        return "greedy" if setting.knows_speeds else "greedy-learnt"
    return "greedy-rule" if method == "set-rounds" else "drf"


@dataclass(frozen=True, kw_only=True)
class ElasticPlan:
    """A training."""

    setting: ElasticSetting
    method: str = "dl2"
    teacher: str = "drf"
    log: ScheduleLog | None = None
    """A recorded schedule as the teacher, whose name is then `teacher`."""
    seed: int = 1
    options: Options = field(default_factory=TrainingOptions)
    start: ElasticModel | None = None
    """Whose networks the training begins with; None: untrained ones. Of `dl2`."""
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
    if isinstance(plan.options, RoundsOptions):
        with seeded(plan.seed):
            return _train_rounds(plan, plan.options, progress)
    if isinstance(plan.options, EvolutionOptions):
        with seeded(plan.seed):
            return _train_by_evolution(plan, plan.options, progress)
    if plan.teacher not in BASELINES and plan.log is None:
        raise InputError(
            f"no teacher {plan.teacher!r}; there are {', '.join(BASELINES)}, or give the file of a"
            " recorded schedule."
        )
    with seeded(plan.seed):
        return _Training(plan, plan.options, progress).run()


def _train_rounds(
    plan: ElasticPlan, options: RoundsOptions, progress: Report | None
) -> ElasticTrainingResult:
    began, cpu = time.monotonic(), time.process_time()
    setting, config = plan.setting, plan.setting.world
    shape = (options.width, options.layers, options.heads)
    model = new_model(plan.method, setting, plan.teacher, hidden=shape, seed=plan.seed)
    validation = setting.sequences(Part.VALIDATION, 0, options.validation)
    learner = _rounds_learner(plan, options, model)
    rule = roll_out(setting.scheduler(plan.teacher, seed=plan.seed), config, validation)
    curve: list[Progress] = []

    def note(row: Progress) -> None:
        curve.append(row)
        if progress:
            progress(row)

    found = train_rounds(learner, options, validation, progress=note)
    scores = {
        plan.teacher: float(rule.mean_jct_slots.mean()),
        "online": found.score / config.slot_s,
    }
    scored = [row for row in curve if row.score == row.score]
    points = [CurvePoint(row.stage, row.round, row.score / config.slot_s) for row in scored]
    return ElasticTrainingResult(
        model=replace(
            model,
            networks=Networks(learner.network, nn.Identity()).eval(),
            options=options_table(options),
            curve=points,
            references=scores,
        ),
        curve=scored,
        agreement=float("nan"),
        interrupted=found.interrupted,
        scores=scores,
        wall_s=time.monotonic() - began,
        cpu_s=time.process_time() - cpu,
    )


def _train_by_evolution(
    plan: ElasticPlan, options: EvolutionOptions, progress: Report | None
) -> ElasticTrainingResult:
    began, cpu = time.monotonic(), time.process_time()
    setting, rule = plan.setting, default_teacher("gain", plan.setting)
    if plan.teacher != rule:
        raise InputError(
            f"policy gain starts as {rule} in setting {setting.name!r}, as nobody else."
        )
    model = new_model(plan.method, setting, rule, hidden=(options.hidden,), seed=plan.seed)
    network = model.networks.policy
    assert isinstance(network, GainNetwork)
    learner = _evolution_learner(plan, options, network)
    validation = setting.sequences(Part.VALIDATION, 0, options.validation)
    curve: list[Progress] = []
    scored: list[float] = []

    def score() -> float:
        rollout = roll_out(model.allocator(), setting.world, validation, seed=1)
        scored.append(float(rollout.mean_jct_slots.mean()))
        return scored[-1]

    def note(row: Progress) -> None:
        if row.score == row.score:
            curve.append(row)
        if progress:
            progress(row)

    found = learn_by_evolution(learner, network, options, score=score, progress=note)
    scores = {rule: scored[0], "online": found.score}
    return ElasticTrainingResult(
        model=replace(
            model,
            networks=model.networks.eval(),
            options=options_table(options),
            curve=[CurvePoint(row.stage, row.round, row.score) for row in curve],
            references=scores,
        ),
        curve=curve,
        agreement=float("nan"),
        interrupted=found.interrupted,
        scores=scores,
        wall_s=time.monotonic() - began,
        cpu_s=time.process_time() - cpu,
    )


def _evolution_learner(
    plan: ElasticPlan, options: EvolutionOptions, network: GainNetwork
) -> EvolutionLearner:
    rng = np.random.default_rng([int(Part.TRAINING), plan.seed])
    return EvolutionLearner(
        network,
        plan.setting.world,
        lambda count: [plan.setting.draw(rng) for _ in range(count)],
        knows_speeds=plan.setting.knows_speeds,
        options=options,
        seed=plan.seed,
    )


def _rounds_learner(
    plan: ElasticPlan, options: RoundsOptions, model: ElasticModel
) -> RoundsLearner:
    rng = np.random.default_rng([int(Part.TRAINING), plan.seed])
    network, config = model.networks.policy, plan.setting.world
    assert isinstance(network, ValueNetwork)
    assert isinstance(config, PolluxConfig)

    def draw(count: int) -> list[ElasticJobs]:
        return [plan.setting.draw(rng) for _ in range(count)]

    return RoundsLearner(network, config, draw, options, seed=plan.seed)


class _Training:
    def __init__(
        self, plan: ElasticPlan, options: TrainingOptions, progress: Report | None
    ) -> None:
        self.plan, self._options, self._progress = plan, options, progress
        self.model = new_model(
            plan.method, plan.setting, plan.teacher, hidden=options.hidden, seed=plan.seed
        )
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
    if model.method != "dl2" or start.method != "dl2":
        raise InputError("--from is for policy dl2, and takes a model of policy dl2.")
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
    model = new_model(
        plan.method, plan.setting, plan.teacher, hidden=options.hidden, seed=plan.seed
    )
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
        agreement = (
            f"Untrained it was {about.teacher}." if about.places == 0 else "It copied nobody."
        )
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

"""`train` and `evaluate` from Python, on a small site, with what they report."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("xgboost", reason="the extra `train` is not installed")

from mirage.errors import InputError
from mirage.provision.evaluation import EvaluationPlan, evaluate, trials
from mirage.provision.evaluation.kept import Tried
from mirage.provision.evaluation.trials import Work
from mirage.provision.learn import TrainingPlan, train
from mirage.provision.learn.drawing import EpisodePlan
from mirage.provision.learn.methods import METHODS, read_model
from mirage.provision.learn.reporter import Reporter
from mirage.provision.learn.run import ALL, _methods
from slurm_sim.clusters import write_toml
from slurm_sim.traces import write_trace
from tests.learn_site import DAY_S, EPOCH_S, HOUR_S, cluster, trace


class Record(Reporter):
    def __init__(self) -> None:
        self.counts: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.cautions: list[str] = []
        self.folders: dict[str, Path] = {}

    def caution(self, text: str) -> None:
        self.cautions.append(text)

    def episodes(self, part: str, done: int, total: int) -> None:
        self.counts[part].append((done, total))

    def written(self, method: str, folder: Path, wall_s: float) -> None:
        assert wall_s >= 0
        self.folders[method] = folder


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> TrainingPlan:
    folder = tmp_path_factory.mktemp("run")
    write_trace(trace(), folder / "t.csv")
    (folder / "c.toml").write_text(write_toml(cluster()))
    return TrainingPlan(
        trace=folder / "t.csv",
        cluster=folder / "c.toml",
        methods=("xgboost",),
        out=folder / "model",
        episodes=24,
        validation_episodes=6,
        augmented=0.0,
        settings=("boosting.rounds=4",),
        samples=folder / "samples",
        workers=1,
    )


def test_a_plan_is_trained_and_evaluated_and_the_reporter_hears_of_it(
    plan: TrainingPlan, tmp_path: Path
) -> None:
    told = Record()
    (result,) = train(plan, told)
    assert told.folders == {"xgboost": plan.out}
    assert {part: counts[-1] for part, counts in told.counts.items()} == {
        "training episodes": (24, 24),
        "validation episodes": (6, 6),
    }
    assert result.model is not None
    assert result.recipe.options["course"]["episodes"] == 24
    assert read_model(plan.out).recipe.options["boosting"] == result.recipe.options["boosting"]

    judged = EvaluationPlan(
        trace=plan.trace,
        cluster=plan.cluster,
        methods=(f"mine={plan.out}", "timer"),
        out=tmp_path / "report",
        start_s=EPOCH_S + 28 * DAY_S,
        episodes=3,
        limit_s=6 * HOUR_S,
        workers=1,
    )
    found = evaluate(judged, told)
    assert told.counts["episodes"][-1] == (3, 3)
    assert [method.name for method in found.comparison.methods] == [
        "reactive",
        "mine",
        "timer",
        "oracle",
    ]
    assert (tmp_path / "report" / "report.html").is_file()


def test_an_interrupted_evaluation_goes_on_with_what_is_missing(
    plan: TrainingPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = EvaluationPlan(
        trace=plan.trace,
        cluster=plan.cluster,
        methods=("timer", "avg"),
        out=tmp_path / "report",
        start_s=EPOCH_S + 28 * DAY_S,
        episodes=4,
        limit_s=6 * HOUR_S,
        workers=1,
    )
    whole = evaluate(replace(judged, out=tmp_path / "whole")).record
    tried, really = [], trials._tried

    def third_is_interrupted(work: Work, episode: EpisodePlan) -> Tried:
        tried.append(episode)
        if len(tried) == 3:
            raise KeyboardInterrupt
        return really(work, episode)

    monkeypatch.setattr(trials, "_tried", third_is_interrupted)
    with pytest.raises(KeyboardInterrupt):
        evaluate(judged)
    record = evaluate(judged).record
    assert len(tried) == 3 + 2, "the first two are kept"
    again = evaluate(replace(judged, methods=("timer",))).record
    assert len(tried) == 5 + 4, "other methods, so all episodes again"
    assert len(again["methods"]) == 3
    for name in whole:
        if name != "provenance":
            assert record[name] == whole[name], name


def test_a_budget_of_time_trains_on_what_there_is(plan: TrainingPlan, tmp_path: Path) -> None:
    told, folder = Record(), tmp_path / "samples"
    wanted = replace(
        plan, samples=folder, out=tmp_path / "model", methods=("quantile",), settings=()
    )
    with suppress(InputError):  # so few episodes may be too few to learn from
        train(replace(wanted, at_most_s=0), told)
    assert told.counts["training episodes"][-1] == (4, 24)
    assert "note: the time was up after 4 of 24 training episodes" in told.cautions
    train(wanted, told)
    assert told.counts["training episodes"][-1] == (24, 24)


def test_the_seed_of_the_fit_leaves_the_episodes_as_they_are(
    plan: TrainingPlan, tmp_path: Path
) -> None:
    told = Record()
    (other,) = train(replace(plan, fit_seed=2, out=tmp_path / "other"), told)
    (same,) = train(replace(plan, out=tmp_path / "same"), told)
    assert all(done == total for counts in told.counts.values() for done, total in counts), (
        "episodes are used again"
    )
    assert other.recipe.options["course"]["fit_seed"] == 2
    weights = [(tmp_path / name / "boosted.safetensors").read_bytes() for name in ("other", "same")]
    assert weights[0] != weights[1]
    assert same.recipe.seed == other.recipe.seed == 1


def test_what_a_plan_cannot_have_is_refused_before_anything_is_simulated(
    plan: TrainingPlan, tmp_path: Path
) -> None:
    told = Record()
    for change, words in (
        ({"methods": ("magic",)}, "no such method"),
        ({"settings": ("speed=9",)}, "no option 'speed'"),
        ({"augmentations": ("weeks",)}, "augmentation 'weeks'"),
    ):
        with pytest.raises(InputError, match=words):
            train(replace(plan, out=tmp_path / "x", **change), told)  # type: ignore[arg-type]
    assert not told.counts


def test_all_is_every_method_but_those_that_fail() -> None:
    every = _methods([ALL])
    assert set(METHODS) - set(every) == {"moe-pg"}
    assert _methods([ALL, "moe-pg"]) == [*METHODS]
    assert _methods(["moe-pg"]) == ["moe-pg"]

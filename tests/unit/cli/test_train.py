"""`mirage train` on a small cluster: from a job history to model folders that the service can read."""

from __future__ import annotations

import re
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("xgboost", reason="the extra `train` is not installed")
pytest.importorskip("torch", reason="the extra `train` is not installed")

from mirage.cli.learning import TerminalReporter
from mirage.cli.main import main
from mirage.domain import Penalties
from mirage.errors import InputError, MirageError
from mirage.provision.learn import quantile, run, trees
from mirage.provision.learn.card import card, choice
from mirage.provision.learn.dqn import DqnOptions
from mirage.provision.learn.episode import Load
from mirage.provision.learn.foundation import Shape
from mirage.provision.learn.method import TrainingData
from mirage.provision.learn.methods import METHODS, read_model
from mirage.provision.learn.model import Traits
from mirage.provision.learn.pg import PgOptions
from mirage.provision.learn.pretrain import PretrainOptions
from mirage.provision.learn.samples import Samples
from mirage.provision.learn.tune import Search, drawn, score_h, space_of
from mirage.rl.options import with_settings
from tests.small_cluster import small_cluster

HOUR = 3600
DAY = 24 * HOUR
FIRST_S = 1_675_209_600
CLUSTER = small_cluster()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four nodes, wanted by day and hardly by night, for seven weeks; and one job for five nodes."""
    folder = tmp_path_factory.mktemp("train")
    random = np.random.default_rng(1)
    submit_s = FIRST_S + np.sort(random.integers(0, 49 * DAY, 1600))
    submit_s = submit_s[(submit_s % DAY < 14 * HOUR) | (random.random(1600) < 0.1)]
    lines = ["job_id,user,partition,submit,start,end,timelimit_s,nodes,gpus,cpus,state"]
    for number, at_s in enumerate(submit_s, start=1):
        start_s = at_s + int(random.integers(0, 2 * HOUR))
        end_s = start_s + int(random.integers(HOUR, 6 * HOUR))
        lines.append(
            f"{number},u{number % 7},gpu,{at_s},{start_s},{end_s},{6 * HOUR},{random.integers(1, 3)},0,,COMPLETED"
        )
    lines.append(f"9999,u1,gpu,{end_s},{end_s},{end_s + HOUR},{6 * HOUR},5,0,,COMPLETED")
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    (folder / "c.toml").write_text(CLUSTER)
    return folder


def train(folder: Path, *words: str) -> int:
    given = [
        "--trace",
        str(folder / "t.csv"),
        "--cluster",
        str(folder / "c.toml"),
        "--workers",
        "1",
    ]
    return main(
        [
            "train",
            *given,
            "--episodes",
            "60",
            "--judged",
            "12",
            "--online",
            "24",
            "--samples",
            str(folder / "s"),
            *words,
        ]
    )


@pytest.fixture(scope="module")
def trained(files: Path) -> Path:
    out = files / "models"
    small = ["--set", "boosting.rounds=20"]
    assert train(files, "--method", "quantile,xgboost", "--out", str(out), *small) == 0
    return out


def test_each_method_has_a_folder_that_can_be_read(trained: Path) -> None:
    for name in ("quantile", "xgboost"):
        model, recipe, about = read_model(trained / name, name)
        assert model.name == name
        assert (about.cluster, about.pool, about.nodes, about.trace) == (
            "small",
            "gpu",
            4,
            "t.csv",
        )
        assert about.train_s[1] == about.validation_s[0]
        assert recipe.options["boosting"]["rounds"] == 20
        assert recipe.options["course"]["episodes"] == 60
        assert "queued_jobs" in about.ranges
        assert "never trained on" in (trained / name / "card.md").read_text()
    assert "tune" not in recipe.options["course"]


def test_it_ends_with_a_figure_and_the_next_command_and_says_what_an_interruption_leaves(
    files: Path,
    trained: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    del trained  # whose episodes are there
    assert train(files, "--method", "quantile", "--out", str(tmp_path / "q")) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "quantile: on " in said
    assert "without Mirage interrupted for" in said
    assert f"Next: mirage evaluate pairs --trace {files / 't.csv'}" in said
    assert f"--methods quantile={tmp_path / 'q'}" in said

    def is_interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "collect", is_interrupted)
    assert train(files, "--method", "quantile", "--out", str(tmp_path / "r")) == 130
    said = " ".join(capsys.readouterr().err.split())
    assert f"interrupted: {files / 's'} has the episodes; the same call goes on from there." in said


def test_a_model_beats_doing_nothing_where_it_matters(files: Path, trained: Path) -> None:
    model = read_model(trained / "quantile").model
    busy = [
        episode for episode in Samples.load(files / "s" / "train") if episode.load is not Load.LIGHT
    ]
    taste = Penalties(4, 1)
    ours = np.mean([episode.costs_s(taste)[choice(model, episode, taste)] for episode in busy])
    reactive = np.mean([episode.costs_s(taste)[-1] for episode in busy])
    assert len(busy) >= 5
    assert ours < 0.8 * reactive


def test_the_same_call_makes_the_same_weights(files: Path, trained: Path, tmp_path: Path) -> None:
    assert (
        train(
            files,
            "--method",
            "quantile",
            "--out",
            str(tmp_path / "q"),
            "--set",
            "boosting.rounds=20",
        )
        == 0
    )
    again, first = (read_model(folder).recipe for folder in (tmp_path / "q", trained / "quantile"))
    assert again.weights == first.weights


def test_a_network_learns_online_and_is_written(files: Path, tmp_path: Path) -> None:
    sets = [
        "pretrain.rounds=1",
        "pretrain.states=256",
        "rounds=1",
        "episodes=2",
        "updates=2",
        "pretrain.shape.width=8",
    ]
    words = [word for item in sets for word in ("--set", item)]
    assert train(files, "--method", "transformer-dqn", "--out", str(tmp_path / "m"), *words) == 0
    assert read_model(tmp_path / "m", "transformer-dqn").recipe.options["rounds"] == 1


def test_the_card_tells_what_the_readers_left_out(trained: Path) -> None:
    said = "- wider than the cluster: 1 dropped, more than 4 nodes\n"
    assert said in (trained / "quantile" / "card.md").read_text()


def test_the_card_tells_what_is_special_about_a_model(trained: Path) -> None:
    _, recipe, about = read_model(trained / "quantile")
    plain, special = (
        card(
            recipe,
            about,
            SimpleNamespace(traits=Traits(share=share, interrupted=share is not None)),
        )  # type: ignore[arg-type]
        for share in (None, 0.8)
    )
    assert (
        "For one ratio of penalties, e_I / (e_I + e_O) = 0.8: users of any other are served as if it"
        in special
    )
    assert "Its training was interrupted" in special
    assert "taste" not in plain
    assert "interrupted" not in plain


@pytest.fixture
def small_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    pretrain = PretrainOptions(Shape(width=8), rounds=1, states=256, device="cpu")
    dqn = DqnOptions(pretrain, rounds=1, episodes=2, updates=2)
    for name, options in (("transformer", pretrain), ("transformer-dqn", dqn)):
        monkeypatch.setattr(type(METHODS[name]), "defaults", lambda _, options=options: options)


HEADED = ("--method", "transformer,transformer-dqn")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.usefixtures("small_networks")
def test_ctrl_c_and_kill_write_the_best_so_far_and_begin_nothing_else(
    files: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    before = signal.getsignal(number)

    def press(*_: object) -> None:
        signal.raise_signal(number)

    monkeypatch.setattr(TerminalReporter, "progress", press)
    assert train(files, *HEADED, "--out", str(tmp_path / "m")) == 130
    folder = tmp_path / "m" / "transformer"
    assert (
        capsys.readouterr().err
        == f"mirage train: interrupted; {folder} holds the best transformer until then.\n"
    )
    assert read_model(folder).model.traits.interrupted
    assert "Its training was interrupted" in (folder / "card.md").read_text()
    assert [path.name for path in folder.parent.iterdir()] == ["transformer"]
    assert signal.getsignal(number) is before


@pytest.mark.usefixtures("small_networks")
def test_a_head_that_is_tuned_goes_on_from_the_tuned_foundation(
    files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[Any] = []

    def the_last_is_best(search: Search) -> Any:
        tried.append(search)
        return search.candidates[-1]

    monkeypatch.setattr(Search, "best", the_last_is_best)
    assert train(files, *HEADED, "--tune", "2", "--out", str(tmp_path / "m")) == 0
    foundation, head = (
        read_model(tmp_path / "m" / name).recipe.options for name in HEADED[1].split(",")
    )
    assert foundation["shape"] == head["pretrain"]["shape"]
    assert foundation["shape"]["width"] != 8
    assert foundation["course"]["tune"] == head["course"]["tune"] == 2
    assert (tried[0].data.base, tried[0].data.fresh) == (None, None)
    assert tried[1].data.base.name == "transformer"
    assert len(tried[1].data.fresh) > 0
    assert len({candidate.pretrain for candidate in tried[1].candidates}) == 1
    assert np.isfinite(tried[1].penalty_h(1)), "a trial is trained as the head is"
    cards = [(tmp_path / "m" / name / "card.md").read_text() for name in HEADED[1].split(",")]
    assert ["from the foundation's" in card for card in cards] == [False, True]


def test_the_settings_that_are_tried_follow_from_the_seed() -> None:
    space = space_of("quantile")
    assert drawn(space, 5, 1) == drawn(space, 5, 1) != drawn(space, 5, 2)
    assert len({str(setting) for setting in drawn(space, 5, 1)}) > 1


def search(options: Any, *trials: float | str, fixed: Sequence[str] = ()) -> Search:
    """A search whose candidates have these penalties, or can't be trained."""
    data = TrainingData(episodes=(), seed=1)
    one = Search.of("quantile", options, data, len(trials) - 1, fixed)

    def penalty_h(_: Search, number: int) -> float:
        if isinstance(found := trials[number], str):
            raise MirageError(found)
        return found

    return type("Known", (Search,), {"penalty_h": penalty_h})(one.method, one.candidates, data)


def test_the_given_setting_stays_unless_another_is_better() -> None:
    given = quantile.QuantileOptions()
    for trials, best in (((2.0, 2.0), 0), ((2.0, 1.0), 1), (("fails", 3.0), 1)):
        assert (search(given, *trials).best() == given) is (best == 0)
    with pytest.raises(MirageError, match=r"no setting of quantile could be trained \(fails\)"):
        search(given, "fails", "fails, too").best()


def test_what_is_set_is_not_searched() -> None:
    given = with_settings(quantile.QuantileOptions(), ["boosting.depth=2"])
    candidates = search(given, *[1.0] * 31, fixed=["boosting.depth"]).candidates
    assert {candidate.boosting.depth for candidate in candidates} == {2}
    assert len({candidate.boosting.rounds for candidate in candidates}) > 1


def test_a_search_trains_the_better_setting(files: Path, tmp_path: Path) -> None:
    words = ("--method", "quantile", "--tune", "1", "--set", "boosting.rounds=4")
    assert train(files, *words, "--out", str(tmp_path / "q")) == 0
    assert read_model(tmp_path / "q").recipe.options["course"]["tune"] == 1


def test_ctrl_c_ends_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    stopped = SimpleNamespace(traits=Traits(interrupted=True))
    monkeypatch.setattr(quantile.QuantileMethod, "train", lambda *_: stopped)
    data = TrainingData(episodes=(), seed=1)
    with pytest.raises(KeyboardInterrupt):
        Search.of("quantile", quantile.QuantileOptions(), data, 1).best()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["quantile", "--set", "nope=1"], "quantile: --set nope=1: there is no option 'nope'"),
        (
            ["quantile,transformer", "--set", "boosting.rounds=9"],
            "transformer: --set boosting.rounds=9: there is no",
        ),
        (["transformer", "--set", "device=abacus"], "device 'abacus' can't be used"),
        (
            ["quantile", "--tensorboard", "curves"],
            "--tensorboard needs the packages torch and tensorboard",
        ),
    ],
)
def test_what_training_would_refuse_is_refused_before_episodes_are_labelled(
    files: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    samples = tmp_path / "samples"
    assert (
        train(files, "--method", *words, "--samples", str(samples), "--out", str(tmp_path / "x"))
        == 2
    )
    assert message in capsys.readouterr().err
    assert not samples.exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--method", "magic"], "there is no such method to train; there are random-forest"),
        (["--method", "quantile", "--set", "speed=9"], "there is no option 'speed'"),
        (["--method", "quantile", "--set", "boosting"], "expected NAME=VALUE"),
        (
            ["--method", "quantile", "--set", "boosting.rounds=many"],
            "'many' is not such a value as",
        ),
        (["--method", "quantile", "--until", "2033-01-01"], "choose other times"),
    ],
)
def test_wrong_words_are_one_clear_error(
    files: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert train(files, *words, "--out", str(tmp_path / "x")) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "x").exists()


def test_a_folder_with_other_files_is_left_alone(files: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    assert train(files, "--method", "quantile", "--out", str(tmp_path)) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_options_are_changed_by_name() -> None:
    options = with_settings(
        DqnOptions(), ["rounds=7", "replay=false", "pretrain.share=0.5", "pretrain.shape.experts=1"]
    )
    assert (options.rounds, options.replay, options.pretrain.share) == (7, False, 0.5)
    assert with_settings(options, ["pretrain.share=none"]) == replace(
        options, pretrain=replace(options.pretrain, share=None)
    )
    with pytest.raises(InputError, match="has options of its own"):
        with_settings(DqnOptions(), ["pretrain=3"])


@pytest.mark.parametrize(
    ("options", "setting", "message"),
    [
        (quantile.QuantileOptions(), "every=0", "every is 0; give at least 1"),
        (quantile.QuantileOptions(), "blocks=1", "blocks is 1; give at least 2"),
        (quantile.QuantileOptions(), "blocks=none", "'none' is not such a value as 10"),
        (quantile.QuantileOptions(), "boosting.rounds=0", "rounds is 0; give at least 1"),
        (quantile.QuantileOptions(), "boosting.depth=-3", "depth is -3; give at least 1"),
        (
            trees.BoostingOptions(),
            "boosting.learning_rate=nan",
            "learning_rate is nan; give a number over 0, at most 1",
        ),
        (trees.BoostingOptions(), "boosting.l2=-1", "l2 is -1.0; give at least 0"),
        (trees.BoostingOptions(), "every=0", "every is 0; give at least 1"),
        (trees.ForestOptions(), "growth.trees=0", "trees is 0; give at least 1"),
        (
            trees.ForestOptions(),
            "growth.features=1.5",
            "features is 1.5; give a number over 0, at most 1",
        ),
        (trees.ForestOptions(), "every=-1", "every is -1; give at least 1"),
        (PretrainOptions(), "rate=0", "rate is 0.0; give a number over 0, at most 1"),
        (PretrainOptions(), "patience=0", "patience is 0; give at least 1"),
        (PretrainOptions(), "probes=1", "probes is 1; give at least 2"),
        (PretrainOptions(), "share=2", "share is 2.0; give a number from 0 to 1, or none"),
        (PretrainOptions(), "moment=end", "give one of decision, start"),
        (DqnOptions(), "rate=-1", "rate is -1.0; give a number over 0, at most 1"),
        (DqnOptions(), "pretrain.wait=long", "give one of predicted, hindsight"),
        (PgOptions(), "warm_rate=inf", "warm_rate is inf; give a number over 0, at most 1"),
        (PgOptions(), "entropy=-0.1", "entropy is -0.1; give at least 0"),
        (PgOptions(), "rollouts=1", "rollouts is 1; give at least 2"),
    ],
)
def test_hyperparameters_that_cannot_be_are_refused(
    options: object, setting: str, message: str
) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        with_settings(options, [setting])


def test_every_setting_that_is_tried_exists() -> None:
    for name, method in METHODS.items():
        for option, values in space_of(name).items():
            for value in values:
                with_settings(method.default_options(), [f"{option}={value}"])


def test_the_score_of_a_model_is_its_mean_penalty(files: Path, trained: Path) -> None:
    episodes = Samples.load(files / "s" / "judged")
    model = read_model(trained / "xgboost").model
    by_hand = [
        (it.costs_s(taste) / (taste.interruption + taste.overlap))[choice(model, it, taste)]
        for it in episodes
        for taste in (Penalties(1, 1), Penalties(4, 1))
    ]
    assert score_h(model, episodes) == pytest.approx(np.mean(by_hand) / HOUR)

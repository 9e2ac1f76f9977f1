"""The paper's agent: its image, its network, its training, the commands; and the search."""

from __future__ import annotations

import itertools
import json
import re

import numpy as np
import pytest

pytest.importorskip("torch", reason="the extra `placement` is not installed")

import torch

from mirage.cli.main import main
from mirage.errors import InputError
from mirage.placement.simulated.elastic_rules import ELASTIC_RULES
from mirage.placement.simulated.jobs import PlacementJobs, PlacementWorkload, draw
from mirage.placement.simulated.learning import PaperCurvePoint, PaperOptions, train_paper
from mirage.placement.simulated.minsky import minsky
from mirage.placement.simulated.model import PaperModel, read_model, save_model
from mirage.placement.simulated.paper import PaperAgent, PaperNetwork, paper_image
from mirage.placement.simulated.planner import Planner, _Search, queue_of, tried_sizes
from mirage.placement.simulated.rollout import roll_out
from mirage.placement.simulated.schedulers import agent_of, scheduler
from mirage.placement.simulated.setting import PlacementSetting
from mirage.placement.simulated.world import PlacementConfig, PlacementWorld, Price
from tests.unit.placement.test_world import MODEL, give, jobs, world

TOPOLOGY = minsky((2, 2, 2, 2))
PER_ROOT_S = float(MODEL.reduction_per_root_s(np.array([500.0]))[0])


def small_setting(**more: object) -> PlacementSetting:
    workload = PlacementWorkload(
        jobs=8, few_gpus=(1, 2), many_gpus=(3, 4), short_steps=(1, 2), total_work="alone"
    )
    return PlacementSetting(
        racks=(2,), workload=workload, slots=3, backlog=10, most_steps=40, **more
    )


# --- the image and the network


def test_the_network_has_the_papers_size():
    image = paper_image(PlacementSetting())
    network = PaperNetwork(image)
    assert image.inputs == 1580
    assert network.hidden.out_features == 528
    assert sum(weights.numel() for weights in network.parameters()) == 1_020_976
    assert network(torch.zeros(2, 1580)).shape == (2, 32, 11)


def test_the_image_shows_who_holds_what_and_for_how_long():
    at = world(jobs((0, 9, 4), (0, 3, 2), *[(0, 1, 1)] * 10))
    at.step(give(at, s0=range(8, 12)))
    picture = paper_image(PlacementSetting()).colours(at).reshape(10, 158)
    gpus, slots, backlog = picture[:, :32], picture[:, 32:152].reshape(10, 10, 12), picture[:, 152:]
    assert (gpus[:8, 8:12] == 1).all()  # 8 of its 9 steps are left
    assert gpus[8:].sum() == gpus[:, :8].sum() == gpus[:, 12:].sum() == 0
    assert (slots[:3, 1, :2] == 2).all()
    assert slots[3:, 1].sum() == slots[:, 1, 2:].sum() == 0
    assert np.count_nonzero(backlog) == 2


def test_the_agent_refuses_another_cluster():
    agent = PaperAgent(PaperNetwork(paper_image(small_setting())))
    with pytest.raises(InputError, match="the model is for 8 GPUs, 3 slots"):
        agent.check(PlacementSetting())


# --- training


@pytest.mark.parametrize(("loop", "different"), [("static", 3), ("stream", 6)])
def test_loops_see_the_same_or_new_sequences(loop, different, monkeypatch):
    setting, seen = small_setting(), set()
    drawn = PlacementSetting.sequences

    def spy(self, seed, part, count, first=0):
        if part == "train":
            seen.add(first)
        return drawn(self, seed, part, count, first)

    monkeypatch.setattr(PlacementSetting, "sequences", spy)
    options = PaperOptions(
        loop=loop, epochs=2, sequences=3, episodes=2, fresh_epochs=1, test_sequences=1
    )
    train_paper(setting, options, seed=1)
    assert len(seen) == different


def test_parts_of_a_setting_never_share_a_sequence():
    setting = small_setting()
    drawn = [setting.sequences(1, part, 3) for part in ("train", "validation", "test")]
    totals = [tuple(each.total_distance) for part in drawn for each in part]
    assert len(set(totals)) == 9
    assert tuple(setting.sequences(1, "test", 3)[2].total_distance) == totals[8]


def test_a_load_is_a_share_of_what_best_fit_carries():
    setting = small_setting(load=0.5)
    assert setting.facts()["arrivals_per_step"] == pytest.approx(0.5 * setting.capacity)
    with pytest.raises(InputError, match="load: give a share over 0"):
        small_setting(load=0.0)


# --- the search in the world


def mean_slowdown(name: str, sequences: list[PlacementJobs], **price: float) -> float:
    config = PlacementConfig(topology=TOPOLOGY, price=Price(**price))
    return float(roll_out(scheduler(name), config, sequences).mean_slowdown.mean())


@pytest.mark.parametrize("price_s", [0.0, 20.0])
def test_the_search_is_better_than_srtf(price_s):
    workload = PlacementWorkload(jobs=40, arrival_probability=0.4, total_work="alone")
    sequences = [draw(workload, MODEL, np.random.default_rng(seed)) for seed in (1, 2)]
    price = {"pause_s": price_s, "restart_s": price_s, "move_s": price_s}
    srtf = mean_slowdown("srtf", sequences, **price)
    assert mean_slowdown("search", sequences, **price) < 0.75 * srtf
    assert mean_slowdown("search-as-asked", sequences, **price) < srtf
    for name in ELASTIC_RULES:
        assert mean_slowdown(name, sequences, **price) < 0.9 * srtf


def test_a_job_that_asks_too_much_gets_its_best_number():
    # 500 MB to reduce beside little arithmetic: one GPU alone is the fastest.
    at = world(jobs((0, 9, 8), gradient_mb=500.0))
    at.distance[:] = 1e11
    for name, gpus in (
        ("search", 1),
        ("relative-gain", 1),
        ("srtf-elastic", 1),
        ("search-as-asked", 8),
    ):
        placer = scheduler(name)
        placer.reset(at)
        assert np.count_nonzero(placer.decide(at) == 0) == gpus


def test_sizes_are_the_best_sum_of_gains():
    # Against all combinations of sizes of three jobs on eight GPUs.
    small = minsky((2,))
    at = PlacementWorld(
        PlacementConfig(topology=small), [jobs((0, 9, 5), (0, 3, 4), (0, 2, 2), gradient_mb=300.0)]
    )
    planner = Planner(most_moves=0)
    planner.reset(at)
    queue = queue_of(at, 0)
    search = _Search(at, at.law, queue)
    sizes = search.best_sizes(tried_sizes(8), elastic=True)
    gains, tried = search._size_gains(tried_sizes(8), elastic=True)
    number = np.concatenate([[0], tried])
    possible = [
        sum(gains[job, nth] for job, nth in enumerate(each))
        for each in itertools.product(range(9), repeat=3)
        if number[list(each)].sum() <= 8
    ]
    found = sum(gains[job, list(number).index(size)] for job, size in enumerate(sizes))
    assert found == pytest.approx(max(possible))


# --- models


def test_a_model_of_the_papers_agent_is_for_its_own_cluster(tmp_path):
    point = PaperCurvePoint(
        sequences=1,
        env_steps=1,
        seconds=1.0,
        train_reward=0.0,
        test_reward=0.0,
        train_slowdown=1.0,
        test_slowdown=1.0,
    )
    model = PaperModel(PaperNetwork(paper_image(PlacementSetting())), [point])
    save_model(tmp_path / "paper", model, PlacementSetting(), PaperOptions(), seed=1)
    again = read_model(tmp_path / "paper")
    assert agent_of(again, PlacementSetting()).name == "paper"
    with pytest.raises(InputError, match="the model is for 32 GPUs"):
        agent_of(again, PlacementSetting(racks=(8,) * 8))


# --- the commands


def test_train_and_evaluate_from_the_command_line(tmp_path, capsys):
    common = ["--topology", "2", "--jobs", "20", "--steps", "60", "--slots", "4"]
    common += ["--total-work", "alone"]
    model, result = tmp_path / "model", tmp_path / "result"
    settings = ["epochs=1", "sequences=2", "episodes=2", "test_every=1", "test_sequences=1"]
    words = [word for setting in settings for word in ("--set", setting)]
    common += ["--most-gpus", "4"]
    assert main(["place", "train", "--out", str(model), *common, *words]) == 0
    names = {path.name for path in model.iterdir()}
    assert names == {"recipe.toml", "card.md", "network.safetensors", "curve.json", "shape.json"}
    evaluate = ["place", "evaluate", "--model", str(model), "--sequences", "2", *common]
    assert main([*evaluate, "--against", "sjf,srtf", "--out", str(result)]) == 0
    found = json.loads((result / "results.json").read_text())
    assert list(found["schedulers"]) == ["paper", "sjf", "srtf"]
    assert found["levels"] == ["sjf", "srtf"]
    row = found["schedulers"]["srtf"]
    assert row["mean_slowdown_95"][0] <= row["mean_slowdown"] <= row["mean_slowdown_95"][1]
    page = (result / "report.html").read_text()
    assert re.search(r"mirage place evaluate --model", page)
    assert "job 0</title>" in page
    rules = ["place", "evaluate", "--sequences", "2", *common, "--against", "relative-gain,srtf"]
    assert main([*rules, "--out", str(result)]) == 0  # without a model
    found = json.loads((result / "results.json").read_text())
    assert list(found["schedulers"]) == ["relative-gain", "srtf"]
    assert found["curve"] == []
    assert main([*evaluate, "--against", "x", "--out", str(result)]) == 2
    assert "there are random, sjf, tetris" in capsys.readouterr().err

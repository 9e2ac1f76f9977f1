"""Policies: what they see and may do, copying a scheduler, learning from rewards, model folders."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch

from mirage.cli.main import main
from mirage.elastic.baselines import baseline, run_slot
from mirage.elastic.critic import JobsCritic
from mirage.elastic.learn.federated import Members, learn_federated
from mirage.elastic.learn.online import OnlineOptions, mending_action
from mirage.elastic.learn.supervised import Recorder, imitate
from mirage.elastic.learn.training import (
    ElasticPlan,
    SupervisedOptions,
    TrainingOptions,
    _member,
    save_result,
    train,
)
from mirage.elastic.model import load_model, new_model
from mirage.elastic.observation import KINDS, PaperEncoder, batch_of, observe, task_of
from mirage.elastic.policy import BatchAllocator, log_probs_of
from mirage.elastic.rollout import roll_out
from mirage.elastic.settings import Part, read_setting
from mirage.elastic.world import ElasticWorld, TaskKind
from mirage.errors import InputError
from mirage.rl.fit import seeded

torch.set_num_threads(1)  # small networks are slower on several
# Jobs of about two slots.
TINY = """\
base = "small"
places = 4
[world]
servers = 4
most_slots = 30
[workload]
jobs = 6
mean_s = 3000
median_s = 2400
"""
QUICK = TrainingOptions(
    hidden=(16,),
    validation=2,
    score_every=4,
    supervised=SupervisedOptions(sequences=2, rounds=2, steps=20, batch=32),
    online=OnlineOptions(slots=8, clusters=2, batch=32, updates=2, warm_up=2, warm_up_updates=2),
)


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(TINY)
    return read_setting(str(path))


def world_of(setting, count: int = 2) -> ElasticWorld:
    world = ElasticWorld(setting.world, setting.sequences(Part.TEST, 1, count))
    world.slot = int(world.arrival.max())
    world.begin_slot()
    return world


def test_the_papers_state_has_six_parts_and_the_action_space_3_j_plus_1(tiny):
    world = world_of(tiny)
    jobs = batch_of(world, 4, np.zeros(2, dtype=int))
    assert jobs.tolist() == [[0, 1, 2, 3]] * 2
    assert batch_of(world, 4, np.ones(2, dtype=int)).tolist() == [[4, 5, -1, -1]] * 2
    world.add(np.array([1, 1]), np.array([TaskKind.BUNDLE] * 2))
    seen = observe(world, PaperEncoder(), jobs)
    assert seen.state.shape == (2, 4, 8 + 5)
    assert seen.possible.shape == (2, 13)
    assert (seen.state[0, :, :8].argmax(axis=1) == world.type_index[0, :4]).all()
    assert seen.state[0, 1, 8:].min() >= 0
    assert seen.state[0, 1, 11:].tolist() == pytest.approx([1 / 12, 1 / 12])
    assert seen.possible[:, -1].all()
    assert task_of(jobs, np.array([5, 12]))[0].tolist() == [1, -1]


def test_empty_places_are_zero_and_give_nothing(tiny):
    world = world_of(tiny)
    jobs = np.array([[0, -1], [3, 4]])
    encoder = PaperEncoder()
    encoder.reset(world)
    encoder.begin_slot(world)
    seen = observe(world, encoder, jobs)
    assert not seen.state[0, 1].any()
    assert not seen.possible[0, KINDS : 2 * KINDS].any()
    assert np.isfinite(seen.state).all()


def test_poor_states_are_mended_by_the_papers_rules(tiny):
    world = world_of(tiny)
    jobs = batch_of(world, 4, np.zeros(2, dtype=int))
    for _ in range(2):
        world.add(np.array([2, 0]), np.array([TaskKind.WORKER, TaskKind.PS]))
    seen = observe(world, PaperEncoder(), jobs)
    assert mending_action(seen).tolist() == [2 * KINDS + TaskKind.PS, TaskKind.WORKER]
    crooked = replace(seen, workers=np.array([[1, 0, 0, 0]] * 2), ps=np.array([[11, 0, 0, 0]] * 2))
    assert mending_action(crooked).tolist() == [TaskKind.WORKER] * 2
    even = replace(crooked, ps=np.array([[10, 0, 0, 0]] * 2))
    assert mending_action(even).tolist() == [-1, -1]


def test_a_recorded_teacher_names_all_actions_that_are_as_good(tiny):
    world = world_of(tiny)
    recorder = Recorder(teacher=baseline("drf"), encoder=PaperEncoder(), places=4)
    examples = recorder.record(tiny.world, tiny.sequences(Part.TRAINING, 1, 2), seed=1)
    assert (examples.good <= examples.possible).all()
    assert examples.good.any(axis=1).all()
    assert examples.good.sum(axis=1).max() > 1  # jobs with equal shares
    assert world.allowed().any()


def test_shuffled_examples_keep_each_jobs_state_with_its_actions(tiny):
    recorder = Recorder(teacher=baseline("drf"), encoder=PaperEncoder(), places=4)
    examples = recorder.record(tiny.world, tiny.sequences(Part.TRAINING, 1, 2), seed=1)
    shuffled = examples.shuffled(np.random.default_rng(1))

    def jobs(of):
        actions = np.stack([of.possible, of.good])[:, :, :-1].reshape(2, len(of), 4, KINDS)
        whole = np.concatenate([of.state, of.there[..., None], *actions], axis=-1)
        return [sorted(map(tuple, each.tolist())) for each in whole]

    assert jobs(shuffled) == jobs(examples)
    assert (shuffled.there == examples.there).all()
    assert (shuffled.good[:, -1] == examples.good[:, -1]).all()
    assert not np.array_equal(shuffled.state, examples.state)


@pytest.mark.parametrize(("order", "shuffled"), [("shuffled", True), ("kept", False)])
def test_a_copy_learns_from_jobs_in_a_random_order_whoever_its_teacher_is(
    tiny, monkeypatch, order, shuffled
):
    asked = []

    def note(*_args, shuffle, **_more):
        asked.append(shuffle)

    monkeypatch.setattr("mirage.elastic.learn.training.imitate", note)
    assert QUICK.supervised.order == "shuffled"
    options = replace(
        QUICK, phases="supervised", supervised=replace(QUICK.supervised, rounds=1, order=order)
    )
    train(ElasticPlan(setting=tiny, teacher="fifo", options=options))
    assert asked == [shuffled]


def test_a_copy_of_drf_is_as_good_as_drf(tiny):
    options = TrainingOptions(
        hidden=(128,),
        phases="supervised",
        validation=20,
        supervised=SupervisedOptions(sequences=20, steps=400),
    )
    scores = train(ElasticPlan(setting=tiny, options=options)).scores
    assert scores["supervised"] == pytest.approx(scores["drf"], rel=0.06)


def test_smoothing_leaves_a_copy_with_other_actions_to_explore(tiny):
    recorder = Recorder(teacher=baseline("drf"), encoder=PaperEncoder(), places=4)
    examples = recorder.record(tiny.world, tiny.sequences(Part.TRAINING, 1, 2), seed=1)

    def share_of_good(smoothing: float) -> float:
        with seeded(1):
            networks = new_model(tiny, "drf", hidden=(32,), seed=1).networks
        options = {"steps": 150, "batch": 64, "rate": 0.005, "shuffle": True, "seed": 1}
        imitate(networks, examples, smoothing=smoothing, **options)
        state, there, possible, good = examples.tensors()
        return float((log_probs_of(networks, state, there, possible).exp() * good).sum(1).mean())

    assert share_of_good(0.0) > share_of_good(0.3) + 0.05


def test_batches_cover_all_jobs_and_a_void_ends_its_batch_alone(tiny):
    world = ElasticWorld(tiny.world, tiny.sequences(Part.TEST, 1, 1))
    world.slot = int(world.arrival.max())
    asked = []

    def act(seen, rows):
        asked.append(seen.jobs[rows[0]].tolist())
        free = seen.possible[rows, :-1] & (np.repeat(seen.workers[rows], KINDS, axis=1) == 0)
        return np.where(free.any(axis=1), free.argmax(axis=1), seen.possible.shape[1] - 1)

    run_slot(world, BatchAllocator(name="x", encoder=PaperEncoder(), act=act, places=4))
    assert asked[0] == [0, 1, 2, 3]
    assert asked[-1] == [4, 5, -1, -1]
    assert (world.last_epochs >= 0).all()
    assert world.workers[0].tolist() == [1] * 6


def test_in_training_a_batch_has_its_jobs_in_a_random_order(tiny):
    world = ElasticWorld(tiny.world, tiny.sequences(Part.TEST, 1, 8))
    world.slot = int(world.arrival.max())
    world.begin_slot()
    asked = []

    def act(seen, rows):
        asked.append(seen.jobs.copy())
        return np.full(len(rows), 4 * KINDS)

    allocator = BatchAllocator(
        name="x", encoder=PaperEncoder(), act=act, places=4, shuffle=np.random.default_rng(1)
    )
    allocator.reset(world)
    allocator.begin_slot(world)
    allocator.choose(world)
    first, second = asked
    assert np.sort(first, axis=1).tolist() == [[0, 1, 2, 3]] * 8
    assert np.sort(second, axis=1)[:, 2:].tolist() == [[4, 5]] * 8
    assert (second[:, 2:] == -1).all()
    assert len({tuple(row) for row in first.tolist()}) > 1


def test_an_episode_ends_as_half_of_its_clusters_are_over(tiny):
    plan = ElasticPlan(setting=tiny, options=QUICK)
    learner = _member(plan, QUICK, 0)._learner
    learner.run_slot()
    world = learner._world
    world.finish[0] = 1.0
    learner.run_slot()
    assert learner._world is not world
    rows = learner._slots["continues"]
    assert len(rows) == 2
    assert not rows[0].any()  # of the cluster that was over


def test_what_the_critic_says_an_action_adds_is_the_value_of_the_state_after_it(tiny):
    world = world_of(tiny)
    jobs = batch_of(world, 4, np.zeros(2, dtype=int))
    world.add(np.array([1, 2]), np.array([TaskKind.BUNDLE] * 2))
    encoder, critic = PaperEncoder(), JobsCritic(13)
    seen = observe(world, encoder, jobs)
    state, there = torch.from_numpy(seen.state), torch.from_numpy(jobs >= 0)
    after = torch.from_numpy(encoder.after(tiny.world, seen.state))
    gains = critic.gains(state, there, after, torch.from_numpy(seen.possible))
    own = critic.gains(state, there, after, torch.from_numpy(seen.possible), own=True)
    given = torch.ones(2)
    now = critic(state, there, given).detach()
    kinds = list(TaskKind)
    for place, kind in [(0, kinds[0]), (1, kinds[0]), (1, kinds[1]), (3, kinds[2])]:
        copy = deepcopy(world)
        assert copy.add(jobs[:, place], np.array([kind] * 2)).all()
        later = critic(torch.from_numpy(encoder.encode(copy, jobs)), there, given).detach() - now
        action = place * KINDS + kind
        assert torch.allclose(gains[:, action], later.sum(dim=1), atol=1e-5)
        assert torch.allclose(own[:, action], later[:, place], atol=1e-5)
    assert (gains[:, -1] == 0).all()
    assert torch.isinf(gains[torch.from_numpy(~seen.possible)]).all()


def test_the_critic_does_not_mind_the_order_of_jobs(tiny):
    critic = JobsCritic(13)
    state, there = torch.rand(2, 5, 13), torch.tensor([[True] * 5, [True] * 3 + [False] * 2])
    order = torch.tensor([3, 0, 4, 1, 2])
    values = critic(state, there, torch.zeros(2))
    turned = critic(state[:, order], there[:, order], torch.zeros(2))
    assert torch.allclose(values[:, order], turned, atol=1e-6)
    assert not values[1, 3:].any()


def test_online_learning_improves_a_bad_copy(tiny):
    """The worst of the first phase's ends: an untrained network."""
    online = OnlineOptions(
        slots=22, clusters=24, batch=96, updates=8, value_updates=2, warm_up=10, warm_up_updates=5
    )
    online = replace(online, rate=0.003)
    options = TrainingOptions(
        hidden=(64,), phases="online", validation=6, score_every=22, online=online
    )
    plan = ElasticPlan(setting=tiny, options=options)
    with seeded(1):
        model = new_model(tiny, "drf", hidden=(64,), seed=1)
    sequences = tiny.sequences(Part.VALIDATION, 0, 6)
    untrained = roll_out(model.allocator(), tiny.world, sequences, seed=1).mean_jct_slots.mean()
    scores = train(plan).scores
    assert scores["online"] < 0.5 * (untrained + scores["drf"])


def test_a_training_can_begin_with_a_saved_model(tiny, tmp_path):
    copied = train(ElasticPlan(setting=tiny, options=replace(QUICK, phases="supervised")))
    save_result(tmp_path / "copy", copied)
    start = load_model(tmp_path / "copy")
    plan = ElasticPlan(setting=tiny, options=replace(QUICK, phases="online"), start=start)
    assert train(plan).scores["start"] == pytest.approx(copied.scores["supervised"])
    wider = replace(QUICK, hidden=(8,))
    with pytest.raises(InputError, match=r"4 places and layers \(16,\), not 4 and \(8,\)"):
        train(replace(plan, options=wider))


def test_both_phases_change_the_networks_and_the_folder_keeps_them(tiny, tmp_path):
    options = replace(QUICK, hidden=(16,))
    plan = ElasticPlan(setting=tiny, options=options)
    copied = train(replace(plan, options=replace(options, phases="supervised")))
    result = train(plan)
    assert 0 < result.agreement <= 1
    assert [row.round for row in result.curve] == [4, 8]
    assert result.scores["online"] <= result.scores["supervised"]
    weights = result.model.networks.state_dict()
    before = copied.model.networks.value.state_dict()
    if result.scores["online"] < result.scores["supervised"]:
        after = result.model.networks.value.state_dict()
        assert any(not torch.equal(before[name], after[name]) for name in before)
    save_result(tmp_path / "m", result)
    loaded = load_model(tmp_path / "m")
    assert loaded.curve == list(result.model.curve)
    assert loaded.references == result.scores
    kept = loaded.networks.state_dict()
    assert all(torch.equal(kept[name], weights[name]) for name in weights)


def test_a_federation_learns_from_all_its_clusters(tiny):
    plan = ElasticPlan(setting=tiny, options=QUICK, clusters=3)
    model = new_model(tiny, "drf", hidden=(16,), seed=1)
    before = {name: each.clone() for name, each in model.networks.state_dict().items()}
    asked = []

    def make(nth):
        member = _member(plan, QUICK, nth)
        work = member.work

        def noted(weights):
            step = work(weights)
            asked.append((nth, step.ends_slot))
            return step

        member.work = noted
        return member

    learn_federated(Members(make, 3), model.networks, QUICK.online)
    assert [nth for nth, _ in asked] == [step % 3 for step in range(len(asked))]
    ends = [ends for _, ends in asked]
    assert sum(ends) == QUICK.online.slots
    online = QUICK.online
    first = ends.index(True) // 3 + 1
    assert first == online.value_updates + (
        online.warm_up_updates if online.warm_up >= 3 else online.updates
    )
    after = model.networks.state_dict()
    assert all(not torch.equal(after[name], before[name]) for name in ("policy.layers.0.weight",))


@pytest.mark.usefixtures("tiny")
def test_from_the_command_line_to_a_report(tmp_path, monkeypatch):
    monkeypatch.setattr("mirage.elastic.sweeps.VARIATIONS", (0.0, 0.3))
    monkeypatch.setattr("mirage.elastic.sweeps.ERRORS", (0.25,))
    setting, model, out = tmp_path / "tiny.toml", tmp_path / "model", tmp_path / "out"
    words = ["--setting", str(setting)]
    quick = ["supervised.rounds=1", "supervised.steps=20", "supervised.sequences=2"]
    quick += ["phases=supervised", "validation=2", "hidden=8"]
    settings = [word for option in quick for word in ("--set", option)]
    train_words = ["elastic", "train", "--out", str(model)]
    assert main([*train_words, *words, *settings]) == 0
    found = ["elastic", "evaluate", "--model", f"mine={model}", "--against", "fifo", "--out"]
    assert main([*found, str(out), *words, "--sequences", "3"]) == 0
    record = json.loads((out / "results.json").read_text())
    assert list(record["schedulers"]) == ["mine", "fifo", "drf"]
    mine = record["schedulers"]["mine"]
    assert mine["mean_jct_slots"] >= record["lower_bound_slots"] * 0.7
    low, high = mine["difference_to"]["drf"]["interval"]
    assert low <= mine["difference_to"]["drf"]["value"] <= high
    assert mine["ratio_to"]["drf"]["value"] > 0
    assert list(record["figures"]) == ["Figure 13", "Figure 14"]
    assert [len(row) for row in record["figures"]["Figure 13"]["slots"].values()] == [2, 2]
    page = (out / "report.html").read_text()
    assert all(f"Figure {number}" in page for number in (9, 13, 14))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train", "--teacher", "lottery"], "no teacher 'lottery'; there are drf"),
        (["train", "--setting", "huge"], "no setting 'huge'"),
        (
            ["train", "--set", "online.rate=7"],
            "rate is 7.0; give a number over 0, at most 1",
        ),
        (["evaluate", "--against", "lottery"], "no scheduler 'lottery'; there are drf"),
        (["evaluate", "--model", "/nowhere"], "/nowhere: no such folder; give a model folder"),
    ],
)
def test_wrong_words_are_one_clear_line(words, message, tmp_path, capsys):
    assert main(["elastic", *words, "--out", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert message in error.replace("\n", " ")
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_a_policy_of_other_job_types_is_refused(tiny, tmp_path):
    model = new_model(tiny, "drf", hidden=(8,), seed=1)
    fewer = replace(tiny, world=replace(tiny.world, types=tiny.world.types[:3]))
    with pytest.raises(InputError, match="its job types are resnet-50"):
        model.check(fewer, tmp_path)

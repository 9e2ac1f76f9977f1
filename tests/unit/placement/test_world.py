"""Speeds, job sequences and time steps of the simulated clusters."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from mirage.errors import InputError
from mirage.placement.profiles import profiles
from mirage.placement.simulated.baselines import BASELINES, baseline, improve
from mirage.placement.simulated.jobs import PlacementJobs, PlacementWorkload, draw
from mirage.placement.simulated.minsky import minsky
from mirage.placement.simulated.rollout import roll_out
from mirage.placement.simulated.world import PlacementConfig, PlacementWorld, Price
from mirage.placement.speed import SpeedModel, speeds

TOPOLOGY = minsky((2, 2, 2, 2))
MODEL = SpeedModel()
PEAK = MODEL.efficiency * MODEL.gpu_flops


def jobs(*of: tuple[int, int, int], gradient_mb: float = 0.0) -> PlacementJobs:
    """Jobs from (arrival step, length, GPUs); without gradients they communicate in no time."""
    arrival, length, gpus = (np.array(column) for column in zip(*of, strict=True))
    per_root_s = MODEL.reduction_per_root_s(np.full(len(of), gradient_mb))
    return PlacementJobs(
        arrival_step=arrival,
        length_steps=length,
        gpus=gpus,
        minibatch_distance=np.full(len(of), 5e12),
        reduction_per_root_s=per_root_s,
        kind=np.zeros(len(of), dtype=np.int64),
        total_distance=length * gpus * PEAK * MODEL.step_s,
    )


def world(sequence: PlacementJobs, **options: object) -> PlacementWorld:
    return PlacementWorld(PlacementConfig(topology=TOPOLOGY, **options), [sequence])


def give(at: PlacementWorld, **gpus: range) -> np.ndarray:
    """Actions: `s0=range(4)` gives slot 0 the first four GPUs."""
    action = np.full((1, 32), at.rows)
    for slot, which in gpus.items():
        action[0, list(which)] = int(slot[1:])
    return action


def test_appendix_a_and_figure_3():
    assert MODEL.step_s == pytest.approx(48.30, abs=0.01)
    assert MODEL.cell_distance == pytest.approx(5.12e14)
    per_root_s = MODEL.reduction_per_root_s(np.array([0.0, 50.0, 100.0, 300.0, 500.0, 548.0]))
    assert per_root_s[:5] == pytest.approx([0, 0.014145, 0.02829, 0.08403, 0.13977])
    assert per_root_s[5] > per_root_s[4]
    at_16 = MODEL.rack_reduction_s(per_root_s[[2, 4]], np.array([16, 16]))
    assert at_16 == pytest.approx([0.11316, 0.55908])
    assert MODEL.rack_reduction_s(per_root_s[4:5], np.array([1])) == 0


def test_other_readings_of_the_backward_pass_and_of_racks():
    """With a backward pass a job computes longer, but communicates as long: it scales better."""
    both = SpeedModel(backward_factor=3.0)
    distance = np.array([1e9])
    times = [
        model.training_s(model.minibatch_distance(distance, np.array([64])))
        for model in (MODEL, both)
    ]
    assert times[1] == pytest.approx(3 * times[0])
    assert both.step_s == pytest.approx(3 * MODEL.step_s)
    spread = np.zeros((1, 32), dtype=bool)
    spread[0, [0, 8, 16, 24]] = True
    per_root_s = np.array([0.1])
    for factor, expected in ((0.0, 1.0), (0.2, 1.6), (0.5, 2.5)):
        found = SpeedModel(rack_factor=factor).reduction_s(per_root_s, spread, TOPOLOGY)
        assert found == pytest.approx(0.1 * 2 * expected)


def test_racks_and_sharing_slow_a_reduction_down():
    spread = np.zeros((1, 32), dtype=bool)
    spread[0, [0, 8, 16, 24]] = True
    per_root_s = np.array([0.1])
    assert MODEL.reduction_s(per_root_s, spread, TOPOLOGY) == pytest.approx(0.1 * 2 * 1.6)
    packed = np.zeros((2, 32), dtype=bool)
    packed[0, [0, 2]] = packed[1, [1, 3]] = True
    expected = 0.1 * math.sqrt(2) * 2
    assert MODEL.reduction_s(np.array([0.1, 0.1]), packed, TOPOLOGY) == pytest.approx(expected)


def test_speed_is_equation_3():
    held = np.zeros((2, 32), dtype=bool)
    held[0, :4] = True
    found = speeds(
        MODEL,
        TOPOLOGY,
        held,
        minibatch_distance=np.array([5e12, 5e12]),
        per_root_s=np.array([0.1, 0.1]),
    )
    assert found == pytest.approx([5e12 * 4 / (5e12 / PEAK + 0.1 * 2), 0])


def test_profiles_are_the_papers_35_and_torchvisions_80():
    table = {each.name: each for each in profiles("convnet-burden")}
    assert len(table) == 35
    assert table["vgg-vd-19"].flops_per_example == 2e10
    assert table["vgg-vd-19"].gradient_mb == 548
    assert len(profiles("torchvision")) == 80
    with pytest.raises(InputError, match="there are convnet-burden, torchvision"):
        profiles("x")


def test_drawn_jobs_are_section_51s():
    drawn = draw(PlacementWorkload(), MODEL, np.random.default_rng(1))
    assert drawn.arrival_step.tolist() == list(range(400))
    assert set(drawn.length_steps) == {1, 2, 3, 6, 7, 8, 9, 10}
    assert set(drawn.gpus) == set(range(1, 13))
    assert 0.4 < (drawn.length_steps <= 3).mean() < 0.6
    assert drawn.total_distance == pytest.approx(drawn.length_steps * drawn.gpus * 5.12e14)
    same = draw(PlacementWorkload(), MODEL, np.random.default_rng(1))
    assert (same.total_distance == drawn.total_distance).all()


def test_a_job_alone_takes_its_length_by_that_reading():
    workload = PlacementWorkload(jobs=1, total_work="alone", many_gpus=(8, 8))  # fits a rack
    at = world(draw(workload, MODEL, np.random.default_rng(3)))
    gpus = int(at.gpus[0, 0])
    steps = 0
    while not at.over.all():
        at.step(give(at, s0=range(gpus)))
        steps += 1
    assert steps == at.length[0, 0]
    assert at.slowdowns()[0, 0] == 1


def test_slots_fill_in_order_and_the_backlog_follows():
    at = world(jobs(*[(0, 2, 4)] * 5, (3, 1, 1)), slots=2)
    assert at.slot_job.tolist() == [[0, 1]]
    assert at.waiting.tolist() == [3]
    at.step(give(at, s1=range(4)))
    at.step(give(at, s1=range(4)))
    assert at.finish_step[0].tolist() == [-1, 2, -1, -1, -1, -1]
    assert at.slot_job.tolist() == [[0, 2]]
    at.step(give(at))
    assert at.waiting.tolist() == [3]


def test_a_job_that_is_paused_goes_on_where_it_was():
    at = world(jobs((0, 3, 4)))
    for action in (
        give(at, s0=range(4)),
        give(at),
        give(at, s0=range(8, 12)),
        give(at, s0=range(4)),
    ):
        assert not at.over.all()
        at.step(action)
    assert at.finish_step.tolist() == [[4]]


def test_pausing_and_moving_have_a_price():
    price = Price(pause_s=5.0, restart_s=10.0, move_s=20.0)
    at = world(jobs((0, 9, 4)), price=price)
    rate = 4 * PEAK
    expected = [MODEL.step_s, 0.0, MODEL.step_s - 15, MODEL.step_s - 20, MODEL.step_s]
    actions = [range(4), range(0), range(4), range(4, 8), range(4, 8)]
    done = 0.0
    for gpus, seconds in zip(actions, expected, strict=True):
        at.step(give(at, s0=gpus))
        done += rate * seconds
        assert at.done[0, 0] == pytest.approx(done)


def test_rewards_are_equations_3_to_6():
    at = world(jobs((0, 9, 4), (0, 9, 8), (0, 9, 2)), slots=2)
    reward = at.step(give(at, s0=range(3)))
    # 3 GPUs run; one is lacking; slot 1 idles with 8, the backlog with 2.
    assert reward == pytest.approx((3 - 1 - 8 - 2) / 32)
    free = world(jobs((0, 9, 4), (0, 9, 8), (0, 9, 2)), slots=2, too_few_costs=False)
    assert free.step(give(free, s0=range(3))) == pytest.approx((3 - 8 - 2) / 32)
    candidates = np.stack([at.assignment(give(at, s0=range(n)))[0] for n in (0, 3, 4)])
    assert at.rewards_of(0, candidates) == pytest.approx([-14 / 32, -8 / 32, -6 / 32])


def test_jobs_beyond_the_backlog_wait_or_are_dismissed():
    crowd = jobs(*[(0, 1, 1)] * 6)
    waits = world(crowd, slots=2, backlog=1)
    assert waits.waiting.tolist() == [4]
    refuses = world(crowd, slots=2, backlog=1, overflow="dismiss", most_steps=50)
    assert refuses.dismissed.tolist() == [[False] * 3 + [True] * 3]
    while not refuses.over.all():
        refuses.step(give(refuses, s0=range(1), s1=range(1, 2)))
    assert refuses.slowdowns()[0].tolist() == [1, 1, 2, 50, 50, 50]


def test_unfinished_jobs_count_to_the_end():
    at = world(jobs((0, 2, 4), (5, 10, 4)), most_steps=10)
    while not at.over.all():
        at.step(give(at, s0=range(4)))
    assert at.slowdowns()[0].tolist() == [1, 0.5]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: world(jobs((0, 1, 33))), "job 0 asks for 33 GPUs; topology 2,2,2,2 has 32"),
        (lambda: PlacementWorkload(short_steps=(3, 1)), "short_steps must be 1 <= least <= most"),
        (lambda: PlacementWorkload(arrival_probability=0), "arrival_probability must be in"),
        (lambda: SpeedModel(gpu_flops=0), "gpu_flops must be above 0"),
        (lambda: Price(move_s=-1), "move_s must not be negative"),
        (lambda: PlacementConfig(topology=TOPOLOGY, overflow="x"), "wait or dismiss"),
        (lambda: world(jobs((0, 1, 1))).step(np.full((1, 32), 11)), "an action must be a slot"),
        (
            lambda: world(jobs((0, 1, 1))).step(np.zeros((1, 3), dtype=int)),
            r"actions must be \(1, 32\)",
        ),
    ],
)
def test_wrong_input_is_refused(bad, message):
    with pytest.raises(InputError, match=message):
        bad()


@pytest.mark.parametrize("name", BASELINES)
def test_every_baseline_finishes_an_easy_load_and_shares_no_gpu(name):
    workload = PlacementWorkload(
        jobs=12, arrival_probability=0.3, total_work="alone", many_gpus=(1, 7)
    )
    sequences = [draw(workload, MODEL, np.random.default_rng(seed)) for seed in (1, 2)]
    config = PlacementConfig(topology=TOPOLOGY)
    scheduler = baseline(name)
    assert roll_out(scheduler, config, sequences).finished.tolist() == [1, 1]
    at = PlacementWorld(replace(config, leave_slots=scheduler.leaves_slots), sequences)
    scheduler.reset(at)
    while not at.over.all():
        at.step(scheduler.decide(at))
        assert at.assigned.sum(axis=1).max() <= 1


def sjf_at_first(*of: tuple[int, int, int], name: str = "sjf") -> PlacementWorld:
    scheduler = baseline(name)
    at = PlacementWorld(PlacementConfig(topology=TOPOLOGY, leave_slots=True), [jobs(*of)])
    scheduler.reset(at)
    at.step(scheduler.decide(at))
    return at


def gpus_of(at: PlacementWorld, job: int) -> list[int]:
    row = int(np.nonzero(at.slot_job[0] == job)[0][0])
    return np.nonzero(at.assigned[0, row])[0].tolist()


def test_sjf_takes_the_shortest_and_the_first_free_gpus():
    at = sjf_at_first((0, 5, 20), (0, 3, 12), (0, 2, 12))
    assert gpus_of(at, 2) == list(range(12))
    assert gpus_of(at, 1) == list(range(12, 24))
    assert gpus_of(at, 0) == []


def test_tetris_takes_the_greatest_request():
    at = sjf_at_first((0, 2, 4), (0, 5, 20), (0, 3, 12), name="tetris")
    assert gpus_of(at, 1) == list(range(20))
    assert gpus_of(at, 2) == list(range(20, 32))


def test_a_reservation_is_kept_from_those_who_come_later():
    # Job 0 holds 20 GPUs for 3 steps; job 1 (20 GPUs) is reserved for then; 2 fits beside it only
    # if it ends before.
    scheduler = baseline("sjf")
    at = PlacementWorld(
        PlacementConfig(topology=TOPOLOGY, leave_slots=True),
        [jobs((0, 3, 20), (1, 4, 20), (2, 9, 16))],
    )
    scheduler.reset(at)
    while not at.over.all():
        at.step(scheduler.decide(at))
    assert at.finish_step[0].tolist() == [3, 7, 16]


def test_srtf_pauses_a_long_job_for_a_short_one():
    scheduler = baseline("srtf")
    at = PlacementWorld(PlacementConfig(topology=TOPOLOGY), [jobs((0, 9, 32), (2, 1, 32))])
    scheduler.reset(at)
    while not at.over.all():
        at.step(scheduler.decide(at))
    assert at.finish_step[0].tolist() == [10, 3]


def test_best_fit_packs_a_job_into_the_smallest_gap():
    scheduler = baseline("best-fit")
    at = PlacementWorld(
        PlacementConfig(topology=TOPOLOGY),
        [jobs((0, 9, 3), (0, 9, 4), (0, 9, 1), (0, 9, 2), (0, 9, 8))],
    )
    scheduler.reset(at)
    at.step(scheduler.decide(at))
    taken = [gpus_of(at, job) for job in range(5)]
    assert taken == [[0, 1, 2], [4, 5, 6, 7], [3], [8, 9], list(range(16, 24))]


def test_greedy_as_asked_gives_what_is_asked_or_nothing():
    workload = PlacementWorkload(jobs=8, total_work="alone")
    at = PlacementWorld(
        PlacementConfig(topology=TOPOLOGY), [draw(workload, MODEL, np.random.default_rng(5))]
    )
    scheduler = baseline("greedy-as-asked")
    scheduler.reset(at)
    for _ in range(6):
        action = scheduler.decide(at)
        counts = at.assignment(action)[0].sum(axis=-1)
        asked = np.asarray(at.of_slots(at.gpus))[0]
        assert ((counts == 0) | (counts == asked)).all()
        at.step(action)
    assert (at.finish_step >= 0).any()


def test_greedy_undoes_a_bad_placement():
    scheduler = baseline("greedy")
    at = PlacementWorld(PlacementConfig(topology=TOPOLOGY), [jobs((0, 9, 4), gradient_mb=500.0)])
    scheduler.reset(at)
    bad = np.full((1, 32), at.rows)
    bad[0, [0, 8, 16, 24]] = 0
    at.step(bad)
    before = at.reward_of(at.assigned)[0]
    action = scheduler.decide(at)
    assert at.reward_of(at.assignment(action))[0] > before


def test_greedy_leaves_out_only_moves_that_are_like_others():
    rng = np.random.default_rng(3)
    workload = PlacementWorkload(jobs=6, arrival_probability=1.0, chances_per_step=6)
    at = PlacementWorld(PlacementConfig(topology=TOPOLOGY), [draw(workload, MODEL, rng)])
    for _ in range(6):
        owner = np.where(rng.random(32) < 0.7, rng.integers(6, size=32), at.rows)
        assigned = owner[None, :] == np.arange(at.rows)[:, None]
        every = []
        for gpu in range(32):
            for row in (*range(6), at.rows):
                every.append(owner.copy())
                every[-1][gpu] = row
            for other in range(gpu):
                every.append(owner.copy())
                every[-1][[gpu, other]] = owner[[other, gpu]]
        table = np.array(every)[:, None, :] == np.arange(at.rows)[:, None]
        best = at.rewards_of(0, table).max()
        after = improve(at, 0, assigned, 1)
        assert at.rewards_of(0, after[None])[0] >= best - 1e-9

"""A world by measured step times in place of the paper's law."""

from __future__ import annotations

import numpy as np
import pytest

from mirage.errors import InputError
from mirage.placement.simulated.jobs import PlacementWorkload
from mirage.placement.simulated.measured import MeasuredLaw, code_of, four_nodes, pollux_kinds
from mirage.placement.simulated.planner import Planner
from mirage.placement.simulated.rollout import roll_out
from mirage.placement.simulated.schedulers import scheduler
from mirage.placement.simulated.setting import PlacementSetting
from mirage.placement.speed import MinibatchCosts, PaperLaw, SpeedModel

KINDS, TOPOLOGY, MODEL = pollux_kinds(), four_nodes(), SpeedModel()
LAW = MeasuredLaw(MODEL, KINDS, TOPOLOGY)
PEAK = MODEL.efficiency * MODEL.gpu_flops


def costs(name: str) -> MinibatchCosts:
    kind = np.array([KINDS.names.index(name)])
    return MinibatchCosts(
        minibatch_distance=KINDS.alone_s[kind] * PEAK,
        per_root_s=KINDS.per_root_s[kind],
        kind=kind,
    )


def speed(name: str, *gpus: int) -> float:
    """In GPUs that lose nothing."""
    held = np.zeros((1, 16), dtype=bool)
    held[0, list(gpus)] = True
    return float(LAW.speeds(held, costs(name))[0] / PEAK)


def test_speeds_are_the_measured_steps():
    # Published: imagenet, 20 samples a GPU: 0.161 s on four GPUs of a node, 0.383 s on two and two.
    one = float(KINDS.alone_s[KINDS.names.index("imagenet 20")])
    assert speed("imagenet 20", 0) == 1
    assert speed("imagenet 20", 0, 1, 2, 3) == pytest.approx(4 * one / 0.161, rel=0.01)
    assert speed("imagenet 20", 0, 1, 4, 5) == pytest.approx(4 * one / 0.383, rel=0.01)
    assert speed("imagenet 20", 8, 9, 14, 15) == speed("imagenet 20", 0, 1, 4, 5)
    assert speed("imagenet 20") == 0


def test_packed_is_as_few_nodes_as_hold_them():
    sizes = np.array([[0], [1], [4], [6]])
    packed = LAW.packed(sizes, costs("imagenet 20"))[:, 0] / PEAK
    expected = [speed("imagenet 20", *range(n)) for n in (0, 1, 4, 6)]
    assert packed == pytest.approx(expected)


def test_every_kind_has_all_69_placements():
    assert len(KINDS.names) >= 40
    assert ((~np.isnan(KINDS.step_s)).sum(axis=1) == 69).all()
    assert code_of(np.array([[4, 0, 2, 0], [0, 0, 2, 4]])).tolist() == [14, 14]


def test_a_search_by_the_measurements_is_better_than_by_equation_12():
    setting = PlacementSetting(
        speeds="pollux",
        load=0.9,
        workload=PlacementWorkload(jobs=24, total_work="alone"),
    )
    jobs = setting.sequences(3, "test", 4)
    assert setting.facts()["gpus"] == 16
    believer = Planner(law=PaperLaw(MODEL, setting.topology))
    found = {
        name: roll_out(placer, setting.config, jobs).mean_slowdown.mean()
        for name, placer in (
            ("measured", scheduler("search")),
            ("equation 12", believer),
            ("srtf", scheduler("srtf")),
        )
    }
    assert found["measured"] < found["equation 12"]
    assert found["measured"] < found["srtf"]


def test_other_speeds_are_refused():
    with pytest.raises(InputError, match="speeds 'x': paper or pollux"):
        PlacementSetting(speeds="x")

"""Recorded schedules: written, read again, and given again as a teacher."""

from __future__ import annotations

import numpy as np
import pytest

from mirage.cli.main import main
from mirage.elastic.baselines import baseline, run_slot
from mirage.elastic.schedule_log import LogTeacher, read_log, record_schedule, write_log
from mirage.elastic.settings import Part, read_setting
from mirage.elastic.world import ElasticWorld
from mirage.errors import InputError

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


@pytest.fixture
def tiny(tmp_path):
    (tmp_path / "tiny.toml").write_text(TINY)
    return read_setting(str(tmp_path / "tiny.toml"))


def log_of(setting):
    sequences = setting.sequences(Part.TEST, 1, 2)
    return record_schedule(baseline("drf"), setting.world, sequences, seed=1)


def test_a_log_is_the_same_after_writing_and_reading(tiny, tmp_path):
    log, types = log_of(tiny), [kind.name for kind in tiny.world.types]
    write_log(tmp_path / "log.jsonl", log, types)
    found = read_log(tmp_path / "log.jsonl", types)
    for name in ("there", "workers", "ps", "trained"):
        kept, wanted = getattr(found, name), getattr(log, name)
        assert (np.where(log.there, kept, 0) == np.where(log.there, wanted, 0)).all(), name
    for kept, wanted in zip(found.sequences, log.sequences, strict=True):
        assert (kept.epochs == wanted.epochs).all()
        assert (kept.type_index == wanted.type_index).all()


def test_a_log_gives_its_tasks_in_its_states(tiny):
    log = log_of(tiny)
    world = ElasticWorld(tiny.world, log.sequences, seed=99)  # speeds vary in another way
    teacher = LogTeacher(log=log)
    teacher.reset(world)
    given, wanted = 0, 0
    for slot in range(len(log.there)):
        run_slot(world, teacher)
        there = log.there[slot]
        tasks = np.where(there, log.workers[slot] + log.ps[slot], 0)
        assert (world.workers + world.ps <= tasks).all()
        given, wanted = given + (world.workers + world.ps).sum(), wanted + tasks.sum()
        before = np.where(there, world.trained - world.last_epochs, 0)
        np.testing.assert_allclose(before, np.where(there, log.trained[slot], 0), atol=1e-9)


def test_a_policy_copies_a_recorded_schedule(tiny, tmp_path, capsys):
    where, log = str(tmp_path / "tiny.toml"), tmp_path / "site.jsonl"
    options = ["--no-figures", "--sequences", "2", "--record", str(log)]
    evaluated = ["elastic", "evaluate", "--setting", where, "--against", "drf", *options]
    assert main([*evaluated, "--out", str(tmp_path / "r")]) == 0
    small = ["hidden=16", "phases=supervised", "supervised.steps=30", "validation=2"]
    options = [word for each in small for word in ("--set", each)]
    trained = ["elastic", "train", "--setting", where, *options]
    assert main([*trained, "--teacher", str(log), "--out", str(tmp_path / "m")]) == 0
    assert "Teacher: site." in (tmp_path / "m" / "card.md").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: [*lines, "{"], "line"),
        (lambda lines: [line.replace("vgg-16", "vgg-17") for line in lines], "line"),
        (lambda lines: lines[1:], "without gaps"),
        (lambda lines: [line for line in lines if '"slot":' not in line], "no slot"),
    ],
)
def test_a_broken_log_gives_one_clear_error(tiny, tmp_path, change, message):
    path, types = tmp_path / "log.jsonl", [kind.name for kind in tiny.world.types]
    log = log_of(tiny)
    log.sequences[0].type_index[0] = types.index("vgg-16")
    write_log(path, log, types)
    lines = path.read_text().splitlines()
    path.write_text("\n".join(change(lines)) + "\n")
    with pytest.raises(InputError, match=message):
        read_log(path, types)

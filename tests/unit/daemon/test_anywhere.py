"""A link that may go anywhere leaves partitions in which it would finish later, and only those."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mirage.chain.tag import anywhere_in
from mirage.daemon.anywhere import Anywhere
from mirage.domain import Job, JobState, Snapshot
from mirage.errors import ClusterUnavailable, InputError
from mirage.provision.starts.finish import FinishForecast, Speeds, read_speeds, worthwhile
from mirage.slurm.resources import NodeUse
from tests.queue_logs import SameWait

NOW_S, HOUR = 1_700_000_000, 3600
TAG = "mirage/1 chain=k3m9pq2xha seg=2/9 pred=7 mode=train ei=1 eo=1"
NODES = [
    NodeUse(name=name, partitions=(part,), total=(2, 4, 4000), free=(0, 0, 0), gpu_type=kind)
    for name, part, kind in (("n1", "fast", "a100"), ("n2", "slow", "v100"))
]


def job(job_id: int, partition: str, state: JobState, **more: object) -> Job:
    made = Job(
        job_id=job_id,
        user="alice",
        partition=partition,
        state=state,
        nodes=1,
        submit_s=NOW_S - 9 * HOUR,
        eligible_s=NOW_S - 9 * HOUR,
        time_limit_s=10 * HOUR,
    )
    return replace(made, **more)


def link(named: str = "fast,slow", waits_in: str = "fast,slow") -> Job:
    comment = f"{TAG} -- mirage:anywhere={named} mine"
    return job(8, waits_in, JobState.PENDING, comment=comment, reason="Dependency", eligible_s=None)


def like_jobs(wait_h: dict[str, float]) -> list[Job]:
    """Forty of each partition, that waited so many hours."""
    return [
        job(
            100 * number + index,
            name,
            JobState.COMPLETED,
            start_s=NOW_S - 2 * HOUR - index,
            eligible_s=NOW_S - 2 * HOUR - index - round(wait * HOUR),
            end_s=NOW_S - HOUR,
        )
        for number, (name, wait) in enumerate(wait_h.items(), start=1)
        for index in range(40)
    ]


def placed(
    asked: Job,
    *,
    fast_h: float,
    slow_speed: float,
    left_h: float = 0,
    fails: bool = False,
    learned: Any = None,
) -> list[tuple[int, str]]:
    """What was changed; waits: so many hours in `fast`, 0.1 in `slow`."""
    done: list[tuple[int, str]] = []

    def accounting(_since_s: int, _until_s: int) -> list[Job]:
        if fails:
            raise ClusterUnavailable("no answer")
        return like_jobs({"fast": fast_h, "slow": 0.1})

    observer = Anywhere(
        speeds=Speeds({"v100": slow_speed}),
        nodes=lambda: NODES,
        accounting=accounting,
        set_partition=lambda job_id, names: done.append((job_id, names)),
        learned=lambda: learned,
    )
    start_s = NOW_S - round((10 - left_h) * HOUR)
    before = job(7, "fast", JobState.RUNNING, start_s=start_s, node_names=("n1",))
    observer.release_begins(asked)  # nothing was seen yet
    observer.queue_read(Snapshot(at_s=NOW_S, jobs=(before, asked), nodes=()))
    observer.release_begins(asked)
    return done


def test_it_leaves_a_slow_partition_where_the_fast_one_starts_it_in_time() -> None:
    assert placed(link(), fast_h=5, slow_speed=0.5, left_h=6) == [(8, "fast")]


def test_it_stays_in_both_where_it_might_wait_or_both_are_equally_fast() -> None:
    assert placed(link(), fast_h=5, slow_speed=0.5, left_h=4) == []
    assert placed(link(), fast_h=5, slow_speed=1.0, left_h=6) == []


@pytest.mark.parametrize(
    ("named", "waits_in"),
    [("fast", "fast,slow"), ("fast,slow", "slow"), ("", "fast,slow"), ("fast,slow", "fast,slow,x")],
)
def test_only_partitions_that_its_owner_named_are_taken_out(named: str, waits_in: str) -> None:
    assert placed(link(named, waits_in), fast_h=1, slow_speed=0.1, left_h=6) == []


def test_where_something_fails_it_stays_in_all() -> None:
    assert placed(link(), fast_h=5, slow_speed=0.5, left_h=6, fails=True) == []


def test_what_the_nights_learnt_goes_before_like_jobs_and_needs_no_accounting() -> None:
    learnt = SameWait(5 * HOUR)
    assert placed(link(), fast_h=9, slow_speed=0.5, left_h=6, fails=True, learned=learnt) == [
        (8, "fast")
    ]
    assert [(row["eligible_s"], row["age_s"]) for row in learnt.asked] == [(0, 9 * HOUR)] * 2
    assert placed(link(), fast_h=5, slow_speed=0.5, left_h=4, learned=SameWait(5 * HOUR)) == []


def test_a_place_is_kept_unless_one_where_nothing_is_waited_for_is_sooner() -> None:
    fast = FinishForecast(partition="fast", wait_s=(0, 100, 500), run_s=100)
    slow = FinishForecast(partition="slow", wait_s=(0, 0, 900), run_s=599)
    assert fast.finish_s == (100, 200, 600)
    assert worthwhile([fast, slow]) == [fast, slow]
    assert worthwhile([fast, replace(slow, run_s=601)]) == [fast]
    late = replace(fast, wait_s=(0, 100, 700))
    assert worthwhile([late, replace(slow, run_s=9999)]) == [late, replace(slow, run_s=9999)]
    assert worthwhile([]) == []


def test_the_comment_names_the_partitions() -> None:
    assert anywhere_in(link().comment) == ("fast", "slow")
    assert anywhere_in("mirage:anywhere") == anywhere_in("mirage:anywhere= x"[:16]) == ()


def test_speeds_are_of_partitions_or_gpu_types(tmp_path: Path) -> None:
    file = tmp_path / "speeds.toml"
    file.write_text("a100 = 1.0\nv100 = 0.5\nold = 0.1\n")
    speeds = read_speeds(file)
    assert speeds.of("gpu", ["a100", "v100"]) == 0.5
    assert (speeds.of("old", ["a100"]), speeds.of("gpu", ["", "h100"])) == (0.1, 1.0)
    for text in ("a100 = 0", 'a100 = "fast"', "a100 = true", "[a100]", "a100"):
        file.write_text(text)
        with pytest.raises(InputError, match=r"speeds\.toml"):
            read_speeds(file)
    with pytest.raises(InputError, match="no speeds can be read"):
        read_speeds(tmp_path / "none.toml")

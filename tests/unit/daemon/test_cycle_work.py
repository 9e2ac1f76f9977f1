"""The work of a cycle grows with the jobs plus the chains, not with their product.

Counted are calls, not seconds, so it holds on a busy machine. Slurm's answers are those of
`benchmarks/tick_cost.py`, which measures the seconds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.tick_cost import Slurm, StepClock, history, queue, service
from mirage.state.likeness import Likeness
from mirage.store.repository import SqlStore

JOBS, CHAINS = 600, 30


def calls_in(work: Callable[[], object]) -> int:
    """Calls of Python and C functions."""
    count = 0

    def seen(_frame: object, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(seen)
    try:
        assert work()
    finally:
        sys.setprofile(before)
    return count


def calls_of_a_cycle(folder: Path, jobs: int, chains: int) -> int:
    """Of the second one: the first fills the store."""
    now_s, clock = StepClock.time_s, StepClock()
    slurm, shown = Slurm(history(jobs, now_s)), queue(jobs, chains, now_s)
    folder.mkdir()
    with SqlStore.open(f"sqlite:///{folder / 'mirage.db'}") as store:
        daemon = service(slurm, clock, store, folder, "quantile")
        slurm.show(shown)
        assert daemon.run_cycle()
        clock.time_s += 600
        slurm.show([slurm.jobs[job.job_id] for job in shown])
        return calls_in(daemon.run_cycle)


def test_a_cycle_costs_jobs_plus_chains(tmp_path: Path) -> None:
    """With a cost of jobs times chains, or of chains times chains, a doubling adds ever more."""
    counts = {
        (jobs, chains): calls_of_a_cycle(tmp_path / f"{jobs}-{chains}", jobs, chains)
        for jobs, chains in [
            (JOBS, CHAINS),
            (JOBS, 2 * CHAINS),
            (JOBS, 4 * CHAINS),
            (2 * JOBS, CHAINS),
            (2 * JOBS, 2 * CHAINS),
        ]
    }
    one, two, four, long, both = counts.values()
    assert both - long - two + one < JOBS * CHAINS / 2, counts
    assert four - two < 2.2 * (two - one), counts


def test_rows_are_looked_at_once_for_what_chains_ask_for_and_not_for_each_chain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays make few calls of many rows, so these are counted apart."""
    looks: dict[int, int] = {}
    among = Likeness.among
    monkeypatch.setattr(
        Likeness,
        "among",
        lambda *args: (looks.update({chains: looks[chains] + 1}), among(*args))[1],
    )
    for chains in (40, 80):
        looks[chains] = 0
        calls_of_a_cycle(tmp_path / str(chains), JOBS, chains)
    assert looks[80] == looks[40] > 0

"""What belongs around a cycle: a store that is not ours, and old records."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest

from mirage.config import RetentionConfig
from mirage.daemon.cycle_guard import DAY_S, CycleGuard
from mirage.daemon.metrics import Metrics
from mirage.daemon.observers import Observer
from mirage.domain import ChainState
from mirage.errors import StoreError
from mirage.store.repository import SqlStore
from tests.unit.store.test_store import a_chain, a_decision

NOW = 400 * DAY_S


class Clock:
    def now_s(self) -> int:
        return NOW


@dataclass
class Cycles:
    """Stands for the daemon."""

    works: bool = True
    count: int = 0

    def run_cycle(self) -> bool:
        self.count += 1
        return self.works


class Guard:
    problem: StoreError | None = None

    def __call__(self) -> None:
        if self.problem:
            raise self.problem


def made(
    store: SqlStore, cycles: Cycles, guard: Guard | None = None, *observers: Observer
) -> CycleGuard:
    return CycleGuard(
        cycles,  # type: ignore[arg-type]
        store,
        Clock(),
        RetentionConfig(),
        ensure_exclusive=guard or Guard(),
        observers=observers,
    )


def test_while_the_store_is_not_ours_nothing_is_done_and_that_is_said_once_more_when_it_is(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cycles, guard = Cycles(), Guard()
    with SqlStore.open("sqlite://") as store, caplog.at_level(logging.INFO):
        guarded = made(store, cycles, guard)
        guard.problem = StoreError("Store x: another daemon")
        assert not guarded.run()
        assert cycles.count == 0
        assert (
            "cycle skipped: nothing is done that can't be written down first: Store x"
            in caplog.text
        )
        guard.problem = None
        assert guarded.run()
        assert guarded.run()
        assert cycles.count == 2
        assert caplog.text.count("the store answers again") == 1


def test_old_records_go_after_a_cycle_by_their_age(caplog: pytest.LogCaptureFixture) -> None:
    with SqlStore.open("sqlite://") as store, caplog.at_level(logging.INFO):
        for days in (89, 91):
            store.add_decision(a_decision(at_s=NOW - days * DAY_S))
        for days in (364, 366):
            store.save_chain(
                a_chain(f"c{days}", state=ChainState.DONE, updated_s=NOW - days * DAY_S)
            )
        assert not made(store, Cycles(works=False)).run()
        assert len(store.chains()) == 2, "what fails is not the time to tidy up"
        assert made(store, Cycles()).run()
        assert [decision.at_s for decision in store.decisions(12)] == [NOW - 89 * DAY_S]
        assert [chain.chain_id for chain in store.chains()] == ["c364"]
        assert "2 old decisions and chains removed" in caplog.text


def test_records_that_can_not_be_removed_do_not_spoil_the_cycle(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with SqlStore.open("sqlite://") as store:
        store.prune = lambda *_: (_ for _ in ()).throw(StoreError("full"))  # type: ignore[method-assign]
        assert made(store, Cycles()).run()
    assert "old records could not be removed: full" in caplog.text


def test_metrics_count_cycles_and_skipped_ones() -> None:
    guard, metrics = Guard(), Metrics("observe", "timer")
    with SqlStore.open("sqlite://") as store:
        guarded = made(store, Cycles(), guard, metrics)
        guarded.run()
        guard.problem = StoreError("away")
        guarded.run()
    assert [
        metrics.registry.get_sample_value("mirage_cycles_total", {"ok": ok})
        for ok in ("true", "false")
    ] == [1, 1]
    assert metrics.registry.get_sample_value("mirage_cycle_seconds_count") == 2


def test_an_observer_that_fails_keeps_neither_the_others_nor_the_next_cycle_from_their_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Faulty(Observer):
        def cycle_ended(self, succeeded: bool, seconds: float, now_s: int) -> None:
            raise ValueError("a fault of ours")

    metrics = Metrics("observe", "timer")
    with SqlStore.open("sqlite://") as store:
        assert made(store, Cycles(), Guard(), Faulty(), metrics).run()
    assert metrics.registry.get_sample_value("mirage_cycles_total", {"ok": "true"}) == 1
    assert "a fault of ours" in caplog.text

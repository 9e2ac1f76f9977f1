"""Windows of three histories, and the table of methods on them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import chain_goodput
from benchmarks.chain_goodput import HISTORIES, LINKS_H, NODES, Window, interval, table, windows
from slurm_sim.seconds import DAY_S


class Log(list):
    first_s, last_s = 0, 90 * DAY_S

    def between(self, begin_s, end_s):
        """More jobs than a window may have, but in the first days."""
        return range(1_000_000) if begin_s > 50 * DAY_S else range(10)


@pytest.fixture
def traces(monkeypatch):
    found = SimpleNamespace(background=SimpleNamespace(log=Log()))
    monkeypatch.setattr(chain_goodput, "inputs", lambda *_: found)
    return Path()


def test_windows_are_balanced_and_a_seed_fixes_them(traces):
    drawn = windows(2, 24, traces)
    assert drawn == windows(2, 30, traces)[:24]
    assert drawn != windows(3, 24, traces)
    pairs = Counter((window.history, window.link_h) for window in drawn)
    assert set(pairs.values()) == {2}
    assert len(pairs) == len(HISTORIES) * len(LINKS_H)
    assert Counter(window.nodes for window in drawn) == dict.fromkeys(NODES, 4)
    assert {window.step_s for window in drawn if window.link_h < 24} == {600}
    assert max(window.begin_s for window in drawn) < 59 * DAY_S, "later ones have too many jobs"


def row(goodput, handovers, wall_h=300.0):
    return {
        "goodput": goodput,
        "handovers": handovers,
        "young": 1,
        "wall_h": wall_h,
        "others_h": 2.0,
    }


def test_the_table_pairs_windows_and_leaves_out_chains_that_started_late():
    drawn = [
        Window(history="KTH", link_h=24, nodes=2, begin_s=number * DAY_S) for number in range(4)
    ]
    rows = {
        window.key: {
            "none": row(0, 0) | {"others_h": 1.5},
            "rule": row(0.90, 10, wall_h),
            "ours": row(goodput, 8, wall_h),
        }
        for window, goodput, wall_h in zip(
            drawn, (0.93, 0.93, 0.93, 0.1), (300.0, 300.0, 300.0, 100.0), strict=True
        )
    }
    lines = table(rows, drawn, "rule", ["ours"]).splitlines()
    assert lines[2].startswith("| all | ours | 3 | 93.0 | +3.0 (+3.0 to +3.0) |")
    assert lines[2].endswith("| -2.0 (-2.0 to -2.0) | 12% | +0.50 |")


def test_an_interval_holds_the_mean():
    low, high = interval([1.0, 2.0, 3.0, 10.0]).removesuffix(")").split("(")[1].split(" to ")
    assert float(low) < 4 < float(high)

"""Which yardstick rule is cheaper at the same goodput."""

from __future__ import annotations

from typing import Any

from benchmarks.chain_table import cases, cheaper, line


def row(policy: str, goodput: float, handovers: int, **more: Any) -> dict[str, Any]:
    return {
        "background": "demo 1",
        "nodes": 2,
        "policy": policy,
        "chains": 1,
        "time_min_s": None,
        "step_s": 600,
        "goodput": goodput,
        "handovers": handovers,
        "interrupted": 0.01,
        "held_twice": 0.005,
        "run_h_a_link": 24.4,
        **more,
    }


def test_a_rule_is_cheaper_only_with_as_much_goodput_and_fewer_handovers():
    ours = row("goodput", 0.97, 30)
    worse, more = row("after:12h", 0.96, 10), row("ahead:3:20h", 0.98, 31)
    assert cheaper(ours, [worse, more, row("same", 0.97, 30)]) == []
    better = row("ahead:3:20h", 0.97, 29)
    assert cheaper(ours, [worse, better]) == [better]


def test_a_case_has_its_finest_rows_and_no_others():
    coarse, fine = row("goodput", 0.90, 20, step_s=1800), row("goodput", 0.97, 30)
    several, short = row("reactive", 0.1, 1, chains=4), row("reactive", 0.2, 1, time_min_s=3600)
    ((background, nodes, found),) = cases([fine, coarse, several, short])
    assert (background, nodes, found) == ("demo 1", 2, {"goodput": fine})
    assert line(background, nodes, found, "99.6") == (
        "| demo 1 | 2 |  |  |  |  | 97.0 / 30 | 1.0 % | 0.5 % | 24 h | 99.6 | - |"
    )

"""The table of 40 variables, and its copy in the documentation."""

from __future__ import annotations

from pathlib import Path

from mirage.state.variables import (
    LIMIT_CAP_S,
    NODES,
    PAIR,
    QUEUED,
    RUNNING,
    VARIABLES,
    capped_limit_s,
)

DOCS = Path(__file__).parents[3] / "docs" / "state.md"


def names(columns: slice) -> list[str]:
    return [variable.name for variable in VARIABLES[columns]]


def test_there_are_40_distinct_variables() -> None:
    assert len({variable.name for variable in VARIABLES}) == len(VARIABLES) == 40


def test_order_is_the_papers() -> None:
    assert [name.rsplit("_p", 1)[0] for name in names(QUEUED)] == (
        ["queued_jobs"] + 5 * ["queued_nodes"] + 5 * ["queued_age_s"] + 5 * ["queued_limit_s"]
    )
    assert [name.rsplit("_p", 1)[0] for name in names(RUNNING)] == (
        ["running_jobs"]
        + 5 * ["running_nodes"]
        + 5 * ["running_elapsed_s"]
        + 5 * ["running_limit_s"]
    )
    assert names(PAIR) == [
        "predecessor_nodes",
        "predecessor_limit_s",
        "predecessor_wait_s",
        "predecessor_elapsed_s",
        "successor_nodes",
        "successor_limit_s",
    ]
    assert names(NODES) == ["idle_nodes", "up_nodes"]
    assert names(slice(1, 6)) == [f"queued_nodes_p{p}" for p in (0, 25, 50, 75, 100)]


def test_seconds_are_named_so() -> None:
    assert all(
        ("_s" in variable.name[-7:]) == (variable.unit == "seconds") for variable in VARIABLES
    )


def test_unlimited_is_the_longest_limit() -> None:
    assert capped_limit_s(48 * 3600) == 48 * 3600
    assert capped_limit_s(None) == capped_limit_s(365 * 86_400) == LIMIT_CAP_S


def test_documentation_shows_this_table() -> None:
    rows = [f"| {i} | `{v.name}` | {v.unit} | {v.how} | {v.why} |" for i, v in enumerate(VARIABLES)]
    head = [
        "| column | name | unit | how it is computed | why |",
        "| --- | --- | --- | --- | --- |",
    ]
    assert "\n".join([*head, *rows]) in DOCS.read_text(encoding="utf-8"), (
        "put it into docs/state.md"
    )

"""`mirage top`: what is shown first, and the screen itself under textual's pilot."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

pytest.importorskip("textual")

from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from mirage.cli.main import main
from mirage.cli.table import link_state
from mirage.cli.top_view import TopView, chain_cells, chain_words, headline, link_cells, shown
from mirage.errors import ClusterUnavailable

NOW = int(time.time())
H = 3600
Json = dict[str, Any]


def link(segment: int, state: str, **more: Any) -> Json:
    known = {
        "segment": segment,
        "job_id": 100 + segment,
        "state": state,
        "start": None,
        "end": None,
        "readiness": None,
        "expected_end": None,
        "reason": "",
        "let_in_by": None,
        "interruption_s": None,
        "overlap_s": None,
        "cut_short_s": 0,
        "exit_code": 0,
        "handover": None,
    }
    return known | more


def chain(name: str, trouble: str = "", **more: Any) -> Json:
    known = {
        "chain": name,
        "user": "alice",
        "name": f"train-{name}",
        "state": "active",
        "segments": 5,
        "updated": NOW,
        "attention": {"trouble": trouble, "words": f"{name} is {trouble}."} if trouble else None,
        "next": f"{name} waits.",
        "links": [
            link(1, "TIMEOUT", start=NOW - 30 * H, end=NOW - 6 * H),
            link(
                2,
                "RUNNING",
                start=NOW - 5 * H,
                expected_end=NOW + 19 * H + 30,
                interruption_s=H,
                let_in_by="daemon",
            ),
            link(3, "PENDING", reason="Dependency"),
        ],
    }
    return known | more


QUIET, LATE = chain("quiet"), chain("tardy", "late")
BROKEN, FAILED = chain("broken", "interrupted"), chain("lost", "failed", state="failed")
USED_UP = chain("short", "used-up", state="used-up")
DONE = chain("finished", state="done", links=[])
ALL = [QUIET, DONE, LATE, FAILED, BROKEN]


def test_what_needs_attention_is_first_and_what_is_over_is_no_news() -> None:
    names = [each["chain"] for each in shown(ALL, NOW, show_all=False)]
    assert names == ["broken", "lost", "tardy", "quiet"]
    assert [each["chain"] for each in shown(ALL, NOW, show_all=True)][-1] == "finished"
    old = FAILED | {"updated": NOW - 4 * 86_400}
    assert shown([old], NOW, show_all=False) == []
    assert shown([FAILED | {"dismissed": True}], NOW, show_all=False) == []
    assert shown([USED_UP, QUIET], NOW, show_all=False) == [QUIET, USED_UP]


@pytest.mark.parametrize(
    ("reports", "words"),
    [
        ([QUIET], "1 chain, none needs attention"),
        ([], "0 chains, none needs attention"),
        (ALL, "5 chains: 1 interrupted, 1 failed and 1 late"),
        ([LATE, LATE], "2 chains: 2 late"),
        ([FAILED, USED_UP, LATE], "3 chains: 1 failed, 1 late and 1 used-up"),
    ],
)
def test_the_headline_counts(reports: list[Json], words: str) -> None:
    assert headline(reports) == words


def test_why_a_chain_ended_is_said_once() -> None:
    assert chain_words(USED_UP) == "short is used-up."
    assert chain_words(LATE) == "tardy is late.\ntardy waits."


def test_a_row_of_a_chain() -> None:
    assert [cell.plain for cell in chain_cells(LATE, NOW)] == [
        "~",
        "tardy",
        "alice",
        "train-tardy",
        "active",
        "2",
        "102",
        "19 h",
        "103",
        "its predecessor",
        "1 h",
    ]
    let_in = chain("x", links=[link(1, "PENDING", reason="Priority", let_in_by="daemon")])
    assert [cell.plain for cell in chain_cells(let_in, NOW)][5:10] == [
        "0",
        "-",
        "-",
        "101",
        "nodes (Priority)",
    ]


def screen(
    look: Callable[[], tuple[list[Json], str]],
    act: Callable[[Pilot[None]], Awaitable[None]],
) -> None:
    async def piloted() -> None:
        app = TopView(look, every_s=3600)
        async with app.run_test(size=(120, 40)) as pilot:
            await app.workers.wait_for_complete()
            await pilot.pause()
            await act(pilot)

    asyncio.run(piloted())


def text(pilot: Pilot[None], name: str) -> str:
    return str(pilot.app.query_one(name, Static).content)


def rows(pilot: Pilot[None], name: str) -> list[list[str]]:
    table = pilot.app.query_one(name, DataTable)
    return [[str(cell) for cell in table.get_row_at(row)] for row in range(table.row_count)]


def test_the_screen_shows_chains_and_the_links_of_the_chosen_one() -> None:
    async def act(pilot: Pilot[None]) -> None:
        assert "4 chains: 1 interrupted" in text(pilot, "#headline")
        assert [row[1] for row in rows(pilot, "#chains")] == ["broken", "lost", "tardy", "quiet"]
        assert [row[1] for row in rows(pilot, "#links")] == ["103", "102", "101"]
        assert text(pilot, "#words") == "broken is interrupted.\nbroken waits."
        await pilot.press("down", "down")
        await pilot.pause()
        assert text(pilot, "#words") == "tardy is late.\ntardy waits."
        assert text(pilot, "#note") == "no daemon runs [here]"

    screen(lambda: (ALL, "no daemon runs [here]"), act)


def test_the_keys() -> None:
    looks: list[int] = []

    def look() -> tuple[list[Json], str]:
        looks.append(1)
        return (ALL if len(looks) == 1 else [QUIET, BROKEN | {"attention": None}]), ""

    async def act(pilot: Pilot[None]) -> None:
        await pilot.press("a")
        assert [row[1] for row in rows(pilot, "#chains")][-1] == "finished"
        await pilot.press("down", "down", "down")
        await pilot.pause()
        assert text(pilot, "#words") == "quiet waits."
        await pilot.pause()
        await pilot.press("r")
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        assert len(looks) == 2
        assert [row[1] for row in rows(pilot, "#chains")] == ["quiet", "broken"]
        assert text(pilot, "#words") == "quiet waits."  # it is still the chosen one
        await pilot.press("q")
        assert not pilot.app.is_running

    screen(look, act)


def test_without_a_chain_it_says_how_to_start_one() -> None:
    async def act(pilot: Pilot[None]) -> None:
        assert "mirage-submit SCRIPT" in text(pilot, "#words")

    screen(lambda: ([], ""), act)


def test_a_look_that_fails_leaves_what_was_seen() -> None:
    looks: list[int] = []

    def look() -> tuple[list[Json], str]:
        looks.append(1)
        if len(looks) > 1:
            raise ClusterUnavailable("squeue failed.")
        return ALL, ""

    async def act(pilot: Pilot[None]) -> None:
        await pilot.press("r")
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        assert text(pilot, "#note") == "As of the last look, since: squeue failed."
        assert len(rows(pilot, "#chains")) == 4

    screen(look, act)


def test_without_a_terminal_it_says_what_to_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top"]) == 2
    assert "it needs a terminal: use `mirage status`" in capsys.readouterr().err


@pytest.mark.parametrize("every", ["1s", "2h", "soon"])
def test_a_time_that_is_none_is_refused(every: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["top", "--every", every])
    assert "--every" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("asked", "gone", "more", "said"),
    [
        (50, 60, {"cut_short_s": 30}, "handed over"),
        (50, 60, {}, "handed over"),  # it ended near its limit, at its successor's signal
        (50, 60, {"state": "FAILED", "readiness": "ready"}, "handed over"),  # a server's SIGTERM
        (50, 60, {"state": "FAILED", "readiness": "never ready"}, "never ready"),
        (50, 60, {"state": "FAILED", "exit_code": 143}, "handed over"),  # past its limit by seconds
        (None, 60, {"state": "FAILED"}, "FAILED"),
        (None, None, {"asked_by": "pause", "state": "FAILED"}, "paused"),  # mirage pause --now
        (None, None, {"asked_by": "scale", "state": "COMPLETED"}, "scaled down"),
        (None, None, {"asked_by": "pause", "state": "RUNNING"}, "RUNNING"),  # it saves
        (50, 60, {"state": "RUNNING", "readiness": "starting"}, "starting"),
        (50, None, {}, "COMPLETED"),  # its successor ended first
        (None, 60, {}, "COMPLETED"),  # it was left alone: --handover-signal none
        (50, 60, {"state": "TIMEOUT"}, "TIMEOUT"),
        (None, None, {"state": "FAILED", "exit_code": 75}, "at its signal"),
    ],
)
def test_a_link_that_left_for_its_successor_is_handed_over(
    asked: int | None, gone: int | None, more: Json, said: str
) -> None:
    record = {"asked": asked, "gone": gone, "asked_by": more.pop("asked_by", "successor")}
    ended = link(1, "COMPLETED", handover=record, nodes=1, submit=0) | more
    assert link_cells(ended)[2] == link_state(ended) == said


def test_the_replicas_of_a_service_are_one_row() -> None:
    """The row tells of the link that hands over first; below it all links are shown."""

    def replica(number: int, end_s: int) -> Json:
        job = link(1, "RUNNING", start=NOW - H, expected_end=end_s, job_id=10 * number)
        stands = {
            "service": "llm",
            "user": "alice",
            "number": number,
            "chain": f"r{number}",
            "state": "active",
            "stands": "ready",
            "jobs": [10 * number],
            "next_handover": end_s,
            "served": [[NOW - H, None]],
        }
        return chain(f"r{number}", links=[job], replica=stands)

    rows = shown([replica(2, NOW + H), replica(1, NOW + 3 * H), chain("solo")], NOW, show_all=False)
    assert [row["chain"] for row in rows] == ["llm", "solo"]
    cells = [cell.plain for cell in chain_cells(rows[0], NOW)]
    assert cells[1:4] == ["llm", "alice", "2 of 2 replicas ready"]
    assert cells[6:8] == ["20", "1 h"]
    assert {link_cells(each)[0] for each in rows[0]["links"]} == {"1: 1", "2: 1"}
    assert "up 100.00% (all of them: 100.00%)" in chain_words(rows[0])

"""The screen of `mirage top`: what each row says (pure), and the application that shows it.

Textual's pages: https://textual.textualize.io/widgets/data_table/ and /guide/workers/.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.widgets import DataTable, Footer, Static

from mirage.chain.durations import format_duration
from mirage.cli.table import link_state, when
from mirage.daemon.attention import Trouble, rank
from mirage.daemon.report import is_news
from mirage.daemon.services import in_words, service_rows
from mirage.domain import ChainState, JobState
from mirage.errors import MirageError
from mirage.figures.words import listed, several

Json = dict[str, Any]
Look = Callable[[], tuple[list[Json], str]]
"""Reports on chains (docs/cli.md), and a note."""

COLUMNS = (
    "",
    "chain",
    "user",
    "name",
    "state",
    "link",
    "running",
    "left",
    "next job",
    "waits for",
    "lost",
)
LINK_COLUMNS = ("link", "job", "state", "start", "end", "released by", "interrupted", "overlap")
_STYLES = {"interrupted": "bold red", "failed": "bold red", "late": "bold yellow"}
_SIGNS = {"interrupted": "!!", "failed": "!", "late": "~", "used-up": "="}


def shown(reports: Sequence[Json], now_s: float, *, show_all: bool) -> list[Json]:
    """Those that need attention first, the most urgent before the others. Without ``show_all``: only
    those that are news.
    """
    kept = [report for report in reports if show_all or is_news(report, now_s)]
    return sorted(_folded(kept, now_s), key=_urgency)


def _folded(reports: Sequence[Json], now_s: float) -> list[Json]:
    """The replicas of a service as one: it is called by the service's name, and has all their links."""
    found: dict[tuple[str, str], list[Json]] = {}
    for report in reports:
        service = (report.get("replica") or {}).get("service")
        found.setdefault((report["user"], service or report["chain"]), []).append(report)
    return [_service(each, now_s) if each[0].get("replica") else each[0] for each in found.values()]


def _service(reports: Sequence[Json], now_s: float) -> Json:
    by_number = sorted(reports, key=lambda report: report["replica"]["number"])
    rows = service_rows((report["replica"] for report in by_number), int(now_s))
    first = min(by_number, key=_urgency)
    links = [
        link | {"replica": report["replica"]["number"]}
        for report in by_number
        for link in report["links"]
    ]
    # the one that ends first is the last that runs, of which the row tells
    links.sort(key=lambda link: (link["start"] is not None, -(link["expected_end"] or 0)))
    return first | {
        "chain": first["replica"]["service"],
        "name": in_words(rows[0]).partition(",")[0] if rows else first["name"],
        "links": links,
        "next": "\n".join(
            [
                *map(in_words, rows),
                *(f"{each['replica']['number']}: {each['next']}" for each in by_number),
            ]
        ),
    }


def _urgency(report: Json) -> tuple[int, bool]:
    trouble = _trouble(report)
    return rank(Trouble(trouble) if trouble else None), ChainState(report["state"]).is_over


def _trouble(report: Json) -> str:
    return report["attention"]["trouble"] if report["attention"] else ""


def _trouble_word(report: Json) -> str:
    """A chain that ended badly is counted as what it is, such as `used-up`."""
    trouble = _trouble(report)
    return str(report["state"]) if trouble == Trouble.FAILED.value else trouble


def headline(reports: Sequence[Json]) -> str:
    """How many chains there are, and how many of them need attention for what."""
    counts = Counter(_trouble_word(report) for report in reports)
    words = [each.value for each in Trouble]
    words += sorted(counts.keys() - {"", *words})
    troubles = [f"{counts[each]} {each}" for each in words if counts[each]]
    chains = several(len(reports), "chain")
    return f"{chains}: {listed(troubles)}" if troubles else f"{chains}, none needs attention"


def chain_cells(report: Json, now_s: float) -> list[Text]:
    """A row of `COLUMNS`."""
    links, trouble = report["links"], _trouble(report)
    running = [link for link in links if JobState(link["state"]).has_nodes]
    waiting = next((link for link in links if JobState(link["state"]) is JobState.PENDING), None)
    last = running[-1] if running else None
    segment = max((link["segment"] for link in links if link["start"]), default=0)
    lost_s = sum(link["interruption_s"] or 0 for link in links)
    cells = (
        _SIGNS.get(trouble, ""),
        report["chain"],
        report["user"],
        report["name"],
        report["state"],
        str(segment),
        str(last["job_id"]) if last else "-",
        _left(last, now_s),
        str(waiting["job_id"]) if waiting else "-",
        _waits_for(waiting),
        format_duration(lost_s) if lost_s else "-",
    )
    return [Text(cell, style=_STYLES.get(trouble, "")) for cell in cells]


def _left(link: Json | None, now_s: float) -> str:
    if link is None or link["expected_end"] is None:
        return "-"
    return format_duration(max(0, link["expected_end"] - now_s))


def _waits_for(link: Json | None) -> str:
    if link is None:
        return "-"
    if link["let_in_by"]:
        return f"nodes ({link['reason']})" if link["reason"] else "nodes"
    return "its predecessor" if link["reason"] in ("", "Dependency") else str(link["reason"])


def link_cells(link: Json) -> list[str]:
    """A row of `LINK_COLUMNS`."""
    costs = (link["interruption_s"], link["overlap_s"])
    return [
        f"{link['replica']}: {link['segment']}" if "replica" in link else str(link["segment"]),
        str(link["job_id"]),
        link_state(link),
        when(link["start"]),
        when(link["end"]),
        link["let_in_by"] or "-",
        *("-" if cost is None else format_duration(cost) for cost in costs),
    ]


def chain_words(report: Json) -> str:
    """Below the links: what is wrong, and what happens next; of one that ended badly once."""
    trouble = report["attention"]["words"] if report["attention"] else ""
    ended = _trouble(report) in (Trouble.FAILED.value, Trouble.USED_UP.value)
    return "\n".join(filter(None, (trouble, "" if ended else report["next"])))


class TopView(App[None]):
    """Chains above, the links of the chosen one below. ``look`` is called in a thread."""

    TITLE = "mirage top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #headline { height: 1; text-style: bold; }
    #chains { height: 1fr; }
    #detail { height: 1fr; border-top: solid $primary; }
    #words { margin: 1 0 0 0; }
    #note { height: auto; color: $warning; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        ("r", "look", "Look now"),
        ("a", "toggle_all", "Also over"),
        ("q", "quit", "Quit"),
    ]

    def __init__(self, look: Look, *, every_s: float = 10, show_all: bool = False) -> None:
        super().__init__()
        self._look = look
        self._every_s = every_s
        self._show_all = show_all
        self._reports: list[Json] = []
        self._rows: list[Json] = []

    def compose(self) -> ComposeResult:
        yield Static("Looking at your chains ...", id="headline", markup=False)
        yield DataTable(id="chains", cursor_type="row", zebra_stripes=True)
        with VerticalScroll(id="detail"):
            yield DataTable(id="links", cursor_type="none")
            yield Static("", id="words", markup=False)
        yield Static("", id="note", markup=False)
        yield Footer()

    def on_mount(self) -> None:
        self.query_one("#chains", DataTable).add_columns(*COLUMNS)
        self.query_one("#links", DataTable).add_columns(*LINK_COLUMNS)
        self.query_one("#chains", DataTable).focus()
        self.set_interval(self._every_s, self.action_look)
        self.action_look()

    @work(thread=True, exclusive=True)
    def action_look(self) -> None:
        try:
            reports, note = self._look()
        except (MirageError, OSError) as error:
            self.call_from_thread(self._say, f"As of the last look, since: {error}")
            return
        self.call_from_thread(self._take, reports, note)

    def action_toggle_all(self) -> None:
        self._show_all = not self._show_all
        self._draw()

    def _say(self, note: str) -> None:
        self.query_one("#note", Static).update(note)

    def _take(self, reports: list[Json], note: str) -> None:
        self._reports = reports
        self._say(note)
        self._draw()

    def _draw(self) -> None:
        """The same chain stays chosen, wherever it moves to."""
        table = self.query_one("#chains", DataTable)
        chosen = self._chosen()
        now_s = time.time()
        self._rows = shown(self._reports, now_s, show_all=self._show_all)
        at = time.strftime("%H:%M:%S", time.localtime(now_s))
        self.query_one("#headline", Static).update(f"{at}  {headline(self._rows)}")
        table.clear()
        for report in self._rows:
            table.add_row(*chain_cells(report, now_s), key=f"{report['user']}/{report['chain']}")
        names = [report["chain"] for report in self._rows]
        if chosen and chosen["chain"] in names:
            table.move_cursor(row=names.index(chosen["chain"]))
        self._draw_links()

    def _chosen(self) -> Json | None:
        row = self.query_one("#chains", DataTable).cursor_row
        return self._rows[row] if 0 <= row < len(self._rows) else None

    def on_data_table_row_highlighted(self) -> None:
        self._draw_links()

    def _draw_links(self) -> None:
        report = self._chosen()
        table, words = self.query_one("#links", DataTable), self.query_one("#words", Static)
        table.clear()
        if report is None:
            words.update("No chain runs. Start one: mirage-submit SCRIPT")
            return
        for link in reversed(report["links"]):
            table.add_row(*link_cells(link))
        words.update(chain_words(report))

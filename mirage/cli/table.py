"""How chains look on a terminal (rich)."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mirage.chain.durations import format_duration
from mirage.chain.folder import PAUSE, SCALE_DOWN
from mirage.chain.serving import Readiness
from mirage.domain import USED_UP_EXIT, ChainState, JobState

Json = dict[str, Any]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Who pipes into `head` has what they want; rich would exit with 1."""
        raise BrokenPipeError


_NO_EDGE = 10_000
"""Columns where the output is no terminal: a line is never wrapped."""

console = _Console(highlight=False, emoji=False)
if not console.is_terminal:
    console.width = _NO_EDGE

_BY_OWNER = {PAUSE: "paused", SCALE_DOWN: "scaled down"}
"""The state of a link that its owner asked to end."""


def when(seconds: int | None) -> str:
    """Local time, for people."""
    return datetime.fromtimestamp(seconds).strftime("%m-%d %H:%M:%S") if seconds else "-"


def duration(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)


def heading(report: Json) -> str:
    """Which chain it is and how it stands, as rich's markup."""
    name, script = report["name"], report["script"]
    shown = (
        script.replace(str(Path.home()), "~", 1) if script.startswith(f"{Path.home()}/") else script
    )
    what = ", ".join(filter(None, ("" if name == Path(script).name else name, shown)))
    known = f": {escape(what)}" if what else ""
    ran = f"ran {format_duration(report['ran_s'])}"
    service = report["service"]
    up = f", {_up(service)}{wanted_words(service)}" if service else ""
    length = (
        f", to run {report['length']}" if "until" in report["length"] else f" of {report['length']}"
    )
    return (
        f"[bold]chain {report['chain']}[/] {report['state']} ({report['mode']},"
        f" {escape(report['user'])}, {ran}{length}{up}){known}"
    )


def _up(service: Json) -> str:
    return "not ready yet" if service["uptime"] is None else f"up {service['uptime']:.2%}"


def wanted_words(service: Json) -> str:
    """The share of the time that a service should be up, as ` (wanted: 99.9%)`; empty: none."""
    return f" (wanted: {100 * service['wanted']:.5g}%)" if service["wanted"] else ""


def states_table(report: Json, most: int | None = None) -> Table:
    """Where a chain's links (the last ``most`` of them) stand, one a row, within 80 columns."""
    table = _table("link", "job", "state", "nodes", "start", "end", "released by")
    for link in report["links"][-most if most else 0 :]:
        nodes, times = str(link["nodes"] or "-"), (when(link["start"]), when(link["end"]))
        table.add_row(*_named(link), nodes, *times, link["let_in_by"] or "-")
    return table


def services_table(row: Json) -> Table:
    """The replicas of a service, one a row, within 80 columns."""
    table = _table("replica", "chain", "state", "job", "next handover by")
    for each in row["replicas"]:
        jobs = " ".join(map(str, each["jobs"])) or "-"
        named = (f"{row['service']}:{each['number']}", each["chain"], each["stands"])
        table.add_row(*named, jobs, when(each["next_handover"]))
    return table


def costs_table(report: Json) -> Table:
    """What a chain's handovers cost, one link a row, within 80 columns."""
    table = _table("link", "job", "state", "interrupted", "overlap", "cut short", "released by")
    for link in report["links"]:
        costs = (link["interruption_s"], link["overlap_s"], link["cut_short_s"] or None)
        table.add_row(*_named(link), *map(duration, costs), link["let_in_by"] or "-")
    return table


def _table(*names: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in names:
        table.add_column(name, justify="right" if name in ("link", "job", "nodes") else "left")
    return table


def link_state(link: Json) -> str:
    """How a link stands, as people call it. One that its successor asked to end is handed over, near
    or past its limit too, and one that its owner did is paused or scaled down: the exit code of none
    tells of a failure. One of a service is starting until it is ready.
    """
    if link["readiness"] in (Readiness.STARTING.value, Readiness.NEVER.value):
        return str(link["readiness"])
    record = link["handover"]
    has_ended = link["state"] in (JobState.COMPLETED.value, JobState.FAILED.value)
    if record and (by_owner := _BY_OWNER.get(record["asked_by"])):
        return by_owner if has_ended or link["state"] == JobState.CANCELLED.value else link["state"]
    if link["cut_short_s"] or (record and record["asked"] and record["gone"] and has_ended):
        return "handed over"
    at_signal = link["state"] == JobState.FAILED.value and link["exit_code"] == USED_UP_EXIT
    return "at its signal" if at_signal else str(link["state"])


def _named(link: Json) -> tuple[str, str, str]:
    return str(link["segment"]), str(link["job_id"]), link_state(link)


def remarks(report: Json) -> list[str]:
    """What went wrong at handovers, whether the script has changed, and what follows the chain, one
    sentence each.
    """
    found = [
        _cut_off(link)
        for link in report["links"]
        if link["handover"] and link["handover"]["cut_off"]
    ]
    if report["script_changed"] and not ChainState(report["state"]).is_over:
        found.append(
            f"{report['script']} has changed since; the chain runs its copy of the submission."
        )
    return [*found, *(_then(then, report) for then in report["then"])]


def _cut_off(link: Json) -> str:
    handover = link["handover"]
    who = f"Link {link['segment']} (job {link['job_id']}) was cancelled by its successor"
    lost = "what it had not saved by then is lost. To give it longer:"
    if handover["cut_off_by"] == "grace":
        grace_s = handover["grace_s"] or 0
        return (
            f"{who} {format_duration(grace_s)} after it was asked to end: {lost} mirage-submit"
            f" --handover-grace {max(60, 2 * grace_s)}s"
        )
    return (
        f"{who} once both had run together for as long as --max-overlap allows: {lost} a longer"
        " --max-overlap"
    )


def _then(then: Json, report: Json) -> str:
    state, again = report["state"], f"mirage done {report['chain']}"
    if then["problem"]:
        return (
            f"--then {then['script']} could not be queued: {then['problem']}. To try again: {again}"
        )
    if state in ("active", "paused"):
        return f"Once the chain is done, {then['script']} follows" + (
            f" (job {then['job_id']})." if then["job_id"] else "."
        )
    if then["job_id"] and state == "done":
        return f"{then['script']} follows the chain as job {then['job_id']}."
    if state == "done":
        return f"--then {then['script']} is not queued yet. If that stays so: {again}"
    return f"{then['script']} does not follow the chain, since it is {state}."

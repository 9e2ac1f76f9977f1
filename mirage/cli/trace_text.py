"""What `mirage trace` prints for people."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from rich.markup import escape
from rich.table import Table

from mirage.cli.table import console

if TYPE_CHECKING:
    from slurm_sim.traces.cleaning import CleaningReport
    from slurm_sim.traces.reading import TraceImport

Json = dict[str, Any]
MONTHS = (
    "month",
    "jobs",
    "mean wait",
    "p50",
    "p90",
    "p99",
    "over 2 h",
    "over 12 h",
    "by node-hours",
    "busy",
    "max busy",
)


# --- import
# ----------------------------------------------------------------------------------------------------------


def cleaning_table(imported: TraceImport, report: CleaningReport) -> Table:
    """What reading and cleaning did, a rule a row."""
    left_out = f", {imported.left_out} left out" if imported.left_out else ""
    table = make_table(
        "rule", "jobs", "action", "what", title=f"{imported.rows} lines with jobs{left_out}"
    )
    for note, count in imported.notes.items():
        table.add_row("import", str(count), "", escape(note))
    for found in report.findings:
        more = ", ..." if found.jobs > len(found.examples) else ""
        detail = found.detail + (f" ({', '.join(found.examples)}{more})" if found.examples else "")
        table.add_row(
            found.rule,
            str(found.jobs),
            found.action if found.jobs or not found.detail else "",
            escape(detail),
        )
    return table


# --- stats
# -----------------------------------------------------------------------------------------------------------


def print_stats(figures: Json) -> None:
    """The figures of `mirage trace stats`."""
    if not figures["ran"]:
        states = ", ".join(
            f"{count} {escape(state or 'without a state')}"
            for state, count in figures["states"].items()
        )
        console.print(
            f"{figures['jobs']} jobs, none ran ({states}): waits, sizes and load are not known"
        )
        return
    wait, sizes, limits, run, load = (
        figures[name] for name in ("wait", "sizes", "limits", "run", "load")
    )
    console.print(
        f"{figures['jobs']} jobs, of which {figures['ran']} ran; users: {figures['users']['count']}"
    )
    console.print(_waits(wait))
    console.print(
        f"nodes: mean {number(sizes['mean'])}, max {sizes['max']}; multi-node jobs take "
        f"{sizes['multi_node_share_of_node_hours']:.0%} of {load['node_hours']:.0f} node-hours"
    )
    if limits["p50_s"] is None:
        console.print("limit: not known of any job")
    else:
        ratio = number(run["run_over_limit_p50"], 3)
        console.print(f"limit: median {hours(limits['p50_s'])}; run time / limit: median {ratio}")
    if "nodes" in load:
        busy = f"{load['utilisation']:.1%} busy, " if "utilisation" in load else ""
        console.print(f"load: of {load['nodes']} nodes {busy}{load['offered_load']:.1%} offered")
    if figures["months"]:
        console.print(_months_table(figures))
    if figures["users"]["top"]:
        console.print(_users_table(figures))


def _waits(wait: Json) -> str:
    if not wait["jobs"]:
        return "wait: not known, since no job has a start (`slurm-sim run --trace` gives them one)"
    quantiles = ", ".join(f"{name} {hours(wait[f'{name}_s'])}" for name in ("p50", "p90", "p99"))
    return (
        f"wait: mean {hours(wait['mean_s'])}, {quantiles}; over 2 h {wait['over_2h']:.1%}, over 12"
        f" h {wait['over_12h']:.1%}; by node-hours {hours(wait['node_hours_mean_s'])}"
    )


def too_many_busy(load: Json) -> str:
    """What is wrong if the log keeps more nodes busy than the cluster is said to have; empty:
    nothing is.
    """
    nodes, often = load.get("nodes"), load.get("busy_p99", 0.0)
    if not nodes or max(often, load.get("busy_mean", 0.0)) <= nodes:
        return ""
    return (
        f"{often:.0f} and more nodes were busy for 1 % of the time (most: {load['busy_max']:.0f}),"
        f" more than --nodes {nodes}: the shares of the load are too high. Give the most that the"
        " cluster had (`mirage trace infer` shows the steps), or drop jobs of other nodes, by"
        " `mirage trace import --nodes`"
    )


def _months_table(figures: Json) -> Table:
    table = make_table(*MONTHS, title=f"by month of submission ({figures['timezone']})")
    for month in figures["months"]:
        times = (hours(month[key]) for key in ("mean_s", "p50_s", "p90_s", "p99_s"))
        shares = (f"{month[key]:.1%}" for key in ("over_2h", "over_12h"))
        busy = (number(month.get(key), 1) for key in ("busy_mean", "busy_max"))
        table.add_row(
            month["month"],
            str(month["jobs"]),
            *times,
            *shares,
            hours(month["node_hours_mean_s"]),
            *busy,
        )
    return table


def _users_table(figures: Json) -> Table:
    table = make_table("user", "jobs", "node-hours", "mean wait", title="busiest users")
    for user in figures["users"]["top"]:
        table.add_row(
            escape(user["user"]),
            str(user["jobs"]),
            f"{user['node_hours']:.0f}",
            hours(user["mean_wait_s"]),
        )
    return table


# --- infer
# -----------------------------------------------------------------------------------------------------------


def print_inferred(record: Json, timezone: str) -> None:
    """What `mirage trace infer` found; times in this zone."""
    console.print(f"dependencies: {_chains(record['chains'])}")
    console.print(f"running limit: {_limit(record['user_limit'])}")
    throttles = record["array_throttles"]
    console.print(f"array throttles: {f'{len(throttles)} groups' if throttles else 'none seen'}")
    if not record["nodes"]:
        console.print("nodes over time: not known, since no job has both a start and an end")
        return
    table = make_table(
        "from", "nodes", "hours with a queue", "of them full", title="nodes over time (at least)"
    )
    for step in record["nodes"]:
        when = datetime.fromtimestamp(step["time"], ZoneInfo(timezone)).strftime("%Y-%m-%d %H:%M")
        table.add_row(
            when, str(step["nodes"]), f"{step['contended_h']:.0f}", f"{step['at_level_h']:.0f}"
        )
    console.print(table)


def _chains(chains: Json) -> str:
    if not chains["links"]:
        return "none seen"
    longest = ", ".join(map(str, chains["longest"][:5]))
    return (
        f"{chains['links']} links in {chains['chains']} chains (longest: {longest} jobs);"
        f" {chains['by_chance']} links are expected by chance"
        f" alone{'' if chains['used'] else ': too many, so none is used'}"
    )


def _limit(limit: Json | None) -> str:
    if limit is None:
        return "none seen"
    idle = limit["blocked_while_idle"]
    beside = "" if idle is None else f", {idle:.0%} of them beside idle nodes"
    return (
        f"{limit['jobs']} jobs a user ({limit['users_at']} users stop there, {limit['users_above']}"
        f" go beyond; {limit['blocked_jobs']} jobs waited for it{beside})"
    )


# --- shared
# ----------------------------------------------------------------------------------------------------------


def make_table(*names: str, title: str) -> Table:
    """A table without lines; numbers to the right."""
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for index, name in enumerate(names):
        table.add_column(
            name, justify="right" if index and name not in ("action", "what") else "left"
        )
    return table


def hours(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds / 3600:.2f} h"


def number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None or value != value else f"{value:.{digits}f}"

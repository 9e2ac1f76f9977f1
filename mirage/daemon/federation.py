"""One report over several clusters, each with an audit log of its own (docs/audit.md)."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from mirage.daemon.impact import Costs, Impact, impact, is_audit_log
from mirage.daemon.impact_words import hours, sentences
from mirage.errors import AuditError, InputError, system_says
from mirage.figures.page import DataTable, Notes, Paragraph, ReportPage, Section, Tile
from mirage.figures.words import day, listed, several
from mirage.figures.words import hours as length
from mirage.store.journal import read_journal
from slurm_sim.files import read_text
from slurm_sim.formats import parse_toml
from slurm_sim.seconds import HOUR_S

HEAD = ("cluster", "handovers", "let in", "interrupted h", "reactive h", "saved h", "too early h")
_TOTAL = "all"


@dataclass(frozen=True, kw_only=True)
class ClusterImpact:
    """What one cluster's log says; None, and why, if it can't be read."""

    name: str
    audit: Path
    found: Impact | None
    problem: str = ""


def read_federation(file: Path) -> dict[str, Path]:
    """Name of a cluster -> its audit log, out of the table `clusters` of a TOML file. Relative paths
    are beside the file. Raises InputError.
    """
    try:
        table = parse_toml(read_text(file)).get("clusters")
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{file}: no TOML: {error}") from error
    except OSError as error:
        raise InputError(f"{system_says(error, file)}: it can't be read.") from error
    if not isinstance(table, Mapping) or not table:
        raise InputError(f'{file}: expected a table [clusters] with lines NAME = "AUDIT LOG"')
    for name, audit in table.items():
        if not isinstance(audit, str) or not audit or name == _TOTAL:
            raise InputError(
                f"{file}: clusters.{name}: expected the path of an audit log, and another name than"
                f" {_TOTAL!r}"
            )
    return {name: file.parent / Path(audit).expanduser() for name, audit in table.items()}


def read_impact(audit: Path, since_s: int, until_s: int, timer_lead_s: int) -> Impact:
    """As `impact`. Raises AuditError: it can't be read, or no line of it is an audit log's."""
    found = impact(read_journal(audit), since_s, until_s, timer_lead_s)
    if found.unreadable and not is_audit_log(read_journal(audit)):
        raise AuditError(f"{audit}: no line of it is one of an audit log. Name the service's.")
    return found


def impacts(
    audits: Mapping[str, Path], since_s: int, until_s: int, timer_lead_s: int
) -> list[ClusterImpact]:
    """By cluster, as `impact`. One that can't be read does not hide the others."""
    clusters = []
    for name, audit in audits.items():
        try:
            found = read_impact(audit, since_s, until_s, timer_lead_s)
        except AuditError as error:
            problem = str(error)
            clusters.append(ClusterImpact(name=name, audit=audit, found=None, problem=problem))
            continue
        clusters.append(ClusterImpact(name=name, audit=audit, found=found))
    return clusters


def rows(clusters: Sequence[ClusterImpact]) -> list[tuple[str, ...]]:
    """Of `HEAD`: each cluster, and all together. Saved: estimated reactive less measured; of a
    cluster that only observes, measured less its releases carried out.
    """
    read = [(each.name, each.found) for each in clusters if each.found]
    return [*(_row(name, [found]) for name, found in read), _row(_TOTAL, [f for _, f in read])]


def _row(name: str, found: Sequence[Impact]) -> tuple[str, ...]:
    with_mirage, without = _sum(found, _with_mirage), _sum(found, _without)
    mark = " (would be)" if found and all(each.only_observed for each in found) else ""
    return (
        f"{name}{mark}",
        f"{sum(each.handovers for each in found):,}",
        f"{sum(each.released for each in found):,}",
        hours(with_mirage.interruption_s),
        hours(without.interruption_s),
        hours(_saved_s(found)),
        hours(with_mirage.early_s),
    )


def _saved_s(found: Sequence[Impact]) -> float:
    return _sum(found, _without).interruption_s - _sum(found, _with_mirage).interruption_s


def _with_mirage(found: Impact) -> Costs:
    return found.policy if found.only_observed else found.compared


def _without(found: Impact) -> Costs:
    return found.compared if found.only_observed else found.reactive


def _sum(found: Sequence[Impact], which: Callable[[Impact], Costs]) -> Costs:
    return reduce(add, map(which, found), Costs())


def notes(clusters: Sequence[ClusterImpact]) -> list[str]:
    """What the rows do not have."""
    problems = [f"{each.name}: {each.problem}" for each in clusters if each.problem]
    problems += [
        f"{each.name}: {several(each.found.not_known, 'handover is', 'handovers are')} not in the"
        " hours: the wait is not known."
        for each in clusters
        if each.found and each.found.not_known
    ]
    observed = [each.name for each in clusters if each.found and each.found.only_observed]
    if observed:
        problems.append(
            f"{listed(observed)} only {'observes' if len(observed) == 1 else 'observe'}: what would"
            " have been, had the releases been carried out."
        )
    return problems


def as_json(clusters: Sequence[ClusterImpact], since_s: int, until_s: int) -> dict[str, Any]:
    """For programs (docs/cli.md)."""
    named = {
        each.name: {"audit": str(each.audit), "problem": each.problem}
        | (each.found.as_json() if each.found else {})
        for each in clusters
    }
    return {"since": since_s, "until": until_s, "clusters": named}


def page(clusters: Sequence[ClusterImpact], since_s: int, until_s: int) -> ReportPage:
    """The same as one HTML page, with each cluster's own report in words."""
    read = [each for each in clusters if each.found]
    handovers = rows(clusters)[-1][1]
    total = length(_saved_s([each.found for each in clusters if each.found]) / HOUR_S)
    observes = any(each.found.only_observed for each in clusters if each.found)
    saved = "saved, or would have been" if observes else "saved"
    return ReportPage(
        title=f"{several(len(read), 'cluster')}: {total} of interruption {saved}",
        lead=(
            f"From {day(since_s)} to {day(until_s)}: what Mirage's services measured, and what"
            " Slurm's dependency alone would have cost (estimated)."
        ),
        tiles=(Tile("handovers", handovers), Tile(saved, total)),
        warning=" ".join(f"{each.name}: {each.problem}" for each in clusters if each.problem),
        sections=[
            Section(
                "clusters",
                "By cluster",
                [
                    DataTable("With Mirage, and without", HEAD, [("", rows(clusters))]),
                    Notes(notes(clusters)) if notes(clusters) else Paragraph("All were read."),
                ],
            ),
            *(
                Section(f"cluster-{number}", each.name, [Notes(sentences(each.found))])
                for number, each in enumerate(read)
                if each.found
            ),
        ],
        footer="mirage report --federation",
    )

"""The report on what the service was worth, in words (docs/audit.md). Pure."""

from __future__ import annotations

from mirage.chain.durations import format_duration
from mirage.daemon.impact import Costs, Impact
from mirage.figures.words import number, several

FEWEST = 20
"""With fewer waits calibration tells nothing."""


def hours(seconds: float) -> str:
    """With two to three digits."""
    return number(seconds / 3600)


def sentences(found: Impact) -> list[str]:
    """The report in words."""
    lines = [
        (
            f"{several(found.handovers, 'handover')}, of which Mirage let in {found.released}."
            f" {several(found.decisions, 'decision')}."
        ),
        *_saved(found),
    ]
    if found.measured.early_s and not found.only_observed:
        lines.append(
            f"Of the {hours(found.measured.early_s)} h too early, {hours(found.overlap_s)} h were"
            f" overlap ({hours(found.overlap_node_s)} node-hours held twice);"
            f" {hours(found.cut_short_s)} h are time limit that predecessors did not use."
        )
    if found.not_known:
        lines.append(
            f"{several(found.not_known, 'handover is', 'handovers are')} in the measured row only:"
            " the wait is not known."
        )
    lines += [*_handover_cost(found), *_services(found), *_fallbacks(found)]
    lines += [*_calibration(found), *_not_carried_out(found)]
    if found.handovers:
        lines.append(
            "Measured: from Slurm's own times. Estimated: as if each job had waited as long as it"
            " did, had it entered the queue at another time; nights, weekends and gained priority"
            " make real waits differ."
        )
    return lines


def _handover_cost(found: Impact) -> list[str]:
    if not found.training:
        return []
    each = format_duration(found.handover_cost_s / found.training)
    return [
        f"{several(found.training, 'handover')} of training chains cost"
        f" {format_duration(found.handover_cost_s)} ({each} each) for saving and starting again. Time limit"
        " that a predecessor does not use costs nothing more."
    ]


def _services(found: Impact) -> list[str]:
    known = found.services
    if known.up_time is None:
        return []
    twice = known.twice_node_s / max(known.node_s, 1)
    return [
        f"{several(known.handovers, 'handover')} of services: up for {known.up_time:.2%} of the time,"
        f" the longest gap {format_duration(known.longest_gap_s)};"
        f" {hours(known.twice_node_s)} node-hours held twice ({twice:.1%})."
    ]


def _fallbacks(found: Impact) -> list[str]:
    if not found.decisions:
        return []
    count = sum(found.fallbacks.values())
    by_guard = ", ".join(
        f"{code} {number / found.decisions:.1%}" for code, number in sorted(found.fallbacks.items())
    )
    return [
        f"Decisions by the fallback: {count / found.decisions:.1%}{by_guard and f' ({by_guard})'}."
    ]


def _not_carried_out(found: Impact) -> list[str]:
    """Decisions and lines of the log that the figures do not have."""
    lines = []
    if found.held_back:
        held = ", ".join(f"{count} {code}" for code, count in sorted(found.held_back.items()))
        lines.append(f"Jobs whose release was decided and not carried out: {held}.")
    if failed := {name: count for name, count in found.outcomes.items() if name != "released"}:
        lines.append(
            "Releases that came to nothing:"
            f" {', '.join(f'{n} {name}' for name, n in sorted(failed.items()))}."
        )
    if found.open_releases:
        lines.append(
            f"{several(found.open_releases, 'job was', 'jobs were')} let in and did not take over"
            " yet: left out."
        )
    if found.unreadable:
        lines.append(f"{several(found.unreadable, 'line')} of the audit log could not be read.")
    return lines


def _saved(found: Impact) -> list[str]:
    if not found.only_observed:
        return [
            *_against("reactive", found.reactive, found),
            *_against("the timer", found.timer, found),
        ]
    if found.handovers == found.not_known:
        return []
    saved_s = found.compared.interruption_s - found.policy.interruption_s
    paid_s = found.policy.early_s - found.compared.early_s
    verb = "saved" if saved_s >= 0 else "added"
    return [
        f"Mirage only observed. With its releases carried out it would have {verb} (estimated)"
        f" {hours(abs(saved_s))} h of interruption, for {hours(abs(paid_s))} h"
        f" {'more' if paid_s >= 0 else 'less'} too early."
    ]


def _against(name: str, other: Costs, found: Impact) -> list[str]:
    if found.handovers == found.not_known:
        return []
    saved_s = other.interruption_s - found.compared.interruption_s
    paid_s = found.compared.early_s - other.early_s
    return [
        f"Against {name} (estimated): {hours(abs(saved_s))} h of interruption"
        f" {'avoided' if saved_s >= 0 else 'more'}, {hours(abs(paid_s))} h"
        f" {'more' if paid_s >= 0 else 'less'} too early."
    ]


def _calibration(found: Impact) -> list[str]:
    known = found.calibration
    if not known.waits:
        return [
            "Calibration: no wait was predicted (the policy predicts none, or none has become"
            " known)."
        ]
    shares = (
        f"{count / known.waits:.0%}"
        for count in (known.below_p10, known.below_p50, known.below_p90)
    )
    p10, p50, p90 = shares
    few = "" if known.waits >= FEWEST else f" With fewer than {FEWEST} that tells little."
    return [
        f"Calibration: of {several(known.waits, 'real wait')} {p10} were below the predicted 10% quantile,"
        f" {p50} below the 50%, {p90} below the 90%.{few}"
    ]

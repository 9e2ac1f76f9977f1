"""An assessment in ten sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum

from mirage.assess.assessment import SiteAssessment
from mirage.assess.simulated import ASSUMED, FIXED, default_rows, main_row
from mirage.assess.waits import SizeWaits
from mirage.domain import Mode
from mirage.figures.words import MINUS, between, day, hours, percent, several
from mirage.provision.chains.evaluation import ChainPlan, ChainsEvaluation
from mirage.provision.chains.figures import ChainSummary
from mirage.provision.chains.methods import DEFAULT
from mirage.provision.chains.report import up_time
from mirage.provision.evaluation.protocol import REACTIVE
from mirage.provision.evaluation.report.words import nodes_words
from slurm_sim.seconds import DAY_S, HOUR_S, MINUTE_S

CYCLES = 144
"""Of the service in a day: one squeue and one sinfo each."""
ENOUGH_DAYS = 90
"""A history of this length shows more than one state of a queue."""
FEW_GAIN = 0.01
"""A gain or a loss of goodput below this is hardly noticed."""


FEWEST_BEGINS = 4
"""Of chains, for a verdict: weeks of one queue differ by 10 to 20 points of goodput."""


class Worth(Enum):
    """What Mirage does to the goodput of a site's chains of one size."""

    GAIN = "a gain"
    LITTLE = "little change"
    LOSS = "a loss"
    UNCLEAR = "unclear, since the simulated weeks differ"
    TOO_FEW = "too few simulated weeks"


VERDICTS = {
    Worth.GAIN: "With Mirage chains would make progress for more of the time",
    Worth.LITTLE: "Mirage would change little",
    Worth.LOSS: "Not worth it",
    Worth.UNCLEAR: "Whether Mirage is worth it can't be told, since the simulated weeks differ",
    Worth.TOO_FEW: "Too few simulated weeks for a verdict",
}
"""Where all sizes have the same."""


def headline(found: SiteAssessment) -> str:
    """Whether it is worth it, in a sentence with all sizes of chains."""
    rows = default_rows(found.chains)
    if not rows:
        why = found.why_no_chains.rstrip(".") or "no chain started in the simulated days"
        return f"Whether Mirage is worth it can't be told: {why}"
    worths = [worth(row) for row in rows]
    if Worth.TOO_FEW not in worths and not _is_certain(found):
        return (
            "Whether Mirage is worth it depends on priorities, which the history does not tell. By"
            f" {ASSUMED}: {_all_sizes(found, rows)}"
        )
    if len(set(worths)) > 1:
        cases = "; ".join(
            f"{each.value} {_size_words(found, row)}"
            for row, each in zip(rows, worths, strict=True)
        )
        return f"It depends on the size of a chain: {cases}"
    begins = f" ({several(rows[0].begins, 'begin')} of chains)"
    few = begins if worths[0] is Worth.TOO_FEW else ""
    return f"{VERDICTS[worths[0]]}{few}: {_all_sizes(found, rows)}"


def worth(row: ChainSummary) -> Worth:
    """By the interval of the gain over begins."""
    gain = row.gain
    if gain is None or gain.low is None or gain.high is None or row.begins < FEWEST_BEGINS:
        return Worth.TOO_FEW
    if gain.low >= FEW_GAIN:
        return Worth.GAIN
    if gain.high <= -FEW_GAIN:
        return Worth.LOSS
    if gain.low > -FEW_GAIN and gain.high < FEW_GAIN:
        return Worth.LITTLE
    return Worth.UNCLEAR


def _all_sizes(found: SiteAssessment, rows: Sequence[ChainSummary]) -> str:
    return "; ".join(_size_words(found, row) for row in rows)


def _size_words(found: SiteAssessment, row: ChainSummary) -> str:
    """What chains of a size do today and would do with Mirage."""
    return (
        f"on {nodes_words(row.nodes)} {_share(_today(found.chains, row))} of the time today,"
        f" {_share(row.goodput.value)} with it{_points(row)}"
    )


def _points(row: ChainSummary) -> str:
    """The interval of the gain, where there is one that counts."""
    if row.gain is None or worth(row) is Worth.TOO_FEW:
        return ""
    words = between(row.gain, lambda gain: f"{100 * gain:+.1f}".replace("-", MINUS))
    return f" ({words} points)" if words else ""


def sentences(found: SiteAssessment) -> list[str]:
    """At most ten, for a terminal and for the page."""
    return [
        *_site(found),
        *_chains_of_today(found),
        *_with_mirage(found),
        *_routing(found),
        *_trust(found),
    ]


def _site(found: SiteAssessment) -> Iterator[str]:
    facts, waits = found.facts, found.waits
    users = several(facts.users, "user")
    yield (
        f"{several(facts.jobs, 'job')}{f' of {users}' if facts.users else ''} on"
        f" {several(facts.nodes, 'node')}, {day(facts.first_s)} to {day(facts.last_s)};"
        f" {percent(facts.busy)} of the nodes are busy."
    )
    if waits.all_jobs.mean_s < MINUTE_S:
        yield "A job waits less than a minute on average."
        return
    for_nodes = (  # short waits have no cause
        ""
        if waits.contention is None
        else f"; {percent(waits.contention)} of the hours waited are for nodes"
    )
    longest = max(waits.by_size, key=lambda row: row.mean_s)
    yield (
        f"A job waits {hours(waits.all_jobs.mean_s / HOUR_S)} on average, one in ten longer than"
        f" {hours(waits.all_jobs.p90_s / HOUR_S)}{for_nodes}. Jobs on {_nodes(longest.name)} wait longest:"
        f" {hours(longest.mean_s / HOUR_S)} on average."
    )


def _chains_of_today(found: SiteAssessment) -> Iterator[str]:
    habits = found.habits
    if not habits.chains:
        yield "The history shows no chains of three jobs or more."
        return
    ways = ", ".join(f"{habit.chains} by {habit.way}" for habit in habits.by_way if habit.chains)
    yield (
        f"Users chain jobs already: {several(habits.chains, 'chain')} ({ways}), interrupted for"
        f" {hours(habits.interrupted_h)} of {hours(habits.wall_h)}."
    )


def _with_mirage(found: SiteAssessment) -> Iterator[str]:
    if found.chains is None:
        yield f"Chains with Mirage were not simulated: {found.why_no_chains.rstrip('.')}."
        return
    for row in found.chains.figures.summary:
        if row.method != DEFAULT or row.mode != Mode.TRAIN.value:
            continue
        before = found.chains.figures.row(row.nodes, row.mode, REACTIVE)
        if not (row.work_node_h and before.work_node_h):
            yield (
                f"Simulated on {nodes_words(row.nodes)}: the queue is so long that no chain started"
                f" within {_lasts(found)}."
            )
            continue
        fixed = found.chains.figures.row(row.nodes, row.mode, FIXED)
        yield (
            f"Simulated on {nodes_words(row.nodes)}: progress {_share(before.goodput.value)} of"
            f" the time as today, {_share(fixed.goodput.value)} with a fixed 3-h lead,"
            f" {_share(row.goodput.value)} with Mirage{_points(row)}, which hands over every"
            f" {hours(row.link_h.value)}."
        )
    yield from _services(found.chains)
    yield from map(_beside, found.size_waits)
    yield (
        f"It would cost slurmctld {2 * CYCLES} calls a day (squeue, sinfo) and, for each handover,"
        " one scontrol and one sbatch."
    )


def _services(chains: ChainsEvaluation) -> Iterator[str]:
    """Their up-time, all sizes in a sentence."""
    sizes = []
    for row in default_rows(chains, Mode.SERVICE):
        today, fixed = (
            up_time(chains.figures.row(row.nodes, row.mode, name).goodput.value)
            for name in (REACTIVE, FIXED)
        )
        sizes.append(
            f"on {nodes_words(row.nodes)} {today} of the time as today, {fixed} with a fixed 3-h"
            f" lead, {up_time(row.goodput.value)} with Mirage, which holds"
            f" {100 * row.held_twice.value:.1f} % of its node-hours twice"
        )
    if sizes:
        yield f"A service would be up {'; '.join(sizes)}."


def _beside(row: SizeWaits) -> str:
    """A simulated wait beside those of the history."""
    said = f"On {nodes_words(row.nodes)} a simulated successor waits {hours(row.simulated_h)} today"
    if row.judged_h is None or row.history_h is None:
        return f"{said}; no recorded job of this size was submitted in these days."
    spell = f": these days are {row.spell} than the rest" if row.spell else ""
    return (
        f"{said}; {several(row.judged_jobs, 'recorded job')} of this size waited"
        f" {hours(row.judged_h)} in these days, {hours(row.history_h)} in all that was read{spell}."
    )


def _lasts(found: SiteAssessment) -> str:
    return several(round(found.chain_plan.lasts_s / DAY_S), "day") if found.chain_plan else ""


def _routing(found: SiteAssessment) -> Iterator[str]:
    routing = found.routing
    if routing is None:
        yield f"Routing between partitions: {found.why_no_routing.rstrip('.')}."
        return
    yield (
        f"Routing by -p A,B: {several(routing.jobs, 'GPU job')} would wait"
        f" {hours(routing.routed_h)} on average, {hours(routing.recorded_h)} in the partitions that"
        " their users chose."
    )


def _trust(found: SiteAssessment) -> Iterator[str]:
    if not found.facts.scheduler_is_known:
        yield _priorities(found)
    if found.chains and found.chain_plan and not found.chains.is_whole:
        yield (
            f"The time was up after {found.chains.begins} of {found.chain_plan.begins} begins of"
            f" chains{_untried(found.chains, found.chain_plan)}: a second call continues."
        )
    facts, days = found.facts, found.facts.days
    if facts.is_cut and found.chains:
        last = several(round((facts.last_s - facts.recent_s) / DAY_S), "day")
        yield (
            f"Training and simulation read the last {last}, {several(facts.recent_jobs, 'job')};"
            " all else is of the whole history."
        )
    if days < ENOUGH_DAYS:
        yield (
            f"The history has {several(round(days), 'day') if days >= 1 else 'less than a day'}:"
            " other months may differ;"
            f" {ENOUGH_DAYS} or more tell more."
        )
    if found.facts.users == 1 and "one user" not in found.facts.why_unfit:
        yield "All jobs are of one user: sacct shows others' jobs only to operators."
    if found.model is None and found.why_no_model != found.why_no_chains:
        yield f"No model was trained: {found.why_no_model.rstrip('.')}."


def _untried(chains: ChainsEvaluation, plan: ChainPlan) -> str:
    """The sizes for which there was no time."""
    left = [nodes_words(nodes) for nodes in plan.nodes if nodes not in chains.nodes]
    return f", with none on {', none on '.join(left)}" if left else ""


def _gains(found: SiteAssessment) -> dict[str, tuple[float, float]]:
    """Goodput today and with Mirage, by the priorities that the site may have."""
    every = {ASSUMED: found.chains, **found.by_priorities}
    rows = {name: main_row(chains) for name, chains in every.items()}
    return {
        name: (_today(every[name], row), row.goodput.value)
        for name, row in rows.items()
        if row is not None
    }


def _today(chains: ChainsEvaluation | None, row: ChainSummary) -> float:
    """Goodput by Slurm's dependency alone, of the chains of a row."""
    assert chains is not None
    return chains.figures.row(row.nodes, row.mode, REACTIVE).goodput.value


def _is_certain(found: SiteAssessment) -> bool:
    """Whether the main size gains or loses alike under all priorities that the site may have."""
    rows = [main_row(chains) for chains in (found.chains, *found.by_priorities.values())]
    gains = [row.gain.value for row in rows if row is not None and row.gain is not None]
    return len({0 if abs(gain) < FEW_GAIN else gain > 0 or -1 for gain in gains}) <= 1


def _priorities(found: SiteAssessment) -> str:
    unknown = "The history does not tell which priorities the site has"
    if not found.by_priorities:
        return f"{unknown}; they decide how long a successor waits. Give --slurm-conf."
    cases = [
        f"by {name} {_share(before)} today and {_share(after)} with Mirage"
        for name, (before, after) in _gains(found).items()
    ]
    same = "the verdict is the same" if _is_certain(found) else "the verdict depends on it"
    return f"{unknown}: {', '.join(cases)}; {same}. Give --slurm-conf."


def _nodes(name: str) -> str:
    return "1 node" if name == "1" else f"{name} nodes"


def _share(value: float) -> str:
    return f"{100 * value:.1f} %"


def judged_days(found: SiteAssessment) -> float:
    """Days of the history in which simulated chains ran."""
    plan = found.chain_plan
    if plan is None or found.chains is None:
        return 0.0
    begins_s = found.chains.begins_s
    return (begins_s[-1] + plan.lasts_s - begins_s[0]) / DAY_S

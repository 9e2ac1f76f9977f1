"""Numbers and sentences for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mirage.figures.resample import FEWEST_BLOCKS
from mirage.figures.words import day, hours, listed, percent, several
from mirage.provision.evaluation.comparison import Comparison
from mirage.provision.evaluation.metrics import ALL, MethodSummary, Situation
from mirage.provision.evaluation.protocol import REACTIVE
from mirage.provision.learn.episode import Load
from slurm_sim.seconds import HOUR_S

FEW = 8
"""Blocks: with fewer an interval is a rough one."""
LOAD_WORDS = {
    Load.HEAVY.value: "heavy load",
    Load.MEDIUM.value: "medium load",
    Load.LIGHT.value: "light load",
    ALL: "all loads",
}
DROPPED = {
    "predecessor_waits": "the predecessor never started",
    "successor_waits": "the successor never started",
    "history_ends": "the job history ends before",
    "no_decision": "the predecessor ended before the first decision",
}
LOAD_RULES = {
    Load.HEAVY.value: "reactive waits over 12 h",
    Load.MEDIUM.value: "reactive waits 2 to 12 h",
    Load.LIGHT.value: "reactive waits under 2 h",
    ALL: "all episodes",
}


def nodes_words(nodes: int) -> str:
    return "1 node" if nodes == 1 else f"{nodes} nodes"


def penalties_words(penalties: str) -> str:
    interruption, _, overlap = penalties.partition(":")
    if interruption == overlap:
        return "interruption and overlap weigh the same (1:1)"
    if 0 in (float(interruption), float(overlap)):
        return f"only {'overlap' if float(overlap) else 'interruption'} counts ({penalties})"
    factor = float(interruption) / float(overlap)
    if factor > 1:
        return f"an hour of interruption weighs as much as {factor:g} of overlap ({penalties})"
    return f"an hour of overlap weighs as much as {1 / factor:g} of interruption ({penalties})"


def headline(comparison: Comparison) -> str:
    """What came out, in a sentence."""
    found = headline_row(comparison)
    if found is None or found.method == REACTIVE:
        return "Nothing but the bounds was compared"
    where = LOAD_WORDS[found.load]
    if len(comparison.setup.nodes) > 1:
        where += f" on {nodes_words(found.nodes)}"
    reactive = comparison.row(found.nodes, found.load, comparison.setup.penalties[0], REACTIVE)
    before, after = (
        "0" if row is None else hours(row.interruption_h.value) for row in (reactive, found)
    )
    if before == "0" or found.reduction is None:
        return f"Under {where} nothing waited, and {found.method} made {_overlap(found)} on average"
    if found.reduction.value <= 0:
        return (
            f"Under {where}, {found.method} did not cut the mean interruption: {before} without it,"
            f" {after} with it"
        )
    return (
        f"Under {where}, {found.method} cut the mean interruption from {before} to {after}, with"
        f" {_overlap(found)}"
    )


def _overlap(row: MethodSummary) -> str:
    overlap = hours(row.overlap_h.value)
    return "hardly any overlap" if overlap == "0" else f"{overlap} of overlap"


def headline_row(comparison: Comparison) -> MethodSummary | None:
    """The headline method, for the first size that met the heaviest load of all, and the first
    penalties.
    """
    busiest = {group.nodes: comparison.busiest(group.nodes) for group in comparison.groups}
    for load in Load:
        for nodes, its in busiest.items():
            if its == load.value:
                return comparison.row(
                    nodes, its, comparison.setup.penalties[0], comparison.headline
                )
    return None


def subtitle(comparison: Comparison, trace: str) -> str:
    setup = comparison.setup
    last_s = max((int(group.begin_s[-1]) for group in comparison.groups), default=setup.start_s)
    count = sum(len(group.trials) for group in comparison.groups)
    sizes = (
        listed([nodes_words(group.nodes) for group in comparison.groups])
        if comparison.groups
        else "no size"
    )
    return (
        f"{several(count, 'pair')} of jobs of {setup.limit_s / HOUR_S:g} h on {sizes}, begun every"
        f" {setup.every_s / HOUR_S:g} h from {day(setup.start_s)} to {day(last_s)}, in the"
        f" simulated queue of {trace}."
    )


def caveats(comparison: Comparison) -> Iterator[str]:
    """Limits of the data, from the data."""
    yield from _few(comparison.situations)
    yield from _trained_on_these(comparison)
    yield from _strangers(comparison)
    yield from left_out(comparison.dropped)
    yield (
        "The outcomes are the simulator's. Other users submit what they submitted in the log,"
        " whatever the queue looks like; nobody reacts to longer waits, and failures happen as the"
        " cluster file says."
    )
    yield _runtimes(comparison)
    yield (
        "The load class is known only afterwards, by how long a reactive successor would have"
        " waited. No method can choose by it, and a user can't either."
    )
    yield (
        "Decisions fall every 10 minutes, so even the best possible choice is up to a few minutes"
        " off; below that, differences mean nothing."
    )
    yield (
        "Many methods were tried on the same episodes: the best of them looks a little better than"
        " it is. The method in the headline is the first one that was asked for, not the one that"
        " did best."
    )


def _few(situations: Sequence[Situation]) -> Iterator[str]:
    for row in situations:
        if row.load == Load.HEAVY.value and row.spells is not None:
            yield (
                f"{nodes_words(row.nodes).capitalize()}: the {several(row.episodes, 'episode')} of"
                f" heavy load are {several(row.spells, 'separate spell')} of a long queue, in"
                f" {several(row.blocks, 'block')} of the bootstrap."
                + (" That is few: another month may look different." if row.spells < FEW else "")
            )
        if row.load == ALL and row.effective is not None:
            yield (
                f"{nodes_words(row.nodes).capitalize()}: the {several(row.episodes, 'episode')}"
                " overlap each other. By the autocorrelation of the reactive wait they count as"
                f" much as {row.effective:.0f} independent ones."
            )
    thin = [
        f"{LOAD_WORDS[row.load]} on {nodes_words(row.nodes)}"
        for row in situations
        if row.blocks < FEWEST_BLOCKS
    ]
    if thin:
        yield (
            f"No interval is given for {listed(thin)}: all episodes lie in fewer than"
            f" {FEWEST_BLOCKS} blocks."
        )


def _trained_on_these(comparison: Comparison) -> Iterator[str]:
    names = [method.name for method in comparison.methods if method.saw_these]
    if names:
        yield (
            f"Trained on a part of the very time that is shown here: {listed(names)}. These figures"
            " are too good; choose a later --start."
        )


def _strangers(comparison: Comparison) -> Iterator[str]:
    names = [
        f"{method.name} (for {method.foreign})" for method in comparison.methods if method.foreign
    ]
    if names:
        yield (
            f"Trained for another cluster: {listed(names)}. "
            "The service refuses a model of another pool, or of many more or fewer nodes."
        )


def left_out(dropped: Mapping[int, Mapping[str, int]]) -> Iterator[str]:
    """How many pairs have no outcome, and why: a sentence or two a size."""
    for nodes, reasons in dropped.items():
        if count := sum(reasons.values()):
            why = listed(
                [
                    f"{DROPPED.get(reason, reason)}: {number}"
                    for reason, number in sorted(reasons.items())
                ]
            )
            yield (
                f"{nodes_words(nodes).capitalize()}: {several(count, 'pair')} of jobs"
                f" {'is' if count == 1 else 'are'} left out for want of an outcome ({why}). Long"
                " waits are the first to go missing that way."
            )


def _runtimes(comparison: Comparison) -> str:
    episodes = [trial.episode for group in comparison.groups for trial in group.trials]
    full = sum(
        each.predecessor_end_s - each.predecessor_start_s >= each.pair.predecessor.time_limit_s
        for each in episodes
    )
    if full == len(episodes):
        return (
            "Every predecessor runs until its time limit, so its end is known from its start. "
            "Jobs that end early, at a time that nobody knows, are harder."
        )
    return (
        f"{percent(full / max(len(episodes), 1))} of the predecessors run until their time limit;"
        " the others end early."
    )

"""`sbatch --dependency`: what it means and when it is fulfilled (`sbatch(1)`; tried on 22.05.8)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from slurm_sim.errors import InvalidJob
from slurm_sim.ranges import LAST_S
from slurm_sim.seconds import MINUTE_S

_TERM = re.compile(r"(\w+)((?::\d+(?:\+\d+)?)+)", re.ASCII)
MOST_DIGITS, MOST_MINUTES = 15, LAST_S // MINUTE_S


class DependencyState(Enum):
    """How a condition on other jobs stands; the value is the reason that squeue shows."""

    WAITING = "Dependency"
    NEVER = "DependencyNeverSatisfied"
    MET = ""


def _state(met: bool, over: bool) -> DependencyState:
    if met:
        return DependencyState.MET
    return DependencyState.NEVER if over else DependencyState.WAITING


# Of the other job: whether it has started, is over, was successful. TIMEOUT is no success; a
# requeued job is not over.
_RULES: Mapping[str, Callable[[bool, bool, bool], DependencyState]] = {
    "after": lambda started, over, _ok: _state(started or over, False),
    "afterany": lambda _started, over, _ok: _state(over, False),
    "afterok": lambda _started, over, ok: _state(over and ok, over),
    "afternotok": lambda _started, over, ok: _state(over and not ok, over),
}


@dataclass(frozen=True, slots=True)
class Dependency:
    """One condition on one other job."""

    kind: str
    job_id: int
    """A job, or an array: then all of its tasks count."""
    delay_s: int = 0
    """Of ``after:ID+minutes``: this long after the start."""
    failed: bool = False

    def state(self, *, started: bool, over: bool, ok: bool) -> DependencyState:
        """`started`: at least `delay_s` ago."""
        return _RULES[self.kind](started, over, ok)

    def __str__(self) -> str:
        delay = f"+{self.delay_s // MINUTE_S}" if self.delay_s else ""
        return f"{self.kind}:{self.job_id}{delay}({'failed' if self.failed else 'unfulfilled'})"


@dataclass(frozen=True, slots=True)
class Dependencies:
    """The open conditions of a job, of which all (``,``) or any (``?``) must be met."""

    items: tuple[Dependency, ...] = ()
    any_of: bool = False

    def known(self, is_known: Callable[[int], bool]) -> Dependencies:
        """What is left at submission: one on a job that Slurm does not know is fulfilled, silently."""
        kept = tuple(item for item in self.items if is_known(item.job_id))
        return (
            Dependencies()
            if self.any_of and len(kept) < len(self.items)
            else replace(self, items=kept)
        )

    def review(
        self, state_of: Callable[[Dependency], DependencyState]
    ) -> tuple[Dependencies, DependencyState]:
        """What is still open, and how the whole stands. What was met once stays met."""
        states = [state_of(item) for item in self.items]
        if not self.items or (self.any_of and DependencyState.MET in states):
            return Dependencies(), DependencyState.MET
        left = tuple(
            replace(item, failed=state is DependencyState.NEVER)
            for item, state in zip(self.items, states, strict=True)
            if state is not DependencyState.MET
        )
        return replace(self, items=left), _whole(left, self.any_of)

    def __bool__(self) -> bool:
        return bool(self.items)

    def __str__(self) -> str:
        return ("?" if self.any_of else ",").join(str(item) for item in self.items)


def _whole(items: tuple[Dependency, ...], any_of: bool) -> DependencyState:
    if not items:
        return DependencyState.MET
    failed = [item.failed for item in items]
    return (
        DependencyState.NEVER
        if (all(failed) if any_of else any(failed))
        else DependencyState.WAITING
    )


def parse_dependency(text: str) -> Dependencies:
    """Reads ``KIND:ID[:ID...]`` joined by ``,`` or by ``?``; KIND in any case, as in Slurm. Raises
    InvalidJob.
    """
    if not text.strip():
        return Dependencies()
    if "," in text and "?" in text:
        raise InvalidJob(f"dependency {text!r} mixes ',' (all) and '?' (any); use one of them")
    any_of = "?" in text
    terms = (_parse_term(term, text) for term in text.strip().split("?" if any_of else ","))
    return Dependencies(tuple(item for term in terms for item in term), any_of)


def _parse_term(term: str, text: str) -> list[Dependency]:
    match = _TERM.fullmatch(term)
    kind = match[1].lower() if match else ""
    if match is None or kind not in _RULES:
        kinds = ", ".join(_RULES)
        raise InvalidJob(
            f"dependency {text!r}: {term!r} is not KIND:ID[:ID...] with KIND one of {kinds}"
        )
    return [_parse_target(kind, target, text) for target in match[2][1:].split(":")]


def _parse_target(kind: str, target: str, text: str) -> Dependency:
    job_id, _, minutes = target.partition("+")
    if minutes and kind != "after":
        raise InvalidJob(f"dependency {text!r}: only 'after' takes +minutes")
    if len(minutes) > MOST_DIGITS or int(minutes or 0) > MOST_MINUTES:
        raise InvalidJob(
            f"dependency {text!r}: a delay of {minutes} minutes; give at most {MOST_MINUTES:,}"
        )
    return Dependency(kind, int(job_id), MINUTE_S * int(minutes or 0))


Tasks = Mapping[int, Iterable[int]]
"""Arrays: the ids of the tasks of each, by its own id."""


def never_met(wishes: Mapping[int, Dependencies], tasks: Tasks) -> dict[int, list[int]]:
    """Jobs that wait for each other, in a circle or for one: of each, which of the others it waits
    for.

    Arrays among them are in it under their negative id, and wait for their tasks. With ``?`` one
    way out is enough. Time and memory grow with the number of dependencies and tasks.
    """
    waits = {job_id: _nodes(wish, tasks) for job_id, wish in wishes.items() if wish}
    asked = {-node for nodes in waits.values() for node in nodes if node < 0}
    waits |= {-array: list(tasks[array]) for array in asked}
    open_of, waiters = dict[int, int](), dict[int, list[int]]()
    for node, others in waits.items():
        inside = [other for other in others if other in waits]
        any_of = node > 0 and wishes[node].any_of
        open_of[node] = len(inside) if not any_of else int(len(inside) == len(others))
        for other in inside:
            waiters.setdefault(other, []).append(node)
    free = [node for node, count in open_of.items() if not count]
    for node in free:  # grows meanwhile
        for waiter in waiters.get(node, ()):
            open_of[waiter] -= 1
            if not open_of[waiter]:
                free.append(waiter)
    return {
        node: [other for other in waits[node] if open_of.get(other, 0) > 0]
        for node, count in open_of.items()
        if count > 0
    }


def _nodes(wish: Dependencies, tasks: Tasks) -> list[int]:
    return [-item.job_id if item.job_id in tasks else item.job_id for item in wish.items]


def check_not_itself(job_id: int, text: str) -> None:
    """Raises InvalidJob for a dependency on the job itself."""
    if any(item.job_id == job_id for item in parse_dependency(text).items):
        raise InvalidJob(f"job {job_id} would wait for itself ({text}); remove this dependency")


def check_no_cycle(wishes: Mapping[int, Dependencies], tasks: Tasks) -> None:
    """Raises InvalidJob if jobs would, directly or through others, wait for themselves."""
    waits = never_met(wishes, tasks)
    path: dict[int, None] = {}
    node = next(iter(waits), 0)
    while (
        node and node not in path
    ):  # each waits for another one of them, so the walk ends in a circle
        path[node] = None
        node = waits[node][0]
    if node:
        walked = list(path)
        circle = [*walked[walked.index(node) :], node]
        names = " -> ".join(f"array {-each}" if each < 0 else str(each) for each in circle)
        raise InvalidJob(f"jobs wait for each other: {names}; remove one of these dependencies")

"""Dependencies between the jobs of a file: circles, and those on jobs that are not there."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from slurm_sim.dependency import Dependencies, Dependency, never_met, parse_dependency
from slurm_sim.jobfile.jobs import MISSING, Jobs
from slurm_sim.seconds import MINUTE_S

Wishes = Mapping[int, Dependencies]
"""What jobs wait for, by row, of those that wait for anything."""
SHOWN = 5
ABSENT, LATER = "not there", "submitted later"


def wishes_of(jobs: Jobs) -> dict[int, Dependencies]:
    """Raises InvalidJob for a dependency that can't be read."""
    texts = jobs.texts("dependency")
    return {int(row): parse_dependency(texts[row]) for row in np.flatnonzero(texts != "")}


# --- circles
# ---------------------------------------------------------------------------------------------------------


def circles(jobs: Jobs, wishes: Wishes) -> dict[int, str]:
    """Rows of jobs that wait for each other, with no way out, each with a circle among them.

    Time and memory grow with the number of jobs and dependencies, not with their product.
    """
    if not wishes:
        return {}
    ids = jobs.numbers("job_id").tolist()
    tasks: dict[int, list[int]] = {}
    for job_id, array in zip(ids, jobs.numbers("array_job_id").tolist(), strict=True):
        if array != MISSING:
            tasks.setdefault(array, []).append(job_id)
    waits = never_met({ids[row]: wish for row, wish in wishes.items()}, tasks)
    if not waits:
        return {}
    import scipy.sparse as sparse

    nodes = list(waits)
    place = {node: index for index, node in enumerate(nodes)}
    begin, end = np.array(
        [(place[node], place[other]) for node in nodes for other in waits[node]]
    ).T
    graph = sparse.csr_matrix(
        (np.ones(len(begin), bool), (begin, end)), shape=(len(nodes), len(nodes))
    )
    _, group = sparse.csgraph.connected_components(graph, connection="strong")
    inside = (group[begin] == group[end]) & (
        (np.bincount(group)[group[begin]] > 1) | (begin == end)
    )
    next_of = dict(zip(begin[inside][::-1].tolist(), end[inside][::-1].tolist(), strict=True))
    row_of = {job_id: row for row, job_id in enumerate(ids)}
    shown: dict[int, str] = {}
    found: dict[int, str] = {}
    for row in sorted(row_of[nodes[index]] for index in next_of if nodes[index] > 0):
        index = place[ids[row]]
        if group[index] not in shown:
            walked = [row_of[nodes[each]] for each in _circle(index, next_of) if nodes[each] > 0]
            shown[group[index]] = _in_words([str(jobs.labels[each]) for each in walked])
        found[row] = shown[group[index]]
    return found


def _circle(index: int, next_of: Mapping[int, int]) -> list[int]:
    """The circle that a walk ends in."""
    path: dict[int, None] = {}
    while index not in path:
        path[index] = None
        index = next_of[index]
    walked = list(path)
    return walked[walked.index(index) :]


def _in_words(members: list[str]) -> str:
    """Of a long circle its first jobs."""
    middle = (
        [*members[:SHOWN], f"... ({len(members)} jobs)"] if len(members) > 2 * SHOWN else members
    )
    return " -> ".join([*middle, members[0]])


# --- jobs that slurmctld does not know when others ask for them
# ------------------------------------------------------


def check_known(jobs: Jobs, wishes: Wishes, circular: Container[int], strict: bool) -> list[str]:
    """Notes on dependencies that are fulfilled at once, since the other job is not submitted
    before.

    Raises TraceError for the first of them if `strict`.
    """
    found = list(_unknown(jobs, wishes, circular))
    if found and strict:
        row, job_id, why = found[0]
        expected = (
            f"jobs that are submitted before: {jobs.name_of(job_id)} is {why}; {len(found)}"
            " dependencies"
        )
        expected += " are so; without --strict they are fulfilled at once, as slurmctld has it"
        raise jobs.refuse(row, "dependency", expected)
    notes = []
    for kind, what in ((ABSENT, "are not there"), (LATER, "are submitted later")):
        names = [
            f"job {jobs.labels[row]} on {jobs.name_of(job_id)}"
            for row, job_id, why in found
            if why == kind
        ]
        if names:
            shown = ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
            note = (
                f"{len(names)} dependencies are on jobs that {what} ({shown}): fulfilled at once,"
                " as slurmctld has it"
            )
            notes.append(f"{note}; --strict refuses them")
    return notes


def _unknown(
    jobs: Jobs, wishes: Wishes, circular: Container[int]
) -> Iterator[tuple[int, int, str]]:
    """Row, the id that it depends on, and what is wrong with that."""
    rank, first = ranks(jobs), dict[int, int]()
    for name in ("job_id", "array_job_id") if wishes else ():
        for job_id, at in zip(jobs.numbers(name).tolist(), rank.tolist(), strict=True):
            first[job_id] = min(at, first.get(job_id, at))
    for row, wish in wishes.items():
        for item in wish.items if row not in circular else ():
            if item.job_id not in first:
                yield row, item.job_id, ABSENT
            elif first[item.job_id] > rank[row]:
                yield row, item.job_id, LATER


def ranks(jobs: Jobs) -> NDArray[np.int64]:
    """Each job's place in the order of submission, from 0; those of one second are in the file's
    order.
    """
    rank = np.empty(len(jobs), np.int64)
    rank[np.argsort(jobs.numbers("submit_s"), kind="stable")] = np.arange(len(jobs))
    return rank


# --- other numbers
# ---------------------------------------------------------------------------------------------------


def as_typed(wish: Dependencies, new_of: Mapping[int, int], nobody: int) -> str:
    """As for `sbatch --dependency`, with new ids; `nobody`: for jobs that have none."""
    items = (replace(item, job_id=new_of.get(item.job_id, nobody)) for item in wish.items)
    return ("?" if wish.any_of else ",").join(map(_term, items))


def _term(item: Dependency) -> str:
    delay = f"+{item.delay_s // MINUTE_S}" if item.delay_s else ""
    return f"{item.kind}:{item.job_id}{delay}"

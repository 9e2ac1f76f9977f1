"""What a link's job did, run by run. The one place that says which runs of a requeued job count. Pure.

Slurm takes a requeue for a new submission: `squeue` and `scontrol` then show the new run alone, and
`sacct -D` has a record for each. A job that finds a later link in its place leaves at once
(`job.sh`), so such a run is none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from mirage.chain.tag import ChainTag, parse_tag
from mirage.domain import Job, JobState, Link, Run


def each_run(links: Iterable[Link]) -> list[Link]:
    """Every run of these links, as a link of its own: by segment, each link's in their order."""
    in_order = sorted(links, key=lambda link: (link.segment, link.job_id))
    return [run for link in in_order for run in link.each_run]


def down_s(link: Link) -> int:
    """For how long the link did not serve within its runs (`Link.down_s`)."""
    return sum(run.down_s for run in link.each_run)


def is_requeued(link: Link, job: Job) -> bool:
    """Whether Slurm has taken the link's job back into its queue since the link was seen."""
    # A link that is known from its folder alone has no submission of its own, but a start.
    return job.submit_s > max(link.submit_s, link.start_s or 0)


def start_of(job: Job, before: Link | None) -> int | None:
    """When the job's present run started. ``before``: the link as it was known.

    While a requeued job leaves its nodes (COMPLETING), squeue shows the time of the requeue there.
    """
    known_s = before.start_s if before else None
    is_leaving = job.state is JobState.COMPLETING
    return (
        known_s if is_leaving and known_s is not None and known_s >= job.submit_s else job.start_s
    )


def was_held(job: Job, before: Link | None) -> bool:
    """`Link.was_held`. ``before``: the link as it was known."""
    return job.is_held or bool(before and before.was_held)


def ready_of(
    tag: ChainTag | None, start_s: int | None, before: Link | None
) -> tuple[int | None, int]:
    """`Link.ready_s` and `Link.down_s` of the run that started then. ``tag``: of the job's comment, which may be of an
    earlier run, or from before the run was ready. ``before``: the link as it was known.
    """
    if start_s is None:
        return None, 0
    said_s = tag.ready_s if tag else None
    if tag and said_s is not None and said_s >= start_s:
        return said_s, tag.down_s
    runs = before.each_run if before else ()
    known = next(((run.ready_s, run.down_s) for run in runs if run.start_s == start_s), (None, 0))
    return (0, 0) if known[0] is None and said_s is not None else known


def by_job(records: Iterable[Job]) -> Mapping[int, Sequence[Job]]:
    """Job id -> its records, oldest first: a requeued job has several."""
    found: dict[int, list[Job]] = defaultdict(list)
    for record in sorted(records, key=lambda record: (record.job_id, record.submit_s)):
        found[record.job_id].append(record)
    return found


def link_after(link: Link, job: Job) -> Link:
    """The link with what Slurm says of its job's present run."""
    start_s = start_of(job, link)
    ready_s, down_s = ready_of(parse_tag(job.comment), start_s, link)
    return replace(
        link,
        state=job.state,
        nodes=job.nodes,
        submit_s=job.submit_s,
        eligible_s=job.eligible_s,
        start_s=start_s,
        end_s=job.end_s,
        ready_s=ready_s,
        down_s=down_s,
        exit_code=job.exit_code,
        reason=job.reason if job.is_pending else "",
        dependency=job.dependency if job.is_pending else "",
        begin_s=job.begin_s,
        was_held=was_held(job, link),
    )


def link_of_runs(link: Link, records: Sequence[Job], chain: Iterable[Link]) -> Link:
    """The link with all that is known of its job.

    ``link``: as it was known. ``records``: what Slurm says of the job, a run each, oldest first; the
    last is the present one. ``chain``: all links of its chain, as far as they are known.
    """
    told = [replace(link_after(link, record), runs=()) for record in records]
    return with_past(link, told, chain)


def with_past(before: Link, told: Sequence[Link], chain: Iterable[Link]) -> Link:
    """The link as ``told`` by Slurm, a run each, with the runs that it had ``before`` these. Else
    as `link_of_runs`.
    """
    known = [run for run in before.each_run if not any(_is_of(run, each) for each in told)]
    started = [run for run in [*known, *told[:-1]] if run.start_s is not None]
    later = each_run(other for other in chain if other.segment > before.segment)
    runs: list[Link] = []
    for run in [*sorted(started, key=lambda run: run.start_s or 0), told[-1]]:
        if runs:
            runs[-1] = _requeued(runs[-1], run.submit_s)
        if not (runs and _is_passed(runs[-1], run, later)):
            runs.append(run)
    last = runs.pop()
    earlier = tuple(Run._make(getattr(run, name) for name in Run._fields) for run in runs)
    return replace(last, released_s=before.released_s, runs=earlier)


def _is_of(known: Link, told: Link) -> bool:
    """Whether Slurm tells of this very run. Of one that is known from its folder the submission is
    not.
    """
    start_s = known.start_s
    return start_s is None or told.submit_s <= start_s <= (told.end_s or start_s)


def _requeued(run: Link, again_s: int) -> Link:
    """A run that another one followed. Slurm submits a job again as its run ends, so ``again_s``
    stands in for an end that is not recorded yet.
    """
    if run.end_s is not None and not run.state.has_nodes:
        return run
    state = JobState.REQUEUED if run.state.has_nodes else run.state
    return replace(run, state=state, end_s=again_s if run.end_s is None else run.end_s)


def _is_passed(before: Link, run: Link, later: Sequence[Link]) -> bool:
    """Whether a later link had taken over when this run began, or has by now if it has not begun.

    That link had started by then, and it outlived the run ``before``, since no link takes over from
    one that runs.
    """
    return any(
        other.start_s is not None
        and (run.start_s is None or other.start_s <= run.start_s)
        and (other.end_s is None or before.end_s is None or other.end_s > before.end_s)
        for other in later
    )

"""Recent waits of jobs that started: what the heuristic and the quantile policies learn from."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence

from mirage.domain import Job, JobState, Snapshot, WaitSample
from mirage.reasons import BEFORE_ELIGIBLE, COMPETING, kind_of


class WaitBook:
    """The waits (Start - Eligible) of jobs that started, by pool, each start once; a requeued job
    starts again.

    Links of chains count like any job: from its release on, a successor competes as the others do.
    A job that was seen kept back by a limit while eligible does not count: part of its wait was not
    for nodes.
    """

    def __init__(self, keep_s: int = 7 * 86_400, most: int = 20_000) -> None:
        """Keeps the starts of the last ``keep_s`` seconds, and of these the ``most`` newest of each
        pool.
        """
        self._keep_s = keep_s
        self._most = most
        self._samples: dict[str, list[WaitSample]] = defaultdict(list)
        self._keys: set[tuple[int, int]] = set()
        self._limited: dict[int, int] = {}
        """Job id -> when a limit was last seen to keep it back."""

    def observe(self, snapshot: Snapshot) -> None:
        """Takes in the jobs that are seen running for the first time. Jobs shorter than a cycle are
        missed.
        """
        since_s = snapshot.at_s - self._keep_s
        self._limited = {
            job_id: seen_s for job_id, seen_s in self._limited.items() if seen_s >= since_s
        }
        self._limited |= {
            job.job_id: snapshot.at_s for job in snapshot.jobs if _is_limited(job, snapshot.at_s)
        }
        self.add(snapshot.jobs, snapshot)

    def add(self, records: Iterable[Job], snapshot: Snapshot) -> None:
        """Takes in accounting records; ``snapshot`` tells the pools and the present time."""
        since_s = snapshot.at_s - self._keep_s
        fresh: dict[str, list[WaitSample]] = defaultdict(list)
        for job in records:
            if (
                job.start_s is not None
                and job.start_s >= since_s
                and (job.job_id, job.start_s) not in self._keys
                and (sample := self._sample(job, job.start_s)) is not None
            ):
                fresh[snapshot.pool_of(job.partition)].append(sample)
        for pool, added in fresh.items():
            _merge(self._samples[pool], added)
        for samples in self._samples.values():
            self._trim(samples, since_s)

    def recent(self, pool: str, since_s: int) -> Sequence[WaitSample]:
        """The samples of jobs that started at or after ``since_s`` in the pool, oldest start first."""
        samples = self._samples.get(pool, [])
        return samples[bisect_left(samples, since_s, key=_start_s) :]

    def _sample(self, job: Job, start_s: int) -> WaitSample | None:
        """None: its wait does not count."""
        wait_s = job.wait_s
        if wait_s is None or job.job_id in self._limited or not _ran(job):
            return None
        self._keys.add((job.job_id, start_s))
        return WaitSample(
            job_id=job.job_id,
            partition=job.partition,
            nodes=job.nodes,
            time_limit_s=job.time_limit_s,
            start_s=start_s,
            wait_s=wait_s,
        )

    def _trim(self, samples: list[WaitSample], since_s: int) -> None:
        surplus = max(bisect_left(samples, since_s, key=_start_s), len(samples) - self._most)
        self._keys.difference_update(
            (sample.job_id, sample.start_s) for sample in samples[:surplus]
        )
        del samples[:surplus]


def _merge(samples: list[WaitSample], added: list[WaitSample]) -> None:
    """Both stay in the order of their starts. Sorting a week of jobs in each cycle would be slow,
    and what is added mostly started last: only what started since its first one is sorted again.
    """
    added.sort(key=_start_s)
    place = bisect_left(samples, added[0].start_s, key=_start_s)
    samples[place:] = sorted([*samples[place:], *added], key=_start_s)


def _start_s(sample: WaitSample) -> int:
    return sample.start_s


def _ran(job: Job) -> bool:
    """False for a job cancelled while pending: some records give the time of its end as its start."""
    return not (job.state is JobState.CANCELLED and job.start_s == job.end_s)


def _is_limited(job: Job, at_s: int) -> bool:
    """Whether a rule keeps an eligible job back. One that still shows what kept it from that was
    let go just now.
    """
    is_eligible = job.eligible_s is not None and job.eligible_s <= at_s
    return is_eligible and job.is_pending and kind_of(job.reason) not in COMPETING | BEFORE_ELIGIBLE

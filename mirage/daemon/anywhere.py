"""Before a link that may go anywhere is released: out of the partitions in which it would finish
later than in one that starts it in time (`mirage-submit --anywhere`).

Only partitions that the job waits in already are kept, so an operator's service gives no user a
partition that Slurm has not let the user in. Where anything fails the job stays in all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from mirage.chain.tag import anywhere_in, parse_tag
from mirage.daemon.observers import Observer
from mirage.domain import Job, Snapshot
from mirage.errors import MirageError
from mirage.provision.starts.finish import FinishForecast, Speeds, worthwhile
from mirage.provision.starts.forecaster import QueueView, forecast_job
from mirage.slurm.resources import NodeUse
from slurm_sim.seconds import DAY_S

if TYPE_CHECKING:  # numpy takes its time to import
    from mirage.provision.starts.walk import NightlyWaits

log = logging.getLogger(__name__)

RECORDS_S = DAY_S
"""So much accounting is asked for, before a release."""


@dataclass(kw_only=True)
class Anywhere(Observer):
    """Of one service."""

    speeds: Speeds
    nodes: Callable[[], Sequence[NodeUse]]
    accounting: Callable[[int, int], Sequence[Job]]
    set_partition: Callable[[int, str], None]
    learned: Callable[[], NightlyWaits | None] = lambda: None
    """What the nights learnt of this site's waits; None: nothing yet, like jobs count."""
    _seen: Snapshot | None = field(default=None, init=False)

    def queue_read(self, snapshot: Snapshot) -> None:
        self._seen = snapshot

    def release_begins(self, job: Job) -> None:
        named, present = anywhere_in(job.comment), job.partition.split(",")
        if self._seen is None or len(present) < 2 or not set(present) <= set(named):
            return
        try:
            kept = self._kept(job, present, self._seen)
            if len(kept) < len(present):
                self.set_partition(job.job_id, ",".join(kept))
                log.info("job %d: finishes first in %s", job.job_id, ",".join(kept))
        except MirageError as error:
            log.warning("job %d stays in all of its partitions: %s", job.job_id, error)

    def _kept(self, job: Job, names: Sequence[str], seen: Snapshot) -> list[str]:
        """All, where a wait is not known."""
        ask = partial(self.accounting, seen.at_s - RECORDS_S, seen.at_s)
        view = QueueView(snapshot=seen, user=job.user, ask_records=ask, learned=self.learned())
        nodes = self.nodes()
        speeds = {
            name: self.speeds.of(name, {n.gpu_type for n in nodes if name in n.partitions})
            for name in names
        }
        found = []
        for name in names:
            forecast = forecast_job(replace(job, partition=name, planned_s=None), view)
            if forecast is None or job.time_limit_s is None:
                return list(names)
            left_s = _left_s(job, seen)
            low_s, middle_s, high_s = (max(wait_s - left_s, 0.0) for wait_s in forecast.wait_s)
            run_s = job.time_limit_s * max(speeds.values()) / speeds[name]
            found.append(
                FinishForecast(partition=name, wait_s=(low_s, middle_s, high_s), run_s=run_s)
            )
        return [each.partition for each in worthwhile(found)]


def _left_s(job: Job, seen: Snapshot) -> int:
    """How long its predecessor may still run."""
    tag = parse_tag(job.comment)
    ends = (
        each.limit_end_s or 0 for each in seen.jobs if tag and each.job_id == tag.predecessor_id
    )
    return max(max(ends, default=0) - seen.at_s, 0)

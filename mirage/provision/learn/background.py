"""The queue in which an episode happens: a simulation of one cluster that begins somewhere in its
job history.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from mirage.errors import InputError
from mirage.provision.learn.episode import PairSpec
from mirage.provision.learn.joblog import JobLog
from mirage.provision.learn.logstate import Tally, state_at
from mirage.provision.learn.times import iso
from slurm_sim import Simulator
from slurm_sim.admission import Admission
from slurm_sim.config import Association, ClusterConfig, NodeAction
from slurm_sim.errors import InvalidJob
from slurm_sim.jobfile.jobs import MISSING
from slurm_sim.jobs import JobSpec
from slurm_sim.seconds import DAY_S
from slurm_sim.traces import Trace


class WarmUp(str, Enum):
    """In which state a simulation begins, and how long before the episode."""

    TRACE = "trace"
    """A day before, with what the log shows at that instant: running jobs with their true ends,
    queued ones with their ages. A day, so that all rows of an episode's history are the simulator's
    own.
    """
    PAPER = "paper"
    """Two days before, with an empty cluster and an empty queue (paper, section 4.9.1)."""

    @property
    def lead_s(self) -> int:
        return DAY_S if self is WarmUp.TRACE else 2 * DAY_S


People = frozenset[tuple[str, str]]
"""Account and user."""


def people_of(log: JobLog) -> People:
    """Everyone who submits in it."""
    return frozenset(
        zip(log.columns["account"].tolist(), log.columns["user"].tolist(), strict=True)
    )


def with_people(cluster: ClusterConfig, people: People) -> ClusterConfig:
    """The cluster where these, too, have one share each."""
    listed = {(item.account, item.user) for item in cluster.associations}
    new = (Association(*person) for person in sorted(people - listed))
    return replace(cluster, associations=(*cluster.associations, *new))


class SimulationStart(NamedTuple):
    """A simulation at its first instant."""

    simulation: Simulator
    tally: Tally


@dataclass(frozen=True)
class Background:
    """A cluster and its job history. Nothing in it changes: each simulation is a new one."""

    cluster: ClusterConfig
    log: JobLog
    trace: Trace | None = None
    """What the history was read from, for who fits a model of the workload to it."""

    def until(self, end_s: int) -> Background:
        """With the jobs submitted until then only: what a training range may know."""
        return replace(self, log=self.log.between(self.log.first_s, end_s), trace=None)

    def warm(self, begin_s: int, warm_up: WarmUp, until_s: int) -> Simulator:
        """A simulation at `begin_s`, warmed up, that knows all submissions until `until_s`. Raises
        InputError.
        """
        at_s = begin_s - warm_up.lead_s
        simulation = self.start_at(at_s, warm_up, self.log.between(at_s, until_s)).simulation
        simulation.run_until(begin_s)
        return simulation

    def start_at(
        self, at_s: int, warm_up: WarmUp, arrivals: JobLog, people: People = frozenset()
    ) -> SimulationStart:
        """A simulation at `at_s`, where its warm-up begins; `arrivals`: submissions from then on.

        Everyone in the log, and these `people`, has a share from the beginning, as on a real site:
        how much of the future is loaded must not change fair-share.

        Only the jobs that it needs are looked at: milliseconds, however long the history is. Raises
        InputError if the history does not reach so far back, or has no start times and so no state
        to begin with.
        """
        if at_s < self.log.first_s - DAY_S:
            raise InputError(
                f"{self.log.source}: the first submission is at {iso(self.log.first_s)}; a"
                f" simulation can't warm up from {iso(at_s)} on. Begin episodes later."
            )
        if warm_up is WarmUp.PAPER:
            return SimulationStart(
                Simulator(self._with(people), arrivals.submissions(), at_s), Tally()
            )
        if not self._has_starts:
            raise InputError(
                f"{self.log.source}: no job has a start; give `--warm-up paper`, or the starts."
            )
        down = self._down(at_s)
        state = state_at(self.log, self.cluster, at_s, down)
        jobs = arrivals.between(at_s + 1, arrivals.last_s).submissions() if len(arrivals) else ()
        simulation = Simulator.from_state(
            self._with(people), at_s, state.running, state.pending, down, jobs=jobs
        )
        return SimulationStart(simulation, state.tally)

    def check(self, pair: PairSpec, partition: str | None = None) -> None:
        """Raises InputError if the cluster could never run the pair."""
        checker = Admission(self.cluster)
        for link in pair:
            try:
                checker.check(
                    JobSpec(link.nodes, link.time_limit_s, partition=partition, exclusive=True)
                )
            except InvalidJob as error:
                raise InputError(
                    f"cluster {self.cluster.name!r} could never run a pair of {link.nodes} nodes"
                    f" for {link.time_limit_s / 3600:g} h: {error}."
                ) from error

    def cluster_checksum(self) -> str:
        """SHA-256 of the cluster's description: equal clusters have equal ones."""
        return hashlib.sha256(repr(self.cluster).encode()).hexdigest()

    def _with(self, people: People) -> ClusterConfig:
        """The cluster with associations for all of them."""
        if not self.cluster.params.priority_weight_fairshare:
            return self.cluster
        if people <= self._people:
            return self._cluster
        return with_people(self.cluster, people | self._people)

    @cached_property
    def _people(self) -> People:
        return people_of(self.log)

    @cached_property
    def _cluster(self) -> ClusterConfig:
        return with_people(self.cluster, self._people)

    @property
    def _has_starts(self) -> bool:
        return bool((self.log.column("start_s") != MISSING).any())

    def _down(self, at_s: int) -> list[str]:
        """Nodes that the cluster's own timetable has taken out by then."""
        past = sorted(
            (change for change in self.cluster.node_changes if change.time_s <= at_s),
            key=lambda it: it.time_s,
        )
        last = {change.node: change.action for change in past}
        return [node for node, action in last.items() if action is not NodeAction.RESUME]

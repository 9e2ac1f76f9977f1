"""One chain, or several, on the replayed job history of a site."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from mirage.chain.handoff import LEAST_PART
from mirage.chain.progress import ChainProgress, chain_progress
from mirage.chain.script import AHEAD, MOST_AHEAD
from mirage.daemon.restraint import Acting
from mirage.domain import ActingMode, Link, Mode
from mirage.errors import InputError
from mirage.provision.chains.decisions import ChainDecisions
from mirage.provision.chains.methods import ChainMethod
from mirage.provision.chains.run import POLL_S, USER, ChainJobs, Scenario
from mirage.provision.learn.background import Background, WarmUp, people_of
from mirage.provision.learn.episode import Floats
from mirage.provision.learn.times import iso
from slurm_sim import Simulator
from slurm_sim.seconds import DAY_S, HOUR_S

LEAD_S = 8 * DAY_S
"""The simulation begins so long before the first chain: policies know the waits of seven days."""
AFTERWARDS_S = 7 * DAY_S
"""So long after the chains' end other users' jobs still may start."""
APART_S = 8 * HOUR_S
"""Between the submissions of two chains that run beside each other."""


@dataclass(frozen=True, kw_only=True)
class ChainCase:
    """What is run once, on one begin."""

    begin_s: int
    """Submission of the first chain, Unix seconds."""
    nodes: int
    mode: Mode
    method: str
    count: int = 1
    most_ahead: int = MOST_AHEAD
    """A site's bound on links of a chain that compete at once (acting.most_ahead)."""
    is_for_others: bool = False
    """Whether the other users' waits are what is looked at."""


@dataclass(frozen=True, kw_only=True)
class ChainTrial:
    """What became of it."""

    chains: ChainCase
    progress: ChainProgress
    """Of all its chains together."""
    ran_s: int
    """Of all links together."""
    young: int = 0
    """Links that ended before a quarter of their limit."""
    others_wait_s: Floats | None = None
    """(jobs,): of the other users' jobs that entered the queue meanwhile; those that had not
    started when it ended count until then. None: not looked at.
    """


@dataclass(frozen=True, kw_only=True, eq=False)
class ChainSite:
    """What every trial needs."""

    background: Background
    partition: str
    methods: tuple[ChainMethod, ...]
    limit_s: int
    lasts_s: int
    """Each chain is watched for so long."""
    step_s: int = POLL_S
    """Between two decisions, of every method."""

    def scenario(self, chains: ChainCase) -> Scenario:
        return Scenario(
            chains=chains.count,
            apart_s=APART_S,
            lasts_s=self.lasts_s,
            link_nodes=chains.nodes,
            limit_s=self.limit_s,
            mode=chains.mode,
            ahead=self.method(chains.method).ahead or AHEAD,
            partition=self.partition,
            warm_up_s=chains.begin_s,
        )

    def method(self, name: str) -> ChainMethod:
        return next(method for method in self.methods if method.name == name)

    def check(self, begin_s: int, end_s: int) -> None:
        """Raises InputError: the history does not have these times."""
        log = self.background.log
        if end_s > log.last_s:
            raise InputError(
                f"the last chain would run until {iso(end_s)}, but {log.source} ends at"
                f" {iso(log.last_s)}; give fewer --begins, a shorter --every or --lasts, or an"
                " earlier --start."
            )
        if begin_s - LEAD_S < log.first_s - DAY_S:
            raise InputError(
                f"--start {iso(begin_s)}: policies know the waits of the week before, but"
                f" {log.source} begins at {iso(log.first_s)}; give a later --start."
            )


def try_chains(site: ChainSite, cases: Sequence[ChainCase]) -> list[ChainTrial]:
    """Runs one of these cases, which differ by mode alone and have the same links (`is_fixed`), until
    `ChainSite.lasts_s` after the first submission. The same cases give the same trials. Raises
    InputError.
    """
    chains = cases[0]
    scenario, simulator = site.scenario(chains), _warm(site, chains.begin_s).fork()
    jobs, end_s = ChainJobs(scenario, simulator), chains.begin_s + site.lasts_s
    acting = Acting(mode=ActingMode.ENFORCE, most_ahead=chains.most_ahead)
    method = site.method(chains.method)
    decisions = ChainDecisions(
        simulator,
        method.policy(simulator),
        acting,
        step_s=site.step_s,
        looks_at_others=method.looks_at_others,
        user=USER,
    )
    while chains.count and simulator.now_s < end_s:
        jobs.submit_due()
        decisions.cycle()
        jobs.run_until(min(simulator.now_s + site.step_s, end_s))
    simulator.run_until(end_s)
    decisions.cycle()
    links = [decisions.links(USER, chain) for chain in scenario.begins_s]
    others = _others(simulator, chains.begin_s, jobs) if chains.is_for_others else None
    return [_trial(site, case, links, end_s, others) for case in cases]


def _trial(
    site: ChainSite, case: ChainCase, links: list[list[Link]], end_s: int, others: Floats | None
) -> ChainTrial:
    start_up_s = site.scenario(case).serves_after_s
    parts = [chain_progress(found, end_s, start_up_s=start_up_s) for found in links]
    runs = [run for found in links for run in _runs_s(found, end_s)]
    return ChainTrial(
        chains=case,
        progress=ChainProgress.of_all(parts),
        ran_s=sum(run_s for run_s, _ in runs),
        young=sum(is_over and run_s * LEAST_PART < site.limit_s for run_s, is_over in runs),
        others_wait_s=others,
    )


@lru_cache(maxsize=1)
def _warm(site: ChainSite, begin_s: int) -> Simulator:
    """The cluster as the first chain comes."""
    warm_s = begin_s - LEAD_S
    last_s = min(begin_s + site.lasts_s + AFTERWARDS_S + 10 * APART_S, site.background.log.last_s)
    log = site.background.log.between(warm_s, last_s)
    people = people_of(site.background.log)
    simulator = site.background.start_at(warm_s, WarmUp.TRACE, log, people).simulation
    simulator.run_until(begin_s)
    return simulator


def _runs_s(links: list[Link], until_s: int) -> Iterator[tuple[int, bool]]:
    """How long each link ran, and whether it is over."""
    for link in links:
        if link.start_s is not None and link.start_s < until_s:
            yield min(link.end_s or until_s, until_s) - link.start_s, link.end_s is not None


def _others(simulator: Simulator, begin_s: int, chains: ChainJobs) -> Floats:
    """The chains' jobs are cancelled first, so that all runs end alike."""
    end_s = simulator.now_s
    for job in (*simulator.pending(), *simulator.running()):
        if job.job_id in chains.job_ids:
            simulator.cancel(job.job_id)
    simulator.run_until(end_s + AFTERWARDS_S)
    jobs = simulator.results()
    is_own = np.isin(jobs.job_id, list(chains.job_ids))
    counted = ~is_own & (jobs.eligible_s >= begin_s) & (jobs.eligible_s < end_s)
    # A job that was cancelled in the queue waited until then, one that still waits until now.
    until_s = np.where(jobs.start_s >= 0, jobs.start_s, jobs.end_s)
    until_s = np.where(until_s >= 0, until_s, simulator.now_s)
    waits_s = np.maximum(until_s - jobs.eligible_s, 0)[counted]
    return np.asarray(waits_s, dtype=np.float64)

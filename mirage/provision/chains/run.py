"""Runs chains on a simulated, contended cluster: the daemon's own code on a simulated clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from mirage.chain.progress import ChainProgress, chain_progress
from mirage.chain.script import AHEAD
from mirage.chain.service import first_limit_s
from mirage.chain.tag import MAX_SEGMENTS, ChainTag, format_tag, parse_tag
from mirage.daemon.cycle import Daemon
from mirage.daemon.memory import UnhashedMemory
from mirage.daemon.restraint import Acting
from mirage.domain import HANDOVER_S, ActingMode, Link, Mode, Penalties
from mirage.models.shipped import shipped
from mirage.ports import Policy, Store
from mirage.provision.chains.workload import other_jobs
from mirage.slurm.simulated import SimulatedClock, SimulatedCluster
from mirage.store.memory import MemoryStore
from slurm_sim import ClusterConfig, JobRecord, JobSpec, Simulator
from slurm_sim.clusters import read_cluster
from slurm_sim.seconds import DAY_S, HOUR_S

CLUSTER = "ls6-a100"
"""The one that comes with models."""
USER = "you"
POLL_S = 600


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """The cluster, who else uses it, and the chains."""

    seed: int = 1
    load: float = 1.3
    """Arrivals, by those of the months that the other users are modelled on: nearly all nodes are
    busy.
    """
    chains: int = 3
    """Few handovers are luck: where the queue happens to be short, nothing can be better than to do
    nothing.
    """
    apart_s: int = 3 * DAY_S
    """Between the submissions of two chains."""
    lasts_s: int = 15 * DAY_S
    """Each chain is watched for so long from its submission."""
    link_nodes: int = 2
    limit_s: int = 48 * HOUR_S
    time_min_s: int | None = None
    """To which backfill may shorten a link's limit; None: it may not."""
    time_min_extends: bool = False
    """Slurm's rule for such links (`slurm_sim.config.Params`)."""
    run_s: int | None = None
    """A link ends by itself after so long; None: at its limit."""
    mode: Mode = Mode.TRAIN
    start_up_s: int = HANDOVER_S
    """From the start of a service's link until it is ready."""
    penalties: Penalties = field(default_factory=Penalties)
    """Of all chains; a training chain with other penalties is decided like a service."""
    ahead: int = AHEAD
    """Successors that a chain has in the queue at most."""
    segments: int = MAX_SEGMENTS
    """Links that a chain has at most."""
    service: str | None = None
    """The chains are replicas of this service; None: each stands alone."""
    first_links_end_apart: bool = False
    """As of a service that nobody watches."""
    partition: str | None = None
    """Of the chains; None: the cluster's default."""
    has_one_user: bool = True
    """All chains are of one user; False: each has a user of its own, named after it."""
    warm_up_s: int = 8 * DAY_S
    """The first chain is submitted after this long, into a cluster that is busy already."""
    watched_s: int = DAY_S
    """So long before the daemon begins to look: policies see a day of history."""

    @property
    def begins_s(self) -> dict[str, int]:
        """When each chain is submitted, by its id."""
        return {
            f"demo{number + 1:04}": self.warm_up_s + number * self.apart_s
            for number in range(self.chains)
        }

    def user(self, chain: str) -> str:
        """Whose chain it is."""
        return USER if self.has_one_user else chain

    def replica(self, chain: str) -> int | None:
        """Which replica it is, from 1."""
        return None if self.service is None else list(self.begins_s).index(chain) + 1

    def limit_of(self, tag: ChainTag) -> int:
        """The time limit of this link."""
        first_s = None
        if self.first_links_end_apart and tag.segment == 1 and tag.replica is not None:
            first_s = first_limit_s(self.limit_s, tag.replica, self.chains, 2 * self.start_up_s)
        return self.limit_s if first_s is None else first_s

    @property
    def serves_after_s(self) -> int | None:
        """`start_up_s`, if they are services."""
        return self.start_up_s if self.mode is Mode.SERVICE else None

    @property
    def end_s(self) -> int:
        """When nothing is watched any more."""
        return max(self.begins_s.values()) + self.lasts_s

    @property
    def cluster(self) -> ClusterConfig:
        cluster = read_cluster(shipped(CLUSTER) / "cluster.toml").cluster
        params = replace(cluster.params, time_min_extends=self.time_min_extends)
        return replace(cluster, params=params)


@dataclass(kw_only=True)
class RunView:
    """What a spectator sees after each simulated hour, from the daemon's first look."""

    policy: str
    now_s: int
    queued: int
    chains: list[list[Link]]
    done: bool = False


@dataclass(frozen=True, kw_only=True)
class ChainsResult:
    policy: str
    chains: list[list[Link]]
    """The links of each."""
    start_up_s: int | None = None
    """Of services; None: training chains."""
    ends_s: list[int]
    """Until when each was watched."""
    queue: list[tuple[int, int]] = field(default_factory=list)
    """(time, jobs waiting for nodes) after each cycle."""

    def progress(self) -> list[ChainProgress]:
        """Of each chain."""
        pairs = zip(self.chains, self.ends_s, strict=True)
        return [chain_progress(links, end_s, start_up_s=self.start_up_s) for links, end_s in pairs]

    def total(self) -> ChainProgress:
        """Of all chains together."""
        return ChainProgress.of_all(self.progress())


def run_chains(
    scenario: Scenario,
    make_policy: Callable[[Simulator], Policy],
    watch: Callable[[RunView], None],
    make_cluster: Callable[[Scenario], Simulator] | None = None,
) -> ChainsResult:
    """The chains under a policy, for as long as the scenario lasts. The same scenario gives the
    same result.

    ``make_policy`` gets the simulation, for a policy that looks into it (`oracle.py`).
    ``make_cluster``: the cluster with the other users' jobs, in place of `busy_cluster`.
    """
    simulator = (make_cluster or busy_cluster)(scenario)
    policy = make_policy(simulator)
    store = MemoryStore()
    daemon = _daemon(simulator, store, policy)
    jobs = ChainJobs(scenario, simulator)
    queue = []
    simulator.run_until(scenario.warm_up_s - scenario.watched_s)
    while True:
        jobs.submit_due()
        daemon.run_cycle()
        waiting = sum(job.eligible_s is not None for job in simulator.pending())
        if simulator.now_s >= scenario.warm_up_s:
            queue.append((simulator.now_s, waiting))
        done = simulator.now_s >= scenario.end_s
        if done or simulator.now_s % HOUR_S == 0:
            chains = [store.links(scenario.user(chain), chain) for chain in scenario.begins_s]
            now_s, name = simulator.now_s, policy.name
            watch(RunView(policy=name, now_s=now_s, queued=waiting, chains=chains, done=done))
        if done:
            return ChainsResult(
                policy=policy.name,
                chains=chains,
                start_up_s=scenario.serves_after_s,
                ends_s=[begin_s + scenario.lasts_s for begin_s in scenario.begins_s.values()],
                queue=queue,
            )
        jobs.run_until(simulator.now_s + POLL_S)


def _daemon(simulator: Simulator, store: Store, policy: Policy) -> Daemon:
    return Daemon(
        SimulatedCluster(simulator, user="mirage", operator=True),
        store,
        SimulatedClock(simulator),
        policy,
        poll_s=POLL_S,
        acting=Acting(mode=ActingMode.ENFORCE),
        memory=UnhashedMemory(store),
    )


def busy_cluster(scenario: Scenario) -> Simulator:
    """The cluster, with the other users' jobs."""
    cluster = scenario.cluster
    jobs = other_jobs(cluster, scenario.seed, scenario.end_s / DAY_S, scenario.load)
    return Simulator(cluster, jobs)


class ChainJobs:
    """What the jobs of chains do themselves (`mirage/chain/job.sh`), on the simulated cluster.

    A link that starts queues the next one. The one before it ends once it has saved (`HANDOVER_S`),
    or once a service's new link is ready. While the last one queued competes for nodes, a further
    one is queued behind it, up to `Scenario.ahead`.
    """

    def __init__(self, scenario: Scenario, simulator: Simulator) -> None:
        self._scenario = scenario
        self._simulator = simulator
        start_up_s = scenario.serves_after_s
        self._takes_over_s = HANDOVER_S if start_up_s is None else start_up_s
        self._queued: dict[str, list[tuple[ChainTag, int]]] = {}
        """By chain: links that have not started, by segment."""
        self._running: dict[str, list[int]] = {}
        self._ends_s: list[tuple[int, int]] = []
        """(when, job): predecessors that are about to end."""
        self.job_ids: set[int] = set()
        """Of all links."""
        simulator.on_start.append(self._started)

    def submit_due(self) -> None:
        """Submits the chains whose time has come since the last cycle."""
        for chain, begin_s in self._scenario.begins_s.items():
            if begin_s <= self._simulator.now_s < begin_s + POLL_S:
                self.submit_chain(chain)

    def submit_chain(self, chain: str) -> None:
        """What mirage-submit does: the first link, and one successor that depends on it."""
        tag = ChainTag(
            chain_id=chain,
            segment=1,
            segments=self._scenario.segments,
            predecessor_id=None,
            mode=self._scenario.mode,
            penalties=self._scenario.penalties,
            time_min_s=self._scenario.time_min_s or 0,
            service=self._scenario.service,
            replica=self._scenario.replica(chain),
            handover_s=self._scenario.serves_after_s,
        )
        self._queued[chain], self._running[chain] = [], []
        self._submit(tag)
        self._submit_next(tag, self._queued[chain][-1][1])

    def run_until(self, time_s: int) -> None:
        """Runs the simulation, with what the chains' jobs do meanwhile."""
        self._end_due()
        while (now_s := self._simulator.now_s) < time_s:
            # A link that starts meanwhile ends another one after this time at the earliest.
            soonest_s = min([now_s + max(1, self._takes_over_s), *(due for due, _ in self._ends_s)])
            self._simulator.run_until(min(soonest_s, time_s))
            self._end_due()
        for queued in self._queued.values():
            if 0 < len(queued) < self._scenario.ahead:
                tag, job_id = queued[-1]
                if self._simulator.job(job_id).eligible_s is not None:
                    self._submit_next(tag, job_id)

    def _end_due(self) -> None:
        """Ends the predecessors whose time has come."""
        for due_s, job_id in sorted(self._ends_s):
            if due_s <= self._simulator.now_s:
                self._ends_s.remove((due_s, job_id))
                self._simulator.cancel(job_id)

    def _submit(self, tag: ChainTag) -> None:
        after = f"afterany:{tag.predecessor_id}" if tag.predecessor_id else ""
        job_id = self._simulator.submit(
            JobSpec(
                self._scenario.link_nodes,
                self._scenario.limit_of(tag),
                self._scenario.run_s,
                user=self._scenario.user(tag.chain_id),
                partition=self._scenario.partition,
                dependency=after,
                comment=format_tag(tag),
                time_min_s=self._scenario.time_min_s,
            )
        )
        self._queued[tag.chain_id].append((tag, job_id))
        self.job_ids.add(job_id)

    def _submit_next(self, tag: ChainTag, job_id: int) -> None:
        self._submit(replace(tag, segment=tag.segment + 1, predecessor_id=job_id))

    def _started(self, job: JobRecord) -> None:
        tag = parse_tag(job.spec.comment)
        if tag is None:
            return
        queued, running = self._queued[tag.chain_id], self._running[tag.chain_id]
        for other, job_id in list(queued):
            if other.segment <= tag.segment:
                queued.remove((other, job_id))
            if other.segment < tag.segment:  # its turn is over
                self._ends_s.append((self._simulator.now_s, job_id))
        alive = [job_id for job_id in running if self._simulator.job(job_id).end_s is None]
        due_s = self._simulator.now_s + self._takes_over_s
        self._ends_s += [(due_s, job_id) for job_id in alive]
        running[:] = [job.job_id]
        if not queued:
            self._submit_next(tag, job.job_id)

"""Runs chains on a simulated, contended cluster: the daemon's own code on a simulated clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from mirage.chain.handoff import Handoff, handoffs
from mirage.chain.tag import ChainTag, format_tag, parse_tag
from mirage.daemon.cycle import Daemon
from mirage.daemon.restraint import Acting
from mirage.demo.workload import other_jobs
from mirage.domain import ActingMode, Link, Mode, Penalties
from mirage.models.shipped import shipped
from mirage.ports import Policy
from mirage.slurm.simulated import SimulatedClock, SimulatedCluster
from mirage.store.repository import SqlStore
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
    segments: int = 5
    link_nodes: int = 2
    limit_s: int = 48 * HOUR_S
    warm_up_s: int = 8 * DAY_S
    """The first chain is submitted after this long, into a cluster that is busy already."""
    watched_s: int = DAY_S
    """So long before the daemon begins to look: policies see a day of history."""
    longest_s: int = 45 * DAY_S
    """A bound, should the queue never let the chains through."""

    @property
    def begins_s(self) -> dict[str, int]:
        """When each chain is submitted, by its id."""
        return {
            f"demo{number + 1:04}": self.warm_up_s + number * self.apart_s
            for number in range(self.chains)
        }

    @property
    def cluster(self) -> ClusterConfig:
        return read_cluster(shipped(CLUSTER) / "cluster.toml").cluster


@dataclass(kw_only=True)
class DemoProgress:
    """What a spectator sees after each simulated hour."""

    policy: str
    now_s: int
    queued: int
    chains: list[list[Link]]
    done: bool = False


@dataclass(frozen=True)
class DemoResult:
    policy: str
    chains: list[list[Link]]
    """The links of each."""
    queue: list[tuple[int, int]] = field(default_factory=list)
    """(time, jobs waiting for nodes) after each cycle."""

    @property
    def handoffs(self) -> list[Handoff]:
        return [handoff for links in self.chains for handoff in handoffs(links)]

    def totals(self) -> dict[str, float]:
        """Over all handovers."""
        return totals(self.handoffs)


def totals(some: Sequence[Handoff]) -> dict[str, float]:
    """Interruption and overlap in seconds, and node-hours held twice, over these handovers."""
    return {
        "interruption_s": sum(handoff.interruption_s for handoff in some),
        "overlap_s": sum(handoff.overlap_s for handoff in some),
        "node_hours_wasted": sum(handoff.node_hours_wasted for handoff in some),
    }


def run_chains(
    scenario: Scenario, policy: Policy, watch: Callable[[DemoProgress], None]
) -> DemoResult:
    """The chains under a policy, from their submission to their end. The same scenario gives the
    same result.
    """
    simulator = busy_cluster(scenario)
    store = SqlStore.open("sqlite://")
    cluster = SimulatedCluster(simulator, user="mirage", operator=True)
    acting = Acting(mode=ActingMode.ENFORCE)
    daemon = Daemon(cluster, store, SimulatedClock(simulator), policy, poll_s=POLL_S, acting=acting)
    simulator.run_until(scenario.warm_up_s - scenario.watched_s)
    while simulator.now_s < scenario.warm_up_s:
        daemon.run_cycle()
        simulator.run_until(simulator.now_s + POLL_S)
    simulator.on_start.append(lambda job: _prologue(job, simulator))
    queue = []
    while True:
        for chain, begin_s in scenario.begins_s.items():
            if begin_s <= simulator.now_s < begin_s + POLL_S:
                submit_chain(scenario, simulator, chain)
        daemon.run_cycle()
        waiting = sum(job.eligible_s is not None for job in simulator.pending())
        queue.append((simulator.now_s, waiting))
        done = simulator.now_s > scenario.longest_s or all(
            _is_over(store, chain) for chain in scenario.begins_s
        )
        if done or simulator.now_s % HOUR_S == 0:
            chains = [store.links(USER, chain) for chain in scenario.begins_s]
            watch(
                DemoProgress(
                    policy=policy.name,
                    now_s=simulator.now_s,
                    queued=waiting,
                    chains=chains,
                    done=done,
                )
            )
        if done:
            return DemoResult(policy.name, chains, queue)
        simulator.run_until(simulator.now_s + POLL_S)


def _is_over(store: SqlStore, chain: str) -> bool:
    found = store.chain(USER, chain)
    return found is not None and found.state.is_over


def busy_cluster(scenario: Scenario) -> Simulator:
    """The cluster, with the other users' jobs."""
    cluster = scenario.cluster
    return Simulator(
        cluster, other_jobs(cluster, scenario.seed, scenario.longest_s / DAY_S, scenario.load)
    )


def submit_chain(scenario: Scenario, simulator: Simulator, chain: str) -> None:
    """What mirage-submit does: the first link, and one successor that depends on it."""
    tag = ChainTag(
        chain_id=chain,
        segment=1,
        segments=scenario.segments,
        predecessor_id=None,
        mode=Mode.TRAIN,
        penalties=Penalties(),
    )
    first = simulator.submit(
        JobSpec(scenario.link_nodes, scenario.limit_s, user=USER, comment=format_tag(tag))
    )
    _queue_successor(tag, first, simulator.job(first).spec, simulator)


def _prologue(job: JobRecord, simulator: Simulator) -> None:
    """What the job's own prologue does as a link starts: it queues the next one.

    There is no handover here, so a predecessor runs to its limit even if its successor is there
    already: overlap is counted in full, as in the paper.
    """
    tag = parse_tag(job.spec.comment)
    if tag and tag.segment > 1:
        _queue_successor(tag, job.job_id, job.spec, simulator)


def _queue_successor(tag: ChainTag, job_id: int, spec: JobSpec, simulator: Simulator) -> None:
    if tag.segment < tag.segments:
        following = replace(tag, segment=tag.segment + 1, predecessor_id=job_id)
        simulator.submit(
            replace(
                spec,
                dependency=f"afterany:{job_id}",
                comment=format_tag(following),
                submit_s=None,
                job_id=None,
            )
        )

"""A site of two racks for tests of live placement: Slurm's answers, made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mirage.domain import ClusterNode, Job, JobState, Snapshot
from mirage.placement.live.law import MACHINES
from mirage.placement.live.network import NetworkText
from mirage.placement.live.opt_in import find_profile
from mirage.placement.live.state import Assumptions, LiveState, live_state
from mirage.slurm.job_details import JobDetails, NodeShare
from mirage.slurm.resources import NodeUse

NOW_S = 1_800_000_000
TREE = "SwitchName=r1 Nodes=n[1-4]\nSwitchName=r2 Nodes=n[5-8]\nSwitchName=top Switches=r[1-2]\n"
OPT_IN = "mirage-place/1 signal=USR1"
ASSUMPTIONS = Assumptions(profile=find_profile("resnet-50"), minibatch=64, machine=MACHINES["t4"])


@dataclass
class LiveSite:
    """Eight nodes of ``gpus_each`` GPUs and as many CPUs. Jobs take GPUs from the lowest number."""

    gpus_each: int = 2
    tree: str | None = TREE
    jobs: list[Job] = field(default_factory=list)
    details: dict[int, JobDetails] = field(default_factory=dict)
    states: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        return [f"n{number}" for number in range(1, 9)]

    def used(self, node: str) -> int:
        return sum(
            share.gpus
            for each in self.details.values()
            for share in each.shares
            if share.node == node
        )

    def run(
        self,
        job_id: int,
        nodes: str,
        *,
        each: int | None = None,
        comment: str = OPT_IN,
        ties: Sequence[str] = (),
        whole: bool = True,
        state: JobState = JobState.RUNNING,
        limit_s: int | None = 86_400,
    ) -> Job:
        """A job on ``nodes`` ("n1,n5") with ``each`` GPUs of each node (default: all)."""
        names = nodes.split(",")
        gpus = each or self.gpus_each
        shares = tuple(
            NodeShare(
                node=name,
                gpus=gpus,
                gpu_numbers=tuple(range(self.used(name), self.used(name) + gpus)),
                gpu_type="",
                cpus=gpus,
                memory_mib=0,
            )
            for name in names
        )
        self.details[job_id] = JobDetails(
            job_id=job_id,
            restarts=0,
            shares=shares,
            required_nodes=(),
            ties=tuple(ties),
            takes_whole_nodes=whole,
        )
        job = Job(
            job_id=job_id,
            user="alice",
            partition="gpu",
            state=state,
            nodes=len(names),
            submit_s=NOW_S - 60,
            start_s=NOW_S - 50,
            time_limit_s=limit_s,
            gpus=gpus * len(names),
            comment=comment,
            node_names=tuple(names),
        )
        self.jobs.append(job)
        return job

    def wait(self, job_id: int, gpus: int, *, nodes: int = 1, ties: Sequence[str] = ()) -> None:
        """Bob's job that waits for nodes."""
        self.jobs.append(
            Job(
                job_id=job_id,
                user="bob",
                partition="gpu,debug",
                state=JobState.PENDING,
                nodes=nodes,
                submit_s=NOW_S,
                gpus=gpus,
                cpus=gpus,
                reason="Resources",
            )
        )
        self.details[job_id] = JobDetails(
            job_id=job_id,
            restarts=0,
            shares=(),
            required_nodes=(),
            ties=tuple(ties),
            takes_whole_nodes=False,
        )

    def use(self) -> list[NodeUse]:
        free = {name: self.gpus_each - self.used(name) for name in self.names}
        return [
            NodeUse(
                name=name,
                partitions=("gpu", "debug") if name < "n5" else ("gpu",),
                total=(self.gpus_each, self.gpus_each, 4000),
                free=(free[name], free[name], 4000),
            )
            for name in self.names
        ]

    def snapshot(self) -> Snapshot:
        nodes = tuple(
            ClusterNode(
                name=name,
                partitions=("gpu",),
                up=True,
                idle=False,
                state=self.states.get(name, "MIXED"),
            )
            for name in self.names
        )
        return Snapshot(at_s=NOW_S, jobs=tuple(self.jobs), nodes=nodes)

    def state(self, network: NetworkText | None = None) -> LiveState:
        text = network or NetworkText(switches=self.tree, source="scontrol show topology")
        return live_state(self.snapshot(), self.use(), self.details, text, ASSUMPTIONS)

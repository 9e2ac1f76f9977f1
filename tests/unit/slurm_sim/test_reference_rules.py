"""Slurm's rules beyond whole nodes, one by one, in the reference simulator."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import slurm_sim
from slurm_sim.config import (
    Association,
    ClusterConfig,
    NodeAction,
    NodeChange,
    NodeSpec,
    Params,
    Partition,
    Qos,
    Reservation,
    SelectType,
    make_nodes,
)
from slurm_sim.errors import InvalidCluster, InvalidJob, SimulationError
from slurm_sim.jobs import JobSpec, State, array
from slurm_sim.table import JobTable
from tests.reference.simulator import ReferenceSimulator

HOUR = 3600
FIFO = Params(priority_multifactor=False, limit_check_s=0)
SHARED = replace(FIFO, select_type=SelectType.CONS_TRES, memory_is_consumable=True)


def cluster(count: int, params: Params = FIFO, **more: object) -> ClusterConfig:
    """So many nodes of 8 CPUs, 64 GiB and 4 GPUs, in one partition."""
    return of_nodes(make_nodes(count, cpus=8, memory_mib=65536, gpus=4), params, **more)


def of_nodes(nodes: tuple[NodeSpec, ...], params: Params, **more: object) -> ClusterConfig:
    partitions = (Partition("gpu", tuple(node.name for node in nodes)),)
    return ClusterConfig(nodes, partitions, params, **more)  # type: ignore[arg-type]


def job(
    nodes: int = 1, limit_s: int = HOUR, runtime_s: int | None = None, **more: object
) -> JobSpec:
    """Of little memory, if nothing else is said: one that names none shares nodes with nobody."""
    more = {"memory_mib_per_node": 1, **more}
    return JobSpec(nodes, limit_s, limit_s if runtime_s is None else runtime_s, **more)  # type: ignore[arg-type]


def starts(sim: ReferenceSimulator) -> dict[int, int | None]:
    return {
        record.job_id: record.start_s
        for record in (*sim.finished(), *sim.running(), *sim.pending())
    }


# --- shared nodes


def test_jobs_share_a_node_until_something_on_it_runs_out() -> None:
    gpus = [job(gpus_per_node=3), job(gpus_per_node=1), job(gpus_per_node=1)]
    sim = ReferenceSimulator(cluster(1, SHARED), gpus)
    sim.run_until(60)
    assert starts(sim) == {1: 3, 2: 3, 3: None}
    memory = [
        job(memory_mib_per_node=40000),
        job(memory_mib_per_node=30000),
        job(memory_mib_per_node=20000),
    ]
    sim = ReferenceSimulator(cluster(1, SHARED), memory)
    sim.run_until(29)
    assert starts(sim) == {1: 3, 2: None, 3: None}
    ignored = replace(SHARED, memory_is_consumable=False)
    sim = ReferenceSimulator(cluster(1, ignored), memory)
    sim.run_until(29)
    assert starts(sim) == {1: 3, 2: 3, 3: 3}
    sim = ReferenceSimulator(cluster(1, FIFO), gpus)
    sim.run_until(29)
    assert starts(sim) == {1: 3, 2: None, 3: None}


def test_a_job_that_names_no_memory_gets_all_of_its_nodes() -> None:
    """And so shares none with jobs that have any; each has, where it is consumable
    (`_verify_node_state`).
    """
    some, none = job(memory_mib_per_node=1), job(memory_mib_per_node=0)
    for jobs in ([none, some], [some, none], [none, none]):
        sim = ReferenceSimulator(cluster(1, SHARED), jobs)
        sim.run_until(29)
        assert starts(sim) == {1: 3, 2: None}
    sim = ReferenceSimulator(cluster(1, SHARED), [some, some])
    sim.run_until(29)
    assert starts(sim) == {1: 3, 2: 3}


@pytest.mark.parametrize(
    ("of_all", "own", "memory_mib"),
    [
        ({"default_memory_per_cpu_mib": 20000}, {}, 40000),
        ({"default_memory_per_node_mib": 30000}, {}, 30000),
        ({"default_memory_per_cpu_mib": 20000}, {"default_memory_per_node_mib": 9000}, 9000),
    ],
)
def test_a_job_that_names_no_memory_gets_the_default(
    of_all: dict[str, int], own: dict[str, int], memory_mib: int
) -> None:
    """DefMemPerCPU, DefMemPerNode; those of its first partition, also where it runs in another one."""
    params = replace(SHARED, **of_all)  # type: ignore[arg-type]
    nodes = make_nodes(1, cpus=8, memory_mib=65536)
    partitions = (
        Partition("first", ("n1",), **own),
        Partition("other", ("n1",), default_memory_per_node_mib=65536),
    )  # type: ignore[arg-type]
    for name, more in (("first", 0), ("first,other", 0), ("first", 1)):
        jobs = [
            job(memory_mib_per_node=0, cpus_per_node=2, partition=name),
            job(memory_mib_per_node=65536 - memory_mib + more),
        ]
        sim = ReferenceSimulator(ClusterConfig(nodes, partitions, params), jobs)
        sim.run_until(29)
        assert starts(sim) == {1: 3, 2: None if more else 3}


def test_memory_by_cpu_is_of_whole_cores_where_their_threads_count() -> None:
    params = replace(SHARED, default_memory_per_cpu_mib=20000, threads_per_core=2)
    for counts, left_mib in ((True, 25536), (False, 45536)):
        jobs = [job(memory_mib_per_node=0), job(memory_mib_per_node=left_mib), job()]
        sim = ReferenceSimulator(cluster(1, replace(params, idle_threads_count=counts)), jobs)
        sim.run_until(29)
        assert starts(sim) == {1: 3, 2: 3, 3: None}


@pytest.mark.parametrize(
    ("by_cpu", "taken"),
    [
        (None, ("n1", "n2")),  # 20 free CPUs in either pair: the first
        (1, ("n4", "n5")),  # in multiples of 5: 20 and 15
        (100, ("n1", "n2")),  # with memory for 8 on each of n1 and n2: 10 and 15
    ],
)
def test_with_memory_by_cpu_fewer_free_cpus_count(
    by_cpu: int | None, taken: tuple[str, ...]
) -> None:
    """Only those with memory, and a multiple of what the job asks for (`_can_job_run_on_node`)."""
    params = replace(
        SHARED,
        default_memory_per_cpu_mib=by_cpu,
        default_memory_per_node_mib=None if by_cpu else 500,
    )
    nodes = tuple(
        NodeSpec(f"n{number}", 16, 2400, features=(f"n{number}",)) for number in range(1, 6)
    )
    before = [("n1", 6, 1600), ("n2", 6, 1600), ("n3", 16, 1), ("n4", 8, 1), ("n5", 4, 1)]
    jobs = [
        job(cpus_per_node=cpus, memory_mib_per_node=mib, constraint=name)
        for name, cpus, mib in before
    ]
    jobs.append(job(2, cpus_per_node=5, memory_mib_per_node=0, submit_s=30))
    sim = ReferenceSimulator(of_nodes(nodes, params), jobs)
    sim.run_until(60)
    assert sim.job(6).node_names == taken


def test_an_exclusive_job_needs_an_empty_node_and_fills_it() -> None:
    sim = ReferenceSimulator(
        cluster(2, SHARED), [job(), job(exclusive=True), job(2, cpus_per_node=1)]
    )
    sim.run_until(29)
    assert sim.job(1).node_names == ("n1",)
    assert sim.job(2).node_names == ("n2",)
    assert sim.job(3).start_s is None


def test_the_fullest_node_that_suffices_is_taken() -> None:
    small, big = NodeSpec("n1", cpus=16), NodeSpec("n2", cpus=4)
    sim = ReferenceSimulator(
        of_nodes((small, big), SHARED), [job(cpus_per_node=4), job(cpus_per_node=4)]
    )
    sim.run_until(5)
    assert [sim.job(number).node_names for number in (1, 2)] == [("n2",), ("n1",)]


def test_backfill_reserves_whole_nodes_for_a_part_of_one() -> None:
    # Job 2 needs 3 GPUs in an hour; its reservation keeps the 4-h job off the last GPU, not the
    # 30-min one.
    queue = [
        job(gpus_per_node=3),
        job(gpus_per_node=3),
        job(1, 4 * HOUR, gpus_per_node=1),
        job(1, 1800, gpus_per_node=1),
    ]
    sim = ReferenceSimulator(cluster(1, SHARED), queue)
    sim.run_until(120)
    assert starts(sim) == {1: 3, 2: None, 3: None, 4: 30}


def test_a_lower_weight_comes_first() -> None:
    nodes = (NodeSpec("a", weight=5), NodeSpec("b", weight=1), NodeSpec("c", weight=5))
    for params in (FIFO, SHARED):
        sim = ReferenceSimulator(of_nodes(nodes, params), [job(1), job(2)])
        sim.run_until(5)
        assert sim.job(1).node_names == ("b",)
        assert sim.job(2).node_names == ("a", "c")


@pytest.mark.parametrize(
    ("constraint", "nodes"),
    [("a100", ("n2",)), ("a100&ib", ("n2",)), ("a100|v100", ("n1",)), ("ib", ("n1",))],
)
def test_constraints(constraint: str, nodes: tuple[str, ...]) -> None:
    config = of_nodes(
        (NodeSpec("n1", features=("v100", "ib")), NodeSpec("n2", features=("a100", "ib"))), FIFO
    )
    sim = ReferenceSimulator(config, [job(constraint=constraint)])
    sim.run_until(5)
    assert sim.job(1).node_names == nodes


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"gpus_per_node": 5}, "0 of partition 'gpu' have 1 CPUs, 1 MiB, 5 GPUs"),
        ({"cpus_per_node": 9}, "have 9 CPUs"),
        ({"constraint": "h100"}, "h100"),
        ({"constraint": "a&b|c"}, "a&b&... or a|b"),
        ({"qos": "gold"}, "qos 'gold' does not exist; this cluster has normal"),
        ({"reservation": "r"}, "reservation 'r' does not exist"),
        ({"dependency": "afterok:1+5"}, "only 'after' takes"),
    ],
)
def test_what_no_node_can_do(request_: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidJob, match=message.replace("|", r"\|")):
        ReferenceSimulator(cluster(2, SHARED), [job(**request_)])


# --- limits


@pytest.mark.parametrize(
    ("limit", "reason", "started"),
    [
        ({"max_jobs_per_user": 2}, "QOSMaxJobsPerUserLimit", [1, 2, 4]),
        ({"max_nodes_per_user": 2}, "QOSMaxNodePerUserLimit", [1, 2, 4]),
        ({"max_gpus_per_user": 8}, "QOSMaxGRESPerUser", [1, 2, 4]),
        ({"max_cpus_per_user": 3}, "QOSMaxCpuPerUserLimit", [1, 2, 3, 4]),
        ({"grp_jobs": 3}, "QOSGrpJobsLimit", [1, 2, 3]),
        ({"grp_nodes": 3}, "QOSGrpNodeLimit", [1, 2, 3]),
        ({"grp_gpus": 12}, "QOSGrpGRES", [1, 2, 3]),
        ({"max_jobs_per_account": 2}, "MaxJobsPerAccount", [1, 2, 4]),
        ({"max_nodes_per_account": 2}, "MaxNodePerAccount", [1, 2, 4]),
        ({"max_gpus_per_account": 8}, "MaxGRESPerAccount", [1, 2, 4]),
        ({"max_cpus_per_account": 2}, "MaxCpuPerAccount", [1, 2, 4]),
    ],
)
def test_qos_limits(limit: dict[str, int], reason: str, started: list[int]) -> None:
    """Each user has an account here."""
    queue = [
        job(gpus_per_node=4, user=user, account=user) for user in ("user", "user", "user", "other")
    ]
    sim = ReferenceSimulator(cluster(4, SHARED, qos=(Qos("normal", **limit),)), queue)  # type: ignore[arg-type]
    sim.run_until(61)
    assert [
        number for number, start_s in sorted(starts(sim).items()) if start_s is not None
    ] == started
    assert {record.reason for record in sim.pending()} <= {reason}


def test_jobs_of_a_limit_of_nodes_share_them() -> None:
    """Seen on slurmctld 22.05: GrpTRES=node=1, nodes of 4 CPUs, jobs of 1; the fifth waits for
    QOSGrpNodeLimit.
    """
    associations = (Association("lab", "eve", grp_nodes=1),)
    for of in (
        {"qos": (Qos("normal", grp_nodes=1),)},
        {"qos": (Qos("normal", max_nodes_per_user=1),)},
        {},
    ):
        config = of_nodes(
            make_nodes(3, cpus=4, memory_mib=64), SHARED, **({"associations": associations} | of)
        )  # type: ignore[arg-type]
        sim = ReferenceSimulator(config, [job(account="lab", user="eve") for _ in range(5)])
        sim.run_until(61)
        assert [record.node_names for record in sim.running()] == [("n1",)] * 4
        assert sim.job(5).reason.endswith(("GrpNodeLimit", "NodePerUserLimit"))


@pytest.mark.parametrize("limit", ["grp_cpus", "grp_gpus", "max_cpus_per_user"])
def test_whole_nodes_count_with_all_they_have(limit: str) -> None:
    """Seen on slurmctld 22.05 with GrpTRES=cpu=10 and gres/gpu=5, nodes of 4 CPUs and 2 GPUs, jobs
    of 1 CPU.
    """
    most = 5 if limit == "grp_gpus" else 10
    for asks, params in (({"exclusive": True}, SHARED), ({}, FIFO)):
        config = of_nodes(
            make_nodes(4, cpus=4, gpus=2), params, qos=(Qos("normal", **{limit: most}),)
        )
        sim = ReferenceSimulator(config, [job(**asks) for _ in range(4)])
        sim.run_until(61)
        assert len(sim.running()) == 2


def test_a_limited_job_gets_no_reservation() -> None:
    # Job 2 waits for its user's limit; if backfill reserved the node for it after job 1, job 3
    # could not start.
    queue = [job(), job(), job(1, 5 * HOUR, user="other")]
    sim = ReferenceSimulator(cluster(2, FIFO, qos=(Qos("normal", max_jobs_per_user=1),)), queue)
    sim.run_until(61)
    assert starts(sim) == {1: 3, 2: None, 3: 3}


def test_a_job_over_a_limit_of_resources_counts_as_tested() -> None:
    """As on slurmctld 22.05 (`sim_replays --kind limits --seed 4`): such limits are asked once
    nodes were found.
    """
    strict = replace(FIFO, partition_job_depth=1, bf_max_job_test=1)
    queue = [job(2), job(), job(user="other")]
    for limit, started in (({"max_nodes_per_user": 2}, [1]), ({"max_jobs_per_user": 1}, [1, 3])):
        sim = ReferenceSimulator(cluster(3, strict, qos=(Qos("normal", **limit),)), queue)  # type: ignore[arg-type]
        sim.run_until(200)
        assert [record.job_id for record in sim.running()] == started


def test_the_partitions_qos_decides() -> None:
    nodes = make_nodes(3)
    names = tuple(node.name for node in nodes)
    qos = (Qos("normal", max_jobs_per_user=3), Qos("busy", max_jobs_per_user=1))
    config = ClusterConfig(nodes, (Partition("gpu", names, qos="busy"),), FIFO, qos)
    sim = ReferenceSimulator(config, [job(), job()])
    sim.run_until(61)
    assert starts(sim) == {1: 3, 2: None}


def test_submissions_over_the_limit_are_refused() -> None:
    config = cluster(1, FIFO, qos=(Qos("normal", max_submit_jobs_per_user=2, max_wall_s=2 * HOUR),))
    sim = ReferenceSimulator(config, [job(submit_s=second) for second in (1, 2, 3)])
    sim.run()
    assert sim.job(3).state is State.CANCELLED
    assert sim.job(3).reason == "QOSMaxSubmitJobPerUserLimit"
    both = replace(
        config, qos=(Qos("normal", max_submit_jobs_per_user=2, max_submit_jobs_per_account=1),)
    )
    sim = ReferenceSimulator(
        both, [job(submit_s=second, user=user) for second, user in ((1, "a"), (2, "b"), (3, "c"))]
    )
    sim.run()
    assert [sim.job(number).reason for number in (2, 3)] == ["MaxSubmitJobsPerAccount"] * 2
    sim = ReferenceSimulator(config, [])
    with pytest.raises(InvalidJob, match="qos 'normal' allows 7200 s"):
        sim.submit(job(1, 3 * HOUR))


def test_the_associations_limit() -> None:
    associations = (Association("lab", max_jobs=2), Association("lab", "eve", max_jobs=1))
    queue = [job(account="lab", user=user) for user in ("eve", "eve", "bob", "bob", "bob")]
    sim = ReferenceSimulator(cluster(5, FIFO, associations=associations), queue)
    sim.run_until(61)
    assert [number for number, start_s in sorted(starts(sim).items()) if start_s is None] == [2, 5]
    assert sim.job(2).reason == "AssocMaxJobsLimit"


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"grp_jobs": 2}, "AssocGrpJobsLimit"),
        ({"grp_nodes": 2}, "AssocGrpNodeLimit"),
        ({"grp_cpus": 2}, "AssocGrpCpuLimit"),
        ({"grp_gpus": 8}, "AssocGrpGRES"),
    ],
)
def test_limits_of_a_group(limit: dict[str, int], reason: str) -> None:
    """Those of an account hold for it and all below; a QOS's own limit of the same kind goes before
    it.
    """
    associations = (Association("lab", **limit), Association("team", parent="lab"))  # type: ignore[arg-type]
    asked = [("lab", "eve"), ("team", "bob"), ("team", "eve"), ("other", "eve")]
    queue = [job(gpus_per_node=4, account=account, user=user) for account, user in asked]
    sim = ReferenceSimulator(cluster(5, SHARED, associations=associations), queue)
    sim.run_until(61)
    assert [number for number, start_s in sorted(starts(sim).items()) if start_s is None] == [3]
    assert sim.job(3).reason == reason
    wider = Qos("normal", **{name: value * 3 // 2 for name, value in limit.items()})
    sim = ReferenceSimulator(cluster(5, SHARED, associations=associations, qos=(wider,)), queue)
    sim.run_until(61)
    assert [number for number, start_s in sorted(starts(sim).items()) if start_s is None] == [4]
    assert sim.job(4).reason.startswith("QOSGrp")


def test_a_users_own_group_limit_and_the_roots() -> None:
    associations = (Association("root", grp_nodes=3), Association("lab", "eve", grp_nodes=1))
    queue = [job(account="lab", user=user) for user in ("eve", "eve", "bob", "bob", "bob")]
    sim = ReferenceSimulator(cluster(5, FIFO, associations=associations), queue)
    sim.run_until(61)
    assert [number for number, start_s in sorted(starts(sim).items()) if start_s is None] == [2, 5]


def test_bf_max_job_user_part_and_start() -> None:
    # One node of two is free, the head of the queue needs both: the rest must be backfilled.
    queue = [job(), job(2), *(job(1, 60, user=user) for user in ("a", "a", "b"))]
    strict = replace(FIFO, sched_interval_s=10**6)
    for name, value, count in (
        ("bf_max_job_user", 1, 1),
        ("bf_max_job_part", 2, 1),
        ("bf_max_job_start", 1, 1),
    ):
        sim = ReferenceSimulator(cluster(2, replace(strict, **{name: value})), queue)
        sim.run_until(35)
        assert len(sim.running()) == 1 + count, name


def test_bf_max_job_user_part_and_assoc() -> None:
    """One node of two is free, as above; a user in two accounts and two partitions."""
    both = tuple(Partition(name, ("n1", "n2")) for name in ("gpu", "other"))
    config = replace(cluster(2, replace(FIFO, sched_interval_s=10**6)), partitions=both)
    backfilled = [
        job(1, 60, user="a", partition=name, account=name) for name in ("gpu", "gpu", "other")
    ]
    queue = [job(exclusive=True), job(2), *backfilled]
    for name, value, started in (
        ("bf_max_job_user_part", 1, {1, 3}),
        ("bf_max_job_assoc", 1, {1, 3}),
        ("bf_max_job_user_part", 2, {1, 3}),
    ):
        sim = ReferenceSimulator(
            replace(config, params=replace(config.params, **{name: value})), queue
        )
        sim.run_until(35)
        assert {record.job_id for record in sim.running()} == started, name
    # The first of its jobs counts, though it fits nowhere before the second, which is then not
    # looked at.
    long_first = [job(exclusive=True), job(2), job(1, 2 * HOUR, user="a"), job(1, 60, user="a")]
    params = replace(config.params, bf_max_job_assoc=1, bf_max_job_user=5)
    sim = ReferenceSimulator(replace(config, params=params), long_first)
    sim.run_until(35)
    assert starts(sim)[4] is None
    sim = ReferenceSimulator(config, long_first)
    sim.run_until(35)
    assert starts(sim)[4] is not None


@pytest.mark.parametrize(
    "change",
    [
        {"bf_min_age_reserve_s": 1000},
        {"bf_min_prio_reserve": 5000, "priority_multifactor": True, "priority_weight_job_size": 0},
    ],
)
def test_who_is_young_or_unimportant_keeps_nobody_waiting(change: dict[str, object]) -> None:
    queue = [job(), job(2), job(1, 3 * HOUR)]
    sim = ReferenceSimulator(cluster(2, FIFO), queue)
    sim.run_until(120)
    assert starts(sim)[3] is None
    sim = ReferenceSimulator(cluster(2, replace(FIFO, **change)), queue)  # type: ignore[arg-type]
    sim.run_until(10)
    assert starts(sim)[3] == 3
    assert sim.job(3).scheduler == "main"
    no_main = replace(FIFO, default_queue_depth=1, sched_interval_s=10**6, **change)  # type: ignore[arg-type]
    sim = ReferenceSimulator(cluster(2, no_main), [job(), job(2), job(2), job(1, 3 * HOUR)])
    sim.run_until(60)
    assert sim.job(4).scheduler == "backfill"


def test_a_job_that_is_old_enough_gets_its_reservation() -> None:
    params = replace(FIFO, bf_min_age_reserve_s=100)
    sim = ReferenceSimulator(cluster(2, params), [job(), job(2), job(1, 3 * HOUR, submit_s=130)])
    sim.run_until(HOUR - 1)
    assert starts(sim) == {1: 3, 2: None, 3: None}


def test_bf_job_part_count_reserve() -> None:
    # Job 2 is expected on three of the four nodes; job 3, which needs all, would keep job 4 from
    # the fourth.
    queue = [job(2), job(3, 600), job(4), job(1, 9 * HOUR)]
    for most, start_s in ((None, None), (2, None), (1, 30)):
        sim = ReferenceSimulator(cluster(4, replace(FIFO, bf_job_part_count_reserve=most)), queue)
        sim.run_until(59)
        assert starts(sim)[4] == start_s, most


def test_backfill_looks_again_at_what_changed_in_its_last_second() -> None:
    # Only backfill starts anything. It sees job 1's end at once, and once more 30 s later, so not
    # job 2 at once.
    params = replace(FIFO, batch_sched_delay_s=10**6, sched_interval_s=10**6)
    sim = ReferenceSimulator(cluster(1, params), [job(1, HOUR, 100), job(submit_s=165)])
    sim.run()
    assert (sim.job(1).start_s, sim.job(1).end_s, sim.job(2).start_s) == (30, 130, 190)


@pytest.mark.parametrize("submit_s", [1235, 3035, 9035])
def test_where_in_the_second_main_passes_come(submit_s: int) -> None:
    """Main passes make news as they pass job 3 over. The loop comes after backfill, which sees it a
    second later.
    """
    params = replace(FIFO, bf_window_s=600)
    queue = [job(1, 10 * HOUR), job(2), job(2), job(1, 60, submit_s=submit_s)]
    sim = ReferenceSimulator(cluster(2, params), queue)
    sim.run_until(submit_s + 100)
    assert sim.job(4).start_s == submit_s


@pytest.mark.parametrize("change", [{"sched_max_job_start": 1}, {"partition_job_depth": 1}])
def test_what_one_main_pass_may_do(change: dict[str, int]) -> None:
    params = replace(FIFO, backfill=False, **change)  # type: ignore[arg-type]
    sim = ReferenceSimulator(cluster(4, params), [job(), job(), job()])
    sim.run_until(200)
    assert starts(sim) == {1: 3, 2: 60, 3: 120}


def test_defer() -> None:
    queue = [job(1, 60, HOUR), job(1, 60, 60), job(1, HOUR, submit_s=89)]
    for defer, start_s in ((False, 90), (True, 92)):
        params = replace(FIFO, backfill=False, limit_check_s=30, defer=defer)
        sim = ReferenceSimulator(cluster(1, params), queue)
        sim.run_until(100)
        assert (sim.job(1).end_s, starts(sim)[2]) == (90, start_s)


# --- arrays


def test_an_arrays_throttle() -> None:
    tasks = array(job(), [100, 200, 300, 400], first_id=10, throttle=2)
    sim = ReferenceSimulator(cluster(8), [*tasks, job(job_id=20)])
    sim.run_until(30)
    assert starts(sim) == {10: 3, 11: 3, 12: None, 13: None, 20: 3}
    assert sim.job(12).reason == "JobArrayTaskLimit"
    assert sim.run() == []
    assert sim.job(12).start_s is not None
    assert sim.job(12).start_s >= 103


def test_a_dependency_on_an_array_is_on_all_of_its_tasks() -> None:
    sim = ReferenceSimulator(
        cluster(8),
        [*array(job(), [100, 500], first_id=10), job(job_id=20, dependency="afterok:10")],
    )
    sim.run()
    assert (sim.job(20).start_s or 0) >= 503


def test_bf_max_job_array_resv() -> None:
    # Two reservations for the array are allowed: then its further tasks don't hold the nodes in the
    # way of the last.
    tasks = array(job(2), [HOUR] * 4, first_id=10)
    queue = [job(3, HOUR), *tasks, job(1, int(2.5 * HOUR), job_id=20)]
    few = ReferenceSimulator(cluster(4, replace(FIFO, bf_max_job_array_resv=1)), queue)
    many = ReferenceSimulator(cluster(4, FIFO), queue)
    for sim in (few, many):
        sim.run_until(40)
    assert few.job(20).start_s is not None
    assert many.job(20).start_s is None


# --- time


def test_after_with_minutes() -> None:
    sim = ReferenceSimulator(cluster(2), [job(), job(dependency="after:1+10")])
    sim.run_until(500)
    assert sim.job(2).dependency == "after:1+10(unfulfilled)"
    sim.run()
    assert 603 <= (sim.job(2).start_s or 0) <= 606 + 60


def test_a_scheduled_cancel() -> None:
    sim = ReferenceSimulator(cluster(1), [job(cancel_s=500), job(cancel_s=100)])
    sim.run()
    assert [(sim.job(n).state, sim.job(n).end_s) for n in (1, 2)] == [
        (State.CANCELLED, 500),
        (State.CANCELLED, 100),
    ]


def test_a_node_fails_is_drained_and_comes_back() -> None:
    changes = (
        NodeChange(100, "n1", NodeAction.DOWN),
        NodeChange(100, "n2", NodeAction.DRAIN),
        NodeChange(1000, "n1", NodeAction.RESUME),
    )
    sim = ReferenceSimulator(
        cluster(2, node_changes=changes), [job(1, 600), job(1, 600), job(1, 600, submit_s=200)]
    )
    sim.run()
    assert sim.job(1).restarts == 1
    assert sim.job(2).end_s == 603
    assert all(
        (sim.job(number).start_s or 0) >= 1000 and sim.job(number).node_names == ("n1",)
        for number in (1, 3)
    )


def test_backfill_plans_more_tasks_than_the_throttle_lets_run() -> None:
    """As on slurmctld 22.05 (`sim_replays --kind arrays --seed 3`): each counts for
    bf_max_job_user.
    """
    tasks = [job(2, array_job_id=2, array_throttle=1) for _ in range(3)]
    for most, started in ((3, False), (4, True)):
        params = replace(FIFO, bf_max_job_user=most, sched_interval_s=10**6)
        sim = ReferenceSimulator(cluster(2, params), [job(), *tasks, job(1, 60)])
        sim.run_until(100)
        assert (starts(sim)[5] is not None) == started


def test_a_hold_does_not_set_back_the_age() -> None:
    """As on slurmctld 22.05 (`sim_replays --kind events --seed 1`, job 89)."""
    sim = ReferenceSimulator(
        cluster(1, Params(priority_weight_age=100000)), [job(), job(submit_s=10), job(submit_s=500)]
    )
    sim.run_until(1000)
    sim.hold(2)
    sim.run_until(2000)
    sim.release(2)
    sim.run_until(HOUR - 100)
    assert sim.job(2).eligible_s == 2000
    assert sim.job(2).priority > sim.job(3).priority


def test_what_stops_a_partition_when_nodes_are_missing() -> None:
    """As on slurmctld 22.05: a job whose nodes are down stops those after it; one whose nodes are
    reserved does not, unless it waits for running jobs as well.
    """
    down = (NodeChange(50, "n4", NodeAction.DOWN),)
    queue = [job(4, 3 * HOUR, submit_s=100), job(1, HOUR, submit_s=101)]
    no_backfill = replace(FIFO, backfill=False)
    sim = ReferenceSimulator(cluster(4, no_backfill, node_changes=down), queue)
    sim.run_until(200)
    assert [sim.job(number).reason for number in (1, 2)] == ["Resources", "Priority"]
    course = (Reservation("course", 2 * HOUR, 3 * HOUR, ("n1", "n2"), ("ann",)),)
    sim = ReferenceSimulator(cluster(4, no_backfill, reservations=course), queue)
    sim.run_until(200)
    assert sim.job(1).reason == "ReqNodeNotAvail"
    assert starts(sim)[2] is not None
    sim = ReferenceSimulator(
        cluster(4, no_backfill, reservations=course), [job(3, HOUR, submit_s=99), *queue]
    )
    sim.run_until(200)
    assert [sim.job(number).reason for number in (2, 3)] == ["Resources", "Priority"]


def test_reservations_keep_their_nodes() -> None:
    maintenance = Reservation("maintenance", 2 * HOUR, 3 * HOUR, ("n1", "n2"))
    sim = ReferenceSimulator(
        cluster(2, reservations=(maintenance,)), [job(1, 3 * HOUR), job(1, HOUR)]
    )
    sim.run_until(100)
    assert starts(sim) == {1: None, 2: 3}
    assert sim.job(1).reason == "Reservation"
    sim.run()
    assert 3 * HOUR <= (sim.job(1).start_s or 0) <= 3 * HOUR + 90


def test_a_job_in_a_reservation() -> None:
    course = Reservation("course", HOUR, 2 * HOUR, ("n2",), ("ann",))
    queue = [
        job(1, 5 * HOUR, user="ann", reservation="course"),
        job(1, 600, user="ann", reservation="course"),
    ]
    sim = ReferenceSimulator(
        cluster(2, replace(FIFO, limit_check_s=30), reservations=(course,)), queue
    )
    sim.run()
    first, second = sim.job(1), sim.job(2)
    assert HOUR <= (first.start_s or 0) <= HOUR + 60
    assert first.node_names == ("n2",)
    assert (first.state, first.end_s) == (State.TIMEOUT, 2 * HOUR + 30)
    assert second.state is State.PENDING
    with pytest.raises(InvalidJob, match="not for user 'bob'"):
        sim.submit(job(user="bob", reservation="course"))
    with pytest.raises(InvalidCluster, match="not after its start"):
        Reservation("r", 10, 10, ("n1",))


# --- suspend, resume, resize, energy


def test_suspended_time_does_not_count() -> None:
    sim = ReferenceSimulator(cluster(1), [job(1, 1000, 900), job(1, 300)])
    sim.run_until(203)
    sim.suspend(1)
    sim.run_until(250)
    assert sim.job(2).state is State.RUNNING
    with pytest.raises(SimulationError, match="can't be resumed"):
        sim.resume(1)
    sim.run_until(603)
    sim.resume(1)
    sim.run()
    assert (sim.job(1).state, sim.job(1).end_s) == (State.COMPLETED, 3 + 900 + 400)


def test_nodes_of_a_suspended_job_come_first_to_jobs_of_its_limit() -> None:
    # Where all nodes are alike too: both nodes are free, and the limit counts the second one.
    limited = (Qos("normal", max_nodes_per_user=4),)
    for simulator in (ReferenceSimulator, slurm_sim.Simulator):
        sim = simulator(cluster(2, qos=limited), [job(1, 50), job(1, 900), job(1, submit_s=200)])
        sim.run_until(100)
        sim.suspend(2)
        sim.run_until(300)
        assert sim.job(3).node_names == sim.job(2).node_names == ("n2",)


def test_size_of_an_exclusive_job() -> None:
    # Half of the nodes, and an eighth of their CPUs as it asks for them; recalculated, half of
    # both.
    params = replace(
        SHARED, priority_multifactor=True, priority_weight_age=0, priority_weight_job_size=1600
    )
    for simulator in (ReferenceSimulator, slurm_sim.Simulator):
        sim = simulator(
            cluster(2, params), [job(2, cpus_per_node=8), job(exclusive=True, cpus_per_node=2)]
        )
        sim.run_until(250)
        assert sim.job(2).priority == 1600 * (1 / 2 + 1 / 8) / 2
        sim.run_until(310)
        assert sim.job(2).priority == 800


def test_a_job_gets_whole_cores() -> None:
    """Of nodes with 4 cores: jobs of 3 CPUs fill 2; by CR_CPU they are counted with 3."""
    jobs = [job(cpus_per_node=3), job(cpus_per_node=3), job(), job(cpus_per_node=8)]
    for simulator in (ReferenceSimulator, slurm_sim.Simulator):
        sim = simulator(cluster(2, replace(SHARED, threads_per_core=2)), jobs)
        sim.run_until(20)
        assert [sim.job(number).node_names for number in (1, 2, 3, 4)] == [
            ("n1",),
            ("n1",),
            ("n2",),
            (),
        ]
        for counted, running in ((True, [1]), (False, [1, 2])):
            params = replace(SHARED, threads_per_core=2, idle_threads_count=counted)
            sim = simulator(cluster(2, params, qos=(Qos("normal", grp_cpus=7),)), jobs)
            sim.run_until(20)
            assert [record.job_id for record in sim.running() if record.job_id < 3] == running
    with pytest.raises(
        InvalidCluster, match="node 'n1': cpus is 8; give a multiple of threads_per_core, 3"
    ):
        cluster(2, replace(SHARED, threads_per_core=3))


def two_partitions(params: Params = FIFO, **of_second: object) -> ClusterConfig:
    """``a`` of the nodes n1 and n2, ``b`` of n3."""
    second = Partition("b", ("n3",), **of_second)  # type: ignore[arg-type]
    return ClusterConfig(make_nodes(3), (Partition("a", ("n1", "n2")), second), params)


@pytest.mark.parametrize("simulator", [ReferenceSimulator, slurm_sim.Simulator])
def test_a_job_in_several_partitions_runs_where_it_can_start_first(simulator: Any) -> None:
    busy = [
        job(2, partition="a"),
        job(1, partition="b", limit_s=600),
        job(1, partition="a,b"),
        job(1, partition="b,a"),
    ]
    sim = simulator(two_partitions(), busy)
    sim.run_until(60)
    assert [(record.partition, record.reason) for record in sim.pending()] == [
        ("a", "Resources"),
        ("b", "Priority"),
    ]
    sim.run_until(700)
    assert (sim.job(3).partition, sim.job(3).node_names, sim.job(4).partition) == (
        "b",
        ("n3",),
        "b",
    )
    assert [record.job_id for record in sim.pending()] == [4]
    sim.run_until(2 * HOUR)
    assert (sim.job(4).partition, sim.job(4).node_names) == ("a", ("n1",))


@pytest.mark.parametrize("simulator", [ReferenceSimulator, slurm_sim.Simulator])
def test_a_requeued_job_waits_in_all_its_partitions_again(simulator: Any) -> None:
    sim = simulator(
        two_partitions(),
        [job(2, partition="a", limit_s=600), job(1, partition="a,b", limit_s=7200)],
    )
    sim.run_until(10)
    assert sim.job(2).partition == "b"
    sim.node_drain("n3")
    sim.requeue(2)
    assert sim.job(2).partition == "a"
    sim.run_until(700)
    assert (sim.job(2).partition, sim.job(2).node_names) == ("a", ("n1",))


@pytest.mark.parametrize("simulator", [ReferenceSimulator, slurm_sim.Simulator])
def test_partitions_in_which_a_job_can_never_run_are_left_out(simulator: Any) -> None:
    sim = simulator(
        two_partitions(max_time_s=600),
        [job(2, partition="b,a"), job(1, partition="b,a", limit_s=600)],
    )
    sim.run_until(10)
    assert (sim.job(1).partition, sim.job(2).partition) == ("a", "b")
    with pytest.raises(InvalidJob, match="3 nodes asked for; partition 'b' has 1"):
        sim.submit(job(3, partition="b,a"))
    with pytest.raises(InvalidJob, match="partition 'c' does not exist"):
        sim.submit(job(1, partition="a,c"))
    with pytest.raises(InvalidJob, match="64 partitions asked for; give at most 63"):
        sim.submit(job(1, partition=",".join(["a"] * 64)))
    with pytest.raises(InvalidJob, match="3 nodes asked for; partition 'a' has 2"):
        sim.resize(sim.submit(job(1, partition="a,b", held=True)), 3)


@pytest.mark.parametrize("simulator", [ReferenceSimulator, slurm_sim.Simulator])
def test_tiers_and_priorities_count_in_each_partition(simulator: Any) -> None:
    params = Params(
        priority_weight_age=0, priority_weight_job_size=0, priority_weight_partition=1000
    )
    cluster = two_partitions(params, priority_tier=2, priority_job_factor=4)
    blocks = [job(2, partition="a", limit_s=900), job(1, partition="b", limit_s=600)]
    sim = simulator(
        cluster,
        [
            *blocks,
            job(1, partition="b"),
            job(1, partition="a,b", limit_s=60),
            job(1, partition="a"),
        ],
    )
    sim.run_until(60)
    assert [sim.job(number).priority for number in (3, 4, 5)] == [1000, 250, 250]
    sim.run_until(660)
    assert [sim.job(number).partition for number in (3, 4)] == ["b", "a"]
    assert sim.job(3).state is State.RUNNING
    assert sim.job(4).state is State.PENDING


@pytest.mark.parametrize("simulator", [ReferenceSimulator, slurm_sim.Simulator])
@pytest.mark.parametrize("once", [False, True])
def test_backfill_keeps_nodes_in_one_partition_only_if_told_to(once: bool, simulator: Any) -> None:
    params = replace(FIFO, bf_one_resv_per_job=once)
    partitions = (Partition("a", ("n1", "n2")), Partition("b", ("n3", "n4")))
    # Job 3 is expected in partition a at 600 s, and in b at 900 s; job 4 would be in its way there,
    # on n4.
    blocks = [job(2, 600, partition="a"), job(1, 900, partition="b")]
    queue = [*blocks, job(2, 2 * HOUR, partition="a,b"), job(1, partition="b")]
    sim = simulator(ClusterConfig(make_nodes(4), partitions, params), queue)
    sim.run_until(599)
    assert (sim.job(4).start_s is not None) == once
    sim.run_until(700)
    assert sim.job(3).partition == "a"


def test_a_table_with_jobs_in_several_partitions() -> None:
    table = JobTable([0, 0], [2, 1], [HOUR, HOUR], [HOUR, HOUR], partition=["a", "a,b"])
    sim = slurm_sim.Simulator(two_partitions(), table)
    sim.run()
    assert [sim.job(number).partition for number in (1, 2)] == ["a", "b"]


def test_resize() -> None:
    sim = ReferenceSimulator(cluster(4), [job(3), job(2, submit_s=10)])
    sim.run_until(20)
    sim.resize(1, 2)
    sim.run_until(30)
    assert sim.job(1).node_names == ("n1", "n2")
    assert sim.job(2).node_names == ("n3", "n4")
    with pytest.raises(SimulationError, match="can't get 1 more nodes: 0 are free"):
        sim.resize(1, 3)
    sim.cancel(2)
    sim.resize(1, 4)
    assert sim.job(1).node_names == ("n1", "n2", "n3", "n4")
    pending = sim.submit(job(4))
    sim.resize(pending, 1)
    assert sim.job(pending).nodes == 1
    with pytest.raises(InvalidJob, match="5 nodes"):
        sim.resize(pending, 5)


def test_energy() -> None:
    nodes = make_nodes(2, idle_w=100.0, busy_w=1000.0)
    sim = ReferenceSimulator(of_nodes(nodes, FIFO), [job(1, 1000, submit_s=7)])
    sim.run_until(10)
    assert sim.job(1).start_s == 7
    assert sim.energy_j() == 200 * 7 + 1100 * 3
    sim.node_down("n2")
    sim.run_until(110)
    assert sim.energy_j() == 200 * 7 + 1100 * 3 + 1000 * 100


def test_sample() -> None:
    qos = (Qos("normal", max_jobs_per_user=2),)
    queue = [
        job(1),
        job(1, 600),
        job(1),
        job(2, user="b"),
        job(1, user="c", dependency="afterany:1"),
    ]
    sim = ReferenceSimulator(cluster(2, qos=qos), queue)
    sim.run_until(100)
    sample = sim.sample()
    assert (sample.running_nodes, sample.running_elapsed_s) == ([1, 1], [97, 97])
    assert (sample.queued_nodes, sample.queued_age_s, sample.queued_limit_s) == ([2], [100], [HOUR])
    assert (sample.idle_nodes, sample.up_nodes, sample.time_s) == (0, 2, 100)


# --- fair share


def test_who_used_less_comes_first() -> None:
    params = Params(
        priority_weight_age=0, priority_weight_job_size=0, priority_weight_fairshare=1000
    )
    queue = [
        job(1, HOUR, user="heavy"),
        job(user="heavy", submit_s=600),
        job(user="light", submit_s=700),
    ]
    sim = ReferenceSimulator(cluster(1, params), queue)
    sim.run_until(800)
    assert sim.job(2).priority == 500
    assert sim.job(3).priority == 1000
    sim.run()
    assert (sim.job(3).start_s or 0) < (sim.job(2).start_s or 0)


def test_fair_tree_ranks_by_account_first() -> None:
    """The tree of the manual's kind: a user of an account that used little stands before all of a
    busy one.
    """
    associations = (
        Association("busy"),
        Association("quiet", shares=2),
        Association("busy", "idle-in-busy"),
        Association("quiet", "works-in-quiet"),
    )
    params = Params(
        priority_weight_age=0, priority_weight_job_size=0, priority_weight_fairshare=600
    )
    queue = [
        job(2, HOUR, account="busy", user="works-in-busy"),
        job(1, HOUR, account="quiet", user="works-in-quiet"),
        *(
            job(3, submit_s=900, account=a, user=u)
            for a, u in (("busy", "idle-in-busy"), ("busy", "works-in-busy"))
        ),
        *(
            job(3, submit_s=900, account="quiet", user=u)
            for u in ("works-in-quiet", "idle-in-quiet")
        ),
    ]
    sim = ReferenceSimulator(cluster(3, params, associations=associations), queue)
    sim.run_until(1000)
    assert [sim.job(number).priority for number in (3, 4, 5, 6)] == [300, 150, 450, 600]


def test_usage_as_slurmctld_counts_it() -> None:
    """RawUsage that sshare showed on 22.05.8: PriorityCalcPeriod=1, PriorityDecayHalfLife=0-1,
    UsageFactor=0.5, whole nodes of 4 CPUs and 2 GPUs with
    TRESBillingWeights=CPU=1.5,Node=3,GRES/gpu=10; jobs of 100 and 30 seconds.
    """
    params = replace(FIFO, priority_calc_period_s=60, priority_decay_half_life_s=HOUR)
    weights = {"billing_weight_cpus": 1.5, "billing_weight_nodes": 3.0, "billing_weight_gpus": 10.0}
    partition = Partition("gpu", ("n1", "n2"), **weights)  # type: ignore[arg-type]
    nodes = make_nodes(2, cpus=4, gpus=2)
    config = ClusterConfig(nodes, (partition,), params, qos=(Qos("normal", usage_factor=0.5),))
    queue = [job(runtime_s=seconds, user=user) for seconds, user in ((100, "alice"), (30, "bob"))]
    sim = ReferenceSimulator(config, queue)
    sim.run_until(120)
    shares = sim._cluster.fairshare
    shares.advance(120)
    assert (sim.job(1).start_s, sim.job(1).end_s, sim.job(2).end_s) == (3, 103, 33)
    assert [int(shares._user("root", user).usage) for user in ("alice", "bob")] == [1419, 422]
    largest = ReferenceSimulator(replace(config, params=replace(params, max_tres=True)), queue)
    largest.run_until(40)
    assert largest._cluster.fairshare._user("root", "bob").usage == pytest.approx(
        30 * (1 - 0.693 / HOUR) ** 30 * 20 / 2
    )


def test_usage_decays() -> None:
    params = Params(
        priority_weight_age=0,
        priority_weight_job_size=0,
        priority_weight_fairshare=1000,
        priority_decay_half_life_s=HOUR,
    )
    queue = [
        job(1, HOUR, user="first"),
        job(1, 1800, user="second", submit_s=6 * HOUR),
        *(job(user=user, submit_s=int(6.6 * HOUR)) for user in ("first", "second")),
    ]
    sim = ReferenceSimulator(
        cluster(1, params), [*queue, job(1, 5 * HOUR, user="third", submit_s=int(6.55 * HOUR))]
    )
    sim.run_until(7 * HOUR)
    assert sim.job(3).priority > sim.job(4).priority  # used twice as much, but six half-lives ago
    still = ReferenceSimulator(cluster(1, replace(params, priority_decay_half_life_s=0)), queue)
    still.run_until(int(6.7 * HOUR))
    assert still.job(4).start_s is not None
    assert still.job(4).start_s < (still.job(3).start_s or 10**9)


@pytest.mark.parametrize(
    "late", [{"submit_s": 1_763_740_000_000}, {"runtime_s": 10**12}, {"cancel_s": 10**14}]
)
def test_milliseconds_are_noticed(late: dict[str, int]) -> None:
    with pytest.raises(InvalidJob, match="give seconds, at most"):
        JobSpec(1, **late)


@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
def test_backfill_plans_a_job_with_gpus_as_if_it_could_run_where_there_are_none(kind: Any) -> None:
    """Job 3 needs job 1's node, but job 2, on one without GPUs, ends within the same group: so late
    is 3 expected.

    Job 4 may run in between; before slurmctld's order was known, replays on mixed nodes agreed in
    half of the starts.
    """
    nodes = (
        NodeSpec("gpu", 4, 64, gpus=4, features=("gpu",)),
        NodeSpec("cpu", 4, 64, features=("cpu",)),
    )
    params = replace(SHARED, bf_resolution_s=1, bf_cycle_us=0, limit_check_s=30)
    sim = kind(of_nodes(nodes, params))
    sim.submit(job(limit_s=600, gpus_per_node=4))
    sim.submit(job(limit_s=650, constraint="cpu"))
    sim.step(10)
    sim.submit(job(limit_s=600, gpus_per_node=4))
    sim.submit(job(limit_s=600, constraint="gpu"))
    sim.run_until(40)
    assert [record.job_id for record in sim.running()] == [1, 2, 4]
    sim.run()
    assert sim.job(3).start_s in range(600, 640)


@pytest.mark.parametrize("kind", [ReferenceSimulator, slurm_sim.Simulator])
def test_a_job_known_to_wait_for_a_limit_stops_nobody(kind: Any) -> None:
    """It lacks nodes, too, those that job 2 keeps in a higher tier
    (`acct_policy_job_runnable_state`).
    """
    nodes = make_nodes(4)
    names = tuple(node.name for node in nodes)
    partitions = (Partition("all", names), Partition("fast", names[:2], priority_tier=2))
    qos = (Qos("normal"), Qos("one", max_jobs_per_user=1))
    sim = kind(ClusterConfig(nodes, partitions, replace(FIFO, backfill=False), qos=qos))
    sim.submit(job(partition="fast", qos="one"))
    sim.run_until(10)
    sim.submit(job(2, partition="fast"))
    limited = sim.submit(job(3, partition="all", qos="one"))
    assert sim.job(limited).reason == "QOSMaxJobsPerUserLimit"
    last = sim.submit(job(partition="all"))
    sim.run_until(60)
    assert sim.job(last).start_s is not None

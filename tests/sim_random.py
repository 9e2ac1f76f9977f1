"""Random clusters, workloads and calls, by a dice: `random.randint`, or hypothesis' choice of an
integer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, TypeVar
from unittest.mock import patch

import numpy as np

from mirage.provision.env import Pair, SubmitEnv, Task, starts
from slurm_sim.admission import Admission
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
    whole_nodes,
)
from slurm_sim.errors import InvalidJob, SimulationError
from slurm_sim.jobs import JobRecord, JobSpec
from slurm_sim.state import PendingJob, RunningJob
from slurm_sim.table import JobTable
from tests.reference.observing import observe
from tests.reference.simulator import ReferenceSimulator as Reference

Dice = Callable[[int, int], int]
"""An integer between these two, both included."""
T = TypeVar("T")
MINUTE_S = 60


def choose(dice: Dice, values: Sequence[T]) -> T:
    return values[dice(0, len(values) - 1)]


def params(dice: Dice, rich: bool) -> Params:
    return Params(
        select_type=choose(dice, list(SelectType)) if rich else SelectType.LINEAR,
        memory_is_consumable=bool(dice(0, 1)),
        **(_default_memory(dice) if rich else {}),
        threads_per_core=choose(dice, [1, 1, 2, 4]) if rich else 1,
        idle_threads_count=dice(0, 2) > 0,
        sched_interval_s=choose(dice, [60, 30, 7]),
        batch_sched_delay_s=dice(0, 5),
        sched_min_interval_s=choose(dice, [0, 0, 0, 2, 15, 100]),
        default_queue_depth=choose(dice, [100, 1, 3]),
        main=dice(0, 15) > 0,
        backfill=dice(0, 9) > 0,
        bf_interval_s=choose(dice, [30, 10, 45, 400]),
        bf_window_s=choose(dice, [86400, 600, 3000]),
        bf_resolution_s=choose(dice, [60, 1, 300]),
        bf_one_resv_per_job=dice(0, 2) == 0,
        bf_busy_nodes=dice(0, 3) == 0,
        bf_window_linear_s=choose(dice, [None, None, 1, 45]),
        bf_max_job_test=choose(dice, [500, 1, 5]),
        bf_max_job_user=choose(dice, [None, None, 1, 2]) if rich else None,
        bf_max_job_part=choose(dice, [None, None, 2, 5]) if rich else None,
        bf_max_job_start=choose(dice, [None, None, 1]) if rich else None,
        bf_max_job_user_part=choose(dice, [None, None, 1, 3]) if rich else None,
        bf_max_job_assoc=choose(dice, [None, None, 2]) if rich else None,
        bf_job_part_count_reserve=choose(dice, [None, None, 1, 3]) if rich else None,
        bf_min_age_reserve_s=choose(dice, [0, 0, 100, 2000]),
        bf_min_prio_reserve=choose(dice, [0, 0, 30, 300]),
        partition_job_depth=choose(dice, [None, None, 1, 4]),
        sched_max_job_start=choose(dice, [None, None, 1, 3]),
        defer=bool(dice(0, 1)),
        bf_max_job_array_resv=choose(dice, [20, 1]),
        bf_node_space_size=choose(dice, [None, None, None, 3]),
        bf_cycle_us=choose(dice, [None, 0, 700_000, 3_300_000]),
        time_min_extends=bool(dice(0, 1)),
        priority_multifactor=dice(0, 2) > 0,
        priority_weight_age=choose(dice, [10000, 0]),
        priority_max_age_s=choose(dice, [7 * 86400, 3600]),
        priority_weight_job_size=choose(dice, [1000, 0]),
        priority_favor_small=bool(dice(0, 1)),
        priority_weight_partition=choose(dice, [0, 500]),
        priority_weight_qos=choose(dice, [0, 700]) if rich else 0,
        priority_weight_fairshare=choose(dice, [0, 5000]) if rich else 0,
        priority_decay_half_life_s=choose(dice, [7 * 86400, 3600, 0]),
        priority_calc_period_s=choose(dice, [300, 100]),
        accrue_always=bool(dice(0, 1)),
        incr_only=dice(0, 3) == 0,
        priority_weight_cpus=choose(dice, [0.0, 0.0, 1500.0]) if rich else 0.0,
        priority_weight_memory=choose(dice, [0.0, 0.0, 0.25]) if rich else 0.0,
        priority_weight_nodes=choose(dice, [0.0, 0.0, 700.0, 4e9]) if rich else 0.0,
        priority_weight_gpus=choose(dice, [0.0, 0.0, 3000.0]) if rich else 0.0,
        small_relative_to_time=dice(0, 4) == 0,
        no_normal_part=dice(0, 4) == 0,
        no_normal_qos=dice(0, 4) == 0,
        no_normal_tres=dice(0, 4) == 0,
        max_tres=dice(0, 4) == 0,
        over_time_limit_s=choose(dice, [0, 0, 0, 60, 1200]),
        limit_check_s=choose(dice, [30, 0]),
        kill_wait_s=choose(dice, [30, 0]),
        min_job_age_s=choose(dice, [300, 300, 15, 0]),
        requeue_delay_s=choose(dice, [121, 0, 13]),
    )


def _default_memory(dice: Dice) -> dict[str, Any]:
    one = choose(dice, [None, None, "default_memory_per_cpu_mib", "default_memory_per_node_mib"])
    return {one: choose(dice, [3, 7, 20])} if one else {}


def config(dice: Dice, rich: bool = True) -> ClusterConfig:
    count = choose(dice, [6, 3, 9, 70, 130]) if dice(0, 3) == 0 else 6
    energy = rich and dice(0, 3) == 0
    kinds = [
        NodeSpec(
            "",
            cpus=choose(dice, [8, 4]),
            memory_mib=choose(dice, [64, 32]),
            gpus=dice(0, 2),
            weight=choose(dice, [1, 1, 2, 5]) if rich else 1,
            features=choose(dice, [(), ("a",), ("a", "b")]) if rich else (),
            idle_w=100.1 * energy,
            busy_w=300.7 * energy,
        )
        for _ in range(choose(dice, [2, 6]))
    ]
    most = NodeSpec("", cpus=8, memory_mib=64, gpus=2, idle_w=100.1 * energy, busy_w=300.7 * energy)
    nodes = tuple(
        replace(choose(dice, kinds) if number < 10 else most, name=f"n{number}")
        for number in range(1, count + 1)
    )
    names = tuple(node.name for node in nodes)
    partitions = [
        Partition(
            "all",
            names,
            default_time_s=choose(dice, [None, 1200]),
            qos=choose(dice, [None, None, "part"]) if rich else None,
        ),
        Partition(
            "left",
            names[: 2 * count // 3],
            priority_tier=choose(dice, [2, 1]),
            priority_job_factor=3,
            over_time_limit_s=choose(dice, [None, None, 0, 300]),
            **(_default_memory(dice) if rich else {}),
            billing_weight_cpus=choose(dice, [1.0, 0.3]),
            billing_weight_memory=choose(dice, [0.0, 0.01]),
            billing_weight_gpus=choose(dice, [0.0, 8.0]),
        ),
        Partition(
            "right", names[count // 3 :], max_time_s=120 * MINUTE_S, exclusive=bool(dice(0, 1))
        ),
    ]
    return ClusterConfig(
        nodes,
        tuple(partitions[: dice(1, 3)]),
        params(dice, rich),
        qos=_qos(dice) if rich else (Qos("normal"),),
        associations=_associations(dice) if rich else (),
        reservations=_reservations(dice, names) if rich and dice(0, 3) == 0 else (),
        node_changes=_changes(dice, names) if rich and dice(0, 3) == 0 else (),
    )


def _qos(dice: Dice) -> tuple[Qos, ...]:
    def limit(values: Sequence[int]) -> int | None:
        return choose(dice, values) if dice(0, 4) == 0 else None

    def one(name: str) -> Qos:
        return Qos(
            name,
            priority=dice(0, 3),
            usage_factor=choose(dice, [1.0, 1.0, 0.0, 2.5]),
            max_jobs_per_user=limit([1, 2]),
            max_submit_jobs_per_user=limit([3, 6]),
            max_jobs_per_account=limit([1, 3]),
            max_submit_jobs_per_account=limit([4, 8]),
            max_nodes_per_account=limit([2, 4]),
            max_cpus_per_account=limit([6, 16]),
            max_gpus_per_account=limit([1, 3]),
            max_nodes_per_user=limit([2, 4]),
            max_cpus_per_user=limit([4, 12]),
            max_gpus_per_user=limit([1, 3]),
            grp_jobs=limit([2, 3]),
            grp_nodes=limit([3, 5]),
            grp_cpus=limit([8, 20]),
            grp_gpus=limit([2, 4]),
        )

    return one("normal"), one("part"), one("high")


def _associations(dice: Dice) -> tuple[Association, ...]:
    def together() -> dict[str, Any]:
        limits = {"grp_jobs": [2, 3], "grp_nodes": [3, 5], "grp_cpus": [8, 20], "grp_gpus": [2, 4]}
        return {name: choose(dice, values) for name, values in limits.items() if dice(0, 7) == 0}

    every = (
        Association("root", max_jobs=None, **together()),
        Association("physics", shares=3, max_jobs=choose(dice, [None, 2]), **together()),
        Association("theory", parent="physics", shares=2, **together()),
        Association("physics", "a", shares=5, max_jobs=choose(dice, [None, 1]), **together()),
        Association("theory", "b", shares=choose(dice, [1, 0])),
        Association("root", "c", shares=2),
    )
    return tuple(item for item in every if dice(0, 1))


def _reservations(dice: Dice, names: Sequence[str]) -> tuple[Reservation, ...]:
    def one(name: str, users: tuple[str, ...]) -> Reservation:
        start_s = dice(0, 6000)
        first = dice(0, len(names) - 1)
        return Reservation(
            name, start_s, start_s + dice(1, 5000), tuple(names[first : first + dice(1, 4)]), users
        )

    return (one("mine", ("a", "b")), one("maintenance", ()))[: dice(1, 2)]


def _changes(dice: Dice, names: Sequence[str]) -> tuple[NodeChange, ...]:
    return tuple(
        NodeChange(dice(0, 8000), choose(dice, names), choose(dice, list(NodeAction)))
        for _ in range(dice(1, 5))
    )


def specs(
    dice: Dice, cluster: ClusterConfig, rich: bool = True, most: int = 25, exact: bool = False
) -> list[JobSpec]:
    """Jobs, not all of which the cluster accepts. `exact`: they run up to their limits."""
    jobs = list[JobSpec]()
    spread_s = choose(dice, [5000, 500, 50_000])
    array_of: int | None = None
    for number in range(1, dice(1, most) + 1):
        limit_s = MINUTE_S * dice(1, 120) if dice(0, 3) else 600 * dice(1, 4)
        array_of = choose(dice, [array_of, None, number]) if rich and dice(0, 3) == 0 else array_of
        in_array = array_of if dice(0, 1) else None
        kind = (
            choose(dice, ["after", "afterany", "afterok", "afternotok"])
            if number > 1 and dice(0, 4) == 0
            else ""
        )
        joiner = choose(dice, [",", "?"])
        delay = "+2" if kind == "after" and dice(0, 2) == 0 else ""
        others = [f"{kind}:{dice(1, number - 1)}{delay}" for _ in range(dice(1, 2))] if kind else []
        partition = choose(dice, cluster.partitions)
        limited_s = choose(dice, [limit_s, limit_s, limit_s, None])
        jobs.append(
            JobSpec(
                nodes=(
                    dice(1, min(len(partition.nodes), 7))
                    if dice(0, 5)
                    else dice(1, len(partition.nodes))
                ),
                time_limit_s=limited_s,
                runtime_s=(
                    limit_s
                    if exact
                    else choose(dice, [None, dice(0, limit_s + 100), dice(0, limit_s), limit_s])
                ),
                user=choose(dice, "abc"),
                account=choose(dice, ["physics", "theory", "root", "new"]) if rich else "root",
                partition=choose(
                    dice, [None, partition.name, _several(dice, cluster, partition.name)]
                ),
                submit_s=dice(0, spread_s),
                dependency=joiner.join(others),
                begin_s=dice(0, 9000) if dice(0, 7) == 0 else None,
                held=dice(0, 9) == 0,
                requeue=bool(dice(0, 1)),
                exit_code=dice(0, 1),
                cpus_per_node=choose(dice, [1, 2, 4, 8]) if rich else 1,
                memory_mib_per_node=choose(dice, [0, 16, 32]) if rich else 0,
                gpus_per_node=choose(dice, [0, 0, 1, 2]) if rich else 0,
                exclusive=rich and dice(0, 6) == 0,
                qos=choose(dice, cluster.qos).name if dice(0, 1) else None,
                constraint=choose(dice, ["", "", "a", "a&b", "a|b"]) if rich else "",
                reservation="mine" if rich and dice(0, 5) == 0 and cluster.reservations else None,
                priority=dice(1, 3000) if dice(0, 19) == 0 else None,
                nice=dice(-300, 3000) if dice(0, 9) == 0 else 0,
                array_job_id=in_array,
                array_throttle=choose(dice, [None, 1, 2]) if in_array is not None else None,
                cancel_s=dice(0, 9000) if dice(0, 9) == 0 else None,
                # Without a limit it could become a year's, of which each pass would be simulated.
                time_min_s=dice(1, limit_s) if limited_s and dice(0, 3) == 0 else None,
            )
        )
    return jobs


def _several(dice: Dice, cluster: ClusterConfig, name: str) -> str:
    """This partition, and perhaps others before and after it."""
    chosen = [item.name for item in cluster.partitions if item.name == name or dice(0, 1)]
    return ",".join(chosen[::-1] if dice(0, 1) else chosen)


def long_queue(dice: Dice) -> tuple[ClusterConfig, list[JobSpec]]:
    """So many jobs that most passes end before the queue does, or only learn what the last one did."""
    users = choose(dice, ["a", "ab", "abcdef"])
    shares = choose(dice, [0, 0, 5000])
    cluster = whole_nodes(
        choose(dice, [8, 20, 76]),
        Params(
            default_queue_depth=choose(dice, [100, 1000, 10]),
            bf_interval_s=choose(dice, [30, 10, 60]),
            bf_window_s=choose(dice, [86400, 9000, 20_000]),
            bf_resolution_s=choose(dice, [60, 300, 600]),
            bf_max_job_test=choose(dice, [500, 8, 15, 30]),
            bf_max_job_user=choose(dice, [None, None, None, 9]),
            bf_cycle_us=choose(dice, [None, 40_000]),
            time_min_extends=bool(dice(0, 1)),
            priority_multifactor=dice(0, 2) > 0,
            priority_weight_age=choose(dice, [10_000, 1000]),
            priority_weight_job_size=choose(dice, [0, 1000]),
            priority_weight_fairshare=shares,
        ),
    )
    account = "lab" if shares else "root"
    if shares:
        members = [Association(account, user=user) for user in users]
        cluster = replace(
            cluster,
            associations=(Association("root"), Association(account, parent="root"), *members),
        )
    if dice(0, 1):
        cluster = replace(cluster, qos=(Qos("normal", max_jobs_per_user=choose(dice, [8, 2, 5])),))
    span_s = choose(dice, [5000, 20_000])
    jobs = list[JobSpec]()
    for _ in range(dice(40, 80)):
        limit_s = choose(dice, [300, 900, 2700, 9000, 40_000])
        runtime_s = limit_s // choose(dice, [10, 2, 1, 1])
        nodes = min(choose(dice, [1, 1, 2, 4, 9, 16]), len(cluster.nodes))
        user, submit_s = choose(dice, users), dice(0, span_s)
        least_s = dice(60, limit_s) if dice(0, 2) == 0 else None
        jobs.append(
            JobSpec(
                nodes,
                limit_s,
                runtime_s,
                user=user,
                account=account,
                submit_s=submit_s,
                time_min_s=least_s,
            )
        )
    return cluster, jobs


def table(cluster: ClusterConfig, jobs: Sequence[JobSpec]) -> JobTable:
    """These jobs as columns, without what a table does not have (dependencies, holds, ...)."""

    def column(name: str, otherwise: object) -> list[Any]:
        return [otherwise if getattr(job, name) is None else getattr(job, name) for job in jobs]

    return JobTable(
        column("submit_s", 0),
        column("nodes", 1),
        column("time_limit_s", -1),
        column("runtime_s", -1),
        user=column("user", ""),
        account=column("account", ""),
        partition=column("partition", cluster.partitions[0].name),
        qos=column("qos", cluster.qos[0].name),
        cpus_per_node=column("cpus_per_node", 1),
        memory_mib_per_node=column("memory_mib_per_node", 0),
        gpus_per_node=column("gpus_per_node", 0),
        exclusive=column("exclusive", False),
        exit_code=column("exit_code", 0),
        cancel_s=column("cancel_s", -1),
    )


Call = tuple[int, str, int, int]
CALLS = [
    "cancel",
    "requeue",
    "hold",
    "release",
    "drop_dependency",
    "set_runtime_end",
    "forget_future",
    "node_down",
    "node_up",
    "node_drain",
    "submit",
    "suspend",
    "resume",
    "resize",
    "energy_j",
    "sample",
    "fork",
    "run_until_start",
    "timers",
]


def calls(dice: Dice, most: int = 12) -> list[Call]:
    """(seconds to go on before, what, a job or a node, a number)"""
    return [
        (dice(0, 2000), choose(dice, CALLS), dice(1, 28), dice(0, 9)) for _ in range(dice(0, most))
    ]


def call(sim: Any, name: str, subject: int, number: int) -> object:
    """Makes a call; what it returned, or the error."""
    names = sim.node_names
    try:
        if name == "set_runtime_end":
            return sim.set_runtime_end(subject, sim.now_s + 100 * number - 50)
        if name == "forget_future":
            return sim.forget_future()
        if name == "step":
            return sim.step(number)
        if name == "resize":
            return sim.resize(subject, number)
        if name.startswith("node"):
            return getattr(sim, name)(names[subject % len(names)])
        if name == "submit":
            return sim.submit(_late(subject, number, sim.now_s))
        if name == "run_until_start":
            return sim.run_until_start(subject, sim.now_s + 300 * number)
        if name in ("energy_j", "sample", "fork", "timers"):
            found = getattr(sim, name)()
            return None if name == "fork" else plain(found)
        return getattr(sim, name)(subject)
    except SimulationError as error:
        return type(error), str(error)


IN_HOOKS = [
    "submit",
    "cancel",
    "requeue",
    "sample",
    "hold",
    "node_drain",
    "suspend",
    "timers",
    "resize",
    "step",
]


def listen(sim: Any, most: int = 20) -> list[object]:
    """Hooks that call the simulator in turn, so many times; what they hear, and what they are
    answered.
    """
    heard = list[object]()

    def hook(job: JobRecord) -> None:
        heard.append((sim.now_s, job))
        if len(heard) < 2 * most:
            name = IN_HOOKS[(job.job_id + len(heard)) % len(IN_HOOKS)]
            heard.append(call(sim, name, 1 + (7 * job.job_id + len(heard)) % 28, job.job_id % 10))

    sim.on_start.append(hook)
    sim.on_end.append(hook)
    return heard


def episodes(kind: Any, cluster: ClusterConfig, jobs: Sequence[JobSpec], seed: int) -> object:
    """All that an environment shows in an episode from each of two starts, or the error."""
    rng = np.random.default_rng(seed)
    task = Task(
        step_s=int(rng.choice([100, 900])),
        history=3,
        horizon_s=9000,
        skip_to_outcome=bool(rng.integers(2)),
    )
    names = [None, *(partition.name for partition in cluster.partitions)]
    spec = JobSpec(
        int(rng.integers(1, 3)),
        1800,
        int(rng.integers(0, 2000)),
        "c",
        partition=names[rng.integers(len(names))],
    )
    begins_s = rng.integers(0, 6000, 2).tolist()
    try:
        with ExitStack() as patched:
            for user in ("starts", "episode") if kind is Reference else ():
                patched.enter_context(patch(f"mirage.provision.env.{user}.observe", observe))
            pair = Pair(spec, replace(spec, nodes=1))
            env = SubmitEnv(starts(kind(cluster, jobs), pair, begins_s, task), task)
            return [_shown(env, start, rng) for start in range(2)]
    except SimulationError as error:
        return type(error), str(error)


def _shown(env: SubmitEnv, start: int, rng: np.random.Generator) -> list[object]:
    """All steps of an episode."""
    rows, _ = env.reset(options={"start": start})
    shown: list[object] = [rows.tolist()]
    over = False
    while not over:
        rows, reward, terminated, truncated, info = env.step(rng.integers(2))
        over = terminated or truncated
        values = {name: np.asarray(value).tolist() for name, value in info.items()}
        shown.append((rows.tolist(), reward, terminated, truncated, values))
    return shown


def _late(subject: int, number: int, now_s: int) -> JobSpec:
    return JobSpec(
        1 + subject % 4,
        MINUTE_S * (1 + 20 * number),
        50 * subject * number,
        user="abcde"[number % 4 + number // 8],
        partition="p0,p1" if number == 2 else None,
        held=number == 3,
        begin_s=now_s + 505 if number == 6 else None,
        submit_s=None if number < 5 else now_s + 100 * number - 600,
        dependency="" if number % 4 else f"afterany:{subject}",
        job_id=None if number else 100 + subject,
        array_job_id=subject if number == 7 else None,
        comment=f"late {subject}",
        nice=100 * (number % 3),
    )


def plain(value: Any) -> Any:
    """Samples as lists of ints, whatever arrays they are made of; -1 for no limit."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return value.tolist()
    return [-1 if item is None else item for item in value] if isinstance(value, list) else value


def everything(sim: Any) -> tuple[object, ...]:
    return (
        sim.now_s,
        sim.next_event_s(),
        sim.timers().last_backfill_us,
        sim.pending(),
        sim.running(),
        sim.suspended(),
        sim.finished(),
        sim.cut_short(),
        sim.outages(),
        sim.energy_j(),
        [(sim.is_up(name), sim.is_idle(name)) for name in sim.node_names],
        plain(sim.sample()),
    )


def accepted(cluster: ClusterConfig, jobs: Sequence[JobSpec]) -> list[JobSpec]:
    """Those of the jobs that the cluster accepts, one by one."""
    admission = Admission(cluster)
    good = list[JobSpec]()
    for job in jobs:
        try:
            admission.check(job)
        except SimulationError:
            continue
        good.append(job)
    return good


def middle(dice: Dice, rich: bool) -> tuple[Any, ...]:
    """What `from_state` takes: a simulation as it was after a while, or as a live cluster may be
    instead.
    """
    cluster = config(dice, rich)
    jobs = accepted(cluster, specs(dice, cluster, rich))
    sim = Reference(cluster)
    for job in jobs:
        with suppress(InvalidJob):  # waits for itself
            sim.submit(job)
    sim.run_until(dice(0, 8000))
    shown = dice(0, 2) == 0
    running = [
        RunningJob(
            _asked(job, shown), job.start_s or 0, job.node_names, job.submit_s, job.eligible_s
        )
        for job in sim.running()
    ]
    pending = [
        PendingJob(_asked(job, shown), job.submit_s, job.eligible_s, job.reason)
        for job in sim.pending()
    ]
    if pending and dice(0, 2) == 0:  # its nodes were taken out, or have lost what it asks for
        at, nodes = dice(0, len(pending) - 1), len(cluster.nodes) + dice(-2, 1)
        pending[at] = replace(pending[at], spec=replace(pending[at].spec, nodes=max(1, nodes)))
    down = [name for name in sim.node_names if not sim.is_up(name) or dice(0, 11) == 0]
    late = [replace(job, submit_s=sim.now_s + dice(0, 3000)) for job in jobs[: dice(0, 5)]]
    timers = sim.timers() if dice(0, 1) else None
    return cluster, sim.now_s, running, pending, down, timers, late


def _asked(job: JobRecord, shown: bool) -> JobSpec:
    """As it is now; `shown`: with the priority that squeue shows, which it keeps."""
    waits_for = job.spec.dependency if job.dependencies else ""
    spec = replace(
        job.spec,
        job_id=job.job_id,
        nodes=job.nodes,
        time_limit_s=job.time_limit_s,
        dependency=waits_for,
    )
    priority = job.priority if shown and job.priority else spec.priority
    return replace(spec, begin_s=job.begin_s, held=job.held, priority=priority)

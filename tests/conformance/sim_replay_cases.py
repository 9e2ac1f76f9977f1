"""The cases of sim_replays: chosen ones, windows of the traces, and random ones; their clusters,
jobs and events.

Nothing runs here. What a case needs of slurm.conf, sacctmgr and sbatch is text that sim_replays
gives to them.
"""

from __future__ import annotations

import csv
import gzip
import random
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from benchmarks.sim_common import SHARED
from slurm_sim.seconds import DAY_S

BEGIN_S = 1893456120
"""Second 0 of a replay on replay.py's clock (its EPOCH and --offset)."""
INSTANCE = 3
"""Of replay.py: the number in the cluster's name and in its ports."""
OF_REPLAY = {
    "nodes": (
        "NodeName=n[1-{a.nodes}] NodeHostname=localhost Port=[{p0+1}-{p0+a.nodes}] CPUs=1"
        " RealMemory=1000 State="
    ),
    "node": "CPUs=1 RealMemory=1000",
    "priority": "PriorityType=priority/multifactor",
    "partitions": (
        "PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=EXCLUSIVE State=UP"
    ),
}
"""What replay.py writes into its slurm.conf, where a replay may want something else."""


@dataclass(frozen=True)
class Window:
    """Of a trace: jobs that ran or waited at the begin, submitted at once, then the submissions of
    some hours.
    """

    trace: str
    begin: str
    """UTC."""
    hours: int


@dataclass(frozen=True)
class Drawn:
    """Random jobs, of one of `KINDS`."""

    kind: str
    seed: int


@dataclass(frozen=True)
class Case:
    """One replay."""

    workload: str | Window | Path | Drawn
    """Path: a jobs.csv."""
    nodes: int
    options: tuple[str, ...] = ()
    """Of replay.py."""
    conf: tuple[tuple[str, str], ...] = ()
    """Instead of OF_REPLAY."""
    accounting: tuple[str, ...] = ()
    """What sacctmgr is told before slurmctld starts."""
    events: tuple[Event, ...] = ()


class Event(NamedTuple):
    """What somebody tells slurmctld meanwhile; sim_truth reads them from events.csv."""

    time_s: int
    action: str
    """A key of `COMMANDS`."""
    target: str
    """A job's id, a node, or the nodes of a reservation."""
    value: str = ""
    """Of a reservation: its begin and end, in seconds, and the user: ``3600-7200:games``."""


COMMANDS = {
    "hold": "scontrol hold {target}",
    "release": "scontrol release {target}",
    "cancel": "scancel {target}",
    "requeue": "squeue -h -t RUNNING -j {target} -o %i | xargs -r scontrol requeue",
    "drain": "scontrol update NodeName={target} State=DRAIN Reason=replay",
    "down": "scontrol update NodeName={target} State=DOWN Reason=replay",
    "up": "scontrol update NodeName={target} State=RESUME",
    "reserve": "scontrol create reservation Nodes={target} {value}",
}


def command(event: Event) -> list[str]:
    """The command line of an event. Only running jobs are requeued: slurmctld would take those just
    ended, too.
    """
    value = ""
    if event.action == "reserve":
        times, _, user = event.value.partition(":")
        begin, end = (_timestamp(int(part)) for part in times.split("-"))
        value = f"StartTime={begin} EndTime={end} " + (
            f"Users={user}" if user else "Users=root Flags=MAINT"
        )
    text = COMMANDS[event.action].format(**event._asdict() | {"value": value})
    return ["sh", "-c", text] if "|" in text else text.split()


def _timestamp(second: int) -> str:
    return f"{datetime.fromtimestamp(BEGIN_S + second, UTC):%Y-%m-%dT%H:%M:%S}"


def _sched(text: str) -> tuple[str, str]:
    return "--sched", text


def _prio(text: str) -> tuple[str, str]:
    return "--prio", text


FAST = (
    "PartitionName=fast Nodes=n[1-6] MaxTime=INFINITE OverSubscribe=EXCLUSIVE PriorityTier=5"
    " State=UP"
)
SIDE = (
    "PartitionName=side Nodes=n[5-12] MaxTime=INFINITE OverSubscribe=EXCLUSIVE PriorityJobFactor=9"
    " State=UP"
)
TWO_PARTITIONS = (("partitions", f"{OF_REPLAY['partitions']}\n{FAST}"),)
THREE_PARTITIONS = (("partitions", f"{OF_REPLAY['partitions']}\n{FAST}\n{SIDE}"),)
SHARED_NODES = ("partitions", "PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
SHARED_AND_WHOLE = f"""{SHARED_NODES[1]}
PartitionName=whole Nodes=n[1-6] MaxTime=INFINITE OverSubscribe=EXCLUSIVE PriorityJobFactor=9 State=UP"""
THREE_KINDS = (
    ("n[1-5]", 1, 5, f"{OF_REPLAY['node']} Feature=big"),
    ("n[6-11]", 6, 11, f"{OF_REPLAY['node']} Feature=new"),
    ("n[12-16]", 12, 16, f"{OF_REPLAY['node']} Feature=big,new"),
)
"""Of nodes: names, the first and the last, what slurm.conf says of them."""
TWO_THREADS = "CPUs=16 Sockets=1 CoresPerSocket=8 ThreadsPerCore=2 RealMemory=64000 Gres=gpu:4"
MIXED_NODES = (
    ("n[1-5]", 1, 5, "CPUs=32 RealMemory=128000 Gres=gpu:4"),
    ("n[6-11]", 6, 11, "CPUs=16 RealMemory=64000 Gres=gpu:2"),
    ("n[12-16]", 12, 16, "CPUs=24 RealMemory=96000"),
)
SIZES = tuple(
    (names, first, last, has.partition(" Gres")[0]) for names, first, last, has in MIXED_NODES
)
MIXED_PARTITIONS = (
    "PartitionName=gpu Nodes=n[1-11] Default=YES MaxTime=INFINITE State=UP\n"
    "PartitionName=cpu Nodes=n[6-16] MaxTime=INFINITE PriorityJobFactor=5 State=UP"
)
GPU_NODES = tuple(
    (names, first, last, f"{has} Feature={feature}")
    for (names, first, last, has), feature in zip(
        MIXED_NODES, ("big", "big,new", "new"), strict=True
    )
)
GPU_PARTITIONS = (
    f"{MIXED_PARTITIONS}\nPartitionName=short Nodes=n[1-8] MaxTime=120 PriorityTier=5 State=UP"
)
LONG = _sched("bf_window=2880,bf_continue")
BY_AGE = _prio(
    "PriorityWeightAge=10000;PriorityMaxAge=7-0;PriorityWeightJobSize=1000;PriorityCalcPeriod=5"
)
CASES = {
    "small_first": Case(
        "steady",
        16,
        _prio(
            "PriorityWeightAge=1000;PriorityMaxAge=1-0;PriorityWeightJobSize=5000;PriorityFavorSmall=YES"
        ),
    ),
    "few_tested": Case(
        "steady", 16, _sched("bf_interval=60,bf_max_job_test=20,bf_resolution=300,bf_window=720")
    ),
    "no_weights": Case("steady", 16, _prio("PriorityWeightAge=0")),
    "builtin": Case("steady", 16, ("--schedtype", "sched/builtin")),
    "by_partition": Case("steady", 16, _sched("bf_max_job_part=15,bf_max_job_start=1,bf_continue")),
    "quick_age": Case(
        "steady",
        16,
        _prio(
            "PriorityWeightAge=100;PriorityMaxAge=0-2;PriorityWeightJobSize=100;PriorityFavorSmall=YES;"
            "PriorityCalcPeriod=1"
        ),
    ),
    "defaults": Case("bursts", 16, _sched("")),
    "main_alone": Case(
        "bursts", 16, _sched("default_queue_depth=2,sched_interval=300,bf_interval=600")
    ),
    "cons_tres": Case(
        "bursts",
        16,
        ("--select", "select/cons_tres", "--extra", "SelectTypeParameters=CR_Core_Memory"),
    ),
    "deferred": Case("wider", 24, _sched("bf_window=2880,bf_continue,defer")),
    "short_window": Case("wider", 24, _sched("bf_window=120,bf_max_job_test=50")),
    "timers": Case(
        "wider",
        24,
        _sched(
            "sched_interval=30,batch_sched_delay=10,bf_interval=15,bf_continue,default_queue_depth=5"
        ),
    ),
    "by_age": Case("steady", 16, _sched("bf_window=2880,bf_min_age_reserve=1800")),
    "by_priority": Case(
        "steady",
        16,
        (
            *_sched("bf_window=2880,bf_min_prio_reserve=300"),
            *_prio("PriorityWeightAge=1000;PriorityMaxAge=1-0;PriorityWeightJobSize=1000"),
        ),
    ),
    "few_reserved": Case(
        "wider", 24, _sched("bf_window=2880,bf_job_part_count_reserve=2,bf_max_job_user_part=40")
    ),
    "backfill_alone": Case("bursts", 16, _sched("sched_interval=-1")),
    "main_apart": Case(
        "bursts", 16, _sched("sched_min_interval=20000000,batch_sched_delay=5,bf_interval=120")
    ),
    "high_throughput": Case(  # as slurm.schedmd.com/high_throughput.html has it
        "bursts",
        24,
        _sched(
            "batch_sched_delay=20,bf_continue,bf_interval=300,bf_min_age_reserve=10800,bf_resolution=600,"
            "bf_yield_interval=1000000,partition_job_depth=500,sched_max_job_start=200,sched_min_interval=2000000"
        ),
    ),
    "main_few": Case(
        "bursts",
        16,
        _sched(
            "partition_job_depth=3,sched_max_job_start=1,defer,bf_interval=120,sched_interval=45"
        ),
    ),
    "dependencies": Case("dependencies", 16, conf=TWO_PARTITIONS),
    "partitions": Case(
        "partitions",
        16,
        _prio(
            "PriorityWeightAge=1000;PriorityMaxAge=1-0;PriorityWeightJobSize=500;PriorityWeightPartition=300"
        ),
        THREE_PARTITIONS,
    ),
    "shared_gpus": Case(
        "shared",
        12,
        (
            "--select",
            "select/cons_tres",
            "--extra",
            "SelectTypeParameters=CR_Core_Memory;GresTypes=gpu;SlurmdParameters=config_overrides",
        ),
        (
            ("node", "CPUs=16 RealMemory=64000 Gres=gpu:4"),
            SHARED_NODES,
        ),
    ),
    "ls6_december": Case(Window("ls6_a100_dev", "2022-12-15T12:00", 30), 64, (*LONG, *BY_AGE)),
    "ls6_january": Case(Window("ls6_a100_dev", "2023-01-20T06:00", 30), 76, (*LONG, *BY_AGE)),
    "ls6_early_february": Case(
        Window("ls6_a100_dev", "2023-02-07T06:00", 30), 76, (*LONG, *BY_AGE)
    ),
    "ls6_mid_february": Case(
        Window("ls6_a100_dev", "2023-02-13T12:00", 30), 76, (*_sched(""), *BY_AGE)
    ),
    "kth_october": Case(Window("kth_sp2", "1996-10-22T12:00", 24), 100, (*LONG, *BY_AGE)),
    "kth_february": Case(
        Window("kth_sp2", "1997-02-11T06:00", 24),
        100,
        (
            *_sched(
                "bf_window=2880,bf_continue,bf_max_job_test=1000,default_queue_depth=1000,bf_resolution=300"
            ),
            *_prio(
                "PriorityWeightAge=1000;PriorityMaxAge=1-0;PriorityWeightJobSize=1000;PriorityFavorSmall=YES"
            ),
        ),
    ),
}
Row = dict[str, object]
WIDTHS = [1, 2, 3, 4, 6, 8, 12, 16], [40, 18, 6, 14, 6, 10, 3, 3]


def _runtime_s(dice: random.Random, limit_min: int) -> int:
    """A twelfth of the jobs is killed at the limit; most others end long before."""
    if dice.random() < 0.08:
        return 60 * limit_min + 1
    return max(5, int(60 * limit_min * dice.uniform(0.02, 1.0) ** 1.3))


def _jobs(seed: int, count: int, gap_s: float, kind: str) -> list[Row]:
    dice, now_s, rows = random.Random(seed), 0.0, list[Row]()
    for number in range(1, count + 1):
        if kind != "bursts":
            now_s += dice.expovariate(1 / gap_s)
        elif number % 20 == 1:
            now_s += dice.randint(600, 3600)
        elif dice.random() < 0.5:
            now_s += dice.choice([0, 0, 1, 2, 5, 17, 40])
        limit_min = dice.choice([10, 20, 30, 30, 60, 60, 120, 120, 240, 480])
        row: Row = {"job_id": number, "submit_s": int(now_s), "nodes": dice.choices(*WIDTHS)[0]}
        row |= {"timelimit_min": limit_min, "runtime_s": _runtime_s(dice, limit_min)}
        if kind in ("dependencies", "site"):
            row |= {"partition": "gpu", "dependency": "", "begin_s": ""}
            if int(str(row["nodes"])) <= 6 and dice.random() < 0.25:
                row["partition"] = "fast"
            if number > 3 and dice.random() < 0.25:
                other = dice.randint(max(1, number - 25), number - 1)
                row["dependency"] = f"{dice.choice(['afterany', 'afterany', 'after'])}:{other}"
            elif dice.random() < 0.1:
                row["begin_s"] = int(now_s) + dice.randint(100, 9000)
        if kind == "site":
            row["constraint"] = ""
            if row["partition"] == "gpu" and int(str(row["nodes"])) <= 8 and dice.random() < 0.25:
                row["partition"] = "side"
            elif row["partition"] == "gpu" and int(str(row["nodes"])) <= 4 and dice.random() < 0.4:
                row["constraint"] = dice.choice(["big", "new", "big&new", "big|new"])
        if kind in (
            "partitions",
            "several",
            "several_once",
            "several_limits",
            "priorities",
            "sizes",
        ):
            fitting = [
                name
                for name, most in (("gpu", 16), ("fast", 6), ("side", 8))
                if int(str(row["nodes"])) <= most
            ]
            row["partition"] = dice.choice(fitting)
            if kind in ("several", "several_once", "several_limits"):
                row["partition"] = ",".join(dice.sample(fitting, dice.randint(1, len(fitting))))
        if kind == "priorities":
            row["nice"] = dice.choice(["", "", "", 50, 400])
            if dice.random() < 0.15:
                row["runtime_s"] = 60 * limit_min + dice.randint(1, 2400)
        if kind == "shared":
            row |= {
                "nodes": dice.choices([1, 2, 4], [80, 15, 5])[0],
                "cpus": dice.choice([1, 2, 4, 4, 8, 16]),
            }
            row |= {
                "mem_mib": dice.choice([2000, 4000, 8000, 16000, 32000]),
                "gpus": dice.choices([0, 1, 2, 4])[0],
            }
            row["exclusive"] = int(dice.random() < 0.1)
        rows.append(row)
    return rows


def _of_window(window: Window, nodes: int) -> list[Row]:
    """Without jobs wider than the cluster, cancelled ones, and those that wait over 20 days (most
    likely held).
    """
    begin_s = int(datetime.fromisoformat(window.begin).replace(tzinfo=UTC).timestamp())
    running, pending, later = list[Row](), list[Row](), list[Row]()
    with gzip.open(SHARED / "traces" / f"{window.trace}.csv.gz", "rt") as file:
        for job in csv.DictReader(file):
            submit_s, start_s, end_s, limit_s, wide = (
                int(job[name]) for name in ("submit", "start", "end", "timelimit_s", "nodes")
            )
            if end_s <= start_s or wide > nodes:
                continue
            row: Row = {
                "submit_s": 0,
                "nodes": wide,
                "timelimit_min": max(1, limit_s // 60),
                "runtime_s": end_s - start_s,
            }
            if begin_s < submit_s <= begin_s + 3600 * window.hours:
                later.append(row | {"submit_s": submit_s - begin_s})
            elif submit_s <= begin_s < start_s < submit_s + 20 * DAY_S:
                pending.append(row)
            elif start_s <= begin_s < end_s:
                left_s = max(60, limit_s - (begin_s - start_s))
                running.append(
                    row
                    | {
                        "timelimit_min": left_s // 60,
                        "runtime_s": min(end_s - begin_s, left_s + 60),
                    }
                )
    return [
        {"job_id": number} | row for number, row in enumerate((*running, *pending, *later), start=1)
    ]


SHARED_GPUS = (("node", "CPUs=16 RealMemory=64000 Gres=gpu:4"), SHARED_NODES)
KINDS = {
    # Whole nodes:
    "whole": (),
    "unlimited": (),  # some jobs without a time limit
    "flexible": (),  # half of the jobs with --time-min
    "arrays": (),
    "dependencies": TWO_PARTITIONS,  # and begin times
    "partitions": THREE_PARTITIONS,  # that overlap
    "several": THREE_PARTITIONS,  # jobs in several of them,
    "several_once": THREE_PARTITIONS,  # with bf_one_resv_per_job,
    "several_limits": THREE_PARTITIONS,  # with limits of users and QOS
    "priorities": THREE_PARTITIONS,  # --nice, PriorityFlags, PriorityWeightTRES, OverTimeLimit
    "basic": (("priority", "PriorityType=priority/basic"),),  # --nice, held and cancelled jobs
    "sizes": THREE_PARTITIONS,  # nodes that differ in CPUs, priorities by size
    "limits": (),  # of users in accounts and QOS, and fair share
    "accounts": (),  # the same of accounts and users with all below them
    "events": (),  # nodes that fail, reservations, held and cancelled jobs
    "requeues": (),  # nodes that fail, requeued jobs
    # events, dependencies, begin times, nodes of three kinds with features and weights
    "site": THREE_PARTITIONS,
    # Nodes that jobs share:
    "cores": (("node", "CPUs=16 RealMemory=64000"), SHARED_NODES),  # by CPUs
    "shared": (("node", "CPUs=16 RealMemory=64000"), SHARED_NODES),  # and memory
    "gpus": SHARED_GPUS,  # and GPUs
    "gpu_arrays": SHARED_GPUS,
    "some_exclusive": (
        SHARED_GPUS[0],
        ("partitions", SHARED_AND_WHOLE),
    ),  # one of two partitions gives whole nodes
    "memory": SHARED_GPUS,  # some jobs name no memory,
    "default_memory": (("node", TWO_THREADS),),  # for which there is a default
    "quotas": SHARED_GPUS,  # limits of nodes, CPUs and GPUs of users, accounts and QOS
    "threads": (("node", TWO_THREADS), SHARED_NODES),
    "mixed": (
        ("partitions", MIXED_PARTITIONS),
    ),  # nodes of three kinds with random weights, one without GPUs
    "gpu_site": (("partitions", GPU_PARTITIONS),),  # the same with what `site` has
}
"""Random cases, and what each has in its slurm.conf."""
UNEQUAL = {"site": THREE_KINDS, "mixed": MIXED_NODES, "gpu_site": GPU_NODES, "sizes": SIZES}
"""Kinds with unequal nodes, of random weights."""
SHARING = (
    "shared",
    "cores",
    "gpus",
    "memory",
    "default_memory",
    "quotas",
    "threads",
    "mixed",
    "gpu_site",
    "gpu_arrays",
    "some_exclusive",
)
"""Kinds whose jobs share nodes."""
OF_SIXTEEN = (
    "dependencies",
    "partitions",
    "several",
    "several_once",
    "several_limits",
    "priorities",
    "site",
    "mixed",
    "gpu_site",
    "sizes",
    "some_exclusive",
)
"""Kinds with so many nodes."""
DRAWN: dict[str, tuple[object, ...]] = {
    "bf_interval": (15, 20, 45, 60, 120),
    "bf_window": (720, 2880, 4320, 10080),
    "bf_resolution": (30, 120, 300, 600),
    "bf_max_job_test": (5, 20, 50, 1000),
    "bf_max_job_part": (10, 30),
    "bf_max_job_user": (8, 40),
    "bf_max_job_user_part": (10, 25),
    "bf_max_job_start": (1, 2, 5),
    "bf_min_age_reserve": (300, 3600),
    "bf_min_prio_reserve": (20, 500),
    "bf_job_part_count_reserve": (1, 3, 10),
    "bf_node_space_size": (10, 30),
    "bf_continue": ("",),
    "default_queue_depth": (1, 3, 20, 1000),
    "sched_interval": (20, 45, 120, 300),
    "batch_sched_delay": (1, 5, 20),
    "partition_job_depth": (1, 4, 20),
    "sched_max_job_start": (1, 3),
    "defer": ("",),
}
"""SchedulerParameters of random cases, and values that are not the default. Each is given in a
sixth of them.
"""


FLAGS = ("SMALL_RELATIVE_TO_TIME", "NO_NORMAL_PART", "NO_NORMAL_TRES", "ACCRUE_ALWAYS")
"""PriorityFlags of `priorities`."""
USERS = (("games", "a"), ("mail", "a"), ("news", "b"), ("proxy", "b"), ("backup", "c"))
"""Users that each Debian has, and their accounts. Account c is part of b."""
QOS = ("q1", "q2", "q3")
CLUSTER = f"gold{INSTANCE}"


def _with_qos(dice: random.Random, nodes: int) -> tuple[str, ...]:
    """Accounts, users and QOS, with random shares and limits. No limit is below half of the nodes."""
    wide = f"node={dice.randint(nodes // 2, nodes)}"
    limits = {
        "MaxJobsPU": dice.randint(1, 4),
        "MaxTRESPU": wide,
        "GrpTRES": wide,
        "GrpJobs": dice.randint(2, 6),
        "Priority": dice.randint(1, 100),
    }
    commands = [f"delete qos {','.join(QOS)}", "delete account a,b,c", f"delete cluster {CLUSTER}"]
    commands += [f"add cluster {CLUSTER}", *(f"add qos {name}" for name in QOS)]
    for name in QOS:
        given = [f"{limit}={value}" for limit, value in limits.items() if dice.random() < 0.5]
        commands += [f"modify qos {name} set {' '.join(given)}"] if given else []
    may = f"qos=normal,{','.join(QOS)}"
    for account, parent in (("a", "root"), ("b", "root"), ("c", "b")):
        commands.append(
            f"add account {account} cluster={CLUSTER} parent={parent}"
            f" fairshare={dice.randint(1, 5)} {may}"
        )
    for user, account in USERS:
        most = f"maxjobs={dice.randint(1, 5)}" if dice.random() < 0.4 else ""
        commands.append(
            f"add user {user} cluster={CLUSTER} account={account} fairshare={dice.randint(1, 5)}"
            f" {most}"
        )
    return tuple(commands)


def _accounts(dice: random.Random, nodes: int) -> tuple[str, ...]:
    """Accounts and users, with random shares and limits; none is below half of the nodes."""
    commands = ["delete account a,b,c", f"delete cluster {CLUSTER}", f"add cluster {CLUSTER}"]

    def limits() -> str:
        given = {
            "GrpTRES": f"node={dice.randint(nodes // 2, nodes)}",
            "GrpJobs": dice.randint(2, 6),
            "MaxJobs": dice.randint(1, 4),
        }
        return " ".join(f"{name}={value}" for name, value in given.items() if dice.random() < 0.4)

    for account, parent in (("a", "root"), ("b", "root"), ("c", "b")):
        share = f"fairshare={dice.randint(1, 5)}"
        commands.append(
            f"add account {account} cluster={CLUSTER} parent={parent} {share} {limits()}"
        )
    for user, account in USERS:
        share = f"fairshare={dice.randint(1, 5)}"
        commands.append(f"add user {user} cluster={CLUSTER} account={account} {share} {limits()}")
    return tuple(commands)


def _quotas(dice: random.Random, nodes: int) -> tuple[str, ...]:
    """Accounts, users and QOS, with random limits of what may be in use on shared nodes; each
    leaves half of it.
    """
    commands = [f"delete qos {','.join(QOS)}", "delete account a,b,c", f"delete cluster {CLUSTER}"]
    commands += [f"add cluster {CLUSTER}", *(f"add qos {name}" for name in QOS)]

    def most() -> str:
        in_all = {"cpu": 16 * nodes, "node": nodes, "gres/gpu": 4 * nodes}
        chosen = dice.sample(list(in_all), dice.randint(1, 2))
        return ",".join(
            f"{name}={dice.randint(in_all[name] // 2, in_all[name])}" for name in chosen
        )

    for name in QOS:
        given = [
            f"{limit}={most()}"
            for limit in ("GrpTRES", "MaxTRESPU", "MaxTRESPA")
            if dice.random() < 0.6
        ]
        commands += [f"modify qos {name} set {' '.join(given)}"] if given else []
    may = f"qos=normal,{','.join(QOS)}"
    for account, parent in (("a", "root"), ("b", "root"), ("c", "b")):
        limit = f"GrpTRES={most()}" if dice.random() < 0.5 else ""
        commands.append(f"add account {account} cluster={CLUSTER} parent={parent} {may} {limit}")
    for user, account in USERS:
        limit = f"GrpTRES={most()}" if dice.random() < 0.4 else ""
        commands.append(f"add user {user} cluster={CLUSTER} account={account} {limit}")
    return tuple(commands)


def _events(dice: random.Random, rows: Sequence[Row], nodes: int) -> tuple[Event, ...]:
    """Nodes that are drained or fail and come back, reservations, jobs that are held and released
    or cancelled.
    """
    return tuple(sorted([*_of_nodes(dice, rows, nodes), *_of_jobs(dice, rows)]))


def _requeues(dice: random.Random, rows: Sequence[Row], nodes: int) -> tuple[Event, ...]:
    """Nodes that fail and come back, and jobs that are requeued."""
    last_s = int(str(rows[-1]["submit_s"]))
    found = [event for event in _of_nodes(dice, rows, nodes) if event.action != "reserve"]
    for row in dice.sample(list(rows), 40):  # many of them are not running then, and refused
        begin_s = int(str(row["submit_s"])) + dice.choice([60, 600, 1800, 3600, 9000])
        found.append(Event(min(begin_s, last_s), "requeue", str(row["job_id"])))
    return tuple(sorted(found))


def _of_nodes(dice: random.Random, rows: Sequence[Row], nodes: int) -> list[Event]:
    last_s, found = int(str(rows[-1]["submit_s"])), list[Event]()
    for _ in range(8):
        begin_s, node = dice.randint(600, last_s), f"n{dice.randint(1, nodes)}"
        found.append(Event(begin_s, dice.choice(["drain", "down"]), node))
        found.append(Event(begin_s + dice.randint(300, 20000), "up", node))
    reserved = list[tuple[int, int, int, int]]()
    for _ in range(3):
        begin_s, first = dice.randint(3600, last_s), dice.randint(1, nodes)
        end_s, last = begin_s + dice.randint(1800, 14400), min(nodes, first + dice.randint(0, 4))
        whose = dice.choice(["", ":games"])
        if any(first <= d and c <= last and begin_s < b and a < end_s for a, b, c, d in reserved):
            continue  # slurmctld refuses reservations that overlap
        reserved.append((begin_s, end_s, first, last))
        found.append(Event(0, "reserve", f"n[{first}-{last}]", f"{begin_s}-{end_s}{whose}"))
    return found


def _of_jobs(dice: random.Random, rows: Sequence[Row]) -> list[Event]:
    found = list[Event]()
    for row in dice.sample(list(rows), 16):
        begin_s, job_id = int(str(row["submit_s"])), str(row["job_id"])
        if dice.random() < 0.5:
            found.append(Event(begin_s + dice.choice([1, 30, 600, 3600]), "cancel", job_id))
        else:
            begin_s += dice.choice(
                [300, 1800, 3600, 9000]
            )  # sooner scontrol waits for slurmdbd, and the clock for it
            found.append(Event(begin_s, "hold", job_id))
            found.append(Event(begin_s + dice.randint(60, 9000), "release", job_id))
    return found


LIMITED = {
    "limits": _with_qos,
    "several_limits": _with_qos,
    "accounts": _accounts,
    "quotas": _quotas,
}
"""Kinds with limits, and what sacctmgr is told."""


def _nodes(dice: random.Random, kinds: Sequence[tuple[str, int, int, str]]) -> str:
    """With random weights, as text of replay.py."""
    lines = [
        f"NodeName={names} NodeHostname=localhost Port=[{{p0+{first}}}-{{p0+{last}}}] {has} "
        f"Weight={dice.randint(1, 5)} State="
        for names, first, last, has in kinds
    ]
    return "UNKNOWN\n".join(lines)


def drawn(kind: str, seed: int) -> Case:
    """A random case: parameters, weights, a selection plugin, nodes, and jobs."""
    dice = random.Random(seed)
    chosen = {name: dice.choice(values) for name, values in DRAWN.items() if dice.random() < 1 / 6}
    if "bf_max_job_user" in chosen:
        chosen.pop("bf_max_job_user_part", None)
    if kind == "several_once":
        chosen["bf_one_resv_per_job"] = ""
    parameters = ",".join(
        f"{name}={value}" if value != "" else name for name, value in chosen.items()
    )
    weights = {
        "PriorityWeightAge": dice.choice([0, 100, 1000, 10000, 100000]),
        "PriorityMaxAge": dice.choice(["0-2", "1-0", "7-0"]),
        "PriorityWeightJobSize": dice.choice([0, 100, 1000, 10000]),
        "PriorityFavorSmall": dice.choice(["NO", "NO", "YES"]),
        "PriorityCalcPeriod": dice.choice([1, 2, 5, 10]),
    }
    options = [
        *_sched(parameters),
        *_prio(";".join(f"{name}={value}" for name, value in weights.items())),
    ]
    if kind in ("partitions", "several", "several_once", "several_limits", "priorities", "sizes"):
        options[-1] += ";PriorityWeightPartition=300"
    if kind == "priorities":
        flags = [flag for flag in FLAGS if dice.random() < 0.4]
        tres = [
            f"{name}={dice.choice([40, 300, 2500.5])}"
            for name in ("CPU", "Node")
            if dice.random() < 0.7
        ]
        options[-1] += f";PriorityFlags={','.join(flags)}" if flags else ""
        options[-1] += f";PriorityWeightTRES={','.join(tres)}" if tres else ""
    if kind == "sizes":
        options[-1] = options[-1].replace("PriorityWeightJobSize=0", "PriorityWeightJobSize=3000")
    shared = kind in SHARING
    extra = []
    if dice.random() < 0.3 or shared:
        options += ["--select", "select/cons_tres"]
        unit = dice.choice(["Core", "CPU"]) if kind in ("threads", "default_memory") else "Core"
        extra.append(f"SelectTypeParameters=CR_{unit}" + ("" if kind == "cores" else "_Memory"))
    if shared or kind == "sizes":
        extra.append("SlurmdParameters=config_overrides")
    if "Gres=" in str(KINDS[kind]) or kind in ("mixed", "gpu_site"):
        extra.append("GresTypes=gpu")
    if dice.random() < 0.1:
        options += ["--schedtype", "sched/builtin"]
    nodes = dice.choice([8, 16, 24, 40]) if kind not in OF_SIXTEEN else 16
    case = Case(Drawn(kind, seed), nodes, tuple(options), KINDS[kind])
    if kind in LIMITED:
        extra.append("AccountingStorageEnforce=associations,limits,qos")
        extra += ["AccountingStorageTRES=gres/gpu"] if kind == "quotas" else []
        weights = {
            "PriorityWeightFairshare": dice.choice([0, 1000, 10000, 100000]),
            "PriorityDecayHalfLife": dice.choice(["0-1", "1-0", "7-0"]),
            "PriorityWeightQOS": dice.choice([0, 1000]),
        }
        options[3] += "".join(f";{name}={value}" for name, value in weights.items())
        case = replace(case, accounting=LIMITED[kind](dice, nodes))
        if kind == "limits" and dice.random() < 0.3:
            line = OF_REPLAY["partitions"]
            case = replace(case, conf=(("partitions", f"{line} QOS={dice.choice(QOS)}"),))
    if kind == "priorities":
        extra.append(f"OverTimeLimit={dice.choice([0, 1, 7, 'UNLIMITED'])}")
        own = f"{FAST} OverTimeLimit={dice.choice([0, 3, 15, 'UNLIMITED'])}"
        case = replace(case, conf=(("partitions", f"{OF_REPLAY['partitions']}\n{own}\n{SIDE}"),))
    if kind == "default_memory":
        of_all, own = (
            dice.choice(["DefMemPerCPU=1700", "DefMemPerCPU=3300", "DefMemPerNode=9500"])
            for _ in range(2)
        )
        extra.append(of_all)
        line = f"{SHARED_NODES[1]} {own if dice.random() < 0.5 else ''}"
        case = replace(case, conf=(*case.conf, ("partitions", line)))
    if kind in UNEQUAL:
        case = replace(case, conf=(*case.conf, ("nodes", _nodes(dice, UNEQUAL[kind]))))
    if kind in ("events", "site", "gpu_site", "requeues"):
        extra.append(
            "ReturnToService=0"
        )  # with replay.py's 2 a failed node is back when its slurmd next reports
        of_kind = _requeues if kind == "requeues" else _events
        case = replace(case, events=of_kind(dice, workload(case.workload, nodes), nodes))
    if kind == "basic":
        case = replace(case, events=tuple(sorted(_of_jobs(dice, workload(case.workload, nodes)))))
    if extra:
        options += ["--extra", ";".join(extra)]
    return replace(case, options=tuple(options))


def _drawn_jobs(case: Drawn, nodes: int) -> list[Row]:
    """Some 200 jobs that ask for 0.9 to 1.6 times what the nodes can give."""
    dice = random.Random(f"jobs {case.seed}")
    shared = case.kind in SHARING
    whole = not shared and case.kind not in OF_SIXTEEN
    rows = _jobs(
        case.seed,
        200,
        1,
        dice.choice(["steady", "bursts"]) if whole else "shared" if shared else case.kind,
    )
    for row in rows:
        if whole:
            row["nodes"] = min(nodes, max(1, round(int(str(row["nodes"])) * nodes / 16)))
        if case.kind in ("shared", "cores"):
            row["gpus"] = 0
        if case.kind == "cores":
            row["mem_mib"] = 0
        if case.kind == "some_exclusive" and dice.random() < 0.4:
            row["partition"] = "whole"
        if case.kind == "unlimited" and dice.random() < 0.15:
            row["timelimit_min"] = 0
        if case.kind == "flexible":
            limit_min = int(str(row["timelimit_min"]))
            row["timemin_min"] = dice.randint(1, limit_min) if dice.random() < 0.5 else ""
        if case.kind in ("memory", "default_memory") and dice.random() < (
            0.3 if case.kind == "memory" else 0.6
        ):
            row["mem_mib"] = 0
        if case.kind in ("threads", "default_memory"):
            row["cpus"] = dice.choice([1, 1, 2, 3, 4, 5, 7, 8, 12, 15])
        if case.kind in ("mixed", "gpu_site"):
            row["partition"] = "gpu" if row["gpus"] else dice.choice(["gpu", "cpu", "cpu"])
            if row["gpus"] == 2 and dice.random() < 0.3:
                row |= {"gpus": 4, "cpus": dice.choice([4, 16, 32])}
        if case.kind == "gpu_site":
            _as_on_a_site(dice, row)
        if case.kind == "requeues":
            row["requeue"] = int(dice.random() < 0.7)
        if case.kind == "basic":
            row["nice"] = dice.choice(["", "", "", 3, 40])
        if case.kind in LIMITED:
            row["nodes"] = min(nodes // 2, int(str(row["nodes"])))
            row["user"], row["account"] = dice.choice(USERS)
        if case.kind in ("limits", "several_limits", "quotas"):
            row["qos"] = dice.choice(["normal", *QOS])
    if case.kind in ("arrays", "gpu_arrays"):
        _into_arrays(dice, rows)
    share = [_share(row) if shared else 1.0 for row in rows]
    asked = sum(
        part * int(str(row["nodes"])) * int(str(row["runtime_s"]))
        for part, row in zip(share, rows, strict=True)
    )
    stretch = asked / (nodes * dice.uniform(0.9, 1.6)) / max(1, int(str(rows[-1]["submit_s"])))
    for row in rows:
        before_s, row["submit_s"] = (
            int(str(row["submit_s"])),
            int(int(str(row["submit_s"])) * stretch),
        )
        if row.get("begin_s"):
            row["begin_s"] = int(str(row["submit_s"])) + int(str(row["begin_s"])) - before_s
    return rows


def _as_on_a_site(dice: random.Random, row: Row) -> None:
    """Dependencies, begin times, features, and a partition of a higher tier for short jobs."""
    number = int(str(row["job_id"]))
    row |= {"dependency": "", "begin_s": "", "constraint": ""}
    if (
        int(str(row["timelimit_min"])) <= 120
        and int(str(row["cpus"])) <= 16
        and dice.random() < 0.4
    ):
        row["partition"] = "short"
    if number > 3 and dice.random() < 0.25:
        other = dice.randint(max(1, number - 25), number - 1)
        row["dependency"] = f"{dice.choice(['afterany', 'afterany', 'after'])}:{other}"
    elif dice.random() < 0.1:
        row["begin_s"] = int(str(row["submit_s"])) + dice.randint(100, 9000)
    if row["partition"] != "short" and row["gpus"] != 4 and dice.random() < 0.3:
        row["constraint"] = dice.choice(["new", "big|new"])


def _share(row: Row) -> float:
    """Of a node of the shared kinds."""
    cpus, mem_mib, gpus = (int(str(row[name])) for name in ("cpus", "mem_mib", "gpus"))
    return max(cpus / 16, (mem_mib or 64000) / 64000, gpus / 4)


def _into_arrays(dice: random.Random, rows: Sequence[Row]) -> None:
    """Makes some runs of jobs the tasks of arrays; a task's row follows that of the task before."""
    at = 0
    while at < len(rows):
        tasks = dice.choice([1, 1, 1, 4, 12, 30])
        throttle = dice.choice(["", "", 1, 2, 5]) if tasks > 1 else ""
        first = rows[at]
        for row in rows[at : at + tasks]:
            alike = ("submit_s", "nodes", "timelimit_min", "cpus", "mem_mib", "gpus", "exclusive")
            row |= {name: first[name] for name in alike if name in first}
            row["runtime_s"] = min(
                int(str(row["runtime_s"])), 60 * int(str(row["timelimit_min"])) + 1
            )
            row["array_job_id"] = first["job_id"] if tasks > 1 else ""
            row["array_throttle"] = throttle
        at += tasks


def workload(name: str | Window | Path | Drawn, nodes: int) -> list[Row]:
    """Its jobs, as sim_truth.py's jobs.csv has them."""
    if isinstance(name, Drawn):
        return _drawn_jobs(name, nodes)
    if isinstance(name, Path):
        with name.open() as file:
            return [dict(row) for row in csv.DictReader(file)]
    if isinstance(name, Window):
        return _of_window(name, nodes)
    seed, count, gap_s = {
        "steady": (11, 200, 90),
        "bursts": (77, 200, 0),
        "wider": (12, 260, 240),
        "dependencies": (41, 260, 150),
        "partitions": (51, 260, 150),
        "shared": (21, 350, 40),
    }[name]
    return _jobs(seed, count, gap_s, name)


def again(folder: Path) -> Case:
    """The jobs of a replay, under its scheduler. Raises SystemExit for one on shared nodes or with
    partitions.
    """
    lines = [
        line.strip().partition("=") for line in (folder / "slurm.conf").read_text().splitlines()
    ]
    conf = {name: value for name, _, value in lines}
    if (
        conf["SelectType"] != "select/linear"
        or sum(name == "PartitionName" for name, _, _ in lines) > 1
    ):
        sys.exit(
            f"{folder}: not on whole nodes of one partition; add it to CASES with what its jobs"
            " ask for"
        )
    with (folder / "actual_ext.csv").open() as file:
        nodes = max(
            int(number)
            for row in csv.DictReader(file)
            for number in re.findall(r"\d+", row["nodelist"])
        )
    weights = ";".join(
        f"{name}={value}"
        for name, value in conf.items()
        if name.startswith("Priority") and name != "PriorityType"
    )
    options = (
        "--schedtype",
        conf["SchedulerType"],
        *_sched(conf.get("SchedulerParameters", "")),
        *_prio(weights),
    )
    return Case(folder / "jobs.csv", nodes, options)


def options_of(row: Row) -> list[str]:
    """What replay.py does not tell sbatch. Ids are slurmctld's: it counts from 1, too, in the same
    order.
    """
    given = {
        "partition": "--partition={}",
        "dependency": "--dependency={}",
        "mem_mib": "--mem={}",
        "user": "--uid={}",
        "account": "--account={}",
        "qos": "--qos={}",
        "nice": "--nice={}",
        "constraint": "--constraint={}",
        "timemin_min": "--time-min={}",
    }
    found = [form.format(row[name]) for name, form in given.items() if row.get(name)]
    if row.get("cpus"):
        found += ["--ntasks-per-node=1", f"--cpus-per-task={row['cpus']}"]
    if row.get("gpus"):
        found.append(f"--gres=gpu:{row['gpus']}")
    if row.get("exclusive"):
        found.append("--exclusive")
    if row.get("begin_s"):
        found.append(f"--begin={_timestamp(int(str(row['begin_s'])))}")
    return found

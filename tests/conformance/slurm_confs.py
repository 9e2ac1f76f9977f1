"""Configurations as public sites have them, drawn at random, with a real slurmctld as the judge of
how we read them.

    .venv/bin/python -m tests.conformance.slurm_confs [--kind nodes] [--count 20] [--seed 1] [--keep DIR]
    [FILE ...]

Needs root and slurmctld 22.05 (`tests.conformance.slurm_judge`). Of each kind so many files are drawn.
slurmctld is started on each, and what scontrol shows is compared with what `slurm-sim cluster
--slurm-conf` makes of the file. A file that slurmctld refuses must be refused here, too. With
FILEs, these are judged instead (with what they include beside them), as if they named this machine
and no slurmdbd. Plugins and other files that they name must be here.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.conformance.slurm_judge import Case, Verdict, judge, why_not

Draw = random.Random
Lines = list[str]
EMPTY = '""'
FEATURES = ("a100", "haswell,ib", "A,b", '"skylake, ib"', "a100,a100", EMPTY)
LEAST = "PartitionName=batch Nodes=ALL Default=YES"


def _some(draw: Draw, choices: Sequence[str], share: float) -> Lines:
    """Each with this probability, in any order."""
    kept = [choice for choice in choices if draw.random() < share]
    draw.shuffle(kept)
    return kept


def _case_of(draw: Draw, key: str) -> str:
    """Keys may stand in any case."""
    return draw.choice((key, key, key, key.lower(), key.upper()))


def _mostly(draw: Draw, usual: Sequence[str], wrong: str) -> str:
    return wrong if draw.random() < 0.02 else draw.choice(usual)


def _number(draw: Draw) -> str:
    """One that is mostly right, in the forms that sites use and in those that they should not."""
    good = (str(draw.randrange(1, 300)), str(draw.randrange(1, 60000)), "1", "2", "16", "128")
    odd = ("0", "010", "0x10", "+8", "4K", "2k", "65535", "INFINITE", "UNLIMITED", '""', '"12"')
    bad = (
        "-1",
        "-0",
        "65536",
        "4294967295",
        "4294967296",
        "1.5",
        "4G",
        "10M",
        "08",
        "many",
        "1e3",
        "5;",
        "18446744073709551616",
    )
    return draw.choice(draw.choices((good, odd, bad), (85, 12, 3))[0])


def _time(draw: Draw) -> str:
    good = (
        "30",
        "90:30",
        "1:00:30",
        "2-0",
        "1-12",
        "7-00:00:00",
        "24:00:00",
        "UNLIMITED",
        "INFINITE",
        "60",
        "4-12:30",
    )
    odd = (
        "-1",
        "0",
        "0:30",
        "1-",
        "365-0",
        "9999-00:00:00",
        "60000-0",
        "99999-0",
        "infinite",
        "2147483648",
    )
    bad = ("-2", "1d", "2h", "NONE", "1:2:3:4", "30:", "+30", "1-2-3", '""', "90000-0", "35791394")
    return draw.choice(draw.choices((good, odd, bad), (88, 9, 3))[0])


def _yes(draw: Draw) -> str:
    return draw.choice(
        draw.choices(
            (("YES", "NO", "yes", "no"), ("1", "0", "TRUE", "false", "up"), ("on", "y")),
            (80, 18, 2),
        )[0]
    )


def _joined(*parts: str) -> str:
    return " ".join(part for part in parts if part)


# ---- kinds


def _node_names(draw: Draw) -> Lines:
    """Lists of names that do not overlap."""
    forms = (
        "n[1-4]",
        "n[001-012]",
        "rack[0-1]n[01-03]",
        "gpu-a100-[1-3]",
        "login1,login2",
        "c[1-3,7,9-10]",
        "node.site.org",
        "x[1-2]y[3-4]",
        "dgx01",
        "big",
        "a[8-11]",
        "compute-dy-c5-[1-4]",
        "Node1",
        "knl[07-08],knl12",
    )
    return draw.sample(forms, draw.randrange(1, 5))


def _layout(draw: Draw) -> Lines:
    """CPUs and what they are made of, that mostly agree."""
    sockets, cores, threads = (
        draw.choice((1, 2, 4)),
        draw.choice((1, 8, 16, 32)),
        draw.choice((1, 1, 2)),
    )
    counts = {
        "Sockets": sockets,
        "CoresPerSocket": cores,
        "ThreadsPerCore": threads,
        "CPUs": draw.choice(
            (
                sockets * cores * threads,
                sockets * cores * threads,
                sockets * cores,
                sockets,
                cores,
                5,
            )
        ),
        "Procs": draw.choice((sockets * cores, 7)),
        "Boards": draw.choice((1, 1, 2)),
        "SocketsPerBoard": draw.choice((1, 2)),
    }
    shares = {"Procs": 0.15, "Boards": 0.15, "SocketsPerBoard": 0.1, "CPUs": 0.7}
    kept = [
        f"{key}={value}" for key, value in counts.items() if draw.random() < shares.get(key, 0.6)
    ]
    if draw.random() < 0.3:
        kept.append(f"{draw.choice(list(counts))}={_number(draw)}")
    return kept


def _node_line(draw: Draw, names: str) -> str:
    choices = (
        f"RealMemory={draw.choice((str(draw.randrange(1000, 2_000_000)), _number(draw)))}",
        f"Weight={_number(draw)}",
        f"Feature={draw.choice(FEATURES)}",
        f"Features={draw.choice(('hdd', 'ib'))}",
        f"State={_node_state(draw)}",
        f"TmpDisk={_number(draw)}",
        f"CoreSpecCount={draw.randrange(3)}",
        f"MemSpecLimit={draw.randrange(900)}",
        'Reason="bought 2019"',
    )
    attributes = [*_layout(draw), *_some(draw, choices, 0.3)]
    draw.shuffle(attributes)
    pairs = [
        f"{_case_of(draw, key)}={value}"
        for key, _, value in (each.partition("=") for each in attributes)
    ]
    return _joined(f"{_case_of(draw, 'NodeName')}={names}", *pairs)


def _node_state(draw: Draw) -> str:
    usual = ("UNKNOWN", "UNKNOWN", "IDLE", "DOWN", "CLOUD", "FUTURE", "DRAIN", "idle", "cloud")
    odd = ("DRAINED", "FAIL", "FAILING", "ALLOCATED", "MIXED", "draining")
    return draw.choice(draw.choices((usual, odd, ("UP", "x", "DOWN*", "RESUME")), (90, 8, 2))[0])


def nodes(draw: Draw) -> Lines:
    """NodeName lines and their defaults, DownNodes."""
    lines = []
    listed = _node_names(draw)
    for names in listed:
        if draw.random() < 0.3:
            lines.append(_node_line(draw, draw.choice(("DEFAULT", "default"))))
        lines.append(_node_line(draw, names))
    if draw.random() < 0.04:
        lines.append(_node_line(draw, draw.choice((listed[0], "ALL", "n[3-1]", "n[1-2]-ib", '""'))))
    if draw.random() < 0.4:
        state = draw.choice(
            (
                "",
                "",
                " State=DRAIN",
                " State=FAIL",
                " State=UNKNOWN",
                " State=broken",
                " State=FUTURE",
            )
        )
        where = draw.choice((*listed, "n2", "n[1-9]", "gone1", "ALL"))
        lines.insert(draw.randrange(len(lines) + 1), f'DownNodes={where}{state} Reason="a fan"')
    return [*lines, LEAST]


def _partition_line(draw: Draw, name: str, members: Sequence[str]) -> str:
    choices = (
        f"Nodes={draw.choice(members)}",
        f"Nodes={draw.choice(members)}",
        f"MaxTime={_time(draw)}",
        f"DefaultTime={_time(draw)}",
        f"MaxNodes={_number(draw)}",
        f"MinNodes={draw.choice(('0', '1', '2', _number(draw)))}",
        f"PriorityTier={_number(draw)}",
        f"PriorityJobFactor={_number(draw)}",
        f"Priority={_number(draw)}",
        f"Default={_yes(draw)}",
        f"State={draw.choice(('UP', 'UP', 'up', 'DOWN', 'DRAIN', 'INACTIVE', 'drained', 'UP'))}",
        f"OverSubscribe={_sharing(draw)}",
        f"Shared={_sharing(draw)}",
        f"OverTimeLimit={draw.choice(('0', '5', 'UNLIMITED', '-1', '10min', '70000', 'x'))}",
        f"LLN={_yes(draw)}",
        f"Hidden={_yes(draw)}",
        f"RootOnly={_yes(draw)}",
        f"ExclusiveUser={_yes(draw)}",
        f"PreemptMode={draw.choice(('OFF', 'REQUEUE', 'suspend', 'CANCEL'))}",
        f"GraceTime={_number(draw)}",
        f"MaxCPUsPerNode={_number(draw)}",
        f"AllowGroups={draw.choice(('ALL', 'physics', 'a,b'))}",
        f"AllowAccounts={draw.choice(('ALL', 'chem'))}",
        f"DenyAccounts={draw.choice(('bio', 'x,y'))}",
        f"QOS={draw.choice(('normal', 'part_gpu', EMPTY))}",
        f"SuspendTime={draw.choice(('INFINITE', '-1', '300'))}",
        f"ResumeTimeout={_number(draw)}",
        f"TRESBillingWeights={_weights(draw)}",
        f"DefMemPerCPU={_number(draw)}",
        f"DefMemPerNode={_number(draw)}",
        f"MaxMemPerNode={_number(draw)}",
        f"DisableRootJobs={_yes(draw)}",
    )
    pairs = [
        f"{_case_of(draw, key)}={value}"
        for key, _, value in (each.partition("=") for each in _some(draw, choices, 0.17))
    ]
    return _joined(f"{_case_of(draw, 'PartitionName')}={name}", *pairs)


def _sharing(draw: Draw) -> str:
    usual = ("NO", "EXCLUSIVE", "YES", "FORCE", "FORCE:1", "YES:4", "exclusive", "Force:2")
    return draw.choice(
        draw.choices(
            (usual, ("YES:1", "FORCE:0", "FORCE:x", "YES:2x"), ("NO:2", "x", "USER")), (85, 12, 3)
        )[0]
    )


def _weights(draw: Draw) -> str:
    usual = (
        '"CPU=1.0,Mem=0.25G"',
        "cpu=1",
        '"CPU=2K,Node=3"',
        "billing=2",
        '"CPU=1e1,,Mem=1M"',
        '"Energy=4"',
    )
    odd = ("CPU=-1", "Mem=1K", "cpu=inf", "CPU=0x10", "cpu=5KB", '""', "cpu=.5")
    bad = ("CPU", "CPU=x", "foo=1", "gres/gpu=2", '"CPU=1, Mem=2"', "CPU=1=2")
    return draw.choice(draw.choices((usual, odd, bad), (85, 12, 3))[0])


def partitions(draw: Draw) -> Lines:
    """PartitionName lines, their defaults and NodeSets."""
    lines = [
        "NodeName=n[1-8] CPUs=8 RealMemory=16000 Feature=a100,ib",
        "NodeName=m[1-4] CPUs=4 Weight=5 Feature=cpu",
    ]
    sets = {
        "quick": "Nodes=n[1-2]",
        "ib": "Feature=ib",
        "both": "Nodes=m1 Feature=a100",
        "empty": "Feature=none",
        "m2": "Nodes=n3",
        "s1": "Nodes=n4",
        "s2": "Nodes=n5,m3",
    }
    chosen = draw.sample(list(sets), draw.randrange(0, 4))
    lines += [f"NodeSet={name} {sets[name]}" for name in chosen]
    if chosen and draw.random() < 0.2:
        lines.append(f"NodeSet={chosen[0]} Nodes=n8")
    members = ["ALL", "ALL", "n[1-4]", "n1,m[1-2]", '"n1 m2"', "m[1-4],n8", "all", *chosen]
    if draw.random() < 0.06:
        members.append(draw.choice(("n9", "ALL,n1", "gone", "N1")))
    names = draw.sample(
        ("batch", "debug", "gpu", "long", "ALL", "p_1.a", "interactive"), draw.randrange(1, 5)
    )
    for name in names:
        if draw.random() < 0.3:
            lines.append(_partition_line(draw, "DEFAULT", members))
        lines.append(_partition_line(draw, name, members))
    if draw.random() < 0.03:
        lines.append(_partition_line(draw, names[0], members))
    if draw.random() < 0.3:
        draw.shuffle(lines)
    return [*lines, "PartitionName=last Nodes=ALL State=UP MaxTime=60 MinNodes=1 MaxNodes=4"]


NUMBERED = (
    "bf_interval",
    "bf_window",
    "bf_max_job_test",
    "bf_max_job_user",
    "bf_max_job_part",
    "bf_max_job_start",
    "bf_max_job_array_resv",
    "bf_max_job_assoc",
    "bf_max_job_user_part",
    "bf_resolution",
    "bf_node_space_size",
    "bf_min_age_reserve",
    "bf_min_prio_reserve",
    "bf_job_part_count_reserve",
    "bf_window_linear",
    "default_queue_depth",
    "partition_job_depth",
    "sched_max_job_start",
    "sched_interval",
    "sched_min_interval",
    "batch_sched_delay",
    "max_rpc_cnt",
    "bf_max_time",
    "max_switch_wait",
)
FLAGS = (
    "bf_continue",
    "defer",
    "bf_busy_nodes",
    "bf_one_resv_per_job",
    "assoc_limit_stop",
    "no_such_option",
    "pack_serial_at_end",
)


def _option_value(draw: Draw) -> str:
    good = ("10", "30", "50", "60", "100", "500", "1000")
    odd = (
        "0",
        "-1",
        "-5",
        "x",
        "",
        "30s",
        "0x10",
        "99999999",
        "10801",
        "+40",
        "1000001",
        "4294967296",
    )
    return draw.choice(draw.choices((good, odd), (75, 25))[0])


def scheduler(draw: Draw) -> Lines:
    """SchedulerParameters with options that are unknown, malformed, given twice or out of range."""
    options = [
        f"{name}={_option_value(draw)}" for name in draw.sample(NUMBERED, draw.randrange(1, 9))
    ]
    options += draw.sample(FLAGS, draw.randrange(0, 4))
    if draw.random() < 0.2:
        options.append(draw.choice(options))
    if draw.random() < 0.1:
        options.append(
            draw.choice(
                (
                    "bf_interval",
                    "xbf_window=7",
                    "",
                    "bf_resolution =30",
                    "defer_batch",
                    "max_job_bf=3",
                )
            )
        )
    draw.shuffle(options)
    text = draw.choice((",", ",", ", ")).join(options)
    quote = '"' if " " in text or draw.random() < 0.3 else ""
    lines = [
        (
            f"SchedulerParameters={quote}{text}{quote}"
            if text.strip()
            else "SchedulerType=sched/backfill"
        )
    ]
    lines += _some(
        draw,
        ("SchedulerType=sched/backfill", "SchedulerType=sched/builtin", "SchedulerTimeSlice=30"),
        0.2,
    )
    lines += _some(
        draw,
        (
            "SelectType=select/cons_tres",
            "SchedulerType=backfill" if draw.random() < 0.1 else "KillWait=30",
        ),
        0.5,
    )
    return [*lines, "NodeName=n[1-4] CPUs=8", LEAST]


def priority(draw: Draw) -> Lines:
    """Priorities: weights, times, flags."""
    flags = draw.sample(
        (
            "ACCRUE_ALWAYS",
            "MAX_TRES",
            "incr_only",
            "NO_NORMAL_ALL",
            "NO_NORMAL_PART",
            "SMALL_RELATIVE_TO_TIME",
            "FAIR_TREE",
            "NO_FAIR_TREE",
            "DEPTH_OBLIVIOUS",
            "CALCULATE_RUNNING",
            "no_such_flag",
            "MAX_TRES_GRES",
        ),
        draw.randrange(1, 4),
    )
    kind = draw.choices(("multifactor", "basic", "fifo", "MULTIFACTOR"), (85, 12, 2, 1))[0]
    choices = (
        f"PriorityWeightAge={_number(draw)}",
        f"PriorityWeightFairshare={_number(draw)}",
        f"PriorityWeightJobSize={_number(draw)}",
        f"PriorityWeightPartition={_number(draw)}",
        f"PriorityWeightQOS={_number(draw)}",
        f"PriorityWeightTRES={_weights(draw)}",
        f"PriorityMaxAge={_time(draw)}",
        f"PriorityDecayHalfLife={_time(draw)}",
        f"PriorityCalcPeriod={draw.choice(('5', '1', '0:30', '1:00:00', _time(draw)))}",
        f"PriorityFavorSmall={_yes(draw)}",
        f"PriorityFlags={draw.choice((',', ',', '|')).join(flags)}",
        f"PriorityUsageResetPeriod={_mostly(draw, ('NONE', 'MONTHLY', 'now', 'Yearly'), 'never')}",
        f"FairShareDampeningFactor={_number(draw)}",
    )
    repeated = [f"PriorityMaxAge={_time(draw)}"] if draw.random() < 0.2 else []
    return [
        f"PriorityType=priority/{kind}",
        *_some(draw, choices, 0.45),
        *repeated,
        "NodeName=n[1-4] CPUs=8",
        LEAST,
    ]


def selection(draw: Draw) -> Lines:
    """SelectType and its parameters, GresTypes and Gres."""
    kind = draw.choices(
        ("cons_tres", "cons_res", "linear", "", "cray_aries", "CONS_TRES"), (50, 15, 12, 13, 8, 2)
    )[0]
    units = (
        "CR_Core",
        "CR_Core_Memory",
        "CR_CPU",
        "CR_CPU_Memory",
        "CR_Socket",
        "CR_Socket_Memory",
        "cr_core_memory",
    )
    linear = ("CR_Memory", "CR_LLN", "CR_ONE_TASK_PER_CORE", "OTHER_CONS_TRES")
    more = (
        "CR_LLN",
        "CR_Pack_Nodes",
        "CR_CORE_DEFAULT_DIST_BLOCK",
        "CR_ONE_TASK_PER_CORE",
        "OTHER_CONS_TRES",
    )
    if kind.lower().startswith("cons") or draw.random() < 0.1:
        given = [draw.choice(units), *_some(draw, more, 0.2)]
    else:
        given = _some(draw, linear, 0.3)
    if draw.random() < 0.06:
        given.append(draw.choice(("CR_Memory", "CR_Foo", "NONE", "CR_CPU", "CR_Board")))
    lines = [f"SelectType=select/{kind}"] if kind else []
    if given and draw.random() < 0.85:
        lines.append(f"SelectTypeParameters={','.join(given)}")
    types = draw.choice(
        ("gpu", "gpu", "gpu,nic", "gpu,mps", "gpu,shard", "nic", "GPU", "", "gpu,gpu", '""')
    )
    lines += [f"GresTypes={types}"] if types else []
    gres = (
        "gpu:2",
        "gpu:a100:4",
        "gpu:a100:4,gpu:v100:2",
        "gpu:a100:4(S:0-1)",
        "gpu",
        "gpu:v100",
        "gpu:0",
        "gpu:a:b:2",
        "gpu:1K",
        "foo:3",
        "gpu:2,foo:3",
        "none",
        '""',
        "GPU:2",
        "gpu:no_consume:2",
        '"gpu:2, gpu:3"',
        "gpu:2,",
        "nic:1",
        "gpu:2,mps:200",
        "gpu:2,shard:8",
        "gpu:tesla:8,nic:2",
        "(null)",
    )
    for number in range(1, draw.randrange(2, 5)):
        attributes = _some(
            draw,
            (
                "Sockets=2 CoresPerSocket=4 ThreadsPerCore=2",
                f"Gres={draw.choice(gres)}",
                "RealMemory=9000",
            ),
            0.6,
        )
        lines.append(_joined(f"NodeName=n{number}", *attributes))
    return [*lines, LEAST]


def limits(draw: Draw) -> Lines:
    """Default and greatest memory, other limits, preemption, and numbers of parameters without
    effect here.
    """
    choices = (
        f"DefMemPerCPU={_number(draw)}",
        f"DefMemPerNode={_number(draw)}",
        f"MaxMemPerCPU={_number(draw)}",
        f"MaxMemPerNode={_number(draw)}",
        f"DefMemPerGPU={_number(draw)}",
        f"DefCpuPerGPU={_number(draw)}",
        f"KillWait={_number(draw)}",
        f"MinJobAge={_number(draw)}",
        f"OverTimeLimit={_number(draw)}",
        f"EnforcePartLimits={_mostly(draw, ('ALL', 'ANY', 'NO', 'YES', 'no', '1'), 'some')}",
        f"MaxArraySize={_number(draw)}",
        f"MaxTasksPerNode={_number(draw)}",
        f"InactiveLimit={_number(draw)}",
        f"SlurmctldTimeout={_number(draw)}",
        f"SlurmdTimeout={_number(draw)}",
        f"MessageTimeout={_number(draw)}",
        f"ReturnToService={_number(draw)}",
        f"JobRequeue={_number(draw)}",
        f"TrackWCKey={_yes(draw)}",
        f"UsePAM={_yes(draw)}",
        f"ResumeTimeout={_number(draw)}",
        f"SuspendRate={_number(draw)}",
        f"SuspendTime={draw.choice(('300', '-1', 'INFINITE', 'NONE', 'x'))}",
        (
            f"AccountingStorageEnforce={_mostly(draw, ('limits', 'associations,qos', 'all', '1'), 'some')}"
        ),
        (
            f"AuthInfo={draw.choice(('cred_expire=10', 'socket=/x,cred_expire=30', 'cred_expire=x', 'socket=/x'))}"
        ),
        f"HealthCheckInterval={_number(draw)}",
        f"UnkillableStepTimeout={_number(draw)}",
        f"TCPTimeout={_number(draw)}",
    )
    mode = draw.choice(
        ("OFF", "CANCEL", "REQUEUE", "SUSPEND,GANG", "GANG", "SUSPEND", "requeue", "WITHIN")
    )
    kind = draw.choice(("preempt/none", "preempt/qos", "preempt/partition_prio"))
    preemption = [f"PreemptMode={mode}", f"PreemptType={kind}"] if draw.random() < 0.3 else []
    select = draw.choice((["SelectType=select/cons_tres"], []))
    own = draw.choice(
        ("", f" DefMemPerCPU={_number(draw)}", f" DefMemPerNode={_number(draw)} DefMemPerCPU=5")
    )
    return [*select, *_some(draw, choices, 0.2), *preemption, "NodeName=n[1-4] CPUs=8", LEAST + own]


def forms(draw: Draw) -> Lines:
    """How lines are written: continuation, comments, quotes, blanks, case, repeated and unknown
    keys.
    """
    settings = [
        f"KillWait={draw.randrange(99)}",
        "MinJobAge=400",
        "Prolog=/etc/slurm/prolog.sh",
        'Epilog="/opt/a b"',
        "KillWait=7",
    ]
    lines = [
        *_some(draw, settings, 0.7),
        "NodeName=n[1-4] CPUs=8 RealMemory=9000 Weight=3",
        'NodeName=m1 Feature="a,b" Reason="old, slow" Weight=9',
        "PartitionName=batch Nodes=ALL Default=YES MaxTime=1-0",
        *_some(
            draw, ("PartitionName=debug Nodes=n[1-2] MaxTime=30", "NodeSet=all Nodes=n1,m1"), 0.5
        ),
    ]
    lines = [_written(draw, line) for line in lines]
    extra = (
        "# a comment \\",
        "",
        "   ",
        "#KillWait=x",
        "\t# indented",
        "ClusterName=DeepOps",
        "# ünïcödé",
        "SlurmdParameters=config_overrides # not here",
    )
    odd = (
        "FooBar=1",
        "CacheGroups=0",
        "FastSchedule=1",
        "KillWait=5 MinJobAge=3",
        "junk",
        "KillWait:5",
        "KillWait=",
        " include x",
        "TLSType=tls/none",
        "KillWait='5'",
        "NodeName=q1 Colour=red",
        "NodeName=q2 CPUs=2 junk",
    )
    for line in (*_some(draw, extra, 0.4), *([draw.choice(odd)] if draw.random() < 0.3 else [])):
        lines.insert(draw.randrange(len(lines) + 1), line)
    return lines


def _written(draw: Draw, line: str) -> str:
    key, rest = line.split("=", 1)
    line = f"{_case_of(draw, key)}{draw.choice(('=', '=', '=', ' = ', '= ', '+='))}{rest}"
    if " " in line and draw.random() < 0.3:
        at = line.index(" ") + 1
        line = f"{line[:at]}\\\n{line[at:]}"
    return (
        draw.choice(("", "", " ", "\t"))
        + line
        + draw.choice(("", "", "  ", " # why", "\t#x", "\r"))
    )


def includes(draw: Draw) -> dict[str, str]:
    """The files of any other kind, spread over included ones."""
    kind = draw.choice([each for name, each in KINDS.items() if name != "includes"])
    lines = [
        "ClusterName=Site",
        *(line for line in kind(draw) if not line.lower().strip().startswith("clustername")),
    ]
    texts = "\n".join(lines).replace("\\\n", "\\\r").split("\n")
    files: dict[str, str] = {}
    main: Lines = []
    for number, line in enumerate(texts):
        line = line.replace("\\\r", "\\\n")
        if line.startswith("ClusterName") or draw.random() < 0.4:
            main.append(line)
            continue
        name = draw.choice((f"part{number}.conf", f"d/part{number}.conf", f"site_{number}.conf"))
        main.append(
            f"{draw.choice(('include', 'Include', 'INCLUDE'))} "
            f"{name.replace('site', '%c')}{draw.choice(('', ' ', ' # x'))}"
        )
        files[name] = line + draw.choice(("\n", "", "\n\n"))
    if draw.random() < 0.2:
        files["deep.conf"] = "include deeper.conf\n"
        files["deeper.conf"] = "KillWait=11\n"
        main.append("include deep.conf")
    return {"slurm.conf": "\n".join(main) + "\n", **files}


SITE = (
    "SlurmctldPort=6817",
    "SlurmdPort=6818",
    "SlurmUser=slurm",
    "StateSaveLocation=/var/spool/slurmctld",
    "SlurmdSpoolDir=/var/spool/slurmd",
    "SwitchType=switch/none",
    "MpiDefault=pmix",
    "ProctrackType=proctrack/cgroup",
    "TaskPlugin=task/affinity,task/cgroup",
    "ReturnToService=1",
    "SlurmctldPidFile=/run/slurmctld.pid",
    "AuthType=auth/munge",
    "SlurmdLogFile=/var/log/slurm/%n.log",
    "JobCompType=jobcomp/none",
    "JobAcctGatherType=jobacct_gather/linux",
    "JobAcctGatherFrequency=30",
    "SlurmctldDebug=info",
    "SlurmdDebug=3",
    "PropagateResourceLimitsExcept=MEMLOCK",
    "PrologFlags=Alloc",
    "LaunchParameters=use_interactive_step",
    "RebootProgram=/sbin/reboot",
    "Licenses=matlab:10,fluent:2",
    "SuspendProgram=/opt/slurm/suspend.sh",
    "ResumeProgram=/opt/slurm/resume.sh",
    "SuspendTime=300",
    "ResumeTimeout=1800",
    "SuspendExcNodes=login1",
    "SlurmctldParameters=idle_on_node_suspend,cloud_dns",
    "CommunicationParameters=NoAddrCache",
    "PrivateData=accounts,jobs",
    "DebugFlags=NO_CONF_HASH",
    "AccountingStoreFlags=job_comment",
    "MaxArraySize=10001",
    "MaxJobCount=50000",
    "UnkillableStepTimeout=120",
    "VSizeFactor=0",
    "Waittime=0",
    "InactiveLimit=0",
    "TreeWidth=65533",
    "EnforcePartLimits=ALL",
    "SrunPortRange=60001-63000",
    "MailProg=/usr/bin/mail",
    "SlurmdParameters=config_overrides",
    "GresTypes=gpu",
    "SelectType=select/cons_tres",
    "SelectTypeParameters=CR_Core_Memory",
    "PriorityType=priority/multifactor",
    "PriorityWeightJobSize=1000",
    "PriorityDecayHalfLife=14-0",
    "PriorityMaxAge=7-0",
    "DefMemPerCPU=2048",
    "PreemptType=preempt/none",
    "SchedulerParameters=bf_continue,bf_window=2880,bf_max_job_user=20",
    "TmpFS=/tmp",
    "KillWait=30",
    "MinJobAge=300",
    "HealthCheckProgram=/usr/sbin/nhc",
    "HealthCheckInterval=300",
    "HealthCheckNodeState=ANY",
    "X11Parameters=home_xauthority",
    "JobRequeue=1",
    "MaxStepCount=40000",
    "TaskPluginParam=verbose",
    "FirstJobId=1",
    "CompleteWait=0",
    "Epilog=/etc/slurm/epilog",
)
"""Lines as the forms of configurator.html, DeepOps, OpenHPC and the clouds' tools write them."""


def sites(draw: Draw) -> Lines:
    """Whole files as sites publish them."""
    head = [line for line in SITE if draw.random() < 0.5]
    if "SelectType=select/cons_tres" not in head:
        head = [line for line in head if not line.startswith("SelectTypeParameters")]
    cloud = [
        "NodeName=DEFAULT State=CLOUD Feature=dynamic CPUs=8 RealMemory=30000",
        "NodeName=queue1-dy-c5-[1-10]",
        "NodeName=queue1-st-c5-[1-2] State=UNKNOWN Feature=static",
        "NodeSet=queue1_nodes Nodes=queue1-dy-c5-[1-10],queue1-st-c5-[1-2]",
        "NodeSet=dyn Feature=dynamic",
        "PartitionName=DEFAULT Nodes=queue1_nodes",
        "PartitionName=queue1 MaxTime=INFINITE State=UP Default=YES PreemptMode=OFF",
        "PartitionName=cloud Nodes=dyn MaxTime=4:00:00 SuspendTime=600 ResumeTimeout=900",
    ]
    campus = [
        (
            "NodeName=DEFAULT State=UNKNOWN RealMemory=190000 Sockets=2 CoresPerSocket=20"
            " ThreadsPerCore=1"
        ),
        "NodeName=cn[001-016] Weight=10 Feature=skylake,ib",
        "NodeName=gpu[01-04] Gres=gpu:v100:4 Weight=100 Feature=skylake,v100 CPUs=40",
        "NodeName=bigmem[1-2] RealMemory=1500000 Weight=50 ThreadsPerCore=2",
        "NodeName=login1 State=DOWN Reason=login",
        "PartitionName=DEFAULT State=UP MaxTime=3-0 DefaultTime=1:00:00",
        "PartitionName=normal Nodes=cn[001-016] Default=YES OverSubscribe=NO",
        (
            "PartitionName=gpu Nodes=gpu[01-04] AllowQos=gpu,admin PriorityTier=10 QOS=gpu "
            "TRESBillingWeights=CPU=1.0,Mem=0.25G"
        ),
        "PartitionName=debug Nodes=cn[001-002] MaxTime=30 PriorityTier=50 MaxNodes=2 LLN=YES",
        (
            "PartitionName=scavenge Nodes=ALL PriorityTier=0 PreemptMode=REQUEUE"
            " OverSubscribe=FORCE:1 GraceTime=60"
        ),
    ]
    deepops = [
        (
            "NodeName=dgx[01-04] Gres=gpu:8 CPUs=256 Sockets=2 CoresPerSocket=64 ThreadsPerCore=2"
            " Procs=128 RealMemory=1000000 State=UNKNOWN"
        ),
        (
            "PartitionName=batch Nodes=ALL Default=YES DefMemPerCPU=0 State=UP OverSubscribe=NO"
            " MaxTime=INFINITE"
        ),
    ]
    return [*head, *draw.choice((cloud, campus, deepops))]


KINDS: dict[str, Callable[[Draw], Lines] | Callable[[Draw], dict[str, str]]] = {
    "nodes": nodes,
    "partitions": partitions,
    "scheduler": scheduler,
    "priority": priority,
    "selection": selection,
    "limits": limits,
    "forms": forms,
    "sites": sites,
    "includes": includes,
}


def drawn(kind: str, seed: int, number: int) -> Case:
    """The same for the same arguments."""
    draw = random.Random(f"{kind} {seed} {number}")
    made = KINDS[kind](draw)
    files = made if isinstance(made, dict) else {"slurm.conf": "\n".join(made) + "\n"}
    return Case(f"{kind}-{seed}-{number}", files)


ELSEWHERE = re.compile(
    r"(?im)^(?=\s*(?:SlurmctldHost|ControlMachine|ControlAddr|BackupController|BackupAddr)\s*=)"
)
WITHOUT_SLURMDBD = "AccountingStorageType=accounting_storage/none\nAccountingStorageTRES=cpu\n"


def _given(files: Sequence[Path]) -> Iterator[Case]:
    """With this machine as the controller and without slurmdbd, for both readings."""
    for path in files:
        texts = {
            each.name: each.read_text(errors="replace")
            for each in path.parent.glob("*.conf")
            if each.is_file()
        }
        texts["slurm.conf"] = path.read_text(errors="replace")
        here = {name: ELSEWHERE.sub("# ", text) for name, text in texts.items()}
        here["slurm.conf"] += f"\n{WITHOUT_SLURMDBD}"
        yield Case(str(path), here)


def main() -> int:
    """The exit status: 1 if some reading differs."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--kind", choices=KINDS, action="append", help="only this one; may be given again"
    )
    parser.add_argument("--count", type=int, default=20, help="files of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--at-once", type=int, default=4, help="so many slurmctld at a time")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="write the files that are read differently here"
    )
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="judge these, not drawn ones"
    )
    args = parser.parse_args()
    if reason := why_not():
        print(f"slurm_confs: {reason}", file=sys.stderr)
        return 2
    kinds = args.kind or list(KINDS)
    cases = list(_given(args.files)) or [
        drawn(kind, args.seed, n) for kind in kinds for n in range(args.count)
    ]
    with ThreadPoolExecutor(args.at_once) as at_once:
        verdicts = list(at_once.map(judge, cases))
    _tell(verdicts, args.keep)
    return 1 if any(verdict.differences for verdict in verdicts) else 0


def _tell(verdicts: Sequence[Verdict], keep: Path | None) -> None:
    counts: dict[str, Counter[str]] = {}
    for verdict in verdicts:
        of_kind = counts.setdefault(
            verdict.case.name if "/" in verdict.case.name else verdict.case.name.split("-")[0],
            Counter(),
        )
        of_kind["files"] += 1
        of_kind["started" if verdict.ran else "refused"] += 1
        of_kind["of another release"] += verdict.excused
        of_kind["differ"] += bool(verdict.differences)
        for difference in verdict.differences:
            print(f"{verdict.case.name}: {difference}")
        if keep is not None and verdict.differences:
            for name, text in verdict.case.files.items():
                path = keep / Path(verdict.case.name).name / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
    for kind, of_kind in counts.items():
        shown = ", ".join(
            f"{of_kind[name]} {name}"
            for name in ("files", "started", "refused", "of another release", "differ")
        )
        print(f"{kind}: {shown}")


if __name__ == "__main__":
    raise SystemExit(main())

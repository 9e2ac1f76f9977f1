"""`scontrol show job -d`, as 22.05 prints it."""

from __future__ import annotations

import pytest

from mirage.domain import Job, JobState
from mirage.errors import ClusterNonsense
from mirage.slurm.job_details import parse_details

RUNNING = """\
JobId=4 JobName=w.sh
   UserId=mirage-alice(1001) GroupId=mirage-alice(1001) MCS_label=N/A
   JobState=RUNNING Reason=None Dependency=(null)
   Requeue=1 Restarts=2 BatchFlag=1 Reboot=0 ExitCode=0:0
   Partition=gpu AllocNode:Sid=localhost:21789
   ReqNodeList=(null) ExcNodeList=(null)
   NodeList=n[1,5-6]
   JOB_GRES=gpu:a100:5
     Nodes=n[1,5] CPU_IDs=0-3,6 Mem=4000 GRES=gpu:a100:2(IDX:0-1)
     Nodes=n6 CPU_IDs=2 Mem=1000 GRES=gpu:a100:1(IDX:3)
   MinCPUsNode=1 MinMemoryNode=0 MinTmpDiskNode=0
   Features=(null) DelayBoot=00:00:00
   OverSubscribe=OK Contiguous=0 Licenses=(null) Network=(null)
   Command=/home/w.sh
   Comment=mirage-place/1 signal=USR1
   TresPerNode=gres:gpu:2

"""


def job(**more) -> Job:
    return Job(
        job_id=4,
        user="alice",
        partition="gpu",
        state=JobState.RUNNING,
        nodes=3,
        submit_s=1,
        gpus=5,
        node_names=("n1", "n5", "n6"),
        **more,
    )


def test_a_running_job_has_its_gpus_by_node():
    details = parse_details(RUNNING, 4)
    assert [(share.node, share.gpu_numbers) for share in details.shares] == [
        ("n1", (0, 1)),
        ("n5", (0, 1)),
        ("n6", (3,)),
    ]
    share = details.shares[0]
    assert (share.cpus, share.memory_mib, share.gpu_type) == (5, 4000, "a100")
    assert (details.restarts, details.ties, details.takes_whole_nodes) == (2, (), False)
    assert details.fits(job())


@pytest.mark.parametrize(
    ("old", "new", "tie"),
    [
        ("Requeue=1", "Requeue=0", "--no-requeue"),
        ("BatchFlag=1", "BatchFlag=0", "no batch job"),
        ("JobName=w.sh", "ArrayJobId=3 ArrayTaskId=1 JobName=w.sh", "job array"),
        ("JobName=w.sh", "HetJobId=3 HetJobOffset=0 JobName=w.sh", "heterogeneous"),
        ("Features=(null)", "Features=a100", "features"),
        ("ExcNodeList=(null)", "ExcNodeList=n9", "excludes nodes"),
        ("Contiguous=0", "Contiguous=1", "contiguous"),
        ("Licenses=(null)", "Licenses=x:1", "licences"),
        ("   TresPerNode", "   Switches=1@00:05:00\n   TresPerNode", "switches"),
        ("   TresPerNode", "   SegmentSize=4\n   TresPerNode", "--segment"),
        ("OverSubscribe=OK", "OverSubscribe=TOPO", "--exclusive=topo"),
        ("OverSubscribe=OK", "OverSubscribe=NO Exclusive=TOPO", "--exclusive=topo"),
        ("AllocNode:", "Reservation=maint AllocNode:", "reservation"),
    ],
)
def test_what_ties_a_job(old, new, tie):
    ties = parse_details(RUNNING.replace(old, new, 1), 4).ties
    assert len(ties) == 1
    assert tie in ties[0]


def test_required_nodes_and_whole_nodes():
    text = RUNNING.replace("ReqNodeList=(null)", "ReqNodeList=n[1-2]").replace("=OK", "=NO")
    details = parse_details(text, 4)
    assert details.required_nodes == ("n1", "n2")
    assert details.takes_whole_nodes


def test_lines_that_a_user_writes_into_a_name_do_not_agree_with_squeue():
    forged = "a\n     Nodes=n9 CPU_IDs=0 Mem=0 GRES=gpu:9(IDX:0-8)"
    assert not parse_details(RUNNING.replace("w.sh", forged, 1), 4).fits(job())


def test_of_an_array_the_jobs_own_record_is_read():
    other = RUNNING.replace("JobId=4 ", "JobId=5 ArrayJobId=4 ").replace("Restarts=2", "Restarts=7")
    assert parse_details(RUNNING + other, 5).restarts == 7


@pytest.mark.parametrize(
    "text", ["", "what?", RUNNING.replace("Restarts", "x"), RUNNING.replace("n[1,5]", "n[1")]
)
def test_garbage_is_nonsense(text):
    with pytest.raises(ClusterNonsense, match="scontrol show job -d 4"):
        parse_details(text, 4)


@pytest.mark.parametrize(
    ("words", "whole"),
    [
        ("OverSubscribe=NO", True),  # 22.05 and 24.11
        ("OverSubscribe=OK", False),
        ("OverSubscribe=TOPO", True),
        ("OverSubscribe=NO Exclusive=NO", False),  # 26.05
        ("OverSubscribe=NO Exclusive=NODE", True),
        ("OverSubscribe=NO Exclusive=USER", False),
        ("OverSubscribe=NO Exclusive=TOPO", True),
    ],
)
def test_who_takes_whole_nodes(words: str, whole: bool):
    assert parse_details(RUNNING.replace("OverSubscribe=OK", words), 4).takes_whole_nodes is whole


def test_words_of_a_newer_release_among_those_known_do_no_harm():
    newer = RUNNING.replace("Requeue=1 ", "Requeue=1 RequeueKind=1 ").replace(
        " Mem=4000", " Cores=0-3 Mem=4000"
    )
    assert parse_details(newer, 4) == parse_details(RUNNING, 4)

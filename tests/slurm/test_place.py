"""Live placement: advice on a planted bad placement, and a job that moves without losing a step."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slurm.site import ALICE, BOB, BUSY, CAROL, OPERATOR, ROOT, Site, until

pytestmark = pytest.mark.slurm

OPT_IN = "mirage-place/1 signal=B:USR1 network=resnet-50 minibatch=64"
# Each step is a line. At the signal it saves after the step, and requeues itself.
TRAIN = """\
#!/bin/bash
#SBATCH -N2 --gpus-per-node=2 -t 60 -o /dev/null --requeue
step=$(cat saved-$SLURM_JOB_ID 2>/dev/null || echo 0)
asked=
trap asked=1 USR1
while [ ! -e stop-$SLURM_JOB_ID ]; do
    sleep 0.2
    step=$((step + 1))
    echo $step >>steps-$SLURM_JOB_ID
    if [ -n "$asked" ]; then
        echo $step >saved-$SLURM_JOB_ID.new && mv saved-$SLURM_JOB_ID.new saved-$SLURM_JOB_ID
        scontrol requeue $SLURM_JOB_ID
        exit
    fi
done
"""


@pytest.fixture(scope="module")
def racks(site: Site) -> Iterator[Site]:
    """Eight nodes in two racks, n1 to n4 and n5 to n8, as topology/tree."""
    site.cancel_all()
    before = (site.folder / "etc" / "nodes").read_text().strip()
    up = [str(ROOT / "scripts/slurm-up"), "--dir", str(site.folder)]
    subprocess.run([*up, "--nodes", "8", "--racks", "2"], check=True, stdout=subprocess.DEVNULL)
    yield site
    site.cancel_all()
    subprocess.run([*up, "--nodes", before, "--racks", "0"], check=True, stdout=subprocess.DEVNULL)


def hold(site: Site, *lists: str) -> list[int]:
    """Carol's jobs on these nodes."""
    jobs = []
    for nodes in lists:
        words = ["sbatch", "--parsable", "-o/dev/null", f"-N{nodes.count(',') + 1}", f"-w{nodes}"]
        jobs.append(int(site.run(CAROL, *words, "--wrap=sleep 600").stdout))
    for job_id in jobs:
        until(lambda job_id=job_id: site.state(job_id) == "RUNNING", 30, "a job on each node")
    return jobs


def train(site: Site, user: str, nodes: str, comment: str = "") -> int:
    script = site.script(user, "train.sh", TRAIN)
    words = ["sbatch", "--parsable", f"--comment={comment}", script]
    job_id = int(site.run(user, *words).stdout)
    until(lambda: nodes_of(site, job_id) == nodes, 30, f"job {job_id} to run on {nodes}")
    return job_id


def nodes_of(site: Site, job_id: int) -> str:
    words = ["squeue", "-h", "-tR", f"-j{job_id}", "-o%N"]
    return site.run("root", *words, check=False).stdout.strip()


def hosts(site: Site, job_id: int) -> list[str]:
    words = ["scontrol", "show", "hostnames", nodes_of(site, job_id)]
    return sorted(site.run("root", *words).stdout.split())


def plant(site: Site) -> tuple[int, int]:
    """Alice's opted-in job and Bob's own one, each over both racks, while others' nodes are free."""
    others, second = hold(site, "n3,n4,n7,n8", "n2,n6")
    mine = train(site, ALICE, "n[1,5]", OPT_IN)
    site.run(CAROL, "scancel", str(second))
    his = train(site, BOB, "n[2,6]")
    site.run(CAROL, "scancel", str(others))
    until(lambda: site.state(others) == "CANCELLED", 30, "free nodes")
    return mine, his


def steps(site: Site, job_id: int) -> list[int]:
    return [int(line) for line in (site.home(ALICE) / f"steps-{job_id}").read_text().split()]


def finish(site: Site, job_id: int) -> None:
    """The job ends by itself; none of its steps is lost or repeated."""
    saved = int((site.home(ALICE) / f"saved-{job_id}").read_text())
    until(lambda: steps(site, job_id)[-1] > saved, 30, "steps after the checkpoint")
    (site.home(ALICE) / f"stop-{job_id}").touch()
    until(lambda: site.state(job_id) == "COMPLETED", 30, "the job's own end")
    done = steps(site, job_id)
    assert done == list(range(1, len(done) + 1))


def events(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "moves.jsonl").read_text().splitlines()]


@pytest.fixture
def state(site: Site) -> Path:
    """A folder for the Operator's journal."""
    folder = site.home(OPERATOR) / "place"
    subprocess.run(["rm", "-rf", str(folder)], check=True)
    return folder


def test_advise_names_the_move_and_run_makes_it_without_losing_a_step(racks, state):
    mine, his = plant(racks)
    picture = racks.home(OPERATOR) / "network.svg"
    words = ["mirage", "place", "advise", "--json", "--picture", str(picture)]
    advice = json.loads(racks.run(OPERATOR, *words).stdout)
    assert advice["topology"].startswith("scontrol show topology")
    assert {each["job_id"] for each in advice["jobs"]} == {mine, his}
    assert {each["racks"] for each in advice["jobs"]} == {2}
    assert [each["shares_links_with"] for each in advice["jobs"]] == [[his], [mine]]
    assert "gain" not in advice["moves"][0]  # nobody said which machine this is
    named = json.loads(racks.run(OPERATOR, *words, "--machine", "t4").stdout)
    assert named["moves"][0]["gain"] > 0.2
    assert "12.5 GB/s, 2 jobs" in picture.read_text()

    run = ["mirage", "place", "run", "--once", "--all-users", "--state", str(state)]
    racks.run(OPERATOR, *run)
    (event,) = events(state)
    (move,) = event["moves"]
    (job,) = move["jobs"]
    assert (event["mode"], job["job_id"], job["from"]) == ("observe", mine, ["n1", "n5"])
    assert move["pause_s"] == 180

    racks.run(OPERATOR, *run, "--mode", "enforce", timeout_s=120 * BUSY)
    end = events(state)[-1]
    assert (end["job"], end["outcome"]) == (mine, "moved")
    assert end["pause"] >= 10
    assert hosts(racks, mine) == sorted(job["to"])
    assert [racks.job(each)["Restarts"] for each in (mine, his)] == ["1", "0"]
    assert nodes_of(racks, his) == "n[2,6]"
    assert all(event.get("job") != his for event in events(state))
    finish(racks, mine)


def test_killed_at_each_point_nothing_is_lost_or_moved_twice(racks, state):
    mine, his = plant(racks)
    crashing = racks.folder / "crashing_place.py"
    crashing.write_text((Path(__file__).parent / "crashing_place.py").read_text())
    options = ["--once", "--all-users", "--mode=enforce", "--every=1", "--state"]

    def die(point: str, folder: Path) -> None:
        words = [str(racks.bin / "python"), str(crashing), point, *options, str(folder)]
        done = racks.run(OPERATOR, *words, check=False, timeout_s=90 * BUSY)
        assert done.returncode == -9, (point, done.stdout, done.stderr)

    # Before the signal: the job goes on where it is, and nobody asks it again.
    die("before-intent", state)
    assert not [event for event in events(state) if event["event"] == "intend"]
    die("after-intent", state)
    racks.run(OPERATOR, "mirage", "place", "run", *options, str(state), "--grace=1")
    assert events(state)[-1]["outcome"] == "stayed"
    assert (racks.job(mine)["Restarts"], nodes_of(racks, mine)) == ("0", "n[1,5]")
    # One move, in which each service takes over from the one that was killed before it. The begin
    # time stands for a site where a requeued job starts after two minutes.
    other = state.parent / "place2"
    subprocess.run(["rm", "-rf", str(other)], check=True)
    die("after-signal", other)
    until(lambda: racks.state(mine) == "PENDING", 30, "the job to requeue itself")
    racks.run("root", "scontrol", "update", f"JobId={mine}", "StartTime=now+4minutes")
    die("before-require", other)
    die("after-require", other)
    racks.run("root", "scontrol", "update", f"JobId={mine}", "StartTime=now")
    die("before-outcome", other)
    racks.run(OPERATOR, "mirage", "place", "run", *options, str(other))
    meant = [event for event in events(other) if event["event"] == "intend"]
    ended = [event for event in events(other) if event["event"] == "end"]
    assert (len(meant), [event["outcome"] for event in ended]) == (1, ["moved"])
    assert hosts(racks, mine) == sorted(meant[0]["to"])
    assert [racks.job(each)["Restarts"] for each in (mine, his)] == ["1", "0"]
    finish(racks, mine)


def test_a_user_moves_only_their_own_jobs_and_bad_input_is_one_line(racks):
    train(racks, BOB, "n[1-2]", OPT_IN)
    words = ["mirage", "place", "run", "--once", "--mode=enforce"]
    racks.run(ALICE, *words)
    file = Path(
        racks.script(ALICE, "topology.conf", "SwitchName=s1 Nodes=n[1-8]\nSwitchName=s1 Nodes=n8\n")
    )
    done = racks.run(ALICE, "mirage", "place", "advise", "--topology", str(file), check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "line 2: s1 is there twice, first in line 1" in done.stderr

"""job.sh in chains that are extended, paused and resumed while it runs, and what it tells its user."""

from __future__ import annotations

import signal
import subprocess
import time
from pathlib import Path

import pytest

from mirage.chain.folder import (
    is_paused,
    mark_paused,
    mark_resumed,
    over_marker,
    queued_jobs,
    read_handover,
    read_link,
    read_starts,
    write_length,
)
from mirage.chain.script import Failure, Handover, Notify
from tests.unit.chain import test_job_sh
from tests.unit.chain.test_job_sh import (
    PATIENCE_S,
    UNTIL_STOP,
    Rig,
    canary_of,
    change,
    every_shell,
    signal_job,
    wait_until,
)

pytestmark = pytest.mark.flaky(reruns=1)
"""Real shells and signals in real time: a busy machine can move what comes first. A rerun is shown."""

rig = test_job_sh.rig
TELL = 'echo "$MIRAGE_EVENT|$MIRAGE_REASON|$MIRAGE_CHAIN_ID|$MIRAGE_INTERRUPTED_S" >>told'


def lengthen(rig: Rig, segments: int) -> None:
    if not (rig.folder / "chain").exists():
        (rig.folder / "chain").write_text("chain=abcdefgh\nsegments=4\nmode=train\n")
    write_length(rig.folder, segments, "")


def told(rig: Rig) -> list[str]:
    path = rig.root / "told"
    return path.read_text().splitlines() if path.exists() else []


def outside(rig: Rig, *words: str) -> subprocess.CompletedProcess[str]:
    env = {
        "PATH": f"{rig.root / 'bin'}:/usr/bin:/bin",
        "FAKE": str(rig.fake),
        "SBATCH_QOS": "low",
        "SLURM_JOB_ID": "7",
    }
    command = [*rig.shell, str(rig.folder / "job.sh"), *words]
    return subprocess.run(
        command,
        env=env,
        cwd=rig.root,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


# ---- More links


def test_a_last_link_queues_another_when_the_chain_gets_more(rig: Rig) -> None:
    rig.script(f'echo "$MIRAGE_SEGMENTS" >seen\n{UNTIL_STOP}')
    link = rig.start(4, 14, 13)
    wait_until((rig.root / "seen").exists)
    assert rig.log("sbatch") == []
    lengthen(rig, 5)
    wait_until(lambda: queued_jobs(rig.folder) == {5: 91})
    assert "seg=5/5 pred=14" in (rig.fake / "sbatch.args").read_text()
    (rig.root / "stop").touch()
    link.communicate(timeout=PATIENCE_S)
    assert over_marker(rig.folder) is None


@pytest.mark.parametrize("when", ["before the mark", "after it"])
def test_a_chain_that_gets_more_as_its_last_link_ends_goes_on(rig: Rig, when: str) -> None:
    lengthen(rig, 4)
    change_it = f"printf 'segments=6\\n' >'{rig.folder}/chain'"
    rig.script(change_it if when == "before the mark" else ":")
    move = rig.root / "bin" / "mv"  # puts the mark in place
    move.write_text(f'#!/bin/sh\n/bin/mv "$@"\ncase "$*" in */done) {change_it} ;; esac\n')
    move.chmod(0o755)
    rig.run(4, 14, 13)
    assert over_marker(rig.folder) is None
    assert queued_jobs(rig.folder) == {5: 91}


def test_a_chain_that_gets_fewer_links_ends_earlier(rig: Rig) -> None:
    lengthen(rig, 2)
    rig.script(":")
    rig.run(2, 12, 11)
    assert over_marker(rig.folder) == ("done", "all 2 links have run")
    assert rig.log("sbatch") == []


def test_a_start_says_where_the_link_writes_to(rig: Rig) -> None:
    rig.script(":")
    with (rig.root / "its out").open("w") as out:
        env = {
            "PATH": f"{rig.root / 'bin'}:/usr/bin:/bin",
            "FAKE": str(rig.fake),
            "SLURM_JOB_ID": "14",
        }
        (rig.fake / "queue").write_text("14 RUNNING\n")
        words = [*rig.shell, str(rig.folder / "job.sh"), "4", "0"]
        subprocess.run(words, env=env, stdout=out, stderr=out, check=True, timeout=PATIENCE_S)
    assert read_starts(rig.folder)[4].outputs == (str(rig.root / "its out"),)


# ---- Pauses


@every_shell
@pytest.mark.parametrize("may_requeue", [True, False])
def test_a_link_that_starts_while_the_chain_is_paused_goes_back_to_the_queue(
    rig: Rig, may_requeue: bool
) -> None:
    mark_paused(rig.folder, 1)
    (rig.fake / "details").write_text(f"JobId=12 Requeue={int(may_requeue)} Restarts=0\n")
    rig.script("touch worked")
    code, _out, err = rig.run(2, 12, 11)
    assert code == 0
    assert "the chain is paused" in err
    asked = ["update JobId=12 Requeue=1", "requeuehold 12", "update JobId=12 Requeue=0"]
    assert rig.log("scontrol") == ["show job 12", *(["requeuehold 12"] if may_requeue else asked)]
    assert not (rig.root / "worked").exists()
    assert rig.log("sbatch") == []
    assert not list(rig.folder.glob("start.*"))
    assert over_marker(rig.folder) is None


def test_where_slurm_does_not_take_it_back_it_waits_for_the_resume(rig: Rig) -> None:
    mark_paused(rig.folder, 1)
    (rig.fake / "refuse.requeue").touch()
    rig.script("touch worked")
    link = rig.start(2, 12, 11)
    wait_until(lambda: "requeuehold 12" in rig.log("scontrol"))
    assert not (rig.root / "worked").exists()
    mark_resumed(rig.folder, 2)
    link.communicate(timeout=PATIENCE_S)
    assert (rig.root / "worked").exists()


def test_a_link_that_waits_for_its_predecessor_goes_back_too(rig: Rig) -> None:
    rig.script(UNTIL_STOP)
    rig.start(1, 11)
    wait_until((rig.folder / "writer.1" / "owner").exists)
    rig.queue(12, 2, 11)
    rig.queue(13, 3, 12)
    (rig.fake / "pid.11").unlink()  # it does not hear the signal
    link = rig.start(2, 12, 11)
    wait_until((rig.folder / "handover.1").exists)
    mark_paused(rig.folder, 1)
    link.communicate(timeout=PATIENCE_S)
    assert link.returncode == 0
    assert "requeuehold 12" in rig.log("scontrol")
    assert read_link(rig.folder, 2) is None, "its turn is not used up"


def test_a_running_link_queues_the_next_one_held(rig: Rig) -> None:
    rig.script('touch "$MIRAGE_CHAIN_DIR/paused"; rm "$MIRAGE_CHAIN_DIR/submitting"; sleep 1.5')
    (rig.folder / "submitting").touch()  # until it is paused, nothing is queued
    rig.run(1, 11)
    assert "--hold" in (rig.fake / "sbatch.args").read_text().splitlines()
    assert queued_jobs(rig.folder) == {2: 91}
    assert rig.log("scontrol") == []


@pytest.mark.parametrize(("is_paused", "then"), [(True, "release 91"), (False, "uhold 91")])
def test_a_pause_or_a_resume_while_sbatch_runs_is_seen(
    rig: Rig, is_paused: bool, then: str
) -> None:
    rig.script(":")
    program, change_it = rig.root / "bin" / "sbatch", "rm -f" if is_paused else "touch"
    program.write_text(
        program.read_text().replace("#!/bin/sh", f"#!/bin/sh\n{change_it} '{rig.folder}/paused'")
    )
    if is_paused:
        mark_paused(rig.folder, 1)
    lengthen(rig, 4)
    assert outside(rig, "queue", "2", "11").stdout == "91\n"
    assert rig.log("scontrol") == [then]


@every_shell
@pytest.mark.parametrize("why", ["pause", "scale"])
def test_a_link_that_its_owner_asks_to_end_ends_without_a_failure(rig: Rig, why: str) -> None:
    change(rig, failure=Failure(action="stop", min_runtime_s=60, max_short=1))
    rig.script(f"trap 'exit 3' TERM\ntouch works\n{UNTIL_STOP}")
    link = rig.start(1, 11)
    wait_until((rig.root / "works").exists)
    mark_paused(rig.folder, 1)
    assert outside(rig, "ask", "11", "1", why).returncode == 0
    link.communicate(timeout=PATIENCE_S)
    record = read_link(rig.folder, 1)
    assert record
    asked = read_handover(rig.folder, 1)
    assert asked
    assert (link.returncode, record.how, asked.asked_by) == (3, "paused", why)
    assert over_marker(rig.folder) is None
    assert queued_jobs(rig.folder) == {2: 91}


def test_a_chain_whose_links_may_not_be_asked_says_so(rig: Rig) -> None:
    change(rig, handover=Handover(signal="none"))
    rig.script(":")
    done = outside(rig, "ask", "11", "1")
    assert done.returncode == 1
    assert "--handover-signal none" in done.stderr
    assert not (rig.folder / "handover.1").exists()


def test_a_paused_chain_whose_next_link_cannot_be_queued_is_not_lost(rig: Rig) -> None:
    (rig.fake / "refuse").write_text("sbatch: error: no\n")
    rig.script('touch "$MIRAGE_CHAIN_DIR/paused"')
    code, _out, err = rig.run(1, 11)
    assert code == 1  # else it would count as done
    assert "`mirage resume abcdefgh` does it" in err
    assert over_marker(rig.folder) is None


# ---- From outside


def test_a_link_is_queued_from_outside_as_from_a_link(rig: Rig) -> None:
    change(rig, arguments=("a b", "*"), environment=(("SBATCH_ACCOUNT", "mine"),))
    rig.script("sleep 1")
    rig.run(1, 11, 0, "a b", "*")
    inside = (rig.fake / "sbatch.args").read_text()
    lengthen(rig, 4)
    done = outside(rig, "queue", "2", "11")
    assert (done.returncode, done.stdout) == (0, "92\n")
    assert (rig.fake / "sbatch.args").read_text() == inside
    environ = (rig.fake / "sbatch.env").read_text().splitlines()
    assert {line for line in environ if line.startswith(("SBATCH", "SLURM"))} == {
        "SBATCH_ACCOUNT=mine"
    }
    (rig.fake / "refuse").write_text("sbatch: error: Invalid qos\n")
    refused = outside(rig, "queue", "2", "11")
    assert (refused.returncode, refused.stdout, refused.stderr) == (
        1,
        "",
        "sbatch: error: Invalid qos\n",
    )


# ---- What the user is told


@pytest.mark.parametrize(
    ("body", "code", "said"),
    [
        (":", 0, "ended|all 4 links have run|abcdefgh|0"),
        ("exit 3", 3, "failed|link 4 ended with exit code 3|abcdefgh|0"),
        ('touch "$MIRAGE_DONE_FILE"', 0, "ended|the work is done|abcdefgh|0"),
    ],
)
def test_the_end_is_told_once_and_the_command_changes_nothing(
    rig: Rig, body: str, code: int, said: str
) -> None:
    change(rig, notify=Notify(f"{TELL}; exit 9"))
    rig.script(body)
    assert rig.run(4, 14, 13)[0] == code
    rig.run(4, 15, 13)  # one that starts in a chain that is over
    assert told(rig) == [said]


@pytest.mark.parametrize(("reason", "said"), [("TimeLimit", 1), ("None", 0)])
def test_a_last_link_at_its_time_limit_is_the_end(rig: Rig, reason: str, said: int) -> None:
    change(rig, notify=Notify(TELL))
    rig.script(f"touch works\n{UNTIL_STOP}")
    link = rig.start(4, 14, 13)
    wait_until((rig.root / "works").exists)
    canary_of(link)
    (rig.fake / "state.14").write_text(f"{reason}\n")
    signal_job(link, signal.SIGTERM)
    link.communicate(timeout=PATIENCE_S)
    assert (
        told(rig)
        == ["ended|all 4 links have run, the last one to its time limit|abcdefgh|0"] * said
    )


def test_a_command_that_hangs_is_ended(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirage.chain.script.NOTIFY_LIMIT_S", 1)
    change(rig, notify=Notify("sleep 600"))
    rig.script(":")
    code, _out, err = rig.run(4, 14, 13)  # which has less patience
    assert code == 0
    assert "--notify, ended: the command failed or ran too long" in err


@pytest.mark.parametrize("recorded", [True, False], ids=["with a record", "killed outright"])
def test_an_interruption_is_told_by_the_link_that_ends_it(rig: Rig, recorded: bool) -> None:
    change(rig, notify=Notify(TELL, after_s=600))
    rig.script(f"{UNTIL_STOP}\nexit 0")
    end_s = int(time.time()) - 1000
    if recorded:
        (rig.folder / "link.1").write_text(
            f"job=11\nrestart=0\nstart=1\nwork=1\nend={end_s}\nexit=0\nhow=exit\nswept=\n"
        )
    else:
        (rig.fake / "ends").write_text(f"{end_s - 50}\nUnknown\n{end_s}\n")
    rig.start(2, 12, 11)
    wait_until(lambda: told(rig))
    (line,) = told(rig)
    event, reason, _chain, gap_s = line.split("|")
    assert event == "interrupted"
    assert reason == f"nothing ran for {gap_s} s after link 1 (job 11) ended"
    assert 1000 <= int(gap_s) < 1060


def test_neither_a_short_gap_nor_a_pause_is_an_interruption(rig: Rig) -> None:
    change(rig, notify=Notify(TELL, after_s=600))
    rig.script("sleep 1")
    now_s = int(time.time())
    (rig.folder / "link.1").write_text(
        f"job=11\nstart=1\nwork=1\nend={now_s - 500}\nexit=0\nhow=exit\n"
    )
    rig.run(2, 12, 11)
    (rig.folder / "link.2").write_text(
        f"job=12\nstart=1\nwork=1\nend={now_s - 5000}\nexit=0\nhow=exit\n"
    )
    mark_paused(rig.folder, now_s - 5000)
    mark_resumed(rig.folder, now_s - 100)
    rig.run(3, 13, 12)
    assert told(rig) == []


def test_a_requeued_link_tells_of_its_own_interruption(rig: Rig) -> None:
    change(rig, notify=Notify(TELL, after_s=600))
    rig.script("sleep 1")
    end_s = int(time.time()) - 700
    (rig.folder / "start.2").write_text("job=12\nrestart=0\nstart=1\n")
    (rig.folder / "link.2").write_text(
        f"job=12\nstart=1\nwork=1\nend={end_s}\nexit=143\nhow=slurm\n"
    )
    rig.run(2, 12, 11, SLURM_RESTART_COUNT="1")
    assert [line.split("|")[1].partition(" after ")[2] for line in told(rig)] == [
        "link 2 (job 12) ended"
    ]


def test_the_records_of_a_pause(tmp_path: Path) -> None:
    mark_resumed(tmp_path, 5)
    assert list(tmp_path.iterdir()) == [], "nothing was paused"
    mark_paused(tmp_path, 7)
    assert is_paused(tmp_path)
    mark_resumed(tmp_path, 9)
    mark_resumed(tmp_path, 10)
    assert (is_paused(tmp_path), (tmp_path / "resumed").read_text()) == (False, "9\n")

"""`mirage extend`, `pause`, `resume` and `logs`, as users run them, on fake Slurm commands."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest

from mirage.chain.batch_script import parse_script
from mirage.chain.command_line import parse_request
from mirage.chain.folder import over_marker
from mirage.chain.request import settle
from mirage.chain.script import build_job_script
from mirage.cli.main import main
from mirage.daemon.restraint import Acting
from mirage.daemon.socket import Source, serving
from mirage.domain import ActingMode
from mirage.errors import InputError
from mirage.store.lock import is_held
from mirage.store.memory import MemoryStore
from mirage.store.repository import SqlStore
from mirage.user import steering
from mirage.user.folders import add_chains
from mirage.user.refused_links import QueuesRefused
from tests.fakes.fake_slurm import FakeSlurm
from tests.unit.cli import test_cli
from tests.unit.cli.test_cli import NOW


class Shell(test_cli.Shell):
    """Runs the commands in this process, which saves their start."""

    def run(self, *words, **_more):
        out, err = io.TextIOWrapper(io.BytesIO(), write_through=True), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = main(words)
            except SystemExit as wrong:  # argparse
                code = wrong.code
        return subprocess.CompletedProcess(
            words, code, out.buffer.getvalue().decode(), err.getvalue()
        )


@pytest.fixture
def shell(tmp_path, monkeypatch):
    for name, value in {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "FAKE_SLURM_DIR": tmp_path,
        "FAKE_SLURM_USER": test_cli.ME,
        "HOME": tmp_path,
        "XDG_STATE_HOME": tmp_path / "state",
        "MIRAGE_SOCKET": tmp_path / "no.sock",
    }.items():
        monkeypatch.setenv(name, str(value))
    return Shell(tmp_path, FakeSlurm.create(tmp_path, 2, int(time.time())))


CHAIN = "abcdef12"
SCRIPT = b"#!/bin/sh\nsleep 600\nexit 0\n"


def started(shell, *options):
    """A chain of three whose first link runs, with its folder; the folder and both jobs."""
    first, second = shell.chain()
    words = ["--segments=3", *options, "--time=60", "work.sh"]
    environ = {"HOME": str(shell.folder)}
    settings = settle(
        parse_request(words),
        parse_script(SCRIPT),
        shell.folder / "work.sh",
        environ=environ,
        cwd=str(shell.folder),
        slurm_bin="",
        chain_id=CHAIN,
    )
    folder = settings.folder
    folder.mkdir(parents=True)
    text = build_job_script(settings, parse_script(SCRIPT)).replace(
        b"\n", b"\n# sleep 600\n# exit 0\n", 1
    )
    (folder / "job.sh").write_bytes(text)
    up_front = int("--up-front" in options)
    (folder / "chain").write_text(
        f"chain={CHAIN}\nsegments={settings.segments}\nlength={settings.length}\nmode=train\n"
        f"submitted={NOW}\nup_front={up_front}\n"
    )
    (folder / "queued.1").write_text(f"{first}\n")
    (folder / "queued.2").write_text(f"{second}\n")
    (folder / "start.1").write_text(
        f"job={first}\nrestart=0\nstart={NOW}\nout={shell.folder}/1.out\n"
    )
    return folder, first, second


def job(shell, job_id):
    with shell.slurm.state() as state:
        return next(job for job in state["jobs"] if job["id"] == job_id)


def end(shell, job_id):
    with shell.slurm.state() as state:
        for each in state["jobs"]:
            if each["id"] == job_id:
                each |= {"state": "CANCELLED", "end": state["now"]}


def end_all(shell, folder, reason):
    with shell.slurm.state() as state:
        for each in state["jobs"]:
            each |= {"state": "COMPLETED", "end": state["now"]}
    if reason:
        (folder / "done").write_text(f"{reason}\n")


def report(shell):
    (found,) = json.loads(shell.run("status", CHAIN, "--json").stdout)["chains"]
    return found


# ---- pause and resume


def test_a_pause_holds_the_successor_and_is_seen_by_all(shell):
    folder, first, second = started(shell)
    done = shell.run("pause", CHAIN)
    assert done.returncode == 0, done
    assert (
        f"held job {second}; job {first} runs on to its end. `mirage resume {CHAIN}`" in done.stdout
    )
    assert (job(shell, second)["held"], job(shell, first).get("held")) == (True, False)
    assert "was paused already" in shell.run("pause", CHAIN).stdout
    assert (
        f"Job {second} (link 2) is held: its owner has paused the chain."
        in shell.run("explain", str(second)).stdout
    )
    shell.slurm.advance(4000)  # past the end of link 1
    shell.run("agent", "--once", "--policy", "reactive")
    assert (report(shell)["state"], job(shell, second)["state"]) == ("paused", "PENDING")

    assert f"goes on; released job {second}" in shell.run("resume", CHAIN).stdout
    assert "is not paused: nothing to do" in shell.run("resume", CHAIN).stdout
    assert not (folder / "paused").exists()
    shell.slurm.advance(2)
    assert (report(shell)["state"], job(shell, second)["state"]) == ("active", "RUNNING")


@pytest.mark.parametrize("words", [("pause",), ("resume",), ("extend", "--segments=9")])
def test_only_ones_own_jobs_are_asked_for(shell, words):
    """On a large site the whole queue is much to read, and what is odd in other users' jobs is
    nobody's business.
    """
    started(shell)
    assert shell.run(words[0], CHAIN, *words[1:]).returncode == 0
    asked = [call for call in shell.slurm.calls() if call[0] in ("squeue", "sinfo")]
    assert asked
    of_some_jobs = ("--user", "-u", "--jobs", "-j", "--me")
    assert [call for call in asked if not any(word.startswith(of_some_jobs) for word in call)] == []


@pytest.mark.parametrize("words", [("pause",), ("resume",), ("extend", "--segments=9")])
def test_while_slurm_is_down_nothing_is_done_after_one_try(shell, words):
    folder, _first, second = started(shell)
    shell.slurm.misbehave("squeue", "down")
    before = len(shell.slurm.calls())
    done = shell.run(words[0], CHAIN, *words[1:])
    assert done.returncode != 0
    assert "Slurm does not answer, so nothing was done" in done.stderr
    assert len(shell.slurm.calls()) == before + 1
    assert not (folder / "paused").exists()
    assert not job(shell, second).get("held")


def test_what_the_daemon_saw_of_a_chain_that_ended_meanwhile_is_not_explained_as_waiting(shell):
    folder, _first, second = started(shell)
    shell.run("agent", "--once", "--policy", "reactive")
    (shell.folder / "state" / "mirage" / "fake" / "mirage.once").unlink()
    (shell.folder / "state" / "mirage" / "fake" / "mirage.db").rename(shell.folder / "site.db")
    with (
        SqlStore.open(f"sqlite:///{shell.folder}/site.db") as store,
        serving(
            shell.folder / "no.sock",
            Source(store=store, queue_read_s=lambda: int(time.time()) - 600),
        ),
    ):
        assert f"Job {second} (link 2) is held back for now" in shell.run("explain", CHAIN).stdout
        shell.run("pause", CHAIN)
        assert "As the site's daemon saw the queue at" in shell.run("status", CHAIN).stdout
        shell.run("cancel", CHAIN)
        said = shell.run("explain", str(second)).stdout.replace("\n", " ")
        assert f"Job {second} (link 2) never started (CANCELLED). The chain is cancelled:" in said
    assert over_marker(folder) == ("cancelled", "cancelled by its owner")


@pytest.mark.parametrize("verb", ["logs", "pause"])
def test_a_chain_that_lost_its_folder_is_not_called_somebody_elses(shell, verb):
    shell.chain()
    done = shell.run(verb, CHAIN)
    assert (done.returncode, f"{CHAIN} is not there: it was removed, or" in done.stderr) == (
        2,
        True,
    )


def test_the_status_of_a_failed_chain_says_where_its_output_is(shell):
    folder, first, second = started(shell)
    (folder / "failed").write_text("link 1 ended with exit code 126\n")
    end(shell, second)
    ending = report(shell)
    until = f"mirage logs {CHAIN}. The chain is active until its last job is seen to have ended"
    assert (ending["state"], until in ending["next"]) == ("active", True), ending["next"]
    end(shell, first)
    said = shell.run("status", CHAIN).stdout.replace("\n", " ")
    assert f"exit code 126; what it wrote: mirage logs {CHAIN}" in said


def test_a_done_file_that_is_empty_gives_a_reason(shell):
    folder, _first, _second = started(shell)
    (folder / "done").touch()
    assert over_marker(folder) == ("done", f"{folder}/done exists")


def test_two_commands_at_the_same_time_queue_no_link_twice(shell, monkeypatch):
    folder, _first, _second = started(shell)
    end_all(shell, folder, "all 3 links have run")
    held = []
    monkeypatch.setattr(
        steering,
        "queue_link",
        lambda *_: held.append(is_held(folder / steering.STEERING_LOCK)) or 99,
    )
    assert shell.run("extend", CHAIN, "--segments=+1").returncode == 0
    assert held == [True]
    assert not is_held(folder / steering.STEERING_LOCK)


def test_a_link_that_a_pause_asked_to_end_has_not_failed(shell):
    folder, first, _second = started(shell)
    (folder / "handover.1").write_text("job=pause\ngrace=300\n")
    with shell.slurm.state() as state:
        job = next(job for job in state["jobs"] if job["id"] == first)
        job |= {"state": "FAILED", "end": state["now"]}
    (link, _next) = report(shell)["links"]
    assert (link["state"], link["handover"]["successor"]) == ("FAILED", None)
    (row,) = re.findall(rf"^ *1 +{first} .*$", shell.run("status", CHAIN).stdout, re.MULTILINE)
    assert " paused " in row


def test_a_paused_chain_without_a_job_is_queued_again(shell):
    """Its running link could not queue the next one, or the owner cancelled it."""
    folder, first, _second = started(shell)
    shell.run("pause", CHAIN)
    end_all(shell, folder, "")
    done = shell.run("resume", CHAIN)
    assert "goes on; queued link 2 (job 3)" in done.stdout, done
    new = job(shell, 3)
    assert (new["comment"], new["held"]) == (
        f"mirage/1 chain={CHAIN} seg=2/12 of=3 pred={first} mode=train ei=1 eo=1",
        False,
    )
    assert f"--dependency=afterany:{first}" in new["line"]
    assert (folder / "queued.2").read_text() == "3\n"


def test_a_link_that_is_on_its_way_back_to_the_queue_is_waited_for(shell):
    _folder, _first, second = started(shell)
    shell.run("pause", CHAIN)

    def change(**how):
        with shell.slurm.state() as state:
            next(job for job in state["jobs"] if job["id"] == second).update(how)

    change(state="COMPLETING", held=False)
    back = threading.Timer(4, change, kwargs={"state": "PENDING", "held": True})
    back.start()
    assert f"released job {second}" in shell.run("resume", CHAIN).stdout
    assert job(shell, second)["held"] is False


def test_an_unsound_answer_starts_no_second_link(shell):
    _folder, _first, second = started(shell)
    shell.run("pause", CHAIN)
    fake = shell.folder / "bin" / "squeue"
    fake.write_text(
        fake.read_text().replace("exec", 'case "$*" in *" -j "*) ;; *) exit 0 ;; esac\nexec')
    )
    assert shell.run("resume", CHAIN).returncode == 0
    assert [call for call in shell.slurm.calls() if call[0] == "sbatch"][2:] == []
    assert job(shell, second)["held"] is False


# ---- extend


def test_a_chain_gets_more_links_in_folder_store_and_tags(shell):
    folder, first, second = started(shell)
    done = shell.run("extend", CHAIN, "--segments", "+2")
    assert f"chain {CHAIN} has 5 time limits now (before: 3 time limits)" in done.stdout, done
    assert "segments=20\nlength=5\n" in (folder / "chain").read_text()
    assert [job(shell, each)["comment"].split()[2:4] for each in (first, second)] == [
        ["seg=1/20", "of=5"],
        ["seg=2/20", "of=5"],
    ]
    assert report(shell)["segments"] == 20
    assert report(shell)["length"] == "5 time limits"
    assert "has 7 time limits now" in shell.run("extend", CHAIN, "--total-time=+90").stdout
    assert "has 7 time limits already" in shell.run("extend", CHAIN, "--segments=7").stdout
    assert (
        "has 7 h now (before: 7 time limits)"
        in shell.run("extend", CHAIN, "--total-time=7h").stdout
    )
    assert "has 9 h now (before: 7 h)" in shell.run("extend", CHAIN, "--segments=+2").stdout
    assert "seg=2/36 of=32400s" in job(shell, second)["comment"]


def test_a_chain_is_made_so_short_that_its_running_link_is_the_last(shell):
    folder, _first, second = started(shell)
    end(shell, second)
    assert "has 1 time limit now" in shell.run("extend", CHAIN, "--segments=1").stdout
    assert "segments=1\nlength=1\n" in (folder / "chain").read_text()


def test_a_chain_without_a_length_gets_one_but_no_more_of_it(shell):
    folder, _first, _second = started(shell)
    record = (folder / "chain").read_text().replace("length=3", "length=done")
    (folder / "chain").write_text(record)
    done = shell.run("extend", CHAIN, "--segments=+2")
    assert (done.returncode, "it runs until the work is done" in done.stderr) == (2, True)
    done = shell.run("extend", CHAIN, "--segments=8")
    assert "has 8 time limits now (before: until the work is done)" in done.stdout


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_chain_whose_queued_link_was_cancelled_by_hand_gets_it_again(shell, is_forgotten):
    """Its running link has queued one, and does not look again."""
    folder, first, second = started(shell)
    end(shell, second)
    with shell.slurm.state() as state:
        if is_forgotten:
            state["jobs"] = [each for each in state["jobs"] if each["id"] != second]
    done = shell.run("extend", CHAIN, "--segments=3")
    third = int((folder / "queued.2").read_text())
    assert third not in (first, second)
    assert f"has 3 time limits already; queued link 2 (job {third})" in done.stdout
    assert job(shell, third)["dependency"]
    assert "queued" not in shell.run("extend", CHAIN, "--segments=4").stdout, "it is there now"


def test_a_chain_queued_up_front_gets_its_jobs_at_once(shell):
    folder, _first, second = started(shell, "--up-front")
    assert (
        "queued link 3 (job 3), link 4 (job 4)"
        in shell.run("extend", CHAIN, "--segments", "4").stdout
    )
    assert [job(shell, each)["dependency"] for each in (3, 4)] == [[second], [3]]
    assert (folder / "queued.4").read_text() == "4\n"


def test_what_follows_a_chain_that_was_queued_up_front_follows_its_new_last_link(shell):
    folder, _first, second = started(shell, "--up-front")
    mark = "--comment=mirage-then/1 chain=abcdef12 n=1"
    post = shell.sbatch(f"--dependency=afterany:{second}", mark)
    with (folder / "chain").open("a") as record:
        record.write("then.1=/home/a/post.sh\n")
    (folder / "then.1").write_text(f"{post}\n")
    done = shell.run("extend", CHAIN, "--segments", "4")
    last = int((folder / "queued.4").read_text())
    assert [
        "scontrol",
        "update",
        f"JobId={post}",
        f"Dependency=afterok:{last}",
    ] in shell.slurm.calls(), done.stderr


def test_a_chain_whose_links_have_all_run_is_continued(shell):
    folder, _first, second = started(shell)
    (folder / "start.3").write_text("job=77\nrestart=0\nstart=1\n")
    (folder / "chain").write_text(
        (folder / "chain").read_text().replace("segments=12", "segments=3")
    )
    end_all(shell, folder, "all 3 links have run")
    (folder / "notified").mkdir()
    done = shell.run("extend", CHAIN, "--segments=+1")
    assert "has 4 time limits now (before: 3 time limits); queued link 4 (job 3)" in done.stdout, (
        done
    )
    assert not (folder / "done").exists()
    assert not (folder / "notified").exists()
    assert "seg=4/16 of=4 pred=77" in job(shell, 3)["comment"]
    assert second


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["extend", CHAIN, "--segments", "0"], "expected a number of time limits"),
        (["extend", CHAIN, "--segments", "1"], "link 2 has started or is queued"),
        (["extend", CHAIN, "--segments", "+9998"], "that makes 10001 links"),
        (["extend", CHAIN, "--total-time", "soon"], "is not a duration"),
        (["logs", CHAIN, "--link", "2"], "link 2 has not started"),
        (["logs", CHAIN, "--link", "x"], "expected the number of a link"),
    ],
)
def test_wrong_input_changes_nothing(shell, words, said):
    folder, _first, _second = started(shell)
    before = sorted((path.name, path.read_text()) for path in folder.iterdir())
    done = shell.run(*words)
    assert (done.returncode, said in done.stderr) == (2, True), done
    assert sorted((path.name, path.read_text()) for path in folder.iterdir()) == before


@pytest.mark.parametrize("verb", ["extend", "pause", "resume", "logs"])
def test_a_chain_that_is_not_ones_own_is_refused(shell, verb):
    more = ["--segments=4"] if verb == "extend" else []
    for chain in ("zzzzzz99", "../x"):
        done = shell.run(verb, chain, *more)
        assert (done.returncode, "no chain of yours has this id" in done.stderr) == (2, True), done


def test_a_chain_that_is_over_says_what_to_do(shell):
    folder, _first, _second = started(shell)
    end_all(shell, folder, "it has converged")
    for words, said in (
        (["extend", CHAIN, "--segments=9"], "start it again with mirage-submit"),
        (["pause", CHAIN], "nothing to pause"),
        (["resume", CHAIN], "start it again with mirage-submit"),
    ):
        done = shell.run(*words)
        assert (done.returncode, "it has converged" in done.stderr, said in done.stderr) == (
            2,
            True,
            True,
        ), done
    (folder / "done").write_text("all 2 links have run\n")
    more = f"more links: mirage extend {CHAIN} --segments +1"
    assert more in shell.run("resume", CHAIN).stderr
    (folder / "done").unlink()
    assert (
        f"`mirage resume {CHAIN}` queues the next one"
        in shell.run("extend", CHAIN, "--segments=9").stderr
    )


@pytest.mark.parametrize("words", [["pause", "--now"], ["resume"], ["extend", "--segments=5"]])
def test_without_slurm_nothing_is_done(shell, words):
    folder, _first, _second = started(shell)
    before = sorted(path.name for path in folder.iterdir())
    shell.slurm.misbehave("squeue", "fail")
    assert shell.run(*words, CHAIN).returncode == 1
    assert sorted(path.name for path in folder.iterdir()) == before
    assert "segments=12\n" in (folder / "chain").read_text()


def test_a_chain_of_an_older_mirage_is_left_alone(shell):
    folder, _first, _second = started(shell)
    (folder / "job.sh").write_text("#!/bin/sh\n")
    assert "older Mirage" in shell.run("pause", CHAIN).stderr
    assert not (folder / "paused").exists()


# ---- logs


def test_the_output_of_all_links_in_order_each_file_once(shell):
    folder, _first, _second = started(shell)
    for segment, files in ((2, ("a", "a.err")), (3, ("a", "gone")), (10, ("b", "b"))):
        out, err = (f"{shell.folder}/{name}" for name in files)
        (folder / f"start.{segment}").write_text(f"job=1{segment}\nstart=1\nout={out}\nerr={err}\n")
    for name, text in (
        ("1.out", "one\n"),
        ("a", "two\nthree\n"),
        ("a.err", "oops\n"),
        ("b", "ten"),
    ):
        (shell.folder / name).write_text(text)
    done = shell.run("logs", CHAIN)
    at = shell.folder
    assert done.stdout == (
        f"==> link 1: {at}/1.out <==\none\n\n==> links 2, 3: {at}/a <==\ntwo\nthree\n"
        f"\n==> link 2: {at}/a.err <==\noops\n\n==> link 10: {at}/b <==\nten"
    )
    assert done.stderr == f"mirage logs: link 3: {at}/gone: can't be read here\n"
    assert shell.run("logs", CHAIN, "--link", "10").stdout == f"==> link 10: {at}/b <==\nten"


def test_following_goes_on_until_the_chain_is_over(shell):
    folder, _first, _second = started(shell)
    out = shell.folder / "1.out"
    out.write_text("one\n")
    words = [sys.executable, "-m", "mirage.cli.main", "logs", "-f", CHAIN]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout
        assert [follower.stdout.readline() for _ in range(2)] == [
            f"==> link 1: {out} <==\n",
            "one\n",
        ]
        with out.open("a") as more:
            more.write("two\n")
        assert follower.stdout.readline() == "two\n"
        (folder / "start.2").write_text(f"job=2\nstart=1\nout={shell.folder}/2.out\n")
        (shell.folder / "2.out").write_text("three\n")
        assert [follower.stdout.readline() for _ in range(3)] == [
            "\n",
            f"==> link 2: {shell.folder}/2.out <==\n",
            "three\n",
        ]
        time.sleep(1)
        assert follower.poll() is None
        end_all(shell, folder, "all 3 links have run")
        assert follower.wait(240) == 0


# ---- mirage-submit --notify


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--notify="], "--notify needs a shell command"),
        (["--notify-after=5min"], "no meaning without --notify"),
    ],
)
def test_what_notify_needs_is_said(tmp_path, words, said):
    request = parse_request(["--segments=2", *words, "x.sh"])
    with pytest.raises(InputError, match=said):
        settle(
            request,
            parse_script(SCRIPT),
            tmp_path / "x.sh",
            environ={"HOME": str(tmp_path)},
            cwd=str(tmp_path),
            slurm_bin="",
            chain_id=CHAIN,
        )


# ---- One home, several clusters


@pytest.fixture
def elsewhere(shell):
    """A chain of another cluster, whose folder lies in the same home; its folder."""
    folder, _first, _second = started(shell)
    with (folder / "chain").open("a") as record:
        record.write("cluster=other\nname=work.sh\n")
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("explain",),
        ("history",),
        ("logs",),
        ("wait",),
        ("cancel", "--yes"),
        ("done",),
        ("pause",),
        ("resume",),
        ("extend", "--segments=+1"),
    ],
    ids=lambda words: words[0],
)
def test_a_chain_of_another_cluster_is_left_alone(shell, elsewhere, words):
    before = {path.name: path.read_bytes() for path in elsewhere.iterdir() if path.is_file()}
    done = shell.run(words[0], CHAIN, *words[1:])
    assert done.returncode == 2, done
    assert f"chain {CHAIN} is of cluster other" in done.stderr
    assert "reach cluster fake" in done.stderr
    after = {path.name: path.read_bytes() for path in elsewhere.iterdir() if path.is_file()}
    assert after == before
    assert [call for call in shell.slurm.calls() if call[0] == "scancel"] == []


def test_the_list_of_chains_names_those_of_other_clusters_and_judges_none(shell, elsewhere):
    end_all(shell, elsewhere, "")
    told = json.loads(shell.run("status", "--all", "--json").stdout)
    assert told["chains"] == []
    assert f"On cluster other, whose Slurm can't be asked here: {CHAIN}." in told["note"]


def test_a_job_id_means_a_job_of_this_cluster(shell, elsewhere):
    job_id = (elsewhere / "queued.1").read_text().strip()
    assert shell.run("cancel", job_id, "--yes").returncode == 2
    assert not (elsewhere / "cancelled").exists()


def test_each_cluster_has_an_agent_of_its_own(shell, monkeypatch):
    started(shell)
    shell.run("agent", "--once")
    conf = shell.folder / "other.conf"
    conf.write_text("# ClusterName=no\nClusterName=Other\n")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    shell.run("agent", "--once")
    state = shell.folder / "state" / "mirage"
    assert sorted(path.parent.name for path in state.glob("*/mirage.db")) == ["fake", "other"]


# ---- a job id is no identity; a link that can't be queued by the chain's own jobs


def give_away(shell, job_id, **changes):
    """slurmctld was killed, forgot this job, and gave its id to another one."""
    job = {"user": "carol", "comment": "", "dependency": "", "submit": int(time.time())} | changes
    with shell.slurm.state() as state:
        for each in state["jobs"]:
            if each["id"] == job_id:
                each |= job


def test_a_job_that_has_a_lost_links_id_is_not_shown_nor_waited_for_and_resume_queues_again(shell):
    folder, first, second = started(shell)
    give_away(shell, second, state="RUNNING")
    at_s = int(time.time()) - 60
    times = dict.fromkeys(("submit", "eligible", "start", "end"), at_s)
    give_away(shell, first, user=test_cli.ME, state="COMPLETED", **times)
    (folder / "start.1").write_text(f"job={first}\nrestart=0\nstart={at_s}\n")
    (folder / "link.1").write_text(
        f"job={first}\nstart={at_s}\nwork={at_s}\nend={at_s}\nexit=0\nhow=exit\nswept=\n"
    )
    told = report(shell)
    assert [link["job_id"] for link in told["links"]] == [first]
    assert told["state"] == "failed"
    assert f"link 2 is not in Slurm any more (to go on: mirage resume {CHAIN})" in told["next"]
    waited = shell.run("wait", CHAIN, "--timeout", "60s")
    assert (waited.returncode, "mirage resume" in waited.stderr) == (1, True), waited
    done = shell.run("resume", CHAIN)
    assert done.returncode == 0, done.stderr
    assert "queued link 2" in done.stdout
    assert (folder / "queued.2").read_text() != f"{second}\n"
    assert report(shell)["state"] == "active"


def test_a_link_that_its_chain_can_not_queue_is_told_of_and_queued_by_its_owner(shell):
    folder, _first, second = started(shell)
    end(shell, second)
    (folder / "queued.2").unlink()
    (folder / "queued.2.error").write_text("sbatch: error: Access/permission denied\n")
    told = report(shell)
    assert told["attention"]["trouble"] == "unqueued"
    assert "Link 2 could not be queued: sbatch: error: Access/permission denied." in told["next"]
    done = shell.run("resume", CHAIN)
    assert "queued link 2" in done.stdout, done
    assert not (folder / "queued.2.error").exists()
    assert report(shell)["attention"] is None


def refused(shell):
    """A chain whose first link runs and could not queue the second one; its folder."""
    folder, _first, second = started(shell)
    end(shell, second)
    (folder / "queued.2").unlink()
    (folder / "queued.2.error").write_text("sbatch: error: Access/permission denied\n")
    return folder


@pytest.mark.parametrize("mode", [ActingMode.ENFORCE, ActingMode.ADVISE])
def test_an_agent_that_may_act_queues_what_its_owners_jobs_could_not(shell, mode):
    folder = refused(shell)
    queuer = QueuesRefused(Acting(mode=mode))
    queuer.cycle_ended(False, 0, 0)
    assert not (folder / "queued.2").exists(), "the cycle failed"
    cycle = threading.Thread(target=queuer.cycle_ended, args=(True, 0, 0))  # as an agent's loop
    cycle.start()
    cycle.join()
    assert (folder / "queued.2").exists() is (mode is ActingMode.ENFORCE)


def test_an_agent_queues_again_what_slurm_has_lost(shell):
    folder, first, second = started(shell)
    end(shell, first)
    (folder / "start.1").write_text(f"job={first}\nrestart=0\nstart=1\n")
    end(shell, second)
    queuer = QueuesRefused(Acting(mode=ActingMode.ENFORCE))
    queuer.cycle_ended(True, 0, 0)
    assert (folder / "queued.2").read_text() == f"{second}\n", "its owner may have cancelled it"
    store = MemoryStore()
    add_chains(store, test_cli.ME, [CHAIN])
    lost = store.link_of_job(second)
    assert lost
    queuer.links_lost([replace(lost, job_id=second + 1)])
    assert (folder / "queued.2").exists(), "another job is link 2 by now"
    queuer.links_lost([lost])
    assert "Slurm has lost its job" in report(shell)["next"]
    queuer.cycle_ended(True, 0, 0)
    assert (folder / "queued.2").read_text() != f"{second}\n"


def test_a_chain_that_an_agent_can_not_read_keeps_no_other_one_from_its_link(shell, caplog):
    folder = refused(shell)
    broken = folder.with_name("aaaaaaaaaa")
    broken.mkdir()
    for name in ("queued.1", "queued.2.error"):
        (broken / name).write_text((folder / name).read_text())
    QueuesRefused(Acting(mode=ActingMode.ENFORCE)).cycle_ended(True, 0, 0)
    assert (folder / "queued.2").exists()
    assert "chain aaaaaaaaaa: the next link can't be queued" in caplog.text

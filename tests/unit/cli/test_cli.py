"""The commands as users run them, on fake Slurm commands: what they print, and how they end."""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from mirage.daemon.socket import Source, ask, closed_folder, serving
from mirage.domain import Chain
from mirage.errors import InputError
from mirage.store import tables
from mirage.store.repository import SqlStore
from tests.fakes.fake_slurm import FakeSlurm
from tests.forked_commands import run_mirage

ME = pwd.getpwuid(os.getuid()).pw_name
NOW = int(time.time())


@dataclass
class Shell:
    folder: Path
    slurm: FakeSlurm

    def run(
        self,
        *words: str,
        timeout_s: float = 240,
        stdout: int = subprocess.PIPE,
        module: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        env = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "FAKE_SLURM_DIR": str(self.folder),
            "FAKE_SLURM_USER": ME,
            "HOME": str(self.folder),
            "XDG_STATE_HOME": str(self.folder / "state"),
            "MIRAGE_SOCKET": str(self.folder / "no.sock"),
            "COLUMNS": "80",  # no terminal reads it, so no line is wrapped
        }
        if module:
            return run_mirage(words, env=env, stdout=stdout, timeout_s=timeout_s)
        return subprocess.run(
            [sys.executable, *words],
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            timeout=timeout_s,
        )

    def sbatch(self, *words: str) -> int:
        script = self.folder / "work.sh"
        script.write_text("#!/bin/sh\nsleep 600\nexit 0\n")
        env = {
            "FAKE_SLURM_DIR": str(self.folder),
            "FAKE_SLURM_USER": ME,
            "PATH": os.environ["PATH"],
        }
        done = subprocess.run(
            [self.folder / "bin" / "sbatch", "--parsable", *words, script],
            env=env,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return int(done.stdout)

    def chain(self) -> tuple[int, int]:
        """The jobs of a chain whose first link runs."""
        tag = "mirage/1 chain=abcdef12 seg={}/3{} mode=train ei=1 eo=1"
        first = self.sbatch("--nodes=1", "--time=60", f"--comment={tag.format(1, '')}")
        second = self.sbatch(
            "--nodes=1",
            "--time=60",
            f"--dependency=afterany:{first}",
            f"--comment={tag.format(2, f' pred={first}')}",
        )
        self.slurm.advance(2)
        return first, second


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, FakeSlurm.create(tmp_path, 2, int(time.time())))


def test_help_names_every_verb(shell):
    text = shell.run("--help").stdout
    for verb in ("status", "explain", "history", "cancel", "done", "daemon", "agent", "demo"):
        assert verb in text
        assert shell.run(verb, "--help").returncode == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nonsense"], "there is no such verb"),
        (["stauts"], "did you mean `mirage status`?"),
        (["ps"], "did you mean `mirage status`?"),
        (["submit", "--partiton=x", "j.sh"], "mirage-submit: "),
        (["explain", "x"], "no chain of yours has this id"),
        (["history", "--link", "3", "x"], "mirage history: unrecognized arguments: --link x"),
        (["agent", "--poll", "0"], "expected seconds above 0"),
        (["agent", "--poll", "soon"], "expected seconds above 0"),
        (["agent", "--policy", "oracle"], "invalid choice"),
        (["explain", "0"], "expected a job id"),
        (["status", "abcdef99"], "no chain of yours has this id"),
        (["cancel", "abcdef99"], "no chain of yours has this id"),
        (["cancel"], "which chains?"),
        (["cancel", "--all", "abcdef99"], "which chains?"),
        (["cancel", "../x"], "no chain of yours has this id"),
        (["done"], "which chain?"),
        (["explain", "99"], "no link of a chain of yours"),
    ],
)
def test_wrong_usage_is_one_clear_sentence_and_exit_2(shell, words, said):
    done = shell.run(*words)
    assert done.returncode == 2, done
    assert said in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("words", [("status",), ("status", "--json"), ("daemon", "--print-config")])
def test_who_reads_no_further_does_no_harm(shell, words):
    shell.chain()
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = shell.run(*words, stdout=writer)
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_broken_configuration_is_refused_with_its_line(shell):
    config = shell.folder / "mirage.toml"
    config.write_text('[policy]\nname = "quantile"\n[policy.quantile]\nlast = "many"\n')
    done = shell.run("daemon", "--config", str(config), "--once")
    assert done.returncode == 2
    assert f"{config}:4: policy.quantile.last: expected a whole number" in done.stderr
    assert not (shell.folder / "state").exists()


@pytest.mark.parametrize(
    ("command", "how", "said"),
    [
        ("squeue", "garbage", "squeue"),
        ("squeue", "fail", "something is wrong"),
        ("squeue", "down", "Unable to contact slurm controller"),
        ("squeue", "hang", "squeue"),
        ("sinfo", "garbage", "sinfo"),
        ("sinfo", "empty", "sinfo"),
        ("sinfo", "hang", "sinfo"),
    ],
)
def test_a_slurm_that_answers_nonsense_stops_the_cycle_not_the_chain(shell, command, how, said):
    config = shell.folder / "mirage.toml"
    config.write_text("[cluster]\ntimeout_s = 2\n" if how == "hang" else "")
    shell.chain()
    words = ("agent", "--config", str(config), "--policy", "timer", "--once", "--verbose")
    shell.slurm.misbehave(command, how)
    done = shell.run(*words)
    assert done.returncode == 1, done
    assert "cycle skipped" in done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert ["scontrol"] not in [call[:1] for call in shell.slurm.calls() if "update" in call]
    shell.slurm.behave()
    config.write_text("")
    again = shell.run(*words)
    assert again.returncode == 0, again.stderr
    assert "release: released" in again.stderr


def test_the_daemon_observes_unless_it_is_told_to_act_and_the_agent_acts(shell):
    _first, second = shell.chain()
    config = shell.folder / "mirage.toml"
    config.write_text(
        f'[daemon]\nstore = "sqlite:///{shell.folder}/d/mirage.db"\nsocket = ""\n[policy]\nname ='
        f' "timer"\n[acting]\ndisable_file = "{shell.folder}/disabled"\n'
    )
    daemon = ("daemon", "--config", str(config), "--once")
    done = shell.run(*daemon)
    assert (
        f"job {second}: would be let in, but [observe: this service only observes]" in done.stderr
    )
    (shell.folder / "disabled").touch()
    assert (
        f"[disabled: {shell.folder}/disabled exists]"
        in shell.run(*daemon, "--mode", "enforce").stderr
    )
    assert not [call for call in shell.slurm.calls() if "update" in call]
    assert (
        "release: released" in shell.run("agent", "--once", "--verbose", "--policy", "timer").stderr
    )
    log = (shell.folder / "d" / "audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["held_back"] for line in log] == ["observe", "disabled"]
    assert (shell.folder / "state" / "mirage" / "fake" / "audit.jsonl").exists()


def test_ones_own_agent_that_acts_tells_rather_than_a_daemon_that_only_observes(shell):
    _first, second = shell.chain()
    config = shell.folder / "mirage.toml"
    config.write_text(f'[daemon]\nstore = "sqlite:///{shell.folder}/d/mirage.db"\nsocket = ""\n')
    shell.run("daemon", "--config", str(config), "--once", "--policy", "timer")
    shell.run("agent", "--once", "--policy", "avg")

    def told():
        status = json.loads(shell.run("status", "--json").stdout)["chains"][0]
        return (
            status["acting"],
            json.loads(shell.run("explain", str(second), "--json").stdout)["acting"],
        )

    with (
        SqlStore.open(f"sqlite:///{shell.folder}/d/mirage.db") as store,
        serving(shell.folder / "no.sock", Source(store=store)),
    ):
        assert told() == ("enforce", "enforce"), "an agent that ran lately, from cron, watches"
        (shell.folder / "state" / "mirage" / "fake" / "mirage.once").unlink()
        assert told() == ("observe", "observe")
        with (shell.folder / "state" / "mirage" / "fake" / "mirage.lock").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # as an agent that runs
            assert told() == ("enforce", "enforce")


def test_an_empty_squeue_loses_nothing(shell):
    shell.chain()
    assert shell.run("agent", "--once", "--policy", "reactive").returncode == 0
    shell.slurm.misbehave("squeue", "empty")
    assert shell.run("agent", "--once", "--policy", "reactive").returncode == 0
    shell.slurm.behave()
    (report,) = json.loads(shell.run("status", "--json").stdout)["chains"]
    assert (report["state"], len(report["links"])) == ("active", 2)


def test_a_cycle_asks_squeue_and_sinfo_once_whatever_the_number_of_chains(shell):
    shell.chain()
    shell.run("agent", "--once", "--policy", "reactive")
    before = len(shell.slurm.calls())
    for number in range(5):
        shell.sbatch(
            "--nodes=1", f"--comment=mirage/1 chain=another{number} seg=1/3 mode=train ei=1 eo=1"
        )
    shell.run("agent", "--once", "--policy", "reactive")
    calls = shell.slurm.calls()[before:]
    assert len(json.loads(shell.run("status", "--json").stdout)["chains"]) == 6
    asked = [call[0] for call in calls]
    assert asked.count("squeue") == asked.count("sinfo") == 1


def test_status_without_any_service_shows_what_slurm_knows(shell):
    first, second = shell.chain()
    text = shell.run("status").stdout
    assert "chain abcdef12 active" in text
    assert f"waits for job {first}" in text
    assert f"Slurm starts it after job {first} ends" in text
    assert "No Mirage daemon answers on this machine, and no agent of yours is seen to run" in text
    assert shell.run("explain", str(second)).stdout.startswith(f"Job {second} (link 2)")


def test_the_agents_reasons_are_shown(shell):
    first, second = shell.chain()
    shell.run("agent", "--once", "--policy", "avg")
    text = shell.run("explain", str(second)).stdout
    assert "is held back for now" in text
    assert f"Slurm starts it after job {first} ends" in text
    assert "abcdef12" in shell.run("history").stdout


def test_status_while_slurm_is_down_says_that_it_may_be_old(shell):
    shell.chain()
    shell.run("agent", "--once", "--policy", "reactive")
    for fault in ("down", "hang"):
        shell.slurm.misbehave("squeue", fault)
        before = len(asked(shell, "squeue"))
        done = shell.run("status")
        assert done.returncode == 0
        assert "abcdef12" in done.stdout
        assert "Slurm can't be asked now" in done.stdout
        assert len(asked(shell, "squeue")) == before + 1, "one try: somebody waits"


def asked(shell, command):
    """The fake Slurm's calls of this command."""
    return [call for call in shell.slurm.calls() if Path(call[0]).name == command]


def folder_of(shell, marker=""):
    """The folder of the chain that `Shell.chain` starts, as mirage-submit and the jobs leave it."""
    folder = shell.folder / ".mirage" / "chains" / "abcdef12"
    folder.mkdir(parents=True)
    (folder / "chain").write_text(f"chain=abcdef12\nsegments=3\nmode=train\nsubmitted={NOW}\n")
    if marker:
        (folder / marker).write_text("crash loop: 3 links in a row\n")
    return folder


def test_why_its_own_jobs_ended_a_chain_is_told_though_the_agent_can_not_see_it(shell):
    """To the agent a crash loop looks like work that was done early: a link that ended, a successor
    cancelled.
    """
    _first, second = shell.chain()
    shell.run("agent", "--once", "--policy", "reactive")
    with shell.slurm.state() as state:
        for job in state["jobs"]:
            job |= {
                "state": "COMPLETED" if job["id"] != second else "CANCELLED",
                "end": state["now"] + 5,
            }
    shell.run("agent", "--once", "--policy", "reactive")
    (before,) = json.loads(shell.run("status", "--all", "--json").stdout)["chains"]
    folder_of(shell, "failed")
    (after,) = json.loads(shell.run("status", "--all", "--json").stdout)["chains"]
    assert (before["state"], after["state"], after["reason"]) == (
        "done",
        "failed",
        "crash loop: 3 links in a row",
    )


def test_without_slurm_and_agent_a_chain_is_what_its_folder_says(shell):
    first, second = shell.chain()
    folder = folder_of(shell)
    (folder / "queued.1").write_text(f"{first}\n")
    (folder / "queued.2").write_text(f"{second}\n")
    (folder / "start.1").write_text(f"job={first}\nrestart=0\nstart={NOW}\n")
    (folder.parent / "a file").touch()
    (folder.parent / "zzzzzz").mkdir()
    shell.slurm.misbehave("squeue", "down")
    found = json.loads(shell.run("status", "--json").stdout)
    assert "Slurm can't be asked now" in found["note"]
    (report,) = found["chains"]
    assert (report["state"], [link["state"] for link in report["links"]]) == (
        "active",
        ["RUNNING", "PENDING"],
    )


def test_a_service_is_told_by_what_its_folder_says_of_its_readiness(shell):
    """Ready 20 s after its start; its second link 15 s after the end of the first; the third starts.
    The first one's server died, and was back after 5 s.
    """
    begun_s, folder = 1_700_000_000, folder_of(shell, "cancelled")
    (folder / "chain").write_text(
        f"chain=abcdef12\nsegments=4\nmode=service\nsubmitted={begun_s}\n"
    )
    for segment, start_s, ready_s, end_s in (
        (1, 0, 20, 100),
        (2, 95, 115, 195),
        (3, 190, None, 215),
    ):
        (folder / f"queued.{segment}").write_text(f"{segment}\n")
        (folder / f"start.{segment}").write_text(
            f"job={segment}\nrestart=0\nstart={begun_s + start_s}\n"
        )
        if ready_s:
            (folder / f"ready.{segment}").write_text("down=5\n" if segment == 1 else "")
            os.utime(folder / f"ready.{segment}", (begun_s + ready_s, begun_s + ready_s))
        times = f"start={begun_s + start_s}\nwork={begun_s + start_s}\nend={begun_s + end_s}\n"
        (folder / f"link.{segment}").write_text(f"job={segment}\n{times}exit=0\nhow=handover\n")
    (report,) = json.loads(shell.run("history", "--all", "--json").stdout)["chains"]
    assert [link["interruption_s"] for link in report["links"]] == [5, 15, 20]
    assert [link["down_s"] for link in report["links"]] == [5, 0, 0]
    assert [link["readiness"] for link in report["links"]] == ["ready", "ready", "never ready"]
    assert [link["ready"] for link in report["links"]] == [begun_s + 20, begun_s + 115, None]
    assert report["totals"]["interruption_s"] == report["service"]["down_s"] == 40
    assert (report["service"]["wall_s"], report["service"]["longest_gap_s"]) == (195, 20)
    told = shell.run("history", "--all").stdout
    assert "up for 79.49% (wanted: 99.9%) of 3 min 15 s, never away for longer than 20 s" in told
    assert "up 79.49% (wanted: 99.9%)" in shell.run("status", "--all").stdout
    assert (report["penalties"], report["service"]["wanted"]) == (None, 0.999)


def test_cancel_ends_successor_and_running_link(shell):
    first, second = shell.chain()
    done = shell.run("cancel", "abcdef12")
    assert done.returncode == 0
    assert f"ended jobs {second}, {first}" in done.stdout
    order = [call[-1] for call in shell.slurm.calls() if call[0] == "scancel"]
    assert order == [str(second), str(first)]


def test_done_cancels_the_successor_only(shell):
    first, second = shell.chain()
    assert f"cancelled successor {second}" in shell.run("done", "abcdef12").stdout
    assert [call[-1] for call in shell.slurm.calls() if call[0] == "scancel"] == [str(second)]
    assert first


def test_a_checkpoint_that_was_cut_off_and_what_follows_are_told(shell):
    first, _second = shell.chain()
    folder = folder_of(shell)
    with (folder / "chain").open("a") as record:
        record.write("then.1=/home/a/post.sh\nthen.2=/home/a/late.sh\n")
    (folder / "handover.1").write_text(
        "job=12\ngrace=90\nasked=1000\nby=grace\ncut=1090\ngone=1100\n"
    )
    (folder / "then.2.error").write_text("QOSMaxSubmitJobPerUserLimit\n")
    for verb in ("status", "history"):
        text = shell.run(verb).stdout
        assert (
            f"Link 1 (job {first}) was cancelled by its successor 1 min 30 s after it was asked"
            " to end" in text
        )
        assert "--handover-grace 180s" in text
        assert "Once the chain is done, /home/a/post.sh follows." in text
        assert (
            "late.sh could not be queued: QOSMaxSubmitJobPerUserLimit. To try again: mirage done"
            " abcdef12" in text
        )
        (report,) = json.loads(shell.run(verb, "--json").stdout)["chains"]
        asked = {
            "successor": 12,
            "asked_by": "successor",
            "asked": 1000,
            "grace_s": 90,
            "cut_off": 1090,
            "cut_off_by": "grace",
            "gone": 1100,
        }
        assert [link["handover"] for link in report["links"]] == [asked, None]
        assert report["then"][0] == {"script": "/home/a/post.sh", "job_id": None, "problem": None}


def with_then(shell):
    """The folder of `Shell.chain`, whose job script only says how it was called."""
    folder = folder_of(shell)
    with (folder / "chain").open("a") as record:
        record.write("then.1=/home/a/post.sh\n")
    calls = shell.folder / "follow-up.log"
    (folder / "job.sh").write_text(
        f'echo "$1 $(ls {folder})" | tr "\\n" " " >>{calls}; echo 77 >{folder}/then.1\n'
    )
    return folder, calls


def test_done_lets_follow_what_was_asked_for(shell):
    shell.chain()
    _folder, calls = with_then(shell)
    assert "job 77 follows it: /home/a/post.sh" in shell.run("done", "abcdef12").stdout
    assert calls.read_text().startswith("follow-up ")
    assert " done " in calls.read_text(), "marked before"


def test_cancel_takes_away_what_was_queued_for_later(shell):
    shell.chain()
    _folder, calls = with_then(shell)
    assert shell.run("cancel", "abcdef12").returncode == 0
    assert " cancelled " in calls.read_text()


def test_done_says_what_it_could_not_queue(shell):
    shell.chain()
    folder, _calls = with_then(shell)
    (folder / "job.sh").write_text("exit 1\n")
    done = shell.run("done", "abcdef12")
    assert done.returncode == 1
    assert "not all of --then is queued" in done.stderr


@pytest.mark.parametrize(("marker", "code"), [("done", 0), ("failed", 1), ("cancelled", 1)])
def test_wait_ends_with_the_chain(shell, marker, code):
    first, second = shell.chain()
    folder = folder_of(shell, marker)
    for segment, job_id in ((1, first), (2, second)):
        (folder / f"queued.{segment}").write_text(f"{job_id}\n")
    assert shell.run("wait", "abcdef12", "--timeout=1s").returncode == 124, "its link runs"
    with shell.slurm.state() as state:
        for job in state["jobs"]:
            job |= {"state": "COMPLETED", "end": state["now"]} if job["id"] == first else {}
    done = shell.run("wait", "abcdef12")
    assert done.returncode == code
    assert f"chain abcdef12 is {marker}" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("started", "ended", "said"),
    [
        (1, {"state": "CANCELLED"}, "is cancelled: "),
        (2, {"state": "CANCELLED"}, "is cancelled: "),
        (2, {"state": "TIMEOUT"}, "is used-up: "),
        (2, {"state": "FAILED", "status": 75 << 8, "exit": 75}, "is used-up: "),
        (2, {"state": "NODE_FAIL"}, "is failed: "),
    ],
)
def test_wait_ends_where_no_link_is_left_to_say_how_it_went(shell, started, ended, said):
    """With the state that `mirage status` shows."""
    first, second = shell.chain()
    with shell.slurm.state() as state:
        for job in state["jobs"]:
            job["comment"] = job["comment"].replace("/3 ", "/2 ")
    folder = folder_of(shell)
    (folder / "chain").write_text(f"segments=2\nmode=train\nsubmitted={NOW - 100}\n")
    for segment in range(1, started + 1):
        (folder / f"start.{segment}").write_text(f"job={first}\n")
    for segment, job_id in ((1, first), (2, second)):
        (folder / f"queued.{segment}").write_text(f"{job_id}\n")
    assert shell.run("wait", "abcdef12", "--timeout", "1s").returncode == 124
    with shell.slurm.state() as state:
        for job in state["jobs"]:
            job |= {"state": "CANCELLED", "end": state["now"], "dependency": []}
            if job["id"] == (first, second)[started - 1]:
                job |= ended | {"start": state["now"] - 60, "on": list(state["nodes"])[:1]}
    done = shell.run("wait", "abcdef12")
    assert done.returncode == 1
    assert said in done.stderr
    assert "nothing says that the work is done" in done.stderr


def test_wait_for_an_unknown_chain_is_wrong_input(shell):
    done = shell.run("wait", "zzzzzzzz")
    assert (done.returncode, "zzzzzzzz" in done.stderr) == (2, True)


def test_a_second_agent_on_the_same_store_is_refused(shell):
    from mirage.store.lock import exclusive

    with exclusive(shell.folder / "state" / "mirage" / "fake" / "mirage.lock"):
        done = shell.run("agent")
        from_cron = shell.run("agent", "--once")
    assert done.returncode == 1
    assert f"pid {os.getpid()}" in done.stderr
    assert (from_cron.returncode, from_cron.stderr) == (0, ""), "the other one looks"


def test_cron_gets_no_mail_of_a_cycle_that_went_well_and_a_whole_one_of_a_failed_one(shell):
    shell.chain()
    words = ("agent", "--once", "--policy", "timer")
    program = ("-m", "mirage.cli.main", *words)  # whole, as logging has its say at the exit too
    for _ in range(2):
        done = shell.run(*program, module=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    released = [call for call in shell.slurm.calls() if "update" in call]
    assert len(released) == 1, "the second one finds nothing left to do"
    shell.slurm.misbehave("squeue", "down")
    done = shell.run(*program, module=False)
    assert done.returncode == 1
    assert done.stderr.count("cycle skipped") == 1


def test_links_that_are_short_for_who_looks_are_said(shell):
    """Cron's interval is that of its last two runs; the daemon says its own."""
    shell.chain()
    once = shell.folder / "state" / "mirage" / "fake" / "mirage.once"
    shell.run("agent", "--once", "--policy", "reactive")
    os.utime(once, (time.time() - 600, time.time() - 600))
    shell.run("agent", "--once", "--policy", "reactive")
    note = json.loads(shell.run("status", "--json").stdout)["note"]
    assert note.startswith("Links of 1 h are short for a look every 10 min")
    with (
        SqlStore.open(f"sqlite:///{shell.folder}/d.db") as store,
        serving(shell.folder / "no.sock", Source(store=store, poll_s=1200)),
    ):
        once.unlink()
        shell.run("daemon", "--once", "--config", str(_config_of(shell, "d.db")))
        note = json.loads(shell.run("status", "--json").stdout)["note"]
    assert "Links of 1 h are short for a look every 20 min" in note


def _config_of(shell, store):
    config = shell.folder / "mirage.toml"
    config.write_text(f'[daemon]\nstore = "sqlite:///{shell.folder}/{store}"\nsocket = ""\n')
    return config


def test_a_decision_is_told_with_its_time(shell):
    _first, second = shell.chain()
    assert shell.run("agent", "--once", "--policy", "avg").returncode == 0
    assert "as of" not in shell.run("explain", str(second)).stdout
    with SqlStore.open(f"sqlite:///{shell.folder}/state/mirage/fake/mirage.db") as store:
        (decision,) = store.decisions(second)
        at_s = int(time.time()) - 90
        store.add_decision(replace(decision, at_s=at_s))
        store._write(tables.decisions.delete().where(tables.decisions.c.at_s != at_s))
    clock = time.strftime("%H:%M:%S", time.localtime(at_s))
    for verb in ("explain", "status"):
        told = shell.run(verb, str(second)).stdout
        assert f"(as of {clock}, 1 min 3" in told


# --- the socket
# -------------------------------------------------------------------------------------------------------


@pytest.fixture
def store():
    store = SqlStore.open("sqlite://")
    for user in (ME, "somebody"):
        store.save_chain(Chain(chain_id=f"chain{len(user)}x", user=user, segments=2))
    return store


def test_the_kernel_says_who_asks(tmp_path, store, monkeypatch):
    path = tmp_path / "m.sock"
    with serving(path, Source(store=store)):
        mine = ask(path, {"ask": "chains", "chain": None})["chains"]
        assert len(mine) == 2, "the daemon's own user may see all"
        monkeypatch.setattr("mirage.daemon.socket.os.getuid", lambda: 4_000_000)
        monkeypatch.setattr("mirage.daemon.socket.OPEN_TO", frozenset())
        assert [
            chain["user"] for chain in ask(path, {"ask": "chains", "chain": None})["chains"]
        ] == [ME]
    assert not path.exists()


@pytest.mark.parametrize(
    "question",
    [
        {},
        {"ask": "chains"},
        {"ask": "explain", "job": "1"},
        {"ask": "explain", "job": 10**30},
        {"ask": "drop tables"},
    ],
)
def test_other_questions_are_refused(tmp_path, store, question):
    with (
        serving(tmp_path / "m.sock", Source(store=store)),
        pytest.raises(InputError, match="expected"),
    ):
        ask(tmp_path / "m.sock", question)


def test_noise_on_the_socket_does_no_harm(tmp_path, store):
    import socket

    path = tmp_path / "m.sock"
    with serving(path, Source(store=store)):
        for noise in (b"\n", b"\xff\x00\n", b"[" * 4000 + b"\n", b"x" * 5000 + b"\n", b'"a"\n'):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.connect(str(path))
                connection.sendall(noise)
                assert b"error" in connection.recv(4096)
        assert ask(path, {"ask": "chains", "chain": None})["chains"]


def test_status_finds_the_agents_store_where_its_configuration_puts_it(shell):
    file = shell.folder / "elsewhere" / "chains.db"
    config = shell.folder / ".config" / "mirage" / "mirage.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[daemon]\nstore = "sqlite:///{file}"\n')
    with SqlStore.open(f"sqlite:///{file}") as store:
        store.save_chain(Chain(chain_id="elsewhere", user=ME, segments=4))
    assert "chain elsewhere" in shell.run("status", "elsewhere").stdout
    printed = shell.run("agent", "--print-config", "--poll", "5").stdout
    assert f'store = "sqlite:///{file}"    # {config}' in printed
    assert "poll_s = 5    # the command line" in printed


def test_check_says_whether_configuration_and_model_are_good(shell):
    config = shell.folder / "mirage.toml"
    config.write_text('[policy]\nname = "timer"\n')
    good = shell.run("daemon", "--config", str(config), "--check")
    assert (good.returncode, good.stdout) == (0, "The configuration is good.\n")
    for text, said in [
        ('[policy]\nname = "moe"\n', "model"),
        ('[daemon]\nstore_file = "/nowhere"\n', "/nowhere can't be read"),
        ('[daemon]\nstore = "mariadb://host"\n', "database is missing"),
        ('[daemon]\nmetrics = "9815"\n', "daemon.metrics is '9815'"),
        ('[daemon]\nweb = "0.0.0.0:9816"\n', "has no TLS"),
        ('[cluster]\nadapter = "pyslurm"\n', "PySlurm"),
        ('[routing]\nmodel = "/nowhere"\n', "/nowhere"),
    ]:
        config.write_text(text)
        bad = shell.run("daemon", "--config", str(config), "--check")
        assert bad.returncode == 2
        assert said in bad.stderr


def test_check_names_a_folder_that_keeps_users_from_the_socket(shell):
    config = shell.folder / "mirage.toml"
    closed = shell.folder / "closed"
    closed.mkdir(mode=0o700)
    config.write_text(f'[daemon]\nsocket = "{closed}/mirage.sock"\n[policy]\nname = "timer"\n')
    said = shell.run("daemon", "--config", str(config), "--check")
    assert said.returncode == 0
    assert f"daemon.socket: other users can't reach {closed}/mirage.sock" in said.stderr
    assert "mode 0700); give a folder that is open, such as /run/mirage" in said.stderr


def test_a_link_into_a_closed_folder_is_seen():
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed
        folder = Path(name).resolve()
        folder.chmod(0o755)
        (folder / "closed" / "open").mkdir(parents=True)
        (folder / "closed").chmod(0o755)
        (folder / "link").symlink_to("closed/open")
        assert closed_folder(folder / "link" / "s") == ""
        (folder / "closed").chmod(0o700)
        assert f"{folder}/closed is closed to them" in closed_folder(folder / "link" / "s")


# --- what the commands of the client load, and what they show
# --------------------------------------------------------

HEAVY = {
    "numpy",
    "pandas",
    "torch",
    "sqlalchemy",
    "alembic",
    "apscheduler",
    "prometheus_client",
    "matplotlib",
    "flask",
}

_LOADED = """
import sys
from mirage.cli.main import main
code = main(sys.argv[1:])
print("loaded:", *sorted({name.split(".")[0] for name in sys.modules}), file=sys.stderr)
sys.exit(code)
"""


def loaded_by(shell, *words):
    """The packages that a command has loaded when it ends."""
    words = ("-c", _LOADED, *words)
    done = shell.run(*words, module=False)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split()[1:])


@pytest.mark.parametrize(("verb", "needed"), [("report", set()), ("doctor", {"numpy"})])
def test_who_reads_what_a_service_wrote_does_not_load_the_service(verb, needed):
    code = f"import sys, mirage.cli.{verb}; print(*sys.modules)"
    words = [sys.executable, "-c", code]
    names = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
    assert {name.split(".")[0] for name in names} & HEAVY == needed
    assert "mirage.daemon.app" not in names


@pytest.mark.parametrize(
    "words", [("status",), ("explain", "2"), ("history",), ("status", "abc", "--json")]
)
def test_what_users_run_often_loads_nothing_heavy(shell, words):
    """With neither a daemon nor an agent, with an agent's store, and with a daemon."""
    shell.chain()
    assert not loaded_by(shell, *words) & HEAVY
    shell.run("agent", "--once", "--policy", "reactive")
    assert not loaded_by(shell, *words) & HEAVY
    with (
        SqlStore.open(f"sqlite:///{shell.folder}/state/mirage/fake/mirage.db") as store,
        serving(shell.folder / "no.sock", Source(store=store)),
    ):
        assert not loaded_by(shell, *words) & HEAVY


@pytest.mark.parametrize(
    "words", [("cancel", "abcdef12"), ("done", "abcdef12"), ("cancel", "--all", "--yes")]
)
def test_what_ends_chains_loads_nothing_heavy(shell, words):
    shell.chain()
    assert not loaded_by(shell, *words) & HEAVY


def ended(shell, name, marker, age_s):
    folder = shell.folder / ".mirage" / "chains" / name
    folder.mkdir(parents=True)
    at_s = NOW - age_s
    (folder / "chain").write_text(
        f"chain={name}\nsegments=2\nmode=train\nsubmitted={at_s - 100}\nscript=/home/me/{name}.sh\nname=night"
        " run\n"
    )
    (folder / "queued.1").write_text("7000\n")
    (folder / marker).write_text(f"why {name}\n")
    os.utime(folder / marker, (at_s, at_s))


def test_status_shows_what_ended_badly_lately(shell):
    day_s = 86_400
    for name, marker, age_s in (
        ("failed22", "failed", 2 * day_s),
        ("failed44", "failed", 4 * day_s),
        ("cancel22", "cancelled", day_s),
        ("donedone", "done", day_s),
    ):
        ended(shell, name, marker, age_s)
    text = shell.run("status").stdout
    assert "You have no running chain" in text
    assert "Ended badly within 3 days" in text
    assert "chain failed22 failed" in text
    assert "night run, /home/me/failed22.sh" in text
    assert "why failed22" in text
    assert not any(name in text for name in ("failed44", "cancel22", "donedone"))
    assert "note" not in text
    assert "No Mirage daemon" not in text, "there is nothing to watch"
    every = shell.run("status", "--all").stdout
    assert all(name in every for name in ("failed22", "failed44", "cancel22", "donedone"))
    (report,) = json.loads(shell.run("status", "--json").stdout)["chains"]
    assert (report["chain"], report["name"], report["script"]) == (
        "failed22",
        "night run",
        "/home/me/failed22.sh",
    )


def test_a_link_that_ran_as_its_chain_was_cancelled_is_cancelled(shell):
    ended(shell, "cancel22", "cancelled", 60)
    folder = shell.folder / ".mirage" / "chains" / "cancel22"
    (folder / "start.1").write_text(f"job=7000\nrestart=0\nstart={NOW - 90}\n")
    (report,) = json.loads(shell.run("status", "--all", "--json").stdout)["chains"]
    assert [link["state"] for link in report["links"]] == ["CANCELLED"]


def test_a_script_that_was_changed_since_is_said(shell):
    first, _second = shell.chain()
    folder, script = shell.folder / ".mirage" / "chains" / "abcdef12", shell.folder / "work.sh"
    folder.mkdir(parents=True)
    (folder / "chain").write_text(
        f"chain=abcdef12\nsegments=3\nmode=train\nsubmitted={NOW}\nscript={script}\n"
    )
    (folder / "queued.1").write_text(f"{first}\n")
    (folder / "script").write_bytes(script.read_bytes())
    assert "has changed since" not in shell.run("status").stdout
    script.write_text("#!/bin/sh\nexit 1\n")
    assert "work.sh has changed since; the chain runs its copy" in shell.run("status").stdout


def test_a_chain_that_is_over_can_be_put_away(shell):
    ended(shell, "failed22", "failed", 60)
    ended(shell, "usedup22", "failed", 60)
    (shell.folder / ".mirage" / "chains" / "usedup22" / "failed").write_text("again\n")
    done = shell.run("dismiss", "failed22")
    assert (done.returncode, "is put away from status and top" in done.stdout) == (0, True), done
    for verb in ("status", "history"):
        text = shell.run(verb).stdout
        assert "failed22" not in text
        assert "usedup22" in text
        assert "failed22" in shell.run(verb, "--all").stdout
    assert shell.run("dismiss", "--all").returncode == 0
    assert "usedup22" not in shell.run("status").stdout
    first, _second = shell.chain()
    refused = shell.run("dismiss", str(first))
    assert (refused.returncode, "is not over" in refused.stderr) == (2, True), refused


def test_a_chain_whose_last_link_ran_into_its_limit_is_used_up(shell):
    first, second = shell.chain()
    with shell.slurm.state() as state:
        for job in state["jobs"]:
            job["comment"] = job["comment"].replace("/3 ", "/2 ")
    shell.run("agent", "--once", "--policy", "reactive")
    with shell.slurm.state() as state:
        for job in state["jobs"]:
            job |= {
                "state": "TIMEOUT",
                "start": state["now"],
                "end": state["now"] + 5,
                "dependency": [],
            }
            job["on"] = list(state["nodes"])[:1]
    shell.run("agent", "--once", "--policy", "reactive")
    text = shell.run("status").stdout
    assert "chain abcdef12 used-up" in text
    assert "the work may be unfinished (more links: mirage extend abcdef12 --segments +1)" in text
    assert first < second


@pytest.mark.parametrize(
    ("swept", "link", "chain"),
    [
        ("", "FAILED", "used-up"),
        ("1\nreason=TimeLimit", "TIMEOUT", "used-up"),
        ("1\nreason=None", "PREEMPTED", "used-up"),
    ],
)
def test_how_slurm_ended_a_link_is_not_guessed(shell, swept, link, chain):
    """Nobody has seen this chain but its own jobs, and slurmctld has forgotten these."""
    shell.sbatch("--nodes=1", "--time=60", "--comment=my own")
    with shell.slurm.state() as state:
        state["jobs"][-1] |= {
            "id": 7000,
            "state": "PREEMPTED",
            "start": NOW - 90,
            "end": NOW - 30,
            "on": ["n1"],
        }
    folder = shell.folder / ".mirage" / "chains" / "abcdef12"
    folder.mkdir(parents=True)
    (folder / "chain").write_text(
        f"chain=abcdef12\nsegments=1\nmode=train\nsubmitted={NOW - 100}\nscript=/home/me/a.sh\n"
    )
    (folder / "queued.1").write_text("7000\n")
    (folder / "start.1").write_text(f"job=7000\nrestart=0\nstart={NOW - 90}\n")
    (folder / "link.1").write_text(
        f"job=7000\nrestart=0\nstart={NOW - 90}\nwork={NOW - 90}\nend={NOW - 30}\nexit=138\nhow=slurm\nswept={swept}\n"
    )
    (report,) = json.loads(shell.run("status", "--all", "--json").stdout)["chains"]
    assert (report["state"], report["links"][0]["state"]) == (chain, link)


def test_chains_are_known_by_the_beginning_of_their_id_and_by_their_jobs(shell):
    first, second = shell.chain()
    for words in (
        ("status", "abc"),
        ("status", str(second)),
        ("history", "abcd"),
        ("history", str(first)),
    ):
        done = shell.run(*words, "--json")
        assert [chain["chain"] for chain in json.loads(done.stdout)["chains"]] == ["abcdef12"]
    assert json.loads(shell.run("explain", "abc", "--json").stdout)["job_id"] == second
    assert "chain abcdef12 is done" in shell.run("done", str(first)).stdout
    assert "chain abcdef12" in shell.run("cancel", "ab", str(first)).stdout


def test_status_says_as_of_when_the_daemon_speaks(shell):
    shell.chain()
    shell.run("agent", "--once", "--policy", "reactive")
    (shell.folder / "state" / "mirage" / "fake" / "mirage.once").unlink()
    (shell.folder / "state" / "mirage" / "fake" / "mirage.db").rename(shell.folder / "site.db")
    with SqlStore.open(f"sqlite:///{shell.folder}/site.db") as store:
        for age_s in (600, 0):
            seen_s = int(time.time()) - age_s
            with serving(
                shell.folder / "no.sock", Source(store=store, queue_read_s=lambda at_s=seen_s: at_s)
            ):
                text = shell.run("status").stdout
            at = time.strftime("%H:%M:%S", time.localtime(seen_s))
            assert "chain abcdef12 active" in text
            if age_s:
                assert f"As the site's daemon saw the queue at {at}." in text


def test_cancel_all_asks_and_needs_yes_without_a_terminal(shell):
    first, second = shell.chain()
    other = shell.sbatch(
        "--nodes=1", "--comment=mirage/1 chain=otherone seg=1/3 mode=train ei=1 eo=1"
    )
    refused = shell.run("cancel", "--all")
    assert (refused.returncode, "add --yes" in refused.stderr) == (2, True)
    assert not [call for call in shell.slurm.calls() if call[0] == "scancel"]
    done = shell.run("cancel", "--all", "--yes")
    assert "2 chains:" in done.stdout
    assert f"chain abcdef12 is cancelled: ended jobs {second}, {first}" in done.stdout
    assert f"chain otherone is cancelled: ended job {other}" in done.stdout
    assert (
        "No chain of yours has a job in the queue" in shell.run("cancel", "--all", "--yes").stdout
    )


def test_status_fits_into_80_columns(shell):
    shell.chain()
    for verb in ("status", "history"):
        text = shell.run(verb).stdout
        table = [line for line in text.splitlines() if line.strip()[:4] in ("link", "1   ", "2   ")]
        assert len(table) == 3
        assert max(map(len, table)) <= 80


def test_print_config_prints_what_holds_also_where_a_default_is_worked_out(shell):
    said = shell.run("agent", "--print-config", "--poll", "1m", "--verbose").stdout
    state = shell.folder / "state" / "mirage"
    for line in (
        "poll_s = 60    # the command line",
        'log_level = "debug"    # the command line',
        f'store = "sqlite:///{state}/fake/mirage.db"    # worked out, since nothing is said',
        'socket = ""    # an agent has none',
        'mode = "enforce"    # worked out, since nothing is said',
        f'file = "{state}/fake/audit.jsonl"    # worked out, since nothing is said',
        "valid_s = 180    # worked out, since nothing is said",
    ):
        assert line in said.splitlines()
    assert (
        'disable_file = "/etc/mirage/disabled"    # worked out, since nothing is said;'
        f" {state}/disabled too" in said
    )
    config = shell.folder / "mirage.toml"
    config.write_text(f'[daemon]\nstore_file = "{shell.folder}/url"\n[acting]\nmode = "advise"\n')
    (shell.folder / "url").write_text("postgresql://u:secret@host/db\n")
    (shell.folder / "url").chmod(0o600)
    said = shell.run("daemon", "--config", str(config), "--print-config").stdout
    assert (
        f'store = "postgresql://u:***@host/db"    # first line of {shell.folder}/url ({config})'
        in said
    )
    assert f'mode = "advise"    # {config}' in said
    assert 'socket = "/run/mirage/mirage.sock"' in said
    again = shell.folder / "again.toml"
    again.write_text(said)
    assert shell.run("daemon", "--config", str(again), "--print-config").returncode == 0

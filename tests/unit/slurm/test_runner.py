from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

import pytest

from mirage.errors import ClusterNonsense, ClusterUnavailable
from mirage.slurm.runner import CommandResult, Runner, environment, run_bounded

DOWN = CommandResult(
    stdout="",
    stderr="slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
    returncode=1,
)
DENIED = CommandResult(stdout="", stderr="Invalid user id for job 3", returncode=1)
FINE = CommandResult(stdout="done", stderr="", returncode=0)


class Script:
    """Stands for the running of commands: gives these answers in turn, and notes what it was asked."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = []
        self.slept = []

    def __call__(self, argv, env, timeout_s, max_bytes):
        self.calls.append(list(argv))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def runner(self, **options):
        return Runner(execute=self, sleep=self.slept.append, **options)


def test_a_read_that_got_no_answer_is_retried_with_growing_jittered_pauses():
    script = Script(DOWN, DOWN, FINE)
    assert script.runner(retries=2, backoff_s=1).run(["squeue"]) == FINE
    assert len(script.calls) == 3
    assert 0.5 <= script.slept[0] <= 1.5
    assert 1.0 <= script.slept[1] <= 3.0


def test_after_the_last_retry_the_failure_is_the_answer():
    script = Script(DOWN, DOWN, DOWN)
    assert script.runner(retries=2).run(["sinfo"]) == DOWN


def test_dropping_a_dependency_is_retried():
    script = Script(
        CommandResult(stdout="", stderr="Unexpected message received for job 4", returncode=1), FINE
    )
    assert script.runner().run(["scontrol", "update", "JobId=4", "Dependency="]) == FINE


@pytest.mark.parametrize(
    "command", [["sbatch", "job.sh"], ["scancel", "1"], ["scontrol", "requeue", "1"]]
)
def test_what_may_not_happen_twice_is_never_retried(command):
    script = Script(DOWN, FINE)
    assert script.runner().run(command) == DOWN
    assert len(script.calls) == 1
    assert script.slept == []


def test_a_refusal_is_not_retried():
    script = Script(DENIED, FINE)
    assert script.runner().run(["scontrol", "update", "JobId=3", "Dependency="]) == DENIED


def test_a_time_out_is_not_retried_and_says_how_long_it_waited():
    script = Script(TimeoutError(), FINE)
    with pytest.raises(ClusterUnavailable, match=r"squeue: no answer within 7 s.*Retry later"):
        script.runner(timeout_s=7).run(["squeue"])
    assert len(script.calls) == 1


def test_a_time_out_of_sbatch_warns_that_the_job_may_be_queued():
    with pytest.raises(ClusterUnavailable, match=r"may have been queued.*squeue --me"):
        Script(TimeoutError()).runner().run(["sbatch", "job.sh"])


def test_a_missing_command_names_it_and_what_to_do():
    runner = Runner(env={"PATH": "/nonexistent"}, sleep=lambda _: pytest.fail("retried"))
    with pytest.raises(
        ClusterUnavailable, match=r"squeue: no such command on PATH.*cluster\.bin_dir"
    ):
        runner.run(["squeue"])
    with pytest.raises(ClusterUnavailable, match=r"no such command in /opt/nowhere"):
        Runner(bin_dir="/opt/nowhere").run(["squeue"])


def test_a_command_that_can_not_be_run_says_why(tmp_path):
    (tmp_path / "squeue").write_text("not executable")
    with pytest.raises(ClusterUnavailable, match="Permission denied"):
        Runner(bin_dir=str(tmp_path)).run(["squeue"])


def test_prefix_and_folder_are_put_before_the_command():
    script = Script(FINE)
    script.runner(bin_dir="/opt/slurm/bin", prefix=["runuser", "-u", "alice", "--"]).run(
        ["scancel", "1"]
    )
    assert script.calls == [["runuser", "-u", "alice", "--", "/opt/slurm/bin/scancel", "1"]]


def test_settings_of_the_user_do_not_reach_a_query():
    own = {
        "SQUEUE_FORMAT": "%i",
        "SACCT_FORMAT": "x",
        "SINFO_FORMAT": "x",
        "SCONTROL_ALL": "1",
        "SLURM_CLUSTERS": "b",
    }
    kept = {"PATH": "/bin", "SLURM_CONF": "/etc/slurm.conf"}
    fixed = {"LC_ALL": "C", "TZ": "UTC", "SLURM_TIME_FORMAT": "%s", "SLURM_BITSTR_LEN": "0"}
    assert (
        environment("squeue", own | kept | {"TZ": "Asia/Tokyo", "SLURM_TIME_FORMAT": "%c"})
        == kept | fixed
    )


def test_sbatch_gets_the_environment_as_it_is_since_the_job_inherits_it():
    own = {
        "SBATCH_PARTITION": "gpu",
        "LC_ALL": "de_DE.UTF-8",
        "TZ": "Asia/Tokyo",
        "SQUEUE_FORMAT": "%i",
    }
    assert environment("sbatch", own) == own


def test_output_error_and_exit_status_come_back():
    result = run_bounded(["sh", "-c", "echo out; echo err >&2; exit 3"], dict(os.environ), 10, 1000)
    assert result == CommandResult(stdout="out\n", stderr="err\n", returncode=3)


def test_bytes_that_are_no_utf_8_do_not_stop_it():
    result = run_bounded(["printf", r"a\377b"], dict(os.environ), 10, 1000)
    assert result.stdout == "a\ufffdb"


def test_large_output_on_both_streams_does_not_block():
    script = "head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2"
    result = run_bounded(["sh", "-c", script], dict(os.environ), 10, 10_000_000)
    assert len(result.stdout) == len(result.stderr) == 3_000_000


def test_endless_output_is_ended():
    with pytest.raises(ClusterNonsense, match="yes: more than 1 MiB"):
        run_bounded(["yes"], dict(os.environ), 10, 1 << 20)


@pytest.mark.parametrize(
    "script",
    [
        "sleep 600 & wait",  # hangs, with a child
        "sleep 600 &",  # ends itself, but its child holds the output open
        "exec >&- 2>&-; sleep 600",  # closes its output, then hangs
    ],
)
def test_a_command_that_hangs_is_ended_with_its_children(tmp_path, script):
    with pytest.raises(TimeoutError):
        run_bounded(["sh", "-c", script], os.environ | {"MARK": str(tmp_path)}, 2, 1000)
    deadline = time.monotonic() + 120
    while found := _marked(f"MARK={tmp_path}"):
        assert time.monotonic() < deadline, found
        time.sleep(0.02)


def _marked(variable: str) -> list[str]:
    """Processes that have this in their environment. A killed one has none any more."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has just ended
            if variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append(process.name)
    return found

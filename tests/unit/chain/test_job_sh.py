"""job.sh under each shell that may be /bin/sh, with fakes of Slurm's commands on PATH."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.resources import files
from pathlib import Path

import pytest

from mirage.chain.batch_script import parse_script
from mirage.chain.folder import (
    over_marker,
    queued_jobs,
    read_handover,
    read_link,
    read_record,
    then_script,
)
from mirage.chain.sbatch import SbatchOption
from mirage.chain.script import (
    ChainSettings,
    Failure,
    Handover,
    Health,
    LimitSignal,
    Then,
    build_job_script,
)
from mirage.domain import USED_UP_EXIT, Mode, Penalties

pytestmark = pytest.mark.flaky(reruns=1)
"""Real shells and signals in real time: a busy machine can move what comes first. A rerun is shown."""

SHELLS = [
    words for words in (["dash"], ["bash", "--posix"], ["busybox", "sh"]) if shutil.which(words[0])
]
CHAIN = "abcdefgh"
TAG = f"mirage/1 chain={CHAIN} seg={{}}/4 pred={{}} mode=train ei=1 eo=1"
PATIENCE_S = 120
"""Of a busy machine. What a test waits for comes at once on others."""
UNTIL_STOP = "while [ ! -e stop ]; do sleep 0.1; done"
CANARY = b"sleep\x002147483647\x00"

# Each fake keeps a log of its calls. squeue answers from files: queue (-u), state.JOB (-j),
# steps.JOB (-s), end (%e).
FAKES = {
    "squeue": (
        r"""
echo "$*" >>"$FAKE/squeue.log"
[ ! -e "$FAKE/slow" ] || sleep 1
while [ -e "$FAKE/hang" ]; do sleep 0.1; done
[ ! -e "$FAKE/down" ] || { echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }
case "$*" in
    *' -s '*) [ ! -e "$FAKE/steps.refuse" ] || { rm "$FAKE/steps.refuse"; exit 1; }
       for last; do [ "$prev" = -j ] && cat "$FAKE/steps.$last" 2>/dev/null; prev=$last; done; exit 0 ;;
    *'%S %e'*) cat "$FAKE/times" 2>/dev/null ;;
    *%e*) cat "$FAKE/end" ;;
    *' -u '*) cat "$FAKE/queue" ;;
    *'-o %k') for word; do [ "$prev" = -j ] && job=$word; prev=$word; done
       sed -n "s/^$job [A-Z]* //p" "$FAKE/queue" ;;
    *) for word; do [ "$prev" = -j ] && job=$word; prev=$word; done
       [ -e "$FAKE/state.$job" ] || { echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1; }
       cat "$FAKE/state.$job" ;;
esac
"""
    ),
    "sbatch": (
        r"""
case "$*" in *--test-only*) cat "$FAKE/refuse.test" >&2 2>/dev/null; [ ! -e "$FAKE/refuse.test" ]; exit ;; esac
printf '%s\n' "$@" >"$FAKE/sbatch.args"; env | sort >"$FAKE/sbatch.env"; pwd >"$FAKE/sbatch.pwd"
echo call >>"$FAKE/sbatch.log"
[ ! -e "$FAKE/refuse" ] || { cat "$FAKE/refuse" >&2; exit 1; }
job=9$(wc -l <"$FAKE/sbatch.log" | tr -d ' ')
rm "$FAKE/forget" 2>/dev/null || {
    for word; do case $word in --comment=*) echo "$job PENDING ${word#*=}" >>"$FAKE/queue" ;; esac; done
    echo PENDING >"$FAKE/state.$job"
}
echo "$job;cluster"
"""
    ),
    "scancel": (
        r"""
echo "$*" >>"$FAKE/scancel.log"
for job; do :; done
[ -e "$FAKE/pid.$job" ] || exit 0
case "$*" in *--signal=*) sig=${*#*--signal=} sig=${sig%% *} ;; *) sig=TERM ;; esac
kill -s "$sig" "$(cat "$FAKE/pid.$job")"
"""
    ),
    "scontrol": (
        r"""
[ "$*" = "show config" ] || echo "$*" >>"$FAKE/scontrol.log"
case "$1" in show) cat "$FAKE/details" 2>/dev/null ;; requeuehold) [ ! -e "$FAKE/refuse.requeue" ] ;; esac
"""
    ),
    "sacct": (
        r"""
cat "$FAKE/ends"
"""
    ),
}


def _default_signals() -> None:
    """As slurmstepd does. Under nohup, say, SIGHUP is ignored, and a shell can't trap what it was
    started to ignore.
    """
    for number in (
        signal.SIGHUP,
        signal.SIGINT,
        signal.SIGQUIT,
        signal.SIGTERM,
        signal.SIGUSR1,
        signal.SIGUSR2,
    ):
        signal.signal(number, signal.SIG_DFL)


@dataclass
class Rig:
    """A chain's folder, the fakes, and a way to run its links."""

    shell: list[str]
    root: Path
    settings: ChainSettings
    running: list[subprocess.Popen[str]] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.settings.folder

    @property
    def fake(self) -> Path:
        return self.root / "fake"

    def script(self, body: str, interpreter: str = "/bin/sh") -> None:
        """Without permission to execute, as in a home that is mounted `noexec`."""
        content = f"#!{interpreter}\n{body}\n".encode()
        (self.folder / "script").write_bytes(content)
        (self.folder / "job.sh").write_bytes(build_job_script(self.settings, parse_script(content)))

    def start(
        self, segment: int, job: int, pred: int = 0, *args: str, **environ: str
    ) -> subprocess.Popen[str]:
        """Starts a link as slurmd does: in a process group of its own."""
        words = [*self.shell, str(self.folder / "job.sh"), str(segment), str(pred), *args]
        base = {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "FAKE": str(self.fake),
            "HOME": str(self.root),
        }
        env = {**base, "SLURM_JOB_ID": str(job), **environ}
        with (self.fake / "queue").open("a") as queue:
            queue.write(f"{job} RUNNING {TAG.format(segment, pred)}\n")
        (self.fake / f"state.{job}").write_text("RUNNING\n")
        link = subprocess.Popen(
            words,
            env=env,
            cwd=self.root,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_default_signals,
        )
        (self.fake / f"pid.{job}").write_text(str(link.pid))
        self.running.append(link)
        return link

    def run(
        self, segment: int, job: int, pred: int = 0, *args: str, **environ: str
    ) -> tuple[int, str, str]:
        """Runs a link to its end: exit code, stdout, stderr."""
        link = self.start(segment, job, pred, *args, **environ)
        out, err = link.communicate(timeout=PATIENCE_S)
        self.over(job)
        return link.returncode, out, err

    def over(self, job: int, state: str = "COMPLETED") -> None:
        (self.fake / f"state.{job}").write_text(f"{state}\n")

    def log(self, command: str) -> list[str]:
        path = self.fake / f"{command}.log"
        return path.read_text().splitlines() if path.exists() else []

    def queue(self, job: int, segment: int, pred: int) -> None:
        """Link `segment` is queued."""
        (self.folder / f"queued.{segment}").write_text(f"{job}\n")
        with (self.fake / "queue").open("a") as queue:
            queue.write(f"{job} PENDING {TAG.format(segment, pred)}\n")
        (self.fake / f"state.{job}").write_text("PENDING\n")


every_shell = pytest.mark.parametrize(
    "rig", SHELLS, indirect=True, ids=[words[0] for words in SHELLS]
)
"""For what shells do differently; the other tests run under the first one."""


@pytest.fixture
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "fake").mkdir()
    for name, body in FAKES.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{body}")
        (tmp_path / "bin" / name).chmod(0o755)
    folder = tmp_path / "chains" / CHAIN
    folder.mkdir(parents=True)
    settings = ChainSettings(
        chain_id=CHAIN,
        folder=folder,
        source=tmp_path / "train.sh",
        segments=4,
        options=(SbatchOption("nodes", "2", ("-N", "2")),),
        mode=Mode.TRAIN,
        penalties=Penalties(),
        failure=Failure(min_runtime_s=0),
        submit_dir=str(tmp_path),
        work_dir=str(tmp_path),
    )
    rig = Rig(getattr(request, "param", SHELLS[0]), tmp_path, settings)
    yield rig
    for link in rig.running:
        end_all(rig)
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                link.communicate(timeout=1)
                break
            end_all(rig)  # what was forked just then


def end_all(rig: Rig) -> None:
    """Kills what any link has started, whatever group it is in."""
    mark = f"FAKE={rig.fake}".encode()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in entry.read_bytes().split(b"\0"):
                os.kill(int(entry.parent.name), signal.SIGKILL)


def wait_until(happened: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def groups_of(link: subprocess.Popen[str]) -> set[int]:
    """The process groups of a link: its shell's, and those that its children lead."""
    groups = {link.pid}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has just ended
            parent, group = entry.read_text().rpartition(")")[2].split()[1:3]
            groups |= {int(group)} if int(parent) == link.pid else set()
    return groups


def signal_job(link: subprocess.Popen[str], number: signal.Signals) -> None:
    """To all processes of a link, its shell first, as Slurm does."""
    for group in sorted(groups_of(link)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, number)


def commands_of(group: int) -> dict[int, bytes]:
    """The command lines of the group's processes, by pid."""
    found = {}
    for pid in (int(path.name) for path in Path("/proc").iterdir() if path.name.isdecimal()):
        with contextlib.suppress(OSError):  # it has just ended
            if os.getpgid(pid) == group:
                found[pid] = Path(f"/proc/{pid}/cmdline").read_bytes()
    return found


def canary_of(link: subprocess.Popen[str], before: int = 0) -> int:
    """The process by which a link tells whether a signal went to the whole job, once it is there;
    not `before`, an earlier one.
    """
    found: list[int] = []

    def is_up() -> bool:
        commands = commands_of(link.pid)
        found[:] = [pid for pid in commands if commands[pid] == CANARY and pid != before]
        return bool(found)

    wait_until(is_up)
    return found[0]


def helpers_of(link: subprocess.Popen[str], before: int = 0) -> int:
    """The canary, as `canary_of` gives it, once the process in a session of its own is there too."""
    canary = canary_of(link, before)
    wait_until(
        lambda: any(
            group > canary and CANARY in commands_of(group).values() for group in groups_of(link)
        )
    )
    return canary


def without_slurm(rig: Rig) -> Path:
    """A folder of programs for PATH, on a machine that may have Slurm's commands."""
    programs = rig.root / "programs"
    programs.mkdir()
    for folder in ("/usr/bin", "/bin"):
        for path in Path(folder).iterdir():
            if path.name not in FAKES and not (programs / path.name).exists():
                (programs / path.name).symlink_to(path)
    return programs


def quick_sleep(rig: Rig) -> None:
    """The link's own rests last no seconds. So does its canary: not for tests with signals."""
    program = rig.root / "bin" / "sleep"
    program.write_text("#!/bin/sh\nexec /bin/sleep 0.05\n")
    program.chmod(0o755)


def change(rig: Rig, **changes: object) -> None:
    rig.settings = replace(rig.settings, **changes)  # type: ignore[arg-type]


# ---- The user's script notices nothing


def test_a_link_that_can_not_write_its_name_into_the_lock_does_not_work(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirage.chain.script.WRITE_PATIENCE_S", 1)
    rig.script("touch worked")
    (rig.folder / ".owner.101").mkdir()  # there the name is written first
    code, _, err = rig.run(1, 101)
    assert (code, (rig.root / "worked").exists()) == (1, False)
    assert f"cannot write to the chain's folder {rig.folder}" in err
    assert not list(rig.folder.glob("writer.*")), "nobody holds the lock"


@every_shell
@pytest.mark.parametrize("record", [".start.1.101", ".owner.101"])
def test_a_folder_that_can_be_written_again_is_waited_for(rig: Rig, record: str) -> None:
    """A full disk, or a file system that comes back: a folder of the name under which a record is
    written first.
    """
    rig.script("touch worked")
    (rig.folder / record).mkdir()
    link = rig.start(1, 101)
    assert link.stderr
    said = link.stderr.readline()
    assert "cannot write to the chain's folder" in said
    assert "trying again for 300 s" in said
    assert link.poll() is None
    (rig.folder / record).rmdir()
    _, err = link.communicate(timeout=PATIENCE_S)
    assert link.returncode == 0, err
    assert (rig.root / "worked").exists()
    assert "cannot write to the chain's folder" not in err


def test_a_link_whose_end_can_not_be_recorded_says_so_and_ends_as_it_did(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirage.chain.script.RECORD_PATIENCE_S", 1)
    rig.script("exit 3")
    (rig.folder / ".link.1.101").mkdir()
    code, _, err = rig.run(1, 101)
    assert code == 3
    assert "how this link ended is not recorded: cannot write to" in err


@every_shell
def test_a_folder_that_can_not_be_written_at_the_end_does_not_stop_the_chain(rig: Rig) -> None:
    """`.stop.JOB` tells the queuer to stop; a folder of that name keeps it from being made."""
    change(rig, failure=Failure(action="continue", min_runtime_s=0))
    rig.script("exit 3")
    (rig.folder / ".stop.101").mkdir()
    code, _, err = rig.run(1, 101)
    assert code == 3, err
    assert (rig.folder / "queued.2").exists()


@every_shell
def test_the_script_gets_its_arguments_input_folder_and_environment(rig: Rig) -> None:
    rig.script('echo "$#,$1,$2"; cat; pwd; env | grep MIRAGE_ | sort; echo "code=$code"; exit 7')
    change(rig, failure=Failure(action="continue", min_runtime_s=0))
    link = rig.start(2, 11, 10, "a b", "*", code="untouched")
    out, _err = link.communicate("from stdin\n", timeout=PATIENCE_S)
    assert link.returncode == 7
    assert out.splitlines() == [
        "2,a b,*",
        "from stdin",
        str(rig.root),
        f"MIRAGE_CHAIN_DIR={rig.folder}",
        f"MIRAGE_CHAIN_ID={CHAIN}",
        f"MIRAGE_DONE_FILE={rig.folder}/done",
        "MIRAGE_PRED_JOBID=10",
        f"MIRAGE_READY_FILE={rig.folder}/ready.2",
        f"MIRAGE_SCRIPT={rig.root}/train.sh",
        "MIRAGE_SEGMENT=2",
        "MIRAGE_SEGMENTS=4",
        "code=untouched",
    ]


REPORTER = """
import os, signal, sys, time
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert signal.getsignal(signal.SIGQUIT) == signal.SIG_DFL
def report(number, frame=None):
    os.write(1, f"{signal.Signals(number).name}\\n".encode())
    if number == signal.SIGTERM:
        sys.exit(5)
for name in ("HUP", "INT", "USR1", "USR2", "TERM"):
    signal.signal(getattr(signal, "SIG" + name), report)
os.write(1, b"ready\\n")
while True:
    time.sleep(0.1)
"""


def start_reporter(
    rig: Rig, segment: int = 1, job: int = 11, pred: int = 0
) -> subprocess.Popen[str]:
    rig.script(REPORTER, sys.executable)
    link = rig.start(segment, job, pred)
    assert link.stdout
    assert link.stdout.readline() == "ready\n"
    helpers_of(link)
    return link


@every_shell
def test_a_signal_to_the_batch_shell_alone_is_passed_on_once(rig: Rig) -> None:
    link = start_reporter(rig)
    assert link.stdout
    for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGHUP):
        os.kill(link.pid, number)
        assert link.stdout.readline() == f"{number.name}\n"
    os.kill(link.pid, signal.SIGTERM)
    out, _err = link.communicate(timeout=PATIENCE_S)
    assert out.split() == ["SIGTERM"]
    assert link.returncode == 5


@every_shell
def test_a_signal_to_all_processes_reaches_the_script_once(rig: Rig) -> None:
    link = start_reporter(rig)
    assert link.stdout
    for number in (signal.SIGUSR1, signal.SIGUSR2):
        canary = helpers_of(link)
        signal_job(link, number)
        assert link.stdout.readline() == f"{number.name}\n"
        helpers_of(link, canary)
        time.sleep(0.5)  # so that a second one would come
    signal_job(link, signal.SIGTERM)
    out, _err = link.communicate(timeout=PATIENCE_S)
    assert out.split() == ["SIGTERM"]
    assert link.returncode in (5, 128 + signal.SIGTERM)  # see m_wait


@every_shell
def test_on_a_busy_node_the_whole_job_is_not_taken_for_its_shell(rig: Rig) -> None:
    """What tells the two apart has its signal, but gets no time to die of it for two seconds."""
    program = rig.root / "bin" / "sleep"
    program.write_text(
        "#!/bin/sh\nPATH=/usr/bin:/bin\n"
        'case $1 in 2147483647) exec env --block-signal=TERM sleep "$1" ;; esac\nexec sleep "$@"\n'
    )
    program.chmod(0o755)
    link = start_reporter(rig)
    canary = helpers_of(link)
    groups = groups_of(link) - {link.pid}
    signal_job(link, signal.SIGTERM)
    time.sleep(2)
    os.kill(canary, signal.SIGKILL)
    out, _err = link.communicate(timeout=PATIENCE_S)
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    assert out.split() == ["SIGTERM"]
    record = read_link(rig.folder, 1)
    assert record
    assert record.how == "slurm"


# ---- The user's script runs as under slurmstepd

CHILD = """
import os, signal, time
for name in ("USR1", "USR2", "TERM"):
    signal.signal(getattr(signal, "SIG" + name), lambda number, frame: os.write(1, b"child %d\\n" % number))
open("up", "w")
while True:
    time.sleep(0.1)
"""


@every_shell
@pytest.mark.parametrize("end", ["kill 0", "kill -- -$$", "pkill -g 0", "kill -s KILL 0"])
def test_a_script_that_ends_its_own_group_ends_as_any_other(rig: Rig, end: str) -> None:
    change(rig, failure=Failure(min_runtime_s=60, max_short=1))
    rig.script(f"sleep 600 & echo works; trap '{end}' EXIT; exit 0")
    code, out, _err = rig.run(1, 11)
    record = read_link(rig.folder, 1)
    assert record
    assert (out, record.how, record.is_swept) == ("works\n", "exit", False)
    assert code == record.exit_code
    over = over_marker(rig.folder)
    assert over
    assert over[0] == "failed", "a crash loop is seen"


@pytest.mark.parametrize("is_queued", [True, False])
def test_a_link_without_slurms_commands_says_so_and_does_not_hold_its_nodes(
    rig: Rig, is_queued: bool
) -> None:
    """In a container, say."""
    rig.script("true")
    if is_queued:
        rig.queue(12, 2, 11)
    for name in ("squeue", "sbatch"):
        (rig.root / "bin" / name).unlink()
    quick_sleep(rig)
    err = rig.run(1, 11, PATH=f"{rig.root / 'bin'}:{without_slurm(rig)}")[2]
    said = f"`mirage resume {CHAIN}` does it: squeue is not found here"
    assert (said in err) is not is_queued


@every_shell
def test_what_a_script_leaves_behind_ends_with_it(rig: Rig) -> None:
    """slurmstepd kills it; here it would write beside the next link."""
    for jobs in ("set +m", "set -m"):
        rig.script(f"trap '' TERM HUP; {jobs}; (sleep 2; touch late) & exit 0")
        rig.run(1, 11)
        time.sleep(3)
        assert not (rig.root / "late").exists(), jobs


@pytest.mark.parametrize(("steps", "waits"), [("11.batch\n", False), ("11.batch\n11.0\n", True)])
def test_job_steps_that_a_script_leaves_keep_the_next_link_back(
    rig: Rig, steps: str, waits: bool
) -> None:
    """Slurm gives them KillWait to save, as the job ends."""
    rig.script("true")
    (rig.fake / "steps.11").write_text(steps)
    rig.run(1, 11)
    rig.over(11, "COMPLETING")
    rig.script("touch works")
    link = rig.start(2, 12, 11)
    if waits:
        wait_until(lambda: any("-j 11 -o %T/" in call for call in rig.log("squeue")))
        time.sleep(1)
        assert not (rig.root / "works").exists()
        rig.over(11)
    link.communicate(timeout=PATIENCE_S)
    assert (rig.root / "works").exists()
    assert any("-j 11 -o %T/" in call for call in rig.log("squeue")) is waits


@every_shell
def test_a_signal_to_the_shells_group_reaches_the_scripts_group_once(rig: Rig) -> None:
    """`scancel --full --signal` is for the batch shell and its children, of one process group."""
    (rig.root / "child.py").write_text(CHILD)
    rig.script(f"trap 'echo shell' USR1; {sys.executable} child.py & while :; do wait; done")
    link = rig.start(1, 11)
    canary_of(link)
    wait_until((rig.root / "up").exists)
    assert link.stdout
    os.killpg(link.pid, signal.SIGUSR1)
    assert {link.stdout.readline() for _ in range(2)} == {"shell\n", "child 10\n"}
    time.sleep(0.5)  # so that a second one would come
    signal_job(link, signal.SIGKILL)
    assert link.communicate(timeout=PATIENCE_S)[0] == ""


@every_shell
@pytest.mark.parametrize("tracking", ["pgid", "linuxproc"])
def test_proctrack_pgid_finds_the_script_in_the_jobs_process_group(rig: Rig, tracking: str) -> None:
    """It ends a job by this group alone, so nothing may leave it."""
    (rig.fake / "details").write_text(f"ProctrackType           = proctrack/{tracking}\n")
    rig.script("ps -o pgid= -p $$; echo $$")
    link = rig.start(1, 11)
    out, _err = link.communicate(timeout=PATIENCE_S)
    group, script = map(int, out.split())
    assert group == (link.pid if tracking == "pgid" else script)


# ---- The next link


@every_shell
def test_the_next_link_is_queued_as_the_user_asked(rig: Rig) -> None:
    change(
        rig,
        comment="it's mine",
        has_begin=True,
        environment=(("SLURM_MPI_TYPE", "pmix"), ("CUDA_VISIBLE_DEVICES", "as before")),
    )
    rig.script("sleep 1")
    rig.run(
        1,
        11,
        0,
        "a b",
        SLURM_NODEID="0",
        SLURMD_NODENAME="n1",
        SLURM_CONF="/c",
        CUDA_VISIBLE_DEVICES="0",
        MINE="1",
    )
    assert (rig.fake / "sbatch.args").read_text().splitlines() == [
        "-N",
        "2",
        "--begin=now",
        f"--chdir={rig.root}",
        "--parsable",
        "--comment=mirage/1 chain=abcdefgh seg=2/4 pred=11 mode=train ei=1 eo=1 -- it's mine",
        "--dependency=afterany:11",
        f"{rig.folder}/job.sh",
        "2",
        "11",
        "a b",
    ]
    environ = (rig.fake / "sbatch.env").read_text().splitlines()
    kept = {line for line in environ if line.startswith(("SLURM", "CUDA", "MIRAGE", "MINE"))}
    assert kept == {
        "SLURM_CONF=/c",
        "SLURM_MPI_TYPE=pmix",
        "CUDA_VISIBLE_DEVICES=as before",
        "MINE=1",
    }
    assert queued_jobs(rig.folder) == {2: 91}


@pytest.mark.parametrize(
    "after", ["echo 91", "echo '91;cluster'", "echo 91; echo 'Have a nice day'"]
)
def test_a_banner_on_sbatchs_stdout_does_not_hide_the_id(rig: Rig, after: str) -> None:
    sbatch = rig.root / "bin" / "sbatch"
    sbatch.write_text(
        "#!/bin/sh\ncase $* in *--test-only*) exit ;; esac\n"
        f"echo call >>$FAKE/sbatch.log; echo; echo '--> 3 checks ...OK'; {after}\n"
    )
    rig.over(91, "PENDING")
    rig.script("sleep 1")
    rig.run(1, 11)
    assert queued_jobs(rig.folder) == {2: 91}
    assert len(rig.log("sbatch")) == 1


@pytest.mark.parametrize(("pause", "found"), [("", 91), ("exit 1", 2026)])
def test_of_several_numbers_on_sbatchs_stdout_the_queue_tells_the_id(
    rig: Rig, pause: str, found: int
) -> None:
    """Without an answer it is the last one, as where nothing follows the id."""
    sbatch, squeue = rig.root / "bin" / "sbatch", rig.root / "bin" / "squeue"
    tag = TAG.format(2, 11)
    sbatch.write_text("#!/bin/sh\necho call >>$FAKE/sbatch.log; echo 4; echo 91; echo 2026\n")
    squeue.write_text(
        f"#!/bin/sh\ncase $* in *'%A %k') {pause or ':'}; echo '91 {tag}' ;; *%T*%k) cat $FAKE/queue ;;"
        " *) echo RUNNING ;; esac\n"
    )
    rig.script("sleep 1")
    rig.run(1, 11)
    assert queued_jobs(rig.folder) == {2: found}


def test_a_next_link_whose_id_cannot_be_read_is_found_by_its_tag(rig: Rig) -> None:
    sbatch = rig.root / "bin" / "sbatch"
    tag = TAG.format(2, 11)
    sbatch.write_text(
        f"#!/bin/sh\necho call >>$FAKE/sbatch.log; echo '91 PENDING {tag}' >>$FAKE/queue; echo"
        " welcome\n"
    )
    rig.script('while [ ! -e "$MIRAGE_CHAIN_DIR/queued.2" ]; do sleep 0.1; done')
    rig.run(1, 11)
    assert queued_jobs(rig.folder) == {2: 91}
    assert len(rig.log("sbatch")) == 1


@pytest.mark.parametrize("words", [[], ["7"], ["train", "now"]])
def test_submitted_as_if_it_were_the_users_script_it_leaves(rig: Rig, words: list[str]) -> None:
    """`sbatch` on what scontrol's Command= says. There it has no link's number."""
    rig.script("touch worked")
    done = subprocess.run(
        [*rig.shell, str(rig.folder / "job.sh"), *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert f"not a script to submit: yours is {rig.root}/train.sh" in done.stderr
    assert sorted(path.name for path in rig.folder.iterdir()) == ["job.sh", "script"]


def test_the_next_link_is_queued_once_however_often_this_one_is_requeued(rig: Rig) -> None:
    rig.script(":")
    rig.run(1, 11)
    rig.run(1, 11, SLURM_RESTART_COUNT="1")
    assert len(rig.log("sbatch")) == 1


def test_a_successor_that_slurm_has_but_no_record_names_is_adopted(rig: Rig) -> None:
    rig.script(":")
    (rig.fake / "queue").write_text(f"55 PENDING {TAG.format(2, 11)} -- mine\n")
    rig.run(1, 11)
    assert rig.log("sbatch") == []
    assert queued_jobs(rig.folder) == {2: 55}


def test_link_1_leaves_link_2_to_a_mirage_submit_that_is_at_work(rig: Rig) -> None:
    rig.script(f"touch works; {UNTIL_STOP}")
    (rig.folder / "submitting").touch()
    link = rig.start(1, 11)
    wait_until((rig.root / "works").exists)
    time.sleep(1.5)  # so that it would submit
    assert rig.log("sbatch") == []
    rig.queue(12, 2, 11)
    (rig.folder / "submitting").unlink()
    (rig.root / "stop").touch()
    link.communicate(timeout=PATIENCE_S)
    assert rig.log("sbatch") == []
    assert queued_jobs(rig.folder) == {2: 12}


def test_a_refused_submission_is_tried_again(rig: Rig) -> None:
    rig.script(UNTIL_STOP)
    (rig.fake / "refuse").write_text("sbatch: error: AssocMaxSubmitJobLimit\n")
    link = rig.start(1, 11)
    said = rig.folder / ".sbatch.11"
    wait_until(lambda: said.exists() and "AssocMaxSubmitJobLimit" in said.read_text())
    (rig.fake / "refuse").unlink()
    wait_until(lambda: queued_jobs(rig.folder))
    (rig.root / "stop").touch()
    _out, err = link.communicate(timeout=PATIENCE_S)
    assert "link 2 is not queued yet, trying on: sbatch: error: AssocMaxSubmitJobLimit" in err
    assert queued_jobs(rig.folder) == {2: 90 + len(rig.log("sbatch"))}


@every_shell
def test_a_link_that_slurm_forgot_is_queued_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """slurmctld was killed before it had saved the job that it had just taken."""
    monkeypatch.setattr("mirage.chain.script.CONFIRM_AFTER_S", 1)
    rig.script(UNTIL_STOP)
    (rig.fake / "forget").touch()
    link = rig.start(1, 11)
    wait_until(lambda: queued_jobs(rig.folder) == {2: 92})
    (rig.root / "stop").touch()
    assert "Slurm has forgotten link 2 (job 91)" in link.communicate(timeout=PATIENCE_S)[1]
    assert queued_jobs(rig.folder) == {2: 92}


def test_a_link_that_its_user_cancelled_is_not_queued_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirage.chain.script.CONFIRM_AFTER_S", 1)
    rig.script(UNTIL_STOP)
    (rig.fake / "forget").touch()
    rig.over(91, "CANCELLED")
    link = rig.start(1, 11)
    wait_until(lambda: any("-j 91" in line for line in rig.log("squeue")))
    (rig.root / "stop").touch()
    link.communicate(timeout=PATIENCE_S)
    assert len(rig.log("sbatch")) == 1


@pytest.mark.parametrize("is_done_before", [False, True])
def test_a_chain_that_is_done_before_it_has_a_successor_says_so_by_its_exit_code(
    rig: Rig, is_done_before: bool
) -> None:
    """By its link's work, or by `mirage done` before that link starts."""
    quick_sleep(rig)
    (rig.folder / "submitting").touch()
    rig.script("touch $MIRAGE_DONE_FILE")
    if is_done_before:
        (rig.folder / "done").write_text("mirage done\n")
    code, _out, _err = rig.run(1, 11)
    assert (code, queued_jobs(rig.folder)) == (0, {})
    assert (over_marker(rig.folder) or ("",))[0] == "done"


@every_shell
def test_a_link_that_ended_before_slurm_forgot_the_next_one_queues_it_again(rig: Rig) -> None:
    """It is not confirmed yet as the script ends, and its id has gone to another job."""
    (rig.fake / "forget").touch()
    (rig.fake / "state.91").write_text("PENDING 4294967294 /home/carol/job.sh 2\n")
    rig.script('while [ ! -e "$MIRAGE_CHAIN_DIR/queued.2" ]; do sleep 0.1; done')
    code, _out, err = rig.run(1, 11)
    assert (code, queued_jobs(rig.folder)) == (0, {2: 92})
    assert "Slurm has forgotten link 2 (job 91)" in err


def test_another_chains_job_that_has_the_id_is_no_link_of_this_one(rig: Rig) -> None:
    """It is not asked to end, nor cancelled, and this link works though it seems to be the owner's."""
    rig.script("echo works >>works")
    (rig.folder / "writer.1").mkdir()
    (rig.folder / "writer.1" / "owner").write_text("segment=2\njob=13\n")
    (rig.folder / "queued.1").write_text("13\n")
    (rig.fake / "state.13").write_text(f"RUNNING {os.getuid()} /elsewhere/job.sh 1 0\n")
    (rig.fake / "pid.13").write_text("999999\n")
    code, _out, _err = rig.run(2, 12, 11)
    assert (code, (rig.root / "works").read_text()) == (0, "works\n")
    assert not any("13" in line for line in rig.log("scancel"))


def test_a_queue_that_is_full_at_a_links_end_is_waited_for(rig: Rig) -> None:
    quick_sleep(rig)
    rig.script(":")
    (rig.fake / "end").write_text(f"{int(time.time()) + 3600}\n")
    (rig.fake / "refuse").write_text("sbatch: error: Resource temporarily unavailable\n")
    link = rig.start(1, 11)
    wait_until(lambda: len(rig.log("sbatch")) > 4)
    (rig.fake / "refuse").unlink()
    _out, err = link.communicate(timeout=PATIENCE_S)
    assert (link.returncode, list(queued_jobs(rig.folder))) == (0, [2])
    assert err.count("temporarily unavailable") == 1 + err.count("is not queued yet") // 2
    assert not (rig.folder / "queued.2.error").exists()


@pytest.mark.parametrize("patience", ["the limit is near", "nothing to wait for"])
def test_a_link_whose_successor_cannot_be_queued_leaves_the_chain_open(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, patience: str
) -> None:
    """Who can goes on: an agent, or `mirage resume`."""
    monkeypatch.setattr("mirage.chain.script.WRITE_PATIENCE_S", 0)
    left_s, refusal = (
        (30, "Resource temporarily unavailable")
        if patience == "the limit is near"
        else (3600, "Access/permission denied")
    )
    rig.script(":")
    (rig.fake / "end").write_text(f"{int(time.time()) + left_s}\n")
    (rig.fake / "refuse").write_text(f"sbatch: error: {refusal}\n")
    code, _out, err = rig.run(1, 11)
    assert code == 1
    assert f"link 2 could not be queued; `mirage resume {CHAIN}` does it: sbatch: error" in err
    assert over_marker(rig.folder) is None
    assert refusal in (rig.folder / "queued.2.error").read_text()


def test_link_1_finds_that_its_node_may_not_submit(rig: Rig) -> None:
    """mirage-submit has queued link 2 elsewhere, so else link 2 would be the first to find it."""
    rig.script(UNTIL_STOP)
    rig.queue(12, 2, 11)
    (rig.fake / "refuse.test").write_text("sbatch: error: Access/permission denied\n")
    link = rig.start(1, 11)
    wait_until((rig.folder / "queued.3.error").exists)
    (rig.root / "stop").touch()
    assert "link 3 is not queued yet" in link.communicate(timeout=PATIENCE_S)[1]
    assert "denied" in (rig.folder / "queued.3.error").read_text()


def test_a_trial_that_a_requeue_ends_after_its_answer_is_no_refusal(rig: Rig) -> None:
    rig.script(UNTIL_STOP)
    (rig.fake / "refuse.test").write_text("sbatch: Job 13 to start at 2026-11-28T15:15:25 on n1\n")
    link = rig.start(1, 11)
    wait_until((rig.folder / "queued.2").exists)
    (rig.root / "stop").touch()
    assert "not queued yet" not in link.communicate(timeout=PATIENCE_S)[1]
    assert not (rig.folder / "queued.3.error").exists()


def test_nothing_is_submitted_while_squeue_gives_no_sound_answer(rig: Rig) -> None:
    quick_sleep(rig)
    rig.script(UNTIL_STOP)
    (rig.fake / "down").touch()
    link = rig.start(1, 11)

    def is_asked_twice() -> None:
        """After the second question it has acted on an answer."""
        before = len(rig.log("squeue"))
        wait_until(lambda: sum("-u" in line for line in rig.log("squeue")[before:]) >= 2)

    is_asked_twice()
    (rig.fake / "queue").write_text("")  # not even this job: nonsense
    (rig.fake / "down").unlink()
    is_asked_twice()
    assert rig.log("sbatch") == []
    (rig.fake / "queue").write_text(f"11 RUNNING {TAG.format(1, 0)}\n")
    (rig.root / "stop").touch()
    link.communicate(timeout=PATIENCE_S)
    assert len(rig.log("sbatch")) == 1


def test_neither_the_last_link_nor_a_chain_queued_up_front_submits(rig: Rig) -> None:
    rig.script(":")
    rig.run(4, 14, 13)
    change(rig, up_front=True)
    rig.script(":")
    (rig.folder / "done").unlink()
    rig.run(1, 11)
    assert rig.log("sbatch") == []


@every_shell
def test_a_further_successor_is_queued_behind_one_that_competes(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirage.chain.script.LOOK_AHEAD_S", 1)
    monkeypatch.setattr("mirage.chain.script.CONFIRM_AFTER_S", 1)
    change(rig, ahead=3)
    rig.script("sleep 600")
    rig.queue(12, 2, 11)
    (rig.fake / "state.12").write_text("PENDING afterany:11(unfulfilled)\n")
    rig.start(1, 11)
    time.sleep(3)
    assert rig.log("sbatch") == [], "link 2 does not compete yet"
    (rig.fake / "state.12").write_text("PENDING (null)\n")
    wait_until(lambda: len(rig.log("sbatch")) == 1)
    call = (rig.fake / "sbatch.args").read_text()
    assert "--dependency=afterany:12\n" in call
    assert "seg=3/4 pred=12" in call
    wait_until(lambda: (rig.folder / "queued.3").exists())
    (rig.fake / "state.91").write_text("PENDING (null)\n")
    wait_until(lambda: len(rig.log("sbatch")) == 2)
    assert "--dependency=afterany:91\n" in (rig.fake / "sbatch.args").read_text()
    time.sleep(2)
    assert len(rig.log("sbatch")) == 2, "link 4 is the last one"


def test_no_more_successors_are_queued_than_ahead_allows(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirage.chain.script.LOOK_AHEAD_S", 1)
    monkeypatch.setattr("mirage.chain.script.CONFIRM_AFTER_S", 1)
    change(rig, ahead=2)
    rig.script("sleep 600")
    for job, segment in ((12, 2), (13, 3)):
        rig.queue(job, segment, job - 1)
        (rig.fake / f"state.{job}").write_text("PENDING (null)\n")
    rig.start(1, 11)
    time.sleep(4)
    assert rig.log("sbatch") == []


@every_shell
def test_a_link_that_starts_before_the_one_before_it_takes_its_turn(rig: Rig) -> None:
    rig.script("""
echo link $MIRAGE_SEGMENT works >>works
[ "$MIRAGE_SEGMENT" != 1 ] || { trap 'exit 0' TERM; sleep 600 >/dev/null 2>&1 & wait; }""")
    rig.queue(12, 2, 11)
    first = rig.start(1, 11)
    wait_until(lambda: (rig.root / "works").exists())
    rig.queue(13, 3, 12)
    link = rig.start(3, 13, 12)
    first.communicate(timeout=PATIENCE_S)
    rig.over(11)
    _, err = link.communicate(timeout=PATIENCE_S)
    assert "taking over from it" in err
    assert (rig.root / "works").read_text() == "link 1 works\nlink 3 works\n"
    assert "--state=PENDING 12" in rig.log("scancel")
    code, _, err = rig.run(2, 12, 11)
    assert (code, "link 3 (job 13) has taken over" in err) == (0, True)


def has_run(
    rig: Rig, segment: int, start: int, ran_s: int, how: str = "", limit_s: int = 1000
) -> None:
    """Link `segment` has run. ``how``: empty: nobody wrote how it ended."""
    (rig.folder / f"start.{segment}").write_text(
        f"job=1{segment}\nstart={start}\nlimit={limit_s}\n"
    )
    if how:
        (rig.folder / f"link.{segment}").write_text(
            f"job=1{segment}\nstart={start}\nend={start + ran_s}\nhow={how}\n"
        )


def length_seen(rig: Rig, length: str, segment: int) -> str:
    """What link `segment` of a chain that may have nine links takes for the number of the last one."""
    (rig.folder / "chain").write_text(f"segments=9\nlength={length}\n")
    (rig.folder / "done").unlink(missing_ok=True)
    rig.script("echo $MIRAGE_SEGMENTS >length")
    rig.run(segment, 10 + segment, 9 + segment)
    return (rig.root / "length").read_text().strip()


@every_shell
def test_links_that_were_handed_over_count_for_the_time_they_ran(rig: Rig) -> None:
    change(rig, length="3", segments=9)
    has_run(rig, 1, 10_000, 500, "handover")
    has_run(rig, 2, 20_000, 600, "handover")
    assert length_seen(rig, "3", 3) == "9", "1.1 limits before it: with it 2.1"
    has_run(rig, 3, 30_000, 1000, "slurm")
    assert length_seen(rig, "3", 4) == "4", "2.1 limits before it: with it 3.1"
    assert "segments=4" in (rig.folder / "chain").read_text().splitlines()
    assert over_marker(rig.folder) == ("done", "all 4 links have run")


@pytest.mark.parametrize(
    ("how", "last"),
    [
        ("slurm", "3"),
        ("slurm\nswept=1", "9"),
        ("exit", "3"),
        ("", "3"),
        ("handover", "9"),
        ("paused", "9"),
        ("early", "9"),
    ],
)
def test_a_link_that_ended_by_itself_is_one_of_n(rig: Rig, how: str, last: str) -> None:
    """As in chains without the service, however short it was, and if it was killed outright."""
    change(rig, length="3", segments=9)
    has_run(rig, 1, 10_000, 100, how)
    has_run(rig, 2, 20_000, 1000, "slurm")
    assert length_seen(rig, "3", 3) == last


def test_a_predecessor_that_still_runs_counts_for_what_it_ran(rig: Rig) -> None:
    change(rig, length="2", segments=9)
    rig.script('trap "exit 0" TERM; echo on >>works; while :; do sleep 0.1; done')
    (rig.folder / "chain").write_text("segments=9\nlength=2\n")
    (rig.fake / "times").write_text("100000 200000\n")
    first = rig.start(1, 11)
    wait_until((rig.root / "works").exists)
    wait_until(lambda: read_record(rig.folder / "start.1").get("limit") == "100000")
    rig.script("echo $MIRAGE_SEGMENTS >length")
    second = rig.start(2, 12, 11)
    first.communicate(timeout=PATIENCE_S)
    rig.over(11)
    second.communicate(timeout=PATIENCE_S)
    assert (rig.root / "length").read_text() == "9\n"


def test_a_predecessor_that_nobody_asks_runs_to_its_limit(rig: Rig) -> None:
    change(rig, length="2", segments=9, handover=Handover(signal="none"))
    has_run(rig, 1, int(time.time()), 0)
    (rig.fake / "state.11").write_text("RUNNING\n")
    rig.script("echo $MIRAGE_SEGMENTS >length")
    (rig.folder / "chain").write_text("segments=9\nlength=2\n")
    link = rig.start(2, 12, 11)
    wait_until(lambda: "segments=2" in (rig.folder / "chain").read_text())
    rig.over(11)
    link.communicate(timeout=PATIENCE_S)
    assert (rig.root / "length").read_text() == "2\n"


def test_total_time_makes_the_link_that_reaches_it_the_last_one(rig: Rig) -> None:
    change(rig, length="5000s", segments=9)
    for segment in (1, 2):
        has_run(rig, segment, segment * 10_000, 1000, "slurm")
    (rig.fake / "end").write_text(f"{int(time.time()) + 2000}\n")
    assert length_seen(rig, "5000s", 3) == "9", "2,000 s have run, 2,000 s are left to it"
    (rig.fake / "end").write_text(f"{int(time.time()) + 3500}\n")
    assert length_seen(rig, "5000s", 3) == "3"
    assert over_marker(rig.folder) == ("done", "all 3 links have run")


@pytest.mark.parametrize(
    ("length", "tells", "last"),
    [("3", "record", "3"), ("3", "sacct", "3"), ("3", "", "9"), ("9000s", "record", "3")],
)
def test_what_a_link_ran_before_slurm_requeued_it_counts(
    rig: Rig, length: str, tells: str, last: str
) -> None:
    """Two links that a successor ended after 0.4 limits each, and nine tenths of link 3."""
    change(rig, length=length, segments=9)
    rig.script("echo $MIRAGE_SEGMENTS >length")
    (rig.folder / "chain").write_text(f"segments=9\nlength={length}\n")
    for segment in (1, 2):
        (rig.folder / f"start.{segment}").write_text("job=7\nstart=1000\nlimit=5000\n")
        (rig.folder / f"link.{segment}").write_text("job=7\nend=3500\nhow=handover\n")
    now_s = int(time.time())
    (rig.folder / "start.3").write_text(f"job=13\nrestart=0\nstart={now_s - 5000}\nlimit=5000\n")
    if tells == "record":
        (rig.folder / "link.3").write_text(f"job=13\nend={now_s}\nhow=slurm\nswept=1\n")
    (rig.fake / "ends").write_text(f"{now_s}\n" if tells == "sacct" else "")
    (rig.fake / "end").write_text(f"{now_s + 5000}\n")
    rig.run(3, 13, 12, SLURM_RESTART_COUNT="1")
    assert (rig.root / "length").read_text().strip() == last
    assert read_record(rig.folder / "start.3").get("part") == ("1000" if tells else "")


def test_total_time_takes_a_link_for_whole_that_left_at_its_signal(rig: Rig) -> None:
    change(rig, length="7000s", segments=9, limit_signal=LimitSignal(signal.SIGUSR1, False, 300))
    for segment in range(1, 7):
        has_run(rig, segment, segment * 10_000, 700, "slurm")
    (rig.fake / "end").write_text(f"{int(time.time()) + 1000}\n")
    assert length_seen(rig, "7000s", 7) == "7", "else an eighth link would run for the seconds"


@pytest.mark.parametrize(
    ("body", "over"),
    [
        (
            "exit 0",
            (
                "done",
                "link 2 ended by itself with exit code 0, and the chain has no --segments and no"
                " --total-time",
            ),
        ),
        ("exit 3", ("failed", "link 2 ended with exit code 3")),
        ("kill -USR1 $PPID; sleep 2; exit 0", None),
    ],
)
def test_a_chain_without_a_length_ends_with_its_work(
    rig: Rig, body: str, over: tuple[str, str] | None
) -> None:
    change(rig, length="done", segments=1000, limit_signal=None)
    (rig.folder / "chain").write_text("segments=1000\nlength=done\n")
    rig.script(f'trap "exit 0" USR1\n{body}')
    rig.run(2, 12, 11)
    assert over_marker(rig.folder) == over
    assert queued_jobs(rig.folder) == {3: 91}


def test_without_a_length_an_exit_at_a_signal_that_nobody_can_tell_is_no_end(rig: Rig) -> None:
    change(rig, length="done", segments=1000, limit_signal=LimitSignal(signal.SIGUSR1, False, 60))
    (rig.folder / "chain").write_text("segments=1000\nlength=done\n")
    (rig.fake / "end").write_text("N/A\n")
    rig.script("exit 0")
    rig.run(2, 12, 11)
    assert over_marker(rig.folder) is None


# ---- How a chain ends


def test_the_last_link_ends_the_chain(rig: Rig) -> None:
    rig.script("exit 0")
    rig.run(4, 14, 13)
    assert over_marker(rig.folder) == ("done", "all 4 links have run")


def test_a_last_link_that_slurm_ends_may_be_requeued_so_it_is_not_the_end(rig: Rig) -> None:
    link = start_reporter(rig, 4, 14, 13)
    signal_job(link, signal.SIGTERM)
    link.communicate(timeout=PATIENCE_S)
    assert over_marker(rig.folder) is None
    assert rig.log("sbatch") == []


@every_shell
def test_the_done_file_ends_the_chain_and_takes_the_successors_along(rig: Rig) -> None:
    rig.script('echo enough >"$MIRAGE_DONE_FILE"; exit 3')
    rig.queue(12, 2, 11)
    rig.queue(13, 3, 12)
    code, _out, _err = rig.run(1, 11)
    assert code == 0, "so Slurm's records say that the chain is done"
    assert rig.log("scancel") == ["--state=PENDING 12 13"]
    assert over_marker(rig.folder) == ("done", "enough")


def test_the_users_own_done_file_counts(rig: Rig) -> None:
    change(rig, done_file=rig.root / "finished")
    rig.script('touch "$MIRAGE_DONE_FILE"')
    rig.queue(12, 2, 11)
    rig.run(1, 11)
    assert rig.log("scancel") == ["--state=PENDING 12"]
    assert over_marker(rig.folder) == ("done", f"{rig.root}/finished exists")


@pytest.mark.parametrize(
    ("marker", "expected", "ends_itself"),
    [("done", 0, []), ("failed", 1, []), ("cancelled", 0, ["12"])],
)
def test_a_link_of_a_chain_that_is_over_does_nothing_but_tells_slurm_how_it_ended(
    rig: Rig, marker: str, expected: int, ends_itself: list[str]
) -> None:
    rig.script("touch ran")
    (rig.folder / marker).write_text("why\n")
    rig.queue(13, 3, 12)
    code, _out, err = rig.run(2, 12, 11)
    assert not (rig.root / "ran").exists()
    assert rig.log("scancel") == ["--state=PENDING 13", *ends_itself]
    if not ends_itself:
        assert (code, err) == (expected, "mirage: the chain is over: why\n")


@every_shell
def test_stop_ends_the_chain_at_the_first_failure(rig: Rig) -> None:
    rig.script("exit 3")
    rig.queue(12, 2, 11)
    code, _out, err = rig.run(1, 11)
    assert code == 3
    assert "link 1 ended with exit code 3: the chain ends here" in err
    assert over_marker(rig.folder) == ("failed", "link 1 ended with exit code 3")
    assert rig.log("scancel") == ["--state=PENDING 12"]


def test_continue_ignores_failures(rig: Rig) -> None:
    change(rig, failure=Failure(action="continue", min_runtime_s=0))
    rig.script("exit 3")
    rig.run(1, 11)
    assert over_marker(rig.folder) is None
    assert queued_jobs(rig.folder) == {2: 91}


@every_shell
def test_retry_counts_failures_in_a_row(rig: Rig) -> None:
    change(
        rig, segments=9, up_front=True, failure=Failure(action="retry", retries=1, min_runtime_s=0)
    )
    rig.script("case $MIRAGE_SEGMENT in 1 | 3 | 4) exit 3 ;; esac")
    for segment in (1, 2, 3):
        rig.run(segment, 10 + segment, 9 + segment if segment > 1 else 0)
        assert over_marker(rig.folder) is None
    rig.run(4, 14, 13)
    assert over_marker(rig.folder) == ("failed", "link 4 ended with exit code 3")


def test_links_that_are_too_short_are_a_crash_loop(rig: Rig) -> None:
    change(
        rig,
        segments=9,
        up_front=True,
        failure=Failure(action="stop", min_runtime_s=60, max_short=3),
    )
    rig.script("exit 0")
    rig.run(1, 11)
    rig.run(2, 12, 11)
    assert over_marker(rig.folder) is None
    assert rig.run(3, 13, 12)[0] == 1, "Slurm's records must not say that all went well"
    record = read_link(rig.folder, 3)
    assert record
    assert record.exit_code == 0, "the script's own"
    assert over_marker(rig.folder) == (
        "failed",
        ("crash loop: 3 links in a row (--max-short) ran for less than 60 s each (--min-runtime)"),
    )


def test_a_crash_loop_of_links_that_left_no_record_is_seen_by_their_starts(rig: Rig) -> None:
    change(
        rig,
        segments=9,
        up_front=True,
        failure=Failure(action="stop", min_runtime_s=60, max_short=2),
    )
    rig.script("touch ran")
    now = int(time.time())
    (rig.folder / "start.1").write_text(f"job=11\nstart={now - 20}\n")
    (rig.folder / "start.2").write_text(f"job=12\nstart={now - 10}\n")
    code, _out, _err = rig.run(3, 13, 12)
    assert code == 1
    assert not (rig.root / "ran").exists()
    assert over_marker(rig.folder) == (
        "failed",
        ("crash loop: 2 links in a row (--max-short) ran for less than 60 s each (--min-runtime)"),
    )


@pytest.mark.parametrize(
    ("state", "marker"),
    [("CANCELLED by 0", "failed"), ("PREEMPTED\nPENDING", None), ("NODE_FAIL", None)],
)
def test_what_ends_links_early_counts_unless_slurm_took_their_nodes(
    rig: Rig, state: str, marker: str | None
) -> None:
    change(
        rig,
        up_front=True,
        failure=Failure(action="stop", min_runtime_s=60, max_short=2),
    )
    rig.script("exit 0")
    (rig.fake / "ends").write_text(f"{state}\n")
    for segment in (1, 2):
        (rig.folder / f"start.{segment}").write_text(f"job=1{segment}\nstart=100\n")
        (rig.folder / f"link.{segment}").write_text(
            f"job=1{segment}\nstart=100\nwork=100\nend=110\nexit=143\nhow=slurm\nswept=1\n"
        )
    rig.run(3, 13, 12)
    over = over_marker(rig.folder)
    assert (over and over[0]) == marker


@every_shell
def test_what_slurm_ends_goes_on_whatever_its_exit_code(rig: Rig) -> None:
    """Time limit, preemption, scancel: every process of the job gets SIGTERM."""
    link = start_reporter(rig)
    signal_job(link, signal.SIGTERM)
    link.communicate(timeout=PATIENCE_S)
    record = read_link(rig.folder, 1)
    assert record
    assert record.how == "slurm"
    assert over_marker(rig.folder) is None
    assert list(queued_jobs(rig.folder)) == [2]


@pytest.mark.parametrize(("left_s", "marker"), [(90, None), (900, "failed")])
def test_dying_of_ones_own_limit_signal_near_the_limit_is_no_failure(
    rig: Rig, left_s: int, marker: str | None
) -> None:
    change(rig, limit_signal=LimitSignal(signal.SIGUSR1, batch=True, lead_s=60))
    rig.script("kill -USR1 $$")
    (rig.fake / "end").write_text(f"{int(time.time()) + left_s}\n")
    code, _out, _err = rig.run(1, 11)
    assert code == 128 + signal.SIGUSR1
    assert (over_marker(rig.folder) or [None])[0] == marker


@pytest.mark.parametrize("code", [138, 1, 0])
@pytest.mark.parametrize(("state", "how"), [("COMPLETING", "slurm"), ("RUNNING", "exit")])
def test_a_script_that_requeues_its_own_job_does_not_fail_the_chain(
    rig: Rig, code: int, state: str, how: str
) -> None:
    """Whatever it exits with after that: `wait` in bash says 138 after a trapped USR1."""
    rig.script(f"echo {state} >$FAKE/state.14; exit {code}")
    rig.run(4, 14, 13)
    record = read_link(rig.folder, 4)
    assert record
    assert (record.how, record.is_swept) == (how, how == "slurm")
    marker = {"slurm": None, "exit": "failed" if code else "done"}[how]
    assert (over_marker(rig.folder) or [None])[0] == marker


def test_a_requeue_that_ends_squeue_too_is_seen(rig: Rig) -> None:
    """Slurm tells all processes of the job to end, also the one that asks it."""
    rig.script(
        "echo COMPLETING >$FAKE/state.14; touch $FAKE/slow; (sleep 0.5; kill -s TERM 0) & exit 138"
    )
    rig.run(4, 14, 13)
    record = read_link(rig.folder, 4)
    assert record
    assert (record.how, record.is_swept) == ("slurm", True)


@pytest.mark.parametrize(
    ("left_s", "body", "marker", "code"),
    [
        (90, ":", None, USED_UP_EXIT),
        (90, "kill -USR1 $$", None, USED_UP_EXIT),
        (900, ":", "done", 0),
        (90, 'touch "$MIRAGE_DONE_FILE"', "done", 0),
        (900, 'touch "$MIRAGE_DONE_FILE"; exit 3', "done", 0),
        (90, "exit 3", "failed", 3),
        (900, f"exit {USED_UP_EXIT}", "failed", 1),
    ],
)
def test_the_last_links_exit_code_tells_slurm_how_the_chain_ended(
    rig: Rig, left_s: int, body: str, marker: str | None, code: int
) -> None:
    """One that leaves at its own signal has not said that the work is done."""
    change(rig, limit_signal=LimitSignal(signal.SIGUSR1, batch=False, lead_s=60))
    rig.script(body)
    (rig.fake / "end").write_text(f"{int(time.time()) + left_s}\n")
    exit_code, _out, err = rig.run(4, 14, 13)
    assert (over_marker(rig.folder) or [None])[0] == marker
    assert exit_code == code
    assert ("If it is: mirage done abcdefgh" in err) is (marker is None)


@pytest.mark.parametrize(
    ("asked", "body", "left"),
    [
        ("BEGIN,END,FAIL", ":", "END"),
        ("FAIL", ":", "NONE"),
        ("END,FAIL", "exit 3", ""),
        ("", ":", ""),
    ],
)
def test_a_link_that_leaves_at_its_signal_makes_slurm_send_no_mail_of_a_failure(
    rig: Rig, asked: str, body: str, left: str
) -> None:
    change(rig, limit_signal=LimitSignal(signal.SIGUSR1, batch=False, lead_s=60))
    rig.script(body)
    (rig.fake / "end").write_text(f"{int(time.time()) + 90}\n")
    (rig.fake / "details").write_text(
        f"   MailUser=ann@example.org MailType={asked}\n" if asked else ""
    )
    rig.run(4, 14, 13)
    calls = (rig.fake / "scontrol.log").read_text() if (rig.fake / "scontrol.log").exists() else ""
    assert [line for line in calls.splitlines() if "MailType" in line] == (
        [f"update JobId=14 MailType={left}"] if left else []
    )


def test_a_failure_that_the_link_before_could_not_mark_is_found(rig: Rig) -> None:
    rig.script("touch ran")
    (rig.folder / "link.1").write_text(
        "job=11\nrestart=0\nstart=1\nwork=1\nend=99\nexit=3\nhow=exit\n"
    )
    rig.run(2, 12, 11)
    assert over_marker(rig.folder) == ("failed", "link 1 ended with exit code 3")
    assert not (rig.root / "ran").exists()


# ---- Handover

TRAINING = r"""
trap 'echo "$MIRAGE_SEGMENT saved" >>trace; exit 1' TERM USR1
echo "$MIRAGE_SEGMENT starts" >>trace
while :; do sleep 0.1; done
"""


def trace(rig: Rig) -> list[str]:
    path = rig.root / "trace"
    return path.read_text().splitlines() if path.exists() else []


def start_first(rig: Rig) -> subprocess.Popen[str]:
    rig.queue(12, 2, 11)
    link = rig.start(1, 11)
    wait_until(lambda: trace(rig) == ["1 starts"])
    return link


@every_shell
def test_the_successor_asks_waits_and_only_then_starts(rig: Rig) -> None:
    rig.script(TRAINING)
    first = start_first(rig)
    rig.start(2, 12, 11)
    wait_until(lambda: len(trace(rig)) == 3)
    assert trace(rig) == ["1 starts", "1 saved", "2 starts"]
    first.communicate(timeout=PATIENCE_S)
    record = read_link(rig.folder, 1)
    assert record
    assert (record.exit_code, record.how) == (1, "handover")
    assert over_marker(rig.folder) is None, "being asked to end is no failure"
    assert [line for line in rig.log("scancel") if "--batch" in line] == [
        "--batch --signal=TERM 11"
    ]
    wait_until(lambda: (asked := read_handover(rig.folder, 1)) and asked.gone_s)
    asked = read_handover(rig.folder, 1)
    assert asked
    assert (asked.job_id, asked.grace_s, asked.cut_s, asked.cut_by) == (12, 300, None, "")
    assert asked.asked_s is not None
    assert asked.gone_s is not None
    assert asked.asked_s <= asked.gone_s <= asked.asked_s + 60


def test_no_answer_about_steps_does_not_send_the_signal_to_the_batch_script(rig: Rig) -> None:
    rig.script("trap 'exit 0' TERM; touch up; sleep 600 & wait")
    (rig.fake / "steps.11").write_text("11.batch\n11.0\n")
    old = rig.start(1, 11)
    wait_until((rig.root / "up").exists)
    (rig.fake / "steps.refuse").touch()
    new = rig.start(2, 12, 11)
    wait_until(lambda: rig.log("scancel"))
    assert rig.log("scancel")[0] == "--signal=TERM 11"
    assert not (rig.fake / "steps.refuse").exists()
    for link in (old, new):
        signal_job(link, signal.SIGKILL)


def test_the_users_signal_goes_to_the_steps_if_there_are_any(rig: Rig) -> None:
    change(rig, handover=Handover(signal="USR1"))
    rig.script(TRAINING)
    (rig.fake / "steps.11").write_text("11.batch\n11.extern\n11.0\n")
    start_first(rig)
    rig.start(2, 12, 11)
    wait_until(lambda: rig.log("scancel"))
    rig.over(11)
    wait_until(lambda: "2 starts" in trace(rig))
    assert rig.log("scancel")[0] == "--signal=USR1 11"


def test_after_its_grace_the_predecessor_is_cancelled(rig: Rig) -> None:
    change(rig, handover=Handover(signal="USR2", grace_s=2))
    rig.script(TRAINING.replace("USR1", "").replace("trap", "trap '' USR2; trap"))
    first = start_first(rig)
    second = rig.start(2, 12, 11)
    wait_until(lambda: "2 starts" in trace(rig))
    assert rig.log("scancel")[:2] == ["--batch --signal=USR2 11", "11"]
    asked = read_handover(rig.folder, 1)
    assert asked
    assert (asked.grace_s, asked.cut_by, bool(asked.cut_s)) == (2, "grace", True)
    said = first.communicate(timeout=PATIENCE_S)[1]
    assert (
        "job 12 takes over and cancels this link, since it did not end within 2 s after it was"
        " asked to" in said
    )
    assert "--handover-grace=60s" in said
    signal_job(second, signal.SIGKILL)
    said = second.communicate(timeout=PATIENCE_S)[1]
    assert "link 1 (job 11) is cancelled, since it did not end within 2 s" in said
    assert "--handover-grace=60s" in said
    assert "twice as long" not in said, "the user's own grace always holds"


def handover_record(rig: Rig, segment: int, took_s: int, *, cut: bool = False) -> None:
    end = f"by=grace\ncut={1000 + took_s}\ngone={1030 + took_s}" if cut else f"gone={1000 + took_s}"
    (rig.folder / f"handover.{segment}").write_text(f"job=5\ngrace=300\nasked=1000\n{end}\n")


@pytest.mark.parametrize(
    ("past", "grace_s", "left_s", "expected_s"),
    [
        ([], None, 99_999, 300),
        ([(200, False), (500, False), (30, False)], None, 99_999, 1000),
        ([(100, False)], None, 99_999, 300),
        ([(300, True)], None, 99_999, 600),
        ([(300, True), (600, True)], None, 99_999, 1200),
        ([(5000, False)], None, 8000, 2000),  # of its own time a quarter
        ([(5000, False)], None, 400, 300),
        ([(5000, False)], 7, 99_999, 7),  # the user's
    ],
)
def test_the_grace_follows_the_chains_own_checkpoints(
    rig: Rig, past: list[tuple[int, bool]], grace_s: int | None, left_s: int, expected_s: int
) -> None:
    change(rig, handover=Handover(signal="USR2", grace_s=grace_s))
    rig.script(TRAINING.replace("trap", "trap '' USR2; trap"))
    for segment, (took_s, cut) in enumerate(past, start=11):
        handover_record(rig, segment, took_s, cut=cut)
    (rig.fake / "end").write_text(f"{int(time.time()) + left_s}\n")
    start_first(rig)
    rig.start(2, 12, 11)
    wait_until(lambda: (asked := read_handover(rig.folder, 1)) and asked.asked_s)
    asked = read_handover(rig.folder, 1)
    assert asked
    assert expected_s - 20 <= (asked.grace_s or 0) <= expected_s


@pytest.mark.parametrize(
    ("past", "said_s", "word"),
    [
        ([], None, ""),
        ([], 900, " cost=900"),
        ([None], 900, " cost=900"),  # its program did not say when it went on
        ([None], None, ""),
        ([-50], None, ""),  # a clock went back
        ([10**8], None, ""),  # or far ahead: the tag must stay readable
        ([100, None, 200], 900, " cost=150"),
    ],
)
def test_the_tag_tells_what_the_chains_own_handovers_cost(
    rig: Rig, past: list[int | None], said_s: int | None, word: str
) -> None:
    change(rig, handover=Handover(cost_s=said_s))
    rig.script("true")
    for segment, ready_s in enumerate(past, start=11):
        record = f"job=5\ngrace=300\nasked=1000\ngone=1001\nto={segment + 1}\n"
        (rig.folder / f"handover.{segment}").write_text(record)
        if ready_s is not None:
            ready = rig.folder / f"ready.{segment + 1}"
            ready.touch()
            os.utime(ready, (1000 + ready_s,) * 2)
    (rig.folder / "handover.30").write_text("job=pause\n")
    rig.run(1, 11)
    (comment,) = (
        line
        for line in (rig.fake / "sbatch.args").read_text().splitlines()
        if line.startswith("--comment=")
    )
    assert comment.partition(" eo=1")[2] == word


@pytest.mark.parametrize("is_said", [True, False])
def test_a_program_that_does_not_say_when_it_goes_on_is_told_of_the_default(
    rig: Rig, is_said: bool
) -> None:
    ready = 'touch "$MIRAGE_READY_FILE"' if is_said else ":"
    rig.script(TRAINING.replace("while", f"{ready}\nwhile"))
    first = start_first(rig)
    second = rig.start(2, 12, 11)
    wait_until(lambda: "2 starts" in trace(rig))
    wait_until(lambda: not is_said or (rig.folder / "ready.2").exists())
    second.terminate()
    for link, noted in ((first, False), (second, not is_said)):
        err = link.communicate(timeout=PATIENCE_S)[1]
        assert ("the program did not create $MIRAGE_READY_FILE" in err) is noted


def test_a_handover_notes_whose_work_followed(rig: Rig) -> None:
    rig.script(TRAINING)
    start_first(rig)
    rig.start(2, 12, 11)
    wait_until(lambda: read_record(rig.folder / "handover.1").get("to") == "2")
    record = read_record(rig.folder / "handover.1")
    assert int(record["asked"]) <= int(record["gone"])


def test_a_handover_that_the_overlap_cuts_off_names_it(rig: Rig) -> None:
    change(rig, handover=Handover(signal="USR2", max_overlap_s=2))
    rig.script(TRAINING.replace("USR1", "").replace("trap", "trap '' USR2; trap"))
    start_first(rig)
    second = rig.start(2, 12, 11)
    wait_until(lambda: "2 starts" in trace(rig))
    asked = read_handover(rig.folder, 1)
    assert asked
    assert asked.cut_by == "max-overlap"
    signal_job(second, signal.SIGKILL)
    assert (
        "since two links ran together for 2 s (--max-overlap)"
        in second.communicate(timeout=PATIENCE_S)[1]
    )


def test_the_grace_begins_when_the_predecessor_could_be_asked(rig: Rig) -> None:
    """Slurm was away meanwhile: it must not be cancelled in the same breath."""
    change(rig, handover=Handover(signal="USR2", grace_s=3))
    rig.script(TRAINING.replace("trap", "trap '' USR2; trap"))
    start_first(rig)
    scancel = rig.root / "bin" / "scancel"
    scancel.rename(rig.root / "scancel")
    scancel.write_text("#!/bin/sh\nexit 1\n")
    scancel.chmod(0o755)
    rig.start(2, 12, 11)
    wait_until((rig.folder / "handover.1").exists)
    time.sleep(4)
    (rig.root / "scancel").rename(scancel)
    wait_until(lambda: len(rig.log("scancel")) > 1)
    assert rig.log("scancel")[:2] == ["--batch --signal=USR2 11", "11"]
    record = read_handover(rig.folder, 1)
    assert record
    assert record.asked_s is not None
    assert record.cut_s is not None
    assert record.cut_s - record.asked_s >= 3


def test_none_waits_for_the_predecessors_own_end_up_to_the_overlap(rig: Rig) -> None:
    change(rig, handover=Handover(signal="none", grace_s=0, max_overlap_s=3))
    rig.script(TRAINING)
    start_first(rig)
    rig.start(2, 12, 11)
    wait_until(lambda: "2 starts" in trace(rig))
    assert rig.log("scancel") == ["11"]
    record = read_handover(rig.folder, 1)
    assert record
    assert record.cut_s is not None
    assert record.cut_s - int(read_record(rig.folder / "start.2")["start"]) >= 3


def test_no_answer_about_the_predecessor_means_waiting(rig: Rig) -> None:
    change(rig, up_front=True, handover=Handover(signal="none"))
    rig.script("echo started >>trace")
    (rig.fake / "state.11").write_text("")
    link = rig.start(2, 12, 11)
    time.sleep(1.5)
    assert trace(rig) == []
    (rig.folder / "link.1").write_text(
        "job=11\nhow=exit\nexit=0\nwork=1\nend=99\n"
    )  # its own record counts at once
    link.communicate(timeout=PATIENCE_S)
    assert trace(rig) == ["started"]


@every_shell
def test_a_predecessor_that_slurm_ends_is_waited_for_until_all_its_processes_are_gone(
    rig: Rig,
) -> None:
    """Its batch script has ended, and said so, but a step of it may save until KillWait is over."""
    change(rig, up_front=True, handover=Handover(signal="none"))
    rig.script(TRAINING)
    first = start_first(rig)
    canary_of(first)
    signal_job(first, signal.SIGTERM)
    first.communicate(timeout=PATIENCE_S)
    record = read_link(rig.folder, 1)
    assert record
    assert record.how == "slurm"
    rig.over(11, "COMPLETING")
    rig.start(2, 12, 11)
    wait_until(lambda: len(rig.log("squeue")) >= 2)
    assert "2 starts" not in trace(rig)
    rig.over(11, "TIMEOUT")
    wait_until(lambda: "2 starts" in trace(rig))  # Slurm is asked every ten seconds


@every_shell
def test_a_script_that_dies_of_the_time_limit_before_its_shell_knows_has_not_failed(
    rig: Rig,
) -> None:
    """Slurm signals one process after the other."""
    rig.script("exec sleep 600")
    link = rig.start(1, 11)
    dying = {b"sleep\x00600\x00", CANARY}  # the script and the canary, not the shell

    def found() -> dict[int, bytes]:
        return {
            pid: command
            for group in groups_of(link)
            for pid, command in commands_of(group).items()
            if command in dying
        }

    wait_until(lambda: set(found().values()) == dying)
    os.kill(link.pid, signal.SIGSTOP)
    for pid in found():
        os.kill(pid, signal.SIGTERM)
    os.kill(link.pid, signal.SIGCONT)
    link.communicate(timeout=PATIENCE_S)
    record = read_link(rig.folder, 1)
    assert record
    assert (record.exit_code, record.how) == (143, "slurm")
    assert over_marker(rig.folder) is None


# EXPEDITING/: as 26.05 shows `sbatch --requeue=expedite` after a node failed. QUIESCED: of tomorrow.
@pytest.mark.parametrize(
    "state", ["TIMEOUT", "PENDING", "NODE_FAIL", "EXPEDITING/", "EXPEDITING", "QUIESCED/", None]
)
def test_a_predecessor_that_is_over_requeued_or_forgotten_is_not_waited_for(
    rig: Rig, state: str | None
) -> None:
    change(rig, up_front=True)
    rig.script("echo started >>trace")
    if state:
        (rig.fake / "state.11").write_text(f"{state}\n")
    rig.run(2, 12, 11)
    assert trace(rig) == ["started"]
    assert rig.log("scancel") == []


@every_shell
def test_a_requeued_predecessor_finds_itself_superseded(rig: Rig) -> None:
    change(rig, up_front=True)
    rig.script('echo "$MIRAGE_SEGMENT" >>trace')
    rig.run(2, 12, 11)
    code, _out, err = rig.run(1, 11, SLURM_RESTART_COUNT="1")
    assert (code, err) == (0, "mirage: link 2 (job 12) has taken over; nothing to do\n")
    assert trace(rig) == ["2"]


def test_a_requeued_link_that_nobody_superseded_runs_again(rig: Rig) -> None:
    change(rig, up_front=True)
    rig.script('echo "$MIRAGE_SEGMENT" >>trace')
    rig.run(1, 11)
    rig.run(1, 11, SLURM_RESTART_COUNT="1")
    assert trace(rig) == ["1", "1"]


def test_of_two_jobs_for_one_link_the_second_leaves(rig: Rig) -> None:
    rig.script(TRAINING)
    start_first(rig)
    code, _out, err = rig.run(1, 99)
    assert (code, err) == (0, "mirage: link 1 (job 11) has taken over; nothing to do\n")


@every_shell
def test_of_many_jobs_that_start_together_one_writes(rig: Rig) -> None:
    change(rig, up_front=True)
    rig.script('echo "$SLURM_JOB_ID" >>trace; sleep 2')
    links = [rig.start(1, job) for job in range(20, 26)]
    for link in links:
        link.communicate(timeout=PATIENCE_S)
    assert len(trace(rig)) == 1


def waits_for_its_predecessor(link: subprocess.Popen[str]) -> None:
    assert link.stderr
    assert "still runs; taking over from it" in link.stderr.readline()


def test_a_waiting_link_leaves_when_the_chain_is_over(rig: Rig) -> None:
    change(rig, handover=Handover(signal="none"))
    rig.script(TRAINING)
    start_first(rig)
    link = rig.start(2, 12, 11)
    waits_for_its_predecessor(link)
    (rig.folder / "failed").write_text("no more\n")
    _out, err = link.communicate(timeout=PATIENCE_S)
    assert link.returncode == 1
    assert "the chain is over: no more" in err
    assert trace(rig) == ["1 starts"]


@every_shell
def test_a_waiting_link_that_must_end_queues_its_successor_first(rig: Rig) -> None:
    change(rig, handover=Handover(signal="none"))
    rig.script(TRAINING)
    start_first(rig)
    link = rig.start(2, 12, 11)
    waits_for_its_predecessor(link)
    signal_job(link, signal.SIGTERM)
    link.communicate(timeout=PATIENCE_S)
    record = read_link(rig.folder, 2)
    assert record
    assert (record.exit_code, record.how) == (143, "early")
    assert 3 in queued_jobs(rig.folder)
    assert over_marker(rig.folder) is None


@every_shell
@pytest.mark.parametrize("mode", [Mode.TRAIN, Mode.SERVICE])
@pytest.mark.parametrize("whole_job", [True, False], ids=["whole job", "batch shell"])
def test_a_link_that_slurm_ends_in_its_prologue_has_not_failed(
    rig: Rig, mode: Mode, whole_job: bool
) -> None:
    """Preempted or cancelled before its work began: the script is not started, and the chain goes
    on.
    """
    change(rig, mode=mode)
    rig.script("echo started >started")
    rig.queue(13, 3, 12)
    (rig.fake / "state.11").write_text("TIMEOUT\n")
    (rig.fake / "hang").touch()
    link = rig.start(2, 12, 11)
    wait_until(lambda: rig.log("squeue"))
    signal_job(link, signal.SIGTERM) if whole_job else link.terminate()
    (rig.fake / "hang").unlink()
    link.communicate(timeout=PATIENCE_S)
    record = read_link(rig.folder, 2)
    assert record
    assert (record.exit_code, record.how) == (143, "early")
    assert over_marker(rig.folder) is None
    assert rig.log("scancel") == []
    assert not (rig.root / "started").exists()


@every_shell
def test_a_service_starts_at_once_and_ends_the_old_one_when_it_is_healthy(rig: Rig) -> None:
    change(rig, mode=Mode.SERVICE, health=Health(command="[ -e healthy ]", count=1))
    rig.script(TRAINING)
    start_first(rig)
    rig.start(2, 12, 11)
    wait_until(lambda: "2 starts" in trace(rig))
    time.sleep(0.5)
    assert trace(rig) == ["1 starts", "2 starts"], "both run until the new one is healthy"
    (rig.root / "healthy").touch()
    wait_until(lambda: "1 saved" in trace(rig))
    wait_until((rig.folder / "writer.2" / "owner").exists)
    assert "job=12" in (rig.folder / "writer.2" / "owner").read_text()


def test_a_service_without_a_health_command_says_when_it_is_ready(rig: Rig) -> None:
    change(rig, mode=Mode.SERVICE)
    rig.script(TRAINING.replace("while", 'touch "$MIRAGE_READY_FILE"\nwhile'))
    start_first(rig)
    rig.start(2, 12, 11)
    wait_until(lambda: "1 saved" in trace(rig))
    assert trace(rig) == ["1 starts", "2 starts", "1 saved"]


# ---- The text itself


def test_shellcheck_has_nothing_to_say(rig: Rig) -> None:
    shellcheck = shutil.which("shellcheck") or str(Path(sys.executable).with_name("shellcheck"))
    if not Path(shellcheck).exists():
        pytest.skip("shellcheck is not installed")
    change(rig, comment="it's $HOME `x`", environment=(("SLURM_X", "a'b"),))
    rig.script("exit 0")
    # What the code says about itself counts for the code alone; the values above it are not ours.
    words = [shellcheck, "-s", "sh", "-e", "SC2016,SC2034,SC2154,SC2329"]
    for path in (str(rig.folder / "job.sh"), str(files("mirage.chain") / "job.sh")):
        assert subprocess.run([*words, path], capture_output=True, text=True).stdout == ""


def with_then(rig: Rig, body: str, count: int = 1, **changes: object) -> None:
    then = tuple(
        Then(source=Path(f"/home/a/post{number}.sh"), content=b"#!/bin/sh\n", has_name=False)
        for number in range(1, count + 1)
    )
    change(rig, then=then, **changes)
    rig.script(body)
    for number in range(1, count + 1):
        then_script(rig.folder, number).write_bytes(b"#!/bin/sh\n")


def queue_then(rig: Rig, job: int, number: int = 1) -> None:
    """Since the chain began."""
    (rig.folder / f"then.{number}").write_text(f"{job}\n")
    with (rig.fake / "queue").open("a") as queue:
        queue.write(f"{job} PENDING 1/ mirage-then/1 chain={CHAIN} n={number}\n")


def then_calls(rig: Rig) -> list[list[str]]:
    """The calls of sbatch for scripts of --then."""
    calls = (
        (rig.fake / "sbatch.calls").read_text().split("\0")
        if (rig.fake / "sbatch.calls").exists()
        else []
    )
    return [
        words
        for call in calls
        if (words := call.splitlines()) and words[-1].endswith(".sh") and "then." in call
    ]


@pytest.fixture
def keeping(rig: Rig) -> Rig:
    """sbatch keeps the words of all its calls."""
    sbatch = rig.root / "bin" / "sbatch"
    keep = '#!/bin/sh\n{ printf "%s\\n" "$@"; printf "\\0"; } >>"$FAKE/sbatch.calls"\n'
    sbatch.write_text(keep + sbatch.read_text())
    return rig


@every_shell
def test_the_last_link_queues_what_follows_the_chain(keeping: Rig) -> None:
    with_then(keeping, "echo ran >>trace", count=2, segments=2)
    environ = {
        "SLURM_JOB_NAME": "x",
        "SBATCH_X": "y",
        "CUDA_VISIBLE_DEVICES": "3",
        "MIRAGE_CHAIN_ID": CHAIN,
    }
    keeping.queue(12, 2, 11)
    assert keeping.run(1, 11)[0] == 0
    assert then_calls(keeping) == [], "the chain goes on"
    code, _, err = keeping.run(2, 12, 11, **environ)
    assert code == 0
    comment, after = f"--comment=mirage-then/1 chain={CHAIN} n=", "--dependency=afterany:12:11"
    assert [call[:-1] for call in then_calls(keeping)] == [
        ["--parsable", f"--job-name=post{n}.sh", f"{comment}{n}", after] for n in (1, 2)
    ]
    assert [call[-1] for call in then_calls(keeping)] == [
        str(then_script(keeping.folder, n)) for n in (1, 2)
    ]
    environment = (keeping.fake / "sbatch.env").read_text()
    assert not [
        name for name in ("SLURM_JOB", "CUDA", "MIRAGE_CHAIN_ID") if f"\n{name}" in environment
    ]
    assert (keeping.folder / "then.1").read_text().strip() in err
    assert (keeping.fake / "sbatch.pwd").read_text().strip() == str(keeping.root)


def test_it_follows_once_also_when_several_links_find_the_chain_over(keeping: Rig) -> None:
    with_then(keeping, "sleep 1; touch $MIRAGE_DONE_FILE; sleep 1", up_front=False)
    keeping.queue(12, 2, 11)
    first = keeping.start(1, 11)
    wait_until(lambda: (keeping.folder / "start.1").exists())
    (keeping.folder / "done").write_text("said to be done\n")
    links = [keeping.start(2, 12, 11), keeping.start(3, 13, 12)]
    for link in [*links, first]:
        link.communicate(timeout=PATIENCE_S)
    assert len(then_calls(keeping)) == 1
    (words,) = then_calls(keeping)
    assert any(word.startswith("--dependency=afterany:1") and "11" in word for word in words), (
        "link 1 ran on"
    )


@pytest.mark.parametrize("body", ["exit 3", "true"], ids=["failed", "goes on"])
def test_nothing_follows_a_chain_that_is_not_done(keeping: Rig, body: str) -> None:
    with_then(keeping, body)
    keeping.queue(12, 2, 11)
    keeping.run(1, 11)
    assert then_calls(keeping) == []


def test_nothing_follows_a_chain_that_was_cancelled(keeping: Rig) -> None:
    with_then(keeping, "echo ran >>trace", up_front=True)
    queue_then(keeping, 77)
    (keeping.folder / "cancelled").write_text("by its owner\n")
    keeping.run(2, 12, 11)
    assert then_calls(keeping) == []
    assert "--state=PENDING 77" in keeping.log("scancel")


def test_up_front_it_is_let_go_when_the_chain_is_done_early_and_before_the_links_that_it_waits_for(
    rig: Rig,
) -> None:
    with_then(rig, "touch $MIRAGE_DONE_FILE", up_front=True)
    queue_then(rig, 77)
    rig.queue(12, 2, 11)
    rig.run(1, 11)
    assert rig.log("scontrol") == ["update JobId=77 Dependency=afterany:11"]
    assert rig.log("sbatch") == []
    assert rig.log("scancel") == ["--state=PENDING 12"]


def test_what_cannot_be_queued_is_said_and_mirage_done_tries_again(keeping: Rig) -> None:
    with_then(keeping, "true", segments=1)
    quick_sleep(keeping)
    (keeping.fake / "refuse").write_text("sbatch: error: QOSMaxSubmitJobPerUserLimit\n")
    code, _, err = keeping.run(1, 11)
    assert code == 0, "the chain is done all the same"
    assert "QOSMaxSubmitJobPerUserLimit" in err
    assert f"mirage done {CHAIN}" in err
    assert "QOSMax" in (keeping.folder / "then.1.error").read_text()
    (keeping.fake / "refuse").unlink()
    (keeping.fake / "queue").write_text("")
    words = [*keeping.shell, str(keeping.folder / "job.sh"), "follow-up"]
    env = {"PATH": f"{keeping.root / 'bin'}:{os.environ['PATH']}", "FAKE": str(keeping.fake)}
    for _ in range(2):
        assert subprocess.run(words, env=env, timeout=PATIENCE_S, check=False).returncode == 0
    assert (
        len(
            queued := [call for call in then_calls(keeping) if "--dependency" not in " ".join(call)]
        )
        == 1
    )
    assert queued[0][-1] == str(then_script(keeping.folder, 1))
    assert not (keeping.folder / "then.1.error").exists()


def test_one_whose_submission_got_no_answer_is_found_in_the_queue(keeping: Rig) -> None:
    with_then(keeping, "true", segments=1)
    (keeping.fake / "queue").write_text(
        f"55 PENDING 1/ mirage-then/1 chain={CHAIN} n=12 -- x\n"
        f"33 FAILED 1/ mirage-then/1 chain={CHAIN} n=1 -- x\n"
        f"44 PENDING 1/ mirage-then/1 chain={CHAIN} n=1 -- x\n"
    )
    keeping.run(1, 11)
    assert then_calls(keeping) == []
    assert (keeping.folder / "then.1").read_text() == "44\n"


@pytest.mark.parametrize(("state", "calls"), [("RUNNING", 0), ("FAILED", 1)])
def test_mirage_done_queues_what_a_link_that_died_had_begun_to(
    keeping: Rig, state: str, calls: int
) -> None:
    with_then(keeping, "true", segments=1)
    (keeping.folder / "done").write_text("all 1 links have run\n")
    (keeping.folder / "then.1.claim").mkdir()
    (keeping.folder / "then.1.claim" / "job").write_text("11\n")
    (keeping.fake / "state.11").write_text(f"{state}\n")
    (keeping.fake / "queue").write_text("")
    words = [*keeping.shell, str(keeping.folder / "job.sh"), "follow-up"]
    env = {"PATH": f"{keeping.root / 'bin'}:{os.environ['PATH']}", "FAKE": str(keeping.fake)}
    for _ in range(2):
        assert subprocess.run(words, env=env, timeout=PATIENCE_S, check=False).returncode == 0
    assert len(then_calls(keeping)) == calls


def test_a_singleton_stays_one_in_each_link(rig: Rig) -> None:
    change(rig, dependency="singleton")
    rig.script("exit 0")
    rig.run(1, 11)
    assert "--dependency=afterany:11,singleton" in (rig.fake / "sbatch.args").read_text()


@pytest.mark.parametrize("arguments", [" 1 0", ""], ids=["22.05", "26.05"])
def test_a_job_is_known_by_its_script_with_and_without_arguments(rig: Rig, arguments: str) -> None:
    """Slurm 26.05's `squeue -o %o` leaves the arguments out. A predecessor that runs is no other
    user's job.
    """
    (rig.folder / "start.1").write_text("job=11\nstart=1\n")
    rig.script("exit 0")
    (rig.fake / "state.11").write_text(f"RUNNING/n1 {os.getuid()} {rig.folder}/job.sh{arguments}\n")
    link = rig.start(2, 12, 11)
    wait_until((rig.folder / "handover.1").exists)
    rig.over(11)
    link.communicate(timeout=PATIENCE_S)
    assert link.returncode == 0

"""What lets a site install Mirage and forget it: systemd units, manual pages, completion, and what
systemd is told.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mirage.cli.main import VERBS, full_parser
from mirage.daemon.notify import notify, watchdog_s
from mirage.daemon.scheduler import CYCLE_S, SLACK_S, Beat, run_forever
from mirage.peers import FILES
from tests.fakes.fake_slurm import FakeSlurm

ROOT = Path(__file__).parents[3]
UNITS = ROOT / "systemd"
needs_systemd = pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="needs systemd-analyze (apt: systemd)"
)
MOST_EXPOSED = {"mirage.service": 2.0, "mirage-retrain.service": 2.0, "mirage-agent.service": 8.0}
"""systemd-analyze's score, 0 to 10. A user's own manager can't forbid much, see the unit."""


def analyze(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *words],
        capture_output=True,
        text=True,
        env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)},
    )


VERB_OF = {
    "mirage.service": "daemon",
    "mirage-retrain.service": "retrain",
    "mirage-agent.service": "agent",
}


@pytest.fixture(params=MOST_EXPOSED)
def unit(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The unit with a program that this machine has."""
    copy = tmp_path / request.param
    copy.write_text((UNITS / request.param).read_text().replace("/usr/bin/mirage", "/bin/true"))
    return copy


@needs_systemd
def test_systemd_finds_no_fault_in_the_units(unit: Path, tmp_path: Path) -> None:
    user = ["--user"] if "agent" in unit.name else []
    done = analyze(tmp_path, "verify", "--man=no", *user, str(unit))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    unit.write_text(unit.read_text().replace("NoNewPrivileges=", "NoNewPrivilges="))
    assert "Unknown key" in analyze(tmp_path, "verify", "--man=no", *user, str(unit)).stderr, (
        "the check can fail"
    )


@needs_systemd
def test_what_the_units_leave_open_is_bounded(unit: Path, tmp_path: Path) -> None:
    told = analyze(tmp_path, "security", "--offline=yes", "--no-pager", str(unit)).stdout
    found = re.search(r"Overall exposure level for \S+: ([\d.]+) \w+", told)
    assert found, told
    print(found[0])
    assert float(found[1]) <= MOST_EXPOSED[unit.name], told


@pytest.mark.parametrize("name", MOST_EXPOSED)
def test_what_the_units_start_is_a_command_of_ours(name: str) -> None:
    (command,) = re.findall(
        r"^ExecStart=/usr/bin/mirage (.*)$", (UNITS / name).read_text(), re.MULTILINE
    )
    args = full_parser().parse_args(command.split())
    assert args.verb == VERB_OF[name]


@needs_systemd
def test_the_timer_starts_the_training_and_has_a_time(tmp_path: Path) -> None:
    for name in ("mirage-retrain.timer", "mirage-retrain.service"):
        (tmp_path / name).write_text(
            (UNITS / name).read_text().replace("/usr/bin/mirage", "/bin/true")
        )
    done = analyze(tmp_path, "verify", "--man=no", str(tmp_path / "mirage-retrain.timer"))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    (calendar,) = re.findall(
        "^OnCalendar=(.*)$", (tmp_path / "mirage-retrain.timer").read_text(), re.MULTILINE
    )
    assert "Next elapse: Sun" in analyze(tmp_path, "calendar", calendar).stdout


@pytest.mark.parametrize("name", ["mirage.service", "mirage-agent.service"])
def test_the_units_permit_the_files_that_the_service_asks_for(name: str) -> None:
    assert f"\nLimitNOFILE={FILES}\n" in (UNITS / name).read_text()


def test_nothing_enables_the_timer() -> None:
    for script in (ROOT / "packaging").rglob("*"):
        if script.is_file():
            assert not re.search(r"systemctl.* enable .*retrain", script.read_text()), script


@needs_systemd
def test_the_user_and_the_folders_are_declared_as_systemd_reads_them(tmp_path: Path) -> None:
    for tool, file in (
        ("systemd-sysusers", "mirage.sysusers.conf"),
        ("systemd-tmpfiles", "mirage.tmpfiles.conf"),
    ):
        words = ["--dry-run"] if tool == "systemd-sysusers" else ["--cat-config"]
        done = subprocess.run([tool, *words, str(UNITS / file)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


# --- sd_notify


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """What systemd listens at."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(tmp_path / "notify"))
        listener.settimeout(240)
        yield listener


def test_notify_reaches_a_path_and_an_abstract_address(
    tmp_path: Path, manager: socket.socket
) -> None:
    notify("READY=1", "STATUS=fine", environ={"NOTIFY_SOCKET": str(tmp_path / "notify")})
    assert manager.recv(4096) == b"READY=1\nSTATUS=fine"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(f"\0mirage-test-{os.getpid()}")
        notify("READY=1", environ={"NOTIFY_SOCKET": f"@mirage-test-{os.getpid()}"})
        listener.settimeout(240)
        assert listener.recv(4096) == b"READY=1"


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/at/all", "@nobody-listens-here"])
def test_without_a_manager_nothing_happens(address: str) -> None:
    notify("READY=1", environ={"NOTIFY_SOCKET": address} if address else {})


def test_the_watchdog_is_told_twice_in_its_time() -> None:
    assert watchdog_s({"WATCHDOG_USEC": "300000000", "WATCHDOG_PID": str(os.getpid())}) == 150
    assert watchdog_s({"WATCHDOG_USEC": "2000000"}) == 1
    for environ in (
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "x"},
        {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"},
    ):
        assert watchdog_s(environ) is None


def environment(tmp_path: Path) -> dict[str, str]:
    """Of a service on a fake Slurm, which tells a fake manager."""
    FakeSlurm.create(tmp_path, 2, int(time.time()))
    return os.environ | {
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
        "FAKE_SLURM_DIR": str(tmp_path),
        "FAKE_SLURM_USER": "root",
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": "400000",
        "MIRAGE__DAEMON__STORE": f"sqlite:///{tmp_path}/mirage.db",
        "MIRAGE__DAEMON__SOCKET": f"{tmp_path}/mirage.sock",
    }


def test_the_daemon_tells_systemd_when_it_is_ready_alive_and_stopping(
    tmp_path: Path, manager: socket.socket
) -> None:
    env = environment(tmp_path)
    words = [sys.executable, "-m", "mirage.cli.main", "daemon", "--config", os.devnull]
    told: list[str] = []
    with subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL) as daemon:
        try:
            while "READY=1" not in told:
                told.append(manager.recv(4096).decode())
            assert (tmp_path / "mirage.sock").exists(), "ready means that users can ask"
            while told.count("WATCHDOG=1") < 2 or not any(
                line.startswith("STATUS=Cycle of") for line in told
            ):
                told.append(manager.recv(4096).decode())
            daemon.send_signal(signal.SIGTERM)
            while "STOPPING=1" not in told:
                told.append(manager.recv(4096).decode())
            assert daemon.wait(240) == 0
        finally:
            daemon.kill()
    assert any(re.fullmatch(r"STATUS=Cycle of \d\d:\d\d:\d\d done", line) for line in told), told


def test_sighup_reads_all_again_and_a_wrong_configuration_changes_nothing(
    tmp_path: Path, manager: socket.socket
) -> None:
    config, log = tmp_path / "mirage.toml", tmp_path / "log"
    config.write_text("[daemon]\npoll_s = 501\n")
    words = [sys.executable, "-m", "mirage.cli.main", "daemon", "--config", str(config)]
    env = environment(tmp_path)

    def wait_for(line: str) -> None:
        while line not in manager.recv(4096).decode().splitlines():
            pass

    with (
        log.open("w") as stderr,
        subprocess.Popen(words, env=env, stdin=subprocess.DEVNULL, stderr=stderr) as daemon,
    ):
        try:
            wait_for("READY=1")
            config.write_text("[daemon]\npoll_s = 0\n")
            daemon.send_signal(signal.SIGHUP)
            while "not reloaded, all stays as it was: mirage daemon: " not in log.read_text():
                wait_for("WATCHDOG=1")
            config.write_text("[daemon]\npoll_s = 502\n")
            daemon.send_signal(signal.SIGHUP)
            wait_for("RELOADING=1")
            wait_for("READY=1")
            daemon.send_signal(signal.SIGTERM)
            wait_for("STOPPING=1")
            assert daemon.wait(240) == 0
        finally:
            daemon.kill()
    assert re.findall(r"a cycle every (\d+) s", log.read_text()) == ["501", "502"]


def test_a_service_whose_cycles_no_longer_end_falls_silent(
    tmp_path: Path, manager: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    now_s = 1000.0
    monkeypatch.setattr("mirage.daemon.scheduler.time.monotonic", lambda: now_s)
    beat = Beat(lambda: False, poll_s=lambda: 600)
    now_s += 2 * 600 + CYCLE_S - 1
    beat.notify_watchdog()
    assert manager.recv(4096) == b"WATCHDOG=1"
    now_s += 2
    beat.notify_watchdog()
    beat.run()
    assert manager.recv(4096).endswith(b"skipped: see the log"), "nothing was sent before"
    beat.notify_watchdog()
    assert manager.recv(4096) == b"WATCHDOG=1"


def test_a_cycle_that_waits_for_a_clock_that_was_set_back_is_hurried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now_s = 1000.0
    monkeypatch.setattr("mirage.daemon.scheduler.time.monotonic", lambda: now_s)
    found: list[bool] = []

    def cycle() -> bool:
        nonlocal now_s
        now_s += 2 * 600  # a slow one
        found.append(beat.is_overdue())
        return True

    beat = Beat(cycle, poll_s=lambda: 600)
    now_s += 600 + SLACK_S
    found.append(beat.is_overdue())
    now_s += 1
    found.append(beat.is_overdue())
    beat.run()
    assert found == [False, True, False]


def test_a_stop_that_comes_while_a_reload_is_looked_at_holds() -> None:
    old = {kind: signal.getsignal(kind) for kind in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}

    def cycle() -> bool:
        os.kill(os.getpid(), signal.SIGHUP)
        return True

    def agrees() -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return True

    try:
        assert run_forever(cycle, lambda: 600, agrees) is False
        assert run_forever(cycle, lambda: 600, lambda: True) is True
    finally:
        for kind, handler in old.items():
            signal.signal(kind, handler)


@pytest.fixture
def signals() -> Iterator[None]:
    old = {kind: signal.getsignal(kind) for kind in (signal.SIGTERM, signal.SIGINT)}
    yield
    for kind, handler in old.items():
        signal.signal(kind, handler)


def _stops_after(cycles: int, then: Callable[[], None] = lambda: None) -> Callable[[], bool]:
    left = iter(range(cycles - 1, -1, -1))

    def cycle() -> bool:
        then()
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGTERM)
        return True

    return cycle


@pytest.mark.usefixtures("signals")
def test_a_cycle_says_when_the_next_one_comes() -> None:
    """A day after the first one, had that not seen short links."""
    every_s = [86_400]
    cycle = _stops_after(3, then=lambda: every_s.__setitem__(0, 1))
    assert run_forever(cycle, lambda: every_s[0]) is False


@pytest.mark.usefixtures("signals")
def test_a_cycle_comes_at_once_where_one_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirage.daemon.scheduler.WAKE_S", 0.1)
    assert run_forever(_stops_after(2), lambda: 86_400, is_due=lambda: True) is False


# --- Manual pages and completion


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("share")
    subprocess.run(
        [sys.executable, ROOT / "scripts" / "build-manual", folder], check=True, cwd=ROOT
    )
    return folder


def test_every_verb_and_program_has_a_page_with_its_options(manual: Path) -> None:
    pages = {path.name for path in (manual / "man" / "man1").iterdir()}
    assert pages >= {f"mirage-{verb}.1" for verb in VERBS} | {
        "mirage.1",
        "mirage-submit.1",
        "mirage-sbatch.1",
    }
    assert "\\-\\-print\\-config" in (manual / "man" / "man1" / "mirage-daemon.1").read_text()
    assert "\\-\\-segments N" in (manual / "man" / "man1" / "mirage-submit.1").read_text()


@pytest.mark.skipif(not shutil.which("groff"), reason="needs groff")
def test_the_pages_are_what_man_reads(manual: Path) -> None:
    for page in (manual / "man" / "man1").iterdir():
        # -Wbreak: a long list of choices is no fault.
        done = subprocess.run(
            ["groff", "-man", "-ww", "-Wbreak", "-Tutf8", "-z", page],
            capture_output=True,
            text=True,
        )
        assert done.stderr == "", page.name


@pytest.mark.parametrize(
    ("program", "words", "expected"),
    [
        ("mirage", "mirage dae", "daemon"),
        ("mirage", "mirage daemon --print", "--print-config"),
        ("mirage-submit", "mirage-submit --seg", "--segments"),
        ("mirage-submit", "mirage-submit --parti", "--partition"),
        ("mirage-sbatch", "mirage-sbatch --gpus-per-n", "--gpus-per-node"),
        ("slurm-sim", "slurm-sim com", "compare"),
    ],
)
def test_bash_completes_a_word(manual: Path, program: str, words: str, expected: str) -> None:
    script = (
        f"source {manual}/bash-completion/completions/{program}; COMP_WORDS=({words});"
        f" COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); complete -p {program} >/dev/null; $(complete -p"
        f' {program} | sed \'s/.*-F \\([^ ]*\\) .*/\\1/\'); printf "%s\\n" "${{COMPREPLY[@]}}"'
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert expected in done.stdout.split(), done.stderr

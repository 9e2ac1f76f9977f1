"""job.sh in chains of services: when a link is ready, what follows from that, and a server that dies."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from mirage.chain.folder import over_marker, read_link, read_record
from mirage.chain.script import FREE_PORT, Failure, Handover, Health, Notify
from mirage.domain import Mode
from tests.unit.chain import test_job_sh
from tests.unit.chain.test_job_sh import (
    PATIENCE_S,
    TAG,
    Rig,
    change,
    end_all,
    every_shell,
    start_first,
    trace,
    wait_until,
)
from tests.unit.chain.test_job_sh_lifecycle import TELL, told

pytestmark = pytest.mark.flaky(reruns=1)
"""Real shells and signals in real time: a busy machine can move what comes first. A rerun is shown."""

rig = test_job_sh.rig


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that has lost its endpoint file is asked to end a second later, and not ten."""
    monkeypatch.setattr("mirage.chain.script.NOTICE_S", 1)


SERVER = r"""
trap 'echo "$MIRAGE_SEGMENT stops" >>trace; exit 0' TERM
echo "$MIRAGE_SEGMENT starts" >>trace
while :; do sleep 0.1; done
"""
PAGES = """
import http.server, os, sys

class Pages(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(204 if self.path == "/health" and os.path.exists("healthy") else 503)
        self.end_headers()

http.server.HTTPServer(("localhost", int(sys.argv[1])), Pages).serve_forever()
"""


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])


def serve(rig: Rig, body: str = SERVER, **changes: object) -> None:
    change(rig, mode=Mode.SERVICE, **changes)
    rig.script(body)


def pages(rig: Rig, port: int) -> str:
    """Link 1 is a server that a test need not ask; the later ones answer on this port."""
    (rig.root / "pages.py").write_text(PAGES)
    other = f'echo "$MIRAGE_SEGMENT starts" >>trace; exec python3 pages.py {port} 2>/dev/null'
    return f'[ "$MIRAGE_SEGMENT" = 1 ] || {{ {other}; }}\n{SERVER}'


def answers(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex(("localhost", port)) == 0


def started(rig: Rig) -> subprocess.Popen[str]:
    """Link 2, once its script runs beside link 1."""
    start_first(rig)
    link = rig.start(2, 12, 11)
    wait_until(lambda: "2 starts" in trace(rig))
    return link


# ---- Ready


@every_shell
def test_a_page_tells_when_a_service_is_ready(rig: Rig) -> None:
    port = free_port()
    serve(rig, pages(rig, port), health=Health(port=port, path="/health", count=1))
    started(rig)
    wait_until(lambda: answers(port))
    wait_until(lambda: len(rig.log("squeue")) > 3)
    assert not (rig.folder / "ready.2").exists(), "503 is not ready"
    (rig.root / "healthy").touch()
    wait_until(lambda: "1 stops" in trace(rig))
    assert (rig.folder / "ready.2").read_text().startswith("by=check\nat=")


@every_shell
def test_a_port_tells_when_a_service_is_ready(rig: Rig) -> None:
    port = free_port()
    serve(rig, pages(rig, port), health=Health(port=port, count=1))
    started(rig)
    wait_until(lambda: "1 stops" in trace(rig))
    assert (rig.folder / "ready.2").read_text().startswith("by=check\nat=")


BASH = """#!/bin/sh
"{bash}" "$@"
code=$?
echo "$code" >>"$FAKE/bash.log"
exit "$code"
"""


def test_a_port_that_another_program_answers_on_does_not_count(rig: Rig) -> None:
    port = free_port()
    serve(rig, health=Health(port=port, count=1))
    (rig.root / "bin" / "bash").write_text(BASH.format(bash=shutil.which("bash")))
    (rig.root / "bin" / "bash").chmod(0o755)
    (rig.root / "pages.py").write_text(PAGES)
    with socket.create_server(("localhost", port)):
        link = rig.start(1, 11)
        assert link.stderr
        assert f"another program answers on port {port} of this node" in link.stderr.readline()
        wait_until(lambda: rig.log("bash").count("0") > 2)
        assert not (rig.folder / "ready.1").exists()
    wait_until(lambda: rig.log("bash")[-2:] == ["1", "1"])  # gone, under both names of the node
    own = subprocess.Popen(["python3", "pages.py", str(port)], cwd=rig.root)
    try:
        wait_until(lambda: (rig.folder / "ready.1").exists())
    finally:
        own.kill()
        own.wait()


def test_without_bash_a_port_is_not_asked(rig: Rig, tmp_path: Path) -> None:
    (tools := tmp_path / "tools").mkdir()
    for program in (*Path("/usr/bin").iterdir(), *Path("/bin").iterdir()):
        if program.name != "bash" and not (tools / program.name).is_symlink():
            (tools / program.name).symlink_to(program)
    serve(rig, health=Health(port=free_port()), handover=Handover(cost_s=1))
    link = rig.start(1, 11, PATH=f"{rig.root / 'bin'}:{tools}")
    assert link.stderr
    assert "there is no bash here to ask port" in link.stderr.readline()
    assert "counts as ready 1 s after its start" in link.stderr.readline()
    wait_until(lambda: (rig.folder / "ready.1").exists())


@pytest.mark.parametrize("is_said", [True, False], ids=["--startup", "default"])
def test_a_service_without_a_check_is_ready_its_start_up_after_its_start(
    rig: Rig, is_said: bool
) -> None:
    changes: dict[str, object] = (
        {"handover": Handover(cost_s=2)} if is_said else {"limit_s": 20}
    )  # a tenth of the limit
    serve(rig, **changes)
    link = started(rig)
    wait_until(lambda: "1 stops" in trace(rig))
    assert (rig.folder / "ready.2").read_text().startswith("by=startup\nat=")
    assert link.stderr
    assert "this link counts as ready 2 s after its start" in link.stderr.readline()


@every_shell
@pytest.mark.parametrize(
    ("health", "words"),
    [
        (Health(command="false"), "--health-command false"),
        (Health(command="sleep 1000"), "--health-command sleep 1000"),
        (Health(port=1, path="/up"), "--health-http 1/up"),
        (Health(port=1), "--health-tcp 1"),
        (Health(says_so=True), "$MIRAGE_READY_FILE"),
    ],
    ids=["fails", "hangs", "no page", "no port", "no file"],
)
def test_a_link_that_never_gets_ready_leaves_the_one_that_serves(
    rig: Rig, monkeypatch: pytest.MonkeyPatch, health: Health, words: str
) -> None:
    monkeypatch.setattr("mirage.chain.script.COMMAND_LIMIT_S", 1)
    serve(rig, health=health, handover=Handover(cost_s=2), failure=Failure(action="continue"))
    _out, err = started(rig).communicate(timeout=PATIENCE_S)
    assert trace(rig) == ["1 starts", "2 starts", "2 stops"]
    assert (
        f"the service is not ready 4 s after its start (twice its start-up): look at {words} and"
        in err
    )
    assert "Another link of the chain runs on, and this one ends" in err
    record = read_link(rig.folder, 2)
    assert record
    assert (record.how, record.exit_code) == ("exit", 1)
    assert over_marker(rig.folder) is None
    assert (rig.folder / "queued.3").exists()


def test_a_link_that_serves_alone_goes_on_though_it_is_not_ready(rig: Rig) -> None:
    serve(rig, health=Health(command="[ -e healthy ]", count=1), handover=Handover(cost_s=1))
    start_first(rig)
    link = rig.running[-1]
    assert link.stderr
    assert "No other link of the chain runs, so this one goes on" in link.stderr.readline()
    (rig.root / "healthy").touch()
    wait_until(lambda: (rig.folder / "ready.1").exists())


def test_links_that_were_never_ready_are_a_crash_loop(rig: Rig) -> None:
    failure = Failure(action="continue", max_short=2)
    serve(rig, health=Health(command="false"), handover=Handover(cost_s=1), failure=failure)
    start_first(rig)
    (rig.folder / "start.1").write_text("job=11\nstart=1\n")
    for segment, job in ((2, 12), (3, 13)):
        rig.queue(job + 1, segment + 1, job)
        rig.run(segment, job, job - 1)
    assert over_marker(rig.folder) == (
        "failed",
        "crash loop: 2 links in a row (--max-short) ran for less than 60 s each (--min-runtime),"
        " or did not become ready",
    )
    assert "1 stops" not in trace(rig)


def test_links_that_ran_alone_to_their_limit_and_were_never_ready_end_the_chain(rig: Rig) -> None:
    failure = Failure(action="continue", max_short=2)
    serve(rig, health=Health(command="false"), handover=Handover(cost_s=1), failure=failure)
    for segment, job in ((1, 11), (2, 12)):
        link = rig.start(segment, job, job - 1 if segment > 1 else 0)
        assert link.stderr
        assert any("so this one goes on" in line for line in link.stderr)
        rig.over(job, "TIMEOUT")
        link.terminate()
        link.communicate(timeout=PATIENCE_S)
        assert "the service was not ready in the" in (rig.folder / f"unready.{segment}").read_text()
    assert over_marker(rig.folder) is None
    rig.run(3, 13, 12)
    kind, reason = over_marker(rig.folder) or ("", "")
    assert kind == "failed"
    assert reason.startswith("crash loop: 2 links in a row")


def test_a_last_link_that_was_never_ready_is_no_success(rig: Rig) -> None:
    serve(rig, health=Health(command="false"), handover=Handover(cost_s=1), segments=2)
    start_first(rig)
    rig.run(2, 12, 11)
    assert (over_marker(rig.folder) or ("",))[0] == "failed"


def test_a_link_that_passes_a_waiting_one_leaves_the_running_one_until_it_is_ready(
    rig: Rig,
) -> None:
    serve(rig, health=Health(command="[ -e healthy ]", count=1))
    start_first(rig)
    rig.queue(13, 3, 12)
    rig.start(3, 13, 12)  # link 2 still waits
    wait_until(lambda: "3 starts" in trace(rig))
    wait_until(lambda: len(rig.log("squeue")) > 3)
    assert "1 stops" not in trace(rig)
    (rig.root / "healthy").touch()
    wait_until(lambda: "1 stops" in trace(rig))
    wait_until(lambda: "--state=PENDING 12" in rig.log("scancel"))


@every_shell
@pytest.mark.parametrize(
    ("before", "own"), [(0, ""), (5, " -- ready=mine -- x")], ids=["first run", "requeued"]
)
def test_the_tag_tells_since_when_a_link_is_ready(rig: Rig, before: int, own: str) -> None:
    serve(rig, health=Health(command="true", count=1))
    rig.start(1, 11)
    with (rig.fake / "queue").open("w") as queue:
        queue.write(f"11 RUNNING {TAG.format(1, 0)} ready={before}{own}\n")
    wait_until(lambda: any("ready=" in line for line in rig.log("scontrol")))
    ready_s = read_record(rig.folder / "ready.1")["at"]
    assert rig.log("scontrol")[0] == (
        f"update JobId=11 Comment={TAG.format(1, 0)} ready={ready_s}{own}"
    )


DRAINS = r"""
trap 'echo "$MIRAGE_SEGMENT drains" >>trace; while [ ! -e drained ]; do sleep 0.1; done; exit 0' TERM
echo "$MIRAGE_SEGMENT starts" >>trace
while :; do sleep 0.1; done
"""


def test_a_link_that_is_ready_serves_on_and_says_so_while_the_link_before_drains(rig: Rig) -> None:
    """`mirage done` lets the running link finish, and that is the one that is ready."""
    serve(rig, DRAINS, health=Health(command="[ $MIRAGE_SEGMENT = 2 ]", count=1))
    link = started(rig)
    wait_until(lambda: "1 drains" in trace(rig))
    assert any(line.startswith("update JobId=12 ") for line in rig.log("scontrol"))
    (rig.folder / "done").write_text("mirage done\n")
    asked = len(rig.log("squeue"))
    wait_until(lambda: len(rig.log("squeue")) > asked + 1)  # link 2 looks at the chain, then there
    (rig.root / "drained").touch()
    wait_until(lambda: read_record(rig.folder / "writer.2" / "owner").get("segment") == "2")
    assert link.poll() is None
    assert "2 drains" not in trace(rig)


def test_the_tag_tells_the_start_up_that_the_chains_own_links_took(rig: Rig) -> None:
    serve(rig, "true", handover=Handover(cost_s=900))
    for segment, (start_s, ready_s) in {5: (1000, 1100), 6: (2000, 2300)}.items():
        (rig.folder / f"start.{segment}").write_text(f"job=5\nstart={start_s}\n")
        (rig.folder / f"ready.{segment}").touch()
        os.utime(rig.folder / f"ready.{segment}", (ready_s,) * 2)
    (rig.folder / "ready.6").write_text("of my own\nat=2300\n")  # the file system's clock differs
    (rig.folder / "start.7").write_text("job=7\nstart=3000\n")  # never ready
    rig.run(1, 11)
    words = (rig.fake / "sbatch.args").read_text()
    assert " cost=200 ready=0\n" in words


def test_an_interruption_lasts_until_a_service_is_ready(rig: Rig) -> None:
    serve(
        rig,
        health=Health(command="[ -e healthy ]", count=1),
        notify=Notify(TELL, after_s=600),
    )
    (rig.folder / "link.1").write_text("job=11\nend=1000\nhow=slurm\n")
    (rig.folder / "start.1").write_text("job=11\nstart=1\n")
    (rig.fake / "state.11").write_text("TIMEOUT\n")
    rig.start(2, 12, 11)
    wait_until(lambda: "2 starts" in trace(rig))
    assert told(rig) == []
    (rig.root / "healthy").touch()
    wait_until(lambda: told(rig))
    (line,) = told(rig)
    gap_s = int(line.rpartition("|")[2])
    assert line.startswith(f"interrupted|nothing served for {gap_s} s after link 1 (job 11) ended|")
    assert abs(1000 + gap_s - (rig.folder / "ready.2").stat().st_mtime) < 5


# ---- A server that dies


SAYS_SO = """
trap 'echo "$MIRAGE_SEGMENT stops" >>trace; exit 0' TERM
echo "$MIRAGE_SEGMENT starts" >>trace
until [ -e healthy ]; do sleep 0.1; done
: >"$MIRAGE_READY_FILE"
while :; do sleep 0.1; done
"""


@every_shell
@pytest.mark.parametrize(
    ("body", "health"),
    [(SERVER, Health(command="[ -e healthy ]", count=1)), (SAYS_SO, Health(says_so=True))],
    ids=["asked", "says so"],
)
def test_a_server_that_is_killed_starts_again_on_its_nodes(
    rig: Rig, body: str, health: Health
) -> None:
    serve(rig, f"echo $$ >>pids\n{body}", health=health, failure=Failure(action="continue"))
    (rig.root / "healthy").touch()
    link = rig.start(1, 11)
    wait_until(lambda: list(rig.folder.glob(".up.*")))
    ready_s = read_record(rig.folder / "ready.1")["at"]
    with (rig.fake / "queue").open("w") as queue:
        queue.write(f"11 RUNNING {TAG.format(1, 0)} ready={ready_s} -- mine\n")
    (rig.root / "healthy").unlink()
    died_s = time.time()
    os.kill(int((rig.root / "pids").read_text()), signal.SIGKILL)
    wait_until(lambda: trace(rig) == ["1 starts", "1 starts"])
    assert link.stderr
    line = next(
        line for line in link.stderr if line.startswith("mirage: ")
    )  # after the shell's own
    assert "exit code 137" in line
    assert "it is started again in this job" in line
    time.sleep(2)  # away for so long at least
    assert "down" not in read_record(rig.folder / "ready.1")
    (rig.root / "healthy").touch()
    wait_until(lambda: any(" down=" in line for line in rig.log("scontrol")))
    record = read_record(rig.folder / "ready.1")
    assert record["at"] == ready_s, "the start-up is of the start"
    assert 2 <= int(record["down"]) <= time.time() - died_s + 1
    words = f"ready={ready_s} down={record['down']}"
    assert rig.log("scontrol")[-1] == f"update JobId=11 Comment={TAG.format(1, 0)} {words} -- mine"
    link.terminate()
    link.communicate(timeout=PATIENCE_S)
    assert trace(rig) == ["1 starts", "1 starts", "1 stops"], "told to end, it does not start again"


@every_shell
def test_a_server_that_dies_again_and_again_leaves_its_nodes(rig: Rig) -> None:
    failure = Failure(action="continue", max_short=3, min_runtime_s=60)
    serve(rig, "date +%s >>runs; exit 7", health=Health(command="false"), failure=failure)
    code, _out, err = rig.run(1, 11)
    first_s, second_s, third_s = map(int, (rig.root / "runs").read_text().split())
    assert second_s - first_s >= 1
    assert third_s - second_s >= 4, "what made it fail may pass"
    assert "3 times in a row too soon (--max-short, --min-runtime): this link gives up" in err
    assert code == 7
    assert over_marker(rig.folder) is None
    assert (rig.folder / "queued.2").exists()


@every_shell
def test_a_link_that_waits_to_start_its_server_again_ends_when_it_is_asked_to(rig: Rig) -> None:
    failure = Failure(action="continue", max_short=0, min_runtime_s=60)
    serve(rig, "echo x >>runs; exit 7", health=Health(command="false"), failure=failure)
    link = rig.start(1, 11)
    assert link.stderr
    assert any("started again in this job, in 16 s" in line for line in link.stderr)
    (rig.folder / "handover.1").write_text("job=12\n")
    link.terminate()
    link.communicate(timeout=PATIENCE_S)
    assert (rig.root / "runs").read_text() == "x\n" * 3
    record = read_link(rig.folder, 1)
    assert record
    assert record.how == "handover"


@every_shell
def test_links_that_fail_beside_one_that_serves_come_more_slowly_and_are_no_crash_loop(
    rig: Rig,
) -> None:
    failure = Failure(action="continue", max_short=2, min_runtime_s=60)
    body = f'[ "$MIRAGE_SEGMENT" = 1 ] || exit 1\n{SERVER}'
    serve(rig, body, health=Health(command="true", count=1), failure=failure, segments=9)
    start_first(rig)
    wait_until(lambda: (rig.folder / "ready.1").exists())
    for segment, job in ((2, 12), (3, 13), (4, 14)):
        rig.queue(job + 1, segment + 1, job)
        rig.run(segment, job, job - 1)
        assert over_marker(rig.folder) is None
        (line,) = (line for line in rig.log("scontrol") if f"JobId={job + 1} Dep" in line)
        either, minutes = line.rsplit("+", 1)
        assert either == f"update JobId={job + 1} Dependency=afterany:11?after:{job}"
        assert segment - 1 <= int(minutes) <= segment + 1, "of the failed link's run and the pause"
    end_all(rig)  # link 1 is killed outright
    rig.over(11, "NODE_FAIL")
    for segment, job, is_over in ((5, 15, False), (6, 16, True)):
        rig.queue(job + 1, segment + 1, job)
        rig.run(segment, job, job - 1)
        assert (over_marker(rig.folder) is not None) == is_over, "nobody serves now"
    assert f"JobId={16} Dep" not in " ".join(rig.log("scontrol"))


@pytest.mark.parametrize("failure", [Failure(), Failure(action="retry", retries=1)])
def test_a_link_that_fails_beside_one_that_serves_ends_no_chain(rig: Rig, failure: Failure) -> None:
    body = f'[ "$MIRAGE_SEGMENT" = 1 ] || exit 7\n{SERVER}'
    serve(rig, body, health=Health(command="true", count=1), failure=failure, segments=9)
    start_first(rig)
    wait_until(lambda: (rig.folder / "ready.1").exists())
    for segment, job in ((2, 12), (3, 13)):
        rig.queue(job + 1, segment + 1, job)
        assert rig.run(segment, job, job - 1)[0] == 7
        assert over_marker(rig.folder) is None
    assert (rig.folder / "queued.4").exists()


HANGS = r"""
trap 'echo stops >>trace; exit 0' TERM
echo starts >>trace
touch healthy
while :; do sleep 0.1; done
"""


@every_shell
def test_a_server_that_hangs_is_ended_and_starts_again(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirage.chain.script.HEALTH_AGAIN_S", 1)
    health = Health(command="[ -e healthy ]", count=1, failures=2)
    serve(rig, HANGS, health=health, failure=Failure(action="continue"))
    link = rig.start(1, 11)
    wait_until(lambda: list(rig.folder.glob(".up.*")))
    hung_s = time.time()
    (rig.root / "healthy").unlink()
    assert link.stderr
    assert any("2 checks in a row failed" in line for line in link.stderr)
    wait_until(lambda: trace(rig) == ["starts", "stops", "starts"])
    wait_until(lambda: "down" in read_record(rig.folder / "ready.1"))
    down_s = int(read_record(rig.folder / "ready.1")["down"])
    assert 1 <= down_s <= time.time() - hung_s + 1, "from the first failed check on"
    link.terminate()
    link.communicate(timeout=PATIENCE_S)


def test_a_server_that_hangs_in_a_chain_that_stops_has_failed(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirage.chain.script.HEALTH_AGAIN_S", 1)
    health = Health(command="[ -e healthy ]", count=1, failures=2)
    serve(rig, HANGS, health=health)
    link = rig.start(1, 11)
    wait_until(lambda: list(rig.folder.glob(".up.*")))
    (rig.root / "healthy").unlink()
    link.communicate(timeout=PATIENCE_S)
    assert link.returncode == 1, "the script's 0 is no success"
    assert (over_marker(rig.folder) or ("",))[0] == "failed"
    assert int(read_record(rig.folder / "ready.1")["down"]) >= 1


def test_a_server_that_is_asked_to_end_may_take_its_time(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirage.chain.script.HEALTH_AGAIN_S", 0)
    asks = "echo asked >>asks; [ ! -e leaves ]"
    serve(rig, DRAINS, health=Health(command=asks, count=1, failures=1))
    link = rig.start(1, 11)
    wait_until(lambda: list(rig.folder.glob(".up.*")))
    (rig.folder / "handover.1").write_text("job=12\n")
    (rig.root / "leaves").touch()
    link.terminate()
    wait_until(lambda: "1 drains" in trace(rig))
    asked = (rig.root / "asks").read_text()
    wait_until(lambda: len((rig.root / "asks").read_text()) > len(asked) + len("asked "))
    assert not list(rig.folder.glob(".hung.*"))
    (rig.root / "drained").touch()
    link.communicate(timeout=PATIENCE_S)
    record = read_link(rig.folder, 1)
    assert record
    assert record.how == "handover"


@pytest.mark.parametrize(
    ("failure", "code"),
    [(Failure(), 7), (Failure(action="retry", retries=2), 7), (Failure(action="continue"), 0)],
    ids=["stop", "retry", "exit 0"],
)
def test_a_server_does_not_start_again(rig: Rig, failure: Failure, code: int) -> None:
    """Where its owner wants the chain to stop, or a link for each failure, and where it ended well."""
    serve(rig, f"echo x >>runs; exit {code}", health=Health(command="true"), failure=failure)
    assert rig.run(1, 11)[0] == code
    assert (rig.root / "runs").read_text() == "x\n"


def test_a_script_that_leaves_its_server_behind_does_not_end_the_chain_as_done(rig: Rig) -> None:
    serve(rig, "sleep 600 &", length="done", health=Health(says_so=True))
    assert rig.run(1, 11)[0] == 0
    assert over_marker(rig.folder) is None
    assert (rig.folder / "queued.2").exists()
    serve(rig, 'touch "$MIRAGE_READY_FILE"', length="done", health=Health(says_so=True))
    rig.run(2, 12, 11)
    assert (over_marker(rig.folder) or ("",))[0] == "done"


# ---- Where clients reach it

ON_A_PORT = r"""
trap 'echo "$MIRAGE_SEGMENT stops" >>trace; exit 0' TERM
echo "$MIRAGE_SEGMENT starts" >>trace
echo "127.0.0.1:$((8000 + MIRAGE_SEGMENT))" >"$MIRAGE_ENDPOINT"
touch "$MIRAGE_READY_FILE"
while [ ! -e "die.$MIRAGE_SEGMENT" ]; do sleep 0.1; done
rm -f die.* "$MIRAGE_READY_FILE"
exit 1
"""


def endpoint(rig: Rig, segment: int) -> Path:
    return rig.folder / f"endpoint.{segment}"


def serve_on_a_port(rig: Rig, **changes: object) -> None:
    serve(rig, ON_A_PORT, health=Health(says_so=True), **changes)
    start_first(rig)
    wait_until(endpoint(rig, 1).exists)


@every_shell
def test_a_link_says_where_it_is_until_its_successor_is_ready(rig: Rig) -> None:
    serve_on_a_port(rig)
    told = json.loads(endpoint(rig, 1).read_text())
    assert {key: told[key] for key in ("host", "port", "link", "job")} == {
        "host": "127.0.0.1",
        "port": 8001,
        "link": 1,
        "job": 11,
    }
    assert abs(told["ready_s"] - time.time()) < PATIENCE_S
    (rig.folder / "draining.1.gate").touch()  # a gateway still has clients there
    rig.start(2, 12, 11)
    wait_until(lambda: endpoint(rig, 2).exists() and not endpoint(rig, 1).exists())
    asked_from = time.monotonic()
    wait_until(lambda: time.monotonic() > asked_from + 3)
    assert "1 stops" not in trace(rig), "it is asked to end once its clients have left"
    (rig.folder / "draining.1.gate").unlink()
    wait_until(lambda: "1 stops" in trace(rig))
    assert endpoint(rig, 2).exists()


def test_clients_that_never_leave_hold_a_handover_up_for_the_grace_alone(rig: Rig) -> None:
    serve_on_a_port(rig, handover=Handover(grace_s=3))
    (rig.folder / "draining.1.gate").touch()
    rig.start(2, 12, 11)
    wait_until(lambda: "1 stops" in trace(rig))


@every_shell
def test_nobody_is_sent_to_a_server_that_died_or_was_told_to_end(rig: Rig) -> None:
    serve_on_a_port(rig, failure=Failure(action="continue"))
    (rig.root / "die.1").touch()
    wait_until(lambda: not endpoint(rig, 1).exists())
    wait_until(endpoint(rig, 1).exists)
    os.killpg(rig.running[-1].pid, signal.SIGTERM)
    wait_until(lambda: not endpoint(rig, 1).exists())


def test_a_link_that_nears_its_limit_takes_no_new_clients(rig: Rig) -> None:
    (rig.fake / "end").write_text(f"{int(time.time()) + 33}\n")
    serve_on_a_port(rig)
    wait_until(lambda: not endpoint(rig, 1).exists())
    assert rig.running[-1].poll() is None


@every_shell
def test_a_full_disk_under_the_endpoint_is_told_and_serving_goes_on(rig: Rig) -> None:
    """A folder of its name stands for the full disk, as above."""
    serve(rig, ON_A_PORT, health=Health(says_so=True))
    start_first(rig)
    wait_until(endpoint(rig, 1).exists)
    (rig.folder / ".endpoint.2.12").mkdir()
    link = rig.start(2, 12, 11)
    assert link.stderr
    wait_until(lambda: (rig.folder / "ready.2").exists())
    told = next(line for line in link.stderr if "serves at" in line)
    assert "this link serves at 127.0.0.1:8002, but clients do not find it: can't write" in told
    assert endpoint(rig, 1).exists()
    assert "1 stops" not in trace(rig), "its clients would find no link"
    (rig.folder / ".endpoint.2.12").rmdir()
    wait_until(lambda: "1 stops" in trace(rig))
    assert endpoint(rig, 2).exists()


def test_an_address_that_is_none_is_told(rig: Rig) -> None:
    serve(rig, ON_A_PORT.replace("127.0.0.1:", "here "), health=Health(says_so=True))
    start_first(rig)
    link = rig.running[-1]
    assert link.stderr
    assert "$MIRAGE_ENDPOINT has 'here 8001', which is not HOST:PORT or PORT" in "".join(
        next(link.stderr) for _ in range(1)
    )
    assert not endpoint(rig, 1).exists()


@contextmanager
def server_at_the_first_port_of_a_job() -> Iterator[tuple[socket.socket, int]]:
    """A server on the port that a job tries first, and that job's id."""
    for job in range(11, 12000):
        with suppress(OSError):
            server = socket.create_server(("localhost", 20000 + job))
            break
    with server:
        yield server, job


@every_shell
def test_each_link_may_choose_a_free_port(rig: Rig) -> None:
    health = Health(port=FREE_PORT, path="/health", reached=FREE_PORT, count=1)
    serve(rig, 'exec python3 pages.py "$MIRAGE_PORT"', health=health)
    (rig.root / "pages.py").write_text(PAGES)
    (rig.root / "healthy").touch()
    with server_at_the_first_port_of_a_job() as (server, job):
        rig.start(1, job)
        wait_until(endpoint(rig, 1).exists)
        told = json.loads(endpoint(rig, 1).read_text())
        assert told["port"] != server.getsockname()[1]
        assert told["host"] == os.uname().nodename
        assert answers(told["port"])


def test_the_address_of_a_link_that_was_killed_outright_goes_with_the_next_one(rig: Rig) -> None:
    serve_on_a_port(rig)
    os.killpg(rig.running[-1].pid, signal.SIGKILL)
    rig.over(11, "FAILED")
    assert endpoint(rig, 1).exists()
    rig.start(2, 12, 11)
    wait_until(lambda: endpoint(rig, 2).exists() and not endpoint(rig, 1).exists())

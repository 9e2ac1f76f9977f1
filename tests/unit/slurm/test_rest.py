"""The REST adapter without a Slurm: records in both forms of the API, submissions, and bad answers,
from a small server of our own.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from mirage.cli.main import main
from mirage.config import AdapterConfig
from mirage.domain import ClusterNode, JobState, NodeEvent, Oddity
from mirage.errors import (
    AccountingUnavailable,
    ClusterNonsense,
    ClusterUnavailable,
    InputError,
    Refused,
)
from mirage.slurm import parsing, rest_records
from mirage.slurm.adapter import connect
from mirage.slurm.rest_client import RestClient, token_claims, token_source
from mirage.slurm.rest_cluster import RestCluster
from mirage.slurm.rest_server import RestServer
from mirage.slurm.rest_submission import submission
from slurm_sim.slurm_json import record_rows

NOW = 1_800_000_000
LOCAL = "http://127.0.0.1:9"
PATIENCE_S = 120
Answer = tuple[int, bytes] | Callable[[BaseHTTPRequestHandler], None]


def value(number: int) -> dict[str, object]:
    return {"set": True, "infinite": False, "number": number}


UNSET = {"set": False, "infinite": False, "number": 0}
INFINITE = {"set": False, "infinite": True, "number": 0}

OLD_JOB = {
    "job_id": 7,
    "user_name": "alice",
    "partition": "gpu",
    "account": "research",
    "job_state": "RUNNING",
    "node_count": 2,
    "submit_time": NOW - 50,
    "time_limit": 30,
    "eligible_time": NOW - 50,
    "start_time": NOW - 40,
    "end_time": NOW + 1760,
    "priority": 312,
    "exit_code": 768,
    "tres_alloc_str": "cpu=8,node=2,billing=8,gres/gpu=4",
    "tres_req_str": "cpu=2,mem=8000M,node=2",
    "nodes": "n[1-2]",
    "dependency": "",
    "state_reason": "None",
    "name": "train",
    "comment": "a|b\n",
    "array_job_id": 0,
    "array_task_id": None,
    "array_task_string": "",
}
NEW_JOB = OLD_JOB | {
    "job_state": ["RUNNING"],
    "node_count": value(2),
    "submit_time": value(NOW - 50),
    "time_limit": value(30),
    "eligible_time": value(NOW - 50),
    "start_time": value(NOW - 40),
    "end_time": value(NOW + 1760),
    "priority": value(312),
    "exit_code": {"status": ["ERROR"], "return_code": value(3), "signal": {"id": UNSET}},
    "array_job_id": value(0),
    "array_task_id": UNSET,
}
NODE = {"name": "n1", "state": ["IDLE", "DRAIN"], "partitions": ["gpu"]}
RECORD = {
    "job_id": 8,
    "user": "alice",
    "cluster": "hpc",
    "partition": "gpu",
    "state": {"current": ["COMPLETED"]},
    "allocation_nodes": 2,
    "time": {
        "submission": NOW - 90,
        "eligible": NOW - 90,
        "start": NOW - 80,
        "end": NOW - 20,
        "limit": value(30),
    },
    "priority": value(5),
    "exit_code": {"return_code": value(0), "signal": {"id": UNSET}},
    "tres": {"allocated": [{"type": "cpu", "name": "", "count": 8}], "requested": []},
    "nodes": "n[1-2]",
    "array": {"job_id": 0, "task": "", "task_id": UNSET},
    "submit_line": "sbatch --comment='mirage/1 chain=k3m9pq2xha seg=1/5 mode=train ei=1 eo=0.5' x",
}


def read(*records: dict[str, Any]) -> parsing.JobListing:
    odd: list[Oddity] = []
    listed = parsing.read_queue("slurmrestd", rest_records.queue_rows(records, odd), NOW)
    return parsing.JobListing(listed.jobs, listed.oddities + odd)


# --- records


def test_both_forms_of_the_api_mean_the_same() -> None:
    (old,), (new,) = read(OLD_JOB).jobs, read(NEW_JOB).jobs
    assert old == new
    assert (old.user, old.nodes, old.time_limit_s, old.exit_code) == ("alice", 2, 1800, 3)
    assert (old.start_s, old.end_s, old.node_names) == (NOW - 40, None, ("n1", "n2"))
    assert (old.cpus, old.gpus, old.comment) == (8, 4, "a|b\n")


@pytest.mark.parametrize("limit", [None, INFINITE])
def test_a_job_without_a_limit(limit: object) -> None:
    assert [job.time_limit_s for job in read(OLD_JOB | {"time_limit": limit}).jobs] == [None]


@pytest.mark.parametrize(
    ("states", "shown"),
    [
        (["RUNNING", "COMPLETING"], JobState.COMPLETING),
        (["RUNNING", "CONFIGURING"], JobState.CONFIGURING),
        (["PENDING", "REQUEUED", "A_FLAG_OF_TOMORROW"], JobState.REQUEUED),
        (["PENDING"], JobState.PENDING),
        (["PENDING", "EXPEDITING"], JobState.PENDING),
        (["A_STATE_OF_TOMORROW"], JobState.RUNNING),  # it has nodes
    ],
)
def test_of_a_state_with_flags_the_flag_is_shown(states: list[str], shown: JobState) -> None:
    assert [job.state for job in read(NEW_JOB | {"job_state": states}).jobs] == [shown]


def test_the_tasks_of_an_array() -> None:
    waiting = NEW_JOB | {"array_job_id": value(7), "array_task_string": "1,3-5%2"}
    split = NEW_JOB | {"job_id": 9, "array_job_id": value(7), "array_task_id": value(0)}
    jobs = read(waiting, split).jobs
    assert [(job.job_id, job.array_task) for job in jobs] == [
        *((7, task) for task in ("1", "3", "4", "5")),
        (9, "0"),
    ]


def test_a_list_of_tasks_that_is_cut_short_costs_this_job_alone() -> None:
    cut = NEW_JOB | {"job_id": 9, "array_task_string": "1,3,5,..."}
    listed = read(NEW_JOB, cut)
    assert [job.job_id for job in listed.jobs] == [7]
    assert [(odd.job_id, odd.field) for odd in listed.oddities] == [(9, "array_task_string")]


def test_nodes_and_since_when_they_are_down() -> None:
    assert rest_records.node(NODE) == ClusterNode(
        name="n1", partitions=("gpu",), up=False, idle=False, state="idle+drain"
    )
    old = {"name": "n1", "state": "idle", "state_flags": ["DRAIN"], "partitions": ["gpu"]}
    assert rest_records.node(old) == rest_records.node(NODE)
    since = NODE | {"reason_changed_at": value(NOW)}
    assert rest_records.down_since(since) == NodeEvent("n1", NOW, None)
    assert rest_records.down_since(NODE) is None
    assert rest_records.down_since(since | {"state": ["MIXED"]}) is None


def test_the_bits_of_waiting_tasks_are_their_numbers() -> None:
    record = RECORD | {"array": {"job_id": 8, "task": "0xAA"}, "state": {"current": ["PENDING"]}}
    rows = record_rows([record])
    jobs = parsing.read_records("slurmrestd", rows, NOW).jobs
    assert [job.array_task for job in jobs] == ["1", "3", "5", "7"]
    assert {job.end_s for job in jobs} == {None}


# --- submissions

SCRIPT = b"#!/bin/sh\n#SBATCH -N 2 --time=1:30:00\n#SBATCH -o out.%j\nsleep 1\n"


def sent(*options: str, is_old: bool) -> dict[str, Any]:
    document = submission(
        options, SCRIPT, is_old=is_old, folder="/home/alice", name="job.sh", now_s=NOW
    )
    assert document["script"] == SCRIPT.decode()
    job: dict[str, Any] = document["job"]
    return job


def test_the_scripts_own_options_count_and_those_of_the_command_line_more() -> None:
    old = sent("-N4", "--requeue", is_old=True)
    assert (old["nodes"], old["time_limit"], old["standard_output"]) == ("4", 90, "out.%j")
    assert (old["requeue"], old["name"]) == (True, "job.sh")
    assert old["environment"] == {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    new = sent("--job-name=x", "--chdir=/tmp", is_old=False)
    assert (new["nodes"], new["time_limit"], new["name"]) == ("2", value(90), "x")
    assert new["current_working_directory"] == "/tmp"
    assert new["environment"] == ["PATH=/usr/local/bin:/usr/bin:/bin"]


@pytest.mark.parametrize(
    ("option", "old", "new"),
    [
        (
            "--begin=now+1hour",
            {"begin_time": f"uts{NOW + 3600}"},
            {"begin_time": value(NOW + 3600)},
        ),
        ("--mem=2G", {"memory_per_node": 2048}, {"memory_per_node": value(2048)}),
        ("--gres=gpu:2", {"gres": "gpu:2"}, {"tres_per_node": "gres/gpu:2"}),
        ("--gpus=4", {"gpus": "4"}, {"tres_per_job": "gres/gpu:4"}),
        ("--exclusive", {"exclusive": "true"}, {"shared": ["none"]}),
        ("--hold", {"hold": True}, {"hold": True}),
        ("-c2", {"cpus_per_task": 2}, {"cpus_per_task": 2}),
        (
            "--signal=B:USR1@300",
            {"signal": "B:USR1@300"},
            {
                "kill_warning_signal": "USR1",
                "kill_warning_delay": value(300),
                "kill_warning_flags": ["BATCH_JOB"],
            },
        ),
        ("--time=UNLIMITED", {"time_limit": 0xFFFFFFFF}, {"time_limit": INFINITE}),
    ],
)
def test_an_option_in_both_forms(
    option: str, old: dict[str, object], new: dict[str, object]
) -> None:
    assert old.items() <= sent(option, is_old=True).items()
    assert new.items() <= sent(option, is_old=False).items()


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("--switches=1", "--switches can't be sent"),
        ("--mem=2X", "expected a number with K, M, G or T"),
        ("--begin=teatime", "expected now"),
        ("--nodelist=n1", "has no field for it"),
        ("script.sh", "no option of sbatch"),
    ],
)
def test_what_can_not_be_sent_is_refused(option: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        sent(option, is_old=True)


# --- a server that answers as it is told


class FakeServer:
    """slurmrestd's paths and what is answered to each; `requests`: what came."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: list[tuple[str, str, dict[str, str], bytes]] = []
        self.serve("/slurm/v0.0.42/ping", {"meta": {"slurm": {"release": "24.11.5"}}})
        server = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                server.requests.append((self.command, self.path, dict(self.headers), body))
                answer = server.answers.get(self.path.partition("?")[0], (404, b"nothing here"))
                if callable(answer):
                    answer(self)
                    return
                self.send_response(answer[0])
                self.send_header("Content-Length", str(len(answer[1])))
                self.end_headers()
                self.wfile.write(answer[1])

            do_GET = do_POST = do_DELETE = answer  # noqa: N815 - names that http.server looks for

            def log_message(self, *_: object) -> None: ...

        self.httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.httpd.serve_forever, args=(0.02,), daemon=True).start()

    def serve(self, path: str, body: object, status: int = 200) -> None:
        self.answers[path] = (status, json.dumps(body).encode())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.httpd.server_address[1]}"

    def cluster(self, **options: Any) -> RestCluster:
        given = {"retries": 0} | options
        return RestCluster(RestClient(self.url, lambda: "t.o.k", **given), now_s=lambda: NOW)


@pytest.fixture
def server() -> Iterator[FakeServer]:
    server = FakeServer()
    yield server
    server.httpd.shutdown()
    server.httpd.server_close()


JOBS, NODES = "/slurm/v0.0.42/jobs", "/slurm/v0.0.42/nodes"
RECORDS = "/slurmdb/v0.0.42/jobs"


def test_a_snapshot_is_two_requests(server: FakeServer) -> None:
    over = NEW_JOB | {"job_id": 9, "job_state": ["COMPLETED"]}
    server.serve(JOBS, {"jobs": [NEW_JOB, over], "errors": []})
    server.serve(NODES, {"nodes": [NODE]})
    cluster = server.cluster(version="v0.0.42")
    snapshot = cluster.snapshot()
    assert [job.job_id for job in snapshot.jobs] == [7]
    assert [node.name for node in snapshot.nodes] == ["n1"]
    assert [path for _, path, _, _ in server.requests] == [JOBS, NODES]


def test_the_newest_known_version_that_is_served_is_taken(server: FakeServer) -> None:
    server.answers = {}
    server.serve("/slurm/v0.0.38/ping", {"meta": {"Slurm": {"release": "22.05.8"}}})
    server.serve("/slurmdb/v0.0.38/clusters", {"clusters": [{"name": "hpc"}], "errors": []})
    settings = server.cluster().settings()
    assert (settings.version, settings.cluster) == ("22.05.8", "hpc")
    assert [path for _, path, _, _ in server.requests][:3] == [
        "/slurm/v0.0.42/ping",
        "/slurm/v0.0.38/ping",
        "/slurm/v0.0.38/ping",
    ]


def slow(handler: BaseHTTPRequestHandler) -> None:
    time.sleep(3)


def drip(handler: BaseHTTPRequestHandler) -> None:
    """An answer that never ends, a byte at a time."""
    handler.send_response(200)
    handler.end_headers()
    for _ in range(40):
        handler.wfile.write(b" ")
        handler.wfile.flush()
        time.sleep(0.1)


def drip_headers(handler: BaseHTTPRequestHandler) -> None:
    """An answer whose headers never end, a byte at a time."""
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
    with suppress(OSError):  # the client has hung up
        for _ in range(40):
            handler.wfile.write(b"x")
            time.sleep(0.1)


def cut_short(handler: BaseHTTPRequestHandler) -> None:
    handler.send_response(200)
    handler.send_header("Content-Length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"jobs": [')


NO_ANSWER = {
    "errors": [
        {
            "error_number": 1,
            "error": "Unable to contact slurm controller (connect failure)",
            "description": "Unable to query jobs",
        }
    ]
}
DENIED = {"errors": [{"error_number": 2002, "error": "Access/permission denied"}]}
STALE = {"errors": [{"error_number": 1007, "error": "Protocol authentication error"}]}


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (
            (401, b"Authentication failure"),
            Refused,
            r"token is not accepted \(401\).*scontrol token",
        ),
        ((500, b"oops"), ClusterUnavailable, r"failed with status 500: 'oops'"),
        ((500, b""), ClusterUnavailable, r"failed with status 500"),
        ((200, b""), ClusterNonsense, r"an empty answer with status 200"),
        ((200, b"<html>Sign in</html>"), ClusterNonsense, r"no JSON of Slurm's: '<html>"),
        ((302, b""), ClusterNonsense, r"an empty answer with status 302"),
        ((404, b"nothing here"), ClusterNonsense, r"status 404.*cluster\.rest_version"),
        ((200, b"[]"), ClusterNonsense, r"no JSON of Slurm's"),
        ((200, b"[" * 100_000), ClusterNonsense, r"no JSON of Slurm's"),
        ((200, b"{}"), ClusterNonsense, r"there is no list 'jobs'"),
        ((200, b'{"jobs": [1]}'), ClusterNonsense, r"there is no list 'jobs'"),
        ((200, b'{"jobs": [{"job_id": "seven"}]}'), ClusterNonsense, r"slurmrestd, line 1"),
        (
            (500, json.dumps(NO_ANSWER).encode()),
            ClusterUnavailable,
            r"Unable to contact.*Retry later",
        ),
        ((200, json.dumps(NO_ANSWER).encode()), ClusterUnavailable, r"Unable to contact"),
        ((500, json.dumps(DENIED).encode()), Refused, r"Access/permission denied"),
        ((500, json.dumps(STALE).encode()), Refused, r"does not accept the token"),
        (slow, ClusterUnavailable, r"no answer within 0\.5 s"),
        (drip, ClusterUnavailable, r"no answer within 0\.5 s"),
        (drip_headers, ClusterUnavailable, r"no answer within 0\.5 s"),
        (cut_short, ClusterUnavailable, r"the answer was cut short"),
    ],
)
def test_a_bad_answer_is_one_clear_error(
    server: FakeServer, answer: Answer, error: type[Exception], words: str
) -> None:
    server.answers[JOBS] = answer
    timeout_s = 0.5 if answer in (slow, drip, drip_headers) else 60.0
    with pytest.raises(error, match=words) as raised:
        server.cluster(version="v0.0.42", timeout_s=timeout_s).snapshot()
    assert type(raised.value) is error
    assert server.url in str(raised.value) or "line 1" in str(raised.value)


def test_a_bad_answer_of_accounting_leaves_the_queue(server: FakeServer) -> None:
    server.answers[RECORDS] = (500, json.dumps(NO_ANSWER).encode())
    with pytest.raises(AccountingUnavailable, match="The queue can still be read"):
        server.cluster().accounting(1, 2)


def test_a_service_that_is_none_of_slurms(server: FakeServer) -> None:
    server.answers = {}
    with pytest.raises(ClusterNonsense, match=r"it serves none of the API's versions"):
        server.cluster().snapshot()


def test_an_answer_that_is_too_large_is_ended(server: FakeServer) -> None:
    server.serve(JOBS, {"jobs": [NEW_JOB] * 5000})
    with pytest.raises(ClusterNonsense, match="more than 1 MiB in one answer"):
        server.cluster(max_answer_bytes=1 << 20).snapshot()


def test_a_connection_is_tried_again_and_an_answer_is_not(server: FakeServer) -> None:
    server.answers[JOBS] = (500, b"")
    with pytest.raises(ClusterUnavailable):
        server.cluster(version="v0.0.42", retries=2, backoff_s=0).snapshot()
    assert len(server.requests) == 1
    begun = time.monotonic()
    nobody = RestClient("http://127.0.0.1:9", lambda: "t.o.k", retries=2, backoff_s=0.1)
    with pytest.raises(ClusterUnavailable, match=r"no connection .*cluster\.rest_url"):
        RestCluster(nobody).snapshot()
    assert time.monotonic() - begun >= 0.14  # 0.1 s and 0.2 s, each at least halved


# --- records of slurmdbd


def test_accounting_of_this_cluster_alone(server: FakeServer) -> None:
    server.serve(
        "/slurm/v0.0.42/ping", {"meta": {"slurm": {"release": "24.11.5", "cluster": "hpc"}}}
    )
    server.serve(RECORDS, {"jobs": [RECORD, RECORD | {"job_id": 9, "cluster": "other"}]})
    cluster = server.cluster(version="v0.0.42")
    (job,) = cluster.accounting(NOW - 100, NOW, [8, 9])
    assert (job.job_id, job.start_s, job.end_s, job.nodes) == (8, NOW - 80, NOW - 20, 2)
    assert server.requests[-1][1].endswith(
        f"?start_time=uts{NOW - 100}&end_time=uts{NOW + 1}&step=8&step=9"
    )
    assert cluster.accounting(NOW - 100, NOW, []) == []
    (told,) = cluster.submissions(NOW - 100, NOW, ["alice"])
    assert told.comment == "mirage/1 chain=k3m9pq2xha seg=1/5 mode=train ei=1 eo=0.5"
    assert cluster.submissions(NOW - 100, NOW, ["bob"]) == []


def test_nothing_found_is_no_error(server: FakeServer) -> None:
    nothing = {"error_number": 9003, "error": "Nothing found with query"}
    server.serve(RECORDS, {"jobs": [], "errors": [nothing]})
    assert server.cluster().accounting(1, 2) == []


def test_a_job_that_failed_did_not_exit_with_0() -> None:
    """22.05 tells 0 of every job."""
    failed = RECORD | {
        "state": {"current": "FAILED"},
        "exit_code": {"status": "SUCCESS", "return_code": 0},
    }
    rows = record_rows([failed])
    assert [job.exit_code for job in parsing.read_records("slurmrestd", rows, NOW).jobs] == [1]


# --- acting


def test_cancelling_asks_for_each_job_before_it_complains(server: FakeServer) -> None:
    gone = {"errors": [{"error_number": 2017, "error": "Invalid job id specified"}]}
    theirs = {"error": {"string": "Access/permission denied", "code": 2002}, "step_id": "2"}
    server.serve("/slurm/v0.0.42/job/1", gone, 404)
    server.serve("/slurm/v0.0.42/job/2", {"errors": [], "status": [theirs]})
    server.serve("/slurm/v0.0.42/job/3", {"errors": []})
    with pytest.raises(Refused, match="Access/permission denied for job 2"):
        server.cluster(version="v0.0.42").cancel([1, 2, 3])
    assert [(method, path[-1]) for method, path, _, _ in server.requests] == [
        ("DELETE", "1"),
        ("DELETE", "2"),
        ("DELETE", "3"),
    ]


def test_a_release_sends_an_empty_dependency(server: FakeServer) -> None:
    server.serve("/slurm/v0.0.42/job/7", {"errors": []})
    server.cluster(version="v0.0.42").release(7)
    method, _, headers, body = server.requests[-1]
    assert (method, json.loads(body)) == ("POST", {"dependency": ""})
    assert headers["X-SLURM-USER-TOKEN"] == "t.o.k"


def test_a_submission_without_an_answer_may_have_been_queued(
    server: FakeServer, tmp_path: Path
) -> None:
    script = tmp_path / "job.sh"
    script.write_bytes(SCRIPT)
    server.answers["/slurm/v0.0.42/job/submit"] = slow
    with pytest.raises(ClusterUnavailable, match="look at the queue before you try again"):
        server.cluster(version="v0.0.42", timeout_s=0.5).submit([], str(script))
    assert [method for method, *_ in server.requests].count("POST") == 1
    server.serve("/slurm/v0.0.42/job/submit", {"errors": []})
    with pytest.raises(ClusterNonsense, match="expected a job id"):
        server.cluster().submit([], str(script))


# --- tokens and configuration


def token(**claims: object) -> str:
    middle = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"head.{middle}.signature"


def test_a_token_that_has_expired_is_not_even_sent(server: FakeServer) -> None:
    stale = token(exp=int(time.time()) - 5, sun="alice")
    assert token_claims(stale)["sun"] == "alice"
    with pytest.raises(Refused, match=r"the token has expired.*scontrol token"):
        RestCluster(RestClient(server.url, lambda: stale)).snapshot()
    assert server.requests == []


def test_a_token_is_read_again_for_each_request(tmp_path: Path) -> None:
    file = tmp_path / "token"
    read_token = token_source(str(file))
    with pytest.raises(Refused, match="can't be read: No such file"):
        read_token()
    file.touch(0o600)
    file.write_text("SLURM_JWT=one.two.three\n")
    assert read_token() == "one.two.three"
    file.write_text("four.five.six")
    assert read_token() == "four.five.six"
    file.write_text("\n")
    with pytest.raises(Refused, match="there is no token"):
        read_token()
    assert token_source("", {"SLURM_JWT": "a.b.c"})() == "a.b.c"
    with pytest.raises(Refused, match=r"\$SLURM_JWT: there is no token"):
        token_source("", {})()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_token_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "token"
    read_token = token_source(str(file))
    file.write_text("one.two.three")
    file.chmod(mode)
    words = rf"token: others may have read the token \(mode {mode:04o}\)\. Make it 0600"
    with pytest.raises(Refused, match=words):
        read_token()
    with pytest.raises(InputError, match=words):
        connect(AdapterConfig(adapter="rest", rest_url=LOCAL, rest_token_file=str(file)))


@pytest.mark.parametrize("verb", [["daemon", "--check"], ["doctor"]])
def test_daemon_and_doctor_refuse_a_token_that_others_can_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: list[str]
) -> None:
    file, config = tmp_path / "token", tmp_path / "mirage.toml"
    file.write_text("one.two.three")
    file.chmod(0o644)
    config.write_text(
        f'[cluster]\nadapter = "rest"\nrest_url = "{LOCAL}"\nrest_token_file = "{file}"\n'
    )
    assert main([*verb, "--config", str(config)]) == 2
    assert f"{file}: others may have read the token" in capsys.readouterr().err


# --- who answers


STRANGER = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
if sys.argv[1].startswith("/"):
    listener = socket.socket(socket.AF_UNIX); listener.bind(sys.argv[1]); listener.listen()
else:
    listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1] if listener.family == socket.AF_INET else "", flush=True)
connection, _ = listener.accept()
sys.stdout.write(connection.recv(65536).decode())
"""


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
@pytest.mark.parametrize("kind", ["http", "unix"])
def test_a_stranger_at_the_address_does_not_get_the_token(kind: str) -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        Path(folder).chmod(0o777)
        path = f"{folder}/socket"
        program = [sys.executable, "-c", STRANGER, path if kind == "unix" else "loopback"]
        with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as stranger:
            assert stranger.stdout
            port = stranger.stdout.readline().strip()
            url = f"unix:{path}" if kind == "unix" else f"http://127.0.0.1:{port}"
            with pytest.raises(ClusterUnavailable, match=r"user nobody answers there.*not sent"):
                RestCluster(RestClient(url, lambda: "t.o.k", retries=0)).snapshot()
            assert stranger.stdout.read() == ""


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_the_configured_user_of_slurmrestd_is_trusted() -> None:
    program = [sys.executable, "-c", STRANGER, "loopback"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as stranger:
        assert stranger.stdout
        url = f"http://127.0.0.1:{stranger.stdout.readline().strip()}"
        with pytest.raises(ClusterUnavailable, match="cut short"):
            RestCluster(
                RestClient(RestServer(url, user="nobody"), lambda: "t.o.k", retries=0)
            ).snapshot()
        assert "X-SLURM-USER-TOKEN: t.o.k" in stranger.stdout.read()


def test_nothing_is_sent_on_a_connection_that_nobody_accepts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mirage.slurm.rest_server.ACCEPT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        client = RestClient(
            f"http://127.0.0.1:{listener.getsockname()[1]}", lambda: "t.o.k", retries=0
        )
        with pytest.raises(ClusterUnavailable, match="nobody whom the kernel names"):
            RestCluster(client).snapshot()
        listener.settimeout(PATIENCE_S)
        assert listener.accept()[0].recv(100) == b""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of 127.0.0.1, and its key, in one file."""
    file = tmp_path_factory.mktemp("tls") / "both.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-nodes", "-days", "2", "-keyout", file),
            *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", f"{file}.crt"),
            *("-subj", "/CN=slurmrestd", "-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        check=True,
        capture_output=True,
    )
    file.write_text(file.read_text() + Path(f"{file}.crt").read_text())
    return file


def test_over_tls_the_certificate_proves_the_server(server: FakeServer, certificate: Path) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    server.httpd.socket = tls.wrap_socket(server.httpd.socket, server_side=True)
    server.serve(JOBS, {"jobs": [NEW_JOB]})
    server.serve(NODES, {"nodes": [NODE]})
    url = server.url.replace("http:", "https:")
    with pytest.raises(ClusterUnavailable, match=r"no connection .*certificate verify failed"):
        RestCluster(RestClient(url, lambda: "t.o.k", retries=0)).snapshot()
    assert server.requests == []
    known = RestServer(url, ca_file=f"{certificate}.crt")
    snapshot = RestCluster(RestClient(known, lambda: "t.o.k"), now_s=lambda: NOW).snapshot()
    assert [job.job_id for job in snapshot.jobs] == [7]
    with pytest.raises(InputError, match=r"cluster\.rest_ca_file: .*can't be read"):
        RestServer(url, ca_file="/nowhere")


def test_a_tls_handshake_that_never_ends_is_bounded() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def trickle() -> None:
            connection, _ = listener.accept()
            with connection, suppress(OSError):  # the client has hung up
                connection.sendall(b"\x16\x03\x03\x40\x00")  # the head of a large record
                for _ in range(1000):
                    connection.sendall(b"\x02")
                    time.sleep(0.1)

        threading.Thread(target=trickle, daemon=True).start()
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        begun = time.monotonic()
        with pytest.raises(ClusterUnavailable, match="no connection"):
            RestCluster(RestClient(url, lambda: "t.o.k", timeout_s=0.5, retries=0)).snapshot()
        assert time.monotonic() - begun < 60, "100 s of bytes were not waited for"


@pytest.mark.parametrize("url", ["http://hpc:6820", "http://10.0.0.1:6820", "http://[fe80::1]"])
def test_plain_http_to_another_machine_is_refused(url: str) -> None:
    with pytest.raises(InputError, match=r"cluster\.rest_url = .*plain http to another machine"):
        connect(AdapterConfig(adapter="rest", rest_url=url))


@pytest.mark.parametrize(
    "url", ["", "hpc:6820", "ftp://hpc", "http://", "unix:relative", "http://h:x"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InputError, match=r"cluster\.rest_url = .*expected https://HOST"):
        connect(AdapterConfig(adapter="rest", rest_url=url))


def test_rest_is_taken_where_it_is_configured() -> None:
    config = AdapterConfig(adapter="rest", rest_url="unix:/run/slurmrestd.sock")
    chosen = connect(config)
    assert type(chosen.cluster) is RestCluster
    assert chosen.why == "slurmrestd at unix:/run/slurmrestd.sock"


@pytest.mark.parametrize(
    ("record", "exclusive"),
    [
        ({"partition": {"exclusive": "NODE"}, "maximums": {"shares": 0}}, "NODE"),  # v0.0.45
        ({"partition": {"exclusive": "NO"}, "maximums": {"shares": 0}}, "NO"),
        ({"maximums": {"shares": 0, "oversubscribe": {"jobs": 0, "flags": []}}}, "NODE"),  # v0.0.42
        ({"maximums": {"shares": 1, "oversubscribe": {"jobs": 1, "flags": []}}}, "NO"),
        ({"maximums": {"oversubscribe": {"flags": ["EXCLUSIVE"]}}}, "NODE"),
        ({}, "NO"),
    ],
)
def test_a_partition_of_whole_nodes(record: dict[str, object], exclusive: str) -> None:
    line = rest_records.partition_line({"name": "gpu", "nodes": "n1"} | record)
    assert f" Exclusive={exclusive} " in line


def test_a_reason_is_as_slurmctld_describes_it() -> None:
    words = "ReqNodeNotAvail, Reserved for maintenance"
    waiting = NEW_JOB | {"job_state": ["PENDING"], "state_reason": "ReqNodeNotAvail"}
    assert [job.reason for job in read(waiting).jobs] == ["ReqNodeNotAvail"]
    assert [job.reason for job in read(waiting | {"state_description": words}).jobs] == [words]

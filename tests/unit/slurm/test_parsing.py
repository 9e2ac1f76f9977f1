from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.doctor.slurm import TESTED_RELEASES
from mirage.domain import ClusterNode, Job, JobState, NodeEvent
from mirage.errors import ClusterNonsense, ClusterUnavailable, Refused
from mirage.slurm import argv, failures, oddities, parsing
from mirage.slurm import fields as values

CAPTURED = sorted((Path(__file__).parents[2] / "data" / "slurm").glob("*/captured.json"))
NONCE = "|0123456789abcdef|"
NOW = 1_000_000

SQUEUE = {
    "JobID": "7",
    "ArrayTaskID": "N/A",
    "UserName": "alice",
    "Partition": "gpu",
    "Account": "research",
    "State": "PENDING",
    "NumNodes": "2",
    "SubmitTime": "999000",
    "TimeLimit": "1-00:00:00",
    "EligibleTime": "999500",
    "StartTime": "N/A",
    "EndTime": "N/A",
    "PriorityLong": "4294901700",
    "exit_code": "0",
    "tres-alloc": "cpu=4,mem=4000M,node=2,billing=4",
    "NodeList": "",
    "Dependency": "(null)",
    "Reason": "Priority",
    "Name": "train",
    "Comment": "(null)",
}
SACCT = {
    "JobIDRaw": "7",
    "JobID": "7",
    "User": "alice",
    "Partition": "gpu",
    "State": "COMPLETED",
    "NNodes": "2",
    "Submit": "990000",
    "TimelimitRaw": "60",
    "Eligible": "990000",
    "Start": "990100",
    "End": "990200",
    "Priority": "12",
    "ExitCode": "0:0",
    "AllocTRES": "billing=4,cpu=4,gres/gpu=2,node=2",
    "ReqTRES": "billing=1,cpu=1,node=2",
    "NodeList": "n[1-2]",
}


def squeue_rows(*rows: dict[str, str], nonce: str = NONCE) -> str:
    assert tuple(SQUEUE) == argv.SQUEUE_FIELDS
    return "".join(
        "".join(field + nonce for field in (SQUEUE | row).values()) + "\n" for row in rows
    )


def parse_squeue(text: str, nonce: str = NONCE, now_s: int = NOW) -> tuple[Job, ...]:
    """The jobs of an answer in which nothing is odd."""
    listed = parsing.parse_squeue(text, nonce, now_s)
    assert listed.oddities == []
    return tuple(listed.jobs)


def parse_sacct(text: str, now_s: int = NOW) -> list[Job]:
    listed = parsing.parse_sacct(text, now_s)
    assert listed.oddities == []
    return listed.jobs


def queued(**fields: str) -> Job:
    fields = {name.replace("tres_alloc", "tres-alloc"): value for name, value in fields.items()}
    (job,) = parse_squeue(squeue_rows(fields))
    return job


def sacct_rows(*rows: dict[str, str]) -> str:
    assert tuple(SACCT) == argv.SACCT_FIELDS
    return "".join("|".join((SACCT | row).values()) + "\n" for row in rows)


def accounted(**fields: str) -> Job:
    (job,) = parse_sacct(sacct_rows(fields))
    return job


# --- what a real Slurm printed
# ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=CAPTURED, ids=lambda path: path.parent.name)
def real(request):
    """Answers captured with scripts/capture-fixtures."""
    known = json.loads(request.param.read_text())
    answers = {name: SimpleNamespace(**answer) for name, answer in known["answers"].items()}
    release = request.param.parent.name
    return SimpleNamespace(
        release=release, ids=known["ids"], answers=answers, evil=known["evil"], nonce=known["nonce"]
    )


def test_every_supported_release_is_captured():
    assert {path.parent.name for path in CAPTURED} == set(TESTED_RELEASES)


def test_what_was_captured_is_what_we_ask_today(real):
    assert real.answers["squeue"].argv == argv.squeue()
    assert real.answers["sinfo"].argv == argv.sinfo()
    assert real.answers["config"].argv == argv.settings()
    assert real.answers["sacct"].argv[-2:] == argv.sacct(0, 1)[0][-2:]
    assert real.answers["events"].argv[:6] == argv.node_events(0, 1)[:6]


@pytest.fixture(scope="module")
def real_jobs(real):
    """Every job of the captured queue by the name of its role, in any state."""
    jobs = parse_squeue(real.answers["squeue-ids"].stdout, real.nonce, now_of(real))
    roles = {number: name for name, number in real.ids.items()}
    return {roles[job.job_id]: job for job in jobs if job.job_id in roles}


def now_of(real) -> int:
    """When it was captured: the last job had just started, or been submitted."""
    jobs = parse_squeue(real.answers["squeue"].stdout, real.nonce, 0)
    return max(max(job.start_s or 0, job.submit_s) for job in jobs)


def test_the_captured_queue_holds_pending_and_running_jobs_only(real):
    jobs = parse_squeue(real.answers["squeue"].stdout, real.nonce, now_of(real))
    assert {job.state for job in jobs} == {JobState.PENDING, JobState.RUNNING}
    over = {real.ids[name] for name in ("completed", "failed", "killed", "never-started")}
    assert not over & {job.job_id for job in jobs}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("night run", "night run"),
        ("a\x1b[2Jb\nc\u202ed\udce9", "a?[2Jb?c?d?"),
        ("x" * 80, "x" * 80),
        ("x" * 1024, "x" * 79 + "…"),
        ("", ""),
    ],
)
def test_a_jobs_name_is_short_and_printable(text, name):
    assert queued(Name=text).name == name


def test_the_captured_jobs_have_the_name_of_their_script(real_jobs):
    assert {job.name for job in real_jobs.values()} == {"job.sh"}


def test_running(real_jobs):
    job = real_jobs["running"]
    assert (job.state, job.nodes, job.gpus, job.cpus, job.partition) == (
        JobState.RUNNING,
        3,
        6,
        12,
        "gpu",
    )
    assert job.user == "mirage-alice"
    assert job.time_limit_s == 86400
    assert job.submit_s <= job.eligible_s <= job.start_s
    assert job.end_s is None
    assert job.limit_end_s == job.start_s + 86400
    assert job.reason == ""
    assert job.comment == ""
    assert job.dependency == ""


def test_queueing(real_jobs, real):
    job = real_jobs["queueing"]
    assert job.is_queueing
    assert (job.nodes, job.time_limit_s, job.start_s, job.end_s) == (3, 120, None, None)
    assert job.eligible_s is not None
    assert job.comment == real.nonce[:9]


def test_dependent(real_jobs, real):
    job = real_jobs["dependent"]
    assert job.dependency == f"afterany:{real.ids['running']}(unfulfilled)"
    assert job.reason == "Dependency"
    assert not job.is_queueing
    assert job.eligible_s is None
    assert set(job.partition.split(",")) == {"gpu", "debug"}
    assert job.comment == real.evil


@pytest.mark.parametrize(
    ("name", "reason"), [("begins-later", "BeginTime"), ("held", "JobHeldUser")]
)
def test_kept_back(real_jobs, name, reason):
    job = real_jobs[name]
    assert (job.reason, job.eligible_s, job.start_s, job.end_s) == (reason, None, None, None)


def test_over(real_jobs, real):
    done, failed, killed = (real_jobs[name] for name in ("completed", "failed", "killed"))
    assert (done.state, done.exit_code, done.gpus, done.comment) == (
        JobState.COMPLETED,
        0,
        2,
        real.evil,
    )
    assert done.start_s < done.end_s
    assert (failed.state, failed.exit_code) == (JobState.FAILED, 3)
    assert (killed.state, killed.exit_code) == (JobState.FAILED, 137)


def test_cancelled_while_pending(real_jobs):
    job = real_jobs["never-started"]
    assert (job.state, job.start_s, job.eligible_s, job.wait_s) == (
        JobState.CANCELLED,
        None,
        None,
        None,
    )
    assert job.end_s is not None


def test_array_tasks(real):
    jobs = parse_squeue(real.answers["squeue"].stdout, real.nonce, now_of(real))
    tasks = {job.array_task: job for job in jobs if job.array_task}
    assert set(tasks) == {"1", "3", "5", "7"}
    assert tasks["1"].job_id == tasks["3"].job_id == tasks["7"].job_id == real.ids["array"]
    assert tasks["5"].job_id != real.ids["array"]  # a change of its comment has split it off


def test_nodes(real):
    nodes = parsing.parse_sinfo(real.answers["sinfo"].stdout)
    assert [node.name for node in nodes] == ["n1", "n2", "n3", "n4"]
    assert [node.up for node in nodes] == [True, True, True, False]
    assert not any(node.idle for node in nodes)
    assert [set(node.partitions) for node in nodes] == [
        {"gpu", "debug"},
        {"gpu", "debug"},
        {"gpu"},
        {"gpu"},
    ]


def test_accounting_of_a_window(real):
    jobs = parse_sacct(real.answers["sacct"].stdout, now_of(real))
    states = {(job.job_id, job.array_task): job.state for job in jobs}
    ids = real.ids
    assert states[ids["completed"], ""] is JobState.COMPLETED
    assert states[ids["running"], ""] is JobState.RUNNING
    assert states[ids["queueing"], ""] is JobState.PENDING
    assert [states[ids["array"], task] for task in "137"] == [JobState.PENDING] * 3
    # sacct has no job in a window that did not become eligible in it.
    assert not {ids["dependent"], ids["held"], ids["begins-later"]} & {job.job_id for job in jobs}


def test_accounting_of_jobs(real):
    records: dict[int, list[Job]] = {}
    for job in parse_sacct(real.answers["sacct-ids"].stdout, now_of(real)):
        records.setdefault(job.job_id, []).append(job)
    ids = real.ids
    (running,) = records[ids["running"]]
    assert (running.node_names, running.gpus, running.nodes) == (("n1", "n2", "n3"), 6, 3)
    assert (running.time_limit_s, running.end_s) == (86400, None)
    (killed,) = records[ids["killed"]]
    assert killed.exit_code == 137
    (never,) = records[ids["never-started"]]
    assert (never.state, never.start_s, never.node_names) == (JobState.CANCELLED, None, ())
    first, second = records[ids["requeued"]]
    assert (first.state, second.state) == (JobState.REQUEUED, JobState.PENDING)
    assert first.end_s <= second.submit_s
    lines = parsing.parse_submit_lines(real.answers["lines"].stdout.encode())
    (completed,) = records[ids["completed"]]
    line = lines[completed.job_id, completed.submit_s]
    assert f"--comment={real.evil}" in line.replace("?", "\u2028")  # the database has no U+2028


def test_node_events(real):
    (drained,) = parsing.parse_node_events(real.answers["events"].stdout)
    assert (drained.node, drained.end_s) == ("n4", None)
    (over,) = parsing.parse_node_events(real.answers["events-over"].stdout)
    assert over.start_s == drained.start_s < over.end_s


def test_settings(real):
    settings = parsing.parse_settings(real.answers["config"].stdout)
    assert settings.version.startswith(f"{real.release}.")
    assert settings.cluster == "mirage"
    assert settings.accrue_always is False
    assert settings.parameters["SchedulerParameters"].startswith("bf_interval=")


@pytest.mark.parametrize("name", ["release-denied", "release-unknown", "release-over"])
def test_what_slurm_refuses_to_release_comes_with_its_own_words(real, name):
    answer = real.answers[name]
    error = failures.write_failure(answer.argv, answer.stderr)
    assert type(error) is Refused
    assert " ".join(answer.stderr.split()) in str(error)


def test_releasing_a_running_job_is_told_apart(real):
    assert failures.is_started(real.answers["release-running"].stderr)
    assert real.answers["release-free"].returncode == 0


def test_cancelling(real):
    assert failures.not_cancelled(real.answers["cancel-over"].stderr) == ""
    assert failures.not_cancelled(real.answers["cancel-unknown"].stderr) == ""
    assert "denied" in failures.not_cancelled(real.answers["cancel-denied"].stderr)


@pytest.mark.parametrize(
    "name",
    ["sbatch-no-partition", "sbatch-no-script", "sbatch-bad-option", "sbatch-bad-dependency"],
)
def test_what_sbatch_refuses_comes_with_its_own_words(real, name):
    answer = real.answers[name]
    error = failures.write_failure(answer.argv, answer.stderr)
    assert type(error) is Refused
    assert " ".join(answer.stderr.split()) in str(error)


def test_what_a_failed_command_says_is_one_short_line_that_no_terminal_obeys():
    said = "\x1b[2Jerror: a\nerror: b\t" + "x" * 100_000
    error = str(failures.read_failure(["squeue"], said))
    assert error.startswith("squeue failed: ?[2Jerror: a error: b xxx")
    assert len(error) < 1000
    assert error.isprintable()


def test_a_command_that_was_killed_without_a_word_is_worth_another_try():
    assert "Retry later" in str(failures.read_failure(["squeue"], ""))


@pytest.mark.parametrize("name", ["squeue", "sinfo", "config"])
def test_a_query_without_slurmctld(real, name):
    answer = real.answers[f"down-{name}"]
    assert failures.is_transient(answer.stderr)
    assert type(failures.read_failure(answer.argv, answer.stderr)) is ClusterUnavailable


@pytest.mark.parametrize("name", ["release", "cancel", "sbatch"])
def test_a_request_without_slurmctld(real, name):
    answer = real.answers[f"down-{name}"]
    error = failures.write_failure(answer.argv, answer.stderr)
    assert type(error) is ClusterUnavailable
    assert ("may have been queued" in str(error)) is (name == "sbatch")


@pytest.mark.parametrize("name", ["sacct", "events"])
def test_only_a_slurmdbd_that_does_not_answer_is_worth_a_retry(real, name):
    assert failures.is_transient(real.answers[f"down-{name}"].stderr)
    assert not failures.is_transient(real.answers[f"disabled-{name}"].stderr)


def test_the_id_of_a_submitted_job(real):
    assert parsing.parse_submitted(real.answers["sbatch-running"].stdout) == real.ids["running"]


# --- field by field
# --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30:00", 1800),
        ("1-00:00:00", 86400),
        ("UNLIMITED", None),
        ("INVALID", None),
        ("NOT_SET", None),
        ("Partition_Limit", None),
    ],
)
def test_time_limits_of_squeue(text, seconds):
    assert queued(TimeLimit=text).time_limit_s == seconds


@pytest.mark.parametrize(
    ("text", "seconds"), [("60", 3600), ("UNLIMITED", None), ("Partition_Limit", None)]
)
def test_time_limits_of_sacct(text, seconds):
    assert accounted(TimelimitRaw=text).time_limit_s == seconds


def test_slurms_estimates_are_not_kept():
    pending = queued(StartTime="1000500", EndTime="1000900")
    assert (pending.start_s, pending.end_s) == (None, None)
    running = queued(State="RUNNING", StartTime="999900", EndTime="1000900", NodeList="n1")
    assert (running.start_s, running.end_s) == (999_900, None)
    completing = queued(State="COMPLETING", StartTime="999900", EndTime="999990", NodeList="n1")
    assert (completing.start_s, completing.end_s) == (999_900, 999_990)
    requeued = {"StartTime": "999990", "EndTime": "1000590", "NodeList": "n1"}
    assert queued(State="COMPLETING", **requeued).end_s is None, "by its limit: it is taken back"
    assert queued(State="REQUEUED", StartTime="999900", EndTime="999990").end_s is None


def test_a_job_that_was_cancelled_while_pending_never_started():
    never = queued(State="CANCELLED", StartTime="999900", EndTime="999900")
    assert (never.start_s, never.end_s) == (None, 999_900)
    at_once = queued(State="CANCELLED", StartTime="999900", EndTime="999900", NodeList="n1")
    assert (at_once.start_s, at_once.end_s) == (999_900, 999_900)


def test_a_begin_time_is_no_eligible_time_until_it_has_come():
    waiting = queued(EligibleTime=str(NOW + 1), Reason="BeginTime")
    assert (waiting.eligible_s, waiting.begin_s) == (None, NOW + 1)
    due = queued(EligibleTime=str(NOW))
    assert (due.eligible_s, due.begin_s) == (NOW, None)
    # slurmctld's clock may be ahead of ours; what has started was eligible.
    ahead = str(NOW + 1)
    assert (
        queued(State="RUNNING", EligibleTime=ahead, StartTime=ahead, NodeList="n1").eligible_s
        == NOW + 1
    )
    assert (
        accounted(State="PENDING", Eligible=str(NOW + 1), Start="Unknown", End="Unknown").eligible_s
        is None
    )


@pytest.mark.parametrize(
    ("status", "code"), [("0", 0), ("256", 1), ("768", 3), ("9", 137), ("15", 143), ("1:0", 1)]
)
def test_exit_codes_of_squeue(status, code):
    assert queued(State="FAILED", StartTime="1", EndTime="2", exit_code=status).exit_code == code


@pytest.mark.parametrize(("text", "code"), [("0:0", 0), ("1:0", 1), ("0:9", 137), ("0:15", 143)])
def test_exit_codes_of_sacct(text, code):
    assert accounted(ExitCode=text).exit_code == code


@pytest.mark.parametrize(
    ("tres", "gpus"),
    [
        ("cpu=4,gres/gpu=2", 2),
        ("cpu=4,gres/gpu=6,gres/gpu:a100=2,gres/gpu:v100=4", 6),
        ("gres/gpu:a100=2,gres/gpu:v100=4", 6),
        ("cpu=4,gres/nic=2", 0),
        ("", 0),
        ("N/A", 0),
    ],
)
def test_gpus(tres, gpus):
    assert queued(tres_alloc=tres).gpus == gpus


@pytest.mark.parametrize(
    ("tres", "cpus", "memory_mib"),
    [
        ("cpu=12,mem=12000M,node=3,billing=12", 12, 12000),
        ("cpu=4,mem=1.50G,node=1", 4, 1536),
        ("cpu=1,mem=2T", 1, 2 * 1024**2),
        ("cpu=1,mem=100K", 1, 1),
        ("cpu=1,mem=512", 1, 512),
        ("cpu=4,node=1,billing=4,gres/gpu=2", 4, 0),
        ("", 0, 0),
    ],
)
def test_cpus_and_memory(tres, cpus, memory_mib):
    job = queued(tres_alloc=tres)
    assert (job.cpus, job.memory_mib) == (cpus, memory_mib)


def test_gpus_of_a_pending_record_are_those_asked_for():
    assert accounted(AllocTRES="", ReqTRES="billing=1,gres/gpu=4").gpus == 4


def test_states():
    assert accounted(State="CANCELLED by 1000").state is JobState.CANCELLED
    assert queued(State="REQUEUE_HOLD", Reason="JobHeldUser").is_pending
    assert queued(State="EXPEDITING").is_queueing


def test_a_record_that_slurmdbd_has_only_a_part_of():
    """Seen on 22.05 in the first seconds of a job."""
    fields = {
        "Partition": "",
        "State": "PENDING",
        "NNodes": "0",
        "TimelimitRaw": "",
        "Eligible": "Unknown",
    }
    job = accounted(**fields, End="Unknown", AllocTRES="", ReqTRES="", NodeList="n1", Priority="0")
    assert (job.state, job.partition, job.nodes, job.start_s) == (JobState.PENDING, "", 0, None)


@pytest.mark.parametrize(
    ("shown", "tasks"),
    [
        ("7", [""]),
        ("7_3", ["3"]),
        ("7_[1-3]", ["1", "2", "3"]),
        ("7_[1-7:3,9%4]", ["1", "4", "7", "9"]),
        ("7+1", [""]),
    ],
)
def test_a_record_of_many_pending_array_tasks_is_one_record_each(shown, tasks):
    jobs = parse_sacct(sacct_rows({"JobID": shown, "State": "PENDING", "End": "Unknown"}))
    assert [job.array_task for job in jobs] == tasks
    assert {job.job_id for job in jobs} == {7}


@pytest.mark.parametrize(
    "shown", ["7_[", "7_[1-", "7_[3-1]", "7_[1-99999999999]", "7_[1-9:0]", "7_[1-5,...]"]
)
def test_a_list_of_array_tasks_that_is_none(shown):
    jobs, oddities = parsing.parse_sacct(sacct_rows({"JobID": shown}, {"JobIDRaw": "8"}), NOW)
    assert [job.job_id for job in jobs] == [8]
    assert [(oddity.job_id, oddity.field) for oddity in oddities] == [(7, "JobID")]


@pytest.mark.parametrize(
    ("state", "up", "idle"),
    [
        ("idle", True, True),
        ("idle~", True, True),  # powered off: Slurm starts it for a job
        ("idle-", True, True),
        ("planned", True, True),
        ("idle*", False, False),
        ("idle$", False, False),
        ("mixed#", True, False),
        ("idle#", True, True),
        ("idle%", True, False),
        ("idle!", True, False),
        ("reboot", False, False),
        ("allocated@", True, False),
        ("blocked", True, False),
        ("?", False, False),
        ("mixed", True, False),
        ("allocated+", True, False),
        ("completing", True, False),
        ("reserved", True, False),
        ("draining", False, False),
        ("drained*", False, False),
        ("down*", False, False),
        ("maint", False, False),
        ("reboot^", False, False),
        ("inval", False, False),
        ("unknown", False, False),
        ("state_of_tomorrow", False, False),
    ],
)
def test_node_states(state, up, idle):
    assert parsing.parse_sinfo(f"n1|gpu|{state}\n") == (
        ClusterNode(name="n1", partitions=("gpu",), up=up, idle=idle, state=state),
    )


def test_a_node_of_two_partitions_is_one_node():
    nodes = parsing.parse_sinfo("n1|gpu|idle\nn1|debug|idle\nn2|gpu|down\n")
    assert [(node.name, node.partitions) for node in nodes] == [
        ("n1", ("gpu", "debug")),
        ("n2", ("gpu",)),
    ]


def test_node_events_that_go_on():
    assert parsing.parse_node_events("n1|100|Unknown\nn2|100|200\n") == [
        NodeEvent("n1", 100, None),
        NodeEvent("n2", 100, 200),
    ]
    assert parsing.parse_node_events("") == []


def test_accrue_always():
    text = "PriorityFlags = SMALL_RELATIVE_TO_TIME,ACCRUE_ALWAYS\nSLURM_VERSION = 24.11.5\n"
    assert parsing.parse_settings(text).accrue_always


@pytest.mark.parametrize(
    ("text", "job_id"), [("123\n", 123), ("123;cluster\n", 123), ("Welcome!\n123\n", 123)]
)
def test_the_answer_of_sbatch(text, job_id):
    assert parsing.parse_submitted(text) == job_id


# --- nonsense
# --------------------------------------------------------------------------------------------------------


def test_an_empty_queue_is_legal_but_a_cluster_without_nodes_is_not():
    assert parse_squeue("") == ()
    assert parse_sacct("") == []
    with pytest.raises(ClusterNonsense, match="sinfo: empty answer"):
        parsing.parse_sinfo("")


def test_the_error_names_command_line_and_text():
    with pytest.raises(
        ClusterNonsense, match=r"squeue, line 3: 'many' is no number; it printed 'many\|.*\.\.\.'"
    ):
        parsing.parse_squeue(squeue_rows({"Comment": "a\nb"}, {"JobID": "many"}), NONCE, NOW)
    with pytest.raises(
        ClusterNonsense, match=r"sinfo, line 1: expected 3 fields, got 1; it printed '\?\?\?'"
    ):
        parsing.parse_sinfo("???\n")
    with pytest.raises(
        ClusterNonsense,
        match=r"sbatch: expected a job id; it printed 'queued, I think'.*may have been",
    ):
        parsing.parse_submitted("queued, I think")
    with pytest.raises(ClusterNonsense, match="no SLURM_VERSION"):
        parsing.parse_settings("")


def test_the_id_of_a_job_must_be_right():
    with pytest.raises(ClusterNonsense, match="squeue, line 1"):
        parsing.parse_squeue(squeue_rows({"JobID": ""}, {"JobID": "8"}), NONCE, NOW)
    with pytest.raises(ClusterNonsense, match="sacct, line 1"):
        parsing.parse_sacct(sacct_rows({"JobIDRaw": ""}, {"JobID": "8"}), NOW)


@pytest.mark.parametrize("field", ["UserName", "Partition", "State", "SubmitTime"])
def test_another_field_of_slurms_own_costs_one_job(field):
    jobs, oddities = parsing.parse_squeue(squeue_rows({field: ""}, {"JobID": "8"}), NONCE, NOW)
    assert [job.job_id for job in jobs] == [8]
    assert [(oddity.job_id, oddity.field) for oddity in oddities] == [(7, field)]
    with pytest.raises(ClusterNonsense, match="none of 1 jobs can be read"):
        parsing.parse_squeue(squeue_rows({"UserName": "", "State": ""}), NONCE, NOW)


@pytest.fixture
def noted(monkeypatch, caplog):
    """What is logged, as if nothing had been before."""
    monkeypatch.setattr(oddities, "_noted", set())
    for remembers in (values.read_state, values.known_state):
        remembers.cache_clear()
    return caplog


def test_a_state_of_a_newer_release_is_judged_by_the_nodes_and_named_once(noted):
    held = {"State": "QUIESCED", "NodeList": "n1", "StartTime": "990000", "EndTime": "1009000"}
    assert queued(**held).state is JobState.RUNNING
    assert queued(State="QUIESCED", NodeList="", StartTime="N/A").is_pending
    assert queued(State="QUIESCED by 1000", NodeList="", StartTime="N/A").is_pending
    assert queued(State="Requeued-2", NodeList="n1", StartTime="1009000").is_pending  # planned
    assert queued(**held | {"EndTime": "995000"}).state is JobState.UNKNOWN
    assert [record.message.split(" is ")[0] for record in noted.records] == [
        "Slurm's job state QUIESCED",
        "Slurm's job state Requeued-2",
    ]


def test_a_node_state_of_a_newer_release_costs_that_node_and_is_named_once(noted):
    text = "n1|gpu|IDLE+FROZEN|\nn2|gpu|9?|\nn3|gpu|idle|\nn1|debug|IDLE+FROZEN|\n"
    for _ in range(2):
        nodes = parsing.parse_sinfo(text)
    assert [(node.name, node.up) for node in nodes] == [("n1", False), ("n2", False), ("n3", True)]
    assert [record.message.split(" is ")[0] for record in noted.records] == [
        "Slurm's node state 'FROZEN'",
        "Slurm's node state '9?'",
    ]


def test_lines_that_are_no_rows_cost_a_note(noted):
    jobs, _ = parsing.parse_squeue(
        "slurm is tired\n" + squeue_rows({}) + "a banner\n" + squeue_rows({"JobID": "8"}),
        NONCE,
        NOW,
    )
    assert [job.job_id for job in jobs] == [7, 8]
    assert len(parsing.parse_sinfo("sinfo: a warning\nn1|gpu|idle|\n")) == 1
    assert len(parsing.parse_sacct("a|line\n" + sacct_rows({}), NOW).jobs) == 1
    assert [record.message.rpartition(": ")[2] for record in noted.records] == [
        "'slurm is tired'",
        "'a banner'",
        "a warning'",
        "'a|line'",
    ]


def test_an_answer_that_breaks_off_is_never_a_shorter_queue():
    text = squeue_rows({}, {"JobID": "8"})
    for length in range(1, len(text)):
        if text[:length] != squeue_rows({}):
            with pytest.raises(ClusterNonsense, match="cut short"):
                parsing.parse_squeue(text[:length], NONCE, NOW)


def test_rows_of_another_cluster_and_no_row_at_all_are_nonsense():
    for text in ("CLUSTER: other\n" + squeue_rows({}), "slurm is tired\n"):
        with pytest.raises(ClusterNonsense):
            parsing.parse_squeue(text, NONCE, NOW)


def test_a_job_that_is_listed_twice_is_nonsense():
    with pytest.raises(ClusterNonsense, match="listed twice"):
        parsing.parse_squeue(squeue_rows({}, {}), NONCE, NOW)
    assert len(parse_squeue(squeue_rows({"ArrayTaskID": "1"}, {"ArrayTaskID": "2"}))) == 2


# --- hostile and random text
# -----------------------------------------------------------------------------------------

comments = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
pieces = st.lists(
    st.sampled_from(
        [*SQUEUE.values(), *SACCT.values(), NONCE, "\n", "|", "7_[1-", "n[1-99999999]", "-1"]
    )
)
answers = st.one_of(st.text(), pieces.map("".join), st.lists(st.text()).map(NONCE.join))


@given(comments)
def test_a_comment_comes_back_and_can_not_forge_a_row(comment):
    forged = squeue_rows({"JobID": "666", "UserName": "root"}, nonce="|fedcba9876543210|")
    rows = squeue_rows({"Comment": comment + forged}, {"JobID": "8", "Comment": forged + comment})
    one, two = parse_squeue(rows)
    assert (one.job_id, one.user, one.comment) == (7, "alice", comment + forged)
    assert (two.job_id, two.user, two.comment) == (8, "alice", forged + comment)


def lines_of(*jobs: tuple[int, str]) -> bytes:
    """As sacct prints `argv.LINE_FIELDS`: fields of fixed widths, a blank after each; what is cut
    ends in `+`.
    """
    rows = []
    for job_id, line in jobs:
        fields = zip(
            [str(job_id).encode(), b"990000", line.encode()], argv.LINE_FIELDS, strict=True
        )
        cut = [
            (text if len(text) <= most else text[: most - 1] + b"+").ljust(most)
            for text, (_, most) in fields
        ]
        rows.append(b"".join(field + b" " for field in cut) + b"\n")
    return b"".join(rows)


@given(comments)
def test_what_was_submitted_can_not_forge_a_record(line):
    forged = lines_of((666, "sbatch --comment=mirage")).decode()
    found = parsing.parse_submit_lines(
        lines_of((7, line), (8, forged + line), (9, 3000 * "\u00e9"))
    )
    assert found.keys() == {(7, 990_000), (8, 990_000), (9, 990_000)}
    if len(line.encode()) <= argv.LINE_FIELDS[-1][1]:
        assert found[7, 990_000] == line.strip()


def test_submit_lines_that_break_off_are_nonsense():
    text = lines_of((7, "sbatch a.sh"), (8, "sbatch b.sh"))
    half = len(text) // 2
    for length in (1, 30, half - 1, half + 1, len(text) - 1):
        with pytest.raises(ClusterNonsense, match="sacct, line"):
            parsing.parse_submit_lines(text[:length])
    assert len(parsing.parse_submit_lines(text[:half])) == 1


# --- what users may choose
# -------------------------------------------------------------------------------------------

# Printed by a slurmctld 22.05.8 for what a plain user submitted.
TAKEN = {
    "--gres=gpu:1000000000000000000": {
        "tres-alloc": "cpu=1,mem=4000M,node=1,billing=1,gres/gpu=1000000000000000000"
    },
    "--gres=gpu:9223372036854775807": {
        "tres-alloc": "cpu=3,mem=12000M,node=3,gres/gpu=9223372036854775805"
    },
    "--gres=gpu:99999999999T": {"tres-alloc": "cpu=1,node=1,gres/gpu=8568097191560740864"},
    "-N2147483646": {
        "NumNodes": "2147483646",
        "tres-alloc": "cpu=2147483646,mem=8589934584000M,node=2147483646",
    },
    "--mem-per-cpu=9000000000G": {"tres-alloc": "cpu=60000,mem=527343750000T,node=1,billing=60000"},
    "--mem=4000000P": {"tres-alloc": "cpu=1,mem=4?,node=1,billing=1"},
    "--time=71582788-00": {"TimeLimit": "INVALID"},
    "--time=2147483646": {"TimeLimit": "UNLIMITED"},
    "--begin=now+99999999999": {
        "EligibleTime": "101795685747",
        "StartTime": "101795685747",
        "EndTime": "101795772147",
    },
    "--array=1-1000:7%3": {"ArrayTaskID": "1000"},
}


@pytest.mark.parametrize("option", TAKEN)
def test_what_slurmctld_takes_does_not_hide_the_jobs_of_others(option):
    rows = squeue_rows({"JobID": "6"}, TAKEN[option], {"JobID": "8", "UserName": "bob"})
    jobs, oddities = parsing.parse_squeue(rows, NONCE, NOW)
    assert [job.job_id for job in jobs] == [6, 7, 8]
    assert max(jobs[1].gpus, jobs[1].cpus, jobs[1].nodes) <= values.MAX_COUNT
    assert jobs[1].memory_mib <= values.MAX_MEMORY_MIB
    assert {oddity.job_id for oddity in oddities} <= {7}
    assert not any(oddity.is_set_apart for oddity in oddities)


def test_a_count_that_can_not_be_meant_is_cut_and_reported():
    jobs, (oddity,) = parsing.parse_sacct(
        sacct_rows(
            {"AllocTRES": "", "ReqTRES": "cpu=1,gres/gpu=1000000000000000000", "State": "FAILED"}
        ),
        NOW,
    )
    assert [job.gpus for job in jobs] == [values.MAX_COUNT]
    assert str(oddity).startswith(
        "job 7 of alice is read with the largest number that can be meant: its gpus is"
    )


UNREADABLE = {
    "NumNodes": "",
    "TimeLimit": "soon",
    "EligibleTime": "-5",
    "StartTime": "9" * 30,
    "EndTime": "1e9",
    "PriorityLong": "high",
    "exit_code": "0:",
    "tres-alloc": "cpu=4,mem=lots",
}


@pytest.mark.parametrize("field", UNREADABLE)
def test_a_value_that_can_not_be_read_costs_that_job_alone(field):
    rows = squeue_rows({"JobID": "6"}, {field: UNREADABLE[field]}, {"JobID": "8"})
    jobs, (oddity,) = parsing.parse_squeue(rows, NONCE, NOW)
    assert [job.job_id for job in jobs] == [6, 8]
    assert (oddity.job_id, oddity.user, oddity.field, oddity.is_set_apart) == (
        7,
        "alice",
        field,
        True,
    )
    assert str(oddity) == f"job 7 of alice is left out: its {field} is {UNREADABLE[field]!r}"


def test_where_no_job_of_several_users_can_be_read_the_format_is_not_ours():
    broken = {"TimeLimit": "soon"}
    with pytest.raises(ClusterNonsense, match="none of 2 jobs can be read"):
        parsing.parse_squeue(
            squeue_rows(broken, broken | {"JobID": "8", "UserName": "bob"}), NONCE, NOW
        )
    assert (
        len(parsing.parse_squeue(squeue_rows(broken, broken | {"JobID": "8"}), NONCE, NOW).oddities)
        == 2
    )


@pytest.mark.parametrize("reason", ["launch failed requeued held", "Priority"])
def test_a_job_of_priority_0_is_held_whatever_its_reason(reason):
    assert not queued(PriorityLong="0", Reason=reason).is_queueing
    assert (
        queued(PriorityLong="0", State="RUNNING", NodeList="n1", StartTime="1").has_zero_priority
        is False
    )
    assert queued(PriorityLong="1").is_queueing


@pytest.mark.parametrize(
    "parse",
    [
        lambda text: parsing.parse_squeue(text, NONCE, NOW),
        lambda text: parsing.parse_sacct(text, NOW),
        lambda text: parsing.parse_submit_lines(text.encode()),
        parsing.parse_sinfo,
        parsing.parse_node_events,
        parsing.parse_settings,
        parsing.parse_submitted,
    ],
    ids=["squeue", "sacct", "lines", "sinfo", "sacctmgr", "scontrol", "sbatch"],
)
def test_any_text_gives_records_or_nonsense(parse):
    @given(answers)
    def check(text):
        with suppress(ClusterNonsense):
            parse(text)

    check()


def test_a_user_name_may_have_blanks():
    (job,) = parse_squeue(squeue_rows({"UserName": "DOMAIN\\john smith"}))
    assert job.user == "DOMAIN\\john smith"


OWN = {"JobID", "UserName", "Partition", "State", "SubmitTime"}


@given(
    st.sampled_from(sorted(set(argv.SQUEUE_FIELDS) - OWN)),
    st.one_of(st.text(), pieces.map("".join)),
)
def test_any_text_in_a_field_of_users_costs_one_job_at_most(field, text):
    text = text.replace(NONCE, "")
    jobs, oddities = parsing.parse_squeue(squeue_rows({field: text}, {"JobID": "8"}), NONCE, NOW)
    assert jobs[-1].job_id == 8
    assert {oddity.job_id for oddity in oddities} <= {7}
    assert len(jobs) == 2 or [oddity.field for oddity in oddities] == [field]


@given(st.sampled_from(sorted(OWN)), st.text())
def test_any_text_in_a_field_of_slurms_own_gives_records_or_nonsense(field, text):
    with suppress(ClusterNonsense):
        parsing.parse_squeue(squeue_rows({field: text}), NONCE, NOW)


@given(st.sampled_from(argv.SACCT_FIELDS), st.one_of(st.text(), pieces.map("".join)))
def test_any_text_in_any_field_of_an_accounting_record_gives_records_or_nonsense(field, text):
    with suppress(ClusterNonsense):
        parsing.parse_sacct(sacct_rows({field: text}), NOW)

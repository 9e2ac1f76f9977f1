"""What an administrator relies on before the daemon may act: modes, the disable file, and what
doctor says.
"""

from __future__ import annotations

import json

import pytest

from tests.slurm.site import ALICE, OPERATOR, until

pytestmark = pytest.mark.slurm

WORK = "#!/bin/sh\n#SBATCH -N1 -t10 -o /dev/null\nexec sleep 600\n"


def test_observe_does_nothing_advise_tells_and_enforce_acts_unless_it_is_disabled(site, service):
    """The timer's lead is longer than the time limit, so that the policy wants the release from the
    first cycle on.
    """
    chain, (first, second) = site.submit_chain(
        ALICE, "--segments=2", site.script(ALICE, "work.sh", WORK)
    )
    until(lambda: site.state(first) == "RUNNING", 30, "the first link")
    disabled = service.folder / "disabled"

    def status():
        (report,) = json.loads(site.run(ALICE, "mirage", "status", chain, "--json").stdout)[
            "chains"
        ]
        return report

    def decisions():
        return service.query(f"select action from decisions where successor_id = {second}")

    def run(code, **more):
        """Runs the daemon until status says `code`, and for one decision more."""
        service.configure(**more)
        with service.running():
            until(lambda: status()["acting"] == code, 30, f"status to say {code}")
            before = len(decisions())
            until(lambda: len(decisions()) > before, 30, "one more decision")
            assert "afterany" in site.job(second)["Dependency"]
            return status()["next"], site.run(ALICE, "mirage", "explain", str(second)).stdout

    fallback = f"Slurm starts it after job {first} ends."
    told, explained = run("observe", mode="observe")
    assert "let it into the queue now" not in told
    assert "let it into the queue now" in explained
    assert fallback in told
    assert fallback in " ".join(explained.split())
    told, _ = run("advise", mode="advise")
    assert (
        f"Mirage advises to let it into the queue now (scontrol update JobId={second} Dependency=)"
        in told
    )
    told, _ = run("not-allowed", acting='accounts = ["others"]')
    assert "account research is not in acting.accounts" in told
    disabled.touch()
    told, _ = run("disabled")
    assert f"since {disabled} exists" in told
    assert {row["action"] for row in decisions()} == {"release"}
    assert service.query("select * from intents") == []
    with service.running():
        disabled.unlink()
        until(lambda: site.state(second) == "RUNNING", 60, "the second link")
        until(
            lambda: site.state(first) not in ("RUNNING", "COMPLETING"),
            60,
            "the first link to hand over",
        )
        until(lambda: '"handover"' in audit_of(service), 30, "the handover in the audit log")
    assert {row["outcome"] for row in service.query("select outcome from intents")} == {"released"}
    held_back = [record["held_back"] for record in records(service) if record["kind"] == "decision"]
    assert list(dict.fromkeys(held_back)) == ["observe", "advise", "not-allowed", "disabled", None]
    outcomes = {record["outcome"] for record in records(service) if record["kind"] == "outcome"}
    assert outcomes == {"released"}
    report = site.run(
        OPERATOR, "mirage", "report", "--config", str(service.folder / "mirage.toml")
    ).stdout
    assert "1 handover, of which Mirage let in 1." in report
    assert site.run(ALICE, "cat", str(service.folder / "audit.jsonl"), check=False).returncode != 0


def audit_of(service):
    path = service.folder / "audit.jsonl"
    return path.read_text() if path.exists() else ""


def records(service):
    return [json.loads(line) for line in audit_of(service).splitlines()]


def doctor(site, user, *words):
    done = site.run(user, "mirage", "doctor", "--json", *words, check=False)
    told = json.loads(done.stdout)
    return done.returncode, told, {finding["check"]: finding for finding in told["findings"]}


def test_doctor_says_what_will_work_here_and_what_will_not(site, service):
    code, told, found = doctor(site, OPERATOR, "--config", str(service.folder / "mirage.toml"))
    assert (told["for"], code) == ("daemon", {"ok": 0, "note": 0, "warning": 3}[told["severity"]])
    assert (
        f"Slurm {(site.folder / 'etc' / 'version').read_text().strip()}."
        in found["release"]["what"]
    )
    assert found["rights"]["what"].endswith("(admin level: Operator)")
    assert {
        found[check]["severity"]
        for check in ("release", "adapter", "clock", "queue", "priority", "rights", "limits")
    } == {"ok"}
    assert {
        found[check]["severity"]
        for check in ("backfill", "time-limit", "mode", "store", "audit", "model")
    } == {"ok"}
    assert found["plugin"]["severity"] == "note"
    assert "sacct has jobs" in found["accounting"]["what"]


def test_doctor_for_a_plain_user_and_for_one_who_may_run_one_job_only(site, service):
    assert doctor(site, ALICE)[1]["for"] == "agent"
    code, _, found = doctor(site, ALICE, "--for", "daemon")
    assert (code, found["rights"]["severity"]) == (4, "error")
    limit(site, 1)
    try:
        code, _, found = doctor(site, ALICE)
        assert code == 3
        assert f"{ALICE} in research" in found["max-jobs"]["what"]
        assert "max-jobs" in doctor(site, OPERATOR)[2]
    finally:
        limit(site, -1)
    assert "max-jobs" not in doctor(site, ALICE)[2]


def limit(site, count):
    site.run("root", "sacctmgr", "-i", "modify", "user", ALICE, "set", f"maxjobs={count}")


def test_doctor_while_slurmctld_is_down(site, service):
    site.slurm("stop", "slurmctld")
    try:
        code, _, found = doctor(site, OPERATOR)
    finally:
        site.slurm("start", "slurmctld")
        until(
            lambda: "UP" in site.run("root", "scontrol", "ping", check=False).stdout,
            60,
            "slurmctld",
        )
    assert (code, found["slurm"]["severity"]) == (4, "error")

"""What Bob tries against Alice's chain and the site's daemon, for real; docs/security.md lists it."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.slurm.site import ALICE, BOB, until

pytestmark = pytest.mark.slurm

WORK = "#!/bin/sh\n#SBATCH -N1 -t10 -o /dev/null\nexec sleep 600\n"
ASK = """
import json, socket, sys
with socket.socket(socket.AF_UNIX) as asker:
    asker.settimeout(20)
    asker.connect(sys.argv[1])
    asker.sendall(sys.argv[2].encode() + b"\\n")
    print(asker.makefile().readline())
"""
FLOCK = "import fcntl, sys; fcntl.flock(open(sys.argv[1]), fcntl.LOCK_EX | fcntl.LOCK_NB)"
ODD = 'it\'s "a" | $(touch pwned) `touch pwned`'


@pytest.fixture
def victim(site, service) -> Iterator[tuple[str, int, int]]:
    """Alice's chain, and a daemon that will not let its successor in during the test."""
    service.configure(lead_s=1)
    chain, (first, second) = site.submit_chain(
        ALICE, "--segments=2", site.script(ALICE, "work.sh", WORK)
    )
    with service.running():
        until(
            lambda: service.query(f"select * from decisions where successor_id = {second}"),
            30,
            "a decision",
        )
        runs = f"select 1 from links where job_id = {first} and state = 'RUNNING'"
        until(lambda: service.query(runs), 30, "the daemon to see the first link run")
        yield chain, first, second


def seen_by_alice(site, chain):
    (report,) = json.loads(site.run(ALICE, "mirage", "status", chain, "--json").stdout)["chains"]
    return [(link["job_id"], link["state"]) for link in report["links"]]


def decided(service, job: int) -> int:
    return len(service.query(f"select 1 from decisions where successor_id = {job}"))


def refused(site, *words: str) -> str:
    """Runs a command as Bob, which must fail with an error of its own; returns what it said."""
    done = site.run(BOB, *words, check=False)
    assert done.returncode != 0, f"{words} went through: {done.stdout}"
    assert "Traceback" not in done.stderr or words[1] == "-c", done.stderr
    return done.stdout + done.stderr


def asked(site, service, question: str) -> dict[str, object]:
    told = site.run(BOB, str(site.bin / "python"), "-c", ASK, str(site.socket), question).stdout
    return json.loads(told)


def test_commands_and_socket_know_who_asks(site, service, victim):
    chain, first, second = victim
    alices = site.home(ALICE) / ".mirage"
    for name in (chain, f"../../{ALICE}/.mirage/chains/{chain}", f"{chain}\n; id"):
        refused(site, "mirage", "cancel", name)
    for verb in ("status", "cancel"):
        refused(site, "env", f"MIRAGE_HOME={alices}", "mirage", verb, chain)
    for words in (("status", "--all", "--json"), ("history", "--json"), ("done", chain)):
        assert str(second) not in site.run(BOB, "mirage", *words, check=False).stdout
    refused(
        site,
        "env",
        f"MIRAGE_HOME={alices}",
        "mirage-submit",
        "--segments=2",
        site.script(BOB, "b.sh", WORK),
    )
    refused(site, "mirage", "explain", str(second))
    refused(
        site,
        "env",
        f"USER={ALICE}",
        f"LOGNAME={ALICE}",
        f"HOME={site.home(ALICE)}",
        "mirage",
        "status",
        chain,
    )
    assert (
        asked(site, service, '{"ask": "chains", "chain": null, "user": "mirage-alice", "uid": 0}')[
            "chains"
        ]
        == []
    )
    assert asked(site, service, json.dumps({"ask": "chains", "chain": chain}))["chains"] == []
    for question in (
        f'{{"ask": "explain", "job": {second}}}',
        "[" * 4000,
        "1",
        '{"ask": "cancel"}',
        "x" * 9000,
    ):
        assert "error" in asked(site, service, question)
    assert seen_by_alice(site, chain) == [(first, "RUNNING"), (second, "PENDING")]
    assert site.job(second)["Dependency"].startswith(f"afterany:{first}")


def test_files_socket_and_lock_are_not_bobs(site, service, victim):
    folder, python = service.folder, str(site.bin / "python")
    lock = service.store.with_suffix(".lock")
    secret = [service.store, folder / "audit.jsonl", lock]
    for path in secret:
        refused(site, "cat", str(path))
        refused(site, "cp", "/dev/null", str(path))
        refused(site, python, "-c", FLOCK, str(path))
        refused(site, "mv", str(path), str(site.home(BOB) / "mine"))
        assert path.stat().st_mode & 0o077 == 0, path
    refused(site, "touch", str(folder / "disabled"))
    refused(site, "ln", "-sf", "/etc/passwd", str(folder / "audit.000001.jsonl"))
    refused(site, "rm", "-f", str(site.socket))
    config = site.script(BOB, "evil.toml", (folder / "mirage.toml").read_text())
    assert "mirage.lock" in refused(site, "mirage", "daemon", "--once", "--config", config)
    link = site.home(BOB) / "link.db"
    site.run(BOB, "ln", "-sf", str(service.store), str(link))
    refused(site, "env", f"MIRAGE__DAEMON__STORE=sqlite:///{link}", "mirage", "agent", "--once")
    refused(site, "mirage", "report", "--audit", str(folder / "audit.jsonl"))
    # His own daemon may decide what he likes: slurmctld refuses to touch Alice's job for him.
    _chain, first, second = victim
    own = site.home(BOB) / "own"
    words = ["--once", "--mode", "enforce", "--policy", "timer"]
    store = [f"MIRAGE__DAEMON__STORE=sqlite:///{own}/m.db", f"MIRAGE__DAEMON__SOCKET={own}/s"]
    site.run(
        BOB,
        "env",
        *store,
        "MIRAGE__POLICY__TIMER__LEAD_S=9999",
        "mirage",
        "daemon",
        *words,
        check=False,
    )
    refused(site, "scontrol", "update", f"JobId={second}", "Dependency=")
    refused(site, "scontrol", "update", f"JobId={second}", "Comment=")
    assert site.job(second)["Dependency"].startswith(f"afterany:{first}")
    before = decided(service, second)
    until(lambda: decided(service, second) > before, 30, "the daemon to go on")


def test_forged_tags_and_odd_names_reach_nobody_else(site, service, victim):
    chain, first, second = victim
    tag = f"mirage/1 chain={chain} seg=2/2 pred={first} mode=train ei=1 eo=1"
    script = site.script(BOB, "b.sh", WORK)
    forged = [
        tag,
        f"{tag}\n|{tag}",
        f"x|y\n{second}|PENDING|{ALICE}",
        f"{ODD}\n{tag}",
        "mirage/1 chain=../../x seg=1/1",
    ]
    jobs = [
        site.run(
            BOB,
            "sbatch",
            "--parsable",
            f"-dafterany:{first}",
            f"-J{ODD}\n|'",
            f"--comment={words}",
            script,
        ).stdout
        for words in forged
    ]
    before = decided(service, second)
    until(lambda: decided(service, second) >= before + 2, 30, "the daemon to have seen them")
    assert seen_by_alice(site, chain) == [(first, "RUNNING"), (second, "PENDING")]
    assert {
        row["job_id"] for row in service.query(f"select job_id from links where user = '{ALICE}'")
    } == {
        first,
        second,
    }
    mine = {
        int(row["job_id"])
        for row in service.query(f"select job_id from links where user = '{BOB}'")
    }
    assert mine <= {int(job) for job in jobs}, "what Bob's tags say is true of Bob's jobs alone"
    assert "skipped" not in service.log.read_text()


def test_values_of_mirage_lines_are_values(site, victim):
    """Quotes, newlines and commands in them run nowhere: neither as one submits nor inside the job."""
    folder = site.home(BOB) / ODD
    site.run(BOB, "mkdir", "-p", str(folder))
    work = site.script(BOB, f"{ODD}/run.sh", "#!/bin/sh\n#SBATCH -N1 -t5 -o /dev/null\n#MIRAGE --segments 1 "
                       "--done-file '$(touch pwned)'\nexit 0\n")  # fmt: skip
    chain, (job,) = site.submit_chain(BOB, "--comment", f"{ODD}\nmirage/1 chain=x", work, ODD)
    until(lambda: site.state(job) == "COMPLETED", 60, "the link to run")
    assert not list(site.home(BOB).rglob("pwned"))
    for line in (
        "--segments 9999999999999",
        "--mode 'train;id'",
        "--penalties 1:1|x",
        "--done-file",
        "'",
    ):
        bad = site.script(BOB, "bad.sh", f"#!/bin/sh\n#MIRAGE {line}\nexit 0\n")
        refused(site, "mirage-submit", "--dry-run", bad)
    assert chain in site.run(BOB, "mirage", "status", "--all").stdout

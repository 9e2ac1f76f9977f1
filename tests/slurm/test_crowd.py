"""One user takes all that the service gives away: its connections, its releases, its store. The
others go on.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.slurm.conftest import Service
from tests.slurm.site import ALICE, BOB, BUSY, OPERATOR, Site, free_port, until

pytestmark = pytest.mark.slurm

WORK = "#!/bin/sh\n#SBATCH -N1 -n1 -t10 -o /dev/null\nexec sleep 600\n"
ASK = """
import json, pathlib, sys, time
from mirage.daemon.socket import ask
begun = time.monotonic()
chains = ask(pathlib.Path(sys.argv[1]), {"ask": "chains", "chain": None})["chains"]
print(json.dumps([time.monotonic() - begun, [chain["chain"] for chain in chains]]))
"""
HOG = """#!/bin/sh
# Three jobs with six tagged successors each, which can't start and wait again and again.
# One job that changes its chain.
wide="--exclusive --nice=99999 -N$(sinfo -h -p gpu -o %D)"
tag() { echo "mirage/1 chain=$1 seg=$2 mode=train ei=1 eo=1"; }
for hog in 1 2 3; do
    first=$(sbatch --parsable --comment="$(tag hoghog$hog 1/9)" $1)
    for _ in 1 2 3 4 5 6; do
        words=$(tag hoghog$hog "2/9 pred=$first")
        next=$(sbatch --parsable $wide -d afterany:$first --comment="$words" $1)
        all="$all $next:$first"
    done
done
shifty=$(sbatch --parsable --comment="$(tag shifty00 1/9)" $1)
echo "$all" >hog.jobs
while number=$((number + 1)); do
    scontrol update JobId=$shifty Comment="$(tag shifty$number 1/9)"
    for pair in $all; do scontrol update JobId=${pair%:*} Dependency=afterany:${pair#*:}; done
    sleep 2
done
"""
MANY = """#!/bin/sh
for number in $(seq 10 72); do
    sbatch --hold --comment="mirage/1 chain=manyof$number seg=1/2 mode=train ei=1 eo=1" $1
done
"""
LIMIT_S = 600
"""Of WORK."""
FILES = 1024
"""The soft limit of open files that a service usually starts with."""


@contextmanager
def as_bob(site: Site, log: Path, *words: str) -> Iterator[None]:
    """Something that Bob runs meanwhile."""
    process = site.start(BOB, *words, log=log)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(30)


def released(service: Service, user: str) -> int:
    rows = service.query(
        "select 1 from intents join decisions using (decision_id) where outcome = 'released' and"
        f" \"user\" = '{user}'"
    )
    return len(rows)


def test_a_crowd_of_idle_and_trickling_connections_is_in_nobodys_way(
    site: Site, service: Service, tmp_path: Path
):
    metrics, web = free_port(), free_port()
    service.configure(lead_s=3600, web=f"127.0.0.1:{web}", metrics=f"127.0.0.1:{metrics}")
    crowd = site.script(BOB, "crowd.py", (Path(__file__).parent / "crowd.py").read_text())
    with (
        service.running(files=FILES),
        as_bob(
            site,
            tmp_path / "crowd.log",
            str(site.bin / "python"),
            crowd,
            "60",
            str(metrics),
            str(web),
            str(site.socket),
        ),
    ):
        until(
            lambda: (tmp_path / "crowd.log").read_text().count("\n") >= 15,
            60,
            "the crowd to be there",
        )
        chain, _ = site.submit_chain(ALICE, "--segments=2", site.script(ALICE, "work.sh", WORK))
        begun = time.monotonic()
        until(lambda: released(service, ALICE), 30, "the release of Alice's successor")
        print(f"released after {time.monotonic() - begun:.1f} s")
        took_s, chains = json.loads(
            site.run(ALICE, str(site.bin / "python"), "-c", ASK, str(site.socket)).stdout
        )
        print(f"Alice was answered after {took_s:.2f} s")
        assert took_s < 5 * BUSY
        assert chain in chains
        for url in (f"http://127.0.0.1:{metrics}/metrics", f"http://127.0.0.1:{web}/"):
            begun = time.monotonic()
            assert urlopen(url, timeout=30).status == 200
            print(f"{url}: {time.monotonic() - begun:.2f} s")
        log = service.log.read_text()
    assert "skipped" not in log
    assert "Too many open files" not in log
    for listener in ("metrics", "web page", "socket"):
        assert re.search(rf"{listener}\b.*user {BOB}\b", log), listener
    assert not re.search(rf"user {ALICE}\b", log)


def watched(service: Service, user: str, words: str = "") -> int:
    return len(
        service.query(
            f"select 1 from chains where \"user\" = '{user}' and state = 'active' {words}"
        )
    )


def test_who_takes_releases_and_chains_without_end_is_bounded(
    site: Site, service: Service, tmp_path: Path
):
    service.configure(lead_s=LIMIT_S - 20)
    work = site.script(BOB, "work.sh", WORK.replace("-t10", "-t5"))
    hog = site.script(BOB, "hog.sh", HOG)
    many = site.script(BOB, "many.sh", MANY)
    # She submits first, so that she need not queue in Slurm, and is due later than he is.
    chain, (first, second) = site.submit_chain(
        ALICE, "--segments=2", site.script(ALICE, "work.sh", WORK)
    )
    until(lambda: site.state(first) == "RUNNING", 30, "Alice's first link")
    with service.running():
        with as_bob(site, tmp_path / "hog.log", hog, work):
            until(
                lambda: "[set-again: " in service.log.read_text(),
                60,
                "a job of Bob's to be left alone",
            )
            until(lambda: released(service, ALICE), 60, "the release of Alice's successor")
            rows = service.query(
                f"select start_s, released_s from links where job_id in ({first}, {second})"
            )
            late_s = (
                max(row["released_s"] or 0 for row in rows)
                - max(row["start_s"] or 0 for row in rows)
                - 20
            )
            print(f"{late_s} s late; releases of Bob's: {released(service, BOB)}")
            assert late_s < 10 * BUSY, "a cycle is 2 s, and the daemon has to start"
            assert released(service, BOB) <= 9, "three times each of three pairs"
            assert watched(service, BOB, "and chain_id like 'shifty%'") <= 1
        left = re.search(
            rf"of {BOB}, job (\d+): would be let in, but \[set-again: ", service.log.read_text()
        )
        assert left
        assert "made it wait again" in site.run(BOB, "mirage", "explain", left[1]).stdout
        site.run(BOB, many, work)
        until(
            lambda: f"user {BOB} has started more than 60 chains" in service.log.read_text(),
            30,
            "the bound",
        )
        assert watched(service, BOB) <= 60
        assert "only 60 new ones" in site.run(BOB, "mirage", "status").stdout.replace("\n", " ")
        assert watched(service, ALICE) == 1
        config = ["--config", str(service.folder / "mirage.toml")]
        told = json.loads(
            site.run(OPERATOR, "mirage", "doctor", *config, "--json", check=False).stdout
        )
        (found,) = (each for each in told["findings"] if each["check"] == "chains")
        assert BOB in found["what"]
        assert chain in site.run(ALICE, "mirage", "status").stdout
    assert "skipped" not in service.log.read_text()

"""One user takes all that the service gives away: its connections, its releases, its store. The others go on."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.slurm.conftest import Service
from tests.slurm.site import ALICE, BOB, Site, until

pytestmark = pytest.mark.slurm

WORK = "#!/bin/sh\n#SBATCH -N1 -n1 -t10 -o /dev/null\nexec sleep 600\n"
ASK = """
import json, socket, sys, time
begun = time.monotonic()
with socket.socket(socket.AF_UNIX) as asker:
    asker.settimeout(30)
    asker.connect(sys.argv[1])
    asker.sendall(b'{"ask": "chains", "chain": null}\\n')
    chains = json.loads(asker.makefile().readline())["chains"]
print(json.dumps([time.monotonic() - begun, [chain["chain"] for chain in chains]]))
"""
FILES = 1024
"""The soft limit of open files that a service usually starts with."""


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def as_bob(site: Site, log: Path, *words: str) -> Iterator[None]:
    """Something that Bob runs meanwhile."""
    process = site.start(BOB, str(site.bin / "python"), *words, log=log)
    try:
        yield
    finally:
        process.kill()
        process.wait(30)


def released(service: Service, user: str) -> int:
    rows = service.query(
        f"select 1 from intents join decisions using (decision_id) where outcome = 'RELEASED' and \"user\" = '{user}'"
    )
    return len(rows)


def test_a_crowd_of_idle_and_trickling_connections_is_in_nobodys_way(site: Site, service: Service, tmp_path: Path):
    metrics, web = free_port(), free_port()
    service.configure(lead_s=3600, web=f"127.0.0.1:{web}", metrics=f"127.0.0.1:{metrics}")
    crowd = site.script(BOB, "crowd.py", (Path(__file__).parent / "crowd.py").read_text())
    with (
        service.running(files=FILES),
        as_bob(site, tmp_path / "crowd.log", crowd, "60", str(metrics), str(web), str(site.socket)),
    ):
        until(lambda: (tmp_path / "crowd.log").read_text().count("\n") >= 20, 30, "the crowd to be there")
        chain, _ = site.submit_chain(ALICE, "--segments=2", site.script(ALICE, "work.sh", WORK))
        begun = time.monotonic()
        until(lambda: released(service, ALICE), 30, "the release of Alice's successor")
        print(f"released after {time.monotonic() - begun:.1f} s")
        took_s, chains = json.loads(site.run(ALICE, str(site.bin / "python"), "-c", ASK, str(site.socket)).stdout)
        print(f"Alice was answered after {took_s:.2f} s")
        assert took_s < 5
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

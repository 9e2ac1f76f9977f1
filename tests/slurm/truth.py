"""What `sacct -D` and a chain's own records say of its links, for tests of what Mirage says."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tests.slurm.site import ALICE, Site, until

Json = dict[str, Any]
FIELDS = "JobIDRaw,State,Submit,Eligible,Start,End,ExitCode,NNodes,Partition,TimelimitRaw"


def history_of(site: Site, chain: str) -> Json:
    (report,) = json.loads(site.run(ALICE, "mirage", "history", chain, "--json").stdout)["chains"]
    return report


def assert_history_is_slurms(site: Site, chain: str, jobs: Sequence[int]) -> Json:
    """Every field of `mirage history --json` against `sacct -D` of the jobs that ran, by segment.
    All of the chain's jobs are over. Returns the history.
    """
    told = history_of(site, chain)
    every = [_runs(site, chain, segment, job) for segment, job in enumerate(jobs, start=1)]
    ran = [link for link in told["links"] if link["runs"]]
    assert [link["job_id"] for link in ran] == list(jobs)
    for link, runs in zip(ran, every, strict=True):
        shown = ("submit", "start", "end", "state")
        assert link["runs"] == [{name: run[name] for name in shown} for run in runs]
        first, last = runs[0], runs[-1]
        assert [link[name] for name in ("submit", "eligible", "start")] == [
            first[name] for name in ("submit", "eligible", "start")
        ]
        same = ("end", "state", "exit_code")
        assert [link[name] for name in same] == [last[name] for name in same]
        assert (link["nodes"], link["partition"]) == (last["nodes"], last["partition"])
        own_s = sum(later["start"] - run["end"] for run, later in pairwise(runs))
        gap_s, overlap_s = _handover(every, link["segment"])
        assert link["overlap_s"] == overlap_s
        assert (link["interruption_s"] or 0) == gap_s + own_s
    done = [link for link in told["links"] if link["overlap_s"] is not None]
    assert told["totals"]["handovers"] == len(done) == len(jobs) - 1
    for name in ("interruption_s", "overlap_s", "cut_short_s"):
        assert told["totals"][name] == sum(link[name] or 0 for link in told["links"])
    return told


def _handover(every: Sequence[Sequence[Json]], segment: int) -> tuple[int, int | None]:
    """Interruption and overlap before this link."""
    if segment == 1:
        return 0, None
    end_s, start_s = every[segment - 2][-1]["end"], every[segment - 1][0]["start"]
    return max(0, start_s - end_s), max(0, end_s - start_s)


def _runs(site: Site, chain: str, segment: int, job: int) -> list[Json]:
    """The runs of a link that worked, by sacct. A run that found a later link in its place did not
    write `start.K`, so it began after the last time that is there.
    """
    rows = until(lambda: _over(site, job), 60, f"sacct to know the end of job {job}")
    record = site.home(ALICE) / ".mirage" / "chains" / chain / f"start.{segment}"
    worked_s = int(dict(line.split("=", 1) for line in record.read_text().split())["start"])
    return [row for row in rows if row["start"] is not None and row["start"] <= worked_s]


def _over(site: Site, job: int) -> list[Json] | None:
    words = ("sacct", "-X", "-D", "-n", "-P", "-j", str(job), "-o", FIELDS)
    rows = [_row(line.split("|")) for line in site.run("root", *words).stdout.splitlines()]
    rows.sort(key=lambda row: row["submit"])
    return rows if rows and all(row["end"] is not None for row in rows) else None


def _row(fields: Sequence[str]) -> Json:
    _, state, submit, eligible, start, end, code, nodes, partition, _ = fields
    times = {"submit": submit, "eligible": eligible, "start": start, "end": end}
    return {name: int(text) if text.isdecimal() else None for name, text in times.items()} | {
        "state": state.split()[0],
        "exit_code": int(code.split(":")[0]) or (128 + int(code.split(":")[1])) % 128,
        "nodes": int(nodes),
        "partition": partition,
    }

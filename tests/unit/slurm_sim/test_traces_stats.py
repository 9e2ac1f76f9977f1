"""Figures: by hand on a few jobs, and against the tables published beside the traces."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from slurm_sim.traces import make_trace, read_trace
from slurm_sim.traces.plots import save_plots
from slurm_sim.traces.stats import trace_stats
from slurm_sim.traces.usage import busy_nodes, steps

SHARED = Path(__file__).parents[4] / "shared" / "traces"
TRACES = [
    ("ls6_a100_dev", "America/Chicago"),
    ("kth_sp2", "Europe/Stockholm"),
    ("pegasus_dev", "America/New_York"),
]


def test_step_functions() -> None:
    curve = steps(np.array([0.0, 10, 10]), np.array([10.0, 30, 20]), np.array([2.0, 1, 4]))
    np.testing.assert_array_equal(curve.at(np.array([-1.0, 0, 9, 10, 20, 30])), [0, 2, 2, 5, 1, 0])
    assert curve.mean(0, 30) == pytest.approx((20 + 50 + 10) / 30)
    assert curve.peak(0, 30) == 5
    assert curve.peak(0, 10) == 2
    assert curve.quantile(0.5, 0, 30) == 2
    assert curve.integral()[-1] == 80


def test_figures_of_a_few_jobs() -> None:
    hour = 3600
    trace = make_trace(
        pd.DataFrame(
            {
                "job_id": ["1", "2", "3"],
                "user": ["ann", "ann", "bob"],
                "partition": "",
                "submit": [0, hour, 2 * hour],
                "start": [0, 4 * hour, 2 * hour],
                "end": [2 * hour, 6 * hour, 2 * hour],
                "timelimit_s": [4 * hour, 2 * hour, hour],
                "nodes": [1, 3, 2],
                "gpus": 0,
                "cpus": 1,
                "state": ["COMPLETED", "TIMEOUT", "CANCELLED"],
            }
        )
    )
    figures = trace_stats(trace, nodes=4)
    assert (figures["jobs"], figures["ran"], figures["users"]["count"]) == (3, 2, 1)
    assert figures["wait"]["mean_s"] == 1.5 * hour
    assert figures["wait"]["over_2h"] == 0.5
    assert figures["wait"]["node_hours_mean_s"] == pytest.approx(3 * hour * 6 / 8)
    assert figures["load"]["node_hours"] == 8
    assert figures["sizes"]["multi_node_share_of_node_hours"] == 0.75
    assert figures["run"]["run_over_limit_p50"] == 0.75
    assert figures["load"]["busy_mean"] == 1  # from the first submission to the last
    assert busy_nodes(trace).peak(0, 10 * hour) == 3


def test_pictures_are_written_also_for_jobs_that_never_ran(tmp_path: Path) -> None:
    jobs = {
        "job_id": ["1", "2"],
        "user": "",
        "partition": "",
        "submit": [0, 9000],
        "start": np.nan,
        "end": np.nan,
    }
    jobs |= {"timelimit_s": 60, "nodes": 2, "gpus": 0, "cpus": np.nan, "state": "PENDING"}
    trace = make_trace(pd.DataFrame(jobs))
    made = save_plots(trace, trace_stats(trace), tmp_path)
    assert [path.name for path in made] == ["arrivals.png", "sizes.png"]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in made)


def published_months(text: str) -> list[list[float]]:
    rows = re.findall(r"^\| \d{4}-\d\d (\|.*)\|$", text, flags=re.M)
    return [[float(cell) for cell in row.strip("|").split("|")] for row in rows]


@pytest.mark.parametrize(("name", "timezone"), TRACES)
def test_the_published_figures_come_out(name: str, timezone: str) -> None:
    if not (SHARED / f"{name}.csv.gz").exists():
        pytest.skip("needs the traces in ../shared")
    text = (SHARED / f"{name}.md").read_text().partition("## Statistics")[2]
    figures = trace_stats(read_trace(SHARED / f"{name}.csv.gz"), timezone)
    jobs, rows, users = re.search(
        r"ran \(end > start\): ([\d,]+) of ([\d,]+) rows; users (\d+)", text
    ).groups()  # type: ignore[union-attr]
    assert figures["ran"] == int(jobs.replace(",", ""))
    assert figures["jobs"] == int(rows.replace(",", ""))
    assert figures["users"]["count"] == int(users)
    mean, p50, p90 = re.search(
        r"wait mean ([\d.]+) h, p50 ([\d.]+) h, p90 ([\d.]+) h", text
    ).groups()  # type: ignore[union-attr]
    for key, value in (("mean_s", mean), ("p50_s", p50), ("p90_s", p90)):
        assert figures["wait"][key] / 3600 == pytest.approx(float(value), abs=0.006)
    over_2h, over_12h = re.search(r"> 2 h ([\d.]+)%, > 12 h ([\d.]+)%", text).groups()  # type: ignore[union-attr]
    assert 100 * figures["wait"]["over_2h"] == pytest.approx(float(over_2h), abs=0.06)
    assert 100 * figures["wait"]["over_12h"] == pytest.approx(float(over_12h), abs=0.06)
    nodes, share = re.search(r"mean ([\d.]+), max \d+; multi-node jobs take (\d+)%", text).groups()  # type: ignore[union-attr]
    assert figures["sizes"]["mean"] == pytest.approx(float(nodes), abs=0.006)
    assert 100 * figures["sizes"]["multi_node_share_of_node_hours"] == pytest.approx(
        float(share), abs=0.6
    )
    ratio = re.search(r"run/limit median (\d+\.\d+)", text)[1]  # type: ignore[index]
    assert figures["run"]["run_over_limit_p50"] == pytest.approx(float(ratio), abs=0.0006)
    published = published_months(text)
    assert len(published) == len(figures["months"])
    for month, row in zip(figures["months"], published, strict=True):
        assert month["jobs"] == row[0]
        hours = [month[key] / 3600 for key in ("mean_s", "p50_s", "p90_s", "p99_s")]
        assert hours == pytest.approx(row[1:5], abs=0.006)
        assert [month["over_2h"], month["over_12h"]] == pytest.approx(row[5:7], abs=0.0051)
        assert month["node_hours_mean_s"] / 3600 == pytest.approx(row[7], abs=0.006)
        assert [month["busy_mean"], month["busy_p99"], month["busy_max"]] == pytest.approx(
            row[8:11], abs=0.06
        )

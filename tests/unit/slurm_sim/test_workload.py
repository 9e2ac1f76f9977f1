"""Synthetic workloads: repeatable, near to what they were fitted to, and without anybody's jobs in
the file.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_sim.traces import Trace, TraceError, make_trace, read_trace
from slurm_sim.workload import (
    compare_workloads,
    fit,
    generate,
    hour_of_week,
    load_model,
    shipped_models,
)
from slurm_sim.workload.check import jobs_per_user_hour
from slurm_sim.workload.tables import LEVELS, draw, pick, table

SHARED = Path(__file__).parents[4] / "shared" / "traces"
DAY = 86400


def invented(days: int = 30, arrays: bool = False) -> Trace:
    """Users with a day's rhythm, two job shapes, bursts, and runs of half their limit or so."""
    rng = np.random.default_rng(3)
    rows = []
    for user in range(30):
        for day in range(days):
            if (
                day + 3
            ) % 7 >= 5 or rng.random() < 0.3:  # day 0 is a Thursday; nobody works at weekends
                continue
            begin = day * DAY + 9 * 3600 + int(rng.integers(0, 8 * 3600))
            wide = user % 3 == 0
            for job in range(int(rng.integers(1, 12))):
                limit = 7200 if wide else 86400
                run = int(limit * min(1.0, rng.beta(2, 2) * 1.2))
                rows.append(
                    (
                        f"name{user}",
                        begin + 20 * job,
                        4 if wide else 1,
                        limit,
                        run,
                        f"{day}x{user}",
                        job,
                    )
                )
    frame = pd.DataFrame(
        rows, columns=["user", "submit", "nodes", "timelimit_s", "run", "array", "task"]
    )
    frame["job_id"] = [str(k) for k in range(len(frame))]
    if arrays:
        number = frame.groupby("array").ngroup() + 1
        frame["job_id"] = number.astype(str) + "_" + frame["task"].astype(str)
    frame["start"] = frame["submit"] + 60
    frame["end"] = frame["start"] + frame.pop("run")
    frame["state"] = np.where(np.arange(len(frame)) % 10 == 0, "FAILED", "COMPLETED")
    return make_trace(
        frame.drop(columns=["array", "task"]).assign(partition="", gpus=0, cpus=1), "invented"
    )


def test_tables_keep_means_and_values() -> None:
    rng = np.random.default_rng(0)
    values = np.floor(rng.pareto(1.2, 20_000)) + 1
    uniform = (np.arange(100_000) + 0.5) / 100_000
    drawn = draw(table(values), uniform)
    assert drawn.mean() == pytest.approx(values.mean(), rel=0.01)
    assert np.quantile(drawn, 0.9) == pytest.approx(np.quantile(values, 0.9), rel=0.01)
    assert table(np.array([5.0, 5.0])) == (5.0,)
    assert set(pick(tuple(float(each) for each in range(len(LEVELS))), uniform)) == set(
        range(len(LEVELS))
    )


def test_the_same_seed_gives_the_same_jobs_and_another_seed_others() -> None:
    model = load_model("ls6_a100")
    first, again, other = (generate(model, seed, 3 * DAY) for seed in (1, 1, 2))
    pd.testing.assert_frame_equal(first.jobs, again.jobs)
    assert not first.jobs["submit"].equals(other.jobs["submit"].iloc[: len(first)])


def test_a_seed_means_these_very_jobs() -> None:
    """If this fails, old results can't be repeated: say so in the change log."""
    jobs = generate(load_model("lublin_256"), 7, 2 * DAY).jobs
    digest = [
        len(jobs),
        int(jobs["submit"].sum()),
        int(jobs["nodes"].sum()),
        int(jobs["runtime_s"].sum()),
    ]
    assert digest == DIGEST


DIGEST = [290, 27804550, 5123, 1448897]


@pytest.mark.parametrize("name", ["kth_sp2", "ls6_a100", "lublin_256"])
def test_shipped_models(name: str) -> None:
    assert name in shipped_models()
    model = load_model(name)
    text = model.text()
    assert len(text.encode()) < 100_000
    assert model.source
    assert model.licence
    assert not re.search(
        r"\bu\d{1,5}\b", text.replace(model.source, "")
    )  # the traces' users are u12, u00012
    made = generate(model, 1, 28 * DAY)
    assert len(made) / 28 == pytest.approx(model.jobs / model.days, rel=0.35)
    assert made.jobs["submit"].between(0, 28 * DAY).all()
    assert made.jobs["nodes"].between(1, model.nodes).all()
    assert (made.jobs["runtime_s"] >= 1).all()


def test_models_survive_their_file(tmp_path: Path) -> None:
    model = fit(invented(), 40, name="x", source='a "source" \\ line', licence="mine")
    model.save(tmp_path / "m.toml")
    assert load_model(tmp_path / "m.toml") == model
    assert "name1" not in (tmp_path / "m.toml").read_text()


def test_more_load_means_more_arrivals_and_a_smaller_cluster_fewer_and_narrower() -> None:
    model = load_model("kth_sp2")
    plain, double, small = (
        generate(model, 5, 60 * DAY, **kwargs)
        for kwargs in ({}, {"load": 2.0}, {"nodes": 50})  # type: ignore[arg-type]
    )
    assert len(double) / len(plain) == pytest.approx(2, rel=0.15)
    assert len(small) / len(plain) == pytest.approx(0.5, rel=0.15)
    assert small.jobs["nodes"].max() == 50
    for wrong in ({"load": 0.0}, {"nodes": 0}):
        with pytest.raises(ValueError, match="positive"):
            generate(model, 5, DAY, **wrong)  # type: ignore[arg-type]
    assert generate(model, 5, DAY, begin=345600).jobs["submit"].min() >= 345600


def test_what_is_fitted_comes_out_again() -> None:
    trace = invented(60)
    model = fit(trace, 40)
    drawn = [generate(model, seed, 60 * DAY) for seed in range(1, 6)]
    assert np.mean([len(each) for each in drawn]) == pytest.approx(len(trace), rel=0.1)
    made = drawn[0]
    hour = (made.column("submit") // 3600).astype(int) % 168
    quiet = hour >= 120
    assert quiet.mean() < 0.03
    distances = {each.quantity: each for each in compare_workloads(trace, made)}
    for quantity in ("nodes", "time limit", "run time", "run / limit"):
        assert distances[quantity].ks < 0.08
    assert distances["jobs per user and hour"].ks < 0.15


def test_arrays_come_out_as_arrays() -> None:
    model = fit(invented(arrays=True), 40)
    assert model.arrays == 1.0
    made = generate(model, 1, 30 * DAY).jobs
    tasks = made[made["array_job_id"].notna()]
    assert len(tasks) > 100
    for _leader, rows in tasks.groupby("array_job_id"):
        assert rows["submit"].nunique() == 1
        assert sorted(rows["array_task_id"]) == list(range(len(rows)))


def test_chained_jobs_depend_on_earlier_ones() -> None:
    made = generate(load_model("ls6_a100"), 3, 60 * DAY).jobs
    linked = made[made["dependency"] != ""]
    assert len(linked) > 50
    before = linked["dependency"].str.removeprefix("afterany:").astype(int)
    assert (before < linked["job_id"].astype(int)).all()
    assert (
        made.set_index("job_id").loc[before.astype(str), "user"].to_numpy()
        == linked["user"].to_numpy()
    ).all()


def test_the_check_tells_equal_from_different() -> None:
    trace = invented()
    same = {each.quantity: each.ks for each in compare_workloads(trace, trace)}
    assert set(same.values()) == {0.0}
    other = make_trace(trace.jobs.assign(nodes=trace.jobs["nodes"] * 10))
    different = {each.quantity: each for each in compare_workloads(trace, other)}
    assert different["nodes"].ks == 1.0
    assert different["nodes"].wasserstein > 0.2
    assert different["run time"].ks == 0.0
    assert jobs_per_user_hour(trace).sum() == len(trace)


def test_it_draws_a_hundred_thousand_jobs_a_second() -> None:
    model = load_model("ls6_a100")
    begin = time.process_time()
    made = generate(model, 1, 1200 * DAY)
    assert (
        len(made) / (time.process_time() - begin) > 20_000
    )  # a fifth of what is promised, for slow machines


def test_too_little_to_fit() -> None:
    with pytest.raises(TraceError, match="at least 200 jobs"):
        fit(invented(2).pick(np.arange(50)), 40)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("schema = 1", "schema = 9", "schema = 1"),
        ("nodes = 76", 'nodes = "many"', "nodes: found 'many', expected int"),
        ("day_shape", "day_shapes", "day_shape: expected missing|day_shapes"),
        ("[[cells]]", "[[cell]]", "cell"),
        ("hour_of_week = [", "hour_of_week = [1.0, ", "168 numbers"),
        ("schema", "= =", "TOML"),
    ],
)
def test_bad_model_files_say_where(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "m.toml"
    path.write_text(load_model("ls6_a100").text().replace(old, new))
    with pytest.raises(TraceError, match=message):
        load_model(path)


def edited(folder: Path, field: str, value: str) -> Path:
    """A shipped model's file with another value of the first field of this name."""
    text, count = re.subn(
        rf"^{field} = .*$", f"{field} = {value}", load_model("ls6_a100").text(), count=1, flags=re.M
    )
    assert count == 1
    (folder / "mm.toml").write_text(text)
    return folder / "mm.toml"


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        (
            "sessions_per_h",
            "inf",
            "sessions_per_h: found 'inf', expected a number from 1e-06 to 1e+09",
        ),
        ("sessions_per_h", "1e300", "sessions_per_h: found '1e+300'"),
        ("day_shape", "inf", "day_shape: found 'inf', expected a number from 0 to 1e+15"),
        ("day_shape", "-1", "day_shape: found '-1'"),
        ("day_shape", "nan", "day_shape: found 'nan'"),
        ("throttle", "[]", "throttle: found '0 numbers', expected 1 or 27 numbers"),
        ("patience_s", "[]", "patience_s: found '0 numbers'"),
        ("batches", "[1e300]", "classes[0].batches: found '1e+300'"),
        ("activity", "[true]", "classes[0].activity: found 'True'"),
        ("share", "nan", "classes[0].share: found 'nan', expected a number from 0 to 1"),
        ("users", "0", "classes[0].users: found '0', expected a number from 1 to 1e+06"),
        ("cancelled", "7.5", "cells[0].cancelled: found '7.5', expected a number from 0 to 1"),
        ("failed", "nan", "cells[0].failed: found 'nan'"),
        ("run", "[1e14]", "cells[0].run: found '"),
        ("chained", "nan", "chained: found 'nan'"),
        ("chained", "-1", "chained: found '-1'"),
        ("run_correlation", "inf", "run_correlation: found 'inf'"),
        ("days", "nan", "days: found 'nan'"),
        ("jobs", "-1", "jobs: found '-1', expected a number from 1"),
        ("nodes", "100001", "nodes: found '100001', expected a number from 1 to 100000"),
        ("cells", "[0, true]", "classes[0]: expected cells of this file"),
    ],
)
def test_numbers_of_a_model_that_can_not_be(
    tmp_path: Path, field: str, value: str, message: str
) -> None:
    path = edited(tmp_path, field, value)
    with pytest.raises(TraceError, match=re.escape(f"{path}: {message}")):
        load_model(path)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            r"(\[\[cells\]\]\n)nodes = .*",
            r"\1nodes = [0.0]",
            "cells[0].nodes: found '0.0', expected a number from 1 to",
        ),
        (r"\nshare = .*", r"\nshare = 0", "classes: found 'only 0', expected a share above 0"),
        (r"[\s\S]+", "schema = 1\ncells = 5\n", "cells: found '5', expected tables [[cells]]"),
        (r"[\s\S]+", "schema = 1\ncells = [5]\n", "cells[0]: found '5', expected a table"),
    ],
)
def test_tables_of_a_model_that_can_not_be(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    path = tmp_path / "mm.toml"
    path.write_text(re.sub(old, new, load_model("ls6_a100").text()))
    with pytest.raises(TraceError, match=re.escape(message)):
        load_model(path)


def test_more_jobs_than_memory_holds_are_refused_at_once(tmp_path: Path) -> None:
    many = r"model ls6_a100: jobs: found 'about .*e\+09', expected at most 20,000,000: fewer days"
    with pytest.raises(TraceError, match=many):
        generate(load_model(edited(tmp_path, "sessions_per_h", "1e6")), 1, 28 * DAY)
    with pytest.raises(TraceError, match="expected at most 20,000,000"):
        generate(load_model("ls6_a100"), 1, 28 * DAY, load=1e5)


def test_the_weekend_is_on_the_days_on_which_it_was(tmp_path: Path) -> None:
    model = load_model("ls6_a100")
    friday_night = 1_704_495_600  # 2024-01-05 23:00 UTC
    assert hour_of_week(friday_night) == 4 * 24 + 23
    assert hour_of_week(friday_night, "Asia/Tokyo") == 5 * 24 + 8
    drawn = generate(model, 1, 200 * DAY, begin=friday_night, first_hour=hour_of_week(friday_night))
    again = fit(drawn, model.nodes)
    days = [np.reshape(each.hour_of_week, (7, 24)).mean(axis=1) for each in (model, again)]
    assert set(np.argsort(days[0])[:2]) == set(np.argsort(days[1])[:2]) == {5, 6}
    assert np.corrcoef(*days)[0, 1] > 0.9


def test_no_such_model(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="kth_sp2, ls6_a100, lublin_256"):
        load_model("ls7")
    with pytest.raises(TraceError, match="readable"):
        load_model(tmp_path / "absent.toml")


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.05, 5), st.integers(1, 300), st.floats(0.01, 20))
def test_any_seed_load_and_size_gives_sound_jobs(
    seed: int, load: float, nodes: int, days: float
) -> None:
    made = generate(load_model("ls6_a100"), seed, days * DAY, nodes, load).jobs
    assert (made["nodes"] <= nodes).all()
    assert made["job_id"].is_unique
    assert made["submit"].is_monotonic_increasing


@pytest.mark.parametrize(("name", "trace"), [("kth_sp2", "kth_sp2"), ("ls6_a100", "ls6_a100_dev")])
def test_shipped_models_are_nearer_to_their_trace_than_its_months_to_each_other(
    name: str, trace: str
) -> None:
    if not (SHARED / f"{trace}.csv.gz").exists():
        pytest.skip("needs the traces in ../shared")
    model = load_model(name)
    real = read_trace(SHARED / f"{trace}.csv.gz")
    real = real.pick(real.column("submit") >= real.column("submit").max() - model.days * DAY)
    for each in compare_workloads(real, generate(model, 1, model.days * DAY)):
        # users come back within the hour more often than the model has it (docs/workloads.md)
        assert each.ks < (0.08 if each.quantity == "jobs per user and hour" else each.months_ks), (
            each.quantity
        )

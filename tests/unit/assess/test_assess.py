"""An assessment: what a history shows of its queue and chains, and the page that comes out."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from mirage.assess import assessment, verdict
from mirage.assess import history as histories
from mirage.assess import plan as plans
from mirage.assess import simulated as simulations
from mirage.assess.habits import habits_of
from mirage.assess.history import recent_begin_s
from mirage.assess.plan import Effort
from mirage.assess.routes import pools, routing_of
from mirage.assess.waits import size_waits, waits_of
from mirage.cli import assess
from mirage.errors import MirageError
from mirage.figures.estimate import Estimate
from mirage.provision.chains import evaluation
from mirage.provision.chains.evaluation import ChainPlan
from mirage.provision.chains.figures import ChainFigures, ChainSummary
from mirage.provision.learn.reporter import SILENT
from slurm_sim import ClusterConfig, Partition
from slurm_sim.config import named_nodes
from slurm_sim.seconds import DAY_S, HOUR_S
from slurm_sim.traces import Trace, make_trace
from slurm_sim.traces.inference import infer

BEGIN_S = 1_675_209_600
HEADER = "JobID|JobName|User|Partition|Submit|Start|End|Timelimit|NNodes|NCPUS|State"


def trace(jobs: list[dict[str, Any]]) -> Trace:
    base = {
        "user": "ann",
        "partition": "gpu",
        "timelimit_s": 4 * HOUR_S,
        "nodes": 1,
        "gpus": 0,
        "cpus": 1,
        "state": "COMPLETED",
    }
    return make_trace(
        pd.DataFrame([base | {"job_id": str(number)} | job for number, job in enumerate(jobs, 1)])
    )


def job(submit_s: int, start_s: int, run_s: int, **more: Any) -> dict[str, Any]:
    return {"submit": submit_s, "start": start_s, "end": start_s + run_s} | more


def busy(hours: int = 400) -> list[dict[str, Any]]:
    """One node, always full: each job of another user comes four hours before its start."""
    return [
        job(max(0, at - 4 * HOUR_S), at, 2 * HOUR_S, user=f"u{number % 7}", timelimit_s=2 * HOUR_S)
        for number, at in enumerate(range(0, hours * HOUR_S, 2 * HOUR_S))
    ]


def test_waits_for_nodes_are_told_from_dependencies():
    jobs = [*busy(), job(HOUR_S, 801 * HOUR_S, HOUR_S, eligible=801 * HOUR_S, user="dep")]
    history = trace(jobs)
    waits = waits_of(history, infer(history), "UTC")
    assert waits.hours_by_cause["dependency"] == pytest.approx(800)
    assert waits.hours_by_cause["nodes"] == pytest.approx(4 * 200, rel=0.05)
    assert waits.contention == pytest.approx(0.5, abs=0.05)
    assert sum(row.jobs for row in waits.by_size) == waits.all_jobs.jobs == 201
    assert sum(row.jobs for row in waits.by_hour) == 201


def test_hours_of_the_day_are_those_of_the_zone():
    history = trace([job(0, 60, HOUR_S), job(10, 70, HOUR_S)])
    rows = waits_of(history, infer(history), "Asia/Tokyo").by_hour
    assert [row.name for row in rows] == ["09"]


def resubmitting(links: int, wait_s: int = 3 * HOUR_S) -> list[dict[str, Any]]:
    """A script that submits its successor as it starts; each link fills its limit of eight hours."""
    jobs, submit, start = [], 0, 600
    for _ in range(links):
        jobs.append(job(submit, start, 8 * HOUR_S, nodes=2, timelimit_s=8 * HOUR_S, user="zoe"))
        submit, start = start + 30, start + 8 * HOUR_S + wait_s
    return jobs


def test_a_script_that_resubmits_itself_is_a_chain():
    history = trace([*busy(), *resubmitting(6)])
    habits = habits_of(history, infer(history))
    habit = next(habit for habit in habits.by_way if habit.way == "resubmission")
    assert (habit.chains, habit.jobs, habit.users) == (1, 6, 1)
    assert habit.interrupted_h == pytest.approx(5 * 3)
    assert habit.wall_h == pytest.approx(6 * 8 + 5 * 3)
    assert habits.by_user == {"zoe": pytest.approx(15)}
    assert habits.nodes == {2: pytest.approx(6 * 8 * 2)}


def test_an_array_of_which_one_task_runs_is_a_chain():
    tasks = [
        job(0, 600 + number * 8 * HOUR_S, 8 * HOUR_S - 60, job_id=f"900_{number}", array_throttle=1)
        for number in range(4)
    ]
    history = trace([*busy(), *tasks])
    arrays = next(it for it in habits_of(history, infer(history)).by_way if it.way == "arrays")
    assert (arrays.chains, arrays.jobs) == (1, 4)


def test_a_chain_whose_links_wait_for_nodes_is_known_by_when_they_became_eligible():
    links, end = [], 0
    for _ in range(5):
        start = end + 5 * HOUR_S
        links.append(
            job(0, start, 8 * HOUR_S, user="dep", nodes=2, timelimit_s=8 * HOUR_S, eligible=end + 1)
        )
        end = start + 8 * HOUR_S
    others = [each | {"eligible": each["submit"]} for each in busy()]
    history = trace([*others, *links])
    habits = habits_of(history, infer(history))
    habit = next(habit for habit in habits.by_way if habit.way == "dependencies")
    assert (habit.chains, habit.jobs) == (1, 5)
    assert habit.interrupted_h == pytest.approx(4 * 5)


def test_jobs_side_by_side_are_no_chain():
    jobs = [job(at, at + 60, 8 * HOUR_S, user="par") for at in range(0, 100 * HOUR_S, 2 * HOUR_S)]
    history = trace(jobs)
    assert habits_of(history, infer(history)).chains == 0


def test_short_tries_are_no_chain():
    jobs = [job(at, at + 60, HOUR_S, user="try") for at in range(0, 8 * HOUR_S, 2 * HOUR_S)]
    history = trace(jobs)
    assert habits_of(history, infer(history)).chains == 0


def records(folder: Path, days: int, users: int = 7) -> Path:
    """sacct's output of a site with four nodes that nearly more jobs want than fit."""
    random, lines = np.random.default_rng(1), [HEADER]
    for number, at in enumerate(np.sort(random.integers(0, days * DAY_S, 14 * days)).tolist(), 1):
        start = at + int(random.integers(0, 2 * HOUR_S))
        times = (at, start, start + int(random.integers(HOUR_S, 6 * HOUR_S)))
        submit, start_words, end = (
            datetime.fromtimestamp(BEGIN_S + second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
            for second in times
        )
        nodes, user = int(random.integers(1, 3)), f"u{number % users}"
        row = (
            number,
            "train",
            user,
            "gpu",
            submit,
            start_words,
            end,
            "06:00:00",
            nodes,
            8,
            "COMPLETED",
        )
        lines.append("|".join(map(str, row)))
    path = folder / "sacct.txt"
    path.write_text("\n".join(lines) + "\n")
    return path


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    assess.add_arguments(parser)
    return assess.run(parser.parse_args([*words, "--workers", "1"]))


@pytest.fixture
def little(monkeypatch: pytest.MonkeyPatch) -> None:
    effort = Effort(
        begins=1,
        lasts_s=2 * DAY_S,
        at_most_s=300,
        episodes=24,
        judged=4,
        with_oracle=True,
        with_model=False,
        most_sizes=1,
        routed_days=14,
    )
    monkeypatch.setattr(plans, "QUICK", effort)


def test_from_a_file_of_sacct_to_a_page(tmp_path, little, capsys):
    out = tmp_path / "out"
    words = ("--sacct", str(records(tmp_path, 30)), "--out", str(out), "--quick")
    assert run(*words) == 0
    said, cautions = capsys.readouterr()
    assert cautions.count("too few to tell how its queue is") == 1
    assert "priority" not in cautions
    assert "jobs of 7 users" in said
    assert "does not tell which priorities" in said.replace("\n", " ")
    assert "<title>" in (out / "assessment.html").read_text()
    record = json.loads((out / "assessment.json").read_text())
    assert {row["method"] for row in record["chains"]} == {
        "reactive",
        "default",
        "lead:3h",
        "oracle",
    }
    assert {row["mode"] for row in record["chains"]} == {"train", "service"}
    assert "A service would be up on" in said.replace("\n", " ")
    assert "up-time of a service" in (out / "assessment.html").read_text()
    others = record["chains_by_priorities"]
    assert set(others) == {"age alone", "the order of submission"}
    for rows in others.values():
        assert {row["method"] for row in rows} == {"reactive", "default"}
    assert "one partition" in record["why_no_routing"]
    assert "by the order of submission" in said.replace("\n", " ")
    assert (out / "model" / "recipe.toml").exists()
    assert 'mode = "observe"' in (out / "mirage.toml").read_text()
    # Again: the model is there already.
    stamp = (out / "model" / "recipe.toml").stat().st_mtime_ns
    assert run(*words, "--anonymise", "--json") == 0
    assert (out / "model" / "recipe.toml").stat().st_mtime_ns == stamp
    again = json.loads(capsys.readouterr().out)
    assert "gpu" not in json.dumps(again["waits"])
    assert str(tmp_path) not in json.dumps(again["provenance"])


def test_a_deep_queue_does_not_stretch_the_time(tmp_path, little, monkeypatch, capsys):
    """The training ends with the time, keeps its episodes, and a second call goes on from them. Of
    chains one size alone is tried, and the other one named.
    """
    effort = replace(plans.QUICK, at_most_s=0, begins=3, most_sizes=2)
    monkeypatch.setattr(plans, "QUICK", effort)
    out = tmp_path / "out"
    words = ("--sacct", str(records(tmp_path, 30)), "--out", str(out), "--quick")
    assert run(*words) == 0
    said, cautions = capsys.readouterr()
    assert "the time was up after 4 of 24 training episodes" in cautions
    shown = json.loads((out / "assessment.json").read_text())["chains"]
    ((tried,), (left,)) = {row["nodes"] for row in shown}, {1, 2} - {row["nodes"] for row in shown}
    assert f"no chain of {left} nodes was tried" in cautions
    words_of = {1: "1 node", 2: "2 nodes"}
    assert (
        f"The time was up after 1 of 3 begins of chains, with none on {words_of[left]}"
        in said.replace("\n", " ")
    )
    assert f"Simulated on {words_of[tried]}" in said.replace("\n", " ")
    assert json.loads((out / "assessment.json").read_text())["chains_by_priorities"] == {}
    (episodes,) = out.glob("episodes-*/train")
    first = (episodes / "00000.npz").stat().st_mtime_ns
    assert run(*words) == 0
    assert (episodes / "00000.npz").stat().st_mtime_ns == first
    monkeypatch.setattr(plans, "QUICK", replace(effort, at_most_s=300))
    assert run(*words) == 0
    assert not list(out.glob("episodes-*")), "the model is trained on all of them"
    assert len((out / "chains.jsonl").read_text().splitlines()) == 1 + 3 * 2 * 2 * 4


def test_a_short_history_gives_the_queue_and_says_what_is_missing(tmp_path, little, capsys):
    out = tmp_path / "out"
    assert run("--sacct", str(records(tmp_path, 3, 1)), "--out", str(out), "--quick") == 0
    said = capsys.readouterr().out.replace("\n", " ")
    assert "the history has 3 days" in said
    assert "All jobs are of one user" in said
    assert said.count("the history has 3 days") == 2, "in the headline and in one sentence"
    assert json.loads((out / "assessment.json").read_text())["chains"] is None


def test_an_interrupted_call_continues_with_the_chains_that_are_missing(
    tmp_path, little, monkeypatch
):
    monkeypatch.setattr(assessment, "_model", lambda *_: (None, "not asked for"))
    out, tried = tmp_path / "out", []
    words = ("--sacct", str(records(tmp_path, 30)), "--out", str(out), "--quick")
    really = evaluation.try_chains

    def third_fails(site: Any, cases: Any) -> Any:
        tried.append(cases)
        if len(tried) == 3:
            raise KeyboardInterrupt
        return really(site, cases)

    monkeypatch.setattr(evaluation, "try_chains", third_fails)
    with pytest.raises(KeyboardInterrupt):
        run(*words)
    assert run(*words) == 0
    names = ["/".join([cases[0].method, *(case.mode.value for case in cases)]) for cases in tried]
    first = ["reactive/train/service", "default/train", "default/service"]
    assert names[:3] == first
    assert names[3] == first[2], "it continues with the trial that was interrupted"
    assert names[4:7] == ["lead:3h/train/service", "oracle/train", "oracle/service"]
    assert names[7:] == ["reactive/train", "default/train"] * 2, "under other priorities"
    shown = json.loads((out / "assessment.json").read_text())["chains"]
    monkeypatch.setattr(evaluation, "try_chains", really)
    assert run("--sacct", words[1], "--out", str(tmp_path / "whole"), "--quick") == 0
    assert json.loads((tmp_path / "whole" / "assessment.json").read_text())["chains"] == shown


def two_pools(**options: Any) -> ClusterConfig:
    """Two partitions of two GPU nodes each, which share none."""
    nodes = named_nodes(("a1", "a2", "b1", "b2"), cpus=8, gpus=2)
    partitions = (Partition("gpu", ("a1", "a2")), Partition("spare", ("b1", "b2"), **options))
    return ClusterConfig(nodes, partitions)


def crowded() -> Trace:
    """All users name `gpu`, where three jobs an hour come for two nodes; `spare` gets a job a day."""
    jobs = [
        job(at, at + 60, 50 * 60, timelimit_s=HOUR_S, gpus=2)
        for at in range(0, 10 * DAY_S, 20 * 60)
    ]
    jobs += [
        job(at, at + 60, 600, timelimit_s=HOUR_S, gpus=2, partition="spare")
        for at in range(0, 10 * DAY_S, DAY_S)
    ]
    return trace(sorted(jobs, key=lambda each: each["submit"]))


def test_routing_saves_the_wait_for_a_crowded_partition():
    figures, why = routing_of(crowded(), two_pools(), days=4, seed=1)
    assert why == ""
    assert figures is not None
    assert figures.recorded_h > 10
    assert figures.routed_h < 0.5
    assert figures.moved > figures.jobs / 4
    assert figures.saved_h.value == pytest.approx(figures.recorded_h - figures.routed_h)


def test_where_nothing_can_be_routed_it_says_why():
    history = crowded()
    shared = ClusterConfig(
        two_pools().nodes, (Partition("gpu", ("a1", "a2")), Partition("spare", ("a2", "b1")))
    )
    assert pools(shared.partitions) == [{"gpu", "spare"}]
    for site, said in (
        (None, "which nodes each partition has"),
        (shared, "share their nodes"),
        (two_pools(max_time_s=60), "no job could run in a second partition"),
    ):
        assert said in routing_of(history, site, days=4, seed=1)[1]
    assert "one partition" in routing_of(trace(busy()), None, days=4, seed=1)[1]


def test_a_file_that_is_none_of_sacct_is_refused(tmp_path):
    path = tmp_path / "photo.jpg"
    path.write_bytes(bytes(range(256)) * 8)
    with pytest.raises(MirageError, match=r"photo\.jpg"):
        run("--sacct", str(path), "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out" / "assessment.html").exists()


def test_without_slurm_it_says_what_else_to_give(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MirageError, match="give its records with --sacct FILE"):
        run("--out", str(tmp_path / "out"))


def test_sacct_that_refuses_is_one_clear_line(tmp_path, monkeypatch):
    refuses = tmp_path / "sacct"
    refuses.write_text(
        "#!/bin/sh\necho 'sacct: error: Problem talking to the database: refused' >&2; exit 1\n"
    )
    refuses.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    with pytest.raises(MirageError, match="Without accounting there is no history"):
        run("--out", str(tmp_path / "out"), "--slurm-conf", str(conf(tmp_path)))
    assert not list((tmp_path / "out").glob("sacct*"))


def test_what_slurm_said_is_asked_once_and_gone_at_the_end(tmp_path, little, monkeypatch):
    """It has the names of users; an interrupted call goes on with it, since a later answer of Slurm
    is another history.
    """
    monkeypatch.setattr(assessment, "_model", lambda *_: (None, "not asked for"))
    out, asked = tmp_path / "out", []

    def answers(_runner: Any, _start_s: int, _end_s: int, path: Path) -> int:
        asked.append(path)
        path.write_text(records(tmp_path, 30).read_text())
        return 1

    def is_interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    really = evaluation.try_chains
    monkeypatch.setattr(histories, "write_history", answers)
    monkeypatch.setattr(evaluation, "try_chains", is_interrupted)
    words = ("--slurm-conf", str(conf(tmp_path)), "--out", str(out), "--quick")
    with pytest.raises(KeyboardInterrupt):
        run(*words)
    assert asked[0].stat().st_mode & 0o777 == 0o600
    monkeypatch.setattr(evaluation, "try_chains", really)
    assert run(*words) == 0
    assert len(asked) == 1
    assert not asked[0].exists()


def conf(folder: Path) -> Path:
    path = folder / "slurm.conf"
    path.write_text(
        "ClusterName=c\nNodeName=n[1-4] CPUs=4\nPartitionName=gpu Nodes=ALL\nPriorityType=priority/basic\n"
    )
    return path


def test_a_time_zone_that_is_none_is_refused(tmp_path):
    words = ("--sacct", str(records(tmp_path, 3)), "--timezone", "Mars/Phobos")
    with pytest.raises(MirageError, match="Mars/Phobos"):
        run(*words, "--out", str(tmp_path / "out"))


def test_of_the_sites_own_scheduler_no_priorities_are_in_doubt(
    tmp_path, little, monkeypatch, capsys
):
    monkeypatch.setattr(assessment, "_model", lambda *_: (None, "not asked for"))
    out = tmp_path / "out"
    words = ("--sacct", str(records(tmp_path, 30)), "--slurm-conf", str(conf(tmp_path)))
    assert run(*words, "--out", str(out), "--quick") == 0
    assert "does not tell which priorities" not in capsys.readouterr().out.replace("\n", " ")
    assert json.loads((out / "assessment.json").read_text())["chains_by_priorities"] == {}


HANGS = (
    "Whether Mirage is worth it depends on priorities, which the history does not tell. By age and"
    " fair share: "
)


def row(nodes: int, before: float, spread: float | None = 0.005, begins: int = 8) -> ChainSummary:
    """Of chains that make progress for 98 % of the time with Mirage. ``spread``: half the interval."""
    gain = 0.98 - before
    edges = () if spread is None else (gain - spread, gain + spread)
    return ChainSummary(
        nodes=nodes,
        mode="train",
        method="default",
        begins=begins,
        goodput=Estimate(0.98),
        interrupted=Estimate(0.01),
        handovers=Estimate(4),
        held_twice=Estimate(0),
        held_twice_node_h=0,
        times_the_least=1,
        longest_gap_h=1,
        link_h=Estimate(24),
        wait_h=Estimate(2),
        work_node_h=100,
        gain=Estimate(gain, *edges),
    )


def chains(*rows: ChainSummary) -> Any:
    today = [
        replace(each, method="reactive", goodput=Estimate(0.98 - each.gain.value), gain=None)
        for each in rows
        if each.gain
    ]
    return SimpleNamespace(figures=ChainFigures(summary=(*today, *rows), others_wait=()))


def said(found: Any, by_age: Any) -> str:
    site: Any = SimpleNamespace(chains=found, by_priorities={"age alone": by_age}, why_no_chains="")
    return verdict.headline(site)


@pytest.mark.parametrize(
    ("today", "by_age", "headline"),
    [
        (
            0.55,
            0.55,
            "With Mirage chains would make progress for more of the time: on 2 nodes 55.0 % of the"
            " time today, 98.0 % with it (+42.5 to +43.5 points)",
        ),
        (0.98, 0.55, HANGS),
        (
            0.978,
            0.985,
            "Mirage would change little: on 2 nodes 97.8 % of the time today, 98.0 % with it"
            " (\u22120.3 to +0.7 points)",
        ),
        (0.975, 0.995, HANGS),
        (
            0.996,
            0.996,
            "Not worth it: on 2 nodes 99.6 % of the time today, 98.0 % with it (\u22122.1 to"
            " \u22121.1 points)",
        ),
    ],
)
def test_a_verdict_that_hangs_on_priorities_says_so(today, by_age, headline):
    words = said(chains(row(2, today)), chains(row(2, by_age)))
    assert words == headline or (headline == HANGS and words.startswith(f"{HANGS}on 2 nodes "))


def test_no_verdict_comes_of_few_begins():
    """Two begins of a calm spell: the figures are there, and no word of worth."""
    for few in (row(2, 0.997, begins=2, spread=0.001), row(2, 0.8, spread=None)):
        words = said(chains(few), chains(few))
        assert words.startswith(
            f"Too few simulated weeks for a verdict ({few.begins} begins of chains): on 2 nodes"
        )
        assert "points" not in words


def test_all_sizes_are_in_the_headline_and_not_the_one_that_gains_most():
    both = chains(row(1, 0.6), row(8, 0.995))
    assert said(both, both) == (
        "It depends on the size of a chain: a gain on 1 node 60.0 % of the time today, 98.0 % with"
        " it (+37.5 to +38.5 points); a loss on 8 nodes 99.5 % of the time today, 98.0 % with it"
        " (\u22122.0 to \u22121.0 points)"
    )
    wide = chains(row(2, 0.9, spread=0.15))
    assert said(wide, wide).startswith("Whether Mirage is worth it can't be told, since the simul")


def test_simulated_waits_stand_beside_those_of_the_history():
    """Two weeks in which jobs waited an hour, before one of half an hour."""
    jobs = [
        job(at, at + (HOUR_S if at < 14 * DAY_S else HOUR_S // 2), HOUR_S, nodes=2)
        for at in range(0, 21 * DAY_S, 6 * HOUR_S)
    ]
    history = trace(jobs)
    (found,) = size_waits(history, "gpu", [14 * DAY_S], 7 * DAY_S, {2: 3.0})
    assert (found.judged_h, found.judged_jobs, found.simulated_h) == (0.5, 28, 3.0)
    assert found.history_h == pytest.approx((2 * 1 + 0.5) / 3)
    assert found.spell == "calmer"
    (none,) = size_waits(history, "gpu", [14 * DAY_S], 7 * DAY_S, {8: 3.0})
    assert (none.judged_h, none.history_h, none.spell) == (None, None, "")


def test_out_must_be_a_folder(tmp_path):
    path = records(tmp_path, 3)
    with pytest.raises(MirageError, match="is a file"):
        run("--sacct", str(path), "--out", str(path))


def test_of_a_long_history_only_the_end_is_simulated(tmp_path, little, monkeypatch, capsys):
    effort = replace(plans.QUICK, recent_days=30)
    monkeypatch.setattr(plans, "QUICK", effort)
    monkeypatch.setattr(assessment, "_model", lambda *_: (None, "not asked for"))
    out = tmp_path / "out"
    assert run("--sacct", str(records(tmp_path, 60)), "--out", str(out), "--quick") == 0
    said = capsys.readouterr().out.replace("\n", " ")
    assert "840 jobs of 7 users" in said
    assert "simulation read the last 30 days" in said
    facts = json.loads((out / "assessment.json").read_text())["facts"]
    assert 0.9 < facts["recent_jobs"] / (14 * 30) < 1.1
    assert facts["last_s"] - facts["recent_s"] == pytest.approx(30 * DAY_S, abs=DAY_S)
    kept = pd.read_csv(out / "history.csv.gz")
    assert len(kept) == facts["recent_jobs"]
    assert ((kept["submit"] >= facts["recent_s"]) | (kept["end"] > facts["recent_s"])).all()


@pytest.mark.parametrize(
    ("days", "jobs", "expected_days"),
    [(90, 10_000, 90), (90, 400, 40), (90, 10, 28), (400, 10_000, 100)],
)
def test_the_recent_part_is_bounded_by_days_and_by_jobs(days, jobs, expected_days):
    history = trace([job(at, at + 60, HOUR_S) for at in range(0, 100 * DAY_S, DAY_S // 10)])
    begin_s = recent_begin_s(history, days, jobs)
    assert begin_s == pytest.approx((100 - expected_days) * DAY_S, abs=DAY_S / 2)


def test_other_priorities_are_tried_while_there_is_time(tmp_path, monkeypatch):
    """The first one takes all that is left."""
    now_s, simulated = [0.0], []

    def simulate(plan: Any, _reporter: Any) -> Any:
        simulated.append(plan.cluster.name)
        now_s[0] += 100
        return "figures", ""

    monkeypatch.setattr(simulations.time, "monotonic", lambda: now_s[0])
    monkeypatch.setattr(simulations, "simulate", simulate)
    recent: Any = SimpleNamespace(site=None, cluster=two_pools())
    plan = ChainPlan(trace=tmp_path / "t", cluster=tmp_path / "c", out=tmp_path, start_s=0)
    found = simulations.other_priorities(plan, chains(row(2, 0.5)), recent, 60, SILENT)
    assert found == {"age alone": "figures"}
    assert simulated == ["cluster-age.toml"]

"""Whole chains on a replayed history: the same links as under the daemon, their figures, the files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mirage.chain.progress import ChainProgress, chain_progress
from mirage.cli import evaluate
from mirage.cli.main import parser_of
from mirage.config import PolicyConfig
from mirage.daemon.restraint import Acting
from mirage.domain import ActingMode, Mode
from mirage.errors import InputError
from mirage.provision.chains.decisions import ChainDecisions
from mirage.provision.chains.evaluation import ChainPlan, far_apart
from mirage.provision.chains.figures import chain_figures
from mirage.provision.chains.kept import CHAINS
from mirage.provision.chains.methods import chain_methods
from mirage.provision.chains.oracle import OraclePolicy
from mirage.provision.chains.rules import ChainRule
from mirage.provision.chains.run import POLL_S, USER, ChainJobs, Scenario, busy_cluster, run_chains
from mirage.provision.chains.trial import ChainCase, ChainTrial
from mirage.provision.kept import TrialFile
from mirage.provision.policies.goodput import Goodput
from mirage.provision.policies.heuristics import Timer
from slurm_sim import ClusterConfig, JobSpec, Partition, Simulator, State, make_nodes
from slurm_sim.seconds import DAY_S, HOUR_S
from tests.small_cluster import small_cluster

FIRST_S = 1_675_209_600
SMALL = Scenario(
    chains=1,
    lasts_s=DAY_S,
    limit_s=4 * HOUR_S,
    warm_up_s=2 * DAY_S,
    watched_s=POLL_S,
)


def test_without_store_and_audit_the_same_links_come_out():
    goodput = Goodput(PolicyConfig().goodput)
    daemon = run_chains(SMALL, lambda _: goodput, lambda _: None)
    simulator = busy_cluster(SMALL)
    simulator.run_until(SMALL.warm_up_s)
    jobs = ChainJobs(SMALL, simulator)
    decisions = ChainDecisions(simulator, goodput, Acting(mode=ActingMode.ENFORCE), step_s=POLL_S)
    while simulator.now_s < SMALL.end_s:
        jobs.submit_due()
        decisions.cycle()
        jobs.run_until(simulator.now_s + POLL_S)
    decisions.cycle()
    links = decisions.links(USER, "demo0001")
    spans = [(link.start_s, link.end_s) for link in daemon.chains[0] if link.start_s is not None]
    assert len(spans) > 2
    assert [(link.start_s, link.end_s) for link in links if link.start_s is not None] == spans
    assert chain_progress(links, SMALL.end_s) == daemon.total()


@pytest.mark.parametrize("name", ["reactive", "timer", "oracle", "after:1h"])
def test_a_policy_that_needs_no_waits_gives_the_same_links_from_its_own_jobs_alone(name):
    """Reading the whole queue takes ten times as long."""
    cluster = busy_cluster(SMALL)
    cluster.run_until(SMALL.warm_up_s)
    method = next(it for it in chain_methods(("timer", "after:1h"), None) if it.name == name)
    assert not method.looks_at_others

    def links(looks_at_others):
        simulator = cluster.fork()
        jobs, acting = ChainJobs(SMALL, simulator), Acting(mode=ActingMode.ENFORCE)
        decisions = ChainDecisions(
            simulator,
            method.policy(simulator),
            acting,
            step_s=POLL_S,
            looks_at_others=looks_at_others,
            user=USER,
        )
        while simulator.now_s < SMALL.end_s:
            jobs.submit_due()
            decisions.cycle()
            jobs.run_until(simulator.now_s + POLL_S)
        decisions.cycle()
        return [(link.start_s, link.end_s) for link in decisions.links(USER, "demo0001")]

    assert len(links(True)) > 2
    assert links(False) == links(True)


def test_a_later_link_that_starts_first_ends_the_earlier_ones():
    """Its start falls between two looks, and the earlier link is cancelled at the second one."""
    nodes = make_nodes(2)
    partition = Partition("all", tuple(node.name for node in nodes))
    simulator = Simulator(ClusterConfig(nodes, (partition,)))
    scenario = Scenario(chains=1, warm_up_s=0, lasts_s=DAY_S, link_nodes=1, ahead=3)
    jobs = ChainJobs(scenario, simulator)
    simulator.submit(JobSpec(1, 2 * HOUR_S, HOUR_S))
    jobs.submit_due()
    jobs.run_until(POLL_S)
    first, second = sorted(jobs.job_ids)
    simulator.drop_dependency(second)
    jobs.run_until(2 * POLL_S)
    third = max(jobs.job_ids)
    assert third not in (first, second), "a further one is queued behind one that competes"
    simulator.hold(second)
    simulator.drop_dependency(third)
    jobs.run_until(2 * HOUR_S)
    started_s = simulator.job(third).start_s
    assert HOUR_S <= started_s < 2 * HOUR_S
    jobs.run_until(2 * HOUR_S + POLL_S)
    assert simulator.job(second).state is State.CANCELLED
    assert simulator.job(first).state is State.CANCELLED
    assert simulator.job(third).end_s is None
    assert max(jobs.job_ids) > third, "the link that took over queues the next one"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Four nodes, wanted by nearly more jobs than fit, for fifteen days."""
    folder = tmp_path_factory.mktemp("chains")
    random = np.random.default_rng(1)
    lines = ["job_id,user,partition,submit,start,end,timelimit_s,nodes,gpus,cpus,state"]
    submit_s = FIRST_S + np.sort(random.integers(0, 15 * DAY_S, 210))
    for number, at_s in enumerate(submit_s.tolist(), start=1):
        start_s = at_s + int(random.integers(0, 2 * HOUR_S))
        end_s = start_s + int(random.integers(HOUR_S, 6 * HOUR_S))
        nodes = int(random.integers(1, 3))
        lines.append(
            f"{number},u{number % 7},gpu,{at_s},{start_s},{end_s},{6 * HOUR_S},{nodes},0,,COMPLETED"
        )
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    (folder / "c.toml").write_text(small_cluster())
    return folder


def parsed(folder, *more):
    words = [
        "evaluate",
        "chains",
        "--trace",
        str(folder / "t.csv"),
        "--cluster",
        str(folder / "c.toml"),
    ]
    words += ["--workers", "1", "--start", "2023-02-09", "--limit", "6h"]
    words += ["--begins", "2", "--every", "12h", "--lasts", "18h", "--nodes", "1"]
    return parser_of("evaluate").parse_args([*words, *more])


def test_chains_from_a_job_history_to_the_files(files, tmp_path):
    out = tmp_path / "out"
    words = ["--methods", "default,after:2h", "--others", "0,3", "--others-nodes", "1"]
    words += ["--seed", "5"]  # of begins in days with a queue
    assert evaluate.run(parsed(files, "--out", str(out), *words)) == 0
    result = json.loads((out / "results.json").read_text())
    assert result["kind"] == "chains"
    assert result["headline"] == "default"
    rows = {(row["mode"], row["method"]): row for row in result["summary"]}
    assert {mode for mode, _ in rows} == {"train", "service"}
    assert {name for _, name in rows} == {"reactive", "default", "after:2h", "oracle"}
    reactive, ours = rows["train", "reactive"], rows["train", "default"]
    assert ours["goodput"]["value"] > reactive["goodput"]["value"]
    assert rows["service", "reactive"]["handovers"]["value"] > 0
    waits = result["others_wait"]
    assert [row["chains"] for row in waits].count(0) == 1
    assert {row["most_ahead"] for row in waits if row["method"] == "default"} == {1, 10}
    assert len({row["jobs"] for row in waits}) == 1, "the same jobs are counted in every run"
    page = (out / "report.html").read_text()
    assert "Up-time of services on 1 node" in page
    assert "times the least" in page
    service = rows["service", "default"]
    assert service["goodput"]["value"] > rows["service", "reactive"]["goodput"]["value"]
    assert service["times_the_least"] >= 1
    assert service["longest_gap_h"] <= rows["service", "reactive"]["longest_gap_h"]
    lines = (out / "chains.csv").read_text().splitlines()
    assert len(lines) == 1 + 2 * (2 * 4 + len(waits))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", "after:soon"], "--methods after:soon: expected lead:3h, after:12h"),
        (["--methods", "after:L/0"], "where L is a link's length"),
        (["--methods", "ahead:0:2h"], "expected at least 1 successor"),
        (["--methods", "nobody"], "no such method"),
        (["--nodes", "64"], "could never run"),
        (["--begins", "40"], "fewer --begins"),
        (["--start", "2023-02-03"], "later --start"),
        (["--lasts", "3h"], "--lasts: expected longer than --limit"),
    ],
)
def test_bad_input_is_one_clear_line(files, tmp_path, words, said):
    with pytest.raises(InputError, match=said):
        evaluate.run(parsed(files, "--out", str(tmp_path / "out"), *words))
    assert not (tmp_path / "out").exists()


def trial(begin_s, method, interrupted_h, wait_s=None, count=1):
    chains = ChainCase(
        begin_s=begin_s,
        nodes=2,
        mode=Mode.TRAIN,
        method=method,
        count=count,
        is_for_others=wait_s is not None,
    )
    progress = ChainProgress(
        wall_s=count * 100 * HOUR_S,
        interrupted_s=int(interrupted_h * HOUR_S),
        held_twice_s=HOUR_S,
        handovers=6,
        handover_s=600,
        longest_gap_s=3 * HOUR_S,
    )
    waits_s = None if wait_s is None else np.array(wait_s, dtype=np.float64)
    return ChainTrial(chains=chains, progress=progress, ran_s=70 * HOUR_S, others_wait_s=waits_s)


def test_figures_are_sums_over_begins():
    begins = [FIRST_S + day * 3 * DAY_S for day in range(12)]
    trials = [trial(at_s, "reactive", 20 + 2 * (at_s == begins[0])) for at_s in begins]
    trials += [trial(at_s, "goodput", 4) for at_s in begins]
    alone = [trial(at_s, "reactive", 0, [0, 3600, 7200], count=0) for at_s in begins]
    crowd = [trial(at_s, "goodput", 0, [3600, 7200, 10800], count=3) for at_s in begins]
    found = chain_figures([*trials, *alone, *crowd], ["reactive", "goodput"], 20 * HOUR_S, seed=1)
    ours, before = (found.row(2, "train", name) for name in ("goodput", "reactive"))
    assert ours.goodput.value == pytest.approx(0.95)
    assert before.interrupted.value == pytest.approx((20 + 2 / 12) / 100)
    assert before.interrupted.low < 0.2017 < before.interrupted.high
    assert ours.gain.value == pytest.approx(0.95 - (1 - (20 + 2 / 12 + 1) / 100))
    assert ours.handovers.value == pytest.approx(100 * 6 / 95)
    assert ours.held_twice.value == pytest.approx(1 / 95)
    assert ours.held_twice_node_h == 12 * 2
    assert ours.times_the_least == pytest.approx(6 / 4)
    assert ours.longest_gap_h == 3
    assert ours.link_h.value == pytest.approx(10)
    without, beside = found.others_wait
    assert (without.mean_h.value, beside.mean_h.value) == (1.0, 2.0)
    assert beside.more_h.value == pytest.approx(1.0)
    assert beside.more_per_node_h == pytest.approx(3 / (299 * 2))


def test_rules_by_their_names():
    assert ChainRule.of("quantile") is None
    rule = ChainRule.of("ahead:3:20h")
    assert (rule.ahead, rule.pause_s, rule.is_staggered) == (3, 20 * HOUR_S, True)
    assert replace(rule, name="x").about.startswith("up to 3 successors")
    by_length = ChainRule.of("ahead:3:5L/12")
    assert [by_length.pause_after_s(hours * HOUR_S) for hours in (6, 48)] == [9000, 20 * HOUR_S]
    assert by_length.about.endswith("5/12 of a link's length")
    names = [method.name for method in chain_methods(["default", "oracle", "after:12h"], None)]
    assert names == ["reactive", "default", "after:12h", "oracle"]


def test_a_lead_is_a_yardstick_before_the_limit():
    rule = ChainRule.of("lead:3h")
    assert rule.about == "one successor, 3 h before its predecessor's limit"
    assert rule.policy(None) == Timer(3 * HOUR_S, "lead:3h")
    with pytest.raises(InputError, match="--methods lead:L/4: expected lead:3h"):
        ChainRule.of("lead:L/4")


def of_services(make_policy, ahead=3):
    """Three services of 4-hour links for a day and a half on a busy cluster."""
    scenario = replace(
        SMALL, mode=Mode.SERVICE, chains=3, apart_s=HOUR_S, lasts_s=36 * HOUR_S, ahead=ahead
    )
    return run_chains(scenario, make_policy, lambda _: None).total()


def test_an_oracle_keeps_services_up_with_few_handovers():
    """No lead does both: one that is up as long hands over more often."""
    oracle = of_services(lambda simulator: OraclePolicy(simulator, POLL_S))
    leads = [of_services(ChainRule.of(f"lead:{lead}").policy) for lead in ("10min", "3h")]
    assert oracle.goodput >= max(lead.goodput for lead in leads)


def test_a_service_is_ready_its_start_up_after_its_start_and_its_predecessor_ends_then():
    nodes = make_nodes(2)
    partition = Partition("all", tuple(node.name for node in nodes))
    simulator = Simulator(ClusterConfig(nodes, (partition,)))
    scenario = Scenario(
        chains=1,
        warm_up_s=0,
        lasts_s=DAY_S,
        link_nodes=1,
        limit_s=4 * HOUR_S,
        mode=Mode.SERVICE,
        start_up_s=240,
    )
    found = run_chains(
        replace(scenario, watched_s=0),
        ChainRule.of("lead:1h").policy,
        lambda _: None,
        lambda _: simulator,
    )
    first, second = found.chains[0][:2]
    assert second.start_s == 3 * HOUR_S
    assert first.end_s == second.start_s + 240
    total = found.total()
    assert (total.interrupted_s, total.wall_s) == (0, DAY_S - first.start_s - 240)
    assert total.held_twice_s == 240 * total.handovers


def test_begins_are_drawn_by_the_seed_each_in_its_own_span():
    plan = ChainPlan(trace=Path("t"), cluster=Path("c"), out=Path("o"), start_s=FIRST_S)
    begins_s = np.array(plan.begins_s())
    spans = (begins_s - FIRST_S) // plan.every_s
    assert spans.tolist() == list(range(plan.begins))
    assert len(set((begins_s - FIRST_S) % plan.every_s)) > 1
    assert replace(plan, seed=2).begins_s() != plan.begins_s() == replace(plan).begins_s()


def test_methods_that_mind_no_mode_have_the_same_links_in_both(files, tmp_path):
    """One run serves both; the figures are those of two."""
    out, both = [tmp_path / "train", tmp_path / "service"], tmp_path / "both"
    words = ("--methods", "lead:2h", "--others", "none", "--begins", "1")
    for folder, mode in zip((*out, both), ("train", "service", "train,service"), strict=True):
        assert evaluate.run(parsed(files, "--out", str(folder), "--modes", mode, *words)) == 0
    one, other, together = (
        json.loads((folder / "results.json").read_text())["summary"] for folder in (*out, both)
    )
    assert [*one, *other] == together


def test_the_first_begins_are_far_apart():
    assert far_apart(range(6)) == [0, 4, 2, 1, 5, 3]
    assert far_apart([7]) == [7]
    assert sorted(far_apart(range(12))) == list(range(12))


def test_finished_trials_are_kept_and_a_cut_line_is_not(tmp_path):
    path, done = tmp_path / "trials.jsonl", trial(FIRST_S, "goodput", 4, [0.0, 3600.0])
    other = trial(FIRST_S, "reactive", 20)
    TrialFile(path, {"limit_s": 1}, CHAINS).add(done.chains, done)
    path.write_text(path.read_text() + '{"chains": {"begin_s": 16')
    kept = TrialFile(path, {"limit_s": 1}, CHAINS)
    assert kept.missing([done.chains, other.chains]) == [other.chains]
    (read,) = kept.found([done.chains, other.chains])
    assert (read.chains, read.progress, read.ran_s) == (done.chains, done.progress, done.ran_s)
    assert read.others_wait_s.tolist() == [0.0, 3600.0]
    assert TrialFile(path, {"limit_s": 2}, CHAINS).found([done.chains]) == []

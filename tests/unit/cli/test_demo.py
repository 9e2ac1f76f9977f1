"""The demo's cluster, workload and policies."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from mirage.chain.handoff import handoffs
from mirage.cli.demo import _chosen, _named
from mirage.config import GoodputConfig
from mirage.demo.beside import run_beside
from mirage.errors import InputError, MirageError
from mirage.models.shipped import shipped
from mirage.ports import Policy
from mirage.provision.chains.oracle import OraclePolicy
from mirage.provision.chains.run import CLUSTER, RunView, Scenario, run_chains
from mirage.provision.chains.workload import other_jobs
from mirage.provision.policies.goodput import Goodput
from mirage.provision.policies.heuristics import Reactive
from mirage.provision.policies.learned import LearnedPolicy
from mirage.provision.policies.quantile import Quantile
from slurm_sim import JobSpec, Simulator
from slurm_sim.config import ClusterConfig, Params, Partition, make_nodes, whole_nodes
from slurm_sim.seconds import DAY_S, HOUR_S

SMALL = Scenario(
    chains=2,
    apart_s=6 * HOUR_S,
    lasts_s=2 * DAY_S,
    limit_s=6 * HOUR_S,
    warm_up_s=2 * DAY_S,
)


def test_other_users_fit_the_cluster_and_come_by_seed() -> None:
    cluster = SMALL.cluster
    jobs = other_jobs(cluster, 1, 4, 1.0)
    assert len(jobs) > 50
    assert jobs == other_jobs(cluster, 1, 4, 1.0) != other_jobs(cluster, 2, 4, 1.0)
    longest_s = cluster.partitions[0].max_time_s
    assert longest_s
    assert max(job.time_limit_s or 0 for job in jobs) <= longest_s
    assert max(job.submit_s or 0 for job in jobs) < 4 * DAY_S


def test_chains_by_the_default_of_training_chains() -> None:
    result = run_chains(SMALL, lambda _: _chosen(None, None), lambda _: None)
    assert result.policy == "goodput"
    assert result.chains[1][0].submit_s == SMALL.warm_up_s + SMALL.apart_s
    for links, end_s, progress in zip(result.chains, result.ends_s, result.progress(), strict=True):
        started = [link for link in links if link.start_s is not None and link.start_s < end_s]
        assert progress.handovers == len(started) - 1 >= 2
        assert 0 < progress.goodput <= 1 - progress.handovers * 600 / progress.wall_s + 1e-9
    assert result.total().wall_s == sum(part.wall_s for part in result.progress())


def steady_queue(scenario: Scenario) -> Simulator:
    """Two nodes: one for the chain, one for the others' jobs of an hour, which queue for hours."""
    before = [hour * HOUR_S for hour in range(scenario.warm_up_s // HOUR_S) for _ in range(2)]
    backlog = [scenario.warm_up_s + HOUR_S] * 9
    after = range(scenario.warm_up_s, scenario.end_s, HOUR_S)
    jobs = [JobSpec(1, HOUR_S, user="x", submit_s=it) for it in sorted([*before, *backlog, *after])]
    return Simulator(whole_nodes(2, max_time_s=7 * DAY_S), jobs)


def test_a_chain_whose_links_end_early_by_themselves_is_followed_there() -> None:
    """Links of 9 h end after 6 h. Once two have done so the next one is there in time."""
    early = Scenario(
        chains=1,
        lasts_s=2 * DAY_S,
        warm_up_s=DAY_S,
        link_nodes=1,
        limit_s=9 * HOUR_S,
        run_s=6 * HOUR_S,
    )
    result = run_chains(early, lambda _: Quantile(5, 1), lambda _: None, steady_queue)
    gaps_s = [handoff.interruption_s for handoff in handoffs(result.chains[0])]
    assert gaps_s[0] >= HOUR_S
    assert len(gaps_s) >= 6
    assert max(gaps_s[2:]) <= 600, gaps_s


def cleared_backlog(scenario: Scenario) -> Simulator:
    """Sixty jobs waited 10 h for nodes of `main`; since then two are free, and one job queues in a
    partition that shares only the third.
    """
    nodes = make_nodes(4)
    names = [node.name for node in nodes]
    main, side = (
        Partition(name, tuple(part)) for name, part in (("main", names[:3]), ("side", names[2:]))
    )
    cluster = ClusterConfig(nodes, (main, side), Params())
    jobs = [
        *[JobSpec(1, 10 * HOUR_S, user="x", partition="main")] * 3,
        JobSpec(1, 9 * DAY_S, user="x", partition="side"),
        *[JobSpec(1, 12 * HOUR_S, 60, user="x", partition="main", submit_s=60)] * 60,
        JobSpec(2, DAY_S, user="x", partition="side", submit_s=scenario.warm_up_s - HOUR_S),
    ]
    return Simulator(cluster, jobs)


def test_after_a_backlog_has_cleared_links_are_not_let_go_for_nothing() -> None:
    """The known waits say 10 h, and a successor starts at once: two links of 12 h are cut short,
    then each runs for a quarter of its time at least. Without the guard all would run for 2 h.
    """
    calm = Scenario(
        chains=1, lasts_s=2 * DAY_S, warm_up_s=DAY_S, link_nodes=1, limit_s=12 * HOUR_S, ahead=1
    )
    goodput = Goodput(GoodputConfig())
    links = run_chains(calm, lambda _: goodput, lambda _: None, cleared_backlog).chains[0]
    runs_h = [(link.end_s - link.start_s) / HOUR_S for link in links if link.end_s and link.start_s]
    assert sum(run_h < 3 for run_h in runs_h) <= 4, runs_h
    assert len(runs_h) <= 16, runs_h


def test_policies_side_by_side_have_the_results_of_each_alone() -> None:
    """An oracle is hardly interrupted."""
    small = replace(SMALL, chains=1, lasts_s=DAY_S)
    seen: list[list[RunView]] = [[], []]
    policies = [partial(_named, "reactive", None), OraclePolicy]
    reactive, oracle = run_beside(small, policies, lambda place, view: seen[place].append(view))
    assert oracle.total().interrupted_s < reactive.total().interrupted_s
    alone_views: list[RunView] = []
    alone = run_chains(small, lambda _: Reactive(), alone_views.append)
    assert reactive == alone
    assert seen[0] == alone_views
    assert seen[0][0].now_s < small.warm_up_s, "a view comes before the first chain does"
    assert [views[-1].done for views in seen] == [True, True]


def dies(_: Simulator) -> Policy:
    os._exit(3)


def test_what_a_run_raises_is_raised_and_its_process_may_die() -> None:
    with pytest.raises(InputError, match="name its policy"):
        run_beside(SMALL, [partial(_named, None, "models/x")], lambda *_: None)
    with pytest.raises(MirageError, match="process of the simulation died"):
        run_beside(SMALL, [dies], lambda *_: None)


def test_a_policy_by_name() -> None:
    assert isinstance(_chosen("quantile", None), LearnedPolicy)
    assert isinstance(_chosen("quantile", "none"), Quantile)
    assert _chosen("timer", None).name == "timer"
    with pytest.raises(InputError, match="name its policy"):
        _chosen(None, "models/x")


def test_an_installation_without_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mirage.models.shipped.PLACES", (tmp_path,))
    with pytest.raises(InputError, match=f"no models for '{CLUSTER}' in .*install Mirage again"):
        shipped(CLUSTER)

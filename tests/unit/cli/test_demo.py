"""The demo's cluster, workload and policies."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mirage.cli.demo import _chosen
from mirage.errors import InputError
from mirage.models.shipped import shipped
from mirage.provision.chains.oracle import OraclePolicy
from mirage.provision.chains.run import CLUSTER, Scenario, run_chains
from mirage.provision.chains.workload import other_jobs
from mirage.provision.policies.heuristics import Reactive
from mirage.provision.policies.learned import LearnedPolicy
from mirage.provision.policies.quantile import Quantile
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
        assert progress.handovers == len(started) - 1 >= 4
        assert 0 < progress.goodput <= 1 - progress.handovers * 600 / progress.wall_s + 1e-9
    assert result.total().wall_s == sum(part.wall_s for part in result.progress())


def test_an_oracle_is_hardly_interrupted() -> None:
    small = replace(SMALL, chains=1, lasts_s=DAY_S)
    oracle = run_chains(small, OraclePolicy, lambda _: None).total()
    reactive = run_chains(small, lambda _: Reactive(), lambda _: None).total()
    assert oracle.interrupted_s < reactive.interrupted_s


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

"""The demo's cluster, workload and policies."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirage.cli.demo import _policy
from mirage.demo.run import CLUSTER, Scenario, run_chains
from mirage.demo.workload import other_jobs
from mirage.errors import InputError
from mirage.models.shipped import shipped
from mirage.provision.policies.learned import LearnedPolicy
from mirage.provision.policies.quantile import Quantile
from slurm_sim.seconds import DAY_S, HOUR_S

SMALL = Scenario(
    chains=2,
    apart_s=6 * HOUR_S,
    segments=3,
    limit_s=6 * HOUR_S,
    warm_up_s=2 * DAY_S,
    longest_s=6 * DAY_S,
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


def test_a_chain_by_the_model_that_comes_with_mirage() -> None:
    policy = _policy("quantile", None)
    assert isinstance(policy, LearnedPolicy)
    result = run_chains(SMALL, policy, lambda _: None)
    assert [[link.segment for link in links] for links in result.chains] == [[1, 2, 3], [1, 2, 3]]
    assert result.chains[1][0].submit_s == SMALL.warm_up_s + SMALL.apart_s
    assert len(result.handoffs) == 4


def test_without_a_model() -> None:
    assert isinstance(_policy("quantile", "none"), Quantile)
    assert _policy("timer", None).name == "timer"


def test_an_installation_without_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mirage.models.shipped.PLACES", (tmp_path,))
    with pytest.raises(InputError, match=f"no models for '{CLUSTER}' in .*install Mirage again"):
        shipped(CLUSTER)

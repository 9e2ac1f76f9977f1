"""The name of the cluster that Slurm's commands reach from here."""

from __future__ import annotations

import pytest

from mirage.chain import cluster_name as module


@pytest.fixture
def slurm_conf(tmp_path, monkeypatch):
    """Where slurm.conf is looked for; no scontrol is there to be asked."""
    monkeypatch.delenv("SLURM_CONF", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(module, "CONFS", (str(tmp_path / "slurm.conf"), str(tmp_path / "other")))
    return tmp_path / "slurm.conf"


def test_the_file_tells_it_while_slurmctld_is_away(slurm_conf, monkeypatch):
    assert module.cluster_name() == ""
    module._name.cache_clear()
    slurm_conf.write_text("# ClusterName=old\n  clustername = Alpha # here\n")
    assert module.cluster_name() == "alpha"
    named = slurm_conf.parent / "beta.conf"
    named.write_text("ClusterName=beta\n")
    monkeypatch.setenv("SLURM_CONF", str(named))
    assert module.cluster_name() == "beta"

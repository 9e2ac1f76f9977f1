from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.gateway.rig import Site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Without Slurm, every job counts as one that runs."""
    monkeypatch.setenv("MIRAGE_HOME", str(tmp_path))
    monkeypatch.setattr("mirage.gateway.gateway.not_running", lambda _found, _owner: [])
    monkeypatch.setattr("mirage.gateway.gateway.LOOK_S", 0.05)
    monkeypatch.setattr("mirage.gateway.gateway.LOOK_FOR_CHAINS_S", 0.05)
    monkeypatch.setattr("mirage.gateway.gateway.WRITE_S", 0.05)
    monkeypatch.setattr("mirage.gateway.pool._KEPT_S", 0.2)
    monkeypatch.setattr("mirage.gateway.streams.QUIET_S", 0.2)
    return Site(tmp_path)

"""Trained models that come with Mirage: `models/<cluster>/<method>` (models/README.md)."""

from __future__ import annotations

import sys
from pathlib import Path

from mirage.errors import InputError

PLACES = (
    Path(__file__).resolve().parents[2] / "models",
    Path(sys.prefix) / "share" / "mirage" / "models",
)
"""In a checkout, and where an installation puts its data."""


def shipped(cluster: str) -> Path:
    """The folder of a cluster: its `cluster.toml`, and a folder a method. Raises InputError."""
    for place in PLACES:
        if (place / cluster / "cluster.toml").is_file():
            return place / cluster
    looked = " or ".join(map(str, PLACES))
    raise InputError(
        f"no models for {cluster!r} in {looked}: this installation is incomplete; install Mirage"
        " again."
    )

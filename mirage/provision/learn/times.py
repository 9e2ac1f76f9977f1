"""Unix seconds in words."""

from __future__ import annotations

from datetime import UTC, datetime


def iso(time_s: int) -> str:
    """As the command line takes it: 2023-02-01T06:00Z."""
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%MZ")

"""TOML and JSON that anyone may have written: read in bounded time and depth."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

MOST_PARTS = 64
_NO_KEY = re.compile(r"[^\w.\s\"'-]+")


def parse_toml(text: str) -> dict[str, Any]:
    """As `tomllib.loads`, in bounded time and depth. Raises TOMLDecodeError, also for what is
    nested too deep.
    """
    for line in text.split("\n"):
        # tomllib takes time and memory with the square of a key's parts.
        if line.count(".") > MOST_PARTS and any(
            run.count(".") > MOST_PARTS for run in _NO_KEY.split(line)
        ):
            raise tomllib.TOMLDecodeError(f"a key of more than {MOST_PARTS} parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError("brackets within brackets, too many") from None


def parse_json(text: str | bytes) -> Any:
    """As `json.loads`. Raises ValueError, also for what is nested too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("brackets within brackets, too many") from None

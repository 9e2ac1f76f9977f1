"""One budget of wall-clock time for a training, whatever loops it is made of."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_until_s: ContextVar[float | None] = ContextVar("until_s", default=None)
"""On the monotonic clock."""


@contextmanager
def at_most(seconds: float | None) -> Iterator[None]:
    """What is trained inside ends with the first round after this; None: as without a budget."""
    before = _until_s.set(None if seconds is None else time.monotonic() + seconds)
    try:
        yield
    finally:
        _until_s.reset(before)


def is_over() -> bool:
    """Whether the time is up."""
    until_s = _until_s.get()
    return until_s is not None and time.monotonic() >= until_s

"""Checks of hyperparameters (`mirage train --set`): a wrong one is refused at once, not after an
hour or in silence.
"""

from __future__ import annotations

from mirage.errors import InputError
from mirage.provision.learn.episode import HISTORY


def refuse_below(options: object, least: float, *names: str) -> None:
    """Raises InputError for the first of these fields that is less than ``least``, or no number."""
    for name in names:
        if not getattr(options, name) >= least:
            raise InputError(f"{name} is {getattr(options, name)}; give at least {least:g}")


def refuse_no_share(options: object, *names: str) -> None:
    """Raises InputError for the first of these fields that is not over 0 and at most 1."""
    for name in names:
        if not 0 < getattr(options, name) <= 1:
            raise InputError(f"{name} is {getattr(options, name)}; give a number over 0, at most 1")


def refuse_memory(memory: int) -> None:
    """Raises InputError if this is no number of decision points by whose mean a V-head can decide."""
    if not 1 <= memory <= HISTORY:
        raise InputError(
            f"memory is {memory}; give a number from 1 to {HISTORY}, a day: no more is remembered"
        )

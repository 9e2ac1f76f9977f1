"""The policies by name. A new one is one file and one line here."""

from __future__ import annotations

import difflib
from collections.abc import Callable

from mirage.config import PolicyConfig
from mirage.errors import InputError
from mirage.ports import Policy
from mirage.provision.heuristics import Average, Reactive, Timer
from mirage.provision.quantile import Quantile

POLICIES: dict[str, Callable[[PolicyConfig], Policy]] = {
    "reactive": lambda _: Reactive(),
    "timer": lambda config: Timer(config.timer.lead_s),
    "avg": lambda config: Average(config.avg.last),
    "quantile": lambda config: Quantile(config.quantile.last, config.quantile.at_least),
}


def make_policy(config: PolicyConfig) -> Policy:
    """The policy that the configuration names. Raises InputError with what there is."""
    if config.name not in POLICIES:
        close = difflib.get_close_matches(config.name, POLICIES, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise InputError(f"policy.name: unknown policy {config.name!r}{hint} Known: {', '.join(POLICIES)}.")
    return POLICIES[config.name](config)

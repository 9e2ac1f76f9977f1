"""The policies by name. A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable

from mirage.config import PolicyConfig
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
    """The policy that the configuration names, which was checked as it was read."""
    return POLICIES[config.name](config)

"""The policies by name. A new one is one file and one line here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mirage.config import TRAINED, PolicyConfig
from mirage.errors import InputError
from mirage.ports import Policy
from mirage.provision.learn.methods import read_model
from mirage.provision.policies.heuristics import Average, Reactive, Timer
from mirage.provision.policies.learned import Learned
from mirage.provision.policies.quantile import Quantile


def _quantile(config: PolicyConfig) -> Policy:
    return Quantile(config.quantile.last, config.quantile.at_least)


POLICIES: dict[str, Callable[[PolicyConfig], Policy]] = {
    "reactive": lambda _: Reactive(),
    "timer": lambda config: Timer(config.timer.lead_s),
    "avg": lambda config: Average(config.avg.last),
    "quantile": _quantile,
}
"""Those that need no model."""


def make_policy(config: PolicyConfig) -> Policy:
    """The policy that the configuration names, which was checked as it was read.

    Raises InputError for a model that is missing, not wanted, or unreadable.
    """
    if config.model:
        return _trained(config, Path(config.model))
    if config.name not in POLICIES:
        where = f"models/<cluster>/{config.name}"
        raise InputError(
            f"policy.name is {config.name!r}, which needs a trained model: set policy.model, as in"
            f" {where}."
        )
    return POLICIES[config.name](config)


def _trained(config: PolicyConfig, folder: Path) -> Policy:
    if config.name not in TRAINED:
        raise InputError(
            f"policy.name is {config.name!r}, which takes no model: remove policy.model ({folder})."
        )
    if config.name == "lookahead":
        from mirage.provision.policies.lookahead import (
            read_lookahead,  # the simulator, which other policies do without
        )

        return read_lookahead(folder, config.lookahead, _quantile(config))
    model, _, about = read_model(folder, config.name)
    if not model.traits.uses_forecasts:
        return Learned(model, about, _quantile(config))
    from mirage.provision.learn.forecast import read_cluster
    from mirage.provision.policies.live_forecast import LiveForecast

    return Learned(model, about, _quantile(config), LiveForecast(read_cluster(folder)))

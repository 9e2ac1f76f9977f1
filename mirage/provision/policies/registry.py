"""The policies by name. A new one is one file, one entry here, and its name in
`mirage.config.UNTRAINED`, so that a configuration is checked without the policies' imports.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mirage.chain.durations import format_duration
from mirage.config import TRAINED, PolicyConfig
from mirage.errors import InputError
from mirage.ports import Policy
from mirage.provision.learn.methods import read_model
from mirage.provision.policies.by_mode import ByMode
from mirage.provision.policies.forecasts import WaitsOfLikeJobs, WaitSource
from mirage.provision.policies.goodput import Goodput
from mirage.provision.policies.heuristics import Average, Reactive, Timer
from mirage.provision.policies.learned import LearnedPolicy
from mirage.provision.policies.learned_waits import LearnedWaits
from mirage.provision.policies.quantile import Quantile
from mirage.provision.policies.uptime import Uptime


def _quantile(config: PolicyConfig) -> Policy:
    return Quantile(config.quantile.last, config.quantile.at_least)


@dataclass(frozen=True, kw_only=True)
class PolicyEntry:
    """A policy that needs no model."""

    make: Callable[[PolicyConfig], Policy]
    about: str
    """What it does, with its default settings, for the report of an evaluation."""
    minds_penalties: bool = False
    """Whether its choice depends on the chain's penalties of interruption and overlap."""


_DEFAULTS = PolicyConfig()

POLICIES: dict[str, PolicyEntry] = {
    "reactive": PolicyEntry(
        make=lambda _: Reactive(),
        about="the successor enters the queue when its predecessor ends",
    ),
    "timer": PolicyEntry(
        make=lambda config: Timer(config.timer.lead_s),
        about=(
            f"lets the successor in {format_duration(_DEFAULTS.timer.lead_s)} before its"
            " predecessor's limit"
        ),
    ),
    "avg": PolicyEntry(
        make=lambda config: Average(config.avg.last),
        about=f"the mean wait of the last {_DEFAULTS.avg.last} jobs that started is the lead",
    ),
    "quantile": PolicyEntry(
        make=_quantile,
        about=(
            "of the waits of like jobs that started last, the quantile at e_I / (e_I + e_O) is the"
            " lead; no training"
        ),
        minds_penalties=True,
    ),
}
"""Those that need no model. `mirage evaluate` and the service take them from here."""


def make_policy(config: PolicyConfig) -> Policy:
    """The policies that the configuration names, which was checked as it was read.

    Raises InputError for a model that is missing, not wanted, or unreadable.
    """
    pair = make_pair_policy(config)
    is_fixed = config.name in POLICIES and not POLICIES[config.name].minds_penalties
    if is_fixed and not config.model:
        return pair
    train = pair if config.train == "pair" else Goodput(config.goodput)
    return ByMode(pair=pair, train=train, service=Uptime(_waits(config, pair)))


def _waits(config: PolicyConfig, pair: Policy) -> WaitSource:
    """Those that the model knows; like jobs where there is none, or one that only acts."""
    like_jobs = WaitsOfLikeJobs(last=config.quantile.last, at_least=config.quantile.at_least)
    learned = LearnedWaits.of(pair, like_jobs) if isinstance(pair, LearnedPolicy) else None
    return learned or like_jobs


def make_pair_policy(config: PolicyConfig) -> Policy:
    """The policy that weighs interruption and overlap by the chain's penalties (paper, equation 8)."""
    if config.model:
        return _trained(config, Path(config.model))
    if config.name not in POLICIES:
        where = f"models/<cluster>/{config.name}"
        raise InputError(
            f"policy.name is {config.name!r}, which needs a trained model: set policy.model, as in"
            f" {where}."
        )
    return POLICIES[config.name].make(config)


def _trained(config: PolicyConfig, folder: Path) -> Policy:
    if config.name not in TRAINED:
        raise InputError(
            f"policy.name is {config.name!r}, which takes no model: remove policy.model ({folder})."
        )
    model, _, about = read_model(folder, config.name)
    if not model.traits.uses_forecasts:
        return LearnedPolicy(model, about, _quantile(config))
    from mirage.provision.learn.forecast import read_cluster
    from mirage.provision.policies.live_forecast import LiveForecast

    return LearnedPolicy(model, about, _quantile(config), LiveForecast(read_cluster(folder)))

"""All schedulers by name: the baselines, the search without a model, and a model's agent."""

from __future__ import annotations

from mirage.errors import InputError
from mirage.placement.simulated.baselines import BASELINES, Placer, baseline
from mirage.placement.simulated.elastic_rules import ELASTIC_RULES, ElasticRule
from mirage.placement.simulated.model import PaperModel
from mirage.placement.simulated.paper import PaperAgent
from mirage.placement.simulated.planner import Planner
from mirage.placement.simulated.setting import PlacementSetting

SEARCHES = ("search", "search-as-asked")
"""The search without a model; the second gives each job what it asks for, or nothing."""


def scheduler(name: str, *, seed: int = 0) -> Placer:
    """Raises InputError for a name that is not there."""
    if name in SEARCHES:
        return Planner(name=name, elastic=name == "search")
    if name in ELASTIC_RULES:
        return ElasticRule(name=name)
    if name in BASELINES:
        return baseline(name, seed=seed)
    raise InputError(
        f"scheduler {name!r}: there are {', '.join((*BASELINES, *ELASTIC_RULES, *SEARCHES))}."
    )


def agent_of(model: PaperModel, setting: PlacementSetting) -> Placer:
    """Raises InputError: the model is not for this setting."""
    agent = PaperAgent(model.network)
    agent.check(setting)
    return agent

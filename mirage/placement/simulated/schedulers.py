"""All schedulers by name: the baselines, the search without a model, and a model's agents."""

from __future__ import annotations

from mirage.errors import InputError
from mirage.placement.simulated.baselines import BASELINES, Placer, baseline
from mirage.placement.simulated.elastic_rules import ELASTIC_RULES, ElasticRule
from mirage.placement.simulated.model import PaperModel, PlacementModel
from mirage.placement.simulated.paper import PaperAgent
from mirage.placement.simulated.planner import Planner
from mirage.placement.simulated.scalable import NetworkGuide, ScalableAgent
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


def agents_of(model: PlacementModel, setting: PlacementSetting) -> list[Placer]:
    """What a model can do, the best first. Raises InputError: it is not for this setting."""
    if isinstance(model, PaperModel):
        agent = PaperAgent(model.network)
        agent.check(setting)
        return [agent]
    guide = NetworkGuide(model.network)
    return [
        Planner(name="scalable+search", guide=guide),
        Planner(name="scalable+search-as-asked", guide=guide, elastic=False),
        ScalableAgent(model.network),
    ]

"""Names on the command line -> policies of whole chains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mirage.config import PolicyConfig
from mirage.errors import InputError
from mirage.ports import Policy
from mirage.provision.chains.oracle import OraclePolicy
from mirage.provision.chains.rules import ChainRule
from mirage.provision.evaluation.methods import (
    ABOUT,
    RECENT,
    RULES,
    MethodRequest,
    requested_methods,
)
from mirage.provision.evaluation.protocol import ORACLE, REACTIVE
from mirage.provision.policies.registry import make_policy
from slurm_sim import Simulator

DEFAULT, TIMER = "default", "timer"
DEFAULTS = (DEFAULT, "quantile", "lead:10min", "lead:3h", "lead:6h", "ahead:3:20h")


@dataclass(frozen=True, kw_only=True)
class ChainMethod:
    """One of those that are compared."""

    name: str
    about: str
    rule: ChainRule | None = None
    request: MethodRequest | None = None
    """Of a policy by its name, with its model's folder if it has one."""

    @property
    def ahead(self) -> int | None:
        """Successors in the queue at most; None: as many as a chain of its mode has."""
        return self.rule.ahead if self.rule else None

    @property
    def is_fixed(self) -> bool:
        """Whether it decides by the chain's own times alone, of a training chain as of a service."""
        is_timer = self.request is not None and self.request.method == TIMER
        return self.name == REACTIVE or self.rule is not None or is_timer

    @property
    def looks_at_others(self) -> bool:
        """Whether it decides by other jobs' waits, or by the cluster's state."""
        return not (self.is_fixed or self.name == ORACLE)

    def policy(self, simulator: Simulator) -> Policy:
        """For one simulation, into which bounds and rules look. Raises InputError."""
        if self.name == ORACLE:
            return OraclePolicy(simulator)
        if self.rule is not None:
            return self.rule.policy(simulator)
        if self.request is None:
            return make_policy(
                PolicyConfig(name=REACTIVE) if self.name == REACTIVE else PolicyConfig()
            )
        name, folder = self.request.method, self.request.folder
        config = PolicyConfig(
            name="quantile" if name == RECENT else name,
            model=str(folder) if folder else "",
            train="pair",
        )
        return make_policy(config)


def chain_methods(
    names: Sequence[str], models: Path | None, *, with_oracle: bool = True
) -> tuple[ChainMethod, ...]:
    """Those named, between reactive and oracle. Raises InputError."""
    named = [name for name in dict.fromkeys(names) if name not in (REACTIVE, ORACLE)]
    found = [
        ChainMethod(name=REACTIVE, about=ABOUT[REACTIVE]),
        *(_method(name, models) for name in named),
        *([_oracle()] if with_oracle else []),
    ]
    labels = [method.name for method in found]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise InputError(f"--methods: {twice} twice; name each method once.")
    return tuple(found)


def _oracle() -> ChainMethod:
    return ChainMethod(
        name=ORACLE,
        about=(
            "lets a successor in at the last hour from which it starts, or a service is ready, in"
            " time: it knows the future, but not what its own later releases change"
        ),
    )


def _method(name: str, models: Path | None) -> ChainMethod:
    if name == DEFAULT:
        about = "what Mirage decides by without a model: goodput of training, up-time of services"
        return ChainMethod(name=name, about=about)
    if rule := ChainRule.of(name):
        return ChainMethod(name=name, about=rule.about, rule=rule)
    request = requested_methods([name], models)[1]
    about = ABOUT[request.method] if request.folder else RULES[request.method].about
    return ChainMethod(name=request.label, about=about, request=request)

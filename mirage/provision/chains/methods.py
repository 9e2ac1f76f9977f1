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
from mirage.provision.evaluation.methods import ABOUT, RULES, MethodRequest, requested_methods
from mirage.provision.evaluation.protocol import ORACLE, REACTIVE
from mirage.provision.policies.goodput import NAME as GOODPUT
from mirage.provision.policies.goodput import Goodput
from mirage.provision.policies.heuristics import Reactive
from mirage.provision.policies.registry import make_pair_policy
from slurm_sim import Simulator

TIMER = "timer"
DEFAULTS = (GOODPUT, "quantile", "after:12h", "ahead:3:20h")


@dataclass(frozen=True, kw_only=True)
class ChainMethod:
    """One of those that are compared."""

    name: str
    about: str
    rule: ChainRule | None = None
    request: MethodRequest | None = None
    """Of a policy that weighs pairs, with its model's folder if it has one."""

    @property
    def ahead(self) -> int | None:
        """Successors in the queue at most; None: as many as a chain of its mode has."""
        return self.rule.ahead if self.rule else None

    @property
    def looks_at_others(self) -> bool:
        """Whether it decides by other jobs' waits, or by the cluster's state."""
        return not (
            self.name in (REACTIVE, ORACLE)
            or self.rule is not None
            or (self.request is not None and self.request.method == TIMER)
        )

    def policy(self, simulator: Simulator) -> Policy:
        """For one simulation, into which bounds and rules look. Raises InputError."""
        if self.name == REACTIVE:
            return Reactive()
        if self.name == ORACLE:
            return OraclePolicy(simulator)
        if self.rule is not None:
            return self.rule.policy(simulator)
        if self.request is None:
            return Goodput(PolicyConfig().goodput)
        if self.request.folder is None:
            return RULES[self.request.method].make(PolicyConfig())
        config = PolicyConfig(name=self.request.method, model=str(self.request.folder))
        return make_pair_policy(config)


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
            "lets a training chain's successor in at the last hour from which it starts in time,"
            " a service's where its penalty is least: it knows the future, but not what its own"
            " later releases change"
        ),
    )


def _method(name: str, models: Path | None) -> ChainMethod:
    if name == GOODPUT:
        about = "the service's own rule for training chains, here also for services"
        return ChainMethod(name=name, about=about)
    if rule := ChainRule.of(name):
        return ChainMethod(name=name, about=rule.about, rule=rule)
    request = requested_methods([name], models)[1]
    about = ABOUT[request.method] if request.folder else RULES[request.method].about
    return ChainMethod(name=request.label, about=about, request=request)

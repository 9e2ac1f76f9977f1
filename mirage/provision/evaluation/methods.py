"""Names on the command line -> methods that choose."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mirage.config import TRAINED as NEED_MODEL
from mirage.config import PolicyConfig
from mirage.errors import InputError
from mirage.models.folder import read_recipe
from mirage.models.recipe import RECIPE
from mirage.provision.env.observation import Pool
from mirage.provision.evaluation.comparison import BOUND, RULE, TRAINED, MethodInfo
from mirage.provision.evaluation.protocol import (
    ORACLE,
    REACTIVE,
    Chooser,
    ModelChooser,
    Never,
    Oracle,
    PolicyChooser,
)
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.methods import METHODS, read_model
from mirage.provision.policies.learned import is_of
from mirage.provision.policies.registry import POLICIES
from slurm_sim.config import ClusterConfig

RECENT = "recent-quantile"
_CONFIG = PolicyConfig()
RULES = {
    RECENT if name == "quantile" else name: entry
    for name, entry in POLICIES.items()
    if name != REACTIVE
}
"""Policies without a model, by the name that `--methods` has for them."""
ABOUT = {
    ORACLE: "the cheapest of all outcomes, known only afterwards",
    REACTIVE: POLICIES[REACTIVE].about,
    **{name: method.about for name, method in METHODS.items()},
}


@dataclass(frozen=True)
class MethodRequest:
    """One method as asked for."""

    label: str
    """How it is called in the results."""
    method: str
    folder: Path | None = None
    """Of its model."""

    def chooser(self) -> Chooser:
        """Reads the model. Raises InputError."""
        if self.method == ORACLE:
            return Oracle()
        if self.method == REACTIVE:
            return Never()
        if self.folder is None:
            return _rule(self.method, self.label)
        return ModelChooser(read_model(self.folder, self.method).model, self.label)

    def described(
        self,
        cluster: ClusterConfig,
        partition: str | None,
        trace_sha256: str,
        judged_s: tuple[int, int],
    ) -> MethodInfo:
        """For the results. ``judged_s``: from the first to the last moment that the figures depend
        on.
        """
        if self.folder is None:
            about = (
                ABOUT[self.method]
                if self.method in (ORACLE, REACTIVE)
                else RULES[self.method].about
            )
            return MethodInfo(
                self.label, BOUND if self.method in (ORACLE, REACTIVE) else RULE, about
            )
        trained = ProvisionAbout.of(read_recipe(self.folder), self.folder)
        foreign = _foreign(trained, cluster, partition)
        is_same = foreign is None or trained.trace_sha256 == trace_sha256
        digest = hashlib.sha256((self.folder / RECIPE).read_bytes()).hexdigest()
        return MethodInfo(
            name=self.label,
            kind=TRAINED,
            about=ABOUT[self.method],
            folder=str(self.folder),
            recipe_sha256=digest,
            train_s=trained.train_s,
            saw_these=is_same and _saw(trained, judged_s),
            foreign=foreign,
        )


def _foreign(trained: ProvisionAbout, cluster: ClusterConfig, partition: str | None) -> str | None:
    """What the model is of, if not of this."""
    pool = Pool.of(cluster, partition)
    if trained.cluster == cluster.name and is_of(trained, min(pool.partitions), len(pool.nodes)):
        return None
    return f"{trained.cluster} {trained.pool} with {trained.nodes} nodes"


def _saw(trained: ProvisionAbout, judged_s: tuple[int, int]) -> bool:
    return trained.train_s[0] < judged_s[1] and judged_s[0] < trained.train_s[1]


def _rule(method: str, label: str) -> Chooser:
    rule = RULES[method]
    return PolicyChooser(rule.make(_CONFIG), label, minds_penalties=rule.minds_penalties)


def requested_methods(names: Sequence[str], models: Path | None) -> list[MethodRequest]:
    """The methods in the order in which they are shown: reactive, those asked for, oracle.

    A name is a rule, a trained method whose folder is in ``models`` (or is ``models``), or
    LABEL=FOLDER. `quantile` without a model is the rule, as in the service. Raises InputError.
    """
    chosen = [_request(name, models) for name in names if name not in (REACTIVE, ORACLE)]
    labels = [each.label for each in chosen]
    if twice := next((label for label in labels if labels.count(label) > 1), None):
        raise InputError(
            f"--methods: {twice} twice; name each method once (LABEL=FOLDER gives a model a name)."
        )
    return [MethodRequest(REACTIVE, REACTIVE), *chosen, MethodRequest(ORACLE, ORACLE)]


def _request(name: str, models: Path | None) -> MethodRequest:
    label, equals, folder = name.partition("=")
    if equals:
        if not label or label in (REACTIVE, ORACLE, *RULES):
            raise InputError(f"--methods {name}: expected LABEL=FOLDER with a label of your own.")
        return MethodRequest(
            label, _check_method(read_recipe(Path(folder)).method, folder), Path(folder)
        )
    if name in RULES:
        return MethodRequest(name, name)
    if name == "quantile" and not _has(models, name):
        return MethodRequest(name, RECENT)
    if name not in NEED_MODEL:
        known = ", ".join(dict.fromkeys((*RULES, *NEED_MODEL, REACTIVE, ORACLE)))
        raise InputError(
            f"--methods {name}: no such method; there are {known}, and LABEL=FOLDER for a trained"
            " model."
        )
    return MethodRequest(name, name, _folder(name, models))


def _check_method(method: str, folder: str) -> str:
    if method not in NEED_MODEL:
        raise InputError(f"{folder}: method {method!r} is none of {', '.join(NEED_MODEL)}.")
    return method


def _has(models: Path | None, name: str) -> bool:
    return models is not None and ((models / name).is_dir() or (models / RECIPE).is_file())


def _folder(name: str, models: Path | None) -> Path:
    """Where a method's model is. Raises InputError."""
    if models is None:
        raise InputError(
            f"--methods {name}: needs a trained model; give --models FOLDER, or train one (mirage"
            " train)."
        )
    if (models / RECIPE).is_file() and read_recipe(models).method == name:
        return models
    if not (models / name).is_dir():
        there = (
            sorted(path.parent.name for path in models.glob(f"*/{RECIPE}"))
            if models.is_dir()
            else []
        )
        found = f"it has {', '.join(there)}" if there else "it has none"
        raise InputError(
            f"--models {models}: no model of {name} there ({found}); train it (mirage train), or"
            f" give {name}=FOLDER."
        )
    return models / name

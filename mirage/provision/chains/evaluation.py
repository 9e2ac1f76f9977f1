"""`mirage evaluate chains`: whole chains by all policies on the same background."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

import mirage
from mirage.chain.script import MOST_AHEAD
from mirage.domain import Mode
from mirage.errors import InputError
from mirage.figures.provenance import file_record, provenance, sha256
from mirage.models.recipe import RECIPE
from mirage.provision.chains.figures import ChainFigures, chain_figures
from mirage.provision.chains.kept import CHAINS
from mirage.provision.chains.methods import DEFAULTS, ChainMethod, chain_methods
from mirage.provision.chains.run import POLL_S
from mirage.provision.chains.trial import ChainCase, ChainSite, ChainTrial, try_chains
from mirage.provision.evaluation.protocol import ORACLE, REACTIVE
from mirage.provision.evaluation.run import models_beside
from mirage.provision.kept import TrialFile
from mirage.provision.learn.background import Background
from mirage.provision.learn.drawing import fixed_pair
from mirage.provision.learn.inputs import Inputs, read_inputs
from mirage.provision.learn.parallel import spread
from mirage.provision.learn.reporter import SILENT, Reporter
from slurm_sim.seconds import DAY_S, HOUR_S

KEPT = "chains.jsonl"
"""Finished trials, for the next call."""


@dataclass(frozen=True, kw_only=True)
class ChainPlan:
    """Which chains are compared. Times are Unix seconds."""

    trace: Path
    """The job history (docs/traces.md)."""
    cluster: Path
    """Its cluster: .toml, otherwise a slurm.conf (docs/clusters.md)."""
    out: Path
    """Folder of `results.json`, `chains.csv` and `report.html`."""
    start_s: int
    """The first chain is submitted within `every_s` from then."""
    begins: int = 8
    """Submission times; at each every method runs a chain of every size and mode."""
    every_s: int = 2 * DAY_S
    """Each of these spans has one submission, drawn by the seed."""
    lasts_s: int = 14 * DAY_S
    """Each chain is watched for so long."""
    nodes: tuple[int, ...] = (1, 2, 8, 16)
    limit_s: int = 48 * HOUR_S
    """Time limit of each link."""
    modes: tuple[Mode, ...] = (Mode.TRAIN, Mode.SERVICE)
    methods: tuple[str, ...] = DEFAULTS
    with_oracle: bool = True
    """It takes most of the time."""
    models: Path | None = None
    partition: str | None = None
    others: tuple[int, ...] = (0, 3, 10)
    """Chains beside each other where the other users' waits are looked at; empty: not looked at."""
    others_nodes: int = 2
    """Nodes of these chains."""
    others_bound: int = 1
    """A site's bound on competing links whose effect is shown (acting.most_ahead)."""
    at_most_s: int = 2 * HOUR_S
    """After so long no further size of chains is tried."""
    kept: Path | None = None
    """File of finished trials: an interrupted evaluation continues there; None: `KEPT` in ``out``."""
    seed: int = 1
    """Of the submission times, and of the bootstrap of the intervals."""
    workers: int = field(default_factory=lambda: os.cpu_count() or 1)

    def begins_s(self) -> list[int]:
        random = np.random.default_rng(self.seed)
        steps = random.integers(0, max(1, self.every_s // POLL_S), self.begins)
        return [
            self.start_s + number * self.every_s + int(step) * POLL_S
            for number, step in enumerate(steps)
        ]

    def command(self) -> list[str]:
        """The command line that gives the same figures."""
        start = datetime.fromtimestamp(self.start_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        words = {
            "--trace": self.trace,
            "--cluster": self.cluster,
            "--methods": ",".join(self.methods),
            "--models": self.models,
            "--start": start,
            "--begins": self.begins,
            "--every": f"{self.every_s}s",
            "--lasts": f"{self.lasts_s}s",
            "--nodes": ",".join(map(str, self.nodes)),
            "--limit": f"{self.limit_s}s",
            "--modes": ",".join(mode.value for mode in self.modes),
            "--partition": self.partition,
            "--others": ",".join(map(str, self.others)) or "none",
            "--others-nodes": self.others_nodes,
            "--others-bound": self.others_bound,
            "--minutes": f"{self.at_most_s / 60:g}",
            "--seed": self.seed,
            "--out": self.out,
        }
        given = [item for item in words.items() if item[1] is not None]
        return ["mirage", "evaluate", "chains", *(str(part) for item in given for part in item)]


@dataclass(frozen=True, kw_only=True)
class ChainsEvaluation:
    """Every figure, and where it comes from."""

    methods: tuple[ChainMethod, ...]
    figures: ChainFigures
    trials: tuple[ChainTrial, ...]
    origin: dict[str, Any]
    begins_s: tuple[int, ...]
    """Submission times that were tried, ascending; fewer than asked for where the time was up."""
    is_whole: bool
    """Whether the time sufficed for all that was asked for."""

    @property
    def nodes(self) -> tuple[int, ...]:
        """The sizes that were tried, in the order asked for."""
        return tuple(dict.fromkeys(row.nodes for row in self.figures.summary))

    @property
    def begins(self) -> int:
        return len(self.begins_s)


def evaluate_chains(plan: ChainPlan, reporter: Reporter = SILENT) -> ChainsEvaluation:
    """Raises InputError, MirageError."""
    started_s = time.time()
    if plan.out.exists() and not plan.out.is_dir():
        raise InputError(f"--out {plan.out}: is a file; give a folder.")
    inputs = read_inputs(plan.trace, plan.cluster, plan.partition, reporter)
    site = _site(plan, inputs)
    trials = _trials(plan, site, _kept(plan), reporter)
    begins_s = tuple(sorted({trial.chains.begin_s for trial in trials}))
    origin = provenance(
        plan.command(),
        inputs={
            "trace": file_record(plan.trace, jobs=len(inputs.background.log)),
            "cluster": file_record(plan.cluster),
        },
        split={"evaluated_s": (begins_s[0], begins_s[-1] + plan.lasts_s)},
        seed=plan.seed,
        started_s=started_s,
        wall_s=time.time() - started_s,
    )
    return ChainsEvaluation(
        methods=site.methods,
        figures=chain_figures(
            trials, [method.name for method in site.methods], plan.limit_s, plan.seed
        ),
        trials=tuple(trials),
        origin=origin | {"notes": inputs.notes},
        begins_s=begins_s,
        is_whole=len(trials) == _count(plan, site),
    )


def _site(plan: ChainPlan, inputs: Inputs) -> ChainSite:
    """Checked before hours of work. Raises InputError."""
    background = inputs.background
    models = plan.models or models_beside(plan.cluster, background.cluster.name)
    site = ChainSite(
        background=background,
        partition=inputs.partition,
        methods=chain_methods(plan.methods, models, with_oracle=plan.with_oracle),
        limit_s=plan.limit_s,
        lasts_s=plan.lasts_s,
    )
    _check_sizes(plan, background, inputs.partition)
    begins_s = plan.begins_s()
    site.check(begins_s[0], begins_s[-1] + plan.lasts_s)
    return site


def _check_sizes(plan: ChainPlan, background: Background, partition: str) -> None:
    for nodes in (*plan.nodes, *([plan.others_nodes] if any(plan.others) else [])):
        background.check(fixed_pair(nodes, plan.limit_s), partition)
    if plan.lasts_s <= plan.limit_s:
        raise InputError("--lasts: expected longer than --limit, so that a chain has handovers.")


def _kept(plan: ChainPlan) -> TrialFile[ChainCase, ChainTrial]:
    return TrialFile(
        plan.kept or plan.out / KEPT,
        {
            "version": mirage.__version__,
            "trace": sha256(plan.trace),
            "cluster": sha256(plan.cluster),
            "models": [sha256(path) for path in _recipes(plan)],
            "partition": plan.partition,
            "limit_s": plan.limit_s,
            "lasts_s": plan.lasts_s,
        },
        CHAINS,
    )


def _recipes(plan: ChainPlan) -> list[Path]:
    """Of the models that methods name as `METHOD=FOLDER`."""
    folders = [name.partition("=")[2] for name in plan.methods]
    return [Path(folder) / RECIPE for folder in folders if folder]


def _trials(
    plan: ChainPlan,
    site: ChainSite,
    kept: TrialFile[ChainCase, ChainTrial],
    reporter: Reporter,
) -> list[ChainTrial]:
    """Begin after begin, size after size, all methods of each, until the time is up. Begins far apart
    come first.
    """
    reporter.keeps(f"{kept.path} has the finished chains; the same call goes on from there")
    trials: list[ChainTrial] = []
    until_s, total = time.monotonic() + plan.at_most_s, _count(plan, site)
    for begin_s in far_apart(plan.begins_s()):
        for batch in _batches(plan, site, begin_s):
            missing = [cases for cases in batch if kept.missing(cases)]
            if trials and missing and time.monotonic() >= until_s:
                reporter.caution(_time_is_up(plan, trials))
                return trials
            for cases in batch:
                trials += [] if cases in missing else kept.found(cases)
            for _, found in spread(try_chains, site, missing, plan.workers):
                for trial in found:
                    kept.add(trial.chains, trial)
                trials += found
                reporter.episodes("chains", len(trials), total)
    return trials


def _count(plan: ChainPlan, site: ChainSite) -> int:
    """Trials of all begins."""
    return plan.begins * sum(
        len(cases) for batch in _batches(plan, site, plan.start_s) for cases in batch
    )


def _time_is_up(plan: ChainPlan, trials: Sequence[ChainTrial]) -> str:
    tried = {trial.chains.nodes for trial in trials if not trial.chains.is_for_others}
    left = [str(nodes) for nodes in plan.nodes if nodes not in tried]
    begins = len({trial.chains.begin_s for trial in trials})
    sizes = f"; no chain of {', '.join(left)} nodes was tried" if left else ""
    return f"warning: the time is up: {begins} of {plan.begins} begins are judged{sizes}"


def far_apart(times_s: Sequence[int]) -> list[int]:
    """The same times in an order of which every beginning covers the whole span: the first, one of
    the middle, then the quarters.
    """
    bits = len(times_s).bit_length()
    numbers = sorted(range(len(times_s)), key=lambda number: f"{number:0{bits}b}"[::-1])
    return [times_s[number] for number in numbers]


_Batch = list[tuple[ChainCase, ...]]
"""Cases that are tried together, or not at all; in a tuple those that have the same links."""


def _batches(plan: ChainPlan, site: ChainSite, begin_s: int) -> Iterator[_Batch]:
    """All that is run on one begin."""
    for nodes in plan.nodes:
        batch: _Batch = []
        for method in site.methods:
            cases = [
                ChainCase(begin_s=begin_s, nodes=nodes, mode=mode, method=method.name)
                for mode in plan.modes
            ]
            batch += [tuple(cases)] if method.is_fixed else [(case,) for case in cases]
        yield batch
    if plan.others:
        yield list(_beside_others(plan, headline(site.methods), begin_s))


def _beside_others(plan: ChainPlan, chosen: str, begin_s: int) -> Iterator[tuple[ChainCase, ...]]:
    """Without chains, then by number, mode and method, and with a site's bound."""

    def chains(mode: Mode, method: str, count: int, most_ahead: int = MOST_AHEAD) -> ChainCase:
        return ChainCase(
            begin_s=begin_s,
            nodes=plan.others_nodes,
            mode=mode,
            method=method,
            count=count,
            most_ahead=most_ahead,
            is_for_others=True,
        )

    yield (chains(plan.modes[0], REACTIVE, 0),)
    for count in filter(None, plan.others):
        yield tuple(chains(mode, REACTIVE, count) for mode in plan.modes)
        for mode in plan.modes:
            yield (chains(mode, chosen, count),)
            if mode is Mode.TRAIN:
                yield (chains(mode, chosen, count, plan.others_bound),)


def headline(methods: Sequence[ChainMethod]) -> str:
    """The first one named: chosen by who asked, not by results."""
    named = [method.name for method in methods if method.name not in (REACTIVE, ORACLE)]
    return (*named, REACTIVE)[0]

"""`mirage demo`: chains on a simulated, contended GPU cluster, without Mirage and with it."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.live import Live

from mirage.chain.progress import ChainProgress
from mirage.cli.table import console
from mirage.config import TRAINED, UNTRAINED, PolicyConfig
from mirage.demo.beside import MakePolicy, run_beside
from mirage.demo.show import clock, results_table, save_picture, screen, verdict
from mirage.errors import InputError
from mirage.models.shipped import shipped
from mirage.ports import Policy
from mirage.provision.chains.oracle import OraclePolicy
from mirage.provision.chains.run import CLUSTER, ChainsResult, RunView, Scenario
from mirage.provision.policies.goodput import Goodput
from mirage.provision.policies.registry import make_pair_policy
from slurm_sim import Simulator
from slurm_sim.errors import CoreMissing, NoSimulator
from slurm_sim.seconds import DAY_S, HOUR_S


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seed",
        type=int,
        default=Scenario.seed,
        help="of the other users' jobs (default %(default)s)",
    )
    parser.add_argument(
        "--nodes",
        type=_nodes,
        default=Scenario.link_nodes,
        metavar="N",
        help="nodes of a chain's jobs (default %(default)s)",
    )
    parser.add_argument(
        "--policy",
        choices=[p for p in dict.fromkeys((*UNTRAINED, *TRAINED)) if p != "reactive"],
        default=None,
        help="policy of the chains (default: goodput, the service's own for training chains)",
    )
    parser.add_argument(
        "--model",
        metavar="DIR",
        help=(
            "a trained model of the policy (default: the one that comes with Mirage, if there is"
            " one); none: without"
        ),
    )
    parser.add_argument(
        "--out", type=Path, default=Path("demo-out"), help="folder of the picture (%(default)s)"
    )
    parser.add_argument(
        "--json", action="store_true", help="output of the figures as JSON (docs/cli.md)"
    )


def _nodes(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 32:
        raise argparse.ArgumentTypeError(f"expected a number from 1 to 32, got {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    if issubclass(Simulator, NoSimulator):
        raise CoreMissing
    scenario = Scenario(seed=args.seed, link_nodes=args.nodes)
    chosen = _chosen(args.policy, args.model)  # what is wrong with it is said at once
    policies: list[MakePolicy] = [
        partial(_named, "reactive", None),
        partial(_named, args.policy, args.model),
        OraclePolicy,
    ]
    if not args.json:
        _make_folder(args.out)
        console.print(_introduction(scenario))
    rows = [
        RunView(policy=name, now_s=0, queued=0, chains=[])
        for name in ("reactive", chosen.name, "oracle")
    ]
    results = _run_shown(scenario, policies, rows, is_quiet=args.json)
    if args.json:
        print(
            json.dumps({result.policy: _figures(scenario, result) for result in results}, indent=2)
        )
        return 0
    _print_results(scenario, results, args.out)
    return 0


def _run_shown(
    scenario: Scenario, policies: Sequence[MakePolicy], rows: list[RunView], *, is_quiet: bool
) -> list[ChainsResult]:
    """Shows how far each run is: in a terminal all the time, elsewhere each simulated week."""
    is_live = console.is_terminal and not is_quiet
    live = Live(screen(scenario, rows), console=console, refresh_per_second=12)

    def watch(place: int, view: RunView) -> None:
        rows[place] = view
        if is_live:
            live.update(screen(scenario, rows))
        elif view.now_s % (7 * DAY_S) == 0:
            print(f"{view.policy}: {clock(view.now_s)}", file=sys.stderr, flush=True)

    with live if is_live else nullcontext():
        results = run_beside(scenario, policies, watch)
    if not (is_live or is_quiet):
        console.print(screen(scenario, rows))
    return results


def _print_results(scenario: Scenario, results: list[ChainsResult], out: Path) -> None:
    console.print(results_table(results))
    console.print(verdict(results))
    picture = out / "demo.png"
    save_picture(scenario, results, picture)
    console.print(f"Picture: {picture}")
    console.print("On your own cluster's history: mirage assess --quick --out assessment")


def _named(name: str | None, model: str | None, _: Simulator) -> Policy:
    return _chosen(name, model)


def _chosen(name: str | None, model: str | None) -> Policy:
    """The policy of the chains; without a name the one that training chains have by default."""
    if name is not None:
        return _policy(name, model)
    if model is not None:
        raise InputError("--model: name its policy with --policy")
    return Goodput(PolicyConfig().goodput)


def _policy(name: str, model: str | None) -> Policy:
    """A policy that weighs pairs, as it decides about chains with penalties of their own."""
    if model is None and name in TRAINED:
        folder = shipped(CLUSTER) / name
        model = str(folder) if folder.is_dir() else None
    return make_pair_policy(PolicyConfig(name=name, model="" if model in (None, "none") else model))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {folder}: can't be made: {error.strerror}") from error


def _introduction(scenario: Scenario) -> str:
    return (
        f"A simulated cluster, {CLUSTER}: {len(scenario.cluster.nodes)} nodes, kept busy by other"
        f" users (seed {scenario.seed}). {scenario.chains} training chains of"
        f" {scenario.limit_s // HOUR_S}-hour jobs on {scenario.link_nodes} nodes, for"
        f" {scenario.lasts_s // DAY_S} days each. reactive: without Mirage. oracle: knows the future."
    )


def _figures(scenario: Scenario, result: ChainsResult) -> dict[str, object]:
    chains = [_figures_of(progress) for progress in result.progress()]
    return {**_figures_of(result.total()), "seed": scenario.seed, "chains": chains}


def _figures_of(progress: ChainProgress) -> dict[str, object]:
    return {**asdict(progress), "goodput": progress.goodput}

"""`mirage demo`: a chain on a simulated, contended GPU cluster, once reactive and once with Mirage."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.live import Live

from mirage.cli.table import console
from mirage.config import TRAINED, UNTRAINED, PolicyConfig
from mirage.demo.run import CLUSTER, DemoProgress, DemoResult, Scenario, run_chains
from mirage.demo.show import results_table, save_picture, screen, verdict
from mirage.errors import InputError
from mirage.models.shipped import shipped
from mirage.ports import Policy
from mirage.provision.policies.registry import make_policy


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seed",
        type=int,
        default=Scenario.seed,
        help="of the other users' jobs (default %(default)s)",
    )
    parser.add_argument(
        "--segments", type=_segments, default=Scenario.segments, help="links (default %(default)s)"
    )
    parser.add_argument(
        "--policy",
        choices=[p for p in dict.fromkeys((*UNTRAINED, *TRAINED)) if p != "reactive"],
        default=PolicyConfig.name,
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


def _segments(text: str) -> int:
    if not text.isdecimal() or not 2 <= int(text) <= 50:
        raise argparse.ArgumentTypeError(f"expected a number from 2 to 50, got {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    scenario = Scenario(seed=args.seed, segments=args.segments)
    policies = [_policy("reactive", None), _policy(args.policy, args.model)]
    if not args.json:
        _make_folder(args.out)
    rows: list[DemoProgress] = []
    results: list[DemoResult] = []
    if not args.json:
        console.print(_introduction(scenario))
    live = Live(console=console, refresh_per_second=12, transient=False)
    show = console.is_terminal and not args.json

    def watch(progress: DemoProgress) -> None:
        rows[len(results) :] = [progress]
        if show:
            live.update(screen(scenario, rows))

    if show:
        live.start()
    try:
        for policy in policies:
            results.append(run_chains(scenario, policy, watch))
    finally:
        if show:
            live.stop()
    if args.json:
        print(
            json.dumps({result.policy: _figures(scenario, result) for result in results}, indent=2)
        )
        return 0
    if not show:
        console.print(screen(scenario, rows))
    console.print(results_table(results))
    console.print(verdict(results))
    picture = args.out / "demo.png"
    save_picture(scenario, results, picture)
    console.print(f"Picture: {picture}")
    return 0


def _policy(name: str, model: str | None) -> Policy:
    if model is None and name in TRAINED:
        folder = shipped(CLUSTER) / name
        model = str(folder) if folder.is_dir() else None
    return make_policy(PolicyConfig(name=name, model="" if model in (None, "none") else model))


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {folder}: can't be made: {error.strerror}") from error


def _introduction(scenario: Scenario) -> str:
    chains = (
        f"{scenario.chains} chains of {scenario.segments} links, each {scenario.limit_s // 3600} h"
    )
    return (
        f"A simulated cluster, {CLUSTER}: {len(scenario.cluster.nodes)} nodes, kept busy by other"
        f" users (seed {scenario.seed}). {chains} on {scenario.link_nodes} nodes, run twice:"
    )


def _figures(scenario: Scenario, result: DemoResult) -> dict[str, object]:
    links = [
        {
            "chain": handoff.link.chain_id,
            "segment": handoff.link.segment,
            "interruption_s": handoff.interruption_s,
            "overlap_s": handoff.overlap_s,
            "node_hours_wasted": handoff.node_hours_wasted,
        }
        for handoff in result.handoffs
    ]
    return {**result.totals(), "seed": scenario.seed, "segments": scenario.segments, "links": links}

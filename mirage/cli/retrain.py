"""`mirage retrain`: a new model from the site's own accounting, which replaces the one at work if
it is not worse.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from mirage.apps.places import DEFAULT_STORE, settled, state_folder
from mirage.cli.learning import (
    TerminalReporter,
    add_count,
    add_minutes,
    add_partition,
    add_seed,
    add_settings,
    add_workers,
    budget_s,
    sizes,
)
from mirage.cli.signals import ending_on_sigterm
from mirage.cli.table import console
from mirage.config import TRAINED, Config
from mirage.config_sources import SITE_FILE, is_there, load, named_file, user_file
from mirage.errors import InputError
from mirage.models.versions import Versions
from mirage.user.service_check import default_agent_store

if TYPE_CHECKING:
    from mirage.apps.retraining import RetrainPlan, RetrainResult
    from mirage.provision.evaluation.verdict import ModelVerdict

Json = dict[str, Any]

KEPT_EXIT = 3
"""The exit code where all went well and the model at work stays."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "Exit codes: 0 the new model is at work (or, with --rollback, the one before), 3 the"
        " current one stays since the new one is worse; 1 and 2 as for every verb, and then nothing"
        " has changed either."
    )
    _add_input(parser.add_argument_group("input"))
    _add_episodes(parser.add_argument_group("episodes (simulated pairs of jobs)"))
    _add_training(parser.add_argument_group("training"))
    group = parser.add_argument_group("output")
    group.add_argument(
        "--rollback",
        action="store_true",
        help="return to the model before the current one, without a training",
    )
    group.add_argument("--json", action="store_true", help="print the result as JSON (docs/cli.md)")


def _add_input(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=(
            "configuration of the service: policy.name is the method, policy.model the model's"
            " place (default of the latter: models/NAME beside the store)"
        ),
    )
    add_count(group, "--days", 180, "days of accounting records to learn from")
    group.add_argument(
        "--cluster",
        type=Path,
        metavar="FILE",
        help=(
            "description of the cluster: a .toml file, otherwise a slurm.conf (default: asked of"
            " slurmctld)"
        ),
    )
    add_partition(group, "the current model's, or the one with most node-hours")


def _add_episodes(group: argparse._ArgumentGroup) -> None:
    add_count(group, "--episodes", 684, "number of training episodes")
    add_count(group, "--judged", 200, "highest number of episodes that compare the two models")
    group.add_argument(
        "--nodes",
        type=sizes,
        default=(1,),
        metavar="K[,K]",
        help="sizes of the compared pairs: nodes of each of the two jobs (default: 1)",
    )
    add_workers(group)


def _add_training(group: argparse._ArgumentGroup) -> None:
    add_settings(group, "the method")
    add_minutes(group, "episodes and training")
    add_seed(group, "the episodes, of the training and of the intervals")


def run(args: argparse.Namespace) -> int:
    usual = SITE_FILE if named_file(args.config) or is_there(SITE_FILE) else user_file()
    default_store = DEFAULT_STORE if usual == SITE_FILE else default_agent_store()
    config = settled(load(named_file(args.config), usual).config, default_store)
    versions = Versions(_link(config, default_store))
    with ending_on_sigterm(), versions.locked() as work:
        if args.rollback:
            target = versions.roll_back()
            _tell(
                args, {"action": "rolled back", "to": target}, f"{versions.link} is {target} again."
            )
            return 0
        from mirage.apps.retraining import retrain

        with TerminalReporter() as reporter:
            result = retrain(_plan(args, config), versions, work, reporter)
        return _show(args, result, versions, bool(config.policy.model))


def _link(config: Config, default_store: str) -> Path:
    policy = config.policy
    if policy.name not in TRAINED:
        raise InputError(
            f"policy.name is {policy.name!r}, which does not learn; there is nothing to train."
        )
    return Path(
        policy.model or state_folder(config, default_store) / "models" / policy.name
    ).absolute()


def _plan(args: argparse.Namespace, config: Config) -> RetrainPlan:
    from mirage.apps.retraining import RetrainPlan

    return RetrainPlan(
        method=config.policy.name,
        slurm=config.cluster,
        days=args.days,
        cluster=args.cluster,
        partition=args.partition,
        episodes=args.episodes,
        judged=args.judged,
        nodes=args.nodes,
        settings=tuple(args.set),
        at_most_s=budget_s(args),
        seed=args.seed,
        workers=args.workers,
    )


def _show(
    args: argparse.Namespace, result: RetrainResult, versions: Versions, is_named: bool
) -> int:
    """``is_named``: the configuration names the model's place. Returns the exit code."""
    from mirage.provision.evaluation.verdict import RULE

    found = result.verdict
    if not args.json:
        console.print(_table(found, result.against))
        console.print(escape(f"Rule: {RULE}."))
    at_work = "It is at work now." if is_named else _how_to_use(versions.link)
    stays = at_work if found.takes_over else "Nothing was changed."
    _tell(args, result.record, f"{versions.link}: {found.why}. {stays}")
    return 0 if found.takes_over else KEPT_EXIT


def _how_to_use(link: Path) -> str:
    return (
        f'The service uses it once its configuration has policy.model = "{link}" and it was'
        " reloaded."
    )


def _table(found: ModelVerdict, against: str) -> Table:
    title = f"new minus {against}, {found.episodes} pairs: hours, with 95 % intervals"
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    for name in ("nodes", "weights", "interruption", "overlap", "penalty"):
        table.add_column(name, justify="right")
    for row in found.differences:
        figures = (row.interruption_h, row.overlap_h, row.penalty_h)
        table.add_row(str(row.nodes), row.penalties, *map(_figure, figures))
    return table


def _figure(figure: Any) -> str:
    between = "" if figure.low is None else f" ({figure.low:+.2f} to {figure.high:+.2f})"
    return f"{figure.value:+.2f}{between}"


def _tell(args: argparse.Namespace, record: Json, words: str) -> None:
    if args.json:
        print(json.dumps(record, indent=2))
    else:
        console.print(escape(words))

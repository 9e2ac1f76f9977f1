"""`mirage retrain`: a new model from the site's own accounting, which replaces the one at work if
it is not worse.
"""

from __future__ import annotations

import argparse
import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from mirage.chain.durations import format_duration
from mirage.cli.daemon import DEFAULT_STORE
from mirage.cli.learning import (
    TerminalReporter,
    add_count,
    add_minutes,
    add_partition,
    add_seed,
    add_settings,
    add_workers,
    budget_s,
    errors,
    sizes,
)
from mirage.cli.serve import settled, state_folder
from mirage.cli.signals import ending_on_sigterm
from mirage.cli.table import console
from mirage.config import TRAINED, Config
from mirage.config_sources import SITE_FILE, is_there, load, named_file, user_file
from mirage.errors import InputError, MirageError
from mirage.models.folder import check_folder, read_recipe
from mirage.models.recipe import Recipe
from mirage.models.versions import FAILED, KEPT_OLD, MODEL, Versions
from mirage.provision.learn.about import ProvisionAbout
from mirage.slurm.records import write_history
from mirage.slurm.runner import Runner
from mirage.user.service_check import default_agent_store
from slurm_sim.seconds import DAY_S, HOUR_S

if TYPE_CHECKING:
    from mirage.provision.evaluation import EvaluationPlan
    from mirage.provision.evaluation.verdict import ModelVerdict
    from mirage.provision.learn import TrainingPlan
    from slurm_sim.config import ClusterConfig

Json = dict[str, Any]

KEPT_EXIT = 3
"""The exit code where all went well and the model at work stays."""
SACCT_TIMEOUT_S = 600
"""For a week of records: slurmdbd may be busy, and nobody waits."""
LONGEST_PAIR_S = 48 * HOUR_S
EVERY_S = 4 * HOUR_S
JUDGED = 0.2
"""Of the history: the last part, which `mirage train` does not learn from."""
NEW, CURRENT, UNTRAINED = "new", "current", "recent-quantile"


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
        try:
            return _retrained(args, config, versions, work)
        except (MirageError, OSError, KeyboardInterrupt) as error:
            with suppress(OSError):
                versions.note(FAILED, {"why": str(error) or "interrupted"})
            raise


def _link(config: Config, default_store: str) -> Path:
    policy = config.policy
    if policy.name not in TRAINED:
        raise InputError(
            f"policy.name is {policy.name!r}, which does not learn; there is nothing to train."
        )
    return Path(
        policy.model or state_folder(config, default_store) / "models" / policy.name
    ).absolute()


@dataclass(frozen=True)
class _SiteHistory:
    """What the accounting of the site gives."""

    trace: Path
    cluster: Path
    jobs: int
    partition: str
    limit_s: int


def _retrained(args: argparse.Namespace, config: Config, versions: Versions, work: Path) -> int:
    from mirage.provision.evaluation import evaluate
    from mirage.provision.evaluation.run import KEPT
    from mirage.provision.evaluation.verdict import RULE, verdict
    from mirage.provision.learn import train

    fresh = work / "version"
    fresh.mkdir()
    current = _current(versions, config.policy.name)
    history = _site_history(args, config, current, work, fresh)
    with TerminalReporter() as reporter:
        train(_training_plan(args, config.policy.name, history, fresh / MODEL), reporter)
        about = ProvisionAbout.of(read_recipe(fresh / MODEL), fresh / MODEL)
        against = CURRENT if current else UNTRAINED
        link = versions.link if current else None
        comparison = evaluate(
            _evaluation_plan(args, history, about, fresh, link), reporter
        ).comparison
    (fresh / KEPT).unlink(missing_ok=True)
    found = verdict(comparison, NEW, against)
    record = {
        "method": config.policy.name,
        "jobs": history.jobs,
        "learnt_from": about.train_s,
        "judged_on": about.validation_s,
        "against": against,
        "saw_these": any(
            method.saw_these for method in comparison.methods if method.name == CURRENT
        ),
    } | found.as_json()
    if found.takes_over:
        record |= {"action": "replaced", "to": versions.install(fresh, record).name}
    else:
        versions.note(KEPT_OLD, record)
        record |= {"action": "kept"}
    if not args.json:
        console.print(_table(found, against))
        console.print(escape(f"Rule: {RULE}."))
    at_work = "It is at work now." if config.policy.model else _how_to_use(versions.link)
    stays = at_work if found.takes_over else "Nothing was changed."
    _tell(args, record, f"{versions.link}: {found.why}. {stays}")
    return 0 if found.takes_over else KEPT_EXIT


def _how_to_use(link: Path) -> str:
    return (
        f'The service uses it once its configuration has policy.model = "{link}" and it was'
        " reloaded."
    )


def _current(versions: Versions, method: str) -> Recipe | None:
    """The recipe of the model at work. None: there is none, or none that could be judged."""
    if not versions.link.exists():
        return None
    try:
        return check_folder(versions.link.resolve(), system=ProvisionAbout.SYSTEM, method=method)
    except InputError as error:
        errors.print(
            escape(
                f"note: the current model can't be judged, so {UNTRAINED} stands in for it: {error}"
            )
        )
        return None


def _site_history(
    args: argparse.Namespace, config: Config, current: Recipe | None, work: Path, fresh: Path
) -> _SiteHistory:
    """Reads accounting, and how slurmctld describes the cluster. Raises MirageError."""
    import numpy as np

    from mirage.figures.resample import FEWEST_BLOCKS, SHORTEST_BLOCK_S
    from mirage.provision.learn.accounting import import_records
    from mirage.provision.learn.cautions import choose_partition
    from mirage.provision.learn.joblog import log_of
    from mirage.slurm.survey import Survey
    from slurm_sim.clusters import read_cluster, write_toml
    from slurm_sim.errors import SimulationError
    from slurm_sim.traces import write_trace

    end_s = int(time.time())
    runner = Runner(
        bin_dir=config.cluster.bin_dir, timeout_s=max(config.cluster.timeout_s, SACCT_TIMEOUT_S)
    )
    records, trace, cluster = work / "sacct.txt", work / "sacct.csv.gz", fresh / "cluster.toml"
    try:
        described = read_cluster(args.cluster).cluster if args.cluster else Survey(runner).cluster()
        cluster.write_text(write_toml(described), encoding="utf-8")
    except SimulationError as error:
        raise InputError(str(error)) from error
    write_history(runner, end_s - args.days * DAY_S, end_s, records)
    history, notes = import_records(records)
    for note in notes:
        errors.print(escape(note))
    write_trace(history, trace)
    jobs, span_s = len(history), float(np.ptp(history.column("submit")))
    wanted = args.partition or _partition(current, described)
    partition, _ = choose_partition(log_of(history, described), described, wanted)
    limit_s = _longest(described, partition)
    needed_s = 2 * limit_s + FEWEST_BLOCKS * SHORTEST_BLOCK_S
    if span_s * JUDGED < needed_s:
        raise MirageError(
            f"accounting has jobs of {format_duration(int(span_s))}; a model for pairs of"
            f" {format_duration(limit_s)} each can be judged with"
            f" {format_duration(int(needed_s / JUDGED))}. Give more --days, or wait until there"
            " are."
        )
    return _SiteHistory(trace, cluster, jobs, partition, limit_s)


def _partition(current: Recipe | None, cluster: ClusterConfig) -> str | None:
    """That of the current model, if this cluster has it."""
    course = current.options.get("course", {}) if current else {}
    wanted = course.get("partition") if isinstance(course, dict) else None
    return wanted if wanted in {partition.name for partition in cluster.partitions} else None


def _longest(cluster: ClusterConfig, partition: str) -> int:
    """Time limit of the pairs to judge by: 48 h as in the paper, or the most there is."""
    chosen = next(item for item in cluster.partitions if item.name == partition)
    return min(LONGEST_PAIR_S, chosen.max_time_s or LONGEST_PAIR_S)


def _training_plan(
    args: argparse.Namespace, method: str, history: _SiteHistory, out: Path
) -> TrainingPlan:
    from mirage.provision.learn import TrainingPlan

    return TrainingPlan(
        trace=history.trace,
        cluster=history.cluster,
        methods=(method,),
        out=out,
        partition=history.partition,
        episodes=args.episodes,
        validation_episodes=args.judged,
        settings=tuple(args.set),
        at_most_s=budget_s(args),
        seed=args.seed,
        workers=args.workers,
    )


def _evaluation_plan(
    args: argparse.Namespace,
    history: _SiteHistory,
    about: ProvisionAbout,
    fresh: Path,
    current: Path | None,
) -> EvaluationPlan:
    """All pairs begin in the part that was not learnt from, and end in it if they don't wait."""
    from mirage.provision.evaluation import EvaluationPlan

    begin_s, end_s = about.validation_s
    span_s = end_s - begin_s - 2 * history.limit_s
    every_s = max(EVERY_S, span_s // args.judged)
    other = f"{CURRENT}={current.resolve()}" if current else UNTRAINED
    return EvaluationPlan(
        trace=history.trace,
        cluster=history.cluster,
        methods=(f"{NEW}={fresh / MODEL}", other),
        out=fresh,
        start_s=begin_s,
        episodes=max(1, span_s // every_s),
        every_s=every_s,
        nodes=args.nodes,
        limit_s=history.limit_s,
        partition=history.partition,
        seed=args.seed,
        workers=args.workers,
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

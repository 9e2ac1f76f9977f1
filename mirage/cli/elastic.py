"""`mirage elastic`: policies for elastic training jobs (docs/elastic.md), and the jobs themselves
(docs/elastic-jobs.md).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from mirage.cli import elastic_jobs
from mirage.cli.groups import add_verbs, announcer, errors, needs
from mirage.cli.learning import add_minutes, budget_s, telling_what_is_kept, words_of
from mirage.cli.table import console
from mirage.rl.budget import at_most
from slurm_sim.cli.arguments import positive

if TYPE_CHECKING:
    from mirage.elastic.evaluation import ElasticResult
    from mirage.elastic.learn.training import ElasticPlan
    from mirage.elastic.model import ElasticModel
    from mirage.rl.fit import Progress


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The verbs of the group."""
    add_verbs(
        parser,
        (
            (
                "train",
                _add_train,
                _train,
                "the policy of DL2, from a scheduler's decisions, then from rewards",
            ),
            (
                "evaluate",
                _add_evaluate,
                _evaluate,
                "policies against schedulers on the same jobs: results.json, report.html",
            ),
            *elastic_jobs.VERBS,
        ),
    )


def run(args: argparse.Namespace) -> int:
    """Runs a verb of the group."""
    return int(args.act(args))


def _add_setting(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--setting",
        default="small",
        metavar="NAME",
        help=(
            "small, small-known, large, large-known, pollux, or a .toml file (default: %(default)s)"
        ),
    )
    group.add_argument(
        "--seed",
        type=positive,
        default=1,
        metavar="N",
        help="seed of all random draws, from 1 (default: %(default)s)",
    )


def _add_train(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("training")
    _add_setting(group)
    group.add_argument(
        "--teacher",
        default="drf",
        metavar="NAME|FILE",
        help=(
            "scheduler that the policy copies first, or the file of a recorded schedule"
            " (default: %(default)s)"
        ),
    )
    group.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="option of the training, as in recipe.toml; may be given several times",
    )
    group.add_argument(
        "--from",
        dest="start",
        type=Path,
        metavar="DIR",
        help=(
            "model folder whose networks the training begins with (default: untrained"
            " ones); with --set phases=online it is not asked to copy a teacher again"
        ),
    )
    group.add_argument(
        "--clusters",
        type=positive,
        default=0,
        metavar="N",
        help="number of clusters of a federated training (default: not federated)",
    )
    add_minutes(group, "the training")
    out = parser.add_argument_group("output")
    out.add_argument("--out", required=True, type=Path, metavar="DIR", help="model folder")


def _train(args: argparse.Namespace) -> int:
    needs("elastic", "torch")
    from mirage.elastic.learn.training import save_result, train
    from mirage.models.folder import check_replaceable

    check_replaceable(args.out)
    plan = _plan(args)
    with telling_what_is_kept(lambda: "nothing is kept"), at_most(budget_s(args)):
        result = train(plan, _show_progress)
    save_result(args.out, result)
    scores = ", ".join(f"{name} {value:.2f}" for name, value in result.scores.items())
    errors.print(escape(f"{args.out}: completion time in slots: {scores} ({result.wall_s:.0f} s)"))
    if result.interrupted:
        errors.print(escape(f"interrupted; {args.out} holds the best policy until then."))
        return 130
    errors.print(escape(f"Next: mirage elastic evaluate --model {args.out} --out results"))
    return 0


def _plan(args: argparse.Namespace) -> ElasticPlan:
    """Raises InputError."""
    from mirage.elastic.learn.training import ElasticPlan, TrainingOptions
    from mirage.elastic.model import load_model
    from mirage.elastic.schedule_log import read_log
    from mirage.elastic.settings import read_setting
    from mirage.rl.options import with_settings

    setting = read_setting(args.setting)
    teacher = Path(args.teacher)
    types = [kind.name for kind in setting.world.types]
    return ElasticPlan(
        setting=setting,
        teacher=teacher.stem,
        log=read_log(teacher, types) if teacher.is_file() else None,
        seed=args.seed,
        options=with_settings(TrainingOptions(), args.set),
        start=load_model(args.start) if args.start else None,
        clusters=args.clusters,
    )


def _show_progress(row: Progress) -> None:
    if row.score == row.score:  # not NaN
        errors.print(f"{row.stage} {row.round}/{row.rounds}: {row.score:.3f} slots")


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("comparison")
    group.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="[LABEL=]DIR",
        help="model folder; may be given several times",
    )
    group.add_argument(
        "--against",
        type=words_of,
        metavar="NAME[,NAME]",
        help="schedulers without learning (default: the setting's)",
    )
    group.add_argument(
        "--sequences",
        type=positive,
        default=10,
        metavar="N",
        help="number of job sequences (default: %(default)s)",
    )
    _add_setting(group)
    out = parser.add_argument_group("output")
    out.add_argument(
        "--out",
        required=True,
        type=Path,
        metavar="DIR",
        help="folder of results.json and report.html",
    )
    out.add_argument("--json", action="store_true", help="print results.json")
    out.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="file for the schedule of the first --against, for train --teacher FILE",
    )
    out.add_argument(
        "--no-figures",
        action="store_true",
        help="only the comparison, without figures 13 and 14, which take seven further ones",
    )


def _evaluate(args: argparse.Namespace) -> int:
    needs("elastic", "torch")
    from mirage.elastic.evaluation import ElasticEvaluationPlan, evaluate, record_first
    from mirage.elastic.report import headline, write_report
    from mirage.elastic.settings import read_setting
    from mirage.elastic.sweeps import figures_section, sweeps, sweeps_record

    models, setting = _models(args.model), read_setting(args.setting)
    plan = ElasticEvaluationPlan(
        setting=setting,
        models=models,
        against=args.against or setting.against,
        sequences=args.sequences,
        seed=args.seed,
    )
    result = evaluate(plan, announcer())
    found = [] if args.no_figures else sweeps(plan)
    if found:
        result.record["figures"] = sweeps_record(found)
    write_report(args.out, result, [figures_section(plan, found)])
    if args.record:
        record_first(plan, args.record)
    if args.json:
        print(json.dumps(result.record, indent=1))
    else:
        console.print(_table(result))
        console.print(f"[bold]{escape(headline(result))}.[/]")
        console.print(f"{escape(str(args.out))}: report.html, results.json")
    return 0


def _models(words: list[str]) -> dict[str, tuple[Path, ElasticModel]]:
    """By label, of `[LABEL=]DIR` each. Raises InputError."""
    from mirage.elastic.model import load_model

    models = {}
    for word in words:
        label, equals, folder = word.partition("=")
        path = Path(folder if equals else word)
        models[label if equals else path.resolve().name] = (path, load_model(path))
    return models


def _table(result: ElasticResult) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("scheduler")
    reference = result.record["reference"]
    for name in ("completion, slots", "95 % interval", f"ratio to {reference}", "95 % of jobs"):
        table.add_column(name, justify="right")
    for name, row in result.record["schedulers"].items():
        low, high = row["interval"] or (None, None)
        interval = f"{low:.2f} to {high:.2f}" if low is not None else "-"
        ratio = row["ratio_to"].get(reference)
        words = f"{ratio['value']:.3f}" if ratio else "1.000"
        most = f"{row['p95_jct_slots']:.2f}"
        table.add_row(escape(name), f"{row['mean_jct_slots']:.2f}", interval, words, most)
    table.add_row("lower bound", f"{result.record['lower_bound_slots']:.2f}", "", "", "")
    return table

"""`mirage place train|evaluate|advise|run`: which GPUs for which job (docs/placement.md)."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from mirage.cli import place_live
from mirage.cli.groups import add_verbs, announcer, errors, needs
from mirage.cli.learning import add_minutes, budget_s, telling_what_is_kept, words_of
from mirage.figures.words import several
from mirage.models.recipe import RECIPE
from mirage.rl.budget import at_most
from slurm_sim.cli.arguments import positive

if TYPE_CHECKING:
    from mirage.placement.simulated.setting import PlacementSetting


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_verbs(
        parser,
        (
            ("train", _add_train, _train, "an agent on simulated jobs, as a model folder"),
            (
                "evaluate",
                _add_evaluate,
                _evaluate,
                "schedulers on the same simulated jobs: results.json, report.html",
            ),
            (
                "advise",
                place_live.add_advise,
                place_live.advise,
                "where the GPU jobs run now, which share links, and which moves help; does nothing",
            ),
            (
                "run",
                place_live.add_run,
                place_live.run,
                "a service that moves jobs whose owners allow it, at their checkpoints",
            ),
        ),
    )


def run(args: argparse.Namespace) -> int:
    return int(args.act(args))


def _add_setting(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("simulated cluster and jobs")
    _add_workload(group)
    _add_episode(group)


def _add_workload(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--speeds",
        choices=("paper", "pollux"),
        default="paper",
        help=(
            "speeds of jobs by the paper's equations, or as Pollux measured them on four nodes of"
            " four GPUs, whatever --topology says (default %(default)s)"
        ),
    )
    group.add_argument(
        "--topology",
        default="2,2,2,2",
        metavar="N,N,...",
        help="machines of each rack, with 4 GPUs each (default %(default)s)",
    )
    group.add_argument(
        "--offered-load",
        type=float,
        metavar="SHARE",
        help=(
            "arriving jobs as a share of what best fit can carry, such as 0.7 (default: the paper's"
            " one job a step, an overload)"
        ),
    )
    group.add_argument(
        "--jobs", type=positive, default=400, metavar="N", help="jobs a sequence (default 400)"
    )
    group.add_argument(
        "--most-gpus",
        type=positive,
        default=12,
        metavar="N",
        help="greatest request; half of the jobs ask for up to 7/12 of it (default %(default)s)",
    )
    group.add_argument(
        "--total-work",
        choices=("cells", "alone"),
        default="cells",
        help=(
            "work of a job: its cells in the paper's image (equation 11), or its length when it is"
            " alone (default %(default)s)"
        ),
    )


def _add_episode(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--steps",
        type=positive,
        default=1000,
        metavar="N",
        help="time steps of an episode at most (default %(default)s)",
    )
    group.add_argument(
        "--slots",
        type=positive,
        default=10,
        metavar="N",
        help="jobs that a scheduler chooses among (default %(default)s)",
    )
    group.add_argument(
        "--price",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="of a pause, of a restart, and of a move each (default %(default)s)",
    )
    group.add_argument(
        "--seed", type=int, default=1, help="seed of all random draws (default %(default)s)"
    )


def _setting(args: argparse.Namespace) -> PlacementSetting:
    from mirage.placement.simulated.jobs import PlacementWorkload
    from mirage.placement.simulated.minsky import parse_racks
    from mirage.placement.simulated.setting import PlacementSetting
    from mirage.placement.simulated.world import Price

    few = max(1, args.most_gpus * 7 // 12)
    price = Price(pause_s=args.price, restart_s=args.price, move_s=args.price)
    return PlacementSetting(
        racks=parse_racks(args.topology),
        speeds=args.speeds,
        load=args.offered_load,
        workload=PlacementWorkload(
            jobs=args.jobs,
            total_work=args.total_work,
            few_gpus=(1, few),
            many_gpus=(min(few + 1, args.most_gpus), args.most_gpus),
        ),
        slots=args.slots,
        most_steps=args.steps,
        price=price,
    )


def _add_train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="model folder to write"
    )
    parser.add_argument(
        "--loop",
        choices=("static", "stream"),
        default="static",
        help=("training sequences: the same, or new ones every few epochs (default %(default)s)"),
    )
    add_minutes(parser, "the training (default: until all epochs are done)")
    parser.add_argument(
        "--set",
        dest="settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="an option of the training, as in epochs=2",
    )
    _add_setting(parser)


def _train(args: argparse.Namespace) -> int:
    needs("placement", "networkx", "torch")
    from mirage.models.folder import check_replaceable

    check_replaceable(args.out)
    errors.print("training: the first figures come after some minutes")

    def kept() -> str:
        is_there = (args.out / RECIPE).exists()
        return f"{args.out} holds the network of the last line" if is_there else "nothing is kept"

    with telling_what_is_kept(kept), at_most(budget_s(args)):
        _train_paper(args)
    print(args.out)
    errors.print(escape(f"Next: mirage place evaluate --model {args.out} --out results"))
    return 0


def _train_paper(args: argparse.Namespace) -> None:
    from mirage.placement.simulated.learning import PaperOptions, Training, train_paper
    from mirage.placement.simulated.model import PaperModel, save_model
    from mirage.rl.options import with_settings

    setting = _setting(args)
    options = with_settings(PaperOptions(loop=args.loop), args.settings)

    def report(training: Training) -> None:
        model = PaperModel(training.network, training.curve)
        save_model(args.out, model, setting, options, seed=args.seed)
        point = training.curve[-1]
        errors.print(
            f"{several(point.sequences, 'sequence')}, {point.seconds:.0f} s:"
            f" mean reward {point.test_reward:,.0f}, mean slowdown {point.test_slowdown:.2f} (1: no job waits)"
        )

    train_paper(setting, options, seed=args.seed, report=report)


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="model folder of an agent (default: rules only)"
    )
    parser.add_argument(
        "--against",
        type=words_of,
        default=(
            *("random", "sjf", "tetris", "best-fit", "srtf", "las"),
            *("relative-gain", "srtf-elastic", "search", "search-as-asked"),
        ),
        metavar="NAME,...",
        help=(
            "other schedulers: random, sjf, tetris, best-fit, srtf, las, greedy, greedy-as-asked,"
            " relative-gain, srtf-elastic, search, search-as-asked (default: all but the greedy ones, which are slow)"
        ),
    )
    parser.add_argument(
        "--sequences",
        type=positive,
        default=20,
        metavar="N",
        help="test sequences (default %(default)s)",
    )
    parser.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="folder for the result"
    )
    _add_setting(parser)


def _evaluate(args: argparse.Namespace) -> int:
    needs("placement", "networkx", "torch")
    from mirage.placement.simulated.evaluation import PlacementPlan, evaluate, gantt
    from mirage.placement.simulated.model import read_model, trained_setting
    from mirage.placement.simulated.report import save
    from mirage.placement.simulated.schedulers import agent_of, scheduler

    started_s = time.time()
    others = [scheduler(name, seed=args.seed) for name in args.against]
    setting = _setting(args)
    model = read_model(args.model) if args.model else None
    agents = [agent_of(model, setting)] if model else []
    plan = PlacementPlan(
        setting=setting, placers=[*agents, *others], sequences=args.sequences, seed=args.seed
    )
    results = evaluate(plan, announcer())
    facts = setting.facts()
    trained = trained_setting(args.model) if args.model else {}
    is_same = all(facts.get(name) == value for name, value in trained.items())
    results |= {
        "agent": plan.placers[0].name,
        "levels": list(args.against) if is_same else [],
        "curve": [vars(point) for point in model.curve] if model else [],
        "gantt": {each.name: gantt(each, setting, args.seed) for each in plan.placers},
        "provenance": _provenance(args, started_s),
    }
    for path in save(results, args.out):
        print(path)
    return 0


def _provenance(args: argparse.Namespace, started_s: float) -> dict[str, Any]:
    from mirage.figures.provenance import file_record, provenance

    words = ["mirage", "place", "evaluate"]
    for name, value in vars(args).items():
        if name in ("run", "act", "verb", "subverb") or value is None:
            continue
        text = ",".join(value) if isinstance(value, tuple) else str(value)
        words += ["--" + name.replace("_", "-"), text]
    return provenance(
        words,
        inputs={"model": file_record(args.model / "recipe.toml")} if args.model else {},
        split={"trained": "sequences of part `train`", "evaluated": "of part `test`"},
        seed=args.seed,
        started_s=started_s,
        wall_s=time.time() - started_s,
    )

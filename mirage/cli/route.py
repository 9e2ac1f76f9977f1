"""`mirage route train|evaluate|prove|publish`: the agents that choose a partition (docs/routing.md)."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from rich.markup import escape

from mirage.cli.groups import add_verbs, announcer, errors, needs, seconds
from mirage.cli.learning import add_minutes, budget_s, telling_what_is_kept
from mirage.errors import InputError, MirageError
from mirage.rl.budget import at_most
from slurm_sim.cli.arguments import positive


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_verbs(
        parser,
        (
            ("train", _add_train, _train, "agents, one a partition, as a model folder"),
            (
                "evaluate",
                _add_evaluate,
                _evaluate,
                "agents against simple rules: a table, and results.json",
            ),
            ("prove", _add_prove, _prove, "agents on a site's own job history, before publishing"),
            (
                "publish",
                _add_publish,
                _publish,
                "the cluster's present state, and agents if there are some, for the plugin",
            ),
        ),
    )


def run(args: argparse.Namespace) -> int:
    return int(args.act(args))


def _add_lesson(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--flavors",
        type=Path,
        metavar="FILE",
        help="partitions and flavours, as TOML (default: the paper's)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of all random draws (default %(default)s)"
    )
    parser.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="folder for the result"
    )


def _add_train(parser: argparse.ArgumentParser) -> None:
    _add_lesson(parser)
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="T",
        help="job history on whose first part the agents are proven (default: bursts)",
    )
    parser.add_argument(
        "--lesson",
        choices=("streams", "paper"),
        default="streams",
        help=(
            "training data: streams of arrivals at all partitions, or the paper's episodes of five"
            " jobs (default %(default)s)"
        ),
    )
    parser.add_argument(
        "--episodes",
        type=positive,
        metavar="N",
        help="training episodes (default: 1000 for paper, 40 for streams)",
    )
    add_minutes(parser, "the training; margins and proof follow")


def _train(args: argparse.Namespace) -> int:
    needs("train", "torch")
    from mirage.models.folder import check_replaceable
    from mirage.routing.flavors import load_partitions
    from mirage.routing.model import save_model
    from mirage.routing.training import train_agents

    check_replaceable(args.out)
    began = time.monotonic()
    kinds = load_partitions(args.flavors)
    with telling_what_is_kept(lambda: "nothing is kept"), at_most(budget_s(args)):
        result = train_agents(
            args.lesson,
            kinds,
            episodes=args.episodes,
            trace=args.trace,
            seed=args.seed,
            report=announcer(),
        )
    save_model(args.out, result.agents, result.lesson, args.seed, result.facts)
    errors.print(f"{args.out}: {len(result.agents)} agents ({time.monotonic() - began:.0f} s)")
    if verdict := result.facts.get("verdict"):
        errors.print(escape(f"{result.facts['proof']}: {verdict}"))
    errors.print(
        escape(f"Next: mirage route prove --model {args.out} --trace FILE, on your own history")
    )
    return 0


def _add_evaluate(parser: argparse.ArgumentParser) -> None:
    _add_lesson(parser)
    parser.add_argument(
        "--trace",
        type=Path,
        nargs="+",
        default=[],
        metavar="T",
        help="job histories whose last parts give arrivals, beside bursts",
    )
    parser.add_argument(
        "--model",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="model folders with agents for the streams, one a training seed (default: rules alone)",
    )
    parser.add_argument(
        "--episodes",
        type=positive,
        default=1000,
        help="training episodes of the paper's part (default %(default)s)",
    )
    parser.add_argument(
        "--lesson",
        choices=("streams", "paper"),
        help="what is judged: streams, or the paper's episodes (default: both)",
    )
    _add_judged(parser)


def _add_judged(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--judged", type=positive, default=100, help="evaluation episodes (default %(default)s)"
    )
    parser.add_argument(
        "--streams",
        type=positive,
        default=20,
        help="evaluation streams of each kind (default %(default)s)",
    )
    parser.add_argument(
        "--known",
        type=positive,
        default=4,
        help="of these, streams also routed knowing what comes, which is slow (default %(default)s)",
    )


def _evaluate(args: argparse.Namespace) -> int:
    needs("train", "torch")
    from mirage.routing.evaluate import Plan, evaluate
    from mirage.routing.flavors import load_partitions
    from mirage.routing.model import read_model
    from mirage.routing.report import save, tables

    started_s = time.time()
    kinds = load_partitions(args.flavors)
    teams = tuple(read_model(folder).agents for folder in args.model)
    plan = Plan(
        episodes=args.episodes,
        judged=args.judged,
        streams=args.streams,
        traces=tuple(args.trace),
        seed=args.seed,
        teams=teams,
        known=args.known,
        lessons=(args.lesson,) if args.lesson else ("paper", "streams"),
    )
    results = evaluate(kinds, plan, announcer())
    record = _provenance(args, started_s)
    for text in tables(results):
        print(text)
    for path in save(results | {"provenance": record}, args.out):
        errors.print(escape(str(path)))
    return 0


def _provenance(args: argparse.Namespace, started_s: float) -> dict[str, Any]:
    from mirage.figures.provenance import file_record, provenance

    files = [path for path in (args.flavors, *args.trace) if path]
    names = ("flavors", "lesson", "episodes", "judged", "streams", "known", "seed", "out")
    words: list[object] = ["mirage", "route", "evaluate"]
    for name in names:
        words += ["--" + name, getattr(args, name)] if getattr(args, name) else []
    for name in ("trace", "model"):
        words += ["--" + name, *getattr(args, name)] if getattr(args, name) else []
    return provenance(
        [str(word) for word in words],
        inputs={path.name: file_record(path) for path in files},
        split={"trained": "bursts", "evaluated": "other bursts, and the histories' last parts"},
        seed=args.seed,
        started_s=started_s,
        wall_s=time.time() - started_s,
    )


def _add_prove(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        required=True,
        type=Path,
        metavar="DIR",
        help="model folder of `mirage route train`; gets the proof",
    )
    parser.add_argument(
        "--trace", required=True, type=Path, metavar="T", help="job history of the site"
    )


def _prove(args: argparse.Namespace) -> int:
    from mirage.routing.proof import prove_on_history

    proof = prove_on_history(args.model, args.trace)
    errors.print(f"{args.trace}: mean completion {proof} of that by -p A,B")
    return 0


def _add_publish(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", type=Path, metavar="DIR", help="model folder of `mirage route train`"
    )
    parser.add_argument(
        "--partitions",
        default="",
        metavar="A,B",
        help="partitions to which jobs that name none may go (default: the agents')",
    )
    parser.add_argument(
        "--run",
        dest="folder",
        type=Path,
        default=Path("/run/mirage"),
        metavar="DIR",
        help="folder for the published files (default %(default)s)",
    )
    parser.add_argument(
        "--valid",
        type=seconds,
        default=120,
        metavar="D",
        help="age at which the plugin refuses the state (default 2min)",
    )
    parser.add_argument(
        "--every",
        type=seconds,
        metavar="D",
        help="time between two publications, as 60s or 2min (default: publish once)",
    )


def _refuse_unpublishable(args: argparse.Namespace) -> None:
    if not (args.model or args.partitions):
        raise InputError("give --partitions A,B, to which jobs may go, or --model DIR.")
    if args.every and args.every > args.valid:
        raise InputError(
            f"--every {args.every}: every state would be stale after --valid {args.valid} seconds."
        )


def _publish(args: argparse.Namespace) -> int:
    from mirage.daemon.scheduler import run_forever
    from mirage.provision.starts.learnt import Learnt
    from mirage.routing.publish import Publisher, agents_of
    from mirage.slurm.commands import CommandCluster
    from mirage.slurm.runner import Runner
    from mirage.slurm.survey import Survey
    from mirage.user.waits_folder import waits_folders

    _refuse_unpublishable(args)
    runner = Runner()
    cluster = CommandCluster(runner)
    publisher = Publisher(
        partitions=tuple(filter(None, args.partitions.split(","))),
        agents=agents_of(args.model or ""),
        run=args.folder,
        runner=runner,
        valid_s=args.valid,
        accounting=cluster.accounting,
        learned=Learnt(folders=waits_folders(), warn=errors.print).waits,
        describe=Survey(runner).cluster,
    )
    if not args.every:
        publisher.publish(cluster.snapshot())
        return 0

    def cycle() -> bool:
        try:
            publisher.publish(cluster.snapshot())
        except MirageError as error:
            errors.print(f"nothing published: {error}")
            return False
        return True

    run_forever(cycle, args.every)
    return 0

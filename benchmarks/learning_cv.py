"""Methods by cross-validation within the training time: five blocks, paired differences, intervals.

    python -m benchmarks.learning_cv --samples DIR --methods xgboost,transformer-law --than quantile [--seeds 1,2,3]
    python -m benchmarks.learning_cv --samples DIR --methods moe-law --set networks=1 --set shape.history=false

DIR is `mirage train --samples`'s. Each block of consecutive begins is judged by models of the
episodes that share no second with it; a head learns from DIR's online episodes, too. The validation
month is not looked at. With several seeds, means over them are compared, and each seed's regret
stands beside (`of_seeds`). `--set` changes an option of the methods (docs/learning.md), not of their
foundations, and makes a row of its own. The penalties of each method and seed, and what it forecasts, are kept in
DIR/cv under a checksum of the samples and options. A later call adds to them; after a change of the
code remove the folder. The summary goes to benchmarks/learning_cv.json.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kept import checksum, kept
from mirage.figures.resample import Blocks
from mirage.provision.learn.card import TASTES, choice, gates
from mirage.provision.learn.course import plain
from mirage.provision.learn.episode import Episode, Floats, Ints, Load, Vectors
from mirage.provision.learn.law import DURATIONS_S, Forecaster, Law
from mirage.provision.learn.method import TrainingData
from mirage.provision.learn.methods import METHODS
from mirage.provision.learn.mixture import Mixture, effective_experts, experts_a_state
from mirage.provision.learn.model import Model, States
from mirage.provision.learn.samples import Samples, apart
from mirage.rl.options import with_settings
from slurm_sim.seconds import HOUR_S

RESULT = Path("benchmarks/learning_cv.json")
BLOCKS = 5
LOADS = {
    "heavy": (Load.HEAVY,),
    "medium": (Load.MEDIUM,),
    "heavy and medium": (Load.HEAVY, Load.MEDIUM),
    "light": (Load.LIGHT,),
    "all": tuple(Load),
}
HELD_OUT = 0.2


@dataclass(frozen=True, kw_only=True)
class Case:
    """A method, by its default options or with some of them changed."""

    method: str
    settings: tuple[str, ...] = ()
    """As for `mirage train --set`."""

    @property
    def options(self) -> Any:
        return with_settings(METHODS[self.method].default_options(), self.settings)

    @property
    def foundation(self) -> str:
        """Empty: the method is no head."""
        return METHODS[self.method].foundation


def fitted(case: Case, learned: Samples, fresh: Samples | None, seed: int) -> Model:
    """A model of these episodes; a head's foundation is trained on the same. `fresh`: online
    episodes, for a head.
    """
    kind = METHODS[case.method]
    if not kind.stops_early:
        return kind.train(TrainingData(episodes=learned, seed=seed), case.options)
    episodes, stop_by = learned.hold_out(HELD_OUT, seed)
    data = TrainingData(episodes=episodes, held_out=stop_by, seed=seed)
    if kind.foundation:
        assert fresh is not None
        base = METHODS[kind.foundation].train(data)
        data = replace(data, base=base, fresh=fresh.apart_from(stop_by))
    return kind.train(data, case.options)


def has_points(folder: Path) -> Samples:
    """The episodes with a decision point."""
    return Samples.load(folder).those(lambda episode: len(episode) > 0)


def folds(samples: Samples) -> Iterator[tuple[Ints, Ints]]:
    """Of each block of consecutive begins: the numbers of its episodes, and of those apart from it."""
    order = np.argsort([each.begin_s for each in samples], kind="stable")
    numbers = {id(each): number for number, each in enumerate(samples)}
    block = np.arange(len(order)) * BLOCKS // len(order)
    for own in (order[block == number] for number in range(BLOCKS)):
        others = apart(samples.episodes, [samples[i] for i in own])
        yield np.sort(own), np.array([numbers[id(each)] for each in others], dtype=np.int64)


def penalties(case: Case, folder: Path, seed: int) -> Floats:
    """(tastes, episodes): hours at e_I + e_O = 1 of each episode, by a model that never saw its
    block.
    """
    found: Floats = results(case, folder, seed)["spent"]
    return found


def chances(case: Case, folder: Path, seed: int) -> list[Floats] | None:
    """Of each episode, (T, durations), the chances of longer waits, by a model that never saw its
    block. None: a method without a law.
    """
    found = results(case, folder, seed).get("chances")
    if found is None:
        return None
    edges = np.cumsum([len(each) for each in has_points(folder / "train")])[:-1]
    return np.split(found, edges)


def results(case: Case, folder: Path, seed: int) -> dict[str, Any]:
    """`spent`: see `penalties`. `chances`, (points, durations), of a method with a law. `experts`,
    (blocks, 2), of a mixture: how many share the work over a block that it never saw, and how many
    answer for one state.
    """
    return kept(kept_file(case, folder, seed), lambda: _judge(case, folder, seed))


def kept_file(case: Case, folder: Path, seed: int) -> Path:
    """Of the results of these samples by the present options."""
    parts = [folder / "train", *([folder / "online"] if case.foundation else [])]
    options = [case.options]
    if case.foundation:
        options.append(METHODS[case.foundation].default_options())
    settings = {"blocks": BLOCKS, "held_out": HELD_OUT, "options": list(map(plain, options))}
    return folder / "cv" / f"{case.method}-{seed}-{checksum(parts, settings)}.npz"


def _judge(case: Case, folder: Path, seed: int) -> dict[str, Any]:
    samples = has_points(folder / "train")
    online = has_points(folder / "online") if case.foundation else None
    found: dict[str, Any] = {"spent": np.empty((len(TASTES), len(samples)))}
    laws: dict[int, Vectors] = {}
    experts = []
    for own, others in folds(samples):
        learned = replace(samples, episodes=tuple(samples[i] for i in others))
        judged = [samples[i] for i in own]
        fresh = None if online is None else online.apart_from(judged)
        model = fitted(case, learned, fresh, seed)
        for i in own:
            found["spent"][:, i] = [spent_h(model, samples[i], taste) for taste in TASTES]
            if isinstance(model, Forecaster):
                laws[int(i)] = law_chances(model.law(States.of(samples[i])))
        experts += [numbers] if (numbers := used_experts(model, judged)) else []
    if laws:
        found["chances"] = np.concatenate([laws[i] for i in range(len(samples))])
    return found | ({"experts": np.array(experts)} if experts else {})


def used_experts(model: Model, episodes: Sequence[Episode]) -> list[float]:
    """How many share the work, and how many answer for one state; empty: no mixture."""
    if not isinstance(model, Mixture) or (weights := gates(model, episodes)).shape[1] == 1:
        return []
    return [effective_experts(weights), experts_a_state(weights)]


def law_chances(law: Law) -> Vectors:
    """(n, durations): the chances of longer waits."""
    columns = [law.exceeded_at(np.full(len(law.waits_s), at_s)) for at_s in DURATIONS_S]
    return np.stack(columns, axis=1).astype(np.float32)


def forecasts(laws: Sequence[Floats], episodes: Sequence[Episode]) -> Iterator[dict[str, Any]]:
    """Mean score in hours, and the shares of waits at most as long as three quantiles, by load."""
    for name, loads in LOADS.items():
        rows = [
            _scores(Law.of_chances(law), each)
            for law, each in zip(laws, episodes, strict=True)
            if each.load in loads
        ]
        scores_h, below = (np.concatenate(part) for part in zip(*rows, strict=True))
        yield {
            "load": name,
            "score_h": round(float(scores_h.mean()), 2),
            "at_most": [round(float(share), 2) for share in below.mean(axis=0)],
        }


def _scores(law: Law, episode: Episode) -> tuple[Floats, Floats]:
    """At each decision point: the score, (T,), and whether the wait is below p10, p50, p90, (T, 3)."""
    waits_s = episode.waits_s[:-1].astype(np.float64)
    quantiles_s = [law.quantile_s(np.full(len(waits_s), level)) for level in (0.1, 0.5, 0.9)]
    below = waits_s[:, None] <= np.stack(quantiles_s, axis=1)
    return law.score_s(waits_s) / HOUR_S, below.astype(np.float64)


def spent_h(model: Model, episode: Episode, taste: Any) -> float:
    total_s = (taste.interruption + taste.overlap) * HOUR_S
    return float(episode.costs_s(taste)[choice(model, episode, taste)] / total_s)


def summary(
    mine: Floats, theirs: Floats | None, episodes: Sequence[Episode]
) -> Iterator[dict[str, Any]]:
    """Regret, and the paired difference to another method as a share of what there is to save."""
    order = np.argsort([each.begin_s for each in episodes], kind="stable")
    ordered = [episodes[i] for i in order]
    begin_s = np.array([each.begin_s for each in ordered])
    blocks = Blocks.of(begin_s, np.array([it.reactive_wait_s / HOUR_S for it in ordered]), 2000, 1)
    for row, taste in enumerate(TASTES):
        total_s = (taste.interruption + taste.overlap) * HOUR_S
        costs = [each.costs_s(taste) / total_s for each in ordered]
        best, never = np.array([[cost.min(), cost[-1]] for cost in costs]).T
        for name, loads in LOADS.items():
            mask = np.array([each.load in loads for each in ordered])
            if not mask.any():
                continue
            penalty = mine[row, order]
            line: dict[str, Any] = {
                "penalties": f"{taste.interruption:g}:{taste.overlap:g}",
                "load": name,
                "episodes": int(mask.sum()),
                "penalty_h": round(float(penalty[mask].mean()), 3),
            }
            saved = never - best
            if saved[mask].mean() >= 1.0:
                line["regret"] = round(float((penalty - best)[mask].sum() / saved[mask].sum()), 3)
                if theirs is not None:
                    more = penalty - theirs[row, order]
                    edges = blocks.interval(more, saved, mask)
                    line["difference"] = round(float(more[mask].sum() / saved[mask].sum()), 3)
                    line["difference_95"] = edges and [round(edge, 3) for edge in edges]
            yield line


def by_ends(
    mine: Floats, theirs: Floats | None, episodes: Sequence[Episode]
) -> dict[str, list[dict[str, Any]]]:
    """`summary` of all pairs, and apart of those whose predecessor runs to its limit."""
    early = np.array([each.ends_early for each in episodes])
    found = {}
    for part, mask in (("all ends", early | True), ("to the limit", ~early), ("early end", early)):
        chosen = [each for each, is_in in zip(episodes, mask, strict=True) if is_in]
        other = None if theirs is None else theirs[:, mask]
        found[part] = list(summary(mine[:, mask], other, chosen))
    return found


def mean_penalties(case: Case, args: argparse.Namespace) -> Floats:
    """(tastes, episodes): means over the seeds."""
    every = [penalties(case, args.samples, seed) for seed in args.seeds]
    return np.asarray(np.mean(every, axis=0))


def add_seeds(
    lines: list[dict[str, Any]], case: Case, args: argparse.Namespace, episodes: Sequence[Episode]
) -> None:
    """The regret of each seed alone, beside that of the mean."""
    for seed in args.seeds:
        alone = summary(penalties(case, args.samples, seed), None, episodes)
        for line, own in zip(lines, alone, strict=True):
            if "regret" in own:
                line.setdefault("of_seeds", []).append(own["regret"])


def row(case: Case, theirs: Floats | None, args: argparse.Namespace) -> dict[str, Any]:
    """The summary of one case. `theirs`: of whom it is compared with."""
    episodes = has_points(args.samples / "train")
    files = [kept_file(case, args.samples, seed) for seed in args.seeds]
    is_kept = all(file.exists() for file in files)
    began_s = time.process_time()
    mine = mean_penalties(case, args)
    found = {
        "method": case.method,
        **({"settings": list(case.settings)} if case.settings else {}),
        "than": args.than,
        "seeds": args.seeds,
        "cpu_s": None if is_kept else round(time.process_time() - began_s),
        "load_average": round(os.getloadavg()[0], 1),
        **by_ends(mine, theirs, episodes),
    }
    add_seeds(found["all ends"], case, args, episodes)
    if laws := chances(case, args.samples, args.seeds[0]):
        found["forecasts, first seed"] = list(forecasts(laws, episodes))
    experts = results(case, args.samples, args.seeds[0]).get("experts")
    if experts is not None:
        found["experts of each block, first seed"] = experts.round(1).tolist()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", required=True, type=Path)
    parser.add_argument("--methods", required=True, type=lambda text: text.split(","))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--than", help="method to compare with, by the same seeds")
    parser.add_argument(
        "--seeds", type=lambda text: [int(word) for word in text.split(",")], default=[1]
    )
    args = parser.parse_args()
    than = Case(method=args.than) if args.than else None
    theirs = mean_penalties(than, args) if than else None
    rows = json.loads(RESULT.read_text()) if RESULT.exists() else []
    for method in args.methods:
        case = Case(method=method, settings=tuple(args.set))
        made = row(case, None if case == than else theirs, args)
        before = [each for each in rows if _case(each) == case]
        made["cpu_s"] = made["cpu_s"] or (before[0]["cpu_s"] if before else None)
        rows = [*(each for each in rows if _case(each) != case), made]
        RESULT.write_text(json.dumps(rows, indent=1) + "\n")
        for line in made["all ends"]:
            print(method, *case.settings, *line.values(), flush=True)


def _case(row: dict[str, Any]) -> Case:
    return Case(method=row["method"], settings=tuple(row.get("settings", ())))


if __name__ == "__main__":
    main()

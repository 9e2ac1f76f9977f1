"""Methods and their parts on the validation month's mixed pairs, the mean of several training seeds.

    python -m benchmarks.learning_seeds --samples DIR [--only NAME ...] [--seeds 1,2,3,4,5]

DIR is `mirage train --samples`'s, with the card's pairs in DIR/judged. Every row is trained here; a
head starts from the foundation of its own seed. The penalties of each row and seed are kept in
DIR/seeds under a checksum of the samples and options. A later call adds to them; after a change of
the code remove the folder. Differences are paired, with 95 % intervals by block
bootstrap: to `quantile` with the same seeds, and of a head to its foundation. The summary goes to
benchmarks/learning_seeds.json, which keeps the other rows. Rules are fixed by
benchmarks/learning_cv.py before; this is a look at the result.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.kept import checksum, kept
from benchmarks.learning_cv import Case, by_ends, has_points, summary, used_experts
from benchmarks.learning_validation import YARDSTICK, spent
from mirage.provision.learn.card import Descendant
from mirage.provision.learn.course import held_out, plain
from mirage.provision.learn.episode import Episode, Floats
from mirage.provision.learn.method import TrainingData
from mirage.provision.learn.methods import METHODS
from mirage.provision.learn.model import Model

RESULT = Path("benchmarks/learning_seeds.json")
ONE_EXPERT = (
    "shape.patch=24",
    "shape.width=32",
    "shape.heads=2",
    "shape.layers=1",
    "shape.feedforward=64",
)
"""A transformer like each expert of the mixture."""


@dataclass(frozen=True, kw_only=True)
class Row(Case):
    """A case, or one that learns from a part of the episodes."""

    keeps: Callable[[Episode], bool] | None = None
    """Which of the training episodes it learns from; None: all."""


def is_logged(episode: Episode) -> bool:
    """With the arrivals of the log."""
    return not episode.tags.get("augmentation")


CASES = {name: Row(method=name) for name in METHODS} | {
    "transformer, without the forecast": Row(
        method="transformer", settings=("shape.forecast_input=false",)
    ),
    "transformer, like one expert": Row(method="transformer", settings=ONE_EXPERT),
    "mlp-law, one network": Row(method="mlp-law", settings=("networks=1",)),
    "quantile, as logged": Row(method="quantile", keeps=is_logged),
}


def trained(case: Row, samples: Path, seed: int, base: Model | None) -> Model:
    """The case's model. `base`: a head's foundation."""
    method, options = METHODS[case.method], case.options
    episodes = has_points(samples / "train")
    if case.keeps:
        episodes = episodes.those(case.keeps)
    if not method.stops_early:
        return method.train(TrainingData(episodes=episodes, seed=seed), options)
    learned, stop_by = held_out(episodes, seed)
    data = TrainingData(episodes=learned, held_out=stop_by, seed=seed)
    if base is not None:
        fresh = has_points(samples / "online").apart_from(stop_by)
        data = replace(data, fresh=fresh, base=base)
    return method.train(data, options)


def kept_file(name: str, samples: Path, seed: int) -> Path:
    """Of the row's results of these samples by the present options."""
    case = CASES[name]
    parts = ["train", "judged"]
    options = [case.options]
    if case.foundation:
        parts.append("online")
        options.append(METHODS[case.foundation].default_options())
    settings = {"options": list(map(plain, options)), "keeps": case.keeps and case.keeps.__name__}
    key = checksum([samples / part for part in parts], settings)
    return samples / "seeds" / f"{name}-{seed}-{key}.npz"


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One row's models, by seed."""

    spent: tuple[Floats, ...]
    """(tastes, episodes) each: hours at e_I + e_O = 1."""
    changed: tuple[float, ...]
    """Distance of the weights from the foundation's, as a share of its norm; empty: no head."""
    experts: tuple[list[float], ...]
    """`used_experts` of a mixture's seeds; empty: none."""

    @property
    def mean(self) -> Floats:
        """(tastes, episodes)."""
        return np.asarray(np.mean(self.spent, axis=0))


class Judge:
    """Trains and judges what is not yet kept."""

    def __init__(self, samples: Path, seeds: Sequence[int]) -> None:
        self._samples, self._seeds = samples, seeds
        self._bases: dict[tuple[str, int], Model] = {}
        self.episodes = list(has_points(samples / "judged"))

    def judged(self, name: str) -> Judged:
        """Of all seeds."""
        kept = [self._kept(name, seed) for seed in self._seeds]
        return Judged(
            spent=tuple(each["spent"] for each in kept),
            changed=tuple(float(each["changed"]) for each in kept if "changed" in each),
            experts=tuple(each["experts"].tolist() for each in kept if "experts" in each),
        )

    def _kept(self, name: str, seed: int) -> dict[str, Floats]:
        return kept(kept_file(name, self._samples, seed), lambda: self._judge(name, seed))

    def _judge(self, name: str, seed: int) -> dict[str, Any]:
        model = self._model(name, seed)
        found: dict[str, Any] = {"spent": spent(model, self.episodes)}
        if isinstance(model, Descendant) and (foundation := CASES[name].foundation):
            found["changed"] = model.distance(self._model(foundation, seed))
        if experts := used_experts(model, self.episodes):
            found["experts"] = experts
        return found

    def _model(self, name: str, seed: int) -> Model:
        if (base := self._bases.get((name, seed))) is not None:
            return base
        case = CASES[name]
        base = self._model(case.foundation, seed) if case.foundation else None
        model = trained(case, self._samples, seed, base)
        if name in {method.foundation for method in METHODS.values()}:
            self._bases[name, seed] = model
        return model


def of_seeds(each: Judged, episodes: Sequence[Episode]) -> dict[str, list[float]]:
    """By penalties: each seed's regret over heavy and medium load."""
    found: dict[str, list[float]] = {}
    for spent_h in each.spent:
        for line in summary(spent_h, None, episodes):
            if line["load"] == "heavy and medium":
                found.setdefault(line["penalties"], []).append(line["regret"])
    return found


def rows(judge: Judge, names: Sequence[str], seeds: Sequence[int]) -> Iterator[dict[str, Any]]:
    """The summary of each."""
    than = judge.judged(YARDSTICK).mean
    for name in names:
        mine = judge.judged(name)
        found = {
            "method": name,
            "seeds": list(seeds),
            **by_ends(mine.mean, None if name == YARDSTICK else than, judge.episodes),
            "of_seeds, heavy and medium": of_seeds(mine, judge.episodes),
            "weights_changed": list(mine.changed) or None,
        }
        if mine.experts:
            found["experts"] = [[round(number, 2) for number in each] for each in mine.experts]
        if foundation := CASES[name].foundation:
            base = judge.judged(foundation).mean
            found["to the foundation"] = list(summary(mine.mean, base, judge.episodes))
        yield found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", required=True, type=Path)
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument(
        "--seeds",
        type=lambda text: [int(word) for word in text.split(",")],
        default=[1, 2, 3, 4, 5],
    )
    args = parser.parse_args()
    kept = {each["method"]: each for each in json.loads(RESULT.read_text())}
    for row in rows(Judge(args.samples, args.seeds), args.only, args.seeds):
        kept[row["method"]] = row
        ordered = [kept[name] for name in CASES if name in kept]
        RESULT.write_text(json.dumps(ordered, indent=1) + "\n")
        for line in row["all ends"]:
            print(row["method"], *line.values(), flush=True)


if __name__ == "__main__":
    main()

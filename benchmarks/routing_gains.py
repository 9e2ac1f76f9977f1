"""Whether gains of keeping a job off a partition can be learned from a job history.

    python -m benchmarks.routing_gains TRACE [--streams 62] [--kept GAINS.npz]

Gains are those of `mirage.routing.advantage`, at 30 % of the arrivals of windows of the history's
first part, on the paper's partitions. Boosted trees learn one half of the streams and choose on the
other, both ways round. Printed is the sum of the true gains where the trees expect more than a
threshold, hours a stream, and its standard error. Inputs: what agents see; with the mean of the two
last run times of the job's user; with the job's true run time, which nobody knows.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor

from mirage.routing import stream
from mirage.routing.advantage import AHEAD, MOST_H, SHARE, gains_at
from mirage.routing.arrivals import draw_streams, read_history, stream_jobs
from mirage.routing.flavors import paper_partitions
from slurm_sim.seconds import HOUR_S

Floats = NDArray[np.float64]


def users_of(trace: Path) -> list[str]:
    """Of the jobs that `read_history` keeps."""
    with gzip.open(trace, "rt", encoding="utf-8") as text:
        return [row["user"] for row in csv.DictReader(text) if _ran(row)]


def _ran(row: dict[str, str]) -> bool:
    words = [row[name] for name in ("submit", "start", "end", "timelimit_s", "nodes")]
    if not all(words):
        return False
    return float(words[2]) > float(words[1]) and float(words[3]) > 0


def user_times_s(trace: Path) -> Floats:
    """(jobs,): the mean run time of the two jobs of the same user that ended last before it was
    submitted, at most its limit; 0: there is none. Waits are left out, so ends are a little early.
    """
    history, users = read_history(trace), users_of(trace)
    assert len(users) == len(history.submit_s)
    ends_s = history.submit_s + history.runtime_s
    over, last, found = list(np.argsort(ends_s, kind="stable")), dict[str, list[int]](), []
    for user, now_s, limit_s in zip(users, history.submit_s, history.limit_s, strict=True):
        while over and ends_s[over[0]] <= now_s:
            job = over.pop(0)
            last.setdefault(users[job], []).append(int(history.runtime_s[job]))
        found.append(min(float(np.mean(last.get(user, [0])[-2:])), float(limit_s)))
    return np.array(found)


def gains(trace: Path, count: int) -> dict[str, Floats]:
    """Inputs, user's run time, true run time, gain, stream and partition of each gain."""
    kinds, first = paper_partitions(), read_history(trace).part(test=False)
    random, times_s, each = np.random.default_rng(3), user_times_s(trace), stream_jobs(kinds)
    streams, rows = draw_streams(kinds, first, count, random), []
    for number, (jobs, window) in enumerate(zip(streams.jobs, streams.windows, strict=True)):
        under_way = stream.Stream(kinds, jobs)
        for index, job in enumerate(jobs):
            asked = under_way.arrive(job)
            if random.random() < SHARE:
                user_h = times_s[window * each + index] / HOUR_S
                known = [user_h, job.runtime_s / HOUR_S]
                for gain in gains_at(under_way, asked, jobs[index + 1 : index + 1 + AHEAD]):
                    of_it = [gain.gain_h, number, gain.partition]
                    rows.append([*gain.inputs, *known, *of_it])
            under_way.submit(job, stream.room_rule(asked))
    table = np.array(rows)
    names = ("user_h", "true_h", "gain_h", "stream", "partition")
    return {"inputs": table[:, :-5]} | {
        name: table[:, place] for place, name in enumerate(names, start=table.shape[1] - 5)
    }


def crossed(inputs: Floats, found: dict[str, Floats]) -> Floats:
    """(gains,): expected by trees that learned from the other half of the streams."""
    expected = np.zeros(len(inputs))
    halves = found["stream"] % 2
    for half in (0, 1):
        for partition in np.unique(found["partition"]):
            mine = found["partition"] == partition
            learn, judge = mine & (halves == half), mine & (halves != half)
            trees = HistGradientBoostingRegressor(
                max_iter=80, learning_rate=0.05, max_leaf_nodes=8, min_samples_leaf=60,
                l2_regularization=5, random_state=0,
            )  # fmt: skip
            trees.fit(inputs[learn], np.clip(found["gain_h"][learn], -MOST_H, MOST_H))
            expected[judge] = trees.predict(inputs[judge])
    return expected


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--streams", type=int, default=62)
    parser.add_argument("--kept", type=Path, help="the gains, made if it is not there")
    args = parser.parse_args()
    if args.kept and args.kept.exists():
        found = dict(np.load(args.kept))
    else:
        found = gains(args.trace, args.streams)
        if args.kept:
            np.savez(args.kept, allow_pickle=False, **found)
    seen = {
        "what agents see": [],
        "and the user's run times": ["user_h"],
        "and the true run time": ["true_h"],
    }
    spread_h = found["gain_h"].std()
    print(f"{len(found['gain_h'])} gains, mean {found['gain_h'].mean():.1f} h, sd {spread_h:.1f} h")
    for name, more in seen.items():
        inputs = np.column_stack([found["inputs"], *(found[key] for key in more)])
        expected = crossed(inputs, found)
        for least_h in (0, 1, 2):
            chosen_h = found["gain_h"] * (expected > least_h)
            sums_h = np.bincount(found["stream"].astype(int), weights=chosen_h)
            error_h = sums_h.std() / np.sqrt(len(sums_h))
            print(f"{name}, above {least_h} h: {sums_h.mean():.1f} +- {error_h:.1f} h a stream")


if __name__ == "__main__":
    main()

"""What it costs to wait one more step where the forecast says that the successor starts now.

    .venv/bin/python -m benchmarks.start_now DIR... > benchmarks/start_now.json

DIR: a folder of labelled episodes (`mirage train --samples`, its `train` or `judged`). Of all
decision points whose forecast is below a step, by the time left until the predecessor's end: how
often the successor does start within a step, and the mean interruption and overlap of a release now
and one step later, which is at the end where less than a step is left.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from mirage.provision.learn.episode import STEP_S, Episode, Floats
from mirage.provision.learn.shards import ShardFolder
from slurm_sim.seconds import HOUR_S

LEFT_H = (1 / 6, 0.5, 1, 2, 4, 8, 24)


def episodes(folders: Sequence[Path]) -> Iterator[Episode]:
    for path in folders:
        folder = ShardFolder.existing(path)
        for shard in range(folder.count):
            if folder.has(shard):
                yield from folder.read(shard).episodes


def points(episode: Episode) -> tuple[Floats, Floats]:
    """Of the points where it would start now: hours left, (n,); and (n, 5): whether it does, then
    interruption and overlap in seconds now and a step later.
    """
    chosen = np.flatnonzero(episode.forecast_s < STEP_S)
    gaps_s = (episode.interruption_s, episode.overlap_s)
    columns = [each[chosen + later] for later in (0, 1) for each in gaps_s]
    found = np.column_stack([episode.waits_s[chosen] < STEP_S, *columns]).astype(np.float64)
    return episode.remaining_s[chosen] / HOUR_S, found


def main() -> None:
    found: dict[int, list[Floats]] = defaultdict(list)
    for episode in episodes([Path(word) for word in sys.argv[1:]]):
        left_h, rows = points(episode)
        bins = np.searchsorted(LEFT_H, left_h, side="right")
        for number in np.unique(bins).tolist():
            found[number].append(rows[bins == number])
    table = []
    for number in sorted(found):
        rows = np.concatenate(found[number])
        right, *seconds = rows.mean(axis=0).tolist()
        names = ("interrupted_now_s", "overlap_now_s", "interrupted_later_s", "overlap_later_s")
        table.append(
            {
                "left_h_from": round(LEFT_H[number - 1], 2) if number else 0,
                "left_h_to": round(LEFT_H[number], 2) if number < len(LEFT_H) else None,
                "points": len(rows),
                "starts_within_a_step": round(right, 4),
                **{name: round(value, 1) for name, value in zip(names, seconds, strict=True)},
            }
        )
    print(json.dumps(table, indent=1))


if __name__ == "__main__":
    main()

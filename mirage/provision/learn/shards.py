"""Samples as files: a folder with a header and numbered npz files, each whole or not there."""

from __future__ import annotations

import json
import zipfile
import zlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mirage.errors import InputError, StoreError
from mirage.provision.learn.episode import HISTORY, Episode, PairJob, PairSpec
from slurm_sim.files import replacing, write_whole
from slurm_sim.formats import parse_json

SCHEMA = 3
HEADER = "samples.json"
SHARD = 4
"""Episodes a file: what an interruption may lose, of each worker."""


@dataclass
class Shard:
    """What came of some plans."""

    numbers: list[int] = field(default_factory=list)
    """Of the plans that became episodes."""
    episodes: list[Episode] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    tally: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class ShardFolder:
    """Where samples are; `header` says of what."""

    path: Path
    header: dict[str, Any]

    @classmethod
    def opened(cls, path: Path, header: dict[str, Any]) -> ShardFolder:
        """For writing. Raises InputError if there are samples of something else."""
        wanted = json.loads(json.dumps({"schema": SCHEMA, **header}))
        if (path / HEADER).exists():
            there = cls.existing(path).header
            if different := _differences(there, wanted):
                raise InputError(
                    f"{path}: holds samples of another {', '.join(different)}; give another folder,"
                    " or remove this one."
                )
            return cls(path, there)
        try:
            path.mkdir(parents=True, exist_ok=True)
            if any(path.iterdir()):
                raise InputError(
                    f"{path}: is not empty, and holds no samples; give another folder."
                )
            write_whole(path / HEADER, json.dumps(wanted, indent=1))
        except OSError as error:
            raise StoreError(f"{path}: can't be written: {error.strerror}.") from error
        return cls(path, wanted)

    @classmethod
    def existing(cls, path: Path) -> ShardFolder:
        """Raises InputError if there are no samples, or of another schema."""
        file = path / HEADER
        try:
            header = parse_json(file.read_text(encoding="utf-8"))
        except OSError as error:
            raise InputError(f"{path}: holds no samples ({HEADER}: {error.strerror}).") from error
        except ValueError as error:
            raise InputError(
                f"{file}: is damaged ({error}); remove the folder and collect again."
            ) from error
        if not isinstance(header, dict) or header.get("schema") != SCHEMA:
            raise InputError(
                f"{file}: is not of schema {SCHEMA}, which this version reads; collect again."
            )
        return cls(path, header)

    @property
    def episodes(self) -> int:
        """How many plans there are."""
        return int(self.header["drawing"]["count"])

    @property
    def count(self) -> int:
        """Of files."""
        return -(-self.episodes // SHARD)

    def numbers(self, shard: int) -> range:
        """Of the plans in this file."""
        return range(shard * SHARD, min((shard + 1) * SHARD, self.episodes))

    @property
    def is_whole(self) -> bool:
        return all(map(self.has, range(self.count)))

    def has(self, shard: int) -> bool:
        return self._file(shard).exists()

    def _file(self, shard: int) -> Path:
        return self.path / f"{shard:05d}.npz"

    def write(self, shard: int, content: Shard) -> None:
        """All or nothing. Raises StoreError."""
        file = self._file(shard)
        try:
            with replacing(file) as fresh, fresh.open("wb") as out:
                np.savez_compressed(out, **_arrays(content))
        except OSError as error:
            raise StoreError(
                f"{file}: can't be written: {error.strerror}. Run again to go on from here."
            ) from error

    def read(self, shard: int) -> Shard:
        """Raises InputError if it is not there, or damaged."""
        file = self._file(shard)
        if not file.exists():
            there = sum(map(self.has, range(self.count)))
            raise InputError(
                f"{self.path}: only {there} of {self.count} files are there; collect again, which"
                " goes on where it was."
            )
        try:
            with np.load(file, allow_pickle=False) as arrays:
                return _content(arrays)
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise InputError(
                f"{file}: is damaged ({error}); remove it and collect again."
            ) from error


def _differences(there: dict[str, Any], wanted: dict[str, Any]) -> list[str]:
    """What to tell the user apart from: `drawing.seed`, `trace`, ..."""
    found = [
        name
        for name in ("trace", "cluster")
        if there.get(name, {}).get("sha256") != wanted[name]["sha256"]
    ]
    old, new = there.get("drawing", {}), wanted["drawing"]
    return found + [f"drawing ({name})" for name in new if old.get(name) != new[name]]


# --- arrays
# ----------------------------------------------------------------------------------------------------------

TIMES = ("begin_s", "predecessor_start_s", "predecessor_end_s")


def _arrays(shard: Shard) -> dict[str, Any]:
    """Episodes one after the other; what varies in length is cut again by the number of decision
    points.
    """
    episodes = shard.episodes
    return {
        "numbers": np.array(shard.numbers, dtype=np.int64),
        "points": np.array([len(episode) for episode in episodes], dtype=np.int64),
        "times": (
            np.array(
                [[getattr(it, name) for name in TIMES] for it in episodes], dtype=np.int64
            ).reshape(-1, 3)
        ),
        "pairs": (
            np.array([[*it.pair[0], *it.pair[1]] for it in episodes], dtype=np.int64).reshape(-1, 6)
        ),
        "tags": np.array([json.dumps(episode.tags) for episode in episodes], dtype=np.str_),
        "rows": _joined(
            [episode.rows for episode in episodes], np.empty((0, 40), dtype=np.float32)
        ),
        "decision_s": _joined([it.decision_s for it in episodes], np.empty(0, dtype=np.int64)),
        "successor_start_s": _joined(
            [it.successor_start_s for it in episodes], np.empty(0, dtype=np.int64)
        ),
        "forecast_s": _joined([it.forecast_s for it in episodes], np.empty(0, dtype=np.int64)),
        "counts": np.array(json.dumps({"dropped": shard.dropped, "tally": shard.tally})),
    }


def _joined(parts: Sequence[Any], nothing: Any) -> Any:
    return np.concatenate(parts) if parts else nothing


def _content(arrays: Any) -> Shard:
    points = arrays["points"]
    rows, decision_s, successor_s, forecast_s = (
        _cut(arrays[name], points + more)
        for name, more in (
            ("rows", HISTORY - 1),
            ("decision_s", 0),
            ("successor_start_s", 1),
            ("forecast_s", 0),
        )
    )
    pairs = [PairSpec(PairJob(*pair[:3]), PairJob(*pair[3:])) for pair in arrays["pairs"].tolist()]
    tags = [parse_json(text) for text in arrays["tags"].tolist()]
    times = arrays["times"].T.tolist()
    episodes = list(map(Episode, pairs, *times, rows, decision_s, successor_s, forecast_s, tags))
    counts = parse_json(str(arrays["counts"]))
    return Shard(
        arrays["numbers"].tolist(), episodes, Counter(counts["dropped"]), Counter(counts["tally"])
    )


def _cut(joined: Any, lengths: Any) -> list[Any]:
    edges = np.cumsum(lengths)
    if len(joined) != (edges[-1] if len(edges) else 0):
        raise ValueError("its arrays don't fit together")
    return np.split(joined, edges[:-1]) if len(edges) else []

"""Finished trials in a file, so that an interrupted evaluation does not begin again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from mirage.chain.progress import ChainProgress
from mirage.domain import Mode
from mirage.errors import MirageError
from mirage.provision.chains.trial import ChainCase, ChainTrial
from slurm_sim.formats import parse_json


class TrialFile:
    """One JSON object a line. The first line says what the trials depend on; a file with another
    first line is replaced. A line that was cut off is ignored.
    """

    def __init__(self, path: Path, depends_on: dict[str, Any]) -> None:
        """Raises MirageError: the file can't be read or written."""
        self._path, self._head = path, json.dumps(depends_on, sort_keys=True)
        self._found: dict[ChainCase, ChainTrial] = {}
        try:
            lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
            if lines[:1] == [self._head]:
                self._found = {trial.chains: trial for trial in map(_trial, lines[1:]) if trial}
            texts = [self._head, *(_line(trial) for trial in self._found.values())]
            path.write_text("\n".join(texts) + "\n", encoding="utf-8")
        except OSError as error:
            raise MirageError(f"{path}: can't be written ({error.strerror}).") from error

    def found(self, cases: Sequence[ChainCase]) -> list[ChainTrial]:
        """Trials of these cases that an earlier run finished."""
        return [self._found[case] for case in cases if case in self._found]

    def missing(self, cases: Sequence[ChainCase]) -> list[ChainCase]:
        return [case for case in cases if case not in self._found]

    def add(self, trial: ChainTrial) -> None:
        """Raises MirageError."""
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(_line(trial) + "\n")
        except OSError as error:
            raise MirageError(f"{self._path}: can't be written ({error.strerror}).") from error


def _line(trial: ChainTrial) -> str:
    waits = trial.others_wait_s
    return json.dumps(
        {
            "chains": asdict(trial.chains) | {"mode": trial.chains.mode.value},
            "progress": asdict(trial.progress),
            "ran_s": trial.ran_s,
            "others_wait_s": None if waits is None else waits.tolist(),
        }
    )


def _trial(line: str) -> ChainTrial | None:
    """None: the line was cut off."""
    try:
        read = parse_json(line)
        waits = read["others_wait_s"]
        return ChainTrial(
            chains=ChainCase(**read["chains"] | {"mode": Mode(read["chains"]["mode"])}),
            progress=ChainProgress(**read["progress"]),
            ran_s=read["ran_s"],
            others_wait_s=None if waits is None else np.array(waits, dtype=np.float64),
        )
    except (ValueError, TypeError, KeyError):
        return None

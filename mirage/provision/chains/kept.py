"""Trials of chains as JSON, for `mirage.provision.kept`."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np

from mirage.chain.progress import ChainProgress
from mirage.domain import Mode
from mirage.provision.chains.trial import ChainCase, ChainTrial
from mirage.provision.kept import Json, TrialForm


def _write(case: ChainCase, trial: ChainTrial) -> Json:
    waits = trial.others_wait_s
    return {
        "chains": asdict(case) | {"mode": case.mode.value},
        "progress": asdict(trial.progress),
        "ran_s": trial.ran_s,
        "young": trial.young,
        "others_wait_s": None if waits is None else waits.tolist(),
    }


def _read(record: Json) -> tuple[ChainCase, ChainTrial]:
    waits = record["others_wait_s"]
    case = ChainCase(**record["chains"] | {"mode": Mode(record["chains"]["mode"])})
    return case, ChainTrial(
        chains=case,
        progress=ChainProgress(**record["progress"]),
        ran_s=record["ran_s"],
        young=record["young"],
        others_wait_s=None if waits is None else np.array(waits, dtype=np.float64),
    )


CHAINS = TrialForm(_write, _read)

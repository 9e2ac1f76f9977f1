"""Weights of trackable resources: PriorityWeightTRES, TRESBillingWeights (`slurm.conf(5)`)."""

from __future__ import annotations

import dataclasses
import re

from slurm_sim.clusters.notes import Entry, Note
from slurm_sim.clusters.values import words
from slurm_sim.ranges import MOST_WEIGHT

WEIGHTED = {"cpu": "cpus", "mem": "memory", "node": "nodes", "gres/gpu": "gpus"}
"""TRES that may have weights, and how the fields for them end."""
WEIGHT = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d{1,2})?)([KMGTP]?)", re.ASCII | re.IGNORECASE)


def _weight(tres: str, text: str) -> float | None:
    """As slurmctld has it: by MiB for memory; of a weight by larger units, ``0.25G``, that part."""
    if (found := WEIGHT.fullmatch(text)) is None:
        return None
    units = "KMGTP"
    step = units.index(found[2].upper()) + 1 if found[2] else 0
    if tres == "mem" and step:
        step -= 2
    return None if step < 0 or float(found[1]) > MOST_WEIGHT else float(found[1]) / 1024**step


def weights_of_tres(entry: Entry, prefix: str) -> tuple[dict[str, float], list[Note]]:
    """``CPU=1000,Mem=2000,GRES/gpu=3000`` as fields that begin so; what is not named weighs nothing."""
    change = {prefix + field: 0.0 for field in WEIGHTED.values()}
    notes: list[Note] = []
    for word in words(entry):
        name, _, value = word.partition("=")
        weight = _weight(name.strip().lower(), value.strip())
        if weight is None:
            raise entry.error("TRES=weight[,...], such as CPU=1000,Mem=0.25G,GRES/gpu=3000")
        if (field := WEIGHTED.get(name.strip().lower())) is not None:
            change[prefix + field] = weight
        elif weight:
            why = "only CPU, Mem, Node and GRES/gpu (without its type) have a weight here"
            notes.append(dataclasses.replace(entry.not_simulated(why), value=word))
    return change, notes

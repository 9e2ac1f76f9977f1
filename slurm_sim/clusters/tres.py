"""Weights of trackable resources: PriorityWeightTRES, TRESBillingWeights (`slurm.conf(5)`)."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from slurm_sim.clusters.notes import Entry, Note
from slurm_sim.clusters.values import leading_real, words
from slurm_sim.ranges import MOST_WEIGHT

WEIGHTED = {"cpu": "cpus", "mem": "memory", "node": "nodes", "gres/gpu": "gpus"}
"""TRES that may have weights, and how the fields for them end."""
UNITS = "KMGTP"
STATIC = frozenset({"cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages"})
"""TRES that Slurm always has; others stand in AccountingStorageTRES."""
KINDS = (
    "billing",
    "cpu",
    "energy",
    "fs/",
    "gres/",
    "ic/",
    "license/",
    "mem",
    "node",
    "pages",
    "vmem",
)


def tracked(entry: Entry | None) -> frozenset[str]:
    """What may have weights: `STATIC`, and AccountingStorageTRES. Raises InvalidCluster for what is
    no TRES.
    """
    listed = [] if entry is None else [word.lower() for word in words(entry)]
    if entry is not None and (bad := [word for word in listed if not word.startswith(KINDS)]):
        raise entry.error(f"names of TRES such as gres/gpu, not {bad[0]}")
    return STATIC | set(listed)


def _weight(tres: str, text: str) -> float | None:
    """As slurmctld has it: by MiB for memory; of a weight by larger units, ``0.25G``, that part.
    None: no weight.
    """
    found = leading_real(text)
    unit = found[1][:1].upper() if found is not None else ""
    if found is None or "=" in found[1] or (unit and unit not in UNITS):
        return None
    step = UNITS.index(unit) + 1 if unit else 0
    return float(found[0] / 1024 ** max(0, step - (2 if tres == "mem" else 0)))


def weights_of_tres(
    entry: Entry, prefix: str, known: Collection[str] | None = None
) -> tuple[dict[str, float], list[Note]]:
    """``CPU=1000,Mem=2000,GRES/gpu=3000`` as fields that begin so; what is not named weighs
    nothing.

    `known`: the TRES that there are (see `tracked`), others are an error as in slurmctld; None:
    any.
    """
    change = {prefix + field: 0.0 for field in WEIGHTED.values()}
    notes: list[Note] = []
    for word in filter(None, entry.value.split(",")):
        name, _, value = word.partition("=")
        tres = name.lower() if known is not None else name.strip().lower()
        weight = _weight(tres, value)
        if weight is None:
            raise entry.error("TRES=weight[,...], such as CPU=1000,Mem=0.25G,GRES/gpu=3000")
        if known is not None and tres not in known:
            raise entry.error(
                f"weights of TRES that AccountingStorageTRES lists, without blanks: not of {name!r}"
            )
        each = dataclasses.replace(entry, value=word)
        if not 0 <= weight <= MOST_WEIGHT:
            notes.append(
                each.not_simulated(f"weights from 0 to {MOST_WEIGHT} only; it weighs nothing here")
            )
        elif (field := WEIGHTED.get(tres)) is not None:
            change[prefix + field] = weight
        elif weight:
            notes.append(
                each.not_simulated(
                    "only CPU, Mem, Node and GRES/gpu (without its type) have a weight here"
                )
            )
    return change, notes

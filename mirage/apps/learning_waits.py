"""`python -m mirage.apps.learning_waits`: learns from the service's queue log. The service starts it
each night, with one JSON object on standard input.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mirage.config import AdapterConfig
from mirage.errors import ClusterError, MirageError
from mirage.libraries import missing_package
from mirage.provision.starts.keeping import starts_of
from mirage.slurm.adapter import connect
from slurm_sim.files import read_text, write_whole
from slurm_sim.formats import parse_json
from slurm_sim.seconds import DAY_S

log = logging.getLogger("mirage")

STARTS = "starts.json"
"""What is known of the starts of the log's jobs, beside the log."""
OVERLAP_S = DAY_S
"""Records that were read are read again for so long: slurmdbd may be late."""


def main() -> int:
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    os.nice(19)
    order = json.load(sys.stdin)
    try:
        log.info("waits: %s", learn(order, int(time.time())))
    except MirageError as error:
        log.warning("waits: %s", error)
        return 1
    except ModuleNotFoundError as error:
        log.warning("waits: %s", missing_package(error.name or ""))
        return 1
    return 0


def learn(order: Mapping[str, Any], now_s: int) -> str:
    """What happened, in words. Raises MirageError."""
    from mirage.provision.starts.learned_folder import learn_from_kept

    kept = Path(order["kept"])
    starts = starts_until(kept, AdapterConfig(**order["cluster"]), now_s)
    return learn_from_kept(kept, [Path(each) for each in order["folders"]], starts, now_s)


def starts_until(kept: Path, config: AdapterConfig, now_s: int) -> dict[str, int]:
    """By key, of all jobs that started: as known from earlier nights, and from accounting since."""
    path = kept / STARTS
    try:
        known = parse_json(read_text(path))
        starts, since_s = dict(known["starts"]), int(known["until_s"]) - OVERLAP_S
    except (OSError, ValueError, KeyError, TypeError):
        starts, since_s = {}, now_s - 7 * DAY_S
    try:
        for begin_s in range(since_s, now_s, DAY_S):
            records = connect(config).cluster.accounting(begin_s, min(begin_s + DAY_S, now_s))
            starts |= starts_of(records)
    except ClusterError as error:
        log.warning("waits: starts are those of earlier nights: %s", error)
        return starts
    oldest_s = now_s - 45 * DAY_S
    starts = {key: at_s for key, at_s in starts.items() if at_s >= oldest_s}
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_whole(path, json.dumps({"until_s": now_s, "starts": starts}).encode(), 0o600)
    return starts


if __name__ == "__main__":
    raise SystemExit(main())

"""`mirage when --choose [SCRIPT]`: where the script's job would start and finish, and what that costs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from mirage.chain.durations import format_duration
from mirage.chain.sbatch import SbatchOption
from mirage.cli.table import console
from mirage.config import AdapterConfig
from mirage.errors import ClusterError, InputError
from mirage.user.slurm_access import slurm_of, slurm_user

if TYPE_CHECKING:  # numpy takes its time to import
    from mirage.provision.starts.choose import JobPlace
    from mirage.provision.starts.walk import NightlyWaits

RECORDS_S = 7 * 86_400


def run(
    options: Sequence[SbatchOption],
    speeds_file: Path | None,
    reach: AdapterConfig,
    learned: NightlyWaits | None,
    *,
    as_json: bool,
) -> int:
    """Prints a line a place, the earliest finish first. ``options``: sbatch's. Raises InputError,
    ClusterError.
    """
    found = _found(options, speeds_file, reach, learned)
    if not found:
        raise InputError(
            "no place is known in which this could run and from which a wait is known; `mirage when"
            " -p PARTITION` says what is wrong with one."
        )
    if as_json:
        print(json.dumps({"places": [_record(each) for each in found]}, indent=2))
        return 0
    console.print(_table(found))
    first = found[0].finish.finish_s[1]
    others = [each for each in found[1:] if each.finish.partition != found[0].finish.partition]
    if others and others[0].finish.finish_s[1] - first < 0.1 * first:
        both = f"{found[0].finish.partition},{others[0].finish.partition}"
        console.print(f"These two are close: -p {both} takes what starts first.", markup=False)
    return 0


def _found(
    options: Sequence[SbatchOption],
    speeds_file: Path | None,
    reach: AdapterConfig,
    learned: NightlyWaits | None,
) -> list[JobPlace]:
    from mirage.provision.starts.choose import choices
    from mirage.provision.starts.finish import ALIKE, read_speeds
    from mirage.provision.starts.forecaster import QueueView
    from mirage.provision.starts.options import shape_of
    from mirage.slurm.entitlements import entries, partition_rules
    from mirage.slurm.resources import read_node_use
    from mirage.slurm.runner import Runner
    from mirage.slurm.survey import Survey

    runner = Runner(bin_dir=reach.bin_dir, timeout_s=reach.timeout_s, retries=0)
    survey, cluster, user = Survey(runner), slurm_of(reach), slurm_user(reach)
    live, snapshot = survey.cluster(), cluster.snapshot()
    everywhere = ",".join(partition.name for partition in live.partitions)
    asked = shape_of([*options, SbatchOption("partition", everywhere, ())], live)
    try:
        records = cluster.accounting(snapshot.at_s - RECORDS_S, snapshot.at_s)
        limits, usage = survey.limits("", user), survey.usage_factors()
    except ClusterError:  # no accounting: nobody has accounts
        records, limits, usage = [], [], {}
    return choices(
        asked,
        list(entries(partition_rules(survey.partitions()), limits)),
        QueueView(snapshot=snapshot, user=user, ask_records=lambda: records, learned=learned),
        live,
        read_node_use(runner),
        speeds=read_speeds(speeds_file) if speeds_file else ALIKE,
        usage=usage,
    )


def _table(found: Sequence[JobPlace]) -> Table:
    table = Table(box=None, pad_edge=False)
    heads = (
        "partition",
        "GPU type",
        "account",
        "QOS",
        "starts in (80 %)",
        "with half the limit",
        "runs",
        "finishes in",
        "cost",
    )
    for head in heads:
        table.add_column(head, no_wrap=True)
    for each in found:
        table.add_row(*_cells(each))
    return table


def _cells(choice: JobPlace) -> Iterator[str]:
    low_s, _, high_s = choice.finish.wait_s
    yield choice.finish.partition
    yield choice.gpu_type or "-"
    yield _names(entry.account for entry in choice.entries)
    yield _names(entry.qos for entry in choice.entries)
    yield f"{format_duration(low_s)} to {format_duration(high_s)}"
    yield format_duration(choice.half_wait_s)
    yield format_duration(choice.finish.run_s)
    yield format_duration(choice.finish.finish_s[1])
    yield f"{choice.billing_h:.0f} billing h"


def _names(names: Iterator[str]) -> str:
    return ",".join(dict.fromkeys(names)) or "-"


def _record(choice: JobPlace) -> dict[str, Any]:
    return {
        "partition": choice.finish.partition,
        "gpu_type": choice.gpu_type,
        "accounts": list(dict.fromkeys(entry.account for entry in choice.entries)),
        "qos": list(dict.fromkeys(entry.qos for entry in choice.entries)),
        "time_limit_s": choice.shape.time_limit_s,
        "wait_p10_s": round(choice.finish.wait_s[0]),
        "wait_p50_s": round(choice.finish.wait_s[1]),
        "wait_p90_s": round(choice.finish.wait_s[2]),
        "half_limit_wait_p50_s": round(choice.half_wait_s),
        "run_s": round(choice.finish.run_s),
        "finish_p50_s": round(choice.finish.finish_s[1]),
        "billing_h": round(choice.billing_h, 3),
        "reason": choice.reason,
    }

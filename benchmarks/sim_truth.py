"""The simulator against replays on a real slurmctld: starts, waits, completion, makespan.

    .venv/bin/python -m benchmarks.sim_truth [--gold DIR] [--beside FOLDER ...] [--paced]
    [--reference] [--out FILE]

Each folder of DIR (default ../shared/gold; its README says what is in one) is simulated through its
own slurm.conf, with run times as really measured and the timers counted from slurmctld's start, as
notes.md tells it. Two columns: *default*, the parameters as read; and *measured*, with the backfill
pass's mean duration in that very replay; with --paced also *paced*: with the moments within a
second at which slurmctld's threads really looked (sim_paced.py; minutes where queues are long, as
it is the reference). Beside them pairs of real replays of one workload: what two real slurmctlds
differ by. Nothing is random.

Per-job columns that jobs.csv or actual_ext.csv may have besides those of the README: cpus, mem_mib,
gpus (each per node), exclusive, user, account, partition, qos, dependency, begin_s, array_job_id,
array_throttle, nice, cancel_s, timemin_min, and limit_min, the limit that the job had at its end.
qos.txt and assoc.txt are what sacctmgr shows, events.csv what was
told to slurmctld meanwhile (sim_replay_cases.py).
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import itertools
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.sim_common import HERE, SHARED, machine, table, write_json
from slurm_sim.clusters import NoteKind, read_cluster
from slurm_sim.clusters.notes import Entry
from slurm_sim.clusters.values import hosts
from slurm_sim.config import ClusterConfig, NodeAction, NodeChange, Reservation
from slurm_sim.errors import SimulationError
from slurm_sim.jobs import JobSpec
from slurm_sim.results import geometric_mean_ratio, makespan_s, relative_difference
from tests.conformance.sim_paced import Moments, Paced
from tests.conformance.sim_replay_cases import Event

Floats = NDArray[np.float64]
WITHIN_S = (5, 60, 600)
GOALS = {"makespan": 0.005, "completion": 0.005, "within_60_s": 0.9}
PAIRS = (("syn1_r1", "syn1_r2"), ("syn1_r1", "syn1_ph"))
WHOLE = {"cpus": "cpus_per_node", "mem_mib": "memory_mib_per_node", "gpus": "gpus_per_node"} | {
    name: name for name in ("array_job_id", "array_throttle", "priority", "nice")
}
TEXT = ("user", "account", "partition", "qos", "dependency", "constraint")
TIMES = ("begin_s", "cancel_s")
NODE_ACTIONS = {"drain": NodeAction.DRAIN, "down": NodeAction.DOWN, "up": NodeAction.RESUME}


@dataclass(frozen=True)
class Replay:
    """One folder. Times are seconds since slurmctld's start."""

    folder: Path

    @cached_property
    def offset_s(self) -> int:
        """What notes.md says of t = 0."""
        text = (self.folder / "notes.md").read_text() if (self.folder / "notes.md").exists() else ""
        found = re.search(r"t=0 is ([0-9.]+) s after slurmctld", text)
        if not found:
            print(
                f"{self.folder.name}: notes.md doesn't say when slurmctld started; 120 s assumed",
                file=sys.stderr,
            )
        return round(float(found[1])) if found else 120

    @cached_property
    def rows(self) -> list[dict[str, str]]:
        """By submission: those of actual_ext.csv, with what else jobs.csv has."""
        asked = {row["job_id"]: row for row in _read(self.folder / "jobs.csv")}
        rows = [asked.get(row["job_id"], {}) | row for row in _read(self.folder / "actual_ext.csv")]
        for row in rows:
            if row.get("requeue") == "1":  # it is submitted anew
                row["submit_s"] = str(int(float(asked[row["job_id"]]["submit_s"])))
            if row["nodes"] == "0":  # cancelled before it started
                row |= {"nodes": asked[row["job_id"]]["nodes"], "start_s": "", "end_s": ""}
        return sorted(rows, key=lambda row: (int(row["submit_s"]), int(row["slurm_id"])))

    def column(self, name: str) -> Floats:
        return np.array([float(row[name] or "nan") for row in self.rows]) + self.offset_s

    @cached_property
    def specs(self) -> list[JobSpec]:
        cancelled = {
            event.target: event.time_s for event in self.events if event.action == "cancel"
        }
        specs = [_spec(row, self.offset_s) for row in self.rows]
        return [
            replace(spec, cancel_s=cancelled.get(str(spec.job_id), spec.cancel_s)) for spec in specs
        ]

    @cached_property
    def cluster(self) -> ClusterConfig:
        shown = [
            self.folder / name for name in ("qos.txt", "assoc.txt") if (self.folder / name).exists()
        ]
        loaded = read_cluster(self.folder / "slurm.conf", shown)
        for note in loaded.notes:
            if note.kind is not NoteKind.NO_EFFECT:
                print(f"{self.folder.name}: {note}", file=sys.stderr)
        reserved = [event for event in self.events if event.action == "reserve"]
        changes = [event for event in self.events if event.action in NODE_ACTIONS]
        return replace(
            loaded.cluster,
            reservations=tuple(_reservation(event, self.offset_s) for event in reserved),
            node_changes=tuple(
                NodeChange(it.time_s, it.target, NODE_ACTIONS[it.action]) for it in changes
            ),
        )

    @cached_property
    def events(self) -> list[Event]:
        """Times are since slurmctld's start."""
        file = self.folder / "events.csv"
        rows = _read(file) if file.exists() else []
        return [Event(**row | {"time_s": int(row["time_s"]) + self.offset_s}) for row in rows]  # type: ignore[arg-type]

    @cached_property
    def passes(self) -> list[tuple[str, float, int]]:
        """Kind, second, length of the queue; empty for a replay without passes.csv.gz."""
        file = self.folder / "passes.csv.gz"
        if not file.exists():
            return []
        with gzip.open(file, "rt") as text:
            return [
                (row["kind"], float(row["t_s"]) + self.offset_s, int(row["queue_len"]))
                for row in csv.DictReader(text)
            ]

    @property
    def _backfill_passes(self) -> Iterator[tuple[float, int]]:
        """Begins, and lengths of the queue. A pass ends with a row without a queue; searches in it
        have rows, too.
        """
        within = False
        for kind, time_s, queued in self.passes:
            if kind == "B":
                if not within:
                    yield time_s, queued
                within = queued > 0

    @property
    def moments(self) -> Moments:
        main, recalculated = (
            [time_s for kind, time_s, _ in self.passes if kind == each and time_s > 0]
            for each in "MD"
        )
        return Moments(main, [time_s for time_s, _ in self._backfill_passes], recalculated)

    @cached_property
    def cycle_us(self) -> int | None:
        """What a real backfill pass took, on average: by how much the next one came later than
        bf_interval.
        """
        times = [time_s for time_s, queued in self._backfill_passes if queued]
        interval_s = self.cluster.params.bf_interval_s
        late = [after - before - interval_s for before, after in itertools.pairwise(times)]
        close = [each for each in late if each < 0.5]
        return round(1e6 * sum(close) / len(close)) if close else None


def _read(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


_RUNTIMES = {"NODE_FAIL": "runtime_req_s", "CANCELLED": "runtime_req_s"}
"""Of jobs that something else ended, by state."""


def _runtime_of(row: dict[str, str]) -> str:
    """The column. A limit that backfill chose tells nothing of how long the job would have run."""
    state = row["state"].partition(" ")[0]
    if state == "TIMEOUT" and row.get("timemin_min"):
        return "runtime_req_s"
    return _RUNTIMES.get(state, "runtime_real_s")


def _spec(row: dict[str, str], offset_s: int) -> JobSpec:
    given: dict[str, Any] = {
        name: int(row[column]) for column, name in WHOLE.items() if row.get(column)
    }
    given |= {name: row[name] for name in TEXT if row.get(name)}
    given |= {name: int(float(row[name])) + offset_s for name in TIMES if row.get(name)}
    return JobSpec(
        nodes=int(row["nodes"]),
        time_limit_s=60 * int(row["timelimit_min"]) or None,
        time_min_s=60 * int(row.get("timemin_min") or 0) or None,
        runtime_s=int(row[_runtime_of(row)]),
        submit_s=int(row["submit_s"]) + offset_s,
        job_id=int(row["slurm_id"]),
        exclusive=row.get("exclusive", "") in ("1", "True", "true"),
        requeue=row.get("requeue") == "1",
        **given,
    )


def _reservation(event: Event, offset_s: int) -> Reservation:
    times, _, user = event.value.partition(":")
    begin_s, end_s = (int(part) + offset_s for part in times.split("-"))
    nodes = tuple(hosts(Entry("Nodes", event.target, "events.csv")))
    return Reservation(
        f"r{event.time_s}-{event.target}", begin_s, end_s, nodes, (user,) if user else ()
    )


def _tell(sim: Any, event: Event) -> None:
    """Does what slurmctld was told; both refuse to hold or release a job that is not pending, or to
    requeue one that is, or may not be (--no-requeue).
    """
    with contextlib.suppress(SimulationError):
        {"hold": sim.hold, "release": sim.release, "requeue": sim.requeue}[event.action](
            int(event.target)
        )


@dataclass(frozen=True)
class Outcome:
    """Of the jobs of one replay, by submission."""

    submit_s: Floats
    start_s: Floats
    end_s: Floats
    limit_s: Floats
    """At the job's end; NaN: unknown, or none."""

    def only(self, kept: NDArray[np.bool_]) -> Outcome:
        columns = (self.submit_s, self.start_s, self.end_s, self.limit_s)
        return Outcome(*(column[kept] for column in columns))


def real(replay: Replay) -> Outcome:
    limits_s = [60.0 * float(row.get("limit_min") or "nan") for row in replay.rows]
    times_s = (replay.column(name) for name in ("submit_s", "start_s", "end_s"))
    return Outcome(*times_s, np.array(limits_s))


def simulate(replay: Replay, simulator: Any, bf_cycle_us: int | None) -> Outcome:
    """Times of jobs that never start are NaN."""
    cluster = replay.cluster
    if bf_cycle_us is not None:
        cluster = replace(cluster, params=replace(cluster.params, bf_cycle_us=bf_cycle_us))
    sim = simulator(cluster, replay.specs)
    for event in replay.events:
        if event.action in ("hold", "release", "requeue"):
            sim.run_until(event.time_s - 1)  # before the passes of its second
            _tell(sim, event)
    sim.run()
    found = {record.job_id: record for record in sim.finished()}
    times = [
        (job.start_s, job.end_s, job.time_limit_s) if job is not None else (None, None, None)
        for job in map(found.get, (spec.job_id for spec in replay.specs))
    ]
    start_s, end_s, limit_s = np.array(times, dtype=np.float64).T
    return Outcome(real(replay).submit_s, start_s, end_s, limit_s)


def completion_s(outcome: Outcome) -> Floats:
    """From submission to end, at least a second, so that ratios of them exist."""
    return np.maximum(outcome.end_s - outcome.submit_s, 1)


def compare(truth: Outcome, found: Outcome) -> dict[str, float]:
    """Of `found` against `truth`, both with the same jobs in the same order: shares of jobs, and
    relative differences.

    Jobs that never really started are left out. completion: geometric mean of the ratios of
    completion times, less 1 (jobs of seconds weigh as much as those of days); mean_completion: of
    the mean completion times.
    """
    started = ~np.isnan(truth.start_s)
    truth, found = truth.only(started), found.only(started)
    difference_s = np.abs((found.start_s - found.submit_s) - (truth.start_s - truth.submit_s))
    result = {
        "makespan": relative_difference(
            *(makespan_s(each.submit_s, each.end_s) for each in (truth, found))
        ),
        "mean_wait": relative_difference(
            *(float(np.nanmean(each.start_s - each.submit_s)) for each in (truth, found))
        ),
        "completion": geometric_mean_ratio(completion_s(truth), completion_s(found)) - 1,
        "mean_completion": relative_difference(
            *(float(np.nanmean(completion_s(each))) for each in (truth, found))
        ),
        "mean_absolute_s": float(np.nanmean(difference_s)),
        "greatest_s": float(np.nanmax(difference_s)),
        "never_started": int(np.isnan(found.start_s).sum()),
    }
    if (known := ~np.isnan(truth.limit_s)).any():
        result["same_limit"] = float((truth.limit_s == found.limit_s)[known].mean())
    return result | {
        f"within_{limit}_s": float((difference_s <= limit).mean()) for limit in WITHIN_S
    }


def reaches_goals(found: dict[str, float]) -> bool:
    return (
        abs(found["makespan"]) <= GOALS["makespan"]
        and abs(found["completion"]) <= GOALS["completion"]
        and found["within_60_s"] >= GOALS["within_60_s"]
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--gold", type=Path, default=SHARED / "gold", help="folder of replays, or one replay"
    )
    parser.add_argument(
        "--reference", action="store_true", help="the rules in Python instead of the core"
    )
    parser.add_argument(
        "--paced", action="store_true", help="also with the real moments within each second"
    )
    parser.add_argument(
        "--out", type=Path, help="default: benchmarks/sim_truth.json, for the default replays only"
    )
    parser.add_argument(
        "--beside",
        type=Path,
        nargs="+",
        default=[],
        metavar="FOLDER",
        help="more real replays of the same jobs, if --gold is one replay",
    )
    options = parser.parse_args()
    if options.reference:
        from tests.reference.simulator import ReferenceSimulator as Simulator
    else:
        from slurm_sim.simulator import Simulator  # type: ignore[assignment]
    folders = (
        [options.gold] if (options.gold / "slurm.conf").exists() else sorted(options.gold.iterdir())
    )
    replays = {
        folder.name: Replay(folder) for folder in folders if (folder / "actual_ext.csv").exists()
    }
    if not replays:
        parser.error(f"{options.gold}: no folder with slurm.conf and actual_ext.csv")
    if options.beside and len(replays) > 1:
        parser.error(
            f"--beside: {options.gold} has several replays; give the one of the same jobs with"
            " --gold"
        )
    results: dict[str, Any] = {"replays": {}, "real_pairs": {}}
    for name, replay in replays.items():
        cycle_us = replay.cycle_us
        entry: dict[str, Any] = {
            "jobs": len(replay.rows),
            "select": replay.cluster.params.select_type.value,
        }
        entry |= {
            "measured_bf_cycle_us": cycle_us,
            "default": compare(real(replay), simulate(replay, Simulator, None)),
        }
        if cycle_us is not None:
            entry["measured"] = compare(real(replay), simulate(replay, Simulator, cycle_us))
        if options.paced and replay.passes:
            entry["paced"] = compare(
                real(replay), simulate(replay, partial(Paced, replay.moments), None)
            )
        results["replays"][name] = entry
    for one, other in PAIRS:
        if one in replays and other in replays:
            results["real_pairs"][f"{one}, {other}"] = compare(
                real(replays[one]), real(replays[other])
            )
    # By the whole path: sim_replays writes those of one case under one name, in two folders.
    twins = [(str(options.gold), replay) for replay in replays.values() if options.beside]
    twins += [(str(folder), Replay(folder)) for folder in options.beside]
    for (one, first), (other, second) in itertools.combinations(twins, 2):
        if len(first.rows) != len(second.rows):
            parser.error(f"{one} and {other} are not of the same jobs")
        results["real_pairs"][f"{one}, {other}"] = compare(real(first), real(second))
    results |= {"goals": GOALS, "engine": Simulator.__module__, "machine": machine()}
    print(report(results))
    out = options.out or (HERE / "sim_truth.json" if options.gold == SHARED / "gold" else None)
    if out is not None:
        write_json(out, results)


def report(results: dict[str, Any]) -> str:
    header = (
        "replay",
        "jobs",
        "pass",
        "makespan %",
        "mean wait %",
        "completion %",
        "its mean %",
        "mean abs s",
        "max s",
    )
    rows = []
    for name, entry in results["replays"].items():
        for kind in ("default", "measured", "paced"):
            if kind in entry:
                label = (
                    kind if kind != "measured" else f"{entry['measured_bf_cycle_us'] / 1000:.1f} ms"
                )
                rows.append([name, entry["jobs"], label, *_cells(entry[kind])])
    for name, found in results["real_pairs"].items():
        rows.append([name, "", "real twice", *_cells(found)])
    shares = (f"<= {limit} s" for limit in WITHIN_S)
    return table((*header, *shares, "same limit", "goals"), rows)


def _cells(found: dict[str, float]) -> list[str]:
    return [
        f"{100 * found['makespan']:+.3f}",
        f"{100 * found['mean_wait']:+.3f}",
        f"{100 * found['completion']:+.3f}",
        f"{100 * found['mean_completion']:+.3f}",
        f"{found['mean_absolute_s']:.1f}",
        f"{found['greatest_s']:.0f}",
        *(f"{100 * found[f'within_{limit}_s']:.1f} %" for limit in WITHIN_S),
        f"{100 * found['same_limit']:.1f} %" if "same_limit" in found else "",
        "yes" if reaches_goals(found) else "no",
    ]


if __name__ == "__main__":
    main()

"""Results of a run (or of reality) as files, and the figures by which two of them are compared.

A result has a row a job: ``job_id, submit_s, start_s, end_s`` and more columns on request; a job
that did not start has no ``start_s``. Each figure is a pure function of arrays with one entry a
job, NaN where a time is not known.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from slurm_sim.traces.errors import TraceError
from slurm_sim.traces.lines import Rule, line_of, read_csv, read_header
from slurm_sim.traces.output import output_file
from slurm_sim.traces.table import FORMATS, read_parquet, reason

Floats = NDArray[np.float64]

TIMES = ("submit_s", "start_s", "end_s")
QUANTILES = (50, 90, 95, 99)
WITHIN_S = (0, 5, 35, 60, 600)
SLOWDOWN_BOUND_S = 10


# --- files
# -----------------------------------------------------------------------------------------------------------


def write_results(columns: Mapping[str, Any], path: Path | str) -> None:
    """Writes .csv, .csv.gz or .parquet by the name's ending, all or nothing; equal columns give
    equal bytes.

    Columns: numpy arrays of whole numbers, pandas arrays (Int64, for numbers that may be missing),
    or lists of text. Raises TraceError if the name or the folder is not fit.
    """
    path = Path(path)
    check_format(path)
    table = pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})
    with output_file(path) as temporary:
        if path.name.endswith(".parquet"):
            pa_parquet.write_table(table, temporary)
            return
        with temporary.open("wb") as raw:
            # No name and no time in gzip's header, so that equal results are equal files.
            zipped = path.name.endswith(".gz")
            out: Any = gzip.GzipFile("", "wb", 6, raw, mtime=0) if zipped else raw
            out.write((",".join(table.column_names) + "\n").encode())
            _write_rows(table, out)
            if zipped:
                out.close()


def _write_rows(table: Any, out: Any) -> None:
    """Numbers through Arrow, which is fast but quotes every text or none; with texts through
    pandas.
    """
    if all(pa.types.is_integer(column.type) for column in table.columns):
        pa_csv.write_csv(
            table, out, pa_csv.WriteOptions(include_header=False, quoting_style="none")
        )
        return
    frame = table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    frame.to_csv(out, index=False, header=False, lineterminator="\n")


def check_format(path: Path) -> None:
    """Raises TraceError if results can't be written under this name."""
    if not path.name.endswith(FORMATS):
        raise TraceError(str(path), f"a file name ending in {', '.join(FORMATS)}", found=path.name)
    try:
        is_folder, can_be_made = path.is_dir(), path.parent.is_dir()
    except OSError as error:  # a folder above it that may not be looked into
        raise TraceError(str(path), f"a file that can be written ({error.strerror})") from error
    if is_folder:
        raise TraceError(str(path), "a file to write; this is a folder")
    if not can_be_made:
        raise TraceError(str(path), "a file in a folder that exists")


@dataclass(frozen=True)
class Results:
    """A result: ``jobs`` is a DataFrame with job_id (text), submit_s, start_s, end_s (Int64) and
    what else there is.
    """

    jobs: Any
    source: str = "results"

    def __len__(self) -> int:
        return len(self.jobs)

    def column(self, name: str) -> Floats:
        """Shape (jobs,), NaN where unknown or the column is absent."""
        if name not in self.jobs.columns:
            return np.full(len(self), np.nan)
        values: Floats = self.jobs[name].to_numpy(dtype=np.float64, na_value=np.nan)
        return values

    def pick(self, rows: NDArray[Any]) -> Results:
        """The jobs of these row numbers, in this order."""
        return Results(self.jobs.iloc[rows].reset_index(drop=True), self.source)


def read_results(path: Path | str) -> Results:
    """Reads a result of `slurm-sim run`, a recorded replay, or a trace (columns submit, start,
    end).

    A job that was cancelled in the queue has no start, also where a trace writes start = end.
    Raises TraceError with line and field of the first job whose times are missing, backwards or no
    numbers.
    """
    path = Path(path)
    is_csv = not path.name.endswith(".parquet")
    try:
        if is_csv:
            read_header(path)
            table = read_csv(path, TYPES, dict.fromkeys(WHOLES, NUMBER))
        else:
            table = read_parquet(path)
    except (OSError, EOFError, pa.ArrowInvalid) as error:
        what = reason(error)
        raise TraceError(str(path), f"a readable table of results ({what})") from error
    return _checked(
        table, path, (lambda row: line_of(path, row)) if is_csv else (lambda _row: None)
    )


WHOLES = (*TIMES, *(name.removesuffix("_s") for name in TIMES), "eligible_s", "eligible", "nodes")
TYPES = {"job_id": pa.string()} | {name: pa.int64() for name in WHOLES}
NUMBER = Rule(
    lambda text: re.fullmatch(r"(-?\d{1,18})?", text, re.ASCII) is not None,
    "a whole number, or nothing",
)


def _checked(table: Any, path: Path, locate: Callable[[int], int | None]) -> Results:
    given = table.column_names
    names = [_renamed(name, given) for name in given]
    if missing := [name for name in ("job_id", *TIMES) if name not in names]:
        expected = f"the columns job_id, {', '.join(TIMES)} (without {', '.join(missing)})"
        raise TraceError(str(path), expected, found=",".join(given), line=1, field="header")
    table = table.rename_columns(names)
    try:
        columns = [table[name].cast(TYPES.get(name, table[name].type)) for name in names]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TraceError(str(path), f"whole numbers as times ({error})") from error
    frame = pa.table(columns, names=names).to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    result = Results(frame, str(path))
    submit, start, end = (result.column(name) for name in TIMES)
    for bad, name, expected in (
        (np.isnan(submit), "submit_s", "a time"),
        (start < submit, "start_s", "a time from submit_s on"),
        (end < np.fmax(start, submit), "end_s", "a time from start_s on"),
        (frame["job_id"].duplicated().to_numpy(bool), "job_id", "each id once"),
    ):
        if bad.any():
            raise _refusal(
                result, int(np.argmax(bad)), name, given[names.index(name)], expected, locate
            )
    return _without_false_starts(result)


def _renamed(name: str, names: Sequence[str]) -> str:
    """A trace's submit, start, end, eligible as a result's."""
    with_unit = f"{name}_s"
    return with_unit if with_unit in (*TIMES, "eligible_s") and with_unit not in names else name


def _refusal(
    result: Results,
    row: int,
    name: str,
    field: str,
    expected: str,
    locate: Callable[[int], int | None],
) -> TraceError:
    line, value = locate(row), result.jobs[name].iloc[row]
    place = field if line is not None else f"job {result.jobs['job_id'].iloc[row]}: {field}"
    found = "nothing" if pd.isna(value) else str(value)
    return TraceError(result.source, expected, found=found, line=line, field=place)


def _without_false_starts(result: Results) -> Results:
    """A trace says start = end of a job that was cancelled in the queue (docs/traces.md): it never
    started.
    """
    if "state" not in result.jobs.columns:
        return result
    cancelled = (
        result.jobs["state"]
        .astype("string")
        .str.startswith("CANCELLED")
        .fillna(False)
        .to_numpy(bool)
    )
    in_queue = cancelled & (result.column("start_s") == result.column("end_s"))
    return Results(result.jobs.assign(start_s=result.jobs["start_s"].mask(in_queue)), result.source)


# --- figures of one result
# -------------------------------------------------------------------------------------------


def makespan_s(submit_s: Floats, end_s: Floats) -> float:
    """max(end) - min(submit) over the jobs that ran; NaN: none did."""
    return (
        float(np.nanmax(end_s) - np.nanmin(submit_s)) if np.isfinite(end_s).any() else float("nan")
    )


def mean(values: Floats) -> float:
    """sum / count over what is known; NaN: nothing is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def quantiles(values: Floats, percents: Sequence[int] = QUANTILES) -> dict[str, float]:
    """By name (``p90``): the linear interpolation between the two nearest of the sorted values that
    are known.
    """
    known = values[np.isfinite(values)]
    found = np.percentile(known, percents) if len(known) else np.full(len(percents), np.nan)
    return {f"p{percent}": float(value) for percent, value in zip(percents, found, strict=True)}


def bounded_slowdown(wait_s: Floats, run_s: Floats, bound_s: float = SLOWDOWN_BOUND_S) -> Floats:
    """max(1, (wait + run) / max(run, bound)), a job each (Feitelson et al., JSSPP 1997; bound: 10
    s).
    """
    return np.maximum(1.0, (wait_s + run_s) / np.maximum(run_s, bound_s))


def node_seconds(start_s: Floats, end_s: Floats, nodes: Floats) -> float:
    """sum(nodes x (end - start)) over jobs that ran."""
    return float(np.nansum(nodes * (end_s - start_s)))


def utilisation(
    start_s: Floats, end_s: Floats, nodes: Floats, span_s: float, cluster_nodes: float
) -> float:
    """node_seconds / (cluster's nodes x makespan): 1 is a cluster that is always full."""
    return (
        node_seconds(start_s, end_s, nodes) / (cluster_nodes * span_s)
        if cluster_nodes * span_s > 0
        else float("nan")
    )


def level(begin_s: Floats, end_s: Floats, amount: Floats) -> tuple[Floats, Floats]:
    """What is there at once over time: (times, level from each time on), with `amount` from begin
    until end.

    Times are strictly rising; a row of which either time is unknown does not count.
    """
    known = np.isfinite(begin_s) & np.isfinite(end_s) & np.isfinite(amount)
    at = np.concatenate([begin_s[known], end_s[known]])
    change = np.concatenate([amount[known], -amount[known]])
    times, index = np.unique(at, return_inverse=True)
    return times, np.cumsum(np.bincount(index, weights=change, minlength=len(times)))


# --- figures of two results, matched job by job
# ----------------------------------------------------------------------


def geometric_mean_ratio(a: Floats, b: Floats) -> float:
    """exp(mean(log(b / a))) over jobs where both are above 0; 1: equal on average, NaN: no such
    job.

    Waits that come or go altogether have no ratio: they are in the mean and the quantiles only.
    """
    both = (a > 0) & (b > 0)
    return float(np.exp(np.log(b[both] / a[both]).mean())) if both.any() else float("nan")


def relative_difference(a: float, b: float) -> float:
    """(b - a) / a; NaN where a is 0 or either is unknown."""
    return (b - a) / a if a else float("nan")


def start_differences(a_start_s: Floats, b_start_s: Floats) -> dict[str, float]:
    """Of start_b - start_a, over jobs that started in both: mean, mean and maximum of the absolute
    value, and the share of jobs for which it is at most each of `WITHIN_S`.
    """
    difference = (b_start_s - a_start_s)[np.isfinite(a_start_s) & np.isfinite(b_start_s)]
    if not len(difference):
        nan = float("nan")
        return {"mean_s": nan, "mean_absolute_s": nan, "max_absolute_s": nan} | {
            f"within_{s}_s": nan for s in WITHIN_S
        }
    far = np.abs(difference)
    figures = {
        "mean_s": difference.mean(),
        "mean_absolute_s": far.mean(),
        "max_absolute_s": far.max(),
    }
    figures |= {f"within_{seconds}_s": (far <= seconds).mean() for seconds in WITHIN_S}
    return {name: float(value) for name, value in figures.items()}


# --- all of them
# -----------------------------------------------------------------------------------------------------


def figures_of(result: Results, nodes: Floats, cluster_nodes: float) -> dict[str, Any]:
    """A result's figures, all over the jobs that started and ended: ``jobs`` is how many. Waits are
    start - submit.

    Node-hours and utilisation can't be told (NaN) unless the nodes of each of them are known.
    """
    ran = np.isfinite(result.column("start_s")) & np.isfinite(result.column("end_s"))
    submit, start, end = (result.column(name)[ran] for name in TIMES)
    nodes, wait, run, span = nodes[ran], start - submit, end - start, makespan_s(submit, end)
    known = len(nodes) > 0 and bool(np.isfinite(nodes).all())
    return {
        "jobs": len(start),
        "makespan_s": span,
        "completion_s": mean(end - submit),
        "wait_s": {"mean": mean(wait)} | quantiles(wait),
        "bounded_slowdown": mean(bounded_slowdown(wait, run)),
        "node_hours": node_seconds(start, end, nodes) / 3600 if known else float("nan"),
        "utilisation": (
            utilisation(start, end, nodes, span, cluster_nodes) if known else float("nan")
        ),
        "busy_nodes_max": _peak(start, end, nodes),
    }


def compare_results(
    a: Results,
    b: Results,
    nodes_of: Mapping[str, float] | None = None,
    cluster_nodes: int | None = None,
) -> dict[str, Any]:
    """How two results differ. Every figure is over the same ``jobs``: those that started and ended
    in both.

    ``left_out`` counts the others, each once, by reason. `nodes_of`: by job id, where neither
    result has nodes. `cluster_nodes` None: the most that were busy at once in either. JSON-ready
    but for NaN, which stands for what can't be told.
    """
    in_a, in_b, left_out = compared(a, b)
    nodes_a, nodes_b = nodes_in(in_a, in_b, nodes_of), nodes_in(in_b, in_a, nodes_of)
    busy = [
        _peak(each.column("start_s"), each.column("end_s"), n)
        for each, n in ((in_a, nodes_a), (in_b, nodes_b))
    ]
    cluster = float(cluster_nodes) if cluster_nodes else max(busy)
    of_a, of_b = figures_of(in_a, nodes_a, cluster), figures_of(in_b, nodes_b, cluster)
    ids, unknown = in_a.jobs["job_id"], np.isnan(nodes_a)
    return {
        "jobs": len(in_a),
        "left_out": left_out,
        "cluster_nodes": cluster,
        "nodes": {
            "unknown": _counted(ids[unknown]),
            "differ": _counted(ids[~unknown & (nodes_a != nodes_b)]),
        },
        "a": of_a,
        "b": of_b,
        "difference": {
            "makespan": relative_difference(of_a["makespan_s"], of_b["makespan_s"]),
            "completion": relative_difference(of_a["completion_s"], of_b["completion_s"]),
            "wait": relative_difference(of_a["wait_s"]["mean"], of_b["wait_s"]["mean"]),
            **_differences_by_job(in_a, in_b),
        },
        "start": start_differences(in_a.column("start_s"), in_b.column("start_s")),
    }


def _differences_by_job(a: Results, b: Results) -> dict[str, float]:
    """Of two results of the same jobs: ratios of times, and over how many jobs these are."""
    (submit_a, start_a, end_a), (submit_b, start_b, end_b) = (
        [each.column(name) for name in TIMES] for each in (a, b)
    )
    wait_a, wait_b = start_a - submit_a, start_b - submit_b
    return {
        "completion_ratio": geometric_mean_ratio(end_a - submit_a, end_b - submit_b),
        "completion_ratio_jobs": int(((end_a > submit_a) & (end_b > submit_b)).sum()),
        "wait_ratio": geometric_mean_ratio(wait_a, wait_b),
        "wait_ratio_jobs": int(((wait_a > 0) & (wait_b > 0)).sum()),
        "waited_in_one_jobs": int(((wait_a > 0) != (wait_b > 0)).sum()),
        "submissions_differ": int((submit_a != submit_b).sum()),
    }


REASONS = (
    "only_in_a",
    "only_in_b",
    "started_in_neither",
    "started_only_in_a",
    "started_only_in_b",
    "not_ended",
)
"""Why a job is in no figure; the first that holds."""


def compared(a: Results, b: Results) -> tuple[Results, Results, dict[str, dict[str, Any]]]:
    """The jobs that started and ended in both, in the order of a, from a and from b; and of the
    others, by each of `REASONS`, how many (``jobs``) and the ids of the ``first``.
    """
    rows_a, rows_b = matched(a, b)
    in_a, in_b = a.pick(rows_a), b.pick(rows_b)
    started_a, started_b = (np.isfinite(each.column("start_s")) for each in (in_a, in_b))
    ended = np.isfinite(in_a.column("end_s")) & np.isfinite(in_b.column("end_s"))
    ids = in_a.jobs["job_id"]
    others = (
        a.jobs["job_id"].drop(rows_a),
        b.jobs["job_id"].drop(rows_b),
        ids[~started_a & ~started_b],
        ids[started_a & ~started_b],
        ids[~started_a & started_b],
        ids[started_a & started_b & ~ended],
    )
    left_out = {reason: _counted(each) for reason, each in zip(REASONS, others, strict=True)}
    chosen = np.flatnonzero(started_a & started_b & ended)
    return in_a.pick(chosen), in_b.pick(chosen), left_out


def _counted(ids: Any) -> dict[str, Any]:
    return {"jobs": len(ids), "first": ids.iloc[:5].tolist()}


def matched(a: Results, b: Results) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows of the jobs that both have, in the order of a."""
    where = pd.Index(b.jobs["job_id"]).get_indexer(a.jobs["job_id"])
    return np.flatnonzero(where >= 0), where[where >= 0]


def nodes_in(
    result: Results, other: Results, nodes_of: Mapping[str, float] | None = None
) -> Floats:
    """The nodes of each job: the result's own, else `nodes_of`'s, else those of `other`, which has
    the same jobs.
    """
    nodes = result.column("nodes")
    listed = np.array([(nodes_of or {}).get(job_id, np.nan) for job_id in result.jobs["job_id"]])
    for otherwise in (listed, other.column("nodes")):
        nodes = np.where(np.isnan(nodes), otherwise, nodes)
    return nodes


def _peak(start_s: Floats, end_s: Floats, nodes: Floats) -> float:
    _, busy = level(start_s, end_s, nodes)
    return float(busy.max()) if len(busy) else float("nan")

"""Results of a run (or of reality) as files, and the figures by which two of them are compared.

A result has a row a job: ``job_id, submit_s, start_s, end_s`` and more columns on request; a job that did not start
has no ``start_s``. Each figure is a pure function of arrays with one entry a job, NaN where a time is not known.
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping, Sequence
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
from slurm_sim.traces.table import FORMATS, replacing

Floats = NDArray[np.float64]

TIMES = ("submit_s", "start_s", "end_s")
QUANTILES = (50, 90, 95, 99)
WITHIN_S = (0, 5, 35, 60, 600)
SLOWDOWN_BOUND_S = 10


# --- files -----------------------------------------------------------------------------------------------------------


def write_results(columns: Mapping[str, Any], path: Path | str) -> None:
    """Writes .csv, .csv.gz or .parquet by the name's ending, all or nothing; equal columns give equal bytes.

    Columns: numpy arrays of whole numbers, pandas arrays (Int64, for numbers that may be missing), or lists of text.
    Raises TraceError if the name or the folder is not fit.
    """
    path = Path(path)
    check_format(path)
    table = pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})
    with replacing(path) as temporary:
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
    """Numbers through Arrow, which is fast but quotes every text or none; with texts through pandas."""
    if all(pa.types.is_integer(column.type) for column in table.columns):
        pa_csv.write_csv(table, out, pa_csv.WriteOptions(include_header=False, quoting_style="none"))
        return
    frame = table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    frame.to_csv(out, index=False, header=False, lineterminator="\n")


def check_format(path: Path) -> None:
    """Raises TraceError if results can't be written under this name."""
    if not path.name.endswith(FORMATS):
        raise TraceError(str(path), f"a file name ending in {', '.join(FORMATS)}", found=path.name)
    if path.is_dir() or not path.parent.is_dir():
        raise TraceError(str(path), "a file in a folder that exists")


@dataclass(frozen=True)
class Results:
    """A result: ``jobs`` is a DataFrame with job_id (text), submit_s, start_s, end_s (Int64) and what else there is."""

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
    """Reads a result of `slurm-sim run`, a recorded replay, or a trace (columns submit, start, end).

    Raises TraceError with the place of the first job whose times are missing, backwards or no numbers.
    """
    path = Path(path)
    try:
        if path.name.endswith(".parquet"):
            table = pa_parquet.read_table(path)
        else:
            zipped = "gzip" if path.name.endswith(".gz") else None
            # By block, so that a column that is whole in one and empty in another stays one type.
            with pa.input_stream(str(path), compression=zipped) as stream:
                table = pa_csv.read_csv(stream, convert_options=pa_csv.ConvertOptions(column_types=_types()))
    except (OSError, EOFError, pa.ArrowInvalid) as error:
        what = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise TraceError(str(path), f"a readable table of results ({what})") from error
    return _checked(table, str(path))


def _types() -> dict[str, Any]:
    wholes = (*TIMES, *(name.removesuffix("_s") for name in TIMES), "eligible_s", "eligible", "nodes")
    return {"job_id": pa.string()} | {name: pa.int64() for name in wholes}


def _checked(table: Any, file: str) -> Results:
    names = [_renamed(name, table.column_names) for name in table.column_names]
    if missing := [name for name in ("job_id", *TIMES) if name not in names]:
        expected = f"the columns job_id, {', '.join(TIMES)} (without {', '.join(missing)})"
        raise TraceError(file, expected, found=",".join(table.column_names), line=1, field="header")
    table = table.rename_columns(names)
    try:
        columns = [table[name].cast(_types().get(name, table[name].type)) for name in names]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TraceError(file, f"whole numbers as times ({error})") from error
    frame = pa.table(columns, names=names).to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)
    result = Results(frame, file)
    submit, start, end = (result.column(name) for name in TIMES)
    _refuse(file, np.isnan(submit), "submit_s", "a time", frame["submit_s"])
    _refuse(file, start < submit, "start_s", "a time from submit_s on", frame["start_s"])
    _refuse(file, end < np.fmax(start, submit), "end_s", "a time from start_s on", frame["end_s"])
    _refuse(file, frame["job_id"].duplicated().to_numpy(bool), "job_id", "each id once", frame["job_id"])
    return result


def _renamed(name: str, names: Sequence[str]) -> str:
    """A trace's submit, start, end, eligible as a result's."""
    with_unit = f"{name}_s"
    return with_unit if with_unit in (*TIMES, "eligible_s") and with_unit not in names else name


def _refuse(file: str, bad: NDArray[np.bool_], field: str, expected: str, values: Any) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise TraceError(file, expected, found=str(values.iloc[row]), line=row + 2, field=field)


# --- figures of one result -------------------------------------------------------------------------------------------


def makespan_s(submit_s: Floats, end_s: Floats) -> float:
    """max(end) - min(submit) over the jobs that ran; NaN: none did."""
    return float(np.nanmax(end_s) - np.nanmin(submit_s)) if np.isfinite(end_s).any() else float("nan")


def mean(values: Floats) -> float:
    """sum / count over what is known; NaN: nothing is."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def quantiles(values: Floats, percents: Sequence[int] = QUANTILES) -> dict[str, float]:
    """By name (``p90``): the linear interpolation between the two nearest of the sorted values that are known."""
    known = values[np.isfinite(values)]
    found = np.percentile(known, percents) if len(known) else np.full(len(percents), np.nan)
    return {f"p{percent}": float(value) for percent, value in zip(percents, found, strict=True)}


def bounded_slowdown(wait_s: Floats, run_s: Floats, bound_s: float = SLOWDOWN_BOUND_S) -> Floats:
    """max(1, (wait + run) / max(run, bound)), a job each (Feitelson et al., JSSPP 1997; bound: 10 s)."""
    return np.maximum(1.0, (wait_s + run_s) / np.maximum(run_s, bound_s))


def node_seconds(start_s: Floats, end_s: Floats, nodes: Floats) -> float:
    """sum(nodes x (end - start)) over jobs that ran."""
    return float(np.nansum(nodes * (end_s - start_s)))


def utilisation(start_s: Floats, end_s: Floats, nodes: Floats, span_s: float, cluster_nodes: float) -> float:
    """node_seconds / (cluster's nodes x makespan): 1 is a cluster that is always full."""
    return (
        node_seconds(start_s, end_s, nodes) / (cluster_nodes * span_s) if cluster_nodes * span_s > 0 else float("nan")
    )


def level(begin_s: Floats, end_s: Floats, amount: Floats) -> tuple[Floats, Floats]:
    """What is there at once over time: (times, level from each time on), with `amount` from begin until end.

    Times are strictly rising; a row of which either time is unknown does not count.
    """
    known = np.isfinite(begin_s) & np.isfinite(end_s) & np.isfinite(amount)
    at = np.concatenate([begin_s[known], end_s[known]])
    change = np.concatenate([amount[known], -amount[known]])
    times, index = np.unique(at, return_inverse=True)
    return times, np.cumsum(np.bincount(index, weights=change, minlength=len(times)))


# --- figures of two results, matched job by job ----------------------------------------------------------------------


def geometric_mean_ratio(a: Floats, b: Floats) -> float:
    """exp(mean(log(b / a))) over jobs where both are above 0; 1: equal on average, NaN: no such job."""
    both = (a > 0) & (b > 0)
    return float(np.exp(np.log(b[both] / a[both]).mean())) if both.any() else float("nan")


def relative_difference(a: float, b: float) -> float:
    """(b - a) / a; NaN where a is 0 or either is unknown."""
    return (b - a) / a if a else float("nan")


def start_differences(a_start_s: Floats, b_start_s: Floats) -> dict[str, float]:
    """Of start_b - start_a, over jobs that started in both: mean, mean and maximum of the absolute value, and the
    share of jobs for which it is at most each of `WITHIN_S`.
    """
    difference = (b_start_s - a_start_s)[np.isfinite(a_start_s) & np.isfinite(b_start_s)]
    if not len(difference):
        nan = float("nan")
        return {"mean_s": nan, "mean_absolute_s": nan, "max_absolute_s": nan} | {f"within_{s}_s": nan for s in WITHIN_S}
    far = np.abs(difference)
    figures = {"mean_s": difference.mean(), "mean_absolute_s": far.mean(), "max_absolute_s": far.max()}
    figures |= {f"within_{seconds}_s": (far <= seconds).mean() for seconds in WITHIN_S}
    return {name: float(value) for name, value in figures.items()}


# --- all of them -----------------------------------------------------------------------------------------------------


def figures_of(result: Results, nodes: Floats, cluster_nodes: float) -> dict[str, Any]:
    """A result's figures; jobs that did not run count in ``jobs`` only. Waits are start - submit."""
    submit, start, end = (result.column(name) for name in TIMES)
    end = np.where(np.isnan(start), np.nan, end)
    wait, run = start - submit, end - start
    span = makespan_s(submit[np.isfinite(end)], end) if np.isfinite(end).any() else float("nan")
    return {
        "jobs": len(result),
        "started": int(np.isfinite(start).sum()),
        "makespan_s": span,
        "completion_s": mean(end - submit),
        "wait_s": {"mean": mean(wait)} | quantiles(wait),
        "bounded_slowdown": mean(bounded_slowdown(wait, run)),
        "node_hours": node_seconds(start, end, nodes) / 3600 if np.isfinite(nodes).any() else float("nan"),
        "utilisation": utilisation(start, end, nodes, span, cluster_nodes),
    }


def compare_results(
    a: Results, b: Results, nodes_of: Mapping[str, float] | None = None, cluster_nodes: int | None = None
) -> dict[str, Any]:
    """The figures of two results over the jobs that both have, and how they differ.

    `nodes_of`: by job id, where neither result has nodes. `cluster_nodes` None: the most that were busy at once in
    either. JSON-ready but for NaN, which stands for what can't be told.
    """
    rows_a, rows_b = matched(a, b)
    in_a, in_b = a.pick(rows_a), b.pick(rows_b)
    nodes_a, nodes_b = nodes_in(in_a, in_b, nodes_of), nodes_in(in_b, in_a, nodes_of)
    peak = float(cluster_nodes) if cluster_nodes else max(_peak(in_a, nodes_a), _peak(in_b, nodes_b))
    of_a, of_b = figures_of(in_a, nodes_a, peak), figures_of(in_b, nodes_b, peak)
    (submit_a, start_a, end_a), (submit_b, start_b, end_b) = (
        [each.column(name) for name in TIMES] for each in (in_a, in_b)
    )
    only_a = a.jobs["job_id"][~a.jobs["job_id"].isin(b.jobs["job_id"])].tolist()
    only_b = b.jobs["job_id"][~b.jobs["job_id"].isin(a.jobs["job_id"])].tolist()
    return {
        "jobs": len(in_a),
        "cluster_nodes": peak,
        "a": of_a,
        "b": of_b,
        "difference": {
            "makespan": relative_difference(of_a["makespan_s"], of_b["makespan_s"]),
            "completion": relative_difference(of_a["completion_s"], of_b["completion_s"]),
            "wait": relative_difference(of_a["wait_s"]["mean"], of_b["wait_s"]["mean"]),
            "completion_ratio": geometric_mean_ratio(
                np.where(np.isnan(start_a), np.nan, end_a - submit_a),
                np.where(np.isnan(start_b), np.nan, end_b - submit_b),
            ),
            "submissions_differ": int((submit_a != submit_b).sum()),
        },
        "start": start_differences(start_a, start_b),
        "started_only_in_a": int((np.isfinite(start_a) & np.isnan(start_b)).sum()),
        "started_only_in_b": int((np.isfinite(start_b) & np.isnan(start_a)).sum()),
        "only_in_a": {"jobs": len(only_a), "first": only_a[:5]},
        "only_in_b": {"jobs": len(only_b), "first": only_b[:5]},
    }


def matched(a: Results, b: Results) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Rows of the jobs that both have, in the order of a."""
    where = pd.Index(b.jobs["job_id"]).get_indexer(a.jobs["job_id"])
    return np.flatnonzero(where >= 0), where[where >= 0]


def nodes_in(result: Results, other: Results, nodes_of: Mapping[str, float] | None = None) -> Floats:
    """The nodes of each job: the result's own, else `nodes_of`'s, else those of `other`, which has the same jobs."""
    if "nodes" in result.jobs.columns:
        return result.column("nodes")
    if nodes_of is not None:
        return np.array([nodes_of.get(job_id, np.nan) for job_id in result.jobs["job_id"]])
    return other.column("nodes")


def _peak(result: Results, nodes: Floats) -> float:
    _, busy = level(result.column("start_s"), result.column("end_s"), nodes)
    return float(busy.max()) if len(busy) else float("nan")

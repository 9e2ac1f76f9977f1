"""Rules for training chains on windows that are drawn from three job histories.

usage: python -m benchmarks.chain_goodput [--seed 2] [--windows 48] [--methods 'default;oracle']
           [--label default=new] [--traces DIR] [--out benchmarks/chain_goodput.json] [--table]

A window is a history (Lonestar6, KTH, Pegasus), a length of links (6, 12, 24 or 48 h), a number of
nodes and a begin. `--seed` draws them: each twelve windows have every history with every length, and
each size comes as often as any other. A window has one chain. It is watched for 14 days with links of
a day and more, and for 7 days with shorter ones.

All methods decide at the same times: each 30 minutes, or each 10 with links below a day. A handover
costs 10 minutes. Methods are those of `mirage evaluate chains`, separated by semicolons. `none` is
the window without a chain, for the waits of others. Rows of the service's rule, `default`, are named
`goodput`; `--label default=NAME` names them otherwise, to compare two versions. Rows that `--out` has
already are kept: remove those of a rule that has changed.

`--table` prints means, and differences to `--against` with intervals of 95 % over windows (paired).
`cases_of` makes the backgrounds of whole months and of the demo, for other benchmarks.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sim_common import write_json
from mirage.domain import Mode
from mirage.provision.chains.methods import chain_methods
from mirage.provision.chains.run import Scenario, busy_cluster
from mirage.provision.chains.trial import (
    AFTERWARDS_S,
    LEAD_S,
    ChainCase,
    ChainSite,
    try_chains,
)
from mirage.provision.evaluation.protocol import REACTIVE
from mirage.provision.learn.inputs import Inputs, read_inputs
from mirage.provision.learn.times import iso
from slurm_sim import JobSpec, Simulator
from slurm_sim.seconds import DAY_S, HOUR_S

ROOT = Path(__file__).parents[1]
TRACES = ROOT.parent / "shared/traces"
HISTORIES = {
    "Lonestar6": ("ls6_a100_dev", ROOT / "models/ls6-a100/cluster.toml"),
    "KTH": ("kth_sp2", ROOT / "models/kth-sp2/cluster.toml"),
    "Pegasus": ("pegasus_dev", ROOT / "benchmarks/pegasus.toml"),
}
TRACE = TRACES / "ls6_a100_dev.csv.gz"
IDLE_S = 4 * HOUR_S
"""Between two looks at a chain about which nothing is decided."""
WARM_S, LIMIT_S = 21 * DAY_S, 48 * HOUR_S
"""Of whole months: the time before them, and the longest limit of a recorded job."""
LINKS_H, NODES = (6, 12, 24, 48), (1, 2, 4, 8, 16, 32)
LONG_H = 24
"""Links of so many hours and more are watched for longer, and decided less often."""
MOST_JOBS_AN_HOUR = 40
"""A window with more submissions is drawn again: one run would take minutes."""
METHODS = "reactive;default;ahead:3:5L/12;after:L/4;oracle"
NONE, YARDSTICK = "none", "ahead:3:5L/12"
RESAMPLES = 4000


@dataclass(frozen=True, kw_only=True)
class Window:
    history: str
    link_h: int
    nodes: int
    begin_s: int

    @property
    def lasts_s(self) -> int:
        return (14 if self.link_h >= LONG_H else 7) * DAY_S

    @property
    def step_s(self) -> int:
        return 1800 if self.link_h >= LONG_H else 600

    @property
    def key(self) -> str:
        return f"{self.history} {iso(self.begin_s)} {self.nodes} nodes {self.link_h} h"


@cache
def inputs(history: str, traces: Path) -> Inputs:
    trace, cluster = HISTORIES[history]
    return read_inputs(traces / f"{trace}.csv.gz", cluster, None)


def windows(seed: int, count: int, traces: Path) -> list[Window]:
    """The same ones for the same seed; more of them begin with fewer."""
    random, found, sizes = np.random.default_rng(seed), list[Window](), list[int]()
    while len(found) < count:
        pairs = [(history, link_h) for history in HISTORIES for link_h in LINKS_H]
        for at in random.permutation(len(pairs)):
            history, link_h = pairs[at]
            sizes = sizes or [int(size) for size in random.permutation(NODES)]
            found.append(_drawn(random, history, link_h, sizes.pop(), traces))
    return found[:count]


def _drawn(
    random: np.random.Generator, history: str, link_h: int, nodes: int, traces: Path
) -> Window:
    log = inputs(history, traces).background.log
    while True:
        window = Window(history=history, link_h=link_h, nodes=nodes, begin_s=0)
        first_s, last_s = log.first_s + LEAD_S, log.last_s - window.lasts_s - AFTERWARDS_S
        begin_s = int(random.integers(first_s // HOUR_S, last_s // HOUR_S)) * HOUR_S
        jobs = len(log.between(begin_s - LEAD_S, begin_s + window.lasts_s))
        if jobs < MOST_JOBS_AN_HOUR * (LEAD_S + window.lasts_s) / HOUR_S:
            return Window(history=history, link_h=link_h, nodes=nodes, begin_s=begin_s)


def run(window: Window, method: str, traces: Path) -> dict[str, Any]:
    """A row."""
    begun_s = time.process_time()
    found = inputs(window.history, traces)
    site = ChainSite(
        background=found.background,
        partition=found.partition,
        methods=chain_methods([] if method in (NONE, REACTIVE) else [method], None),
        limit_s=window.link_h * HOUR_S,
        lasts_s=window.lasts_s,
        step_s=window.step_s,
    )
    case = ChainCase(
        begin_s=window.begin_s,
        nodes=window.nodes,
        mode=Mode.TRAIN,
        method=REACTIVE if method == NONE else method,
        count=0 if method == NONE else 1,
        is_for_others=True,
    )
    (trial,) = try_chains(site, [case])
    waits_s = trial.others_wait_s
    assert waits_s is not None
    return {
        "goodput": round(trial.progress.goodput, 4),
        "interrupted": round(trial.progress.interrupted_s / max(1, trial.progress.wall_s), 4),
        "handovers": trial.progress.handovers,
        "young": trial.young,
        "wall_h": round(trial.progress.wall_s / HOUR_S, 1),
        "others_h": round(float(waits_s.mean()) / HOUR_S, 3) if len(waits_s) else 0.0,
        "cpu_s": round(time.process_time() - begun_s, 1),
    }


def interval(values: Sequence[float]) -> str:
    """The mean of paired differences, and where it lies with 95 % by resampling windows."""
    drawn = np.random.default_rng(1).choice(np.array(values), (RESAMPLES, len(values)))
    low, high = np.quantile(drawn.mean(axis=1), [0.025, 0.975])
    return f"{np.mean(values):+.1f} ({low:+.1f} to {high:+.1f})"


Rows = dict[str, dict[str, Any]]
"""By window, then by method."""


def line(label: str, rows: Iterable[dict[str, Any]], method: str, against: str) -> str:
    """Of the windows that have both methods: means, and differences. Each has a row `none`."""
    pairs = [(row[method], row[against], row) for row in rows if method in row and against in row]
    if not pairs:
        return f"| {label} | {method} | 0 | | | | | | |"

    def mean(value: Callable[[dict[str, Any]], float]) -> float:
        return float(np.mean([value(ours) for ours, _, _ in pairs]))

    days = sum(ours["wall_h"] for ours, _, _ in pairs) / 24
    total = sum(ours["handovers"] for ours, _, _ in pairs)
    others = [ours["others_h"] - row[NONE]["others_h"] for ours, _, row in pairs]
    cells = [
        f"{100 * mean(lambda row: row['goodput']):.1f}",
        interval([100 * (ours["goodput"] - other["goodput"]) for ours, other, _ in pairs]),
        f"{total / days:.2f}",
        interval([ours["handovers"] - other["handovers"] for ours, other, _ in pairs]),
        f"{sum(ours['young'] for ours, _, _ in pairs) / max(1, total):.0%}",
        f"{np.mean(others):+.2f}",
    ]
    return f"| {label} | {method} | {len(pairs)} | {' | '.join(cells)} |"


GROUPS: dict[str, Callable[[Window], bool]] = {
    "all": lambda _: True,
    **{f"{hours} h": (lambda window, hours=hours: window.link_h == hours) for hours in LINKS_H},
    **{
        f"{low} to {high} nodes": (lambda window, low=low, high=high: low <= window.nodes <= high)
        for low, high in ((1, 2), (4, 8), (16, 16), (32, 32))
    },
    **{name: (lambda window, name=name: window.history == name) for name in HISTORIES},
}


def is_judged(rows: Rows, window: Window) -> bool:
    """Whether the first link, which is the same for all methods, starts in the first half."""
    wall_h = [row["wall_h"] for method, row in rows.get(window.key, {}).items() if method != NONE]
    return bool(wall_h) and max(wall_h) * HOUR_S >= window.lasts_s / 2


def table(rows: Rows, drawn: Sequence[Window], against: str, methods: Sequence[str]) -> str:
    head = ["windows", "method", "count", "goodput, %", f"more than {against}"]
    head += ["handovers a day", "more in a window", "young", "others wait more, h"]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    drawn = [window for window in drawn if is_judged(rows, window)]
    for label, is_of in GROUPS.items():
        of = [rows.get(window.key, {}) for window in drawn if is_of(window)]
        lines += [line(label, of, method, against) for method in methods]
    return "\n".join(lines)


def month_cluster(trace: Path, month: str, scenario: Scenario) -> Simulator:
    """The cluster with the recorded jobs of a month; time 0 is three weeks before it."""
    begin_s = int(datetime.fromisoformat(f"{month}-01").replace(tzinfo=UTC).timestamp())
    zero_s, most = begin_s - scenario.warm_up_s, len(scenario.cluster.nodes)
    jobs = []
    with gzip.open(trace, "rt") as file:
        for row in csv.DictReader(file):
            if not row["start"] or not row["end"]:
                continue
            submit_s, nodes = int(float(row["submit"])) - zero_s, int(row["nodes"])
            run_s = int(float(row["end"])) - int(float(row["start"]))
            limit_s = min(int(float(row["timelimit_s"])), LIMIT_S)
            if 0 <= submit_s <= scenario.end_s and nodes <= most and run_s > 0:
                spec = JobSpec(nodes, limit_s, max(1, min(run_s, limit_s)), user=row["user"] or "u")
                jobs.append(replace(spec, submit_s=submit_s))
    jobs.sort(key=lambda job: job.submit_s or 0)
    return Simulator(scenario.cluster, jobs)


def cases_of(
    base: Scenario, trace: Path, months: str, seeds: str
) -> dict[str, tuple[Scenario, Callable[[Scenario], Simulator]]]:
    """By name: a scenario, and what makes its cluster. ``months`` and ``seeds`` with commas."""
    cases: dict[str, tuple[Scenario, Callable[[Scenario], Simulator]]] = {
        month: (replace(base, warm_up_s=WARM_S), partial(month_cluster, trace, month))
        for month in filter(None, months.split(","))
    }
    return cases | {
        f"demo {seed}": (replace(base, seed=int(seed)), busy_cluster)
        for seed in filter(None, seeds.split(","))
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=2, help="that draws the windows")
    parser.add_argument("--windows", type=int, default=48, help="number of windows")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument(
        "--label", default="default=goodput", metavar="METHOD=NAME", help="name of its rows"
    )
    parser.add_argument("--against", default=YARDSTICK, help="method of the differences")
    parser.add_argument("--traces", type=Path, default=TRACES, help="folder of job histories")
    parser.add_argument("--table", action="store_true", help="only print the results")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    rows: Rows = json.loads(args.out.read_text()) if args.out.exists() else {}
    renamed, _, name = args.label.partition("=")
    drawn = windows(args.seed, args.windows, args.traces)
    for window in () if args.table else drawn:
        of = rows.setdefault(window.key, {})
        for method in (NONE, *args.methods.split(";")):
            label = name if method == renamed else method
            if label not in of:
                of[label] = run(window, method, args.traces)
                print(window.key, label, of[label], flush=True)
        write_json(args.out, rows)
    shown = list(dict.fromkeys(method for of in rows.values() for method in of if method != NONE))
    print(table(rows, drawn, args.against, shown))


if __name__ == "__main__":
    main()

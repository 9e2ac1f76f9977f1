"""What `mirage trace import --sacct` costs: a clean dump, and one whose names have delimiters and
line ends in them.

`python -m benchmarks.trace_import [--rows 300000] [--dirty 0.01] [--seed 1]`: CPU seconds and peak
memory.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from pathlib import Path

from slurm_sim.traces.sacct import import_sacct

HEADER = (
    "JobID|JobName|User|Account|QOS|Partition|Submit|Eligible|Start|End|Timelimit|AllocNodes|ReqNodes|AllocCPUS|"
    "AllocTRES|ReqTRES|State|ExitCode|Priority"
)
NAMES = ("a|b", "sweep\nlr=0.5", "x\ny|z", "|", "2024-01-01T00:00:00|COMPLETED")


def write(path: Path, rows: int, dirty: float, seed: int) -> None:
    pick = random.Random(seed)
    at = 1_650_000_000
    with path.open("w", encoding="utf-8") as file:
        file.write(HEADER + "\n")
        for number in range(rows):
            at += pick.randrange(60)
            nodes, run = pick.choice((1, 1, 1, 2, 4)), pick.randrange(60, 86_400)
            begin = at + pick.randrange(3600)
            submit, start, end = (
                time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(each))
                for each in (at, begin, begin + run)
            )
            name = pick.choice(NAMES) if pick.random() < dirty else f"job{number % 997}"
            tres = f"billing={nodes * 64},cpu={nodes * 64},gres/gpu={nodes * 4},mem={nodes * 256}G,node={nodes}"
            file.write(
                f"{number + 1}|{name}|u{number % 311}|acc{number % 41}|normal|{('gpu', 'cpu')[number % 2]}|{submit}|"
                f"{submit}|{start}|{end}|2-00:00:00|{nodes}|{nodes}|{nodes * 64}|{tres}|{tres}|COMPLETED|0:0|{number}\n"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=300_000)
    parser.add_argument(
        "--dirty", type=float, default=0.01, help="share of names with delimiters or line ends"
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for dirty in (0.0, args.dirty):
            path = Path(folder) / "sacct.txt"
            write(path, args.rows, dirty, args.seed)
            begin = time.process_time()
            done = import_sacct(path, "America/Chicago")
            spent = time.process_time() - begin
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
            print(
                f"{dirty:.0%} of names dirty: {done.rows} of {args.rows} records, {spent:.1f} CPU"
                f" s, peak {peak} MiB"
            )
            for note in (text for text in done.notes if "left out" in text):
                print(f"  {note}: {done.notes[note]}")


if __name__ == "__main__":
    main()

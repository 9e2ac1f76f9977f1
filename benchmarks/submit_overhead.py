"""What mirage-submit costs over plain sbatch: paired, alternating, median of the differences.

    scripts/slurm-up && .venv/bin/python -m benchmarks.submit_overhead [--pairs 20] [--keep]

Compared is a chain of two links (two submissions) with two plain `sbatch` calls, and with one. With
``--keep`` the result goes to submit_overhead.json.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from statistics import median

from benchmarks.sim_common import HERE, machine, write_json
from tests.slurm.site import ALICE, the_site

KEPT = HERE / "submit_overhead.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20)
    parser.add_argument("--keep", nargs="?", type=Path, const=KEPT, help=f"writes {KEPT.name}")
    args = parser.parse_args()
    site = the_site()
    site.install()
    script = site.script(
        ALICE, "work.sh", "#!/bin/sh\n#SBATCH -N1 -t5 -o /dev/null\nexec sleep 1\n"
    )
    dependent = ["--begin=now+1hour"]  # never starts: only the submission is timed

    def timed(*words: str) -> float:
        begin = time.perf_counter()
        site.run(ALICE, *words)
        return (time.perf_counter() - begin) * 1000

    plain, chain = [], []
    for _ in range(args.pairs):
        plain.append(timed("sbatch", *dependent, script))
        chain.append(timed("mirage-submit", "--again", "--segments=2", *dependent, script))
    site.cancel_all()
    once = median(b - a for a, b in zip(plain, chain, strict=True))
    twice = median(b - 2 * a for a, b in zip(plain, chain, strict=True))
    print(
        f"sbatch: median {median(plain):.0f} ms; mirage-submit, two links: median"
        f" {median(chain):.0f} ms"
    )
    print(
        f"more than one sbatch: median {once:.0f} ms; more than two: median {twice:.0f} ms"
        f" ({args.pairs} pairs)"
    )

    if args.keep:
        found = {"sbatch_ms": median(plain), "mirage_submit_ms": median(chain)}
        more = {"more_than_one_ms": once, "more_than_two_ms": twice, "pairs": args.pairs}
        write_json(args.keep, {**found, **more, "machine": machine()})


if __name__ == "__main__":
    main()

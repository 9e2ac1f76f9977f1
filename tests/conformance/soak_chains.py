"""The soak's chains: what each is asked to do, by a seed, and from that how it must end."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.slurm.site import ALICE, BOB, CAROL

HOUR_S = 3600
KINDS = {
    "limit": 12,  # saves when asked, at its limit or by its successor
    "timeout": 6,  # knows no signal: killed at its limit
    "exit": 8,  # each link ends by itself
    "early": 6,  # the work is done before the last link
    "fail": 4,  # a link exits with an error: the chain stops
    "retry": 3,  # ... which is allowed
    "loop": 3,  # links that end at once: a crash loop
    "cancel": 3,  # `mirage cancel`
    "scancel": 2,  # its running link is cancelled by hand: the next one goes on
    "service": 3,
}
"""How many of 50."""

SCRIPT = r"""#!/bin/sh
#SBATCH -N1 -o /dev/null
# NAME KIND RUN_S AT: what to do, for how long, and at which link
dir=$HOME/soak/$1 kind=$2 run_s=$3 at=$4
mkdir -p "$dir"
note() { echo "$1 $MIRAGE_SEGMENT $SLURM_JOB_ID $(date +%s)" >>"$dir/journal"; }
if [ "$kind" != service ]; then # the lock of a process that died is free; what runs beside must not inherit it
    exec 8>"$dir/lock"
    flock -n 8 || note TWO-WRITERS
fi
[ "$kind" = timeout ] || trap 'note saved; exit 0' USR1 TERM
note begin
nap() { sleep "$1" 8>&- & wait $!; }
last=0; [ "$MIRAGE_SEGMENT" -lt "$MIRAGE_SEGMENTS" ] || last=1
case $kind in
    exit) nap "$run_s" ;;
    early) if [ "$MIRAGE_SEGMENT" -ge "$at" ]; then nap "$run_s"; touch "$MIRAGE_DONE_FILE"; else nap 999999; fi ;;
    fail) if [ "$MIRAGE_SEGMENT" -ge "$at" ]; then nap "$run_s"; note failing; exit 3; else nap 999999; fi ;;
    retry) nap "$run_s"; if [ "$MIRAGE_SEGMENT" -eq "$at" ]; then note failing; exit 3; fi ;;
    loop) ;;
    service) nap 60; touch "$MIRAGE_READY_FILE"; if [ "$last" = 1 ]; then nap "$run_s"; else nap 999999; fi ;;
    *) nap 999999 ;;
esac
note end
"""


@dataclass(frozen=True)
class Plan:
    """One chain. Times in simulated seconds from the soak's start."""

    name: str
    user: str
    kind: str
    segments: int
    limit_min: int
    run_s: int
    at: int
    """At which link the kind's event happens."""
    submit_s: int
    act_s: int | None
    """When the user cancels it, or one of its links."""

    def words(self, script: str) -> list[str]:
        """Of mirage-submit."""
        more = {
            "timeout": [],
            "retry": ["--signal=B:USR1@300", "--on-failure=retry:2"],
            "loop": ["--signal=B:USR1@300", "--min-runtime=10min"],
            "service": ["--mode=service"],
        }.get(self.kind, ["--signal=B:USR1@300"])
        options = [
            f"--segments={self.segments}",
            f"--time={self.limit_min}",
            f"--job-name={self.name}",
            *more,
        ]
        return [*options, script, self.name, self.kind, str(self.run_s), str(self.at)]

    def expected(self) -> tuple[str, int]:
        """(how the chain ends, how many links begin their work). A crash loop ends after three."""
        return {
            "early": ("done", self.at),
            "fail": ("failed", self.at),
            "loop": ("failed", 3),
            "cancel": ("cancelled", 0),
            "timeout": ("used-up", self.segments),
        }.get(self.kind, ("done", self.segments))


def plans(count: int, hours: float, seed: int) -> list[Plan]:
    """``count`` chains, submitted in the first half of the time, in the order of their submission."""
    rng = random.Random(seed)
    kinds = [kind for kind, number in KINDS.items() for _ in range(number)]
    rng.shuffle(kinds)
    submits = sorted(rng.randrange(int(hours * HOUR_S * 0.5)) for _ in range(count))
    return [
        _plan(number, kinds[number % len(kinds)], submit_s, rng)
        for number, submit_s in enumerate(submits)
    ]


def _plan(number: int, kind: str, submit_s: int, rng: random.Random) -> Plan:
    segments, limit_min = rng.randint(3, 4), rng.randrange(90, 136, 5)
    at = rng.randint(2, segments - 1)
    part = rng.uniform(0.5, 0.9) if kind in ("exit", "service") else 0.3
    acts = {"cancel": rng.randint(2, 4) * HOUR_S, "scancel": rng.randint(1, 3) * HOUR_S}
    return Plan(
        name=f"soak{number:02}",
        user=rng.choice([ALICE, BOB, CAROL]),
        kind=kind,
        segments=9 if kind == "loop" else segments,
        limit_min=limit_min,
        run_s=int(part * limit_min * 60),
        at=at,
        submit_s=submit_s,
        act_s=submit_s + acts[kind] if kind in acts else None,
    )

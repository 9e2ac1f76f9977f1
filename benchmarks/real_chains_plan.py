"""The chains of `real_chains.py`, their scripts, and the jobs of others, by a seed."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.slurm.site import ALICE, BOB

HOUR_S = 3600
LINK_MIN = 480
"""Time limit of a link, in minutes."""

SUBMITTED = """#!/bin/sh
#SBATCH -o /dev/null
# NAME KIND LOADS_S: the batch script. The signal of --signal=USR1@300 goes to job steps. A service creates
# $MIRAGE_READY_FILE.
case $2 in
    step) srun -Q -N1 -n1 sh "$HOME/work.sh" "$@" ;;
    *) exec sh "$HOME/work.sh" "$@" ;;
esac
"""
WORK = r"""# NAME KIND LOADS_S: works until it is asked to save; `saved` is the work done so far, in seconds. A service
# answers while it holds a lock on `answers`, and loads for LOADS_S seconds before.
dir=$HOME/chains/$1 kind=$2
mkdir -p "$dir"
note() { echo "$1 $MIRAGE_SEGMENT $SLURM_JOB_ID $(date +%s) $2" >>"$dir/journal"; }
had=0
if [ "$kind" != service ]; then # what runs beside must not inherit the lock
    exec 8>"$dir/lock"
    flock -n 8 || note TWO-WRITERS 0
    had=$(cat "$dir/saved" 2>/dev/null || echo 0)
fi
began=$(date +%s)
save() {
    now=$((had + $(date +%s) - began))
    [ "$kind" = service ] || { echo "$now" >"$dir/.saved" && mv "$dir/.saved" "$dir/saved"; }
    note saved "$now"
    exit 0
}
nap() { sleep "$1" 8>&- 9>&- & wait $!; }
trap save USR1 TERM
note begin "$had"
if [ "$kind" = service ]; then
    nap "$3"
    echo $$ >"$dir/server"
    exec 9>>"$dir/answers"
    flock -s 9
    touch "$MIRAGE_READY_FILE"
fi
while :; do nap 999999; done # a signal to all processes can end the nap before the shell has it
"""


@dataclass(frozen=True, kw_only=True)
class ChainPlan:
    """One chain, submitted once the cluster is busy, and cancelled when the time is up."""

    name: str
    user: str
    kind: str
    """How it saves: `step` and `batch` at their own --signal, `plain` when asked, `service`."""
    nodes: int
    loads_s: int
    """Of a service: from its start until it is ready."""
    options: tuple[str, ...]

    @property
    def mode(self) -> str:
        return "service" if self.kind == "service" else "train"

    def words(self, script: str) -> list[str]:
        """Of mirage-submit. A handover takes seconds of the machine, so its grace is long."""
        return [
            "--segments=40",
            "--handover-grace=40min",
            f"--time={LINK_MIN}",
            f"--nodes={self.nodes}",
            f"--job-name={self.name}",
            *self.options,
            script,
            self.name,
            self.kind,
            str(self.loads_s),
        ]


_STEP, _BATCH, _SERVICE = "--signal=USR1@300", "--signal=B:USR1@60", "--mode=service"
_KINDS: tuple[tuple[str, int, tuple[str, ...]], ...] = (
    ("plain", 1, ()),
    ("plain", 2, ()),
    ("step", 1, (_STEP,)),
    ("step", 2, (_STEP,)),
    ("batch", 1, (_BATCH,)),
    ("batch", 2, (_BATCH, "--ahead=2")),
    ("step", 1, (_STEP, "--ahead=1")),
    ("batch", 1, (_BATCH, "--ahead=1")),
    ("service", 1, (_SERVICE,)),
    ("service", 2, (_SERVICE,)),
    ("service", 1, (_SERVICE, _BATCH)),
    ("service", 2, (_SERVICE, "--ahead=2")),
)


LOADS_S = (20, 60, 180, 480)
"""Of the services, in turn."""


def chain_plans(count: int, mode: str = "") -> list[ChainPlan]:
    """``count`` chains of two users (of one mode, if that is given); the kinds repeat."""
    kinds = [each for each in _KINDS if not mode or (each[0] == "service") == (mode == "service")]
    return [
        ChainPlan(
            name=f"chain{number:02}",
            user=(ALICE, BOB)[number % 2],
            kind=kind,
            nodes=nodes,
            loads_s=LOADS_S[number % len(LOADS_S)] if kind == "service" else 0,
            options=options,
        )
        for number in range(count)
        for kind, nodes, options in (kinds[number % len(kinds)],)
    ]


@dataclass(frozen=True, kw_only=True)
class OtherJob:
    """A job of somebody else. ``submit_s``: simulated seconds from the begin."""

    submit_s: int
    nodes: int
    limit_min: int
    run_s: int


def other_jobs(hours: float, node_count: float, seed: int) -> list[OtherJob]:
    """Jobs that ask for ``node_count`` nodes on average: twice as much in the first half of a day
    as in the second. Five hours' work is there at the begin.
    """
    rng = random.Random(seed)
    found: list[OtherJob] = []
    due_node_s, asked_node_s, at_s = 5 * node_count * HOUR_S, 0.0, 0
    while at_s < hours * HOUR_S:
        while asked_node_s < due_node_s:
            job = _other_job(at_s, rng)
            asked_node_s += job.nodes * job.run_s
            found.append(job)
        at_s += 600
        is_day = at_s % (24 * HOUR_S) < 12 * HOUR_S
        due_node_s += 600 * node_count * (4 / 3 if is_day else 2 / 3)
    return found


def _other_job(at_s: int, rng: random.Random) -> OtherJob:
    limit_min = rng.choice([120, 240, 480, 720])
    return OtherJob(
        submit_s=at_s + rng.randrange(600),
        nodes=rng.choices([1, 2, 4, 8], [5, 3, 2, 1])[0],
        limit_min=limit_min,
        run_s=int(limit_min * 60 * rng.uniform(0.3, 1.0)),
    )


def kill_times(count: int, hours: float, seed: int) -> list[tuple[int, int]]:
    """(when, for how long the daemon is away), simulated seconds."""
    rng = random.Random(seed + 1)
    times = (rng.randrange(HOUR_S, int(hours * HOUR_S)) for _ in range(count))
    return sorted((at_s, rng.randint(600, 5400)) for at_s in times)


def fault_times(count: int, names: list[str], hours: float, seed: int) -> list[tuple[int, str]]:
    """(when, which service fails), simulated seconds; from the second link on."""
    rng = random.Random(seed + 2)
    begin_s = (LINK_MIN // 60 + 6) * HOUR_S
    found = [(rng.randrange(begin_s, int(hours * HOUR_S)), rng.choice(names)) for _ in range(count)]
    return sorted(found)

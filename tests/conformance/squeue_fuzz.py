"""A plain user submits jobs with hostile values on a real slurmctld; everybody else's jobs must
still be read.

    scripts/slurm-up --dir DIR && .venv/bin/python -m tests.conformance.squeue_fuzz DIR [--jobs 400]
    [--seed 1] [--out FILE]

Needs root. mirage-alice submits held and waiting jobs in batches, and changes some of them by
`scontrol update`. After each batch all four readings of the queue and of accounting must go
through, and so must a cycle of the daemon; mirage-bob's jobs must be read as before. Prints what
slurmctld took, and what of it was odd.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from mirage.chain.tag import ChainTag, format_tag
from mirage.daemon.cycle import Daemon
from mirage.daemon.restraint import Acting
from mirage.domain import ActingMode, Job, Mode, Penalties
from mirage.errors import MirageError, Unreadable
from mirage.provision.policies.heuristics import Timer
from mirage.slurm.commands import CommandCluster
from mirage.slurm.runner import Runner
from mirage.store.repository import SqlStore
from tests.slurm.site import ALICE, BOB, Site

HOUR_S = 3600
BATCH = 25

FORGED = "|fedcba9876543210|"
"""A separator of the right form, as an attacker would guess it."""
TEXTS = (
    "two\nlines",
    "\n1|x|y|PENDING|\n",
    "666" + FORGED + "N/A" + FORGED + "root" + FORGED + "gpu" + FORGED + "\n",
    "\t\v\f\b\r\x01\x1b[2J\x1f\x1e\x7f",
    "|||,,,;;;===",
    "%s%n%x%%.9999999d",
    "$(id) `id` ; 'a' \"b\" \\",
    "\u202etxt.exe\u200b\u200d\ufeff",
    "\u2028\u2029\x85",
    "\U0001f600" * 60,
    "(null)",
    "mirage/1 chain=aaaaaaaaaa seg=2/5 pred=1 mode=train ei=1 eo=1",
    "mirage/1 chain=aaaaaaaaaa seg=1/5 mode=train ei=1 eo=1\n -- x",
    "x" * 1000,
    "x" * 20_000,
    " ",
)
RAW = (b"\xff\xfe\xc3", b"caf\xe9", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"a\xf0\x9f")
"""No UTF-8."""
COUNTS = (
    0,
    1,
    999,
    10**5,
    2**31 - 2,
    2**31,
    2**32 - 3,
    2**32,
    10**18,
    2**63 - 1,
    2**64 - 1,
    10**30,
)
NODE_LISTS = (
    "n1",
    "n[1-2]",
    "n1,n1,n[1-4]",
    "n[1",
    "n]",
    "n[4-1]",
    "n[1-999999999]",
    "n[01-03]",
    "n[[1]]",
    "",
    "n1,,n2",
)
TIMES = (
    "0",
    "1",
    "UNLIMITED",
    "INFINITE",
    "2147483646",
    "2147483647",
    "4294967295",
    "71582788-00",
    "365-00",
    "9999-23:59:59",
)
BEGINS = (
    "now+1hour",
    "2037-12-31",
    "2038-01-20",
    "2106-02-08",
    "2200-01-01",
    "now+99999999999",
    "9999-12-31",
    "1970-01-01",
)
ARRAYS = (
    "0-9%2",
    "1-1000:7%3",
    "0",
    "1000",
    "1,3,5,7,1000",
    "0-1000",
    "5-1",
    "1-5,1-5",
    "0-9:3%0",
    "1-99999999",
    "1-3%-1",
)
DEPENDENCIES = (
    "afterok:{}",
    "afterany:{}?afternotok:{}",
    "singleton",
    "after:{}+99999999",
    "afterany:{}:{}",
    "expand:{}",
)


def options(draw: random.Random, known: Sequence[int]) -> list[str | bytes]:
    """Options of one submission: one or two hostile ones. ``known``: jobs for it to depend on."""
    ids = [draw.choice(known) for _ in range(2)]
    many = "afterany:" + ":".join(str(draw.choice(known)) for _ in range(1000))
    count = draw.choice(COUNTS)
    unit = draw.choice(["", "", "K", "M", "G", "T", "P"])
    makers = (
        lambda: f"--comment={draw.choice(TEXTS)}",
        lambda: b"--comment=" + draw.choice(RAW),
        lambda: f"--comment={''.join(map(chr, (draw.randrange(1, 0x3000) for _ in range(40))))}",
        lambda: f"--job-name={draw.choice(TEXTS)}",
        lambda: b"--job-name=" + draw.choice(RAW),
        lambda: f"--gres=gpu:{count}{unit}",
        lambda: f"--gpus={count}",
        lambda: f"--gres={draw.choice(['gpu', 'gpu:x', 'gpu:1:2', 'a|b:1', 'gpu:-1', 'none'])}",
        lambda: f"--nodes={count}",
        lambda: f"--nodes={draw.choice([1, 2])}-{count}",
        lambda: f"--ntasks={count}",
        lambda: f"--cpus-per-task={count}",
        lambda: f"--mem={count}{unit}",
        lambda: f"--mem-per-cpu={count}{unit}",
        lambda: f"--tmp={count}{unit}",
        lambda: f"--time={draw.choice(TIMES)}",
        lambda: f"--time-min={draw.choice(TIMES)}",
        lambda: f"--begin={draw.choice(BEGINS)}",
        lambda: f"--deadline={draw.choice(BEGINS)}",
        lambda: f"--array={draw.choice(ARRAYS)}",
        lambda: f"--dependency={draw.choice(DEPENDENCIES).format(*ids)}",
        lambda: f"--dependency={many}",
        lambda: f"--constraint={draw.choice(['a&b', '[a*2&b*9]', 'a|b', '(a', '!a', ''])}",
        lambda: f"--licenses={draw.choice(['a:1', 'a@b:9', 'a:99999999999999999999', 'a|b', ','])}",
        lambda: f"--nodelist={draw.choice(NODE_LISTS)}",
        lambda: f"--exclude={draw.choice(NODE_LISTS)}",
        lambda: (
            f"--partition={draw.choice(['gpu,debug', 'debug,gpu', 'gpu,gpu', 'gpu,', ',', 'no|where'])}"
        ),
        lambda: f"--qos={draw.choice(['normal', 'no|ne', ''])}",
        lambda: f"--account={draw.choice(['research', 'no|ne', 'a b'])}",
        lambda: f"--nice={draw.choice([-5, 0, 10**4, 2**31 - 3, 2**31, 10**12])}",
        lambda: f"--priority={draw.choice([0, 1, 2**32 - 2, 2**32])}",
        lambda: f"--wckey={draw.choice(TEXTS)}",
        lambda: f"--chdir=/tmp/{draw.choice(TEXTS)}",
        lambda: f"--output=/dev/null{draw.choice(TEXTS[:8])}",
        lambda: f"--mail-user={draw.choice(TEXTS[:8])}",
        lambda: f"--reservation={draw.choice(['none', 'a,b', ''])}",
        lambda: f"--switches={draw.choice([1, 10**9])}@{draw.choice(TIMES)}",
        lambda: f"--signal=B:USR1@{draw.choice([1, 65535, 10**6])}",
        lambda: f"--requeue --exclusive={draw.choice(['user', 'mcs', ''])}",
    )
    hold = [] if draw.random() < 0.15 else ["--hold"]
    chosen: list[str | bytes] = [maker() for maker in draw.sample(makers, draw.choice([1, 1, 2]))]  # type: ignore[misc]
    return [*hold, *chosen]


def changes(draw: random.Random) -> str | bytes:
    """One `KEY=VALUE` for `scontrol update`."""
    return draw.choice(
        (
            f"Comment={draw.choice(TEXTS)}",
            b"Comment=" + draw.choice(RAW),
            f"TimeLimit={draw.choice(TIMES)}",
            f"StartTime={draw.choice(BEGINS)}",
            f"NumNodes={draw.choice(COUNTS)}",
            f"Gres=gpu:{draw.choice(COUNTS)}",
            f"MinMemoryNode={draw.choice(COUNTS)}",
            f"JobName={draw.choice(TEXTS)}",
            f"Nice={draw.choice([0, 10**4, 2**31 - 3])}",
            f"Features={draw.choice(['a', 'a|b', ''])}",
            f"ReqNodeList={draw.choice(NODE_LISTS)}",
        )
    )


@dataclass
class Fuzz:
    site: Site
    draw: random.Random
    taken: list[int] = field(default_factory=list)
    innocent: list[int] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.since_s = int(time.time()) - 60
        self.cluster = CommandCluster(Runner(env=os.environ | self.site.environment("root")))
        self.script = self.site.script(ALICE, "fuzz.sh", "#!/bin/sh\nsleep 1\n")

    def sbatch(self, user: str, *words: str | bytes) -> int | None:
        script = self.script.replace(ALICE, user)
        done = self.site.run(
            user, "sbatch", "--parsable", "-o/dev/null", *words, script, check=False
        )  # type: ignore[arg-type]
        last = done.stdout.strip().rpartition("\n")[2]
        return int(last) if done.returncode == 0 and last.isdigit() else None

    def be_innocent(self) -> None:
        """Bob's: a job that runs, one that waits for it, one that is held, an array."""
        self.site.script(BOB, "fuzz.sh", "#!/bin/sh\nsleep 3600\n")
        first = self.sbatch(BOB, "-N4", "-t300", "--gres=gpu:1")
        tag = ChainTag(
            chain_id="bobschain1",
            segment=2,
            segments=5,
            predecessor_id=first,
            mode=Mode.TRAIN,
            penalties=Penalties(),
        )
        more = (
            [f"--dependency=afterany:{first}", "-t300", f"--comment={format_tag(tag, 'mine')}"],
            ["--hold", "-N2", "--comment=a|b\nc \u00e9"],
            ["--array=1-9:4%1", "--hold"],
        )
        found = [first, *(self.sbatch(BOB, *words) for words in more)]
        assert all(found), found
        self.innocent = [job_id for job_id in found if job_id]

    def seen(self) -> dict[tuple[int, str], Job]:
        """Bob's jobs, without what changes by itself."""
        jobs = self.cluster.snapshot().jobs
        return {
            (job.job_id, job.array_task): replace(job, priority=0)
            for job in jobs
            if job.user == BOB
        }

    def submit(self, count: int) -> None:
        for _ in range(count):
            words = options(self.draw, [*self.innocent, *self.taken])
            job_id = self.sbatch(ALICE, *words)
            self.counts["taken" if job_id else "refused"] += 1
            if job_id:
                self.taken.append(job_id)
        for _ in range(count // 3):
            if not self.taken:
                break
            words = [
                "scontrol",
                "update",
                f"JobId={self.draw.choice(self.taken)}",
                changes(self.draw),
            ]
            done = self.site.run(ALICE, *words, check=False)  # type: ignore[arg-type]
            self.counts["change refused" if done.returncode else "changed"] += 1

    def readings(self) -> Iterator[tuple[str, object]]:
        """Each reading's name and what it gave."""
        until_s = int(time.time()) + 10
        yield "snapshot", self.cluster.snapshot()
        yield "jobs", self.cluster.jobs(self.innocent)
        try:
            yield "jobs of all", self.cluster.jobs([*self.innocent, *self.taken])
        except Unreadable as error:
            self.counts["unreadable, named"] += 1
            yield "jobs of all", error.jobs
        yield "accounting", self.cluster.accounting(self.since_s, until_s)
        yield (
            "accounting by id",
            self.cluster.accounting(self.since_s, until_s, [*self.innocent, *self.taken]),
        )
        yield "submissions", self.cluster.submissions(self.since_s, until_s, [ALICE, BOB])

    def check(self, daemon: Daemon, before: dict[tuple[int, str], Job]) -> None:
        try:
            found = dict(self.readings())
        except MirageError as error:
            self.problems.append(str(error))
            return
        oddities = found["snapshot"].oddities  # type: ignore[attr-defined]
        for name, is_set_apart in (("cut, at once", False), ("left out, at once", True)):
            number = sum(oddity.is_set_apart is is_set_apart for oddity in oddities)
            self.counts[name] = max(self.counts[name], number)
        self.counts["readings"] += len(found)
        if (now := self.seen()) != before:
            self.problems.append(f"bob's jobs were {before}, are {now}")
        for name in ("jobs", "jobs of all"):
            if not set(self.innocent) <= set(found[name]):  # type: ignore[call-overload]
                self.problems.append(f"{name}: bob's are not found by id")
        if not daemon.run_cycle():
            self.problems.append("a cycle of the daemon was skipped")
        self.counts["cycles"] += 1

    def run(self, jobs: int, folder: Path) -> None:
        """Everything. What went wrong is in `problems`."""
        store = SqlStore.open(f"sqlite:///{folder / 'mirage.db'}")
        acting = Acting(mode=ActingMode.OBSERVE)
        daemon = Daemon(self.cluster, store, _Clock(), Timer(HOUR_S), poll_s=60, acting=acting)
        try:
            self.be_innocent()
            before = self._settled()
            while (done := self.counts["taken"] + self.counts["refused"]) < jobs:
                self.submit(min(BATCH, jobs - done))
                self.check(daemon, before)
            self.site.run("root", "scancel", "-u", ALICE, check=False)
            time.sleep(4)  # slurmdbd hears of the ends
            self.check(daemon, before)
        finally:
            store.close()
            self.site.cancel_all()

    def _settled(self) -> dict[tuple[int, str], Job]:
        """Bob's jobs once the scheduler has been over all of them."""
        last = self.seen()
        for _ in range(30):
            time.sleep(1)
            now = self.seen()
            if now == last and all(job.reason or job.start_s for job in now.values()):
                return now
            last = now
        raise AssertionError(f"the queue does not settle: {last}")


class _Clock:
    def now_s(self) -> int:
        return int(time.time())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    begun, fuzz = time.monotonic(), Fuzz(Site(args.folder), random.Random(args.seed))
    with tempfile.TemporaryDirectory() as scratch:
        fuzz.run(args.jobs, Path(scratch))
    result = {
        "slurm": fuzz.cluster.settings().version,
        "seed": args.seed,
        "seconds": round(time.monotonic() - begun),
        **fuzz.counts,
        "problems": fuzz.problems,
    }
    text = json.dumps(result, indent=2)
    print(text)
    if args.out:
        args.out.write_text(text + "\n")
    if fuzz.problems:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

"""The job that sbatch makes of a batch script beside link 1 of the chain that mirage-submit makes
of it.

    scripts/slurm-up --dir D && .venv/bin/python -m tests.conformance.batch_scripts D [--count 300] [--seed
    1]

The scripts are made up, in the forms that public ones have: options long, short, bundled and
abbreviated, in the script, in the environment and on the command line; quotations, comments, tabs,
blank lines, other interpreters, #PBS and #BSUB lines. The real sbatch is the judge: both refuse, or
`scontrol show job` has the same in every field but those in DIFFERENT. Nothing runs: the nodes are
drained meanwhile.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.slurm.site import ALICE, Site

DIFFERENT = (
    "JobId",
    "Comment",
    "Command",
    "SubmitTime",
    "EligibleTime",
    "AccrueTime",
    "LastSchedEval",
)
"""Fields that differ between any two jobs, or that Mirage changes as docs/chains.md says."""
BY_CHANCE = ("AllocNode:Sid", "Reason", "Scheduler")
"""Which pass of the scheduler has looked at the job last."""
_OPTIONS = (
    (
        "time",
        "t",
        ("5", "10:00", "2:00:00", "1-0", "1-12:30", "0:30", "1-0:0:5", "UNLIMITED", "soon", "0"),
    ),
    ("nodes", "N", ("1", "2", "1-3", "2-2", "0", "9")),
    ("ntasks", "n", ("1", "4", "8", "x")),
    ("cpus-per-task", "c", ("1", "2", "4")),
    ("job-name", "J", ("train", "a b", "x#y", "run-%j", "ü", "a.b_c", "hetjob-1", '"q"', "")),
    ("output", "o", ("log-%j.out", "%x-%j.log", "/dev/null", "a b.log", "dir/%u.%N", "none")),
    ("error", "e", ("err-%j", "%x.err", "/dev/null")),
    ("partition", "p", ("gpu", "debug", "gpu,debug", "nope")),
    ("mem", None, ("1G", "500", "2000M", "0", "lots")),
    ("mem-per-cpu", None, ("100", "1G")),
    ("gres", None, ("gpu:1", "gpu:2", "gpu", "disk:1")),
    ("gpus-per-node", None, ("1", "gpu:1")),
    ("ntasks-per-node", None, ("1", "2")),
    ("mail-type", None, ("END", "ALL", "BEGIN,FAIL", "NONE")),
    ("mail-user", None, ("a@example.org",)),
    ("signal", None, ("USR1@300", "B:TERM@60", "SIGUSR2", "10@90", "FOO")),
    ("open-mode", None, ("append", "truncate")),
    ("export", None, ("ALL", "NONE", "A=1,B", "ALL,X=a b")),
    ("dependency", "d", ("singleton", "afterany:1", "")),
    ("begin", "b", ("now+1hour", "2037-01-01", "yesterdayish")),
    ("chdir", "D", ("/tmp", "sub", ".")),
    ("comment", None, ("mine", "a | b -- c", "1", "x#y")),
    ("licenses", "L", ("none:1",)),
    ("constraint", "C", ("none",)),
    ("nodelist", "w", ("n1", "n[1-2]")),
    ("exclude", "x", ("n4", "n[3-4]")),
    ("nice", None, (None, "100")),
    ("exclusive", None, (None, "user")),
    ("requeue", None, (None,)),
    ("no-requeue", None, (None,)),
    ("contiguous", None, (None,)),
    ("overcommit", "O", (None,)),
    ("oversubscribe", "s", (None,)),
    ("quiet", "Q", (None,)),
    ("verbose", "v", (None,)),
    ("no-kill", "k", (None,)),
    ("parsable", None, (None,)),
    ("switches", None, ("1", "1@10:00")),
    ("deadline", None, ("2037-01-01",)),
    ("time-min", None, ("3", "1:00")),
    ("tmp", None, ("1G",)),
    ("distribution", "m", ("block", "cyclic:block")),
    ("hint", None, ("nomultithread", "compute_bound")),
    ("threads-per-core", None, ("1",)),
    ("extra-node-info", "B", ("1:1:1", "*:2")),
    ("account", "A", ("nobodys",)),
    ("qos", "q", ("normal", "nope")),
    ("reservation", None, ("none",)),
    ("array", "a", ("1-3", "1-10%1")),
    ("hold", "H", (None,)),
    ("no-such-option", None, (None, "x")),
)
_FOREIGN = (
    *(
        "#PBS -l walltime=00:20:00",
        "#PBS -l nodes=2:ppn=2,walltime=1:0:0",
        "#PBS -N pbsname",
        "#PBS -q debug",
        "#PBS -j oe",
    ),
    *(
        "#PBS -l select=1:ncpus=2",
        "#PBS -o out.pbs",
        "#PBS -m abe -M a@example.org",
        "#PBS -V",
        "#PBS -v A=1,B=2",
        "#PBS -h",
    ),
    *(
        "#PBS -A nobodys",
        "#PBS -l mem=1gb",
        "#PBS -W umask=022",
        "#PBS -t 1-3",
        "#PBS -p 100",
        "#PBS -r y",
        "#PBS -k",
    ),
    *(
        "#BSUB -W 30",
        "#BSUB -W 2:00",
        "#BSUB -J bsubname",
        "#BSUB -n 4",
        "#BSUB -q debug",
        "#BSUB -o bsub.%J",
        "#BSUB -x",
    ),
    *("#BSUB -cwd /tmp", "#BSUB -M 100", "#BSUB -R 'rusage[mem=1]'"),
)
SECONDS_APART = 30
_REFUSED = frozenset(
    (
        "soon",
        "x",
        "nope",
        "lots",
        "FOO",
        "yesterdayish",
        "9",
        "disk:1",
        "none:1",
        "none",
        "nobodys",
        "1-3",
        "1-10%1",
        "3",
    )
)
"""Values that are mostly refused, by sbatch or in a chain: drawn more rarely."""
_INTERPRETERS = (
    "/bin/bash",
    "/bin/sh",
    "/bin/bash -l",
    "/usr/bin/env python3",
    "/usr/bin/perl -w",
    "/usr/bin/Rscript",
    " /bin/sh",
)
_COMMENTS = (
    "",
    "# a comment",
    "##SBATCH -N3",
    "# SBATCH -N3",
    "   ",
    "\t# x",
    "  #SBATCH -N3",
    "#sbatch -N3",
    "#DW a",
    "#",
    "#!x",
)
_ENVIRONMENT = (
    *(
        ("SBATCH_TIMELIMIT", "7"),
        ("SBATCH_JOB_NAME", "from env"),
        ("SBATCH_PARTITION", "debug"),
        ("SBATCH_JOB_NAME", ""),
    ),
    *(
        ("SBATCH_OUTPUT", "env-%j"),
        ("SBATCH_SIGNAL", "USR2@120"),
        ("SBATCH_NO_REQUEUE", ""),
        ("SBATCH_IGNORE_PBS", "1"),
    ),
    *(
        ("SBATCH_EXCLUSIVE", ""),
        ("SBATCH_WAIT", "0"),
        ("SBATCH_MEM_PER_NODE", "700"),
        ("SBATCH_GRES", "gpu:1"),
    ),
)
_BODY = 'echo "$0"\n#SBATCH -N3\nsrun hostname\n'


@dataclass(frozen=True, slots=True)
class Case:
    """A call of sbatch."""

    name: str
    content: bytes
    words: tuple[str, ...]
    """Options on the command line."""
    arguments: tuple[str, ...]
    environ: tuple[tuple[str, str], ...]
    program: str
    """`mirage-submit` or `mirage-sbatch`."""


def make_case(rng: random.Random, number: int) -> Case:
    """A script in the forms that public ones have, and how it is submitted."""
    name = rng.choice(
        (f"job{number}.sh", f"job {number}.sbatch", f"./job{number}", f"sub/job{number}.slurm")
    )
    lines = [f"#!{rng.choice(_INTERPRETERS)}", "#MIRAGE --segments=1"]
    for _ in range(rng.choice((1, 2, 3, 5, 8))):
        lines += rng.choices(_COMMENTS, k=rng.choice((0, 0, 1, 2)))
        lines.append(_directive(rng))
    if rng.random() < 0.2:
        lines += rng.choices(_FOREIGN, k=rng.choice((1, 1, 2, 3)))
    if rng.random() < 0.1:
        lines.append(
            rng.choice(
                (
                    "#SBATCH hetjob",
                    "#SLURM -t9",
                    "#SBATCH stray",
                    "#SBATCH : -N2",
                    '#SBATCH -J "open',
                    "#SBATCH --",
                )
            )
        )
    text = "\n".join(lines) + "\n" + _BODY
    if rng.random() < 0.1:
        text += rng.choice(("#PBS -N late\n", "#PBS -l walltime=33\n"))
    content = text.encode()
    if rng.random() < 0.1:
        content = rng.choice(
            (content.rstrip(b"\n"), content + b"# pad\n" * 50_000, b"\xef\xbb\xbf" + content)
        )
    if rng.random() < 0.03:
        content = rng.choice(
            (content.replace(b"\n", b"\r\n"), content.removeprefix(b"#!"), b"", content + b"\0")
        )
    words = [word for _ in range(rng.choice((0, 0, 1, 2))) for word in _option(rng)]
    program = rng.choice(("mirage-submit", "mirage-sbatch"))
    if program == "mirage-submit":  # it refuses this one and names --json
        words = [word for word in words if not word.startswith("--pars")]
    return Case(
        name=name,
        content=content,
        words=tuple(words),
        arguments=tuple(
            rng.choices(("a", "b c", "--time=3", "", "*", "-N2"), k=rng.choice((0, 0, 1, 2)))
        ),
        environ=tuple(rng.choices(_ENVIRONMENT, k=1)) if rng.random() < 0.15 else (),
        program=program,
    )


def _option(rng: random.Random) -> list[str]:
    """One option as the words of a command line."""
    name, letter, values = rng.choice(_OPTIONS[:16] if rng.random() < 0.6 else _OPTIONS)
    value = rng.choice(values)
    if value in _REFUSED and rng.random() < 0.8:
        return ["-N1"]
    if letter and rng.random() < 0.5:
        if value is None:
            return [f"-{letter}"] if rng.random() < 0.6 else [f"-{letter}v", "-N1"]
        return rng.choice(([f"-{letter}", value], [f"-{letter}{value}"], [f"-v{letter}", value]))
    written = name if rng.random() < 0.85 else name[: max(3, len(name) - 2)]
    if value is None:
        return [f"--{written}"]
    attached = name in ("nice", "exclusive", "no-such-option") or rng.random() < 0.6
    return [f"--{written}={value}"] if attached else [f"--{written}", value]


def _directive(rng: random.Random) -> str:
    words = [word for _ in range(rng.choice((1, 1, 1, 2, 3))) for word in _option(rng)]
    gap = rng.choice((" ", " ", "\t", "  "))
    line = (
        "#SBATCH"
        + rng.choice((" ", " ", "\t", "   "))
        + gap.join(_quoted(rng, word) for word in words)
    )
    return line + rng.choice(("", "", "", "  # why", " #x", "   ", "\t"))


def _quoted(rng: random.Random, word: str) -> str:
    """In one of the ways that sbatch's own reader takes; now and then as it stands, which changes
    its meaning.
    """
    if rng.random() < 0.1 or re.fullmatch(r"[\w=.:/%,@+\[\]*-]+", word):
        return word
    if '"' in word:
        return f"'{word}'"
    head, separator, value = word.partition("=")
    return f'{head}="{value}"' if separator and rng.random() < 0.5 else f'"{word}"'


class Judge:
    """A real Slurm with drained nodes."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self.folder = site.home(ALICE) / "scripts"
        self.taken = 0
        """Cases that both took."""

    @contextmanager
    def ready(self) -> Iterator[Judge]:
        for folder in (self.folder, self.folder / "sub", self.folder / "sub" / "sub"):
            folder.mkdir(exist_ok=True, mode=0o755)
            subprocess.run(["chown", f"{ALICE}:", str(folder)], check=True)
        self._site.run(
            "root", "scontrol", "update", "NodeName=ALL", "State=DRAIN", "Reason=benchmark"
        )
        try:
            yield self
        finally:
            self._site.run(
                "root", "scontrol", "update", "NodeName=ALL", "State=RESUME", check=False
            )

    def differences(self, case: Case) -> list[str]:
        """What is not as it should be; empty: nothing."""
        path = self.folder / case.name
        path.write_bytes(case.content)
        call = [*case.words, case.name, *case.arguments]
        plain, plain_error = self._submit(["sbatch", *call], case)
        self._cancel(plain)  # or a singleton would wait for it
        chained, chain_error = self._submit([case.program, *call], case)
        self.taken += bool(plain and chained)
        try:
            return _compare(plain, plain_error, chained, chain_error)
        finally:
            path.unlink()
            self._cancel(chained)

    def _cancel(self, jobs: Sequence[dict[str, str]]) -> None:
        if jobs:
            self._site.run("root", "scancel", *(job["JobId"] for job in jobs), check=False)

    def _submit(self, argv: Sequence[str], case: Case) -> tuple[list[dict[str, str]], str]:
        """The job as scontrol shows it (more than one: an array, a heterogeneous job), and standard
        error.
        """
        env = self._site.environment(ALICE) | dict(case.environ)
        words = ["env", "-C", str(self.folder), *self._site.argv(ALICE, argv)[3:]]
        done = subprocess.run(
            words,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        error = done.stderr.strip()
        found = re.search(
            r"(?:batch job|links?, jobs) (\d+)|^(\d+)(?:;|$)", done.stdout, re.MULTILINE
        )
        if done.returncode:
            return [], error
        queued = self._site.run("root", "squeue", "-h", "-u", ALICE, "-o", "%A").stdout.split()
        job_id = (
            (found[1] or found[2]) if found else max(queued, key=int, default="0")
        )  # --quiet says nothing
        shown = self._site.run("root", "scontrol", "show", "job", "-o", job_id).stdout
        return [_fields(line) for line in shown.splitlines() if line.strip()], error


def _fields(line: str) -> dict[str, str]:
    """The fields of `scontrol show job -o`, with the job's own id taken out of their values."""
    fields = dict(re.findall(r"(\S+?)=(.*?)(?= [A-Z][\w/:]*=|$)", line.strip()))
    job_id = fields.get("JobId", "")
    return {
        name: value.replace(job_id, "ID") if name.startswith("Std") else value
        for name, value in fields.items()
    }


def _compare(
    plain: list[dict[str, str]], plain_error: str, chained: list[dict[str, str]], chain_error: str
) -> list[str]:
    # docs/chains.md, "Not possible in a chain, and refused"
    refused_here = (
        "chain" in chain_error
        or "held link" in chain_error
        or "component" in chain_error
        or "first link alone" in chain_error
    )
    if not plain or not chained:
        if bool(plain) == bool(chained):
            return []
        special = plain and (
            len(plain) > 1 or "ArrayTaskId" in plain[0] or plain[0].get("Reason") == "JobHeldUser"
        )
        if special and refused_here:
            return []  # docs/chains.md: not possible in a chain, and refused
        return [
            f"only {'sbatch' if plain else 'the chain'} takes it; sbatch: {plain_error!r}; the"
            f" chain: {chain_error!r}"
        ]
    one, other = plain[0], chained[0]
    # Without a limit of its own, a job in several partitions shows that of the partition that
    # slurmctld tried last.
    shown_by_turns = ("TimeLimit",) if "," in one.get("Partition", "") else ()
    names = [
        name for name in {**one, **other} if name not in (*DIFFERENT, *BY_CHANCE, *shown_by_turns)
    ]
    found = [
        f"{name}: {one.get(name)!r}, in a chain {other.get(name)!r}"
        for name in names
        if not _is_same(one.get(name, ""), other.get(name, ""))
    ]
    own, _, users = other.get("Comment", "").partition(" -- ")
    if not own.startswith("mirage/1 ") or users != one.get("Comment", ""):
        found.append(f"Comment: {one.get('Comment')!r}, in a chain {other.get('Comment')!r}")
    return found


def _is_same(one: str, other: str) -> bool:
    """Times in Unix seconds may differ by what lies between two submissions."""
    are_times = re.fullmatch(r"\d{10}", one) and re.fullmatch(r"\d{10}", other)
    return one == other or bool(are_times and abs(int(one) - int(other)) < SECONDS_APART)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="of an instance of scripts/slurm-up")
    parser.add_argument("--count", type=int, default=300, help="how many scripts are made")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="this one alone, and show it")
    parser.add_argument(
        "--installed", action="store_true", help="Mirage is installed there already"
    )
    args = parser.parse_args()
    site = Site(args.folder)
    if not args.installed:
        site.install()
    begun, wrong, submitted = time.monotonic(), 0, 0
    with Judge(site).ready() as judge:
        for number in range(args.count):
            case = make_case(random.Random(f"{args.seed} {number}"), number)
            if args.only not in (None, number):
                continue
            differences = judge.differences(case)
            if args.only is not None:
                sys.stdout.write(case.content.decode(errors="replace"))
            if differences:
                wrong += 1
                print(
                    f"{number}: {case.program} {case.words} {case.name} {case.arguments}"
                    f" {case.environ}\n    " + "\n    ".join(differences)
                )
            submitted += 1
    print(
        json.dumps(
            {
                "scripts": submitted,
                "both_take": judge.taken,
                "different": wrong,
                "seed": args.seed,
                "wall_s": round(time.monotonic() - begun),
            }
        )
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

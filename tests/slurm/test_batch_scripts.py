"""The real sbatch judges what Mirage makes of a batch script. Many more: `python -m
tests.conformance.batch_scripts`.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.conformance.batch_scripts import Case, Judge, make_case
from tests.slurm.site import ALICE, Site, until

pytestmark = pytest.mark.slurm

HEAD = b"#!/bin/bash\n#MIRAGE --segments=1\n"
WRITTEN = {
    "quotes": HEAD + b"#SBATCH -J 'a \\' b'#c -N2\n#SBATCH --comment=\"x # y\" -t5\n",
    "split": HEAD + b"#SBATCH --time\n#SBATCH 9 -N2\n#SBATCH--mem=1G\n",
    "empty word": HEAD + b'#SBATCH -J "" -N2\n#SBATCH -n3\n',
    "pbs": HEAD + b"#SBATCH -t5\ntrue\n#PBS -l walltime=00:20:00,nodes=2:ppn=2 -N name\n",
    "bsub": HEAD + b"#BSUB -W 2:00 -J name\n#PBS -l walltime=20\n",
    "slurm": HEAD + b"#SLURM -t7\n\t\n#SBATCH\t-N\t2",
    "wrap": HEAD + b"#SBATCH -t5 --wrap=hostname\n",
    "stray": HEAD + b"#SBATCH -t5 stray\n",
}


def test_a_chains_first_link_is_the_job_that_sbatch_makes(site: Site) -> None:
    written = [
        Case(
            name="job.sh",
            content=content,
            words=(),
            arguments=("a b",),
            environ=(),
            program=program,
        )
        for content, program in zip(
            WRITTEN.values(), ("mirage-submit", "mirage-sbatch") * 4, strict=True
        )
    ]
    drawn = [make_case(random.Random(number), number) for number in range(10)]
    with Judge(site).ready() as judge:
        differences = {
            case: found for case in (*written, *drawn) if (found := judge.differences(case))
        }
        assert differences == {}
        assert judge.taken >= len(WRITTEN) - 1


CHILD = "import os,signal,time\n" + "".join(
    f"signal.signal({number},lambda *_: os.write(1,b'child {number}\\\\n'))\n"
    for number in (10, 12, 15)
)
DOES = {
    "kill 0 at its end": "trap 'exit' INT TERM; trap 'kill 0' EXIT; sleep 300 & echo works",
    "kill its group": "trap 'echo asked; exit 4' TERM; sleep 300 & kill -TERM -- -$$; wait",
    "pkill -g 0": "trap 'echo asked; exit 4' TERM; sleep 300 & pkill -g 0; wait",
    "pkill -s 0": "trap 'echo asked; exit 4' TERM; sleep 300 & pkill -s 0 2>/dev/null; wait",
    "kill -9 0": "echo works; kill -9 0",
    "os.killpg": "python3 -c 'import os; os.killpg(os.getpgrp(), 9)'; echo lives",
    "setsid": "setsid sleep 20 & setsid -w sh -c 'kill 0'; echo $?",
    "group": "echo $(($(ps -o pgid= -p $$) - $$)) $-; cat; exec true",
    "signals": "child & trap 'echo shell 10' USR1; trap 'echo shell 12' USR2;"
    " trap 'exit 9' TERM; echo ready >>$out; while :; do wait; done",
}
"""What scripts do to their own process group, and what they are."""
_OF_SHELLS = ("Killed", "Terminated", "User defined signal 2")


def test_a_script_does_in_a_chain_what_it_does_under_sbatch(site: Site) -> None:
    """The same output and the same exit code, whichever processes it signals."""
    links: dict[tuple[str, str], int] = {}
    for number, (name, does) in enumerate(DOES.items()):
        for how in ("plain", "chain"):
            out = site.home(ALICE) / f"does.{number}.{how}"
            out.unlink(missing_ok=True)
            child = f'child() {{ exec python3 -c "{CHILD}while True: time.sleep(1)"; }}'
            head = f"#!/bin/bash\n#SBATCH -t2 -c1 -s -o {out}\nout={out}.up\n{child}\n"
            script = site.script(ALICE, f"does.{number}.{how}.sh", f"{head}{does}\n")
            if how == "plain":
                job_id = int(site.run(ALICE, "sbatch", "--parsable", script).stdout)
            else:
                job_id = site.submit_chain(ALICE, "--segments=1", script)[1][0]
            links[name, how] = job_id
            if name == "signals":
                ready = out.with_name(f"{out.name}.up")
                until(ready.exists, 60, "the script that reports signals")
                _signal(site, job_id, out)
    until(lambda: all(_is_over(site, each) for each in links.values()), 120, "all jobs to end")
    for number, name in enumerate(DOES):
        plain, chain = (
            (_exit_code(site, links[name, how]), _words(site, number, how))
            for how in ("plain", "chain")
        )
        assert chain == plain, name


def _signal(site: Site, job_id: int, out: Path) -> None:
    """One after the other, each once the one before was heard."""
    for words, heard in (
        (("--batch", "--signal=USR1"), {"shell 10"}),
        (("--full", "--signal=USR2"), {"shell 12", "child 12"}),
        (("--batch", "--signal=TERM"), set()),
    ):
        site.run(ALICE, "scancel", *words, str(job_id))
        until(lambda wanted=heard: all(each in out.read_text() for each in wanted), 30, f"{words}")


def _is_over(site: Site, job_id: int) -> bool:
    return site.state(job_id) in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT")


def _exit_code(site: Site, job_id: int) -> int:
    """As a shell has it: of a job that died of a signal 128 and its number."""
    code, number = map(int, site.job(job_id)["ExitCode"].split(":"))
    return code or (128 + number if number else 0)


def _words(site: Site, number: int, how: str) -> list[str]:
    """What a script wrote, in any order, without messages of shells, Slurm and Mirage."""
    lines = (site.home(ALICE) / f"does.{number}.{how}").read_text().splitlines()
    return sorted(line for line in lines if ":" not in line and line not in _OF_SHELLS)

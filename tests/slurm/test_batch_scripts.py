"""The real sbatch judges what Mirage makes of a batch script. Many more: `python -m
benchmarks.batch_scripts`.
"""

from __future__ import annotations

import random

import pytest

from benchmarks.batch_scripts import Case, Judge, make_case
from tests.slurm.site import Site

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

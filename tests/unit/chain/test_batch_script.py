"""What Mirage reads in a batch script. The expectations are what a real sbatch 22.05 made of the
same lines.
"""

from __future__ import annotations

import pytest

from mirage.chain.batch_script import parse_script, split_words
from mirage.chain.sbatch import parse_help


def said(text: str, **more: bool) -> dict[str, str | None]:
    """The options of a script, as far as they count: the last of each name."""
    script = parse_script(f"#!/bin/sh\n{text}".encode(), **more)
    return {option.name: option.value for option in script.options}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (" -N 2\t-t\t5", ["-N", "2", "-t", "5"]),
        ("--time=8", ["--time=8"]),
        (" --comment='a # b'#c -N2", ["--comment=a # b"]),
        (" --comment=a#b -N2", ["--comment=a"]),
        (r' -J "a \" b"', ["-J", 'a " b']),
        (r" -J 'a \' b'", ["-J", "a ' b"]),
        (r" -J a\ b", ["-J", "a", "b"]),
        (' -J x"y z"w', ["-J", "xy zw"]),
        (' -J "" -N2', ["-J"]),
        (" -N1 : -N2", ["-N1"]),
        (" # -N2", []),
        ("", []),
    ],
)
def test_words_are_split_as_sbatch_splits_them(line: str, words: list[str]) -> None:
    assert split_words(line) == words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "#SBATCH -t5\n\n  # x\n\t\n#SBATCH\t-N\t2\ntrue\n#SBATCH -t6\n",
            {"time": "5", "nodes": "2"},
        ),
        ("#SBATCH -t5", {"time": "5"}),
        ("##SBATCH -t5\n# SBATCH -t5\n #SBATCH -t5\n#sbatch -t5\n", {}),
        ("#SBATCH--time=8\n#SBATCH -N2 --parti=a\n", {"time": "8", "nodes": "2", "partition": "a"}),
        ("#SBATCH --time\n#SBATCH 9\n", {"time": "9"}),
        ('#SBATCH -J "" -N3\n#SBATCH -N2\n', {"job-name": "-N2"}),
        ("#SLURM -t7\n", {"time": "7"}),
        (
            "#SBATCH -QsN 4 --nice -kt5\n",
            {"quiet": None, "oversubscribe": None, "nodes": "4", "nice": None},
        ),
        ("#SBATCH --wrap=hostname --help -V -t5\n", {"time": "5"}),
        (
            "#SBATCH -t5 --comment=my-hetjob-run hetjob -N2\n",
            {"time": "5", "nodes": "2", "comment": "my-hetjob-run"},
        ),
        ("#SBATCH --container-image x -t5\n", {"container-image": None, "time": "5"}),
    ],
)
def test_sbatch_lines(text: str, expected: dict[str, str | None]) -> None:
    got = said(text)
    assert {name: value for name, value in got.items() if name != "no-kill"} == expected


@pytest.mark.parametrize("separator", ["hetjob", "HETJOB -N2", "packjob"])
def test_a_component_of_a_heterogeneous_job(separator: str) -> None:
    script = parse_script(f"#!/bin/sh\n#SBATCH -N1\n#SBATCH {separator}\n#SBATCH -N2\n".encode())
    assert script.is_heterogeneous


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "#PBS -l walltime=00:20:00,nodes=2:ppn=2 -N name\n",
            {"time": "00:20:00", "job-name": "name"},
        ),
        ("#PBS -lselect=1:ncpus=4,walltime=1:0:0\n", {"time": "1:0:0"}),
        ("#PBS -l cput=10\n#PBS -l pcput=11\n", {"time": "11"}),
        ("#SBATCH -t5\n#PBS -l walltime=20\n", {"time": "20"}),
        ("#PBS -j oe -m abe -h\n", {"hold": None}),
        ("#PBS -t 1-3 -a 202612010000\n", {"array": "1-3", "begin": "202612010000"}),
        ("#PBS -W depend=afterok:5 -V -W umask=022\n", {"dependency": "afterok:5"}),
        ("#BSUB -W 2:00 -J name -n 4\n#PBS -l walltime=20 -h\n", {"time": "2", "job-name": "name"}),
        ("#BSUB -cwd /tmp -W 30\n", {"chdir": "/tmp", "time": "30"}),
        ("true\n\n#PBS -N late\n", {"job-name": "late"}),
        ("true\n" * 100 + "#PBS -N late\n", {"job-name": "late"}),
        ("true\n" * 101 + "#PBS -N late\n", {}),
        ("#SBATCH --ignore-pbs\n#PBS -N late\n", {"ignore-pbs": None}),
    ],
)
def test_lines_for_other_schedulers(text: str, expected: dict[str, str | None]) -> None:
    got = {name: value or None for name, value in said(text).items()}
    assert got == expected


def test_lines_for_other_schedulers_can_be_ignored() -> None:
    assert said("#PBS -h\n", ignore_pbs=True) == {}


def test_the_job_script_gets_every_line_that_somebody_may_read() -> None:
    head = b"#!/bin/sh\n#DW jobdw capacity=1\n# a\n#MIRAGE --segments=2\n#SBATCH -t5\n  # b\n"
    script = parse_script(head + b"true\n# c\n#PBS -N x\n#BSUB -x\n")
    assert script.directives == (
        b"#DW jobdw capacity=1",
        b"# a",
        b"#SBATCH -t5",
        b"#PBS -N x",
        b"#BSUB -x",
    )


PYXIS = """\
Usage: sbatch [OPTIONS(0)...] [ : [OPTIONS(N)...]] script(0) [args(0)...]
  -a, --array=indexes         job array index values
      --nice[=value]          decrease scheduling priority by value
  -B  --extra-node-info=S[:C[:T]]  combine request of sockets per node,

Options provided by plugins:
      --container-image=[USER@][REGISTRY#]IMAGE[:TAG]|PATH
                              [pyxis] the image to use for the container
                              filesystem. Can be either a docker image given as
                              an --enroot URI
      --container-mount-home  [pyxis] bind mount the user's home directory.
"""


def test_the_help_of_sbatch_says_which_options_of_plugins_take_a_value() -> None:
    known = parse_help(PYXIS)
    assert known["container-image"] is True
    assert known["container-mount-home"] is False
    assert known["nice"] is False, "its value must be attached"
    assert (known["array"], known["extra-node-info"]) == (True, True)


def test_options_of_plugins_in_a_script() -> None:
    script = b"#!/bin/sh\n#SBATCH --container-image docker://x --container-mount-home -t5\n"
    options = parse_script(script, lambda: parse_help(PYXIS)).options
    assert [(option.name, option.value) for option in options] == [
        ("container-image", "docker://x"),
        ("container-mount-home", None),
        ("time", "5"),
    ]


@pytest.mark.parametrize(
    ("first", "interpreter"),
    [
        (b"#!/bin/bash", ("/bin/bash",)),
        (b"#! /bin/bash -l ", ("/bin/bash", "-l")),
        (b"#!/usr/bin/env\t-S python3 -u", ("/usr/bin/env", "-S python3 -u")),
        (b"#!", ("/bin/sh",)),
    ],
)
def test_the_first_line_names_a_program_and_one_argument(first, interpreter):
    """As Linux reads it (execve(2), Interpreter scripts)."""
    assert parse_script(first + b"\necho hi\n").interpreter == interpreter

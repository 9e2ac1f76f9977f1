"""sbatch's command line: which words are options, which are their values, and where the script
stands.

The tables are those of sbatch 22.05 to 26.05 (sbatch(1), `slurm_opt.c`). As in sbatch, which uses
getopt_long, options end at the first other word, long ones may be abbreviated, and an optional
value must be attached (`--nice=5`, `-koff`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from mirage.errors import InputError

_WITH_VALUE = """
    account acctg-freq array batch bb bbf begin chdir cluster cluster-constraint clusters comment constraint container
    container-id container-type context core-spec cores-per-socket cpu-freq cpus-per-gpu cpus-per-task deadline
    delay-boot dependency distribution error exclude export export-file extra extra-node-info gid gpu-bind gpu-freq gpus
    gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input job-name kill-on-invalid-dep licenses
    mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mem-update mincpus network nodefile nodelist
    nodes ntasks ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket ntasks-per-tres open-mode output
    partition power prefer priority profile qos reservation resources segment signal sockets-per-node switches
    tasks-per-node thread-spec threads-per-core time time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap
"""
_WITHOUT_VALUE = """
    consolidate-segments contiguous exclusive get-user-env help hold ignore-pbs nice no-kill no-requeue oom-kill-step
    overcommit oversubscribe parsable propagate quiet reboot requeue resv-ports spread-job spread-segments stepmgr
    test-only usage use-min-nodes verbose version wait
"""
_SHORT_NAMES = """
    A:account a:array B:extra-node-info b:begin C:constraint c:cpus-per-task D:chdir d:dependency e:error F:nodefile
    G:gpus H:hold h:help i:input J:job-name k:no-kill L:licenses M:clusters m:distribution N:nodes n:ntasks O:overcommit
    o:output p:partition Q:quiet q:qos S:core-spec s:oversubscribe t:time V:version v:verbose W:wait w:nodelist
    x:exclude
"""
LONG_WITH_VALUE = frozenset(_WITH_VALUE.split())
LONG_WITHOUT_VALUE = frozenset(_WITHOUT_VALUE.split())
_LONG = dict.fromkeys(LONG_WITH_VALUE, True) | dict.fromkeys(LONG_WITHOUT_VALUE, False)
_SHORT = dict(pair.split(":") for pair in _SHORT_NAMES.split())
_SYNONYMS = {"cluster": "clusters", "tasks-per-node": "ntasks-per-node"}
_HELP_TIMEOUT_S = 20
_HELP_LINE = re.compile(r"^\s+(?:-\w,?\s+)?--([A-Za-z0-9][\w.-]*)(=?)", re.MULTILINE | re.ASCII)
_ANSWER = re.compile(
    r"^(?:Submitted batch job )?([1-9][0-9]{0,9})(?:;\S*| on cluster \S+)?\s*$",
    re.MULTILINE | re.ASCII,
)

Ask = Callable[[], Mapping[str, bool]]
"""Names the options of the installed sbatch, those of its SPANK plugins too, and says which take a
value.
"""


def ask_nobody() -> Mapping[str, bool]:
    return {}


@dataclass(frozen=True, slots=True)
class SbatchOption:
    """One option: its full name (`time` for `-t` and `--tim`), its value, and the words that pass
    it on unchanged.
    """

    name: str
    value: str | None
    words: tuple[str, ...]


def real_sbatch(path: str) -> str:
    """The first `sbatch` on ``path`` that is Slurm's, not the wrapper (`mirage-sbatch`); empty:
    there is none.
    """
    return next((program for program in _programs(path) if not _is_wrapper(program)), "")


def wrapper_on(path: str) -> bool:
    """Whether `sbatch` means the wrapper there."""
    return any(_is_wrapper(program) for program in _programs(path)[:1])


def _programs(path: str) -> list[str]:
    programs = (f"{folder}/sbatch" for folder in path.split(":") if folder)
    return [program for program in programs if os.access(program, os.X_OK)]


def _is_wrapper(program: str) -> bool:
    """Also by another name or through a script of the site's: to take it for sbatch would never
    end.
    """
    try:
        with open(program, "rb") as file:  # noqa: PTH123 - to import pathlib takes longer than all of this
            head = file.read(4096)
    except OSError:  # it may be executable without being readable; a folder is no program
        return os.path.isdir(program)  # noqa: PTH112
    return head.startswith(b"#!") and any(name in head for name in _OWN_NAMES)


_OWN_NAMES = (b"mirage-sbatch", b"mirage_sbatch", b"mirage.cli.sbatch")
"""What programs have in them that start the wrapper."""


def ask_sbatch(path: str) -> Ask:
    """Asks Slurm's sbatch on ``path`` by `sbatch --help`, which lists what its SPANK plugins add.
    At most once.
    """
    answers: list[Mapping[str, bool]] = []

    def ask() -> Mapping[str, bool]:
        if not answers:
            answers.append(parse_help(_help(real_sbatch(path))))
        return answers[0]

    return ask


def _help(program: str) -> str:
    import subprocess  # rarely needed

    if not program:
        return ""
    try:
        null = subprocess.DEVNULL
        done = subprocess.run(
            [program, "--help"], stdin=null, capture_output=True, timeout=_HELP_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return os.fsdecode(done.stdout)


def parse_help(text: str) -> dict[str, bool]:
    """The options that `sbatch --help` lists (sbatch(1), spank(7)): name -> whether its value may
    be the next word.
    """
    return {match[1]: bool(match[2]) for match in _HELP_LINE.finditer(text)}


def submitted_ids(stdout: str) -> list[int]:
    """The job ids that sbatch's output may mean, the likeliest last; all but that one are usually
    of a banner.

    `--parsable` prints `123` or `123;cluster`. Sites print to standard output too, most of them
    before that line.
    """
    return [int(digits) for digits in _ANSWER.findall(stdout)]


def find_batch_script(word: str, chdir: str, cwd: str, path: str) -> str:
    """The script that ``word`` means to sbatch (sbatch(1), SCRIPT PATH RESOLUTION); empty: there is
    none.

    ``chdir``: the value of --chdir on the command line; empty: none. ``path``: as in $PATH.
    """
    base = os.path.join(cwd, chdir)  # noqa: PTH118 - to import pathlib takes longer than all of this
    folders = [base] if "/" in word else [base, *(folder for folder in path.split(":") if folder)]
    places = (os.path.join(folder, word) for folder in folders)  # noqa: PTH118
    return next((place for place in places if os.path.isfile(place)), "")  # noqa: PTH113


def is_option(word: str) -> bool:
    return word.startswith("-") and word not in {"-", "--"}


def take_options(words: Sequence[str], ask: Ask = ask_nobody) -> tuple[list[SbatchOption], int]:
    """The options of the first word, which must be one, and how many words they take.

    ``ask`` is called when the tables do not have a long option. InputError: a value is missing.
    """
    return _take_long(words, ask) if words[0].startswith("--") else _take_short(words)


def _take_long(words: Sequence[str], ask: Ask) -> tuple[list[SbatchOption], int]:
    written, has_value, value = words[0][2:].partition("=")
    meant = _meant_by(written, _LONG)
    if not meant and not has_value:
        meant = _meant_by(written, ask())
    name = next(iter(meant)) if len(meant) == 1 else written
    if has_value or not meant or not all(meant.values()):
        return [
            SbatchOption(_SYNONYMS.get(name, name), value if has_value else None, (words[0],))
        ], 1
    value = _next_word(words)
    return [SbatchOption(_SYNONYMS.get(name, name), value, (words[0], value))], 2


def _meant_by(written: str, known: Mapping[str, bool]) -> dict[str, bool]:
    """The options that this may abbreviate. Which one, if there are several, is for the installed
    sbatch to say.
    """
    exact = written in known
    return {
        name: value
        for name, value in known.items()
        if name == written or (not exact and name.startswith(written))
    }


def is_known(option: SbatchOption, ask: Ask) -> bool:
    """Whether Mirage or the installed sbatch knows the option; else nobody can say which word is
    its value.
    """
    return option.name in _LONG or option.name in ask()


def _take_short(words: Sequence[str]) -> tuple[list[SbatchOption], int]:
    options: list[SbatchOption] = []
    letters = words[0][1:]
    for at, letter in enumerate(letters):
        name, attached = _SHORT.get(letter, letter), letters[at + 1 :]
        if _LONG.get(name) and not attached:
            value = _next_word(words)
            return [*options, SbatchOption(name, value, (f"-{letter}", value))], 2
        if _LONG.get(name) or letter == "k":
            return [*options, SbatchOption(name, attached or None, (f"-{letter}{attached}",))], 1
        options.append(SbatchOption(name, None, (f"-{letter}",)))
    return options, 1


def _next_word(words: Sequence[str]) -> str:
    if len(words) < 2:
        raise InputError(f"{words[0]} needs a value")
    return words[1]

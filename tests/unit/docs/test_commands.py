"""Each verb and option that a page names is there."""

from __future__ import annotations

import contextlib
import functools
import io
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirage.cli.main import main as mirage
from slurm_sim.cli.main import main as slurm_sim

ROOT = Path(__file__).parents[3]
PAGES = [
    *(ROOT / "docs").glob("*.md"),
    *(ROOT / "benchmarks").glob("*.md"),
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
]
PROGRAMS = {"mirage": mirage, "slurm-sim": slurm_sim}
BLOCK = re.compile(r"```[^\n]*\n(.*?)```", re.DOTALL)
IN_TEXT = re.compile(r"`((?:mirage|slurm-sim) [^`]*)`")
COMMAND = re.compile(r"(?:^|[\s$#/])((?:mirage|slurm-sim)(?: [a-z]+)+)((?: .*)?)$")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")


@functools.cache
def shown(program: str, *verbs: str) -> str | None:
    """What ``--help`` prints; None where there is no such verb."""
    with (
        contextlib.redirect_stdout(io.StringIO()) as out,
        contextlib.redirect_stderr(io.StringIO()),
    ):
        try:
            code = PROGRAMS[program]([*verbs, "--help"])
        except SystemExit as end:
            code = end.code
    return None if code else out.getvalue()


def commands(page: Path) -> Iterator[tuple[list[str], str]]:
    """Each command of a page: program and verbs, and the rest of the line."""
    text = page.read_text(encoding="utf-8")
    for piece in [*BLOCK.findall(text), *IN_TEXT.findall(text)]:
        for line in piece.replace("\\\n", " ").split("\n"):
            if found := COMMAND.search(line.split("  #")[0]):
                yield found[1].split(), found[2]


def problem(words: list[str], rest: str) -> str | None:
    """What is wrong with a command: its verb, or options that its help does not show."""
    known = next((words[:n] for n in (3, 2) if shown(*words[:n]) is not None), None)
    if known is None:
        return f"no verb {' '.join(words[:2])}"
    help_text = shown(*known) or ""
    unknown = [option for option in OPTION.findall(rest) if option not in help_text]
    return f"{' '.join(known)}: {', '.join(unknown)}" if unknown else None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_verbs_and_options_of_a_page_are_there(page: Path) -> None:
    found = [problem(words, rest) for words, rest in commands(page)]
    assert [each for each in found if each] == []


def test_a_verb_and_an_option_that_are_gone_are_found() -> None:
    assert problem(["mirage", "foretell"], "") == "no verb mirage foretell"
    assert problem(["mirage", "status"], " --no-such-option") == "mirage status: --no-such-option"

"""Reads a batch script as sbatch does: its #SBATCH, #BSUB and #PBS lines, and what sbatch makes of
them.

The rules are those of `src/sbatch/opt.c` and `xlate.c` in Slurm's sources, and of a real sbatch
22.05. Only what a chain depends on is read here. sbatch itself reads the same lines again in the
job script of each link.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mirage.chain.directives import DIRECTIVE
from mirage.chain.sbatch import Ask, SbatchOption, ask_nobody, is_option, take_options
from mirage.errors import InputError

_SBATCH = (b"#SBATCH", b"#SLURM")
"""The second is a former name, which sbatch 22.05 still takes, with a warning."""
_SEPARATORS = ("hetjob", "packjob")
_EARLY = frozenset({"wrap", "help", "usage", "version"})
"""Options that sbatch heeds on the command line alone."""
_FOREIGN = ((b"#BSUB", "ceJmMnoqW"), (b"#PBS", "aAcCejJklmMNopqrStuvW"))
"""In sbatch's order, of which the first kind that is found counts. The letters: options that take a
value.
"""
_FOREIGN_MEANS = {
    b"#BSUB": {"c": "chdir", "J": "job-name", "W": "time"},
    b"#PBS": {"a": "begin", "h": "hold", "J": "array", "N": "job-name", "t": "array"},
}
_FOREIGN_LINES = 100
"""sbatch looks for these lines until it has met more lines than this that do not begin with #."""
_PBS_TIME = re.compile(r"(?:walltime|cput)=([^,]*)")
_SPACE = " \t\v\f\r\n"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True, kw_only=True)
class UserScript:
    """The user's batch script."""

    content: bytes
    directives: tuple[bytes, ...]
    """The lines that sbatch, or a plugin of the site, may read: comments before the first command,
    #BSUB and #PBS.
    """
    options: tuple[SbatchOption, ...]
    """What they say to sbatch; the last one counts."""
    is_heterogeneous: bool

    @property
    def interpreter(self) -> tuple[str, ...]:
        """The first line's program, and its argument if there is one: all that follows, as Linux
        takes it. The script runs by them, since a home may be mounted without permission to
        execute.
        """
        first = self.content.partition(b"\n")[0].removeprefix(b"#!").strip()
        return tuple(map(os.fsdecode, first.split(None, 1))) or ("/bin/sh",)


def parse_script(content: bytes, ask: Ask = ask_nobody, *, ignore_pbs: bool = False) -> UserScript:
    """Reads the script. ``ignore_pbs``: sbatch's option of this name is given already.

    InputError: sbatch would refuse this script (its own checks see only ours).
    """
    _check(content)
    lines = content.split(b"\n")
    head = list(_comments(lines))
    words, is_heterogeneous = _sbatch_words([line for line in head if line.startswith(_SBATCH)])
    options = [option for option in _options(words, ask) if option.name not in _EARLY]
    ignore_pbs = ignore_pbs or any(option.name == "ignore-pbs" for option in options)
    foreign = [] if ignore_pbs else _foreign_options(lines)
    late = list(_foreign_lines(lines))[len(list(_foreign_lines(head))) :]
    return UserScript(
        content=content,
        directives=tuple(line for line in (*head, *late) if _is_directive(line)),
        options=(*options, *foreign),
        is_heterogeneous=is_heterogeneous,
    )


def _check(content: bytes) -> None:
    if content.startswith(_BOM):
        raise InputError(
            "this begins with a UTF-8 byte order mark, which sbatch refuses: save the script"
            " without it"
        )
    if not content.startswith(b"#!"):
        raise InputError(
            "this does not look like a batch script: its first line must be #! and an interpreter"
        )
    if b"\0" in content:
        raise InputError(
            "the batch script contains a NUL character, which Slurm does not allow: is it a text"
            " file?"
        )
    if b"\r\n" in content:
        raise InputError(
            "the batch script contains DOS line breaks (\\r\\n) instead of UNIX ones (\\n): run"
            " dos2unix on it"
        )


def _comments(lines: Sequence[bytes]) -> Iterator[bytes]:
    """The lines before the first command."""
    for line in lines:
        if line.strip() and not line.lstrip().startswith(b"#"):
            return
        yield line


def _is_directive(line: bytes) -> bool:
    """A comment that something else than a shell may read: `#SBATCH`, a burst buffer's `#BB`, a
    site's own word.
    """
    return line.startswith(b"#") and not line.startswith((b"#!", DIRECTIVE))


def _sbatch_words(lines: Sequence[bytes]) -> tuple[list[str], bool]:
    """The words of the #SBATCH lines, which are one command line to sbatch, and whether components
    follow.
    """
    words: list[str] = []
    for line in lines:
        rest = line.removeprefix(_SBATCH[0]).removeprefix(_SBATCH[1])
        more = split_words(os.fsdecode(rest))
        if more and more[0].lower() in _SEPARATORS:
            return words, True
        words += [word for word in more if word.lower() not in _SEPARATORS]
    return words, False


def split_words(line: str) -> list[str]:
    """The words of a directive, by sbatch's own rules: a backslash counts in any quotation, # ends
    a word too.

    An empty word in quotes and a `:` end the line for sbatch; of an open quotation it says so
    itself.
    """
    words: list[str] = []
    at = 0
    while True:
        word, at = _word(line, at)
        if not word:
            return words
        words.append(word)


def _word(line: str, at: int) -> tuple[str, int]:
    while at < len(line) and line[at] in _SPACE:
        at += 1
    word, quote, is_escaped = "", "", False
    if line[at : at + 1] == ":":
        return "", at
    while at < len(line) and (quote or line[at] not in _SPACE):
        letter = line[at]
        if is_escaped:
            is_escaped = False
            word += letter
        elif letter == "\\":
            is_escaped = True
        elif quote:
            quote, word = ("", word) if letter == quote else (quote, word + letter)
        elif letter in "\"'":
            quote = letter
        elif letter == "#":
            break
        else:
            word += letter
        at += 1
    return word, at


def _options(words: Sequence[str], ask: Ask) -> list[SbatchOption]:
    found: list[SbatchOption] = []
    rest = list(words)
    while rest:
        taken = 1
        if is_option(rest[0]):
            try:
                options, taken = take_options(rest, ask)
            except InputError:  # sbatch says so
                break
            found += options
        rest = rest[taken:]
    return found


def _foreign_lines(
    lines: Sequence[bytes], magics: Sequence[bytes] = (b"#BSUB", b"#PBS")
) -> Iterator[bytes]:
    others = 0
    for line in lines:
        if line.startswith(tuple(magics)):
            yield line
        elif not line.startswith(b"#"):
            others += 1
            if others > _FOREIGN_LINES:
                return


def _foreign_options(lines: Sequence[bytes]) -> list[SbatchOption]:
    """What sbatch makes of #BSUB or #PBS lines, as far as a chain depends on it. They go before
    #SBATCH lines.
    """
    for magic, with_value in _FOREIGN:
        if found := list(_foreign_lines(lines, (magic,))):
            words = [
                word
                for line in found
                for word in split_words(os.fsdecode(line.removeprefix(magic)))
            ]
            return list(_translated(magic, words, with_value))
    return []


def _translated(magic: bytes, words: Sequence[str], with_value: str) -> Iterator[SbatchOption]:
    rest = (
        [("-c" if word == "-cwd" else word) for word in words] if magic == b"#BSUB" else list(words)
    )
    while rest:
        word, rest = rest[0], rest[1:]
        letter, value = word[1:2], word[2:]
        if not word.startswith("-") or word.startswith("--"):
            continue  # a value that is of no interest, or what sbatch refuses
        if letter in with_value and not value and rest:
            value, rest = rest[0], rest[1:]
        shown = (f"{magic.decode()} -{letter} {value}".rstrip(),)
        if magic == b"#PBS" and letter == "l":
            yield from (SbatchOption("time", time, shown) for time in _PBS_TIME.findall(value))
        elif magic == b"#PBS" and letter == "W":
            if value.lower().startswith("depend="):
                yield SbatchOption("dependency", value[len("depend=") :], shown)
        elif name := _FOREIGN_MEANS[magic].get(letter):
            minutes = re.match(r"\d*", value)  # sbatch takes -W 2:00 for two minutes
            yield SbatchOption(name, minutes[0] if name == "time" and minutes else value, shown)

"""What a chain's script may submit: links that start chains, or the script itself, multiply them.

A job knows its chain by MIRAGE_CHAIN_ID. So do the jobs that it submits (`sbatch --export=ALL`, the
default): what they start multiplies in the same way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mirage.chain.folder import CHAIN_RECORD, USER_SCRIPT, chain_folder, read_record
from mirage.errors import InputError


def chain_around(environ: Mapping[str, str] = os.environ) -> str:
    """The chain that this process runs in, or whose links submitted its job; empty: none."""
    return environ.get("MIRAGE_CHAIN_ID", "")


def check_nesting(
    path: Path, content: bytes, environ: Mapping[str, str], *, is_allowed: bool
) -> None:
    """InputError: to start this script as a chain from here would multiply chains. ``is_allowed``:
    by `--nested`.
    """
    if not (chain := chain_around(environ)):
        return
    refuse_own_script(path, content, environ)
    if not is_allowed:
        raise InputError(
            f"this runs inside chain {chain}, and each of its links would start {path} as one more"
            " chain: add --nested if that is meant"
        )


_VARIABLE = re.compile(rb"^[ \t]*(?:(?:export|local|readonly)[ \t]+)?(\w+)=([^\n]*)", re.MULTILINE)
# a word of its own, as in /usr/bin/sbatch, unlike the end of train.sbatch
_SBATCH = rb"(?<![\w.])sbatch(?![\w.])"
_SUBMISSION = re.compile(
    rb"^(?![^#\n]*\b(?:echo|printf)\b[^#\n|;&]*"
    + _SBATCH
    + rb")[^#\n]*?"
    + _SBATCH
    + rb"([^#\n]*)",
    re.MULTILINE,
)


def submits_itself(name: str, content: bytes) -> bool:
    """Whether a script of this name seems to run sbatch on itself, by its name or by a variable that
    holds it.
    """
    text = content.replace(b"\\\n", b" ")
    own = rb"\$\{?0\b|\$\{?BASH_SOURCE|\bMIRAGE_SCRIPT\b|(?<![\w.-])" + re.escape(os.fsencode(name))
    own = rb"(?:" + own + rb"(?![\w.-])|\bCommand=)"
    held = [match[1] for match in _VARIABLE.finditer(text) if re.search(own, match[2])]
    named = rb"|".join([own, *(rb"\$\{?" + re.escape(variable) + rb"\b" for variable in held)])
    return any(re.search(named, match[1]) for match in _SUBMISSION.finditer(text))


def refuse_own_script(path: Path, content: bytes, environ: Mapping[str, str]) -> None:
    """InputError: this is the script of the chain around, which would run once more beside it for
    each link.
    """
    if _is_own_script(path, content, environ):
        raise InputError(
            f"{path} is the script of chain {chain_around(environ)}, inside which this runs: "
            "the chain queues its next link itself, so remove this submission from the script"
        )


def _is_own_script(path: Path, content: bytes, environ: Mapping[str, str]) -> bool:
    """Whether this is the script of the chain around, or its job script: by any path or link, or a
    copy of it.
    """
    folder = _folder(environ)
    if folder is None:
        return False
    with suppress(OSError):
        source = read_record(folder / CHAIN_RECORD).get("script", "")
        if path.resolve().parent == folder.resolve() or (
            source and path.resolve() == Path(source).resolve()
        ):
            return True
        return content == (folder / USER_SCRIPT).read_bytes()
    return False


def _folder(environ: Mapping[str, str]) -> Path | None:
    if folder := environ.get("MIRAGE_CHAIN_DIR"):
        return Path(folder)
    with suppress(InputError):
        return chain_folder(chain_around(environ), environ)
    return None

"""When a service is ready, as `mirage-submit` is told: `--health-command`, `--health-http`,
`--health-tcp`, `--startup`, and `--uptime`, the share of the time for which it should be; and on
which port clients reach it: `--port`.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence

from mirage.chain.durations import format_duration, parse_duration
from mirage.chain.script import FREE_PORT, ChainSettings, Health
from mirage.chain.service import SERVICE_OPTIONS
from mirage.domain import Mode
from mirage.errors import InputError

_CHECKS = ("health-command", "health-http", "health-tcp")
_COUNTS = ("health-count", "health-failures")
OF_SERVICES = frozenset({*_CHECKS, *_COUNTS, "startup", "uptime", "port"} | SERVICE_OPTIONS)
"""Options that say nothing to a `train` chain."""
_READY_FILE = b"MIRAGE_READY_FILE"
_PAGE = re.compile(r"(\d{1,5}|)(/[!-~]*)", re.ASCII)
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,3})?)%?", re.ASCII)
_LEAST_UPTIME, _MOST_UPTIME = 50.0, 99.999


def parse_health(own: Mapping[str, str], count: int, failures: int, script: bytes) -> Health:
    """What Mirage's options say. ``count``, ``failures``: checks in a row that must pass, and those
    that end a server which was ready. ``script``: the user's, which may create the ready file itself.

    InputError: an option's value is wrong, or two options exclude one another.
    """
    given, says_so = [name for name in _CHECKS if name in own], _READY_FILE in script
    _refuse_wrong(own, given, says_so=says_so)
    reached = _reached(own["port"]) if "port" in own else 0
    port, path = _page(own["health-http"], reached) if "health-http" in own else (0, "")
    if "health-tcp" in own:
        port = _port("health-tcp", own["health-tcp"], "8000")
    if not given and not says_so:
        port = reached
    return Health(
        command=own.get("health-command", ""),
        port=port,
        path=path,
        reached=reached or port,
        count=count,
        failures=failures,
        says_so=says_so,
        uptime=_uptime(own) if "uptime" in own else None,
    )


def _refuse_wrong(own: Mapping[str, str], given: Sequence[str], *, says_so: bool) -> None:
    """Raises InputError. ``given``: which checks the options name. ``says_so``: the script itself
    creates the ready file.
    """
    if len(given) > 1:
        options = " and ".join(f"--{name}" for name in given)
        raise InputError(f"give one of {options}: one check tells when it is ready")
    if not own.get("health-command", "true").strip():
        raise InputError(
            "--health-command needs a shell command that exits with 0 once it is ready"
        )
    if "health-command" in own and (wrong := _syntax_error(own["health-command"])):
        raise InputError(f"--health-command: sh can't read it: {wrong}")
    if not (given or says_so or "port" in own) and parse_duration(own.get("startup", "1")) == 0:
        raise InputError(
            "--startup 0 without a check: each link would count as ready at once, and end the one"
            " before. Give the time from its start until it is ready, or --health-http PORT/path"
        )
    counts = [name for name in _COUNTS if name in own]
    if counts and not given and "port" not in own:
        raise InputError(
            f"--{counts[0]} has no meaning without a check:"
            " --health-command, --health-http or --health-tcp"
        )


def _syntax_error(command: str) -> str:
    """Empty: there is none."""
    done = subprocess.run(
        ["/bin/sh", "-n", "-c", command], capture_output=True, text=True, errors="replace"
    )
    return done.stderr.partition("\n")[0] if done.returncode else ""


def _page(text: str, reached: int) -> tuple[int, str]:
    """Port and path. ``reached``: the port of `--port`, which a page without a port is on."""
    match = _PAGE.fullmatch(text)
    if not match or not (match[1] or reached):
        raise InputError(
            f"--health-http: {text!r} is not PORT/path, such as 8000/health (for https, use"
            " --health-command); with --port, /health will do"
        )
    return _port("health-http", match[1], "8000/health") if match[1] else reached, match[2]


def _reached(text: str) -> int:
    return FREE_PORT if text == "free" else _port("port", text, "8000, or free")


def _port(option: str, text: str, example: str) -> int:
    if not re.fullmatch(r"\d{1,5}", text, re.ASCII) or not 1 <= int(text) <= 65535:
        raise InputError(
            f"--{option}: {text!r} is no port: expected 1 to 65535, as in --{option} {example}"
        )
    return int(text)


def _uptime(own: Mapping[str, str]) -> float:
    text = own["uptime"]
    match = _PERCENT.fullmatch(text)
    if not match or not _LEAST_UPTIME <= float(match[1]) <= _MOST_UPTIME:
        raise InputError(
            f"--uptime: {text!r} is not a percentage from {_LEAST_UPTIME:.0f}% to {_MOST_UPTIME}%,"
            " such as 99.9%"
        )
    if penalty := next((f"--{name}" for name in own if name.startswith("penalty-")), ""):
        raise InputError(f"give either --uptime or {penalty}: both say what an interruption costs")
    return round(float(match[1]) / 100, 5)


def health_note(settings: ChainSettings) -> str:
    """One line for the owner of a service that gives no check; empty: there is nothing to say."""
    health = settings.health
    if settings.mode is Mode.TRAIN or health.command or health.port or health.says_so:
        return ""
    return (
        "no health check is given, so each link counts as ready"
        f" {format_duration(settings.startup_s)} after its start (--startup), or once it creates"
        " $MIRAGE_READY_FILE. To have it checked: --health-http PORT/path or --health-tcp PORT"
    )

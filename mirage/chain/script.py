"""The job script that sbatch gets for each link: the user's #SBATCH lines, the chain's values, and
`job.sh`.

The user's own script is not in it: a copy lies in the chain's folder (as sbatch keeps one), so that
it runs under its own interpreter, and later edits of the original change no link of a chain that is
under way.
"""

from __future__ import annotations

import os
import shlex
import signal
from dataclasses import dataclass
from pathlib import Path

from mirage.chain.batch_script import UserScript
from mirage.chain.durations import format_time_limit
from mirage.chain.folder import DONE, JOB_SCRIPT, USER_SCRIPT, then_script
from mirage.chain.sbatch import SbatchOption
from mirage.chain.tag import ChainTag, format_replica, format_tag, format_wishes
from mirage.domain import SIGNAL_SLACK_S, USED_UP_EXIT, Mode, Penalties, assumed_handover_s

FREE_PORT = -1
"""Each link chooses a port that is free on its node."""
HEALTH_INTERVAL_S, HEALTH_AGAIN_S = 2, 10
"""Between two checks, before a link of a service is ready and after it."""
PORT_LIMIT_S, COMMAND_LIMIT_S = 5, 30
"""A check of a port, and the user's --health-command, may take so long."""
NOTIFY_LIMIT_S = 60
"""The user's --notify command may run for so long."""
LEAST_GRACE_S = 300
NOTICE_S = 10
"""So long after a link of a service has lost its endpoint file it is asked to end: gateways have seen it then."""
LEAVE_LEAD_S = 30
"""So long before its time limit, or its own signal, a link of a service takes no new clients."""
CONFIRM_AFTER_S = 60
"""A link that was queued so long ago is asked for once more: slurmctld may have been killed before
it had saved it.
"""
LOOK_AHEAD_S = 600
"""A link looks this often whether a further successor should be queued."""
MOST_AHEAD = 10
AHEAD = 6
"""Successors that may be in the queue at once, by default."""
WRITE_PATIENCE_S, RECORD_PATIENCE_S = 300, 60
"""A link tries for so long to write into the chain's folder: as it starts, and how it ended."""
END_LEAD_S = 60
"""So long before its time limit a link that could not queue the next one gives up."""
_UNKNOWN_JOB = 0xFFFFFFFF
_FORWARDED = ("HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "TERM")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """When the chain stops by itself."""

    action: str = "stop"
    """`stop`, `continue` or `retry`."""
    retries: int = 0
    """With `retry`: how many links in a row may fail."""
    min_runtime_s: int = 60
    least_run_s: int | None = None
    """`min_runtime_s`, if its owner gave it: then successors leave each link so long, too."""
    max_short: int = 3
    """Stop after this many links in a row that ran for less than `min_runtime_s`; 0: never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """How a link that starts while its predecessor runs takes over."""

    signal: str = "TERM"
    """Asks the predecessor to checkpoint and end: `[B:]NAME`, or `none`."""
    grace_s: int | None = None
    """After so long it is cancelled; None: job.sh settles it by the chain's checkpoints, from
    LEAST_GRACE_S on.
    """
    max_overlap_s: int | None = None
    """Both run together at most this long; None: no limit."""
    cost_s: int | None = None
    """Until the chain has measured it: time that a `train` chain loses by one handover, or from a
    service's start until it is ready; None: not known.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """When a service is ready, and for how much of the time it should be."""

    command: str = ""
    """Exits with 0 once it is."""
    port: int = 0
    """Of its node: ready once that accepts a connection; 0: none is asked; FREE_PORT: `reached`."""
    path: str = ""
    """Of a page on that port: ready once the answer is 2xx or 3xx."""
    reached: int = 0
    """The port on which clients reach it, or FREE_PORT; 0: none, unless the script writes it into the
    file `$MIRAGE_ENDPOINT`.
    """
    count: int = 3
    """Checks in a row that must pass."""
    failures: int = 3
    """A server that was ready is ended after so many failed checks in a row; 0: it is not asked."""
    says_so: bool = False
    """The script creates `$MIRAGE_READY_FILE`."""
    uptime: float | None = None
    """Share of the time; None: the default."""

    @property
    def words(self) -> str:
        """The check, as a user gave it."""
        if self.command:
            return f"--health-command {self.command}"
        if self.port:
            port = "port $MIRAGE_PORT" if self.port == FREE_PORT else str(self.port)
            return f"--health-{'http' if self.path else 'tcp'} {port}{self.path}"
        return "$MIRAGE_READY_FILE"


@dataclass(frozen=True, slots=True)
class Notify:
    """What tells the user: a shell command that runs in the chain's jobs."""

    command: str = ""
    """Empty: nothing does."""
    after_s: int = 600
    """The chain is interrupted once nothing has run for so long."""


@dataclass(frozen=True, slots=True)
class LimitSignal:
    """The user's own `--signal`: Slurm sends it so long before the time limit."""

    number: int
    batch: bool
    """`B:`: to the batch shell alone."""
    lead_s: int
    """0: Slurm never sends it."""

    @property
    def name(self) -> str:
        """`USR1`; a signal without a name (some real-time ones) is called by its number."""
        try:
            return signal.Signals(self.number).name.removeprefix("SIG")
        except ValueError:
            return str(self.number)

    @property
    def can_be_caught(self) -> bool:
        return self.number not in {signal.SIGKILL, signal.SIGSTOP}


@dataclass(frozen=True, slots=True, kw_only=True)
class Then:
    """A script of `--then`: it follows the chain once that is done."""

    source: Path
    """Where it lay at submission."""
    content: bytes
    has_name: bool
    """Its #SBATCH lines have a job name."""
    comment: str = ""
    """Its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainSettings:
    """Everything that the job script of a chain depends on."""

    chain_id: str
    folder: Path
    source: Path
    """The user's script, where it lies."""
    segments: int
    """How many links there are at most."""
    options: tuple[SbatchOption, ...]
    """The user's sbatch options in their order; `--comment` is not among them."""
    mode: Mode
    penalties: Penalties
    arguments: tuple[str, ...] = ()
    """Of the user's script."""
    comment: str = ""
    """The user's own."""
    failure: Failure = Failure()
    handover: Handover = Handover()
    health: Health = Health()
    notify: Notify = Notify()
    limit_signal: LimitSignal | None = None
    limit_s: int | None = None
    """Time limit of one link; None: its partition's, or none."""
    time_min_s: int = 0
    """To which backfill may shorten a link's limit (`--time-min`); 0: it may not."""
    done_file: Path | None = None
    length: str = ""
    """What the links may use in all (`length.py`); empty: only ``segments`` bounds the chain."""
    ahead: int = 1
    """How many successors may be in the queue at once."""
    up_front: bool = False
    job_name: str = ""
    """As Slurm shows the jobs."""
    dependency: str = ""
    """What the user asked link 1 to wait for."""
    has_begin: bool = False
    """The user asked for `--begin`, which is for the first link alone."""
    submit_dir: str = "/"
    work_dir: str = "/"
    slurm_bin: str = ""
    """Where sbatch was found, for jobs whose PATH lacks it."""
    environment: tuple[tuple[str, str], ...] = ()
    """Of the user's environment: what Slurm replaces inside a job."""
    then: tuple[Then, ...] = ()
    service: str | None = None
    """The service that it is a replica of; None: it is none of several."""
    replica: int | None = None
    """From 1."""
    first_limit_s: int | None = None
    """Time limit of link 1, so that replicas do not end together; None: as of the others."""

    @property
    def startup_s(self) -> int:
        """Of a service, until the chain has measured it."""
        said_s = self.handover.cost_s
        return assumed_handover_s(self.limit_s) if said_s is None else said_s


def link_command(settings: ChainSettings, segment: int, predecessor: str = "") -> list[str]:
    """The sbatch command line of a link. ``predecessor``: the job id of the one before, or what
    stands for it.
    """
    head = ["sbatch", *_option_words(settings, is_first=segment == 1), "--parsable"]
    tag = ChainTag(
        chain_id=settings.chain_id,
        segment=segment,
        segments=settings.segments,
        length=settings.length,
        predecessor_id=_UNKNOWN_JOB if predecessor else None,
        mode=settings.mode,
        penalties=settings.penalties,
        lead_s=settings.limit_signal.lead_s if settings.limit_signal else 0,
        time_min_s=settings.time_min_s,
        least_run_s=settings.failure.least_run_s,
        uptime=settings.health.uptime,
        service=settings.service,
        replica=settings.replica,
        handover_s=settings.handover.cost_s,
        ready_s=0 if settings.mode is Mode.SERVICE else None,
    )
    comment = format_tag(tag, settings.comment).replace(
        f"pred={_UNKNOWN_JOB}", f"pred={predecessor}", 1
    )
    link = [
        f"--comment={comment}",
        *([f"--dependency={_dependency(settings, predecessor)}"] if predecessor else []),
    ]
    words = [
        str(settings.folder / JOB_SCRIPT),
        str(segment),
        predecessor or "0",
        *settings.arguments,
    ]
    return head + link + words


def _dependency(settings: ChainSettings, predecessor: str) -> str:
    """Of a link that is queued at submission. What link 1 waits for keeps it too: else it would
    start once Slurm cancels link 1, whose dependency can't be satisfied any more. Slurm can't join
    what is one of several (`?`) to another.
    """
    own = [settings.dependency] if settings.dependency and "?" not in settings.dependency else []
    return ",".join([*own, f"afterany:{predecessor}"])


def is_singleton(dependency: str) -> bool:
    """Whether a job with this `--dependency` never runs beside another of its name."""
    return "singleton" in dependency.lower().split(",")


def then_command(settings: ChainSettings, number: int, dependency: str = "") -> list[str]:
    """The sbatch command line of the ``number``-th script of `--then` (from 1); ``dependency``:
    what it waits for.
    """
    then = settings.then[number - 1]
    comment = f"mirage-then/1 chain={settings.chain_id} n={number}" + (
        f" -- {then.comment}" if then.comment else ""
    )
    name = [] if then.has_name else [f"--job-name={then.source.name}"]
    after = [f"--dependency={dependency}"] if dependency else []
    return [
        "sbatch",
        "--parsable",
        *name,
        f"--comment={comment}",
        *after,
        str(then_script(settings.folder, number)),
    ]


def _option_words(settings: ChainSettings, is_first: bool) -> list[str]:
    """The user's options, in their order; `--dependency` and `--begin` are for the first link
    alone.
    """
    dropped = () if is_first else ("dependency", "begin")
    words = [
        word for option in settings.options if option.name not in dropped for word in option.words
    ]
    if is_first:
        first_s = settings.first_limit_s
        return words if first_s is None else [*words, f"--time={format_time_limit(first_s)}"]
    # A link is submitted from inside the one before: a relative --chdir would be taken from there.
    return [
        *words,
        *(["--begin=now"] if settings.has_begin else []),
        f"--chdir={settings.work_dir}",
    ]


def build_job_script(settings: ChainSettings, script: UserScript) -> bytes:
    """The whole job script, the same for every link."""
    values = "".join(
        f"{name}={shlex.quote(str(value))}\n" for name, value in _values(settings).items()
    )
    directives = b"".join(line + b"\n" for line in script.directives)
    code = Path(__file__).with_name(JOB_SCRIPT).read_bytes()
    return b"#!/bin/sh\n" + directives + os.fsencode(values + _functions(settings, script)) + code


def _values(settings: ChainSettings) -> dict[str, object]:
    limit = settings.limit_signal
    names = dict.fromkeys(
        (*_FORWARDED, limit.name) if limit and limit.can_be_caught else _FORWARDED
    )
    return {
        "m_dir": settings.folder,
        "m_source": settings.source,
        "m_bin": settings.slurm_bin,
        "m_submit_dir": settings.submit_dir,
        "m_chain": settings.chain_id,
        "m_segments": settings.segments,
        "m_length": settings.length,
        "m_mode": settings.mode.value,
        "m_wishes": format_wishes(
            settings.penalties,
            limit.lead_s if limit else 0,
            settings.time_min_s,
            settings.failure.least_run_s,
            settings.health.uptime,
        )
        + format_replica(settings.service, settings.replica),
        "m_comment": settings.comment,
        "m_ahead": settings.ahead,
        "m_look_ahead": LOOK_AHEAD_S,
        "m_up_front": int(settings.up_front),
        "m_singleton": ",singleton" if is_singleton(settings.dependency) else "",
        **_rules(settings),
        "m_confirm_after": CONFIRM_AFTER_S,
        "m_write_patience": WRITE_PATIENCE_S,
        "m_record_patience": RECORD_PATIENCE_S,
        "m_end_lead": END_LEAD_S,
        "m_used_up_exit": USED_UP_EXIT,
        "m_then": len(settings.then),
        "m_done_file": settings.done_file or settings.folder / DONE,
        "m_signals": " ".join(names),
        "m_limit_signal": limit.number if limit and limit.lead_s else 0,
        "m_limit_lead": limit.lead_s + SIGNAL_SLACK_S if limit else 0,
    }


def _rules(settings: ChainSettings) -> dict[str, object]:
    """Of failures, handovers and notifications."""
    failure, handover, health = settings.failure, settings.handover, settings.health
    return {
        "m_on_failure": failure.action,
        "m_retries": failure.retries,
        "m_min_runtime": failure.min_runtime_s,
        "m_max_short": failure.max_short,
        "m_handover_signal": handover.signal,
        "m_cost": "" if handover.cost_s is None else handover.cost_s,
        "m_grace": "" if handover.grace_s is None else handover.grace_s,
        "m_least_grace": LEAST_GRACE_S,
        "m_max_overlap": "" if handover.max_overlap_s is None else handover.max_overlap_s,
        "m_startup": settings.startup_s,
        "m_health_command": health.command,
        "m_health_port": _port_word(health.port),
        "m_port": _port_word(health.reached),
        "m_notice": NOTICE_S,
        "m_leave_lead": LEAVE_LEAD_S,
        "m_health_path": health.path,
        "m_health_count": health.count,
        "m_check": health.words,
        "m_says_so": "1" if health.says_so else "",
        "m_health_failures": health.failures,
        "m_health_interval": HEALTH_INTERVAL_S,
        "m_health_again": HEALTH_AGAIN_S,
        "m_port_limit": PORT_LIMIT_S,
        "m_command_limit": COMMAND_LIMIT_S,
        "m_notify_command": settings.notify.command,
        "m_notify_after": settings.notify.after_s,
        "m_notify_limit": NOTIFY_LIMIT_S,
    }


def _port_word(port: int) -> str:
    return "free" if port == FREE_PORT else str(port or "")


def _functions(settings: ChainSettings, script: UserScript) -> str:
    """What runs the user's script and submits a further link, and the environment of the latter."""
    program = shlex.join([*script.interpreter, str(settings.folder / USER_SCRIPT)])
    words = shlex.join(_option_words(settings, is_first=False))
    exports = "".join(
        f"    export {name}={shlex.quote(value)}\n" for name, value in settings.environment
    )
    arguments = f'm_with_arguments() {{ "$@" {shlex.join(settings.arguments)}; }}\n'
    return (
        f'm_sbatch() {{ "$m_sbatch_program" {words} "$@"; }}\n{arguments}m_sbatch_then() {{ #'
        f" NUMBER DEPENDENCY\n    case $1 in\n{_then_cases(settings)}    esac\n}}\n"
        f'm_run_script() {{ m_run ${{m_session:+"$m_session"}} {program} "$@"; }}\n'
        f"m_put_back() {{\n    :\n{exports}}}\n"
    )


def _then_cases(settings: ChainSettings) -> str:
    cases = ""
    for number in range(1, len(settings.then) + 1):
        *options, script = then_command(settings, number)[1:]
        cases += (
            f'        {number}) "$m_sbatch_program" {shlex.join(options)} ${{2:+"$2"}}'
            f" {shlex.quote(script)} ;;\n"
        )
    return cases

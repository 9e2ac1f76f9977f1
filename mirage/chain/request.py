"""What the user of `mirage-submit` asked for: Mirage's own options, sbatch's, the environment and
the #SBATCH lines.
"""

from __future__ import annotations

import io
import math
import os
import re
import shlex
import signal
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mirage.chain.batch_script import UserScript, parse_script
from mirage.chain.command_line import OWN, OWN_WITH_VALUE, CommandLine, parse_request
from mirage.chain.directives import directives
from mirage.chain.durations import format_time_limit, parse_duration, parse_time_limit
from mirage.chain.folder import chain_folder
from mirage.chain.health import OF_SERVICES, parse_health
from mirage.chain.length import UNTIL_DONE, links_in, most_links, of_time
from mirage.chain.sbatch import (
    LONG_WITH_VALUE,
    LONG_WITHOUT_VALUE,
    SbatchOption,
    find_batch_script,
)
from mirage.chain.script import (
    AHEAD,
    MOST_AHEAD,
    ChainSettings,
    Failure,
    Handover,
    Health,
    LimitSignal,
    Notify,
    Then,
    is_singleton,
)
from mirage.chain.tag import ANYWHERE, MAX_LEAD_S, MAX_PENALTY, MAX_SEGMENTS, MAX_WORD_S
from mirage.domain import SIGNAL_SLACK_S, Mode, Penalties, expected_limit_s
from mirage.errors import InputError, system_says
from slurm_sim.files import read_bytes

_NAME_IT = "name its file after the options, as in `mirage-submit --segments 4 train.sbatch`"
_IN_SCRIPTS = OWN_WITH_VALUE | {"up-front", "nested", "again"}
_LENGTH = {"segments", "total-time"}
_REFUSED = {
    "array": "a job array can't be chained: start one chain for each task",
    "clusters": "a chain lives on one cluster: run mirage-submit there",
    "gid": "run mirage-submit as that user",
    "hold": "nobody but you could release a held link: leave it out, or use --begin",
    "uid": "run mirage-submit as that user",
    "wait": "it would wait for the first link alone: leave it out",
    "wrap": "a chain needs a script file: write the command into one, after a line #!/bin/sh",
}
_ONE_AT_A_TIME = re.compile(r"([\d,:-]+)%1", re.ASCII)
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)
_REFUSED_OF_THEN = {
    "clusters": "what follows a chain runs on the chain's cluster: leave it out",
    "dependency": "the chain sets it: leave it out",
    "test-only": "it would never run: leave it out",
    "wait": "it would wait for the chain's last link, and that for it: leave it out",
    "wrap": "it has no meaning in a script: leave it out",
}
# sbatch(1), INPUT ENVIRONMENT VARIABLES: they count before the #SBATCH lines and after the command
# line.
_FROM_ENVIRONMENT = {
    "SBATCH_ARRAY_INX": "array",
    "SBATCH_CONTAINER": "container",
    "SLURM_CLUSTERS": "clusters",
    "SBATCH_CLUSTERS": "clusters",
    "SBATCH_JOB_NAME": "job-name",
    "SBATCH_SIGNAL": "signal",
    "SBATCH_TIMELIMIT": "time",
}
_FLAGS_FROM_ENVIRONMENT = {"SBATCH_WAIT": "wait"}
# Slurm sets these for each job, so a further link, submitted from inside one, must get them as they
# were before.
_REPLACED_IN_JOBS = re.compile(
    r"SLURM[A-Z]*_\w+|SBATCH_\w+|CUDA_VISIBLE_DEVICES|GPU_DEVICE_ORDINAL|ROCR_VISIBLE_DEVICES|ZE_AFFINITY_MASK"
    r"|ENVIRONMENT|TMPDIR",
    re.ASCII,
)
_PARTITIONS = re.compile(r"[\w.+-]+(,[\w.+-]+)*", re.ASCII)
_DEFAULT_LEAD_S = 60
_SIGNAL_OPTION = re.compile(r"(?:(R|B|RB|BR):)?(\w+)(?:@(\d*))?", re.ASCII | re.IGNORECASE)


def with_directives(request: CommandLine, script: bytes, name: str) -> CommandLine:
    """The request with what the script's #MIRAGE lines say; the command line goes before them.

    InputError, with file and line: a line can't be understood. ``name``: the script's, in errors.
    """
    said: dict[str, str] = {}
    then: tuple[str, ...] = ()
    for number, line in directives(io.BytesIO(script)):
        try:
            found = _directive(os.fsdecode(line))
        except InputError as error:
            raise InputError(f"{name}:{number}: #MIRAGE: {error}") from error
        said |= found.own
        then += found.then
    if (
        request.own.keys() & _LENGTH
    ):  # --segments on the command line replaces --total-time in the script
        said = {key: value for key, value in said.items() if key not in _LENGTH}
    return replace(request, own={**said, **request.own}, then=request.then or then)


def _directive(line: str) -> CommandLine:
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise InputError(f"{error}") from error
    for word in words:
        option = word.removeprefix("--").partition("=")[0]
        if word.startswith("-") and not (word.startswith("--") and option in _IN_SCRIPTS):
            import difflib  # only on the way out

            close = difflib.get_close_matches(option, _IN_SCRIPTS, n=1)
            raise InputError(
                f"{word} has no meaning here" + (f"; did you mean --{close[0]}?" if close else "")
            )
    request = parse_request(words)
    if request.script:
        raise InputError(f"{request.script!r} is no option")
    return request


def check_request(request: CommandLine, environ: Mapping[str, str]) -> None:
    """InputError: something of sbatch's that can't be chained, and what to do instead."""
    _refuse((*request.options, *_environment_options(environ)), request.is_heterogeneous)


def check_script(script: UserScript) -> None:
    """The same for the #SBATCH lines."""
    _refuse(script.options, script.is_heterogeneous)


def _refuse(options: Sequence[SbatchOption], is_heterogeneous: bool) -> None:
    if is_heterogeneous:
        raise InputError("heterogeneous jobs can't be chained: start one chain for each component")
    for option in options:
        if option.name in _REFUSED:
            reason = (
                _chained_array(option.value or "") if option.name == "array" else ""
            ) or _REFUSED[option.name]
            raise InputError(f"{option.words[0]}: {reason}")
        if option.name == "dependency" and "expand:" in (option.value or ""):
            raise InputError(
                f"{option.words[0]}: expand gives the job's nodes to another job and ends it: no"
                " chain can begin so"
            )


def _chained_array(indexes: str) -> str:
    """What to do about an array that runs one task at a time, as people chain jobs by hand; empty:
    it is another.
    """
    if not (match := _ONE_AT_A_TIME.fullmatch(indexes)):
        return ""
    tasks = 0
    for part in match[1].split(","):
        if not (found := _RANGE.fullmatch(part)):
            return ""
        first, last, step = int(found[1]), int(found[2] or found[1]), int(found[3] or 1)
        tasks += len(range(first, last + 1, step)) if step else 0
    if not 1 <= tasks <= MAX_SEGMENTS:
        return ""
    return (
        "an array of one task at a time (%1) is a chain already: take it out and give"
        f" --segments {tasks} ($MIRAGE_SEGMENT counts the links from 1)"
    )


def settle(
    request: CommandLine,
    script: UserScript,
    source: Path,
    *,
    environ: Mapping[str, str],
    cwd: str,
    slurm_bin: str,
    chain_id: str,
) -> ChainSettings:
    """What the chain will be. Raises InputError where an option's value is wrong."""
    said = _said(request, script, environ)
    folder, limit_signal = chain_folder(chain_id, environ), _limit_signal(_last(said, "signal"))
    script_name, job_name = Path(request.script).name, _last(said, "job-name")
    segments, length = _length(request.own, said)
    anywhere = _anywhere(request)
    return ChainSettings(
        chain_id=chain_id,
        folder=folder,
        source=source,
        segments=segments,
        length=length,
        options=_passed_on(request, () if job_name is not None else (script_name,), anywhere),
        arguments=request.arguments,
        mode=_mode(request.own),
        penalties=_penalties(request.own),
        comment=_comment(anywhere, _last(said, "comment")),
        failure=_failure(request.own, _limit_s(said)),
        handover=_handover(request.own, limit_signal, _last(said, "time")),
        health=_health(request.own, script),
        notify=_notify(request.own),
        limit_signal=limit_signal,
        limit_s=_limit_s(said),
        time_min_s=_time_min_s(said),
        done_file=_done_file(request.own, cwd),
        ahead=_ahead(request.own),
        up_front="up-front" in request.own,
        job_name=job_name or script_name,
        dependency=_last(said, "dependency") or "",
        has_begin=_last(said, "begin") is not None,
        submit_dir=cwd,
        work_dir=str(Path(cwd, _last(said, "chdir") or "")),
        slurm_bin=slurm_bin,
        environment=_replaced_in_jobs(environ),
        then=tuple(_then(text, cwd, environ) for text in request.then),
    )


def _passed_on(
    request: CommandLine, name: Sequence[str], anywhere: str
) -> tuple[SbatchOption, ...]:
    """sbatch's options of each link. ``name``: the job's, where no option says it."""
    return (
        *(option for option in request.options if option.name != "comment"),
        *(_option("job-name", each) for each in name),
        *([_option("partition", anywhere)] if anywhere else []),
    )


def _comment(anywhere: str, comment: str | None) -> str:
    return " ".join(filter(None, (anywhere and f"{ANYWHERE}{anywhere}", comment)))


def _health(own: Mapping[str, str], script: UserScript) -> Health:
    count = _number(own, "health-count", 3, 1, 1000)
    failures = _number(own, "health-failures", 3, 0, 1000)
    return parse_health(own, count, failures, script.content)


def _anywhere(request: CommandLine) -> str:
    """The partitions in which its links may run; empty: as sbatch's own options say."""
    names = request.own.get("anywhere", "")
    if "anywhere" not in request.own:
        return ""
    if not _PARTITIONS.fullmatch(names):
        raise InputError(
            f"--anywhere: expected names of partitions, as gpu,gpu-long, got {names!r}"
        )
    if request.has("partition"):
        raise InputError("--anywhere names the partitions of all links: leave --partition out")
    return names


def _replaced_in_jobs(environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables that Slurm sets in each job."""
    return tuple((key, value) for key, value in environ.items() if _REPLACED_IN_JOBS.fullmatch(key))


def _then(text: str, cwd: str, environ: Mapping[str, str]) -> Then:
    """A script of `--then`. InputError: it can't follow the chain."""
    path = Path(cwd, text)
    try:
        if not text or not path.is_file():
            raise InputError("no such batch script")
        script = parse_script(read_bytes(path))
        _check_then(script)
    except OSError as error:
        raise InputError(f"--then: {path}: can't be read: {error.strerror}") from error
    except InputError as error:
        raise InputError(f"--then: {path if text else repr(text)}: {error}") from error
    has_name = _last(script.options, "job-name") is not None or bool(environ.get("SBATCH_JOB_NAME"))
    return Then(
        source=path,
        content=script.content,
        has_name=has_name,
        comment=_last(script.options, "comment") or "",
    )


def _check_then(script: UserScript) -> None:
    for option in script.options:
        if option.name in _REFUSED_OF_THEN:
            raise InputError(f"{option.words[0]}: {_REFUSED_OF_THEN[option.name]}")
    if any(directives(io.BytesIO(script.content))):
        raise InputError(
            "it has #MIRAGE lines, but no chain can follow a chain: let a script follow that"
            " starts it"
        )


def _said(
    request: CommandLine, script: UserScript, environ: Mapping[str, str]
) -> tuple[SbatchOption, ...]:
    """All of sbatch's options; of those with the same name the last one counts."""
    return (*script.options, *_environment_options(environ), *request.options)


def find_script(request: CommandLine, cwd: str, path: str) -> Path:
    """The user's script, looked for as sbatch does (sbatch(1), SCRIPT PATH RESOLUTION). InputError:
    there is none.
    """
    if not request.script:
        raise InputError(
            f"no batch script given: {_NAME_IT}. A chain can't read it from standard input"
        )
    found = find_batch_script(request.script, _last(request.options, "chdir") or "", cwd, path)
    if not found:
        raise InputError(f"{request.script}: no such batch script{_hint(request)}")
    return Path(found)


_CONTAINERS = frozenset({"container", "container-image", "container-name"})
_LAUNCHERS = re.compile(
    rb"^[^#\n]*(?:\b(?:srun|mpirun|mpiexec|ibrun|jsrun|prun)\b|\S\.sh\b)", re.MULTILINE
)
"""What starts job steps, or may: another script."""


def notes(request: CommandLine, script: UserScript, environ: Mapping[str, str]) -> list[str]:
    """What the user should know although nothing is wrong for sure."""
    stray = [
        word
        for word in request.arguments
        if word.startswith("--") and word[2:].partition("=")[0] in OWN
    ]
    found = [f"{word} stands after the script, so it goes to the script" for word in stray]
    looks_for_itself = b"scontrol" in script.content and b"Command=" in script.content
    if looks_for_itself and b"MIRAGE_SCRIPT" not in script.content:
        found.append(
            "the script seems to look for itself by scontrol's Command=, which in a chain is"
            " Mirage's own job script: use $MIRAGE_SCRIPT"
        )
    said = _said(request, script, environ)
    if is_singleton(_last(said, "dependency") or ""):
        found.append(
            "--dependency=singleton holds for every link: none starts while a job of its name runs,"
            " so no link takes over from a running one, and the service lets none in early. To let"
            " links hand over, leave it out: only one link of a chain works at a time anyway"
        )
    return [
        *found,
        *_early_signal(said),
        *_unheard_signal(said, script),
        *_in_a_container(said),
    ]


def _in_a_container(said: Sequence[SbatchOption]) -> Iterator[str]:
    """With sbatch's `--container`, and those of pyxis, the batch script itself runs in it."""
    if name := next((each.name for each in said if each.name in _CONTAINERS), None):
        yield (
            f"--{name} runs the whole script in the container, as a rule without Slurm's commands"
            " and your home: then links can't queue further ones. Leave it out, and start the"
            f" program by `srun --{name}=...`. Or mount ~/.mirage (or $MIRAGE_HOME) into it, and"
            " submit with --up-front"
        )


def _unheard_signal(said: Sequence[SbatchOption], script: UserScript) -> Iterator[str]:
    """Slurm sends the signal to job steps, or with `B:` to the batch shell (sbatch(1))."""
    limit_signal = _limit_signal(_last(said, "signal"))
    if limit_signal is None or limit_signal.batch or limit_signal.lead_s == 0:
        return
    if _LAUNCHERS.search(script.content):
        return
    text = _last(said, "signal")
    yield (
        f"--signal={text} reaches job steps only, and no srun is seen in the script: start the"
        f" program by srun, or use --signal=B:{text} and a trap in the script"
    )


def _early_signal(said: Sequence[SbatchOption]) -> Iterator[str]:
    limit_signal = _limit_signal(_last(said, "signal"))
    option = "time" if _last(said, "time-min") is None else "time-min"
    text = _last(said, option)
    try:
        limit_s = parse_time_limit(text) if text else None
    except ValueError:  # sbatch, or the request, says so
        return
    if limit_signal is None or limit_signal.lead_s == 0 or limit_s is None:
        return
    if limit_signal.lead_s + SIGNAL_SLACK_S >= limit_s:
        yield (
            f"--signal={_last(said, 'signal')} comes as soon as a link starts: Slurm sends it"
            f" {limit_signal.lead_s} s before the time limit, or up to {SIGNAL_SLACK_S} s earlier,"
            f" and --{option} is {limit_s} s"
        )


def _hint(request: CommandLine) -> str:
    """The word may have been the value of an option that we took for one without."""
    option = request.options[-1] if request.options else None
    if option is None or len(option.words) > 1 or option.value is not None:
        return f": {_NAME_IT}"
    import difflib  # only on the way out

    word, close = option.words[0], []
    if option.name not in LONG_WITHOUT_VALUE:
        names = sorted(OWN_WITH_VALUE | LONG_WITH_VALUE)
        close = difflib.get_close_matches(option.name, names, n=1)
    if close:
        hint = f" (did you mean --{close[0]}, where {word} stands?)"
    else:
        hint = f" (if it is the value of {word}, attach it with =)"
    return hint if request.arguments else f"{hint}: {_NAME_IT}"


def _environment_options(environ: Mapping[str, str]) -> list[SbatchOption]:
    values = [
        SbatchOption(name, environ[key], (key,))
        for key, name in _FROM_ENVIRONMENT.items()
        if key in environ
    ]
    flags = _FLAGS_FROM_ENVIRONMENT.items()
    return values + [
        SbatchOption(name, None, (key,)) for key, name in flags if _is_set(environ.get(key))
    ]


def _is_set(value: str | None) -> bool:
    """An option without a value is set by an empty variable, `yes`, or a number that is not zero."""
    number = re.match(r"\s*[+-]?0*[1-9]", value or "", re.ASCII)
    return value is not None and (value == "" or value.lower() == "yes" or number is not None)


def ignores_pbs(request: CommandLine, environ: Mapping[str, str]) -> bool:
    """Whether sbatch is asked to leave #PBS and #BSUB lines alone."""
    return request.has("ignore-pbs") or "SBATCH_IGNORE_PBS" in environ


def _option(name: str, value: str) -> SbatchOption:
    return SbatchOption(name, value, (f"--{name}={value}",))


def _last(options: Sequence[SbatchOption], name: str) -> str | None:
    return next((option.value or "" for option in reversed(options) if option.name == name), None)


def _length(own: Mapping[str, str], said: Sequence[SbatchOption]) -> tuple[int, str]:
    """How many links the chain has at most, and what they may use in all (`length.py`)."""
    is_up_front = "up-front" in own  # then nobody can end the chain at the right link
    if own.keys() >= _LENGTH:
        raise InputError("give either --segments N or --total-time D, not both")
    if "segments" in own:
        links = _number(own, "segments", 1, 1, MAX_SEGMENTS)
        length = "" if is_up_front else str(links)
    elif "total-time" in own:
        links = _links_of_total_time(own, said)
        length = "" if is_up_front else of_time(_duration(own, "total-time", 0))
    elif is_up_front:
        raise InputError("--up-front queues all links now: give --segments N or --total-time D")
    else:
        links, length = 0, UNTIL_DONE
    return most_links(length, links), length


def _links_of_total_time(own: Mapping[str, str], said: Sequence[SbatchOption]) -> int:
    total_s, time_min_s = _duration(own, "total-time", 0), _time_min_s(said)
    links = _links_needed(total_s, _limit_s(said))
    if not 1 <= links <= MAX_SEGMENTS:
        raise InputError(
            f"--total-time {own['total-time']} makes {links} links: expected 1 to {MAX_SEGMENTS}"
        )
    if "up-front" in own and time_min_s:
        raise InputError(
            "--total-time with --up-front counts links of the full --time, and --time-min lets"
            " Slurm start shorter ones: give --segments N, or leave out one of the three"
        )
    return _links_needed(total_s, time_min_s) if time_min_s else links


def _ahead(own: Mapping[str, str]) -> int:
    if "ahead" in own and "up-front" in own:
        raise InputError("give either --ahead N or --up-front, which queues all links")
    return _number(own, "ahead", AHEAD, 1, MOST_AHEAD)


def _limit_s(said: Sequence[SbatchOption]) -> int | None:
    """Of one link; None: not given, or none."""
    text = _last(said, "time")
    try:
        return parse_time_limit(text) if text else None
    except ValueError as error:
        raise InputError(f"--time: {error}") from error


def _time_min_s(said: Sequence[SbatchOption]) -> int:
    """0: not given. InputError: no duration, none above 0, or longer than --time."""
    text = _last(said, "time-min")
    if text is None:
        return 0
    try:
        least_s = parse_time_limit(text)
    except ValueError as error:
        raise InputError(f"--time-min: {error}") from error
    if least_s is None:
        raise InputError(f"--time-min: {text!r}: expected a time above 0, such as 4:00:00")
    limit_s = _limit_s(said)
    if limit_s is not None and least_s > limit_s:
        raise InputError(
            f"--time-min={text} is above --time={_last(said, 'time')}: give a shorter one, as Slurm"
            " starts links with a limit between the two"
        )
    return least_s


def _links_needed(total_s: int, limit_s: int | None) -> int:
    if limit_s is None:
        raise InputError(
            "--total-time needs the time limit of one link: give --time, or use --segments"
        )
    return links_in(total_s, limit_s)


def _mode(own: Mapping[str, str]) -> Mode:
    mode = _choice(own, "mode", "train", ("train", "service"))
    if mode == "train" and (lost := own.keys() & OF_SERVICES):
        raise InputError(f"--{min(lost)} has no meaning without --mode service")
    if mode == "service" and "handover-cost" in own:
        raise InputError(
            "--handover-cost has no meaning with --mode service: nothing is saved and read again."
            " The time from its start until it is ready: --startup"
        )
    return Mode(mode)


def _failure(own: Mapping[str, str], limit_s: int | None) -> Failure:
    default = "stop" if _mode(own) is Mode.TRAIN else "continue"
    action, has_count, count = own.get("on-failure", default).partition(":")
    if (action == "retry") != bool(has_count) or action not in {"stop", "continue", "retry"}:
        raise InputError(f"--on-failure: {own['on-failure']!r} is none of stop, continue, retry:N")
    retries = _number({"on-failure": count}, "on-failure", 0, 1, MAX_SEGMENTS) if has_count else 0
    failure = Failure(
        action=action,
        retries=retries,
        min_runtime_s=_duration(own, "min-runtime", 60),
        least_run_s=_least_run_s(own),
        max_short=_number(own, "max-short", 3, 0, MAX_SEGMENTS),
    )
    no_link_is_long = limit_s is not None and failure.min_runtime_s >= limit_s
    if "min-runtime" in own and failure.max_short and no_link_is_long:
        raise InputError(
            f"--min-runtime={own['min-runtime']}: no link runs so long, since the time limit is"
            f" {limit_s} s: {failure.max_short} in a row that end by themselves would count as a"
            " crash loop"
        )
    return failure


def _least_run_s(own: Mapping[str, str]) -> int | None:
    return min(_duration(own, "min-runtime", 0), MAX_WORD_S) if "min-runtime" in own else None


def _handover_cost_s(own: Mapping[str, str], time_limit: str | None, lead_s: int) -> int | None:
    """Of a service: its start-up. None: its owner does not say."""
    name = "startup" if _mode(own) is Mode.SERVICE else "handover-cost"
    if name not in own:
        return None
    cost_s = _duration(own, name, 0)
    try:
        limit_s = parse_time_limit(time_limit) if time_limit else None
    except ValueError:  # sbatch says so
        limit_s = None
    run_s = expected_limit_s(limit_s, lead_s)
    if cost_s > MAX_WORD_S or (run_s is not None and cost_s >= max(run_s, 1)):
        until = " until its signal" if lead_s else ""
        lost, wanted = (
            ("never be ready", "the time from its start until it is ready")
            if name == "startup"
            else ("make no progress", "the time to save and to start again")
        )
        raise InputError(
            f"--{name} {own[name]}: a link of --time {time_limit or 'any'} would"
            f" {lost}{until}: give {wanted}"
        )
    return cost_s


def _handover(
    own: Mapping[str, str], limit_signal: LimitSignal | None, time_limit: str | None
) -> Handover:
    default = "TERM"
    if limit_signal is not None and limit_signal.can_be_caught:
        default = ("B:" if limit_signal.batch else "") + limit_signal.name
    overlap = own.get("max-overlap", "UNLIMITED").upper()
    return Handover(
        signal=_handover_signal(own["handover-signal"]) if "handover-signal" in own else default,
        grace_s=_duration(own, "handover-grace", 0) if "handover-grace" in own else None,
        max_overlap_s=None if overlap == "UNLIMITED" else _duration(own, "max-overlap", 0),
        cost_s=_handover_cost_s(own, time_limit, limit_signal.lead_s if limit_signal else 0),
    )


def _notify(own: Mapping[str, str]) -> Notify:
    if "notify" in own and not own["notify"].strip():
        raise InputError(
            '--notify needs a shell command, as in --notify \'mail -s "$MIRAGE_EVENT" me'
            " </dev/null'"
        )
    if "notify-after" in own and "notify" not in own:
        raise InputError("--notify-after has no meaning without --notify CMD")
    return Notify(own.get("notify", ""), _duration(own, "notify-after", 600))


def _handover_signal(text: str) -> str:
    if text.lower() == "none":
        return "none"
    batch, name = ("B:", text[2:]) if text.upper().startswith("B:") else ("", text)
    known = LimitSignal(number, False, 0) if (number := _signal_number(name)) else None
    if known is None or not known.can_be_caught:
        raise InputError(
            f"--handover-signal: {text!r} is no signal: expected TERM, B:USR1 (the batch shell) or"
            " none"
        )
    return batch + known.name


def _limit_signal(text: str | None) -> LimitSignal | None:
    """Of sbatch's `--signal=[{R|B}:]SIG[@SECONDS]`; None: there is none, or sbatch will refuse it."""
    if (
        text is None
        or not (match := _SIGNAL_OPTION.fullmatch(text))
        or not (number := _signal_number(match[2]))
    ):
        return None
    lead_s = _DEFAULT_LEAD_S if match[3] is None else int(match[3] or 0)
    if lead_s > MAX_LEAD_S:
        return None
    return LimitSignal(number, "B" in (match[1] or "").upper(), lead_s)


def _signal_number(text: str) -> int | None:
    """10 of "USR1", "SIGUSR1", "usr1" and "10"; None: no such signal."""
    if text.isdecimal():
        return int(text) if 0 < int(text) < signal.NSIG else None
    known = signal.Signals.__members__.get(f"SIG{text.upper().removeprefix('SIG')}")
    return known.value if known else None


def _done_file(own: Mapping[str, str], cwd: str) -> Path | None:
    if "done-file" not in own:
        return None
    path = Path(cwd, own["done-file"])
    try:
        is_there, is_folder = path.exists(), path.is_dir()
    except OSError as error:  # in a closed folder; too long a name
        raise InputError(f"--done-file: {system_says(error)}") from error
    if is_folder:
        raise InputError(f"--done-file: {path} is a folder: give a file that is not there yet")
    if is_there:
        raise InputError(
            f"--done-file: {path} exists already, so the chain would end at once: remove it first"
        )
    return path


def _penalties(own: Mapping[str, str]) -> Penalties:
    penalties = Penalties(_penalty(own, "interruption"), _penalty(own, "overlap"))
    if penalties.interruption + penalties.overlap <= 0:
        raise InputError(
            "--penalty-interruption and --penalty-overlap can't both be 0: nothing would matter"
            " then"
        )
    return penalties


def _penalty(own: Mapping[str, str], kind: str) -> float:
    text = own.get(f"penalty-{kind}", "1")
    try:
        value = round(float(text), 6)  # as many decimals as the tag keeps
    except ValueError:
        value = math.nan
    if not 0 <= value <= MAX_PENALTY:
        raise InputError(f"--penalty-{kind}: {text!r} is not a number from 0 to {MAX_PENALTY:.0f}")
    return value


def _choice(own: Mapping[str, str], name: str, default: str, choices: Sequence[str]) -> str:
    if (text := own.get(name, default)) not in choices:
        raise InputError(f"--{name}: {text!r} is none of {', '.join(choices)}")
    return text


def _number(own: Mapping[str, str], name: str, default: int, least: int, most: int) -> int:
    text = own.get(name, str(default))
    if not re.fullmatch(r"\d{1,9}", text, re.ASCII) or not least <= int(text) <= most:
        raise InputError(f"--{name}: {text!r} is not a whole number from {least} to {most}")
    return int(text)


def _duration(own: Mapping[str, str], name: str, default_s: int) -> int:
    try:
        return parse_duration(own.get(name, format_time_limit(default_s)))
    except ValueError as error:
        raise InputError(f"--{name}: {error}") from error

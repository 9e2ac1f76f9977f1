"""Puts a chain into the queue: makes its folder, runs sbatch as the user, and leaves nothing
half-done behind.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from mirage.chain.batch_script import UserScript
from mirage.chain.cluster_name import cluster_name, other_cluster_of
from mirage.chain.folder import (
    CANCELLED,
    CHAIN_RECORD,
    COMMAND,
    JOB_SCRIPT,
    SUBMITTING,
    USER_SCRIPT,
    chains_folder,
    make_chains_folder,
    mark_over,
    over_marker,
    read_record,
    read_then,
    then_script,
)
from mirage.chain.sbatch import real_sbatch, submitted_ids
from mirage.chain.script import ChainSettings, build_job_script, link_command, then_command
from mirage.chain.service_bounds import gpus_of
from mirage.errors import ClusterError, InputError, MirageError, system_says

# What sbatch prints when the user may not have another job in the queue (slurm_errno.c, job
# reasons).
_SUBMIT_LIMIT = ("MaxSubmit", "job submit limit")
# The connection was made and then nothing came: slurmctld may have taken the job (slurm_errno.c).
_NO_ANSWER = (
    "Socket timed out",
    "Zero Bytes were transmitted",
    "Unexpected message received",
    "Connection reset",
)
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_SQUEUE_TIMEOUT_S = 30
_REASON_TIMEOUT_S = 5
_ID_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"


class SubmissionFailed(ClusterError):
    """sbatch refused the job; its own message is above. No chain was started."""


class SubmissionUnclear(ClusterError):
    """Nobody can say whether Slurm accepted the job."""


class SubmitLimit(SubmissionFailed):
    """The user may not have another job in the queue now."""


class SubmissionInterrupted(MirageError):
    """interrupted; no chain was started"""

    exit_code = 130


def new_chain_id() -> str:
    """Ten letters and digits, 50 random bits; l, o, 0 and 1 are left out since people type it."""
    return "".join(_ID_LETTERS[byte % len(_ID_LETTERS)] for byte in os.urandom(10))


class Interruptions:
    """Ctrl-C, SIGTERM and SIGHUP, which must not come between sbatch and the note of the job's id.

    The first only takes effect between two calls of sbatch. The second ends a call of sbatch, whose
    job may be queued.
    """

    def __init__(self) -> None:
        self._count = 0
        self._sbatch: subprocess.Popen[bytes] | None = None

    def check(self, message: str | None = None) -> None:
        """Interrupted: a signal came."""
        if self._count:
            raise SubmissionInterrupted(message)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Signals that are ignored, as under nohup, stay so. In another thread than the main one
        nothing is held back: a signal of the process never comes between there.
        """
        is_main = threading.current_thread() is threading.main_thread()
        held = [
            number
            for number in (_SIGNALS if is_main else ())
            if signal.getsignal(number) not in (signal.SIG_IGN, None)
        ]
        before = {number: signal.signal(number, self._note) for number in held}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _note(self, _number: int, _frame: object) -> None:
        self._count += 1
        if self._sbatch is not None and self._count > 1:
            self._sbatch.kill()
        elif self._sbatch is not None:
            with suppress(OSError):
                os.write(
                    2,
                    b"mirage: interrupted; waiting for sbatch's answer (once more: don't wait for"
                    b" it)\n",
                )

    def run(self, program: str, command: Sequence[str]) -> tuple[int, str, str]:
        """Runs sbatch: exit code (negative: ended by a signal), both outputs. sbatch does not get
        the signals.
        """
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)

        def ignore() -> None:  # in the child; a shell in front of sbatch would clear a mask alone
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

        try:
            pipe = subprocess.PIPE
            self._sbatch = subprocess.Popen(
                command, executable=program, stdout=pipe, stderr=pipe, preexec_fn=ignore
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            stdout, stderr = self._sbatch.communicate()
            return self._sbatch.returncode, os.fsdecode(stdout), os.fsdecode(stderr)
        finally:
            self._sbatch = None


def submit_chain(
    settings: ChainSettings, script: UserScript, interruptions: Interruptions
) -> list[int]:
    """Submits the first link and its successor (all links with `up_front`), and returns their job
    ids.

    One id although there are more links: link 1 queues the second one. Standard error says why.
    InputError: the folder of chains is not safe. SubmissionFailed: sbatch said no; nothing is left.
    SubmissionUnclear: the folder stays, for the job may be in the queue. Interrupted: nothing is
    left.
    """
    make_chains_folder()
    jobs = _Jobs()
    with _undone_on_error(settings, jobs):
        settings.folder.mkdir(mode=0o700)
        _fill_folder(settings, script)
        for segment in range(1, _queued_at_first(settings) + 1):
            interruptions.check()
            if not _queue(settings, segment, jobs, interruptions):
                break
        if settings.up_front:  # jobs of this site may have no sbatch
            _queue_then(settings, jobs, interruptions)
        interruptions.check()
    with suppress(OSError):  # then link 1 waits a minute for it to go
        (settings.folder / SUBMITTING).unlink()
    return jobs[: settings.segments]


class _Jobs(list[int]):
    """The ids of the links that are queued."""

    is_one_unclear = False
    """Perhaps there is one more."""


def queue_link(folder: Path, segment: int, predecessor_id: int) -> int:
    """Queues a link from outside the chain's jobs, held while the chain is paused; records and
    returns its job id.

    The chain's own job script does it, with the options of the first submission and this process's
    environment. SubmissionFailed: sbatch said no. SubmissionUnclear: no answer.
    """
    words = ["sh", str(folder / JOB_SCRIPT), "queue", str(segment), str(predecessor_id)]
    interruptions = Interruptions()
    try:
        with interruptions.deferred():
            answer = interruptions.run("sh", words)
            job_id = _note_link(
                folder,
                segment,
                _read_answer(_of_link(folder.name, segment), f"link {segment}", answer),
            )
    except SubmissionUnclear as error:
        raise SubmissionUnclear(
            f"Slurm did not answer, so link {segment} may be queued or not: run the command again,"
            " it looks first"
        ) from error
    except SubmissionFailed as error:
        failed = SubmissionFailed(
            f"link {segment} is not queued: sbatch refused it; its own message is above"
        )
        failed.exit_code = error.exit_code
        raise failed from error
    interruptions.check(f"interrupted; link {segment} is queued as job {job_id}")
    return job_id


def _note_link(folder: Path, segment: int, job_id: int) -> int:
    for name in (f"queued.{segment}", f"queued.{segment}.error"):  # of a job that is gone
        (folder / name).unlink(missing_ok=True)
    if _record_job(folder, segment, job_id):
        return job_id
    _scancel([job_id])  # a link of the chain queued it in this moment
    return int((folder / f"queued.{segment}").read_text())


def _queued_at_first(settings: ChainSettings) -> int:
    return settings.segments if settings.up_front else min(2, settings.segments)


def _queue(
    settings: ChainSettings, segment: int, jobs: _Jobs, interruptions: Interruptions
) -> bool:
    """Queues a link and notes its id; False: it is left to link 1, and the user has been told so."""
    is_for_link_1 = segment > 1 and not settings.up_front
    try:
        job_id = _submit(settings, segment, str(jobs[-1]) if jobs else "", interruptions)
    except SubmitLimit:
        if not is_for_link_1:
            raise
        _say(
            f"link {segment} is not queued yet, because of the limit above: job {jobs[0]} tries"
            " again while it runs"
        )
        return False
    except SubmissionUnclear:
        jobs.is_one_unclear = True
        if not is_for_link_1:
            raise
        _say(
            f"whether link {segment} is queued is not known; job {jobs[0]} looks for it, and queues"
            " it if it is not"
        )
        return False
    jobs.append(job_id)  # from here on an error cancels it
    if not _record_job(settings.folder, segment, job_id):
        # It took so long that link 1 stopped waiting for us and queued it itself.
        _scancel([job_id])
        jobs[-1] = int((settings.folder / f"queued.{segment}").read_text())
    return True


def _queue_then(settings: ChainSettings, jobs: _Jobs, interruptions: Interruptions) -> None:
    """Until the chain is done, which its jobs find out, these wait for the last link to end well."""
    last = jobs[-1]
    for number in range(1, len(settings.then) + 1):
        interruptions.check()
        command = then_command(settings, number, f"afterok:{last}")
        mark = rf"mirage-then/1 chain={settings.chain_id} n={number}(?: |$)"
        jobs.append(
            _read_answer(mark, f"script {number} of --then", _run_sbatch(command, interruptions))
        )
        (settings.folder / f"then.{number}").write_text(f"{jobs[-1]}\n")


@contextmanager
def _undone_on_error(settings: ChainSettings, jobs: _Jobs) -> Iterator[None]:
    """Whatever goes wrong: either there are neither jobs nor a folder, or there are both, and the
    error says so.
    """
    try:
        yield
    except SubmissionUnclear as error:
        # The job may be in the queue. Then it finds its folder, and goes on as the chain's first
        # link should.
        (settings.folder / SUBMITTING).unlink(missing_ok=True)
        raise SubmissionUnclear(f"{error} {_where_to_look(settings)}") from error
    except OSError as error:
        _undo(settings.folder, jobs)
        raise SubmissionFailed(
            f"{system_says(error, settings.folder)}; no chain was started"
        ) from error
    except BaseException:
        _undo(settings.folder, jobs)
        raise


def _where_to_look(settings: ChainSettings) -> str:
    chain = settings.chain_id
    return (
        f"The chain's folder stays, {settings.folder}. `squeue --me -o '%A %j %k'` shows the job,"
        f" if there is one, by chain={chain} in its comment; `mirage status {chain}` tells, `mirage"
        f" cancel {chain}` ends the chain"
    )


def _undo(folder: Path, jobs: _Jobs) -> None:
    """Cancels the jobs and removes the folder. SubmissionFailed: one may still be queued, so the
    folder stays.
    """
    if jobs or jobs.is_one_unclear:
        with suppress(OSError):  # the mark spares a link that starts meanwhile its work
            mark_over(folder, CANCELLED, "it was not submitted completely")
    if jobs and not _scancel(jobs):
        ids = " ".join(map(str, jobs))
        raise SubmissionFailed(
            f"the chain was not submitted completely, and scancel failed: job {ids} may still be"
            f" queued. Run `scancel {ids}`, then remove {folder}"
        )
    if jobs.is_one_unclear:
        raise SubmissionFailed(
            "the chain was cancelled while Slurm did not answer, so one more link may be queued;"
            f" it leaves as it starts. `squeue --me -o '%A %k'` shows it by chain={folder.name};"
            f" then remove {folder}"
        )
    import shutil  # it takes longer than all of mirage-submit's other work

    shutil.rmtree(folder, ignore_errors=True)


def _fill_folder(settings: ChainSettings, script: UserScript) -> None:
    _write(settings.folder / USER_SCRIPT, script.content, 0o700)
    _write(settings.folder / JOB_SCRIPT, build_job_script(settings, script), 0o600)
    record = {
        "chain": settings.chain_id,
        "cluster": cluster_name(),
        "segments": settings.segments,
        "mode": settings.mode.value,
        "submitted": int(time.time()),
        "script": settings.source,
        "name": " ".join(settings.job_name.split()),  # on one line, as each value of a record
        "submit_dir": settings.submit_dir,
        COMMAND: command_of(settings),
        "done_file": settings.done_file or "",
        "length": settings.length,
        "ahead": settings.ahead,
        "up_front": int(settings.up_front),
        **_replica_record(settings, script),
        **{f"then.{number}": then.source for number, then in enumerate(settings.then, start=1)},
    }
    for number, then in enumerate(settings.then, start=1):
        _write(then_script(settings.folder, number), then.content, 0o600)
    lines = "".join(f"{key}={value}\n" for key, value in record.items())
    _write(settings.folder / CHAIN_RECORD, os.fsencode(lines), 0o600)
    _write(settings.folder / SUBMITTING, b"", 0o600)


def _replica_record(settings: ChainSettings, script: UserScript) -> dict[str, object]:
    if settings.service is None:
        return {}
    return {
        "service": settings.service,
        "replica": settings.replica,
        "gpus": gpus_of((*script.options, *settings.options)),
    }


def _write(path: Path, content: bytes, mode: int) -> None:
    path.write_bytes(content)
    path.chmod(mode)


def _record_job(folder: Path, segment: int, job_id: int) -> bool:
    """False: another job is on record as this link."""
    fresh = folder / f".queued.{segment}.{os.getpid()}"
    fresh.write_text(f"{job_id}\n")
    try:
        os.link(fresh, folder / f"queued.{segment}")
    except FileExistsError:
        return False
    finally:
        fresh.unlink()
    return True


def _submit(
    settings: ChainSettings, segment: int, predecessor: str, interruptions: Interruptions
) -> int:
    """The job id of a link, for which sbatch is run. What sbatch prints as an error goes to the
    user as it is.
    """
    answer = _run_sbatch(link_command(settings, segment, predecessor), interruptions)
    return _read_answer(_of_link(settings.chain_id, segment), f"link {segment}", answer)


def _run_sbatch(command: Sequence[str], interruptions: Interruptions) -> tuple[int, str, str]:
    program = real_sbatch(os.environ.get("PATH", os.defpath))
    if not program:
        raise SubmissionFailed("sbatch is not on PATH: run mirage-submit where you can run sbatch")
    return interruptions.run(program, command)


def _of_link(chain_id: str, segment: int) -> str:
    return f"mirage/1 chain={chain_id} seg={segment}/"


def _read_answer(tag: str, what: str, answer: tuple[int, str, str]) -> int:
    """A job id, by sbatch's exit code and both outputs, and by the queue where these don't say.

    ``tag``: a pattern of what the job's comment begins with. ``what``: the job, in words.
    """
    exit_code, stdout, stderr = answer
    _pass_on(stderr)
    ids = submitted_ids(stdout)
    if exit_code == 0 and len(set(ids)) == 1:
        return ids[0]
    is_silent = exit_code < 0 or any(words in stderr for words in _NO_ANSWER)
    if job_id := _find_job(tag, looks=3 if is_silent else 1):
        if exit_code:
            _say(
                f"sbatch ended with exit code {exit_code}, but job {job_id} is queued: it is {what}"
            )
        return job_id
    if exit_code == 0 and ids:
        return ids[-1]
    if ids and not _queue_answers():
        raise SubmissionUnclear(
            f"sbatch printed the job id {ids[-1]}, but ended with exit code {exit_code}."
        )
    if exit_code == 0:
        raise SubmissionUnclear(
            f"sbatch --parsable printed no job id, but {_readable(stdout.strip()[-200:])!r}."
        )
    if is_silent:
        raise SubmissionUnclear("Slurm did not answer, so the job may be in the queue or not.")
    raise _refusal(exit_code, stderr)


def _readable(text: str) -> str:
    """With U+FFFD for bytes that are no UTF-8."""
    return os.fsencode(text).decode(errors="replace")


def let_follow(folder: Path) -> None:
    """Queues the scripts of `--then` if the chain is marked as done; cancels those that were queued
    if it failed.

    The chain's own job script does it, as its links would. SubmissionFailed: one is not queued; the
    reason is above.
    """
    if not read_then(folder):
        return
    done = subprocess.run(["sh", str(folder / JOB_SCRIPT), "follow-up"])
    if done.returncode:
        raise SubmissionFailed("not all of --then is queued: see above")


def _find_job(tag: str, looks: int) -> int | None:
    """A job by its tag in the queue; None: it is not there, or Slurm does not answer.

    ``looks``: how often to look, a second apart, for a job that slurmctld may be about to take.
    """
    words = ["-t", "all", "-u", str(os.getuid()), "-o", "%A %T %D/%N %k"]
    for look in range(looks):
        if look:
            time.sleep(1)
        if (queue := _queue_of(words, _SQUEUE_TIMEOUT_S)) is None:
            return None
        # Of a job that it refuses slurmctld keeps a record too: FAILED, and without nodes.
        line = rf"^(\d+) (?!(?:FAILED|CANCELLED) \d*/ )\w+ \S* {tag}"
        if found := re.findall(line, queue, re.MULTILINE | re.ASCII):
            return min(map(int, found))
    return None


def command_of(settings: ChainSettings) -> str:
    """What two chains have in common that would write the same checkpoint, on one line."""
    exports = [option.words for option in settings.options if option.name.startswith("export")]
    work = (str(settings.source), settings.work_dir, settings.job_name, settings.arguments, exports)
    return repr(work)


def refuse_twin(settings: ChainSettings) -> None:
    """InputError: a chain lives that was started by the same command."""
    command = command_of(settings)
    try:
        chains = list(chains_folder().iterdir())
    except OSError:
        return  # none yet; or the folder is closed, as its owner is told once it is written to
    twins = [
        path.name
        for path in chains
        if path.is_dir()
        and read_record(path / CHAIN_RECORD).get(COMMAND) == command
        and over_marker(path) is None
    ]
    queue = _queue_of(["-u", str(os.getuid()), "-o", "%k"], _REASON_TIMEOUT_S) if twins else ""
    for twin in twins:
        cluster = other_cluster_of(twin)  # its queue can't be seen here
        if cluster or f" chain={twin} " in (queue or ""):
            where = f" on cluster {cluster}" if cluster else ""
            raise InputError(
                f"chain {twin}{where} runs the same script in the same folder with the same"
                " arguments, so both would write the same checkpoint. To start another all the"
                f" same: --again. To end the first: mirage cancel {twin}{where}"
            )


def look_at(job_id: int) -> tuple[str, str, int]:
    """Why a job waits, as squeue names it, its partition and its nodes; empty and 0: not known."""
    shown = _queue_of(["-j", str(job_id), "-o", "%D %P %r"], _REASON_TIMEOUT_S) or ""
    nodes, _, rest = shown.strip().partition(" ")
    partition, _, reason = rest.partition(" ")
    return reason, partition, int(nodes) if nodes.isdecimal() else 0


def _queue_of(words: Sequence[str], timeout_s: float) -> str | None:
    """What squeue prints without its header; None: it fails, or does not answer."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("SQUEUE_", "SLURM_CLUSTERS"))
    }
    try:
        done = subprocess.run(
            ["squeue", "-h", "-a", *words], env=environ, capture_output=True, timeout=timeout_s
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return None if done.returncode else os.fsdecode(done.stdout)


def _queue_answers() -> bool:
    """Whether squeue says anything, so that a job which it does not show is not there."""
    try:
        return (
            subprocess.run(
                ["squeue", "-h", "--me"], capture_output=True, timeout=_SQUEUE_TIMEOUT_S
            ).returncode
            == 0
        )
    except (OSError, subprocess.TimeoutExpired):
        return False


def _refusal(exit_code: int, message: str) -> SubmissionFailed:
    failure = (
        SubmitLimit() if any(words in message for words in _SUBMIT_LIMIT) else SubmissionFailed()
    )
    failure.exit_code = exit_code
    return failure


def _scancel(jobs: Sequence[int]) -> bool:
    try:
        return subprocess.run(["scancel", *map(str, jobs)]).returncode == 0
    except OSError:
        return False


def run_test_only(settings: ChainSettings, script: UserScript) -> int:
    """Runs `sbatch --test-only` for the first link, and returns its exit code. Nothing is submitted
    or written.

    The job script goes through standard input. SubmissionFailed: there is no sbatch.
    """
    program = real_sbatch(os.environ.get("PATH", os.defpath))
    if not program:
        raise SubmissionFailed("sbatch is not on PATH: run mirage-submit where you can run sbatch")
    words = link_command(settings, 1)
    command = [*words[: words.index(str(settings.folder / JOB_SCRIPT))], "--test-only"]
    return subprocess.run(
        command, executable=program, input=build_job_script(settings, script)
    ).returncode


def _pass_on(text: str) -> None:
    if sys.stderr is None:  # it was closed
        return
    with suppress(OSError):  # nobody reads it
        sys.stderr.write(text)
        sys.stderr.flush()


def _say(text: str) -> None:
    _pass_on(f"mirage: {text}\n")

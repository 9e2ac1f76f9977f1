"""No way of submitting a chain ends with a queued job that has no folder, or the reverse."""

from __future__ import annotations

import errno
import os
import signal
from pathlib import Path

import pytest

from mirage.chain.folder import over_marker, queued_jobs
from mirage.chain.sbatch import submitted_ids
from mirage.cli.submit import main
from mirage.slurm.parsing import parse_submitted
from tests.unit.chain.test_submit import LIMIT, Site, site

__all__ = ["site"]

BANNER = "printf '%s\\n' ------- '   Welcome' '--> Verifying ...OK' ''\n"
QUEUE_IT = """for word; do
    case $word in --comment=*) echo "777 PENDING 1/ ${word#--comment=}" >>"$FAKE/queue" ;; esac
done
"""
INTERRUPT_TWICE = """kill -INT $PPID
while grep -q '^S[ih][gd]Pnd:.*[2367abef]$' /proc/$PPID/status; do sleep 0.1; done  # bit 2: not yet heard
sleep 0.3
kill -INT $PPID
exec sleep 600
"""
WORDS = ["--segments=3", "train.sbatch"]


def assert_nothing_is_left(site: Site, *cancelled: str) -> None:
    assert site.folders() == []
    assert site.cancelled() == list(cancelled)


def the_folder(site: Site) -> Path:
    (folder,) = site.folders()
    assert not (folder / "submitting").exists()
    return folder


# ---- The id


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("101\n", [101]),
        ("101", [101]),
        ("101;cluster\n", [101]),
        ("Welcome to 7 nodes\n--> job limit: 5\n101\n", [101]),
        ("101\nHave a nice day\n\n", [101]),
        ("Submitted batch job 101 on cluster left\n", [101]),
        ("2026\n101\n", [2026, 101]),
        ("101  \r\n", [101]),
        ("0\n", []),
        ("queued, I think\n", []),
        ("12345678901\n", []),
        ("", []),
    ],
)
def test_the_ids_that_sbatchs_answer_may_mean(text: str, ids: list[int]) -> None:
    assert submitted_ids(text) == ids
    if ids:
        assert parse_submitted(text) == ids[-1]


@pytest.mark.parametrize("after", ["", "exec >/dev/null", f'trap "{BANNER.strip()}" EXIT'])
def test_a_banner_on_sbatchs_stdout_does_no_harm(site: Site, after: str) -> None:
    """`exec >/dev/null`: there is no id at all; the job is found by its tag."""
    ids = []
    for call in (1, 2):
        site.in_call(call, f"{BANNER}{QUEUE_IT if 'null' in after else ''}{after}\n")
        ids.append(777 if "null" in after else 100 + call)
    assert main(WORDS) == 0
    assert queued_jobs(the_folder(site)) == dict(enumerate(ids, 1))
    assert site.cancelled() == []


def test_of_two_numbers_slurm_says_which_is_the_job(site: Site) -> None:
    site.in_call(1, f"{QUEUE_IT}trap 'echo 2026' EXIT\n")
    assert main(["--segments=1", "train.sbatch"]) == 0
    assert queued_jobs(the_folder(site)) == {1: 777}


def test_of_two_numbers_the_last_counts_where_slurm_does_not_say(site: Site) -> None:
    site.in_call(1, "echo 2026\n")
    (site.fake / "down").touch()
    assert main(["--segments=1", "train.sbatch"]) == 0
    assert queued_jobs(the_folder(site)) == {1: 101}


@pytest.mark.parametrize("down", [False, True])
def test_without_an_id_the_folder_stays_and_the_user_is_told_what_to_look_for(
    site: Site, capfd: pytest.CaptureFixture[str], down: bool
) -> None:
    site.in_call(1, "echo it is queued; exit 0\n")
    if down:
        (site.fake / "down").touch()
    assert main(WORDS) == 1
    folder = the_folder(site)
    error = capfd.readouterr().err
    assert "printed no job id, but 'it is queued'" in error
    assert f"chain={folder.name} in its comment" in error
    assert f"mirage cancel {folder.name}" in error
    assert over_marker(folder) is None
    assert site.cancelled() == []
    assert len(site.sbatch_calls()) == 1


# ---- No answer


TIMED_OUT = (
    "echo 'sbatch: error: Batch job submission failed: Socket timed out on send/recv operation'"
    " >&2; exit 1\n"
)
KILLED = "kill -KILL $$\n"


@pytest.mark.parametrize(
    "end", [TIMED_OUT, KILLED, "echo 'post_submit plugin failed' >&2; exit 3\n"]
)
def test_a_job_that_slurm_took_all_the_same_is_the_first_link(
    site: Site, capfd: pytest.CaptureFixture[str], end: str
) -> None:
    site.in_call(1, QUEUE_IT + end)
    assert main(WORDS) == 0
    assert queued_jobs(the_folder(site)) == {1: 777, 2: 102}
    assert "but job 777 is queued: it is link 1" in capfd.readouterr().err


@pytest.mark.parametrize("down", [False, True])
def test_an_id_from_a_sbatch_that_failed_counts_where_squeue_does_not_answer(
    site: Site, capfd: pytest.CaptureFixture[str], down: bool
) -> None:
    site.in_call(1, "echo 777; exit 3\n")
    if down:
        (site.fake / "down").touch()
    assert main(WORDS) == (1 if down else 3)
    if not down:
        assert_nothing_is_left(site)
        return
    folder = the_folder(site)
    assert over_marker(folder) is None
    error = capfd.readouterr().err
    assert "sbatch printed the job id 777, but ended with exit code 3" in error
    assert f"mirage cancel {folder.name}" in error


def test_the_record_of_a_job_that_slurm_refused_is_no_queued_job(site: Site) -> None:
    """slurmctld 22.05 keeps one where no node could ever serve the job."""
    refused = (
        "sbatch: error: Batch job submission failed: Requested node configuration is not available"
    )
    site.in_call(1, f"{QUEUE_IT.replace('PENDING', 'FAILED')}echo '{refused}' >&2; exit 1\n")
    assert main(WORDS) == 1
    assert_nothing_is_left(site)


def test_a_link_that_is_over_already_was_queued(site: Site) -> None:
    site.in_call(1, f"{QUEUE_IT.replace('PENDING 1/', 'COMPLETED 1/n1')}{KILLED}")
    assert main(["--segments=1", "train.sbatch"]) == 0
    assert queued_jobs(the_folder(site)) == {1: 777}


@pytest.mark.parametrize(("end", "down"), [(TIMED_OUT, True), (KILLED, True), (KILLED, False)])
def test_without_an_answer_nothing_is_claimed_and_nothing_removed(
    site: Site, capfd: pytest.CaptureFixture[str], end: str, down: bool
) -> None:
    """Slurm may have accepted the job. Its folder stays, and the user is told how to find out."""
    if down:
        (site.fake / "down").touch()
    site.in_call(1, end)
    assert main(WORDS) == 1
    folder = the_folder(site)
    assert over_marker(folder) is None
    assert f"mirage status {folder.name}" in capfd.readouterr().err
    assert site.cancelled() == []


def test_whether_link_2_is_queued_is_left_to_link_1(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    (site.fake / "down").touch()
    site.in_call(2, TIMED_OUT)
    assert main(WORDS) == 0
    assert queued_jobs(the_folder(site)) == {1: 101}
    assert "job 101 looks for it, and queues it if it is not" in capfd.readouterr().err


def test_up_front_nobody_else_would_queue_it(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    (site.fake / "down").touch()
    site.in_call(2, TIMED_OUT)
    assert main(["--up-front", *WORDS]) == 1
    assert queued_jobs(the_folder(site)) == {1: 101}
    assert "may be in the queue or not" in capfd.readouterr().err


# ---- Signals


@pytest.mark.parametrize("number", ["INT", "TERM", "HUP"])
@pytest.mark.parametrize("call", [1, 2])
def test_a_signal_during_sbatch_waits_for_its_answer_and_undoes_all(
    site: Site, capfd: pytest.CaptureFixture[str], call: int, number: str
) -> None:
    site.in_call(
        call, f"kill -{number} $PPID $$; sleep 0.2\n"
    )  # a terminal's Ctrl-C reaches sbatch too
    assert main(WORDS) == 130
    assert len(site.sbatch_calls()) == call
    assert_nothing_is_left(site, " ".join(str(100 + done) for done in range(1, call + 1)))
    assert "interrupted; no chain was started" in capfd.readouterr().err


def test_the_second_signal_ends_sbatch_whose_job_is_then_looked_for(site: Site) -> None:
    site.in_call(1, QUEUE_IT + INTERRUPT_TWICE)
    assert main(WORDS) == 130
    assert_nothing_is_left(site, "777")


def test_a_second_signal_where_slurm_is_silent_leaves_the_folder(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    (site.fake / "down").touch()
    site.in_call(1, INTERRUPT_TWICE)
    assert main(WORDS) == 1
    assert "may be in the queue or not" in capfd.readouterr().err
    assert over_marker(the_folder(site)) is None


def test_a_signal_while_link_2_is_unclear_leaves_the_folder_for_it(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    (site.fake / "down").touch()
    site.in_call(2, f"kill -INT $PPID; sleep 0.2; {TIMED_OUT}")
    assert main(WORDS) == 1
    assert site.cancelled() == ["101"]
    (folder,) = site.folders()
    assert over_marker(folder) == ("cancelled", "it was not submitted completely")
    assert "one more link may be queued; it leaves as it starts" in capfd.readouterr().err


def test_what_is_ignored_stays_ignored(site: Site) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        site.in_call(1, "kill -HUP $PPID\n")
        assert main(WORDS) == 0
    finally:
        signal.signal(signal.SIGHUP, before)


# ---- Disks and scancel


def full_disk_at(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Nothing can be written to files whose names contain this."""
    for method in ("write_text", "write_bytes"):
        real = getattr(Path, method)

        def write(path: Path, content: object, *more: object, real=real, **words: object) -> int:
            if name in path.name:
                raise OSError(errno.ENOSPC, "No space left on device", str(path))
            return int(real(path, content, *more, **words))

        monkeypatch.setattr(Path, method, write)


@pytest.mark.parametrize(
    ("name", "cancelled"),
    [
        ("script", []),
        ("job.sh", []),
        ("chain", []),
        ("queued.1", ["101"]),
        ("queued.2", ["101 102"]),
    ],
)
def test_a_full_disk_at_any_file_leaves_nothing(
    site: Site,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    cancelled: list[str],
) -> None:
    full_disk_at(monkeypatch, name)
    assert main(WORDS) == 1
    assert_nothing_is_left(site, *cancelled)
    assert "No space left on device; no chain was started" in capfd.readouterr().err


def test_a_folder_that_cannot_be_made_is_one_clear_error(
    site: Site, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Path.mkdir

    def mkdir(path: Path, *more: object, **words: object) -> None:
        if path.parent.name == "chains":
            raise OSError(errno.EDQUOT, "Disk quota exceeded", str(path))
        real(path, *more, **words)  # type: ignore[arg-type]

    monkeypatch.setattr(Path, "mkdir", mkdir)
    assert main(WORDS) == 1
    assert "Disk quota exceeded; no chain was started" in capfd.readouterr().err
    assert site.sbatch_calls() == []


@pytest.mark.parametrize("refusal", ["sbatch: error: Job dependency problem", LIMIT])
def test_jobs_that_cannot_be_cancelled_keep_their_folder(
    site: Site, capfd: pytest.CaptureFixture[str], refusal: str
) -> None:
    """They find the chain cancelled as they start, and leave."""
    (site.fake / "scancel.fails").touch()
    site.refuse(2, refusal)
    assert main(["--up-front", *WORDS]) == 1
    (folder,) = site.folders()
    assert over_marker(folder) == ("cancelled", "it was not submitted completely")
    assert f"Run `scancel 101`, then remove {folder}" in capfd.readouterr().err


def test_sbatch_runs_with_the_terminal_and_without_the_wrapper(site: Site) -> None:
    """Links are submitted by Slurm's own sbatch, also where mirage-sbatch is first on PATH."""
    (site.root / "wrap").mkdir()
    wrapper = site.root / "wrap" / "sbatch"
    wrapper.write_text("#!/bin/sh\nexec mirage-sbatch\n")
    wrapper.chmod(0o755)
    os.environ["PATH"] = f"{wrapper.parent}:{os.environ['PATH']}"  # monkeypatched by the fixture
    assert main(WORDS) == 0
    assert len(site.sbatch_calls()) == 2

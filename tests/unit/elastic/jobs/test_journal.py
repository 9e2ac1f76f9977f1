"""The journal: intents that outlive a controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirage.elastic.jobs import folder as files
from mirage.elastic.jobs.journal import JOURNAL, JobJournal
from mirage.elastic.jobs.request import Role
from mirage.elastic.jobs.tag import TaskTag, format_task_tag, parse_task_tag
from mirage.errors import InputError, StoreError
from tests.unit.elastic.jobs.site import NOW, REQUEST


def test_a_journal_is_read_back(tmp_path: Path) -> None:
    journal = JobJournal.create(tmp_path, ident="k3m9pq2xha", name="mnist", now_s=NOW)
    journal.write(NOW + 1, "submit", task="w1", extra=False, gpus=1)
    journal.write(NOW + 2, "queued", task="w1", job_id=7)
    journal.write(NOW + 3, "submit", task="w2", extra=True, gpus=1)
    journal.write(NOW + 4, "drain", task="w1", why="fewer")
    again = JobJournal(tmp_path).record
    assert again == journal.record
    assert again.tasks["w1"].is_leaving
    assert again.tasks["w2"].job_id is None
    assert again.next_name(Role.WORKER) == "w3"
    assert (tmp_path / JOURNAL).stat().st_mode & 0o777 == 0o600


def test_a_line_that_a_crash_cut_off_is_left_out(tmp_path: Path) -> None:
    journal = JobJournal.create(tmp_path, ident="k3m9pq2xha", name="mnist", now_s=NOW)
    journal.write(NOW, "submit", task="w1", extra=False, gpus=1)
    with (tmp_path / JOURNAL).open("a") as file:
        file.write('{"at":18000000')
    again = JobJournal(tmp_path)
    assert list(again.record.tasks) == ["w1"]
    again.write(NOW, "submit", task="w2", extra=False, gpus=1)
    assert list(JobJournal(tmp_path).record.tasks) == ["w1", "w2"]


def test_a_file_that_is_no_journal(tmp_path: Path) -> None:
    (tmp_path / JOURNAL).write_bytes(b"\xff\x00 garbage\n[1]\n")
    with pytest.raises(StoreError, match="line 2: no event"):
        JobJournal(tmp_path)


def test_a_full_disk_is_an_error_before_the_act(tmp_path: Path) -> None:
    journal = JobJournal.create(tmp_path, ident="k3m9pq2xha", name="mnist", now_s=NOW)
    (tmp_path / JOURNAL).unlink()
    (tmp_path / JOURNAL).symlink_to("/dev/full")
    with pytest.raises(StoreError, match="nothing is done"):
        journal.write(NOW, "submit", task="w1", extra=False, gpus=1)
    assert not journal.record.tasks


def test_a_name_is_used_once(tmp_path: Path) -> None:
    folder = files.create_job(tmp_path, REQUEST, NOW)
    assert files.read_job_request(folder) == REQUEST
    assert folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(InputError, match="there is one of this name, which is not over"):
        files.create_job(tmp_path, REQUEST, NOW)
    with pytest.raises(InputError, match="no elastic job 'x' of yours; there are: mnist"):
        files.job_folder(tmp_path, "x")


@pytest.mark.parametrize(
    "comment",
    [
        "",
        "mirage-elastic/1 job=k3m9pq2xha task=x1 share=base",
        "mirage/1 chain=k3m9pq2xha",
        "a" * 99,
    ],
)
def test_other_comments_are_no_tags(comment: str) -> None:
    assert parse_task_tag(comment) is None


def test_a_tag_is_read_back() -> None:
    tag = TaskTag(job="k3m9pq2xha", task="s12", is_extra=True)
    assert parse_task_tag(format_task_tag(tag)) == tag
    assert tag.role is Role.SERVER

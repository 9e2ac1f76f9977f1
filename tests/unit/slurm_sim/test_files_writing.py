"""Files and folders are written whole or not at all."""

import errno
import os
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from slurm_sim.files import filling, replacing, write_whole


def half_written(output: AbstractContextManager[Path], error: BaseException) -> None:
    with output as fresh:
        (fresh / "a" if fresh.is_dir() else fresh).write_text("half")
        raise error


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_file_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "f.txt"
    path.write_text("old")
    write_whole(path, "neu\u00e4", 0o640)
    assert path.read_bytes() == "neu\u00e4".encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert names(tmp_path) == ["f.txt"]


@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_new_file_has_the_rights_of_any_new_file(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_whole(tmp_path / "f", b"")
    finally:
        os.umask(before)
    assert (tmp_path / "f").stat().st_mode & 0o777 == 0o666 & ~umask


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.ENOSPC, "full")])
def test_what_is_cut_short_leaves_what_was_there(tmp_path: Path, error: BaseException) -> None:
    path = tmp_path / "f"
    path.write_text("old")
    with pytest.raises(type(error)) as seen:
        half_written(replacing(path), error)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["f"]
    assert not isinstance(seen.value, OSError) or seen.value.filename == str(path)


def test_what_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for path in (tmp_path / "d", tmp_path / "none" / "f", tmp_path / ("x" * 300)):
        with pytest.raises(OSError) as seen:  # noqa: PT011
            write_whole(path, "")
        assert seen.value.filename == str(path)
    assert names(tmp_path) == ["d"]


def test_a_folders_files_come_together_and_others_stay(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    with filling(tmp_path / "out") as fresh:
        (fresh / "a").write_text("a")
        (fresh / "mine.too").write_text("b")
        assert not (tmp_path / "out" / "a").exists()
    assert names(tmp_path / "out") == ["a", "mine", "mine.too"]


def test_a_folder_that_was_not_filled_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        half_written(filling(tmp_path / "new" / "deep"), KeyboardInterrupt())
    assert names(tmp_path) == []
    stack = ExitStack()
    (tmp_path / "out" / "a").mkdir(parents=True)
    fresh = stack.enter_context(filling(tmp_path / "out"))
    (fresh / "a").write_text("a")
    (fresh / "b").write_text("b")
    with pytest.raises(IsADirectoryError):
        stack.close()
    assert names(tmp_path) == ["out", "out/a"]

"""One daemon a store."""

from __future__ import annotations

import multiprocessing
import os
import stat
import subprocess
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from mirage.errors import StoreError
from mirage.store.lock import exclusive

SPAWN = multiprocessing.get_context("spawn")


def _hold(path: Path, ready: Event) -> None:
    with exclusive(path):
        ready.set()
        time.sleep(600)


def test_a_second_daemon_is_told_who_holds_the_lock_until_that_one_dies(tmp_path: Path) -> None:
    path = tmp_path / "state" / "daemon.lock"
    ready = SPAWN.Event()
    first = SPAWN.Process(target=_hold, args=(path, ready))
    first.start()
    try:
        assert ready.wait(240)
        with (
            pytest.raises(StoreError, match=rf"{path}: another daemon .*\(pid {first.pid} on "),
            exclusive(path),
        ):
            pytest.fail("two hold the lock")
    finally:
        first.kill()
        first.join()
    with exclusive(path):
        assert path.read_text().startswith(f"pid {os.getpid()} on ")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_lock_ends_with_its_body_even_if_that_fails(tmp_path: Path) -> None:
    path = tmp_path / "daemon.lock"
    with pytest.raises(ZeroDivisionError), exclusive(path):
        print(1 / 0)
    with exclusive(path), pytest.raises(StoreError), exclusive(path):
        pytest.fail("two hold the lock")


def test_a_command_that_the_daemon_starts_does_not_keep_the_lock(tmp_path: Path) -> None:
    path = tmp_path / "daemon.lock"
    with exclusive(path):
        child = subprocess.Popen(["sleep", "60"])
    try:
        with exclusive(path):
            pass
    finally:
        child.kill()
        child.wait()


def test_a_lock_file_that_can_not_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=rf"Lock {tmp_path}: "), exclusive(tmp_path):
        pytest.fail("a folder is no lock file")

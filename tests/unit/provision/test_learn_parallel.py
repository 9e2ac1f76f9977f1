"""Work in processes of this machine. Few imports: each worker begins with those of this file."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mirage.errors import InputError, MirageError
from mirage.provision.learn.parallel import spread


def double(context: int, item: int) -> int:
    if item < 0:
        raise InputError("a negative number")
    return context * item


def die(_context: int, _item: int) -> None:
    os._exit(3)


def test_each_item_is_done() -> None:
    assert dict(spread(double, 2, range(5))) == {0: 0, 1: 2, 2: 4, 3: 6, 4: 8}


def test_what_a_worker_raises_comes_through() -> None:
    with pytest.raises(InputError, match="a negative number"):
        dict(spread(double, 2, [1, -1], workers=2))


def test_a_worker_that_dies() -> None:
    with pytest.raises(MirageError, match="retry with fewer workers"):
        dict(spread(die, 2, [1, 2], workers=2))


def linger(folder: str, item: int) -> None:
    (Path(folder) / str(item)).write_text(str(os.getpid()))
    time.sleep(600)


def test_workers_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    words = (
        "from tests.unit.provision.test_learn_parallel import linger, spread;"
        " list(spread(linger, {!r}, [1, 2], 2))"
    )
    parent = subprocess.Popen([sys.executable, "-c", words.format(str(tmp_path))])
    try:
        until(
            lambda: (
                len([path for path in tmp_path.iterdir() if path.read_text()]) == 2
                or parent.poll() is not None
            )
        )
        pids = [path.read_text() for path in tmp_path.iterdir()]
        assert len(pids) == 2
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not any(is_alive(pid) for pid in pids))


def is_alive(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(what: Callable[[], bool], timeout_s: float = 120) -> None:
    deadline = time.monotonic() + timeout_s
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)

"""One function on many items: here, or in processes of this machine."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from mirage.errors import MirageError

Context = TypeVar("Context")
Item = TypeVar("Item")
Result = TypeVar("Result")


def spread(
    function: Callable[[Context, Item], Result],
    context: Context,
    items: Sequence[Item],
    workers: int = 1,
) -> Generator[tuple[Item, Result]]:
    """Each item with `function(context, item)`, in the order in which they are done.

    `function` is one of a module's own, which workers find by its name. `workers`: processes of
    this machine; 1: this one. The results are the same in both ways. Raises MirageError if a process
    dies; what the function raises comes through.
    """
    if workers > 1 and len(items) > 1:
        yield from _in_processes(function, context, items, workers)
    else:
        for item in items:
            yield item, function(context, item)


_task: tuple[Callable[[Any, Any], Any], Any]
"""In a worker process: what to do, and with what."""


def _begin(function: Callable[[Any, Any], Any], context: Any) -> None:
    global _task
    _task = function, context
    # Ctrl-C reaches the whole group of processes; the first one alone is to answer it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """A parent that is killed tells nobody: its workers would wait for more work for ever."""
    if parent := multiprocessing.parent_process():
        parent.join()
    os._exit(1)


def _do(item: Any) -> Any:
    function, context = _task
    return function(context, item)


def _in_processes(
    function: Callable[[Context, Item], Result],
    context: Context,
    items: Sequence[Item],
    workers: int,
) -> Iterator[tuple[Item, Result]]:
    with _pool(function, context, min(workers, len(items))) as pool:
        item_of = {pool.submit(_do, item): item for item in items}
        for future in as_completed(item_of):
            yield item_of[future], future.result()


@contextmanager
def _pool(
    function: Callable[[Any, Any], Any], context: Any, workers: int
) -> Iterator[ProcessPoolExecutor]:
    # Spawned, not forked: libraries like torch have threads, which a fork would leave behind with
    # their locks held.
    pool = ProcessPoolExecutor(
        workers, multiprocessing.get_context("spawn"), _begin, (function, context)
    )
    try:
        yield pool
    except BrokenProcessPool as error:
        raise MirageError(
            "A worker process died, perhaps for lack of memory. What was done is kept; retry with"
            " fewer workers."
        ) from error
    finally:
        pool.shutdown(wait=True, cancel_futures=True)

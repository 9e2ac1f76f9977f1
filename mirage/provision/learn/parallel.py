"""One function on many items: here, in processes of this machine, or on the machines of a Ray
cluster.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from mirage.errors import InputError, MirageError

Context = TypeVar("Context")
Item = TypeVar("Item")
Result = TypeVar("Result")
KNOCK_S = 10


def spread(
    function: Callable[[Context, Item], Result],
    context: Context,
    items: Sequence[Item],
    workers: int = 1,
    ray: str | None = None,
) -> Generator[tuple[Item, Result]]:
    """Each item with `function(context, item)`, in the order in which they are done.

    `function` is one of a module's own, which workers find by its name. `workers`: processes of
    this machine; 1: this one. `ray`: address of a Ray cluster instead ("auto", "local", host:port).
    The results are the same in every way of running. Raises InputError if Ray is asked for and not
    there, MirageError if a process dies; what the function raises comes through.
    """
    if ray is not None:
        yield from _on_ray(function, context, items, ray)
    elif workers > 1 and len(items) > 1:
        yield from _in_processes(function, context, items, workers)
    else:
        for item in items:
            yield item, function(context, item)


# --- processes
# -------------------------------------------------------------------------------------------------------

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


# --- Ray
# -------------------------------------------------------------------------------------------------------------


def ray_module() -> Any:
    """Ray, which is imported nowhere else. Raises InputError if it is not installed."""
    try:
        import ray  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise InputError(
            "Ray is not installed; `pip install 'mirage-slurm[ray]'`, or leave --ray out."
        ) from error
    return ray


def _knock(address: str) -> None:
    """Raises OSError if nobody listens at a host:port: Ray itself would try for many minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=KNOCK_S).close()


def _on_ray(
    function: Callable[[Context, Item], Result],
    context: Context,
    items: Sequence[Item],
    address: str,
) -> Iterator[tuple[Item, Result]]:
    ray = ray_module()
    try:
        _knock(address)
        ray.init(address=address, ignore_reinit_error=True, log_to_driver=False)
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(
            f"--ray {address}: no Ray cluster answers there ({error}). Where `ray start` spoke of"
            " tokens, set RAY_AUTH_MODE=token, and have the cluster's in ~/.ray/auth_token or"
            " RAY_AUTH_TOKEN."
        ) from error
    # Ray's default fills one machine before it uses the next.
    remote = ray.remote(function).options(scheduling_strategy="SPREAD")
    shared = ray.put(context)
    item_of = {remote.remote(shared, item): item for item in items}
    waiting = list(item_of)
    try:
        while waiting:
            done, waiting = ray.wait(waiting)
            yield item_of[done[0]], ray.get(done[0])
    except ray.exceptions.RayTaskError as error:
        raise error.cause from error
    finally:
        for reference in waiting:
            ray.cancel(reference)

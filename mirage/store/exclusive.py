"""One daemon or agent for each store, whatever the store is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from sqlalchemy import URL

from mirage.store.lock import exclusive as hold_file
from mirage.store.lock import is_held as is_file_held
from mirage.store.places import lock_file
from mirage.store.server import ServerLock
from mirage.store.sqlite import file_of
from mirage.store.url import parse_url


@contextmanager
def exclusive(url: str | URL) -> Iterator[Callable[[], None]]:
    """Holds the store's lock: a file beside an SQLite file, a lock of the server elsewhere.

    Yields what is to be called before each cycle: it raises StoreError while the lock is not ours.
    StoreError at once if another program holds it.
    """
    parsed = parse_url(url)
    if parsed.get_backend_name() == "sqlite":
        path = file_of(parsed)
        if path is None:
            yield lambda: None
            return
        with hold_file(lock_file(path)):
            yield lambda: None
        return
    with closing(ServerLock(parsed)) as held:
        held.ensure()
        yield held.ensure


def is_held(url: str | URL) -> bool:
    """Whether a daemon or agent runs on this store. StoreError: a server does not answer."""
    parsed = parse_url(url)
    if parsed.get_backend_name() != "sqlite":
        with closing(ServerLock(parsed)) as server:
            return server.is_held()
    path = file_of(parsed)
    return path is not None and is_file_held(lock_file(path))

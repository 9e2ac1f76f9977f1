"""Whether a Mirage service is seen from here: the site's daemon, or one's own agent.
`mirage-submit` asks too.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from mirage.chain.cluster_name import cluster_name
from mirage.store.lock import is_held
from mirage.store.places import file_in, lock_file, once_file

SITE_SOCKET = Path("/run/mirage/mirage.sock")
PATIENCE_S = 0.5
"""A daemon whose socket takes no connection for so long is busy, so there is one."""

CRON_S = 1800
"""Who runs `mirage agent --once` from cron does it at least this often; so long after a run it
still counts.
"""

NOBODY = (
    "no Mirage daemon answers on this machine, and no agent of yours is seen to run: without one,"
    " each link enters the queue only when the one before has ended. `mirage agent` starts one."
)


def socket_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Where the site's daemon answers, if there is one."""
    return Path(environ.get("MIRAGE_SOCKET") or SITE_SOCKET)


def daemon_listens(path: Path) -> bool:
    """Whether a daemon takes connections at this socket; asks it nothing."""
    try:
        if not path.is_socket():
            return False
    except OSError:
        return False
    import socket  # half of the other imports' time, and most sites without a daemon have no socket

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(PATIENCE_S)
        try:
            connection.connect(str(path))
        except TimeoutError:
            return True
        except OSError:
            return False
    return True


def agent_folder() -> Path:
    """The agent's state folder, after the XDG base directory specification."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "mirage"


def default_agent_store() -> str:
    """Where the agent's store is if its configuration does not say: one for each cluster."""
    return f"sqlite:///{agent_folder() / cluster_name() / 'mirage.db'}"


def agent_store() -> str:
    """The store of one's agent, as its configuration says. Raises InputError.

    The configuration is read only where there is one.
    """
    folder = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "mirage"
    said = os.environ.get("MIRAGE_CONFIG") or any(
        name.startswith("MIRAGE__DAEMON__") for name in os.environ
    )
    if not said and not folder.exists():
        return default_agent_store()
    from mirage.config_sources import load, store_url, user_file

    name = os.environ.get("MIRAGE_CONFIG")
    return store_url(
        load(Path(name) if name else None, user_file()).config.daemon, default_agent_store()
    )


def agent_runs(store: str) -> bool:
    """Whether an agent runs on this store, all the time or from cron. False where that can't be
    told.
    """
    if file := file_in(store):
        return is_held(lock_file(file)) or _ran_lately(once_file(file))
    from mirage.errors import StoreError
    from mirage.store import exclusive  # a database on a server: SQLAlchemy and its driver

    try:
        return exclusive.is_held(store)
    except StoreError:
        return False


def _ran_lately(file: Path) -> bool:
    try:
        return abs(time.time() - file.stat().st_mtime) < CRON_S
    except OSError:
        return False


def tell_if_nobody_watches(program: str) -> None:
    """One line on the error stream, where neither daemon nor agent is seen. Never fails: the chain
    is submitted.
    """
    from mirage.errors import MirageError

    try:
        watched = daemon_listens(socket_path()) or agent_runs(agent_store())
    except (MirageError, OSError) as error:
        print(f"{program}: note: whether your agent runs is not known: {error}", file=sys.stderr)
        return
    if not watched:
        print(f"{program}: note: {NOBODY}", file=sys.stderr)

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
from mirage.store.places import file_in, last_look, lock_file, once_file
from slurm_sim.seconds import DAY_S

SITE_SOCKET = Path("/run/mirage/mirage.sock")
PATIENCE_S = 0.5
"""A daemon whose socket takes no connection for so long is busy, so there is one."""

CRON_S = 1800
"""Who runs `mirage agent --once` from cron does it about this often, or as the last two runs say."""

NOBODY = (
    "no Mirage daemon answers on this machine, and no agent of yours is seen to run: without one,"
    " each link enters the queue only when the one before has ended. `mirage agent` starts one."
)


LOOKS_OFTEN = "An agent that runs all the time (`mirage agent`) looks as often as they need."


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
    if (last := last_look(file)) is None:
        return False
    at_s, every_s = last
    return abs(time.time() - at_s) < max(CRON_S, 2 * min(every_s, DAY_S))


def cron_every_s(store: str) -> int | None:
    """How often cron runs the agent of this store; None: an agent runs all the time, or none does,
    or it is not known.
    """
    file = file_in(store)
    if file is None or is_held(lock_file(file)) or not _ran_lately(once_file(file)):
        return None
    last = last_look(once_file(file))
    return last[1] if last else None


def is_watched() -> bool:
    """Whether a daemon or one's agent is seen. False where that can't be told."""
    from mirage.errors import MirageError

    try:
        return daemon_listens(socket_path()) or agent_runs(agent_store())
    except (MirageError, OSError):
        return False


def tell_who_watches(
    program: str, limit_s: int | None, partition: str = "", nodes: int = 0
) -> None:
    """One line on the error stream, where neither daemon nor agent is seen, or looks too seldom for
    links of this limit (seconds); one where the daemon knows that another size would do better. Never
    fails: the chain is submitted. ``partition``, ``nodes``: of a link; empty and 0: not known.
    """
    from mirage.errors import MirageError

    try:
        store = agent_store()
        runs, listens = agent_runs(store), daemon_listens(socket_path())
        asks = listens and limit_s is not None and (nodes > 0 or limit_s < DAY_S)
        every_s, better = _daemon_says(limit_s or 0, partition, nodes) if asks else (None, "")
        every_s = cron_every_s(store) if runs else every_s
        words = [_too_slow(every_s, limit_s) if runs or listens else NOBODY, better]
    except (MirageError, OSError) as error:
        words = [f"whether your agent runs is not known: {error}"]
    for each in filter(None, words):
        sys.stderr.write(f"{program}: note: {each}\n")


def _too_slow(every_s: int | None, limit_s: int | None) -> str:
    if every_s is None or limit_s is None or limit_s >= DAY_S:  # nobody looks so seldom
        return ""
    from mirage.chain.pace import too_slow

    words = too_slow(every_s, limit_s)
    return f"{words}. {LOOKS_OFTEN}" if words else ""


def _daemon_says(limit_s: int, partition: str, nodes: int) -> tuple[int | None, str]:
    """How often it looks, and what would do better than such links; None and empty: it does not say."""
    from mirage.daemon.socket import ask
    from mirage.errors import InputError

    size = {"partition": partition, "nodes": nodes, "limit_s": limit_s}
    try:
        told = ask(socket_path(), {"ask": "sizes", **size})
    except (OSError, ValueError, InputError):
        return None, ""
    return told["every_s"], told["words"]

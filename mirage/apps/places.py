"""Where a service keeps its store and its audit log, by its configuration. Loads neither SQLAlchemy
nor the service, for commands that only read there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mirage.config import Config
from mirage.config_sources import store_url
from mirage.store.journal import Journal
from mirage.store.places import file_in

DEFAULT_STORE = "sqlite:////var/lib/mirage/mirage.db"
"""Of the site's daemon."""


def settled(config: Config, default_store: str) -> Config:
    """The configuration, with the store's URL in it. Raises InputError."""
    store = store_url(config.daemon, default_store)
    return replace(config, daemon=replace(config.daemon, store=store, store_file=""))


def journal_from(config: Config, default_store: str) -> Journal:
    """The audit log: beside the store, unless the configuration names another place."""
    audit = config.audit
    path = Path(audit.file) if audit.file else state_folder(config, default_store) / "audit.jsonl"
    return Journal(
        path=path, max_bytes=audit.max_mib << 20, max_age_s=audit.max_days * 86_400, keep=audit.keep
    )


def state_folder(config: Config, default_store: str) -> Path:
    """Where the store is if it is a file, else where ``default_store`` would be. Raises InputError."""
    return (
        store_path(config.daemon.store) or store_path(default_store) or Path("mirage.db")
    ).parent


def store_path(url: str) -> Path | None:
    """The file of a store; None: it is on a server, or in memory. Raises InputError."""
    if (path := file_in(url)) and "?" not in url:
        return path
    from mirage.store.sqlite import file_of
    from mirage.store.url import parse_url

    parsed = parse_url(url)
    return file_of(parsed) if parsed.get_backend_name() == "sqlite" else None

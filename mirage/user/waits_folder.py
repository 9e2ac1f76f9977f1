"""Where what was learnt of a site's waits lies: of one's own agent, or of the site's service."""

from __future__ import annotations

from pathlib import Path

from mirage.store.places import file_in
from mirage.user.service_check import agent_folder, agent_store, socket_path

FOLDER = "waits"


def waits_folders() -> list[Path]:
    """The agent's first. Raises InputError."""
    file = file_in(agent_store())
    own = file.parent if file else agent_folder()
    return [own / FOLDER, socket_path().parent / FOLDER]

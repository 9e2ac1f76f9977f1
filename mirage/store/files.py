"""Folders and files that only their owner can read, whatever the umask, and what kind of disk they
are on.
"""

from __future__ import annotations

import os
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
_NETWORK = frozenset(
    {
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "gpfs",
        "lustre",
        "nfs",
        "nfs4",
        "panfs",
        "pvfs2",
        "smb3",
        "wekafs",
    }
)


def make_private_folder(folder: Path) -> None:
    """Makes the folder and its missing parents, all 0700. One that exists is left as it is. Raises
    OSError.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def make_private_file(path: Path) -> None:
    """Makes an empty file, 0600. One that exists loses what others (not its group) may do with it.
    Raises OSError.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        # By path: to open and close a file drops the locks that SQLite, in this process, may hold
        # on it.
        mode = path.stat().st_mode
        if mode & 0o007:
            path.chmod(mode & 0o770)
    else:
        os.close(descriptor)


def is_on_network(folder: Path) -> bool:
    """Whether other hosts may have the folder's file system mounted too (NFS, Lustre, anything by
    FUSE, ...).
    """
    device = folder.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = MOUNTS.read_text(encoding="utf-8", errors="replace") if MOUNTS.exists() else ""
    for line in mounts.splitlines():
        fields = line.split(
            " "
        )  # proc(5): ID parent major:minor root mount-point options [tags] - type source ...
        if fields[2] == number:
            kind = fields[fields.index("-") + 1]
            return kind in _NETWORK or kind.startswith("fuse")
    return False

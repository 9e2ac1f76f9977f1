"""Opening what users name."""

from __future__ import annotations

import errno
import os
from pathlib import Path


def no_device(path: Path) -> Path:
    """The path. Raises OSError for a device (`/dev/zero` never ends) but `/dev/null`, a usual empty file; pipes
    are read like files.
    """
    if str(path) != os.devnull and (path.is_char_device() or path.is_block_device()):
        raise OSError(errno.ENODEV, "a device, not a file", str(path))
    return path

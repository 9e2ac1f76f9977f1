"""What the last night learnt of this site's waits, wherever it lies. Needs no numpy where nothing is there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.errors import MirageError

if TYPE_CHECKING:
    from mirage.provision.starts.walk import NightlyWaits


@dataclass(kw_only=True)
class Learnt:
    """Read again once a night has written it anew."""

    folders: Sequence[Path]
    """The first one that is there counts."""
    warn: Callable[[str], None] | None = None
    """Gets, once, what is wrong with a folder that can't be read. None: that is an error."""
    _waits: NightlyWaits | None = field(default=None, init=False)
    _version: tuple[Path, int] | None = field(default=None, init=False)
    _refused: tuple[Path, int] | None = field(default=None, init=False)

    def waits(self) -> NightlyWaits | None:
        """None: nothing yet. Raises MirageError, see ``warn``."""
        version = next(filter(None, map(_version, self.folders)), None)
        if version is None or version == self._version:
            return self._waits if version else None
        from mirage.provision.starts.learned_folder import read_learned

        try:
            self._waits, self._version = read_learned(version[0])[0], version
        except MirageError as error:
            if self.warn is None:
                raise
            if version != self._refused:
                self.warn(str(error))
            self._waits, self._version, self._refused = None, None, version
        return self._waits


def _version(folder: Path) -> tuple[Path, int] | None:
    try:
        return folder, (folder / "recipe.toml").stat().st_mtime_ns
    except OSError:
        return None

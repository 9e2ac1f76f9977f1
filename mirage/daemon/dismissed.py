"""Chains that are over, and that their owners have put away: the page shows them no more by itself."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mirage.domain import Chain
from slurm_sim.files import write_whole
from slurm_sim.formats import parse_json

log = logging.getLogger(__name__)
MOST = 10_000
"""That are remembered: a chain that ended badly leaves the page after days anyway."""


@dataclass(kw_only=True)
class Dismissed:
    """``file``: where they outlive the service; None: they don't."""

    file: Path | None = None
    now_s: Callable[[], float] = time.time
    _at_s: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file is not None and self.file.exists():
            try:
                read = parse_json(self.file.read_text(encoding="utf-8"))
                self._at_s = {str(key): int(at_s) for key, at_s in read.items()}
            except (OSError, ValueError, AttributeError, TypeError) as error:
                log.warning("%s: can't be read: %s; it begins anew", self.file, error)

    def add(self, chain: Chain) -> None:
        """Raises OSError: it can't be kept."""
        self._at_s[_key(chain)] = int(self.now_s())
        self._at_s = dict(sorted(self._at_s.items(), key=lambda item: item[1])[-MOST:])
        if self.file is not None:
            write_whole(self.file, json.dumps(self._at_s))

    def has(self, chain: Chain) -> bool:
        """Not one that has gone on since, and ended again."""
        return chain.state.is_over and self._at_s.get(_key(chain), -1) >= chain.updated_s


def _key(chain: Chain) -> str:
    return f"{chain.user}/{chain.chain_id}"

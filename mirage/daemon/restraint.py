"""What keeps the service from acting: its mode, the allow-lists, the disable file, a rate, stale
data, no audit log.

A decision that is not carried out is written down all the same, with the restraint in front of the
policy's reason: `[observe: this service only observes] 20 like jobs waited ...`. The codes stay as
they are: people search for them.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from mirage.chain.script import MOST_AHEAD
from mirage.config import ActingConfig
from mirage.domain import ActingMode, Job
from mirage.ports import Store

RATE_WINDOW_S = 60
SITE_DISABLE_FILE = "/etc/mirage/disabled"


class Code(str, Enum):
    """Why nothing was done."""

    OBSERVE = "observe"
    ADVISE = "advise"
    NOT_ALLOWED = "not-allowed"
    DISABLED = "disabled"
    STALE = "old-snapshot"
    RATE = "rate"
    NO_AUDIT = "no-audit"
    NO_ANSWER = "no-answer"
    AGAIN = "set-again"
    NO_EFFECT = "no-effect"
    CHAINS = "too-many-chains"
    AHEAD = "ahead"


_MARKED = re.compile(rf"\[({'|'.join(code.value for code in Code)}): ([^\]]*)\] (.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Restraint:
    """Why the service leaves a job alone, whatever its policy says."""

    code: Code
    words: str

    def __str__(self) -> str:
        return f"[{self.code.value}: {self.words.replace(']', ')')}]"


def restraint_in(reason: str) -> tuple[Restraint | None, str]:
    """A decision's reason, taken apart: the restraint, if there was one, and the policy's own
    words.
    """
    match = _MARKED.fullmatch(reason)
    return (Restraint(Code(match[1]), match[2]), match[3]) if match else (None, reason)


@dataclass(frozen=True, kw_only=True)
class Acting:
    """What the service may do. Empty allow-lists allow all."""

    mode: ActingMode
    partitions: frozenset[str] = frozenset()
    accounts: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    disable_files: tuple[Path, ...] = ()
    releases_per_minute: int = 30
    chains_per_user_per_hour: int | None = None
    """New ones that are taken under watch (`chain_quota.py`); None: all."""
    most_ahead: int = MOST_AHEAD
    """Links of one chain that compete for nodes at once."""
    max_age_s: int = 300

    def standing(self, job: Job, competing: int = 0) -> Restraint | None:
        """What keeps it from acting on this job now and in the cycles to come.

        ``competing``: links of its chain that compete for nodes already.
        """
        if self.mode is ActingMode.OBSERVE:
            return Restraint(Code.OBSERVE, "this service only observes")
        if self.mode is ActingMode.ADVISE:
            return Restraint(Code.ADVISE, "this service only advises")
        if competing >= self.most_ahead:
            links = (
                "1 link of this chain competes"
                if competing == 1
                else f"{competing} links of this chain compete"
            )
            words = f"{links} for nodes already (acting.most_ahead)"
            return Restraint(Code.AHEAD, words)
        return self._not_allowed(job) or self.disabled()

    def disabled(self) -> Restraint | None:
        """Whether a disable file exists. One that can't be looked for counts as there."""
        for path in self.disable_files:
            try:
                path.lstat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError as error:
                return Restraint(
                    Code.DISABLED, f"can't tell whether {path} exists: {error.strerror}"
                )
            return Restraint(Code.DISABLED, f"{path} exists")
        return None

    def momentary(
        self,
        seen_s: int,
        now_s: int,
        recent: Counter[str],
        user: str = "",
        waiting: Collection[str] = (),
    ) -> Restraint | None:
        """What keeps it from a release of ``user``'s job at this moment.

        ``seen_s``: when the cluster was looked at. ``recent``: as `recent` gives it. ``waiting``:
        users who have a successor that waits.
        """
        if not 0 <= now_s - seen_s <= self.max_age_s:
            return Restraint(
                Code.STALE,
                f"the queue was read {now_s - seen_s} s ago; the limit is {self.max_age_s} s",
            )
        return self._at_its_rate(user, waiting, recent)

    def recent(self, now_s: int, store: Store) -> Counter[str]:
        """Releases of the last minute, by user.

        Counted in the store, so a restart begins no new minute. What a clock that jumped wrote is
        left out.
        """
        newest = store.newest_intents(self.releases_per_minute)
        return Counter(
            each.decision.user for each in newest if abs(now_s - each.created_s) < RATE_WINDOW_S
        )

    def _not_allowed(self, job: Job) -> Restraint | None:
        """A job that asks for several partitions may start in any of them: all must be allowed."""
        asked: tuple[tuple[str, Collection[str], frozenset[str]], ...] = (
            ("partition", job.partition.split(","), self.partitions),
            ("account", (job.account,), self.accounts),
            ("user", (job.user,), self.users),
        )
        for what, names, allowed in asked:
            if allowed and (others := [name for name in names if name not in allowed]):
                return Restraint(
                    Code.NOT_ALLOWED, f"{what} {others[0] or '(unknown)'} is not in acting.{what}s"
                )
        return None

    def _at_its_rate(
        self, user: str, waiting: Collection[str], recent: Counter[str]
    ) -> Restraint | None:
        """Who has had a release leaves one to each who waits and had none, but no more than half of
        them.
        """
        others = sum(not recent[other] for other in set(waiting) - {user}) if recent[user] else 0
        kept = min(others, self.releases_per_minute // 2)
        if recent.total() < self.releases_per_minute - kept:
            return None
        rest = f", and the {kept} that are left are for other users" if kept else ""
        return Restraint(Code.RATE, f"{recent.total()} releases in the last minute{rest}")


def acting_from(config: ActingConfig, default_mode: ActingMode, *disable_files: Path) -> Acting:
    """What the configuration permits. ``disable_files``: looked at beside the configured one."""
    return Acting(
        mode=ActingMode(config.mode) if config.mode else default_mode,
        partitions=frozenset(config.partitions),
        accounts=frozenset(config.accounts),
        users=frozenset(config.users),
        disable_files=(Path(config.disable_file or SITE_DISABLE_FILE), *disable_files),
        most_ahead=config.most_ahead,
        releases_per_minute=config.releases_per_minute,
        chains_per_user_per_hour=config.chains_per_user_per_hour,
        max_age_s=config.max_age_s,
    )

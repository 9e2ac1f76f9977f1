"""All that a model folder was and is: versions beside it, a link that leads to one of them, and
what was done.

`models/quantile` is a symbolic link to `quantile.versions/0002/model`. One rename lets it lead to
another version, so at any instant it leads to one whole model. A folder that stood there before the
first retraining becomes version 1.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import pwd
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mirage.errors import InputError, MirageError, StoreError
from mirage.models.folder import check_folder
from mirage.store.lock import exclusive, is_held
from slurm_sim.formats import parse_json

Json = dict[str, Any]

MODEL = "model"
"""The model's folder in a version's; beside it lie the cluster that it learnt on and how it was
judged.
"""
KEPT = 5
"""So many of the newest versions stay, and those that the current one can be taken back to."""
REPLACED, KEPT_OLD, ROLLED_BACK, FAILED = "replaced", "kept", "rolled back", "failed"
_WORK = ".work-"
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@dataclass(frozen=True)
class Versions:
    """Of the model at ``link`` (policy.model)."""

    link: Path

    @property
    def folder(self) -> Path:
        return self.link.with_name(f"{self.link.name}.versions")

    @property
    def current(self) -> str:
        """Where the link leads, as it says; empty: there is no link."""
        return str(self.link.readlink()) if self.link.is_symlink() else ""

    def history(self) -> list[Json]:
        """What was done, oldest first."""
        path = self.folder / "history.jsonl"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        return [parse_json(line) for line in lines if line.endswith("}")]

    @contextlib.contextmanager
    def locked(self) -> Iterator[Path]:
        """Keeps others away; gives an empty folder on the same file system, which is gone
        afterwards.

        Raises InputError: nothing can be written here, or it would not be its owner's. MirageError:
        another process is at it, or the disk failed.
        """
        self._refuse_root_in_anothers_folder()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            # Of the caller's own umask nothing is left: the service may be another user.
            self.folder.chmod(0o755)
        except OSError as error:
            raise InputError(
                f"{self.folder}: can't be written ({error.strerror}). Set policy.model to a folder"
                " below one that this user may write, as in /var/lib/mirage/models/quantile;"
                " nothing need be there yet."
            ) from error
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(exclusive(self.folder / "lock"))
            except StoreError as error:
                if not is_held(self.folder / "lock"):
                    raise
                raise MirageError(
                    f"{self.link}: another `mirage retrain` is at work on it; wait for it."
                ) from error
            for old in self.folder.glob(f"{_WORK}*"):  # of one that was killed
                shutil.rmtree(old, ignore_errors=True)
            try:
                yield Path(
                    stack.enter_context(tempfile.TemporaryDirectory(prefix=_WORK, dir=self.folder))
                )
            except OSError as error:
                raise MirageError(
                    f"{self.link}: {error}. The model at work is the one that was."
                ) from error

    def _refuse_root_in_anothers_folder(self) -> None:
        """The service's user could not change what root leaves there, and could lead root elsewhere
        by a link.
        """
        place = next(path for path in (self.folder, *self.folder.parents) if path.exists())
        if os.geteuid() == 0 and (owner := place.stat().st_uid):
            name = _user_name(owner)
            raise InputError(
                f"{place} belongs to {name}: run `runuser -u {name} -- mirage retrain`, as that"
                " user."
            )

    def install(self, fresh: Path, record: Json) -> Path:
        """Makes a folder that holds `model/` the newest version, and the one that the link leads
        to. Under the lock.

        The record is written first: what it says of a swap that a power failure prevented, the link
        denies.
        """
        before = self.current
        if not before and self.link.is_dir():
            before = self._leads_to(self._adopted())
        place = self._new_place()
        fresh.chmod(0o755)
        fresh.replace(place)
        self.note(REPLACED, record | {"from": before, "to": self._leads_to(place)})
        try:
            self._point(self._leads_to(place))
        except BaseException as error:
            self.note(FAILED, {"why": f"the link could not be changed: {error}"})
            shutil.rmtree(place, ignore_errors=True)
            raise
        self._prune()
        return place

    def roll_back(self) -> str:
        """Leads back to what the current version replaced; tells where to. Under the lock. Raises
        InputError.
        """
        now = self.current
        rows = [
            row
            for row in self.history()
            if row["action"] == REPLACED and row["to"] == now and row["from"]
        ]
        if not now or not rows:
            raise InputError(
                f"{self.link}: nothing is known of a model before this one; nothing was done."
            )
        target = str(rows[-1]["from"])
        check_folder(self.link.parent / target)
        self.note(ROLLED_BACK, {"from": now, "to": target})
        self._point(target)
        return target

    def note(self, action: str, record: Json) -> None:
        """One line more in the history."""
        row = {"at": int(time.time()), "action": action} | record
        with (self.folder / "history.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _leads_to(self, place: Path) -> str:
        """Relative, so that the models' folder may be moved."""
        return f"{self.folder.name}/{place.name}/{MODEL}"

    def _numbers(self) -> list[int]:
        return sorted(int(path.name) for path in self.folder.iterdir() if path.name.isdecimal())

    def _new_place(self) -> Path:
        return self.folder / f"{max(self._numbers(), default=0) + 1:04}"

    def _adopted(self) -> Path:
        """A copy, as a version, of the folder that stands where the link will be."""
        place = self._new_place()
        with tempfile.TemporaryDirectory(prefix=_WORK, dir=self.folder) as name:
            copy = Path(name) / place.name
            shutil.copytree(self.link, copy / MODEL)
            if (cluster := self.link.parent / "cluster.toml").is_file():
                shutil.copy(cluster, copy)
            copy.replace(place)
        return place

    def _point(self, target: str) -> None:
        """Makes the link, or changes it, in one step."""
        beside = self.folder / f"{_WORK}link"
        beside.unlink(missing_ok=True)
        beside.symlink_to(target)
        if self.link.is_dir() and not self.link.is_symlink():
            _exchange(beside, self.link)
            shutil.rmtree(beside)
        else:
            beside.replace(self.link)

    def _prune(self) -> None:
        pairs = {row["to"]: row["from"] for row in self.history() if row["action"] == REPLACED}
        needed = {self.current, pairs.get(self.current, "")}
        for number in self._numbers()[:-KEPT]:
            place = self.folder / f"{number:04}"
            if self._leads_to(place) not in needed:
                shutil.rmtree(place, ignore_errors=True)


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _exchange(one: Path, other: Path) -> None:
    """Swaps two names in one step by renameat2(2), since rename(2) puts no link in a folder's
    place.

    Raises MirageError.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if (
        libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE)
        != 0
    ):
        raise MirageError(
            f"{other}: can't be put aside in one step ({os.strerror(ctypes.get_errno())}). Move it"
            f" yourself, once: mv {other} {other}.first && ln -s {other.name}.first {other}"
        )

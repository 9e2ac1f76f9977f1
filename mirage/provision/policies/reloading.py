"""A trained policy whose model may be replaced while the service runs (`mirage retrain`)."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from mirage.config import PolicyConfig
from mirage.errors import InputError, MirageError
from mirage.models.recipe import RECIPE
from mirage.ports import Advice, Observation, Policy
from mirage.provision.policies.by_mode import decided, words_of
from mirage.provision.policies.registry import make_policy
from slurm_sim.files import read_bytes

log = logging.getLogger(__name__)


def _place(config: PolicyConfig) -> Path:
    """Where the model is now; `Path.resolve` raises RuntimeError for a loop of links."""
    return Path(os.path.realpath(config.model))


class Reloading:
    """Implements `mirage.ports.BatchPolicy`. Looks before each cycle's decisions whether the model
    is another one.

    A model that can't be read leaves the one in memory at work, and is reported once.
    """

    def __init__(self, config: PolicyConfig) -> None:
        """``config`` names a model. Raises InputError."""
        self._config = config
        folder = _place(config)
        self._version = version_of(folder)
        self._policy = self._read(folder)
        self._refused = self._version
        """What was last reported as unreadable."""

    @property
    def name(self) -> str:
        return self._policy.name

    @property
    def words(self) -> str:
        return words_of(self._policy)

    @property
    def model(self) -> Mapping[str, str]:
        """Folder and version, for the audit log."""
        return {"folder": self._config.model, "version": self._version}

    def decide(self, observation: Observation) -> Advice:
        return self.decide_all([observation])[0]

    def decide_all(self, observations: Sequence[Observation]) -> list[Advice]:
        self._refresh()
        return decided(self._policy, observations)

    def _refresh(self) -> None:
        folder = _place(self._config)
        try:
            version = version_of(folder)
        except InputError as error:
            self._tell_once("", error)
            return
        if version == self._version:
            return
        try:
            self._policy = self._read(folder)
        except MirageError as error:
            self._tell_once(version, error)
            return
        self._version = version
        log.info("model %s: version %s is at work now", self._config.model, version)

    def _tell_once(self, version: str, error: MirageError) -> None:
        if version != self._refused:
            log.warning(
                "the model in memory stays at work, since the one on disk can't be read: %s", error
            )
        self._refused = version

    def _read(self, folder: Path) -> Policy:
        """By where the link led when it was followed: so what is read is of one model, whatever
        changes meanwhile.
        """
        return make_policy(replace(self._config, model=str(folder)))


def version_of(folder: Path) -> str:
    """Of a model: its recipe has the checksums of all its weights, so that is hashed. Raises
    InputError.
    """
    try:
        recipe = read_bytes(folder / RECIPE)
    except OSError as error:
        raise InputError(f"policy.model {folder}: can't be read: {error.strerror}") from error
    return hashlib.sha256(recipe).hexdigest()[:12]

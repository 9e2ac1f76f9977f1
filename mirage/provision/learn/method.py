"""What a method that learns is made of. A new one is a class in a file of its own, and one line in
`methods.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from mirage.errors import InputError
from mirage.provision.learn.episode import Episode
from mirage.provision.learn.model import Model

if TYPE_CHECKING:
    from mirage.rl.fit import Report

EXTRA = "pip install 'mirage-slurm[train]'"
Options = TypeVar("Options")
Space = Mapping[str, Sequence[Any]]
"""Name of an option (as for `mirage train --set`) -> the values that a search tries."""


@dataclass(frozen=True, kw_only=True)
class TrainingData:
    """What a method learns from."""

    episodes: Sequence[Episode]
    held_out: Sequence[Episode] = ()
    """Episodes of held-out weeks of the training part, to stop early by; never those that a result
    is quoted on.
    """
    fresh: Sequence[Episode] | None = None
    """Further episodes of the training part, for a method with a head; None: `episodes`."""
    base: Model | None = None
    """A trained foundation that a method with a head continues from; None: it trains its own."""
    seed: int = 0
    progress: Report | None = None
    """Called after each round of a network's training."""


class Method(ABC, Generic[Options]):
    """A method that learns from episodes. Its libraries are imported inside `defaults`, `fit` and
    `load`, so that the service starts without those of other methods.
    """

    name: str
    """As in `mirage train --method`."""
    about: str
    """One line for the report of an evaluation."""
    space: ClassVar[Space] = {}
    """What `mirage train --tune` tries."""
    stops_early: bool = False
    """Whether it needs held-out episodes; if not, it learns from those too."""
    in_all: bool = True
    """Whether `mirage train --method all` trains it; False: only by its name."""
    foundation: str = ""
    """The method whose network it continues from; empty: it has no head that learns online."""

    @abstractmethod
    def defaults(self) -> Options:
        """A dataclass: `dataclasses.replace` changes it, `asdict` makes it part of the recipe."""

    @abstractmethod
    def fit(self, data: TrainingData, options: Options) -> Model:
        """Raises InputError for data that it can't learn from."""

    @abstractmethod
    def load(self, folder: Path) -> Model:
        """The weights as `Model.write` wrote them. Raises InputError."""

    def default_options(self) -> Options:
        """`defaults`. Raises InputError with what to install, if a package is missing."""
        with self._packages():
            return self.defaults()

    def train(self, data: TrainingData, options: Options | None = None) -> Model:
        """`fit`; None: with the default options. Raises InputError, also for a missing package."""
        with self._packages():
            return self.fit(data, self.defaults() if options is None else options)

    def read(self, folder: Path) -> Model:
        """`load` of a folder that `mirage.models.folder.check_folder` checked. Raises InputError,
        also for a missing package.
        """
        with self._packages():
            return self.load(folder)

    @contextmanager
    def _packages(self) -> Iterator[None]:
        try:
            yield
        except ModuleNotFoundError as error:
            if error.name is None or error.name.startswith("mirage"):
                raise
            raise InputError(
                f"Method {self.name} needs the package {error.name}; install it: {EXTRA}."
            ) from error

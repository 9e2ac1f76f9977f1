"""Live jobs as the paper's policy knows jobs: by a type of its training (section 4.1).

A live job is of a type of its own, with the speeds that were measured. Its owner names the type of
the training that it is like: `speed.like` of JOB.toml.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mirage.elastic.observation import PaperEncoder, pick
from mirage.elastic.world import ElasticWorld, Floats, Ints

UNKNOWN = -1


@dataclass(kw_only=True)
class LikeEncoder:
    """`PaperEncoder`'s state in the units of the training. See `Encoder`.

    A job whose owner named no type of the training looks like an empty place.
    """

    types: tuple[str, ...]
    """Of the training."""
    most_workers: int
    most_ps: int
    """Of the training, by which it divided numbers of tasks."""
    likes: Sequence[str] = ()
    """The type that each live job is like; set before each decision."""
    name: str = "like"
    _kinds: Ints = field(init=False)
    """[1, K]: positions in ``types``, or `UNKNOWN`."""

    def size(self, types: int) -> int:
        """See `Encoder`; always of the training's types."""
        del types
        return PaperEncoder().size(len(self.types))

    def reset(self, world: ElasticWorld) -> None:
        """See `Encoder`."""
        del world
        index = {name: nth for nth, name in enumerate(self.types)}
        self._kinds = np.array([[index.get(like, UNKNOWN) for like in self.likes]])

    def begin_slot(self, world: ElasticWorld) -> None:
        """Keeps nothing."""

    def encode(self, world: ElasticWorld, jobs: Ints) -> Floats:
        """See `Encoder`."""
        config = world.config
        numbers = PaperEncoder().encode(world, jobs)[..., len(config.types) :]
        numbers[..., 3] *= config.most_workers / self.most_workers
        numbers[..., 4] *= max(config.most_ps, 1) / max(self.most_ps, 1)
        kinds = pick(self._kinds, jobs)
        one_hot = kinds[..., None] == np.arange(len(self.types))
        state = np.concatenate([one_hot.astype(np.float32), numbers], axis=-1)
        known = (jobs >= 0) & (kinds != UNKNOWN)
        found: Floats = np.where(known[..., None], state, 0.0).astype(np.float32)
        return found

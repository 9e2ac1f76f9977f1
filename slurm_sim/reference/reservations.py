"""Advanced reservations: which nodes they keep from a job (`reservations.html`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slurm_sim.config import Reservation
from slurm_sim.errors import InvalidJob


class Calendar:
    """All reservations. Each takes whole nodes."""

    def __init__(self, reservations: Sequence[Reservation], bit: Callable[[str], int]) -> None:
        self._all = [(item, sum(bit(node) for node in item.nodes)) for item in reservations]
        self._by_name = {item.name: (item, nodes) for item, nodes in self._all}

    def check(self, name: str, user: str) -> None:
        """Raises InvalidJob if the user can't use it."""
        if user not in self._named(name)[0].users:
            raise InvalidJob(f"reservation {name!r} is not for user {user!r}; leave it out")

    def _named(self, name: str) -> tuple[Reservation, int]:
        try:
            return self._by_name[name]
        except KeyError:
            known = ", ".join(self._by_name)
            raise InvalidJob(
                f"reservation {name!r} does not exist; this cluster has: {known}"
            ) from None

    def end_s(self, name: str) -> int:
        return self._named(name)[0].end_s

    def nodes(self, name: str | None) -> int | None:
        """The nodes on which a job in this reservation may run; None: it is in none, so on any."""
        return None if name is None else self._named(name)[1]

    def is_open(self, name: str, start_s: int) -> bool:
        """Whether a job in this reservation may start at this time."""
        item = self._named(name)[0]
        return item.start_s <= start_s <= item.end_s

    def taken(self, name: str | None, start_s: int, end_s: int) -> int:
        """Nodes that other reservations hold at some time between these."""
        taken = 0
        for item, nodes in self._all:
            if item.name != name and item.start_s < end_s and item.end_s > start_s:
                taken |= nodes
        return taken

    def next_end_s(self, start_s: int, resolution_s: int) -> int:
        """When backfill looks again after a reservation was in the way: past the first end, rounded
        up.
        """
        first_s = min(item.end_s for item, _ in self._all if item.end_s >= start_s)
        return -(-first_s // resolution_s) * resolution_s + 1

"""Whether the accounts of a cluster's associations hang together."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence

from slurm_sim.config import ROOT, Association
from slurm_sim.errors import InvalidCluster


def check_accounts(associations: Sequence[Association], source: str = "") -> None:
    """Raises InvalidCluster: a parent that is no account, a user in an account that is not listed
    while others are, or accounts above each other. `source` begins the message; a place is
    ``associations[2].parent``.
    """
    parents = {item.account: item.parent for item in associations if item.user is None}
    for number, item in enumerate(associations):
        place = f"{source}associations[{number}]"
        if item.user is None and item.parent not in (*parents, ROOT):
            raise _unknown(f"{place}.parent", item.parent, parents)
        if item.user is not None and parents and item.account not in (*parents, ROOT):
            raise _unknown(f"{place}.account", item.account, parents)
    _check_no_circle(parents, source)


def _unknown(place: str, name: str, known: Collection[str]) -> InvalidCluster:
    near = difflib.get_close_matches(name, list(known), 1)
    hint = f"; did you mean {near[0]}?" if near else f": {', '.join(list(known)[:10])}, {ROOT}"
    return InvalidCluster(f"{place} is {name!r}: give an account of the associations{hint}")


def _check_no_circle(parents: dict[str, str], source: str) -> None:
    good = {ROOT}
    for first in parents:
        account, path = first, dict[str, None]()
        while account not in good:
            if account in path:
                names = " -> ".join([*path, account])
                raise InvalidCluster(
                    f"{source}associations: accounts above each other: {names}; put one under root"
                )
            path[account] = None
            account = parents[account]
        good |= set(path)

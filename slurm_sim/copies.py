"""What `copy` and `pickle` do with a simulation, also with one of `tests/reference`."""

from __future__ import annotations

from typing import NoReturn, Self

NO_TIME_IN_HOOKS = (
    "a function in on_start or on_end can't let time pass; let it change a fork(), or go on"
    " after it"
)


class Forkable:
    """Copies are forks; a simulation can't be pickled."""

    __slots__ = ()

    def fork(self) -> Self:
        raise NotImplementedError

    def __copy__(self) -> Self:
        return self.fork()

    def __deepcopy__(self, _memo: object) -> Self:
        return self.fork()

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError(
            "a simulation can't be pickled; make it again where it is needed, from its config and"
            " jobs, or within this process fork() it"
        )

"""A chain that its owner puts away, through the daemon's socket."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirage.daemon.dismissed import Dismissed
from mirage.daemon.socket import Source, answer, ask, serving
from mirage.domain import Chain, ChainState
from mirage.errors import InputError
from mirage.store.memory import MemoryStore

CHAIN = Chain(chain_id="abcdef12", user="ann", segments=2, state=ChainState.FAILED, updated_s=100)


def source(file: Path, chain: Chain = CHAIN) -> Source:
    store = MemoryStore()
    store.save_chain(chain)
    return Source(store=store, dismissed=Dismissed(file=file, now_s=lambda: 200))


def dismiss(site: Source, user: str | None) -> None:
    answer(site, user, {"ask": "dismiss", "chain": "abcdef12"})


@pytest.mark.parametrize("user", ["ann", None])
def test_it_outlives_the_service(tmp_path: Path, user: str | None) -> None:
    file = tmp_path / "dismissed.json"
    dismiss(source(file), user)
    again = Dismissed(file=file)
    assert again.has(CHAIN)
    assert not Dismissed().has(CHAIN)
    file.write_text('{"ann/abcdef12": "soon"}')
    assert not Dismissed(file=file).has(CHAIN), "a damaged file costs what was in it"


def test_the_daemon_answers_by_its_socket(tmp_path: Path) -> None:
    site, path = source(tmp_path / "dismissed.json"), tmp_path / "s"
    with serving(path, site):
        assert ask(path, {"ask": "dismiss", "chain": "abcdef12"}) == {"dismissed": "abcdef12"}
    assert site.dismissed.has(CHAIN)


def test_of_others_and_of_chains_that_go_on_nothing_is_put_away(tmp_path: Path) -> None:
    file = tmp_path / "dismissed.json"
    lives = source(file, Chain(chain_id="abcdef12", user="ann", segments=2))
    for site, user in ((source(file), "bob"), (lives, "ann")):
        with pytest.raises(InputError, match="no chain of yours that the daemon has seen end"):
            dismiss(site, user)
    assert not file.exists()

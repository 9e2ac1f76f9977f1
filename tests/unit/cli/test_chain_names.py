"""Chains by id, by its beginning, and by a job of theirs."""

from __future__ import annotations

import pytest

from mirage.cli import chain_names
from mirage.cli.chain_names import meant, resolve_chain
from mirage.errors import InputError


@pytest.fixture
def known(monkeypatch, tmp_path):
    """Two chains with folders, one that only the daemon knows, one that only the queue has."""
    monkeypatch.setenv("MIRAGE_HOME", str(tmp_path))
    for chain, jobs in (("k3m9pq2xha", (4711, 4712)), ("k3zzzzzzzz", (4713,))):
        folder = tmp_path / "chains" / chain
        folder.mkdir(parents=True)
        for segment, job in enumerate(jobs, start=1):
            (folder / f"queued.{segment}").write_text(f"{job}\n")
    monkeypatch.setattr(
        chain_names, "_of_daemon", lambda: {"k3m9pq2xha": [4711], "dddddddddd": [4720, 4721]}
    )
    monkeypatch.setattr(chain_names, "_of_agent", dict)
    monkeypatch.setattr(chain_names, "_in_queue", lambda: {"qqqqqqqqqq": [4730]})


@pytest.mark.parametrize(
    ("text", "chain"),
    [
        ("k3m9pq2xha", "k3m9pq2xha"),
        ("k3m", "k3m9pq2xha"),
        ("4712", "k3m9pq2xha"),
        ("d", "dddddddddd"),
        ("4721", "dddddddddd"),
        ("qq", "qqqqqqqqqq"),
        ("4730", "qqqqqqqqqq"),
    ],
)
def test_one_chain_is_meant(known, text, chain):
    assert resolve_chain(text) == chain


def test_several_chains_are_listed_and_none_is_chosen(known):
    with pytest.raises(
        InputError, match=r"k3 means 2 chains: k3m9pq2xha, k3zzzzzzzz\. Give more of the id\."
    ):
        resolve_chain("k3")


@pytest.mark.parametrize("text", ["zz", "47", "4719", "k3m9pq2xhaa"])
def test_no_chain_is_meant(known, text):
    with pytest.raises(InputError, match=f"{text}: no chain of yours has this id or begins so"):
        resolve_chain(text)


@pytest.mark.parametrize("text", ["", "../x", "K3", "a b", "-1", "x" * 33])
def test_what_can_be_no_name_is_said(known, text):
    with pytest.raises(InputError, match="is no chain: expected a chain id"):
        resolve_chain(text)


def test_a_whole_id_goes_before_one_that_begins_with_it_and_numbers_may_be_both():
    known = {"abcdef": [1], "abcdefgh": [2], "23abcdef": [3], "zzzzzz": [23]}
    assert meant("abcdef", known) == {"abcdef", "abcdefgh"}
    assert meant("23", known) == {"23abcdef", "zzzzzz"}


def test_a_whole_id_is_no_beginning(known, monkeypatch):
    monkeypatch.setattr(chain_names, "_of_daemon", lambda: {"k3m9pq2xha2": []})
    assert resolve_chain("k3m9pq2xha") == "k3m9pq2xha"
    assert resolve_chain("k3m9pq2xha2") == "k3m9pq2xha2"

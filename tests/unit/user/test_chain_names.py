"""Chains by id, by its beginning, by a job of theirs, and by their job name."""

from __future__ import annotations

import pytest

from mirage.errors import InputError
from mirage.user import chain_names
from mirage.user.chain_names import KnownChain, meant, resolve_chain


@pytest.fixture
def known(monkeypatch, tmp_path):
    """Two chains with folders, one that only the daemon knows, one that only the queue has."""
    monkeypatch.setenv("MIRAGE_HOME", str(tmp_path))
    for chain, jobs in (("k3m9pq2xha", (4711, 4712)), ("k3zzzzzzzz", (4713,))):
        folder = tmp_path / "chains" / chain
        folder.mkdir(parents=True)
        for segment, job in enumerate(jobs, start=1):
            (folder / f"queued.{segment}").write_text(f"{job}\n")
    for chain, name, ending in (
        ("aaaaaaaaaa", "lm", ""),
        ("bbbbbbbbbb", "lm", "done"),
        ("cccccccccc", "old", "done"),
        ("eeeeeeeeee", "old", "failed"),
    ):
        folder = tmp_path / "chains" / chain
        folder.mkdir()
        (folder / "chain").write_text(f"name={name}\nsubmitted=1796000000\n")
        if ending:
            (folder / ending).write_text("said so\n")
    monkeypatch.setattr(
        chain_names,
        "_of_daemon",
        lambda: {
            "k3m9pq2xha": KnownChain(jobs=[4711], name="k3m"),
            "dddddddddd": KnownChain(jobs=[4720, 4721], name="web server"),
        },
    )
    monkeypatch.setattr(chain_names, "_of_agent", dict)
    monkeypatch.setattr(chain_names, "_in_queue", lambda: {"qqqqqqqqqq": KnownChain(jobs=[4730])})


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
        ("web server", "dddddddddd"),
        ("lm", "aaaaaaaaaa"),
    ],
)
def test_one_chain_is_meant(known, text, chain):
    assert resolve_chain(text) == chain


def test_several_chains_are_listed_and_none_is_chosen(known):
    with pytest.raises(
        InputError,
        match=r"k3 means 2 chains: k3m9pq2xha \(.*\), k3zzzzzzzz \(.*\)\. Give the id of one\.",
    ):
        resolve_chain("k3")


def test_of_chains_of_one_name_that_are_all_over_none_is_chosen(known):
    with pytest.raises(
        InputError, match=r"old means 2 chains: cccccccccc \(old of .*, over\), eeeeeeeeee \(old of"
    ):
        resolve_chain("old")


def test_a_name_that_is_the_beginning_of_another_chains_id_means_two(known, monkeypatch):
    monkeypatch.setattr(
        chain_names, "_of_agent", lambda: {"zzzzzzzzzz": KnownChain(jobs=[], name="k3m")}
    )
    with pytest.raises(InputError, match="k3m means 2 chains"):
        resolve_chain("k3m")


@pytest.mark.parametrize("text", ["zz", "47", "4719", "k3m9pq2xhaa", "K3", "../x", "a b", ""])
def test_no_chain_is_meant(known, text):
    with pytest.raises(
        InputError, match=f"{text}'?: no chain of yours has this id or this job name"
    ):
        resolve_chain(text)


def test_a_whole_id_goes_before_one_that_begins_with_it_and_numbers_may_be_both():
    jobs = {"abcdef": [1], "abcdefgh": [2], "23abcdef": [3], "zzzzzz": [23]}
    known = {chain: KnownChain(jobs=ids) for chain, ids in jobs.items()}
    assert meant("abcdef", known) == {"abcdef", "abcdefgh"}
    assert meant("23", known) == {"23abcdef", "zzzzzz"}


def test_a_whole_id_is_no_beginning(known, monkeypatch):
    monkeypatch.setattr(chain_names, "_of_daemon", lambda: {"k3m9pq2xha2": KnownChain(jobs=[])})
    assert resolve_chain("k3m9pq2xha") == "k3m9pq2xha"
    assert resolve_chain("k3m9pq2xha2") == "k3m9pq2xha2"

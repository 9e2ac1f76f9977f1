"""The networks that come with Mirage: mixtures whose experts are used, heads that learnt something."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("torch")

from mirage.models.shipped import shipped
from mirage.provision.learn.methods import METHODS, read_model
from mirage.provision.learn.neural import Neural

FOLDER = shipped("ls6-a100")
MIXTURES = [path.name for path in sorted(FOLDER.glob("moe*"))]
HEADS = [name for name, method in METHODS.items() if method.foundation and (FOLDER / name).is_dir()]


def test_there_are_the_papers_methods() -> None:
    assert {"moe", "moe-dqn"} == set(MIXTURES)
    assert {"transformer-dqn", "transformer-pg"} <= set(HEADS)


@pytest.mark.parametrize("name", MIXTURES)
def test_more_than_three_experts_are_used_and_states_differ_in_them(name: str) -> None:
    """On the validation part, as the card tells; a gate that collapsed has 1.0."""
    words = (FOLDER / name / "card.md").read_text()
    found = re.search(
        r"Of its 10 experts ([\d.]+) share .* differ in their experts as ([\d.]+)", words
    )
    assert found, words[:400]
    assert float(found[1]) > 3
    assert float(found[2]) > 1


@pytest.mark.parametrize("name", HEADS)
def test_a_head_is_what_online_learning_made(name: str) -> None:
    head, base = (
        read_model(FOLDER / each, each).model for each in (name, METHODS[name].foundation)
    )
    assert isinstance(head, Neural)
    assert head.distance(base) > 0.01
    assert "from the foundation's" in (FOLDER / name / "card.md").read_text()

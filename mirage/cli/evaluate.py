"""`mirage evaluate pairs|chains|waits`: methods judged on a job history (docs/evaluation.md)."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from mirage.cli import evaluate_chains, evaluate_pairs, evaluate_waits
from mirage.cli.groups import Verb, add_verbs

VERBS: tuple[Verb, ...] = (
    (
        "pairs",
        evaluate_pairs.add_arguments,
        evaluate_pairs.run,
        "all methods on the same pairs of jobs: report.html, results.json, episodes.csv",
    ),
    (
        "chains",
        evaluate_chains.add_arguments,
        evaluate_chains.run,
        "policies on whole chains: report.html, results.json, chains.csv",
    ),
    (
        "waits",
        evaluate_waits.add_arguments,
        evaluate_waits.run,
        "forecasts of starts (mirage when): report.html, results.json",
    ),
)
KINDS = tuple(name for name, *_ in VERBS)


def in_full(words: Sequence[str]) -> list[str]:
    """The words with what is judged first: none means pairs, `--chains` means chains."""
    if words and words[0] in (*KINDS, "-h", "--help"):
        return list(words)
    kind = next((kind for kind in KINDS if f"--{kind}" in words), KINDS[0])
    return [kind, *(word for word in words if word != f"--{kind}")]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_verbs(parser, VERBS)
    parser.epilog = "Without a word it judges pairs."


def run(args: argparse.Namespace) -> int:
    return int(args.act(args))

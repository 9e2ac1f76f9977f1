"""Types of command-line arguments, also for `mirage`'s own verbs: nothing heavy is imported."""

from __future__ import annotations

import argparse
import re

from slurm_sim.ranges import MOST_NODES

MOST_THREADS = 1024
"""Few machines have more; each has a simulator of its own, and memory would run out."""


def whole_number(text: str) -> int:
    """For argparse: a number of seconds, say; none of Slurm's has more digits."""
    if not re.fullmatch(r"[+-]?\d{1,15}", text, re.ASCII):
        raise argparse.ArgumentTypeError(
            f"expected a whole number of at most 15 digits, got {text!r}"
        )
    return int(text)


def positive(text: str) -> int:
    """For argparse: a number from 1."""
    if (number := whole_number(text)) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1, got {text!r}")
    return number


def node_count(text: str) -> int:
    """For argparse: the nodes of a cluster."""
    if (number := positive(text)) > MOST_NODES:
        raise argparse.ArgumentTypeError(f"expected at most {MOST_NODES:,} nodes, got {text}")
    return number


def thread_count(text: str) -> int:
    """For argparse: threads that run at once."""
    if (number := positive(text)) > MOST_THREADS:
        raise argparse.ArgumentTypeError(f"expected at most {MOST_THREADS:,} threads, got {text}")
    return number


def amount(text: str) -> float:
    """For argparse: a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(
            f"expected a number above 0, below 1,000,000, got {text!r}"
        )
    return value

"""Types of command-line arguments, also for `mirage`'s own verbs: nothing heavy is imported."""

from __future__ import annotations

import argparse


def positive(text: str) -> int:
    """For argparse: a number from 1."""
    if not (text.isdecimal() and text.isascii()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1, got {text!r}")
    return int(text)


def amount(text: str) -> float:
    """For argparse: a number above 0."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value

"""Earlier runs of a link, as a column holds them: a JSON list of each run's fields, in their order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import astuple

from mirage.domain import JobState, Run


def write_runs(runs: Sequence[Run]) -> str:
    """Empty where there is none, as for nearly all links."""
    return json.dumps([astuple(run) for run in runs]) if runs else ""


def read_runs(text: str) -> tuple[Run, ...]:
    """ValueError: a state of a newer release."""
    return tuple(_run(*values) for values in json.loads(text)) if text else ()


def _run(
    submit_s: int, eligible_s: int | None, start_s: int, end_s: int, state: str, exit_code: int
) -> Run:
    return Run(
        submit_s=submit_s,
        eligible_s=eligible_s,
        start_s=start_s,
        end_s=end_s,
        state=JobState(state),
        exit_code=exit_code,
    )

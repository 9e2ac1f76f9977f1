"""Earlier runs of a link, as a column holds them: a JSON list of each run's fields, in their order."""

from __future__ import annotations

import json
from collections.abc import Sequence

from mirage.domain import JobState, Run


def write_runs(runs: Sequence[Run]) -> str:
    """Empty where there is none, as for nearly all links."""
    return json.dumps(runs) if runs else ""


def read_runs(text: str) -> tuple[Run, ...]:
    """ValueError: a state of a newer release."""
    runs = (Run(*fields) for fields in (json.loads(text) if text else ()))
    return tuple(run._replace(state=JobState(run.state)) for run in runs)

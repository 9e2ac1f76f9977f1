"""What an assessment is asked for, and the facts that its steps share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from mirage.assess.history import HistorySource
from mirage.figures.words import several
from slurm_sim.seconds import DAY_S, MINUTE_S

METHOD = "quantile"
"""Of the model that is trained."""
FEWEST_DAYS = 21
"""With a shorter history nothing is simulated: policies know the waits of a week before."""


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is simulated."""

    begins: int
    lasts_s: int
    at_most_s: int
    """Of the whole assessment: later no further size of chains is tried. One begin of the main size
    always is.
    """
    episodes: int
    judged: int
    with_oracle: bool
    """Whether the best that was possible is simulated too, which takes most of the time."""
    with_model: bool
    """Whether chains by the model that is trained are simulated too."""
    most_sizes: int
    routed_days: int
    """At the end of the history, in which routing is judged."""
    recent_days: int = 180
    """Of the history, its end: what training and simulation read. Statistics are of all of it."""
    recent_jobs: int = 200_000
    """That these days have at most; fewer days are read where there are more."""


QUICK = Effort(
    begins=8,
    lasts_s=6 * DAY_S,
    at_most_s=3 * MINUTE_S,
    episodes=40,
    judged=20,
    with_oracle=False,
    with_model=False,
    most_sizes=2,
    routed_days=14,
)
"""Three minutes on two cores for 50,000 jobs."""
THOROUGH = Effort(
    begins=12,
    lasts_s=14 * DAY_S,
    at_most_s=30 * MINUTE_S,
    episodes=300,
    judged=100,
    with_oracle=True,
    with_model=True,
    most_sizes=3,
    routed_days=28,
    recent_days=730,
    recent_jobs=1_000_000,
)
"""Half an hour."""


@dataclass(frozen=True, kw_only=True)
class AssessmentPlan:
    source: HistorySource
    out: Path
    effort: Effort = THOROUGH
    partition: str | None = None
    """Of the simulated chains; None: the one with most node-hours."""
    seed: int = 1
    workers: int = 1


@dataclass(frozen=True, kw_only=True)
class SiteFacts:
    """What the history holds. Times are Unix seconds."""

    jobs: int
    users: int
    first_s: int
    last_s: int
    nodes: int
    busy: float
    """Mean share of the nodes that ran a job."""
    partition: str
    scheduler_is_known: bool
    notes: tuple[str, ...]
    recent_s: int
    """Training and simulation read what was submitted from then on."""
    recent_jobs: int

    @property
    def is_cut(self) -> bool:
        """Whether training and simulation read only a part of the history."""
        return self.recent_s > self.first_s

    @property
    def why_unfit(self) -> str:
        """Why nothing can be trained or simulated on this history; empty: it can."""
        if self.days < FEWEST_DAYS:
            days = min(round(self.days), FEWEST_DAYS - 1)
            length = several(days, "day") if self.days >= 1 else "less than a day"
            return (
                f"the history has {length}; chains of 48-hour jobs can be judged with"
                f" {FEWEST_DAYS} and more"
            )
        if self.users == 1:
            return "all jobs are of one user; sacct shows others' jobs only to operators"
        return ""

    @property
    def days(self) -> float:
        return (self.last_s - self.first_s) / DAY_S

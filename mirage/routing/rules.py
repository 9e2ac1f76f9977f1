"""What needs no learning, for the paper's episodes: first-fit, random, naive, and the best that
there is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirage.routing.agent import Agent
from mirage.routing.episode import EpisodeOutcome, PartitionEpisode, Question, Rule
from mirage.routing.flavors import PartitionKind
from mirage.routing.state import best, features
from mirage.routing.world import Arrival


def first_fit(question: Question) -> int:
    """The first server with room: the paper's default (Figure 3a)."""
    return question.possible[0]


def random_fit(random: np.random.Generator) -> Rule:
    """A server with room, drawn evenly."""
    return lambda question: int(random.choice(question.possible))


def naive(random: np.random.Generator) -> Rule:
    """A server drawn evenly; the job waits if it has no room there, and draws again when a job
    ends. For unmasked episodes.

    Section 6.1's naive rule "submits a job to a randomly selected GPU server if the server has
    enough resources". Read so, it gives the paper's 0.62 and drops below 0.3 as in its Figure 5b;
    `random_fit` does neither.
    """
    return lambda question: int(random.choice(question.state.kind.actions.of(question.flavor)[:-1]))


def best_possible(kind: PartitionKind, jobs: Sequence[Arrival]) -> EpisodeOutcome:
    """The episode with the shortest run, of all ways to place its jobs; of equal ones the best
    used.
    """
    return min(_all(kind, jobs), key=lambda outcome: (outcome.run_s, -outcome.utilization))


def _all(kind: PartitionKind, jobs: Sequence[Arrival]) -> list[EpisodeOutcome]:
    outcomes = []
    open_: list[tuple[int, ...]] = [()]
    while open_:
        choices = open_.pop()
        episode = PartitionEpisode(kind, jobs)
        for choice in choices:
            assert episode.question is not None
            episode.answer(choice)
        if episode.question is None:
            outcomes.append(episode.finish())
        else:
            open_.extend((*choices, action) for action in episode.question.possible)
    return outcomes


def agent_rule(agent: Agent) -> Rule:
    """The action of the agent's highest value among those that are possible."""

    def answer(question: Question) -> int:
        return best(agent.values(features(question.state)), question.possible)

    return answer

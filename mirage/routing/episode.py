"""The paper's episodes (sections 4.2, 5.2, 6.1): four jobs that each fit on a server, then one that
takes all.

A decision is asked for when a job arrives, and again for waiting jobs, largest first, whenever
something ends and they fit. The full job is the last to start, as in Figure 3: job 5 is "submitted
to the system" when the others are over. Its start ends the episode; equation 3's time runs until
then, and so every episode's work is done in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from mirage.routing.flavors import PartitionKind
from mirage.routing.state import PartitionState
from mirage.routing.world import Arrival, PartitionWorld
from slurm_sim.seconds import HOUR_S

SINGLES = 4
"""Jobs of an episode before the full one."""
Rule = Callable[["Question"], int]
"""Answers with an action's number."""


@dataclass(frozen=True)
class Question:
    """A job that has to be placed."""

    state: PartitionState
    flavor: int
    possible: tuple[int, ...]
    """The actions to choose from: those that can be carried out now, or, unmasked, all of the job's
    flavour.
    """
    has_room: bool
    """Whether it can run somewhere now."""


@dataclass(frozen=True)
class EpisodeOutcome:
    """What came of an episode."""

    utilization: float
    """Equation 4 when the full job starts: the paper's terminal state."""
    run_s: int
    """Equation 3 then: from the first start to the full job's."""
    reward: float


def draw_episode(
    kind: PartitionKind, random: np.random.Generator, gap_s: int = HOUR_S
) -> list[Arrival]:
    """Four jobs of flavours drawn evenly from those of one server, then the full one; ``gap_s``
    between submissions.
    """
    singles = [index for index, flavor in enumerate(kind.flavors) if flavor.servers == 1]
    full = len(kind.flavors) - 1
    flavors = [*random.choice(singles, SINGLES).tolist(), full]
    return [Arrival(number * gap_s, flavor) for number, flavor in enumerate(flavors)]


class PartitionEpisode:
    """An episode, asked step by step: `question` is open until `answer`; None: it is over."""

    def __init__(
        self, kind: PartitionKind, jobs: Sequence[Arrival], *, masked: bool = True
    ) -> None:
        """``masked``: waiting and running are not both possible; otherwise a wrong answer costs its
        reward.
        """
        self.world = PartitionWorld(kind)
        self.masked = masked
        self.total_reward = 0.0
        self._full = max(job.flavor for job in jobs)
        self._coming = list(jobs)
        self._open: list[Arrival] = []
        """Waiting jobs that this moment's decisions are still open for."""
        self._job: Arrival | None = None
        self._is_new = False
        self.question: Question | None = None
        self._next()

    @property
    def is_over(self) -> bool:
        return self.question is None

    def answer(self, action: int) -> float:
        """Carries out an action of the open question's flavour; the reward is that of section 5.2."""
        question, job = self.question, self._job
        assert question is not None
        assert job is not None
        place = self.world.kind.actions.place(question.flavor, action)
        reward = self._carry_out(job, question, place)
        self.total_reward += reward
        self._next()
        return reward

    def _carry_out(self, job: Arrival, question: Question, place: int | None) -> float:
        if place is not None and place in self.world.state.places(job.flavor):
            self._start(job, place)
            return self.world.utilization()
        if self._is_new:
            self.world.enqueue(job)
        return 0.0 if place is None and not question.has_room else -1.0

    def _start(self, job: Arrival, place: int) -> None:
        if not self._is_new:
            self.world.dequeue(job)
        self.world.start(job.flavor, place)

    def _next(self) -> None:
        """Goes on to the next decision, or to the end."""
        self.question = None
        while self.question is None and not self._full_has_started():
            if not self._ask_waiting() and not self._ask_arriving():
                self._pass_time()

    def _full_has_started(self) -> bool:
        return bool(self.world.runs) and self.world.runs[-1].flavor == self._full

    def _ask_waiting(self) -> bool:
        """Asks for the next waiting job that fits, of those not asked for yet at this moment; for
        the full one once no other waits.
        """
        while self._open:
            job = self._open.pop(0)
            is_early = job.flavor == self._full and len(self.world.queue) > 1
            if not is_early and self.world.state.places(job.flavor):
                self._ask(job, is_new=False)
                return True
        return False

    def _ask_arriving(self) -> bool:
        """Asks for the next job to be submitted, if nothing ends before."""
        end_s = self.world.next_end_s
        if not self._coming or (end_s is not None and self._coming[0].submit_s >= end_s):
            return False
        self.world.advance(max(self.world.now_s, self._coming[0].submit_s))
        self._ask(self._coming.pop(0), is_new=True)
        return True

    def _pass_time(self) -> None:
        end_s = self.world.next_end_s
        if end_s is None:
            self._force()
            return
        self.world.advance(end_s)
        self._open = list(self.world.queue)

    def _ask(self, job: Arrival, *, is_new: bool) -> None:
        self._job, self._is_new = job, is_new
        actions = self.world.kind.actions
        places = self.world.state.places(job.flavor)
        can = tuple(actions.run(job.flavor, place) for place in places) or (
            actions.queue(job.flavor),
        )
        possible = can if self.masked else actions.of(job.flavor)
        self.question = Question(self.world.state, job.flavor, possible, bool(places))

    def _force(self) -> None:
        """Nothing runs, nothing will come, and every waiting job was refused: the largest one runs,
        the full one last.
        """
        queue = self.world.queue
        job = next((each for each in queue if each.flavor != self._full), queue[0])
        self.world.dequeue(job)
        self.world.start(job.flavor, 0)

    def finish(self) -> EpisodeOutcome:
        """What came of it, once it is over."""
        world = self.world
        run_s = world.now_s - min(run.start_s for run in world.runs)
        return EpisodeOutcome(world.utilization(), run_s, self.total_reward)


def play(
    kind: PartitionKind, jobs: Sequence[Arrival], rule: Rule, *, masked: bool = True
) -> EpisodeOutcome:
    """An episode in which a rule answers."""
    episode = PartitionEpisode(kind, jobs, masked=masked)
    while episode.question is not None:
        episode.answer(rule(episode.question))
    return episode.finish()

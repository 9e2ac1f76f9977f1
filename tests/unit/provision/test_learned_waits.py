"""A model's law of the wait in the policy of services, and what happens where it can't be asked."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from mirage.domain import Action, WaitSample
from mirage.provision.learn.law import Law
from mirage.provision.policies.forecasts import WaitsOfLikeJobs
from mirage.provision.policies.learned import LearnedPolicy
from mirage.provision.policies.learned_waits import LearnedWaits, wait_law_of
from mirage.provision.policies.uptime import Uptime
from mirage.state.likeness import Waits
from tests.unit.provision.test_learned_policy import (
    ABOUT,
    HOUR,
    Says,
    Threshold,
    history,
    observe,
)

LIKE_JOBS = WaitsOfLikeJobs(last=400, at_least=1)


@dataclass
class Knows(Threshold):
    """All waits are as long: an hour for each job queued."""

    name: str = "quantile"
    given: list = field(default_factory=list)

    def law(self, states):
        self.given.append(states)
        if self.fails:
            raise ZeroDivisionError("0/0")
        hours = states.matrices[:, -1, 0].astype(float)
        waits_s = np.stack([0 * hours, hours - 1 / 60, hours + 1 / 60], axis=1) * HOUR
        return Law(waits_s, np.tile([1.0, 1.0, 0.0], (len(states), 1)))


def waits_of(model):
    found = LearnedWaits.of(LearnedPolicy(model, ABOUT, Says()), LIKE_JOBS)
    assert found is not None
    return found


def service(left_s, queued=2, **more):
    """Like jobs waited for 9 hours."""
    sample = WaitSample(
        job_id=1, partition="gpu", nodes=1, time_limit_s=48 * HOUR, start_s=0, wait_s=9 * HOUR
    )
    observation = observe(left_s, history=history(queued=queued), **more)
    return replace(observation, waits=Waits([sample] * 9), uptime=0.99, handover_s=600)


def test_the_models_law_decides_about_services():
    policy = Uptime(waits_of(Knows()))
    early, due = policy.decide_all([service(3 * HOUR), service(2 * HOUR + 1000)])
    assert (early.action, due.action) == (Action.WAIT, Action.RELEASE)
    assert due.reason.startswith("quantile expects a wait of 2 h to 2 h. A release ")
    assert due.wait_p50_s == 2 * HOUR
    (states,) = {id(each): each for each in policy.waits.model.given[:1]}.values()
    assert len(states) == 2, "all pairs at once"
    assert policy.words == "uptime by quantile"


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"history": history(steps=100)}, "[incomplete: 69% of the last 24 h are known] "),
        ({"history": history("cpu")}, "[other-cluster: "),
        ({"history": history(queued=50)}, "[out-of-range: queued_jobs 50 > 10 changes the answer]"),
    ],
    ids=["unknown", "elsewhere", "beyond training"],
)
def test_where_the_model_can_not_be_trusted_like_jobs_tell_the_law(given, code):
    asked = replace(service(20 * HOUR), **given)
    (forecast,) = waits_of(Knows()).forecasts([asked])
    assert forecast.words.startswith(code)
    assert "9 like jobs waited" in forecast.words
    assert forecast.law.quantile(0.5) == 9 * HOUR


def test_a_model_that_fails_and_a_predecessor_that_waits_leave_it_to_like_jobs():
    (failed,) = waits_of(Knows(fails=True)).forecasts([service(20 * HOUR)])
    assert failed.words.startswith("[model-failed: ZeroDivisionError('0/0')] 9 ")
    queueing = service(20 * HOUR)
    pending = replace(
        queueing.predecessor, state=type(queueing.predecessor.state).PENDING, start_s=None
    )
    (plain,) = waits_of(Knows()).forecasts([replace(queueing, predecessor=pending)])
    assert plain.words.startswith("9 ")


def test_a_model_that_only_acts_has_no_law():
    assert LearnedWaits.of(LearnedPolicy(Threshold(), ABOUT, Says()), LIKE_JOBS) is None


def test_a_law_in_pieces_keeps_its_mean():
    law = Law(np.array([[0.0, 2, 4, 10]]), np.array([[1.0, 0.5, 0.5, 0.0]]))
    found = wait_law_of(law, 0)
    assert found.waits_s.tolist() == [1, 7]
    assert found.shares.tolist() == [0.5, 0.5]
    assert found.waits_s @ found.shares == law.interruption_s(np.zeros(1))[0]

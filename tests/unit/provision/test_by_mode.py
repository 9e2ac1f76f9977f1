"""Who decides about which chain."""

from __future__ import annotations

from dataclasses import replace

from mirage.config import PolicyConfig
from mirage.domain import UPTIME, Mode, Penalties
from mirage.provision.policies.by_mode import ByMode, words_of
from mirage.provision.policies.heuristics import Timer
from mirage.provision.policies.registry import make_policy
from tests.unit.provision.test_policies import HOUR, observe, sample

PAIR = observe(HOUR, [sample(HOUR)] * 40)
TRAIN = replace(PAIR, mode=Mode.TRAIN)
SERVICE = replace(PAIR, mode=Mode.SERVICE, uptime=UPTIME)


def test_the_mode_and_the_owners_penalties_choose_the_policy():
    policy = make_policy(PolicyConfig())
    assert isinstance(policy, ByMode)
    own = Penalties(4, 1)
    priced = [replace(each, penalties=own, uptime=None) for each in (TRAIN, SERVICE)]
    answers = policy.decide_all([SERVICE, priced[0], TRAIN, priced[1]])
    assert [advice.policy for advice in answers] == ["uptime", "", "goodput", ""]
    assert policy.name == "quantile"
    assert words_of(policy) == (
        "goodput (training chains), uptime (services), quantile (chains with penalties)"
    )


def test_training_chains_may_be_decided_as_pairs():
    policy = make_policy(PolicyConfig(train="pair"))
    assert [advice.policy for advice in policy.decide_all([TRAIN, SERVICE])] == ["", "uptime"]
    assert words_of(policy) == "uptime (services), quantile (other chains)"


def test_fixed_rules_decide_about_all_chains():
    assert isinstance(make_policy(PolicyConfig(name="timer")), Timer)

"""Policy gradient: the gradient is equation 6, and it reaches the toy queue's best policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch

from mirage.errors import InputError
from mirage.provision.learn.model import States
from mirage.provision.learn.pg import Credit, PgLearner, PgOptions, advantages, train_pg
from mirage.provision.learn.points import Points, prepare
from mirage.provision.learn.pretrain import new_model, train_supervised
from mirage.provision.learn.scaling import Scaling
from mirage.provision.learn.training import Draw
from mirage.rl.fit import Progress
from tests.learners import FRESH, PRETRAIN, SHORT, SMALL, TRAIN, VALIDATION, regret
from tests.toy import Toy

CPU = torch.device("cpu")
OPTIONS = PgOptions(
    pretrain=replace(PRETRAIN, rounds=3), rate=1e-2, rounds=60, episodes=16, scored=10
)
SAMPLED = replace(OPTIONS, gradient="sampled", rounds=40, episodes=48, every=4)
BRIEF = replace(OPTIONS, pretrain=SHORT, rounds=2, episodes=3, scored=1)
EPISODES = [Toy(limit_h=hours).episode(hours) for hours in (1, 3, 2)]
POINTS = Points(prepare(EPISODES, Scaling.fit(episode.rows for episode in EPISODES)), CPU)


def learner(options: PgOptions = OPTIONS) -> PgLearner:
    begun = new_model(TRAIN, options.pretrain, 0)
    generator = np.random.default_rng(0)
    return PgLearner(begun.network, Draw(TRAIN, begun.scaling, generator), options, generator, CPU)


def test_it_reaches_the_best_policy() -> None:
    model = train_pg(TRAIN, VALIDATION, OPTIONS, fresh=FRESH)
    assert model.name == "transformer-pg"
    assert regret(model, 0.5) < 0.1
    assert regret(replace(model, serving=replace(model.serving, sampled=True)), 0.5) < 0.15


@pytest.mark.long
def test_it_gets_there_without_pretraining_too() -> None:
    assert (
        regret(train_pg(TRAIN, VALIDATION, replace(OPTIONS, pretrained=False), fresh=FRESH), 0.5)
        < 0.1
    )


def test_the_head_begins_as_a_soft_copy_of_the_v_head() -> None:
    options = replace(OPTIONS, pretrain=replace(PRETRAIN, rounds=6), warm=20, temperature_h=0.5)
    one = learner(options)
    teacher = train_supervised(TRAIN, VALIDATION, options.pretrain).network
    one.warm_up(teacher)
    points = Points(one.draw(10), CPU)
    shares = np.full((10, 1), 0.5)
    asked = points.states(points.decisions), points.asked(shares, points.decisions)
    with torch.no_grad():
        gap_h = teacher.values(*asked).q[..., 0] - teacher.values(*asked).q[..., 1]
        wanted = torch.sigmoid(gap_h * teacher.scale_h / 0.5)
        found = one.network.log_chances(*asked)[..., 0].exp()
    assert (wanted - found).abs().mean() < 0.05
    assert np.corrcoef(wanted[:, 0], found[:, 0])[0, 1] > 0.8


def test_pretraining_off_frozen_foundation_and_experts_run() -> None:
    moe = replace(SHORT, shape=replace(SMALL, experts=2, gate="dense"), expert_rounds=1)
    for change in ({"pretrained": False}, {"tune": False}, {"pretrain": moe}, {"sampled": True}):
        told: list[Progress] = []
        train_pg(TRAIN, VALIDATION, replace(BRIEF, **change), fresh=FRESH, progress=told.append)  # type: ignore[arg-type]
        online = [item for item in told if item.stage == "pg"]
        assert len(online) == 2
        assert all(np.isfinite([item.loss, item.score]).all() for item in online)


def test_a_frozen_foundation_stays_as_it_is() -> None:
    one = learner(replace(BRIEF, tune=False))
    before = {name: item.clone() for name, item in one.network.state_dict().items()}
    one.round(0)
    changed = {
        name
        for name, item in one.network.state_dict().items()
        if not torch.equal(item, before[name])
    }
    assert changed
    assert all(name.startswith("choice.") or ".policy." in name for name in changed)


def test_the_same_seed_gives_the_same_model() -> None:
    one, same = (train_pg(TRAIN, VALIDATION, BRIEF, fresh=FRESH, seed=4) for _ in range(2))
    for name, item in one.network.state_dict().items():
        assert torch.equal(item, same.network.state_dict()[name])


def test_the_chances_of_all_ends_of_an_episode_sum_to_one() -> None:
    chances = np.random.default_rng(1).random((len(POINTS.never), 2))
    chances[POINTS.never] = 1
    ends = POINTS.ends(chances)
    assert np.allclose(np.add.reduceat(ends, POINTS.first), 1)
    first = POINTS.first[1]
    assert np.allclose(ends[first + 1], (1 - chances[first]) * chances[first + 1])


def test_the_exact_credit_is_the_gradient_of_the_expected_reward() -> None:
    random = np.random.default_rng(2)
    shape = (len(POINTS.never), 2)
    logits = torch.tensor(random.normal(size=shape), requires_grad=True)
    costs_h = random.random(shape)
    parts = np.split(np.arange(len(POINTS.never)), POINTS.first[1:])
    expected = torch.zeros((), dtype=torch.float64)
    for part in parts:  # term by term: reached, and released there or never
        reached = torch.ones(2, dtype=torch.float64)
        for slot in part[:-1]:
            chance = torch.sigmoid(logits[slot])
            expected = expected - (reached * chance * torch.tensor(costs_h[slot])).sum()
            reached = reached * (1 - chance)
        expected = expected - (reached * torch.tensor(costs_h[part[-1]])).sum()
    wanted = torch.autograd.grad(expected, logits)[0]

    chances = torch.sigmoid(logits).detach().numpy().copy()
    chances[POINTS.never] = 1
    credit = Credit.expected(POINTS, chances, -costs_h)
    logs = torch.stack([torch.sigmoid(logits).log(), torch.sigmoid(-logits).log()], dim=-1)
    weights = torch.tensor(np.where(POINTS.never[:, None, None], 0, credit.actions))
    found = torch.autograd.grad((weights * logs).sum(), logits)[0]
    assert torch.allclose(found / found.norm(), wanted / wanted.norm(), atol=1e-9)


def test_equation_6_by_rollouts_is_an_option() -> None:
    model = train_pg(TRAIN, VALIDATION, SAMPLED, fresh=FRESH)
    assert regret(model, 0.5) < 0.1


def test_credit_is_equation_6_rollout_by_rollout() -> None:
    generator = np.random.default_rng(0)
    ends = generator.integers(
        POINTS.first[None, :, None], POINTS.last_decision[None, :, None] + 2, (5, 3, 2)
    )
    worth = generator.normal(size=ends.shape)
    credit = Credit.of(POINTS, ends, worth)
    expected = np.zeros_like(credit.actions)
    visits = np.zeros_like(credit.visits)
    for (_, episode, share), end in np.ndenumerate(ends):
        value = worth[_, episode, share] / ends.size
        for slot in range(POINTS.first[episode], end):
            expected[slot, share, 1] += value
        expected[end, share, 0] += value
        visits[POINTS.first[episode] : end + 1, share] += 1 / ends.size
    assert np.allclose(credit.actions, expected)
    assert np.allclose(credit.visits, visits)


def test_the_gradient_points_where_the_expected_reward_grows() -> None:
    """Many rollouts' mean gradient is that of the exact expectation, which a short episode allows
    to compute.
    """
    points = Points(POINTS_EPISODES[:1], CPU)
    costs_h = points.costs_h(np.array([[0.5]]))[:, 0]
    logits = torch.linspace(-2, -1, len(costs_h) - 1, dtype=torch.float64, requires_grad=True)
    chance = torch.sigmoid(logits)
    reach = torch.cat([torch.ones(1, dtype=torch.float64), torch.cumprod(1 - chance, 0)])
    exact = -(reach * torch.cat([chance, torch.ones(1)]) * torch.tensor(costs_h)).sum()
    wanted = torch.autograd.grad(exact, logits)[0]

    generator = np.random.default_rng(0)
    drawn = generator.random((40_000, len(costs_h))) < np.append(chance.detach().numpy(), 0)
    ends = np.where(drawn.any(axis=1), drawn.argmax(axis=1), len(costs_h) - 1)[:, None, None]
    rewards = -costs_h[ends]
    others = (rewards.sum(axis=0) - rewards) / (len(rewards) - 1)
    credit = Credit.of(points, ends, rewards - others)
    logs = torch.stack([torch.sigmoid(logits).log(), torch.sigmoid(-logits).log()], dim=-1)
    estimate = torch.autograd.grad((torch.tensor(credit.actions[:-1, 0]) * logs).sum(), logits)[0]
    assert torch.allclose(estimate, wanted, atol=0.03 * float(wanted.abs().max()))


POINTS_EPISODES = prepare(EPISODES, Scaling.fit(episode.rows for episode in EPISODES))


def test_the_baseline_is_that_of_the_episodes_other_rollouts() -> None:
    rewards = np.array([[1.0, 10.0], [2.0, 10.0], [6.0, 10.0]])[..., None]
    found = advantages(rewards)[..., 0]
    assert np.allclose(found[:, 1], 0)
    assert np.allclose(found[:, 0] / found[2, 0], np.array([1 - 4, 2 - 3.5, 6 - 1.5]) / 4.5)


def test_rollouts_follow_the_heads_chances() -> None:
    one = learner(replace(OPTIONS, rollouts=4000))
    points = Points(one.draw(1), CPU)
    chances = one._chances(points, np.array([[0.5]]), points.decisions)
    assert np.allclose(chances[points.decisions], 0.03, atol=1e-4)
    ends = one._sample(points, np.where(points.never[:, None], 0, 0.1))[:, 0, 0]
    expected = 0.9 ** np.arange(len(chances))
    assert np.allclose([(ends >= k).mean() for k in range(len(chances))], expected, atol=0.03)


def test_ctrl_c_keeps_what_there_is_once_the_head_has_begun_to_learn() -> None:
    def press(told: Progress) -> None:
        if told.stage == stage:
            raise KeyboardInterrupt

    stage = "pg"
    model = train_pg(TRAIN, VALIDATION, BRIEF, fresh=FRESH, progress=press)
    assert model.serving.interrupted
    assert model.assess(States.of(VALIDATION[0])).release.shape == (29,)
    stage = "pretrain"
    with pytest.raises(KeyboardInterrupt):
        train_pg(TRAIN, VALIDATION, BRIEF, fresh=FRESH, progress=press)


def test_bad_input_is_refused() -> None:
    for wrong in ({"rollouts": 1}, {"first_chance": 0.0}, {"episodes": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            PgOptions(**wrong)  # type: ignore[arg-type]

"""The tree methods: their inputs, the forest's own inference, the law of the wait, and that they
learn.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.ensemble import RandomForestRegressor

from mirage.domain import Penalties
from mirage.errors import InputError
from mirage.provision.learn.boosted import BoostedTrees, from_xgboost
from mirage.provision.learn.boosting import Boosting, boost_chances
from mirage.provision.learn.episode import HISTORY
from mirage.provision.learn.features import NAMES, features
from mirage.provision.learn.forest import Forest, Growth, from_sklearn, grow, refilled
from mirage.provision.learn.law import Law, assess
from mirage.provision.learn.model import States
from mirage.provision.learn.quantile import LEVELS, QuantileOptions, train_quantile
from mirage.provision.learn.quantile import read as read_quantile
from mirage.provision.learn.trees import (
    BoostingOptions,
    ForestOptions,
    read_random_forest,
    read_xgboost,
    train_random_forest,
    train_xgboost,
)
from mirage.state.variables import VARIABLES
from slurm_sim.seconds import HOUR_S
from tests.toy import Toy

RNG = np.random.default_rng(1)
COLUMN = {variable.name: index for index, variable in enumerate(VARIABLES)}


# ---- inputs


def test_features_are_the_present_its_changes_and_means():
    matrices = RNG.uniform(1, 100, (5, HISTORY, len(VARIABLES))).astype(np.float32)
    rows = features(matrices, np.arange(5) * HOUR_S)
    assert rows.shape == (5, len(NAMES))
    assert rows.dtype == np.float32
    named = dict(zip(NAMES, rows[3], strict=True))
    queued = matrices[3, :, COLUMN["queued_jobs"]]
    assert named["queued_jobs"] == queued[-1]
    assert named["queued_jobs_since_1h"] == pytest.approx(queued[-1] - queued[-7])
    assert named["queued_jobs_since_24h"] == pytest.approx(queued[-1] - queued[0])
    assert named["queued_jobs_day_mean"] == pytest.approx(queued.mean(), rel=1e-5)
    now = {name: float(matrices[3, -1, index]) for name, index in COLUMN.items()}
    assert named["forecast_h"] == 3
    assert named["idle_beyond_successor"] == pytest.approx(
        now["idle_nodes"] - now["successor_nodes"], rel=1e-5
    )


def test_features_of_one_state_do_not_depend_on_the_others():
    matrices = RNG.uniform(0, 100, (7, HISTORY, len(VARIABLES))).astype(np.float32)
    forecast_s = RNG.integers(0, 10**6, 7)
    one_by_one = np.concatenate(
        [features(matrices[i : i + 1], forecast_s[i : i + 1]) for i in range(7)]
    )
    assert np.array_equal(features(matrices, forecast_s), one_by_one)


def test_features_of_an_empty_cluster_are_numbers():
    assert np.isfinite(
        features(
            np.zeros((1, HISTORY, len(VARIABLES)), dtype=np.float32), np.zeros(1, dtype=np.int64)
        )
    ).all()


# ---- the forest


def sample_rows(count=400):
    rows = RNG.normal(size=(count, 6)).astype(np.float32)
    rows[: count // 4] = np.round(rows[: count // 4])  # values that stand on thresholds
    return rows, rows[:, 0] * 2 + (rows[:, 1] > 0.3) + RNG.normal(0, 0.1, count)


def test_the_forest_equals_scikit_learns():
    rows, target = sample_rows()
    grown = RandomForestRegressor(
        15, min_samples_leaf=3, max_features=0.5, random_state=0, n_jobs=1
    ).fit(rows, target)
    ours, unseen = from_sklearn(grown), sample_rows()[0]
    for given_rows in (rows, unseen):
        assert ours.predict(given_rows)[:, 0] == pytest.approx(
            grown.predict(given_rows), rel=1e-6, abs=1e-6
        )
    leaf_of = np.flatnonzero(ours.left == np.arange(len(ours.left)))
    node = leaf_of[ours.leaves(unseen)] - ours.roots
    assert np.array_equal(node, grown.apply(unseen))


def test_leaves_predict_the_means_of_all_rows_in_them():
    rows, target = sample_rows()
    outputs = np.column_stack([target > 0, target > 1]).astype(float)
    forest = grow(rows, target, outputs, Growth(trees=3, leaf=20), seed=0)
    leaf = forest.leaves(rows)[:, 1]
    inside = leaf == leaf[0]
    assert forest.value[leaf[0]] == pytest.approx(outputs[inside].mean(axis=0), abs=1e-6)


def test_a_forest_comes_back_from_its_file(tmp_path):
    rows, target = sample_rows()
    forest = refilled(
        grow(rows, target, target[:, None], Growth(trees=5), seed=0), rows, target[:, None]
    )
    path = tmp_path / "forest.safetensors"
    forest.save(path)
    assert Forest.load(path, 6, 1).predict(rows) == pytest.approx(forest.predict(rows), abs=3e-3)
    with pytest.raises(InputError, match="another shape"):
        Forest.load(path, 6, 2)


@pytest.mark.parametrize(
    "broken",
    [
        {"feature": np.array([6, 0, 0], dtype=np.int32)},
        {"left": np.array([9, 1, 2], dtype=np.int32)},
        {"left": np.array([-1, 1, 2], dtype=np.int32)},
        {"leaf": np.array([0, 0, 2], dtype=np.int32)},
        {"right": np.array([2, 1], dtype=np.int32)},
        {"depth": np.array([2**30], dtype=np.int32)},
        {"threshold": np.zeros(2)},
        {"threshold": np.array([np.nan, 0, 0])},
        {"threshold": np.array([np.inf, 0, 0])},
        {"threshold": np.zeros(3, dtype=np.int64)},
        {"value": np.array([[np.nan], [2.0]], dtype=np.float32)},
        {"value": np.array([[1.0], [-np.inf]], dtype=np.float32)},
    ],
)
def test_a_forest_that_would_fail_is_refused(tmp_path, broken):
    three = np.array([1, 1, 2], dtype=np.int32)
    good = Forest(
        roots=np.array([0], dtype=np.int32),
        depth=np.array([1], dtype=np.int32),
        feature=np.zeros(3, dtype=np.int32),
        threshold=np.zeros(3),
        left=three,
        right=np.array([2, 1, 2], dtype=np.int32),
        leaf=np.array([0, 0, 1], dtype=np.int32),
        value=np.array([[1.0], [2.0]], dtype=np.float32),
    )
    path = tmp_path / "forest.safetensors"
    good.save(path)
    rows = np.array([[-1.0] * 6, [1.0] * 6], dtype=np.float32)
    assert Forest.load(path, 6, 1).predict(rows)[:, 0].tolist() == [1, 2]
    replace(good, **broken).save(path)
    with pytest.raises(InputError, match="another shape"):
        Forest.load(path, 6, 1)


@pytest.mark.parametrize(
    "parameters",
    [
        {"objective": "binary:logistic"},
        {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.5, 0.9]},
    ],
)
def test_boosted_trees_equal_xgboosts(parameters, tmp_path):
    import xgboost

    rows, target = sample_rows(1500)
    rows[RNG.random(rows.shape) < 0.1] = np.nan  # which way a missing value goes is learnt
    targets = (
        np.column_stack([target > 0, target > 1, target > 99])
        if "quantile_alpha" not in parameters
        else target
    )
    data = xgboost.QuantileDMatrix(rows, targets)
    booster = xgboost.train(
        parameters | {"max_depth": 6, "nthread": 1, "tree_method": "hist"}, data, 7
    )
    from_xgboost(json.loads(booster.save_raw("json"))["learner"]).save(
        tmp_path / "boosted.safetensors"
    )
    ours = BoostedTrees.load(tmp_path / "boosted.safetensors", 6, 3)
    unseen = np.concatenate(
        [rows, RNG.normal(size=(700, 6)).astype(np.float32), np.full((1, 6), np.nan, np.float32)]
    )
    assert ours.predict(unseen) == pytest.approx(
        booster.inplace_predict(unseen), rel=2e-6, abs=2e-7
    )
    assert ours.predict(unseen[:0]).shape == (0, 3)
    one_by_one = np.concatenate(
        [ours.predict(unseen[at : at + 1]) for at in range(0, len(unseen), 97)]
    )
    assert np.array_equal(one_by_one, ours.predict(unseen)[::97])


def test_boosted_trees_of_another_kind_are_refused():
    learner = {
        "gradient_booster": {"model": {"trees": [], "tree_info": []}},
        "objective": {"name": "rank:ndcg"},
    }
    with pytest.raises(ValueError, match="rank:ndcg, 1 outputs: not a form that Mirage trains"):
        from_xgboost(learner | {"learner_model_param": {"base_score": "0.5"}})


TWO_LEVELS = BoostedTrees(
    base=np.zeros(1, np.float32),
    roots=np.array([[0]], np.int32),
    feature=np.array([0, 1, 0, 0, 0], np.int32),
    value=np.array([0, 0, 5, 1, 2], np.float32),
    left=np.array([1, 3, 2, 3, 4], np.int32),
    missing_left=np.zeros(5, bool),
    logistic=np.array([False]),
)


@pytest.mark.parametrize(
    "broken",
    [
        {"roots": np.array([[5]], np.int32)},
        {"roots": np.array([[-1]], np.int32)},
        {"roots": np.array([0], np.int32)},
        {"roots": np.array([[0, 0]], np.int32)},
        {"feature": np.array([6, 1, 0, 0, 0], np.int32)},
        {"feature": np.array([-1, 1, 0, 0, 0], np.int32)},
        {"left": np.array([1, 4, 2, 3, 4], np.int32)},  # its right child is none
        {"left": np.array([1, 0, 2, 3, 4], np.int32)},  # a circle
        {"left": np.array([1, 3, 2, 3, -4], np.int32)},
        {"left": np.array([1, 2**31 - 1, 2, 3, 4], np.int32)},
        {"left": np.array([1, 3, 2, 3, 4], np.int64)},
        {"value": np.array([0, 0, np.nan, 1, 2], np.float32)},
        {"value": np.zeros(4, np.float32)},
        {"base": np.zeros(2, np.float32)},
        {"base": np.array([np.inf], np.float32)},
        {"logistic": np.zeros(0, bool)},
        {"missing_left": np.zeros(5, np.float32)},
    ],
)
def test_boosted_trees_that_would_fail_are_refused(tmp_path, broken):
    path = tmp_path / "boosted.safetensors"
    TWO_LEVELS.save(path)
    rows = np.array([[-1, -1, 0, 0, 0, 0], [-1, 1, 0, 0, 0, 0], [1, 0, 0, 0, 0, 0]], np.float32)
    assert BoostedTrees.load(path, 6, 1).predict(rows)[:, 0].tolist() == [1, 2, 5]
    replace(TWO_LEVELS, **broken).save(path)
    with pytest.raises(InputError, match="another shape"):
        BoostedTrees.load(path, 6, 1)


def test_a_tree_that_is_too_deep_is_refused(tmp_path):
    """A chain of 200 nodes; each has a leaf beside it."""
    count = 401
    inner = np.arange(0, count - 1, 2)
    left = np.arange(count, dtype=np.int32)
    left[0] = 1
    left[inner[1:]] = inner[1:] + 1
    deep = replace(
        TWO_LEVELS,
        feature=np.zeros(count, np.int32),
        value=np.zeros(count, np.float32),
        left=left,
        missing_left=np.zeros(count, bool),
    )
    deep.save(tmp_path / "boosted.safetensors")
    with pytest.raises(InputError, match="another shape"):
        BoostedTrees.load(tmp_path / "boosted.safetensors", 6, 1)


def test_weights_that_are_none_are_refused(tmp_path):
    for content in (b"", b"garbage", b"\x80\x04."):
        for kind, name in ((Forest, "forest.safetensors"), (BoostedTrees, "boosted.safetensors")):
            (tmp_path / name).write_bytes(content)
            with pytest.raises(InputError, match="train the model again"):
                kind.load(tmp_path / name, 6, 1)
    rows, target = sample_rows()
    boost_chances(rows, target[:, None] > 0, Boosting(rounds=2), 0).save(
        tmp_path / "boosted.safetensors"
    )
    with pytest.raises(InputError, match="another shape"):
        BoostedTrees.load(tmp_path / "boosted.safetensors", 6, 3)


# ---- the law


@st.composite
def laws(draw):
    points = draw(st.lists(st.floats(0, 90_000), min_size=1, max_size=8))
    waits_s = np.array([0.0, *sorted(points), max(points) + draw(st.floats(1, 9000))])
    falls = np.array(
        draw(st.lists(st.floats(0.01, 1), min_size=len(waits_s) - 1, max_size=len(waits_s) - 1))
    )
    exceeded = np.concatenate([[1.0], 1 - np.cumsum(falls) / falls.sum()])
    return Law(waits_s[None], np.maximum(exceeded, 0)[None])


def sampled(law, count=20_001):
    """The same law as equally likely waits."""
    levels = (np.arange(count) + 0.5) / count
    return np.concatenate([law.quantile_s(np.array([level])) for level in levels[:: count // 400]])


@given(laws(), st.floats(0, 120_000))
@settings(max_examples=60, deadline=None)
def test_mean_interruption_and_overlap_are_those_of_the_waits(law, left_s):
    waits_s, left = sampled(law), np.array([left_s])
    tolerance = float(law.waits_s.max()) / 100
    assert law.interruption_s(left)[0] == pytest.approx(
        np.maximum(waits_s - left_s, 0).mean(), abs=tolerance
    )
    assert law.overlap_s(left)[0] == pytest.approx(
        np.maximum(left_s - waits_s, 0).mean(), abs=tolerance
    )
    assert law.interruption_s(left)[0] >= -1e-6
    assert law.overlap_s(left)[0] >= -1e-6


@given(laws(), st.floats(0.02, 0.98))
@settings(deadline=None)
def test_quantile_and_chance_are_inverse(law, level):
    wait_s = law.quantile_s(np.array([level]))
    assert law.exceeded_at(wait_s - 1e-3)[0] >= 1 - level - 1e-4
    assert law.exceeded_at(wait_s + 1e-3)[0] <= 1 - level + 1e-4


@given(
    laws(),
    st.integers(0, 150),
    st.sampled_from([(1, 1), (4, 1), (1, 4), (1, 0), (0, 1)]),
    st.integers(0, 599),
)
@settings(max_examples=200, deadline=None)
def test_now_is_compared_with_the_best_of_all_later_decision_points(law, steps, penalties, rest_s):
    left_s = steps * 600 + rest_s
    states = States(
        np.zeros((1, HISTORY, 40), dtype=np.float32),
        np.array([left_s]),
        np.array([penalties], dtype=np.float64),
    )
    found = assess(law, states)
    later = [max(left_s - step * 600, 0) for step in range(1, steps + 2)]
    best_s = min(float(law.cost_s(np.array([float(at_s)]), states.penalties)[0]) for at_s in later)
    assert found.cost_wait_s[0] == pytest.approx(best_s, abs=1e-3)
    assert found.cost_now_s[0] == pytest.approx(
        float(law.cost_s(np.array([float(left_s)]), states.penalties)[0])
    )
    if abs(found.cost_now_s[0] - best_s) > 1e-3:
        assert bool(found.release[0]) == (found.cost_now_s[0] < best_s)


# ---- learning

TOY = Toy()
TRAIN = [TOY.episode(index) for index in range(160)]
UNSEEN = [TOY.episode(index) for index in range(1000, 1060)]
SMALL = Boosting(rounds=40, leaf=20, learning_rate=0.12)
TRAINERS = {
    "random-forest": lambda seed=0: train_random_forest(TRAIN, ForestOptions(every=4), seed=seed),
    "xgboost": lambda seed=0: train_xgboost(
        TRAIN, BoostingOptions(every=4, boosting=SMALL), seed=seed
    ),
    "quantile": lambda seed=0: train_quantile(
        TRAIN, QuantileOptions(every=8, blocks=4, boosting=SMALL), seed=seed
    ),
}
READERS = {"random-forest": read_random_forest, "xgboost": read_xgboost, "quantile": read_quantile}


@pytest.fixture(scope="module", params=list(TRAINERS))
def model(request):
    return TRAINERS[request.param]()


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
def test_one_fit_comes_close_to_the_best_policy_for_every_taste(model, share):
    """The best policy knows the queue's level and the law of the surprise; the methods see noisy
    rows.
    """
    penalties = Penalties(share, 1 - share)
    cost_h, best_h, reactive_h = [], [], []
    for episode in UNSEEN:
        release = model.assess(States.of(episode, share, 1 - share)).release
        chosen = int(np.argmax(release)) if release.any() else len(episode)
        costs = episode.costs_s(penalties) / HOUR_S
        cost_h.append(costs[chosen])
        best_h.append(costs[TOY.best(episode, share)])
        reactive_h.append(costs[-1])
    assert np.mean(cost_h) - np.mean(best_h) < 0.12 * (np.mean(reactive_h) - np.mean(best_h)) + 0.05


def test_predicted_quantiles_hold_what_they_say(model):
    found = [(episode.waits_s[:-1], model.assess(States.of(episode))) for episode in UNSEEN]
    for name, low, high in (
        ("wait_p10_s", 0.02, 0.25),
        ("wait_p50_s", 0.35, 0.65),
        ("wait_p90_s", 0.75, 0.98),
    ):
        below = np.mean(
            [np.mean(waits_s <= getattr(assessment, name)) for waits_s, assessment in found]
        )
        assert low < below < high, (name, below)


def test_a_model_comes_back_from_its_folder(model, tmp_path):
    model.write(tmp_path)
    again = READERS[model.name](tmp_path)
    states = States.of(UNSEEN[0], 4, 1)
    before, after = model.assess(states), again.assess(states)
    assert np.array_equal(before.release, after.release)
    assert after.cost_now_s == pytest.approx(before.cost_now_s, rel=0.01, abs=60)
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < 5e6


def test_the_seed_decides(model):
    states = States.of(UNSEEN[1])
    again, other = TRAINERS[model.name](0).assess(states), TRAINERS[model.name](7).assess(states)
    assert np.array_equal(again.cost_now_s, model.assess(states).cost_now_s)
    assert not np.array_equal(other.cost_now_s, again.cost_now_s)


def test_costs_are_in_the_users_own_penalties(model):
    states = States.of(UNSEEN[2], 1, 1)
    double = model.assess(replace(states, penalties=states.penalties * 2))
    assert double.cost_now_s == pytest.approx(2 * model.assess(states).cost_now_s)
    assert np.array_equal(double.release, model.assess(states).release)


@pytest.mark.parametrize("train", [train_random_forest, train_xgboost, train_quantile])
def test_without_episodes_nothing_can_be_learnt(train):
    with pytest.raises(InputError, match="decision point"):
        train([])


@pytest.mark.parametrize("model", ["quantile"], indirect=True)
def test_all_calibrated_levels_are_right_on_average(model):
    assert model.coverage.shape == (len(LEVELS),)
    below = []
    for episode in UNSEEN:
        law = model.law(States.of(episode))
        below.append(
            [
                (episode.waits_s[:-1] <= law.quantile_s(np.full(len(episode), level))).mean()
                for level in LEVELS
            ]
        )
    assert np.mean(below, axis=0) == pytest.approx(LEVELS, abs=0.12)

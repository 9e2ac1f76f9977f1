"""A trained model as the service's policy: one pass for all pairs, and what happens where it can't
be trusted.
"""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import numpy as np
import pytest

from mirage.config import PolicyConfig
from mirage.domain import Action, ClusterNode, Job, JobState, Penalties, Snapshot, WaitSample
from mirage.models.folder import write_folder
from mirage.models.recipe import Recipe
from mirage.ports import Advice, BatchPolicy, Observation
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.forecast import ForecastingModel
from mirage.provision.learn.forest import Growth
from mirage.provision.learn.model import Assessment, Traits, releases
from mirage.provision.learn.ranges import clipped, ranges_of
from mirage.provision.learn.trees import ForestOptions, train_random_forest
from mirage.provision.policies.learned import LearnedPolicy
from mirage.provision.policies.registry import make_pair_policy
from mirage.state.encoder import JobPair, encode
from mirage.state.history import History
from mirage.state.likeness import Waits
from slurm_sim.config import whole_nodes
from tests.toy import Toy

HOUR = 3600
NOW = 200 * HOUR


@dataclass
class Threshold:
    """A model that releases with less than an hour left, and keeps what it was given."""

    name: str = "moe-dqn"
    given: list = field(default_factory=list)
    fails: bool = False
    memory: int = 1
    uses_forecasts: bool = True

    @property
    def traits(self):
        return Traits(memory=self.memory, uses_forecasts=self.uses_forecasts)

    def assess(self, states):
        self.given.append(states)
        if self.fails:
            raise ZeroDivisionError("0/0")
        cost_s = states.remaining_s.astype(float)
        return Assessment(
            states.remaining_s < HOUR, cost_s, cost_s + 60, cost_s / 2, cost_s, cost_s * 2
        )

    def write(self, folder):
        raise NotImplementedError


@dataclass(frozen=True)
class Says:
    name: str = "quantile"

    def decide(self, observation):
        return Advice(action=Action.RELEASE, reason="the fallback says so", wait_p50_s=7.0)


ABOUT = ProvisionAbout(
    cluster="ls6",
    pool="gpu",
    nodes=4,
    trace="t.csv",
    trace_sha256="",
    train_s=(0, 1),
    validation_s=(1, 2),
    ranges={"queued_jobs": (0, 10)},
)


def history(pool="gpu", steps=146, every_s=600, until_s=NOW, queued=2, nodes=4):
    result = History(pool)
    for back in range(steps - 1, -1, -1):
        at_s = until_s - back * every_s
        jobs = tuple(
            Job(
                job_id=900 + n,
                user="carol",
                partition=pool,
                state=JobState.PENDING,
                nodes=1,
                submit_s=0,
                time_limit_s=HOUR,
                eligible_s=at_s - n,
            )
            for n in range(queued)
        )
        cluster = tuple(
            ClusterNode(name=f"{pool}{n}", partitions=(pool,), up=True, idle=False)
            for n in range(nodes)
        )
        result.add(encode(Snapshot(at_s=at_s, jobs=jobs, nodes=cluster), pool))
    return result


KNOWN = history()


class FixedHistory(History):
    """A pool of 4 nodes whose matrix is always this one."""

    def __init__(self, matrix, now_s=NOW):
        super().__init__("gpu")
        self.add(replace(KNOWN.latest, at_s=now_s))
        self.fixed = matrix

    def matrices(self, pairs, now_s):
        return np.repeat(self.fixed[None], len(pairs), axis=0)

    def known(self, now_s, every_s=0):
        return 1.0


def observe(left_s=2 * HOUR, job_id=1, **more):
    first = Job(
        job_id=job_id,
        user="alice",
        partition="gpu",
        state=JobState.RUNNING,
        nodes=1,
        submit_s=0,
        time_limit_s=48 * HOUR,
        reason="",
        eligible_s=0,
        start_s=NOW + left_s - 48 * HOUR,
    )
    second = Job(
        job_id=job_id + 1,
        user="alice",
        partition="gpu",
        state=JobState.PENDING,
        nodes=2,
        submit_s=0,
        time_limit_s=24 * HOUR,
        reason="Dependency",
    )
    values = {
        "predecessor": first,
        "successor": second,
        "penalties": Penalties(2, 1),
        "history": KNOWN,
    } | more
    return Observation(now_s=NOW, step_s=600, waits=Waits([]), **values)


def learned(about=ABOUT, **more):
    return LearnedPolicy(Threshold(**more), about, Says())


def test_the_model_is_given_the_states_and_its_answer_is_told():
    policy = learned()
    release, wait = policy.decide_all([observe(HOUR // 2), observe(3 * HOUR, 11)])
    assert (release.action, wait.action) == (Action.RELEASE, Action.WAIT)
    assert "expected penalty 30 min now, 31 min later" in release.reason
    assert "it would wait 1 h 30 min to 6 h" in wait.reason
    assert (wait.wait_p10_s, wait.wait_p50_s, wait.wait_p90_s) == (1.5 * HOUR, 3 * HOUR, 6 * HOUR)
    (states,) = policy.model.given
    assert states.remaining_s.tolist() == [HOUR // 2, 3 * HOUR]
    assert states.penalties.tolist() == [[2, 1], [2, 1]]
    other = observe(3 * HOUR, 11)
    assert np.array_equal(
        states.matrices[1], KNOWN.matrix(JobPair(other.predecessor, other.successor), NOW)
    )


@pytest.mark.parametrize(
    ("left_s", "forecast_s", "penalties", "is_held"),
    [
        (1800, 0, (1, 1), True),
        (1800, 599, (2, 1), True),
        (1800, 600, (1, 1), False),
        (600, 0, (1, 1), False),
        (1800, 0, (4, 1), False),
        (2500, 0, (4, 1), True),
        (1800, 0, (1, 0), False),
    ],
)
def test_what_would_start_at_once_is_not_released_while_much_is_left(
    left_s, forecast_s, penalties, is_held
):
    """As many steps of 600 s may be left as an interruption weighs more than an overlap."""
    policy = replace(learned(), live_forecast=SimpleNamespace(of=lambda _: forecast_s))
    advice = policy.decide(observe(left_s, penalties=Penalties(*penalties)))
    assert (advice.action is Action.WAIT) == is_held
    assert ("it would start at once" in advice.reason) == is_held
    states = replace(policy.model.given[0], forecast_s=np.array([forecast_s]))
    said = policy.model.assess(states)
    assert releases(policy.model, said, states).tolist() == [not is_held]
    without = Threshold(uses_forecasts=False)
    assert releases(without, said, states).tolist() == [True]


def test_many_pairs_of_two_pools_are_one_pass_and_as_one_by_one():
    about = replace(ABOUT, pool="")
    elsewhere = history("other")
    pairs = [
        observe(60 * n, 10 * n, history=elsewhere if n % 3 else KNOWN, penalties=Penalties(1, n))
        for n in range(1, 90)
    ]
    policy, single = learned(about), learned(about)
    answers = policy.decide_all(pairs)
    assert len(policy.model.given) == 1
    assert answers == [single.decide(pair) for pair in pairs]
    together = np.concatenate([states.matrices for states in single.model.given])
    assert np.array_equal(policy.model.given[0].matrices, together)


def test_it_is_a_batch_policy_under_its_models_name():
    assert isinstance(learned(), BatchPolicy)
    assert learned().name == "moe-dqn"
    assert not isinstance(Says(), BatchPolicy)
    assert learned().decide_all([]) == []


def test_an_unknown_figure_is_none():
    class Silent(Threshold):
        def assess(self, states):
            return Assessment.plain(states.remaining_s < HOUR)

    advice = LearnedPolicy(Silent(), ABOUT, Says()).decide(observe())
    assert (advice.wait_p10_s, advice.wait_p50_s, advice.wait_p90_s) == (None, None, None)
    assert advice.reason == "moe-dqn: better later (its predecessor's limit is 2 h away)"


class Remembers(Threshold):
    """Says what it is told to."""

    def assess(self, states):
        said = super().assess(states)
        return replace(said, gain=np.array([self.gains.pop(0) for _ in range(len(states))]))


def test_a_model_with_a_memory_decides_by_the_mean_of_what_it_said_of_the_pair():
    model = Remembers(memory=3)
    model.gains = [-5.0, 9.0, 4.0, -1.0, -1.0, -9.0, 0.5]
    policy = LearnedPolicy(model, ABOUT, Says())
    matrix = np.zeros((144, 40), dtype=np.float32)
    gains: dict[int, list[tuple[int, float]]] = {1: [], 11: []}

    def said(at_s, job_id=1):
        given = observe(9 * HOUR, job_id, history=FixedHistory(matrix, NOW + at_s))
        answer = policy.decide(replace(given, now_s=NOW + at_s, gains=tuple(gains[job_id])))
        gains[job_id].append((NOW + at_s, answer.gain))
        return answer

    first = said(0)
    assert (first.action, first.reason.partition(" (")[0]) == (Action.WAIT, "moe-dqn: better later")
    other = said(300, job_id=11)  # another pair has its own mean
    assert other.action is Action.RELEASE
    second = said(600)
    assert second.action is Action.WAIT, "4 - 5 is below 0"
    assert second.reason.startswith(
        "moe-dqn: better later on average over the last 10 min (expected penalty"
    )
    assert said(1200).action is Action.WAIT, "4 - 5 - 1"
    assert said(1800).action is Action.RELEASE, (
        "4 - 1 - 1: the first is forgotten after three steps"
    )
    assert said(1800).action is Action.WAIT, "the same instant counts once, as said last: 4 - 1 - 9"
    assert said(9000).action is Action.RELEASE, "all is forgotten but 0.5"
    assert [gain for _, gain in gains[1]] == [-5, 4, -1, -1, -9, 0.5], (
        "each is its own, not the mean"
    )


def test_before_the_predecessor_runs_nobody_is_asked():
    waiting = replace(observe().predecessor, state=JobState.PENDING, start_s=None)
    policy = learned()
    assert "has not started yet" in policy.decide(observe(predecessor=waiting)).reason
    assert policy.model.given == []


GUARDS = {
    "stale": (
        {"history": history(until_s=NOW - 3 * 600)},
        "[stale: the newest state is 30 min old]",
    ),
    "hours unknown": (
        {"history": history(steps=100)},
        "[incomplete: 69% of the last 24 h are known]",
    ),
    "no history": ({"history": None}, "[incomplete: nothing is known of the last 24 h]"),
    "empty": ({"history": History("gpu")}, "[incomplete: nothing"),
    "name": (
        {"history": history("cpu")},
        "[other-cluster: this is pool cpu with 4 nodes up, the model is of ls6 gpu",
    ),
    "bigger": ({"history": history(nodes=5)}, "[other-cluster: this is pool gpu with 5 nodes up"),
    "smaller": ({"history": history(nodes=1)}, "[other-cluster: this is pool gpu with 1 nodes up"),
    "no number": (
        {"history": FixedHistory(np.full((144, 40), np.nan, dtype=np.float32))},
        "[out-of-range: queued_jobs nan",
    ),
}


@pytest.mark.parametrize("case", list(GUARDS))
def test_where_the_model_can_not_be_trusted_the_fallback_decides_and_says_why(case):
    given, code = GUARDS[case]
    policy = learned()
    strange, plain = policy.decide_all([observe(**given), observe(HOUR // 2)])
    assert strange.reason.startswith(code)
    assert strange.reason.endswith("] the fallback says so")
    assert (strange.action, strange.wait_p50_s) == (Action.RELEASE, 7.0)
    assert plain.reason.startswith("moe-dqn: better now")
    (states,) = policy.model.given
    assert len(states) == 1


@pytest.mark.parametrize(
    "known",
    [history(until_s=NOW - 2 * 600), history(steps=140), history(queued=12), history(nodes=3)],
    ids=["20 min old", "some rows unknown", "a little more than seen", "a node is down"],
)
def test_small_differences_are_no_reason_to_distrust(known):
    assert learned().decide(observe(history=known)).reason.startswith("moe-dqn")


def test_where_cycles_come_seldom_the_steps_between_them_are_known():
    slow = replace(observe(history=history(steps=50, every_s=1800)), step_s=1800)
    assert learned().decide(slow).reason.startswith("moe-dqn")
    once = learned().decide(replace(slow, step_s=3601))
    assert once.reason.startswith("[incomplete: a cycle comes every 1 h, the model needs one every")


NOT_A_NUMBER = FixedHistory(np.full((144, 40), np.nan, dtype=np.float32))


def test_a_model_is_not_asked_about_nothing():
    policy = learned()
    assert policy.decide(observe(history=NOT_A_NUMBER)).reason.startswith("[out-of-range")
    assert policy.model.given == []


@dataclass
class Counts(Threshold):
    """Releases with more than 20 jobs in the queue; its median wait is ``each_s`` for each of them."""

    each_s: float = 0.0
    releases: bool = True

    def assess(self, states):
        said = super().assess(states)
        queued = states.matrices[:, -1, 0].astype(float)
        release = (queued > 20) if self.releases else np.zeros(len(queued), bool)
        return replace(said, release=release, wait_p50_s=HOUR + self.each_s * queued)


@pytest.mark.parametrize(
    ("model", "is_trusted"),
    [
        (Threshold(), True),  # it does not look at the queue
        (Counts(releases=False), True),
        (Counts(), False),  # another choice than with 10 jobs, the most that it has seen
        (Counts(releases=False, each_s=60), True),  # 110 instead of 70 min
        (Counts(releases=False, each_s=600), False),  # 9 h instead of 2 h 40 min
    ],
)
def test_an_input_beyond_training_counts_by_what_it_does_to_the_answer(model, is_trusted):
    far, plain = LearnedPolicy(model, ABOUT, Says()).decide_all(
        [observe(history=history(queued=50)), observe()]
    )
    assert plain.reason.startswith("moe-dqn: better later")
    if is_trusted:
        assert far.reason.startswith("moe-dqn: better later")
        at_edge = model.given[-1].matrices[0]
        assert at_edge[-1, 0] == 10, "its answer is that at the edge of training"
    else:
        assert far.reason.startswith("[out-of-range: queued_jobs 50 > 10 changes the answer]")
        assert far.reason.endswith("the fallback says so")


def test_what_is_clipped_stays_as_it_was_inside_the_ranges():
    matrices = np.arange(2 * 144 * 40, dtype=np.float32).reshape(2, 144, 40)
    ranges = {"queued_jobs": (500.0, 4000.0), "remaining_s": (0, 100)}
    same, left_s = clipped(ranges, matrices, np.array([50, 500]))
    assert np.array_equal(same[:, :, 1:], matrices[:, :, 1:])
    assert np.array_equal(same[:, :-1, 0], np.minimum(matrices[:, :-1, 0], 4000))
    assert same[:, -1, 0].tolist() == [4000, 4000]
    assert left_s.tolist() == [50, 100]
    low, _ = clipped(ranges, np.zeros((1, 144, 40), np.float32), np.array([1]))
    assert (low[0, -1, 0], low[0, 0, 0]) == (500, 0), "the past may be below"


def test_a_model_that_fails_falls_back_for_all():
    policy = learned(fails=True)
    answers = policy.decide_all([observe(), observe(history=NOT_A_NUMBER)])
    assert answers[0].reason == "[model-failed: ZeroDivisionError('0/0')] the fallback says so"
    assert answers[1].reason.startswith("[out-of-range")


def test_a_model_folder_serves_by_the_configuration(tmp_path):
    """Without a forecast it can't be asked; quantile then decides by recent waits."""
    toy = Toy()
    episodes = [toy.episode(index) for index in range(12)]
    model = train_random_forest(episodes, ForestOptions(every=12, growth=Growth(trees=3)))
    about = replace(ABOUT, ranges=ranges_of(episodes)).table()
    recipe = Recipe(system="provision", method="random-forest", seed=0, about=about)
    write_folder(tmp_path / "rf", ForecastingModel(model, whole_nodes(4)), recipe, "")
    policy = make_pair_policy(PolicyConfig(name="random-forest", model=str(tmp_path / "rf")))
    assert policy.name == "random-forest"
    waits = Waits(
        [
            WaitSample(
                job_id=1,
                partition="gpu",
                nodes=2,
                time_limit_s=24 * HOUR,
                start_s=0,
                wait_s=3 * HOUR,
            )
        ]
        * 30
    )
    far = replace(observe(), waits=waits)
    assert policy.decide(far).reason.startswith("[no-forecast: there is no snapshot")
    assert "30 like jobs waited 3 h" in policy.decide(far).reason
    near = replace(far, history=FixedHistory(episodes[0].windows[5]))
    assert policy.decide(near).reason.startswith("[no-forecast: there is no snapshot")
    policy = replace(policy, live_forecast=SimpleNamespace(of=lambda _: HOUR))
    assert policy.decide(near).reason.startswith("random-forest: better")

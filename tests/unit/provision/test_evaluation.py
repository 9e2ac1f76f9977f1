"""From episodes to choices, and from choices to the three files."""

import csv
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import numpy as np
import pytest

from mirage.domain import Action, JobState, Penalties, WaitSample
from mirage.errors import InputError, MirageError
from mirage.figures.estimate import Estimate
from mirage.figures.words import hours, number
from mirage.provision.evaluation.case import Case, PoolStarts, PoolWaits
from mirage.provision.evaluation.comparison import MethodInfo, Setup, compare
from mirage.provision.evaluation.methods import RECENT, requested_methods
from mirage.provision.evaluation.protocol import ModelChooser, Never, Oracle, PolicyChooser, try_all
from mirage.provision.evaluation.report.page import page
from mirage.provision.evaluation.report.words import caveats, headline, penalties_words
from mirage.provision.evaluation.results import COLUMNS, results, write
from mirage.provision.evaluation.sampling import sample
from mirage.provision.learn.background import Background
from mirage.provision.learn.drawing import EpisodePlan, fixed_pair
from mirage.provision.learn.episode import STEP_S
from mirage.provision.learn.joblog import read_log
from mirage.provision.policies.heuristics import Average, Timer
from mirage.provision.policies.quantile import Quantile
from mirage.state.encoder import JobPair
from mirage.state.likeness import Waits
from slurm_sim.config import ClusterConfig, Partition, make_nodes
from slurm_sim.seconds import HOUR_S
from tests.evaluation_toys import BEGIN_S, LIMIT_S, Foresight, Queue
from tests.learn_site import DAY_S, EPOCH_S, cluster, frame, trace

EVEN, WARY = Penalties(1, 1), Penalties(4, 1)
QUEUE = Queue()


@pytest.fixture(scope="module")
def cases():
    return QUEUE.cases(6, every_s=60 * HOUR_S)


@pytest.fixture(scope="module")
def comparison():
    choosers = [
        Never(),
        PolicyChooser(Timer(3 * HOUR_S), "timer", False),
        ModelChooser(Foresight(QUEUE), "foresight"),
    ]
    choosers.append(Oracle())
    kinds = {"reactive": "bound", "oracle": "bound", "timer": "rule", "foresight": "trained"}
    methods = [MethodInfo(name, kind, f"what <{name}> does") for name, kind in kinds.items()]
    methods.sort(key=lambda method: [chooser.name for chooser in choosers].index(method.name))
    setup = Setup(BEGIN_S, 24 * HOUR_S, 24, (1, 8), LIMIT_S, "trace", resamples=100)
    trials = [
        try_all(case, choosers, setup.all_penalties)
        for queue, nodes in ((QUEUE, 1), (replace(QUEUE, nodes_factor=1.5), 8))
        for case in queue.cases(24, every_s=24 * HOUR_S, nodes=nodes)
    ]
    return compare(setup, methods, trials, {1: {}, 8: {"history_ends": 2}})


PROVENANCE = {
    "trace": {"file": "t<&>.csv", "sha256": "ab" * 32, "jobs": 1234},
    "cluster": {"file": "c.toml", "sha256": "cd" * 32},
    "command": "mirage evaluate --methods 'a<b'",
    "seed": 1,
    "versions": {"mirage-slurm": "0"},
    "commit": None,
    "machine": {"system": "Linux", "cpu": "", "cores": 2},
    "started": "2026-01-01T00:00:00+00:00",
    "wall_s": 1.0,
}


# --- choices


def test_the_oracle_is_never_beaten_and_reactive_never_releases(cases):
    for case in cases:
        costs = case.episode.costs_s(WARY)
        best = Oracle().choose(case, WARY).point
        assert costs[best] == costs.min()
        assert Never().choose(case, WARY).point == len(case.episode)


def test_a_timer_releases_at_the_point_nearest_to_its_lead(cases):
    for case in cases:
        point = PolicyChooser(Timer(3 * HOUR_S), "timer").choose(case, EVEN).point
        assert abs(case.episode.remaining_s[point] - 3 * HOUR_S) <= STEP_S / 2


def plain_waits(starts, now_s):
    seen = (starts.start_s <= now_s) & (starts.start_s >= now_s - 7 * 86_400)
    rows = np.flatnonzero(seen)
    return Waits(
        [
            WaitSample(
                job_id=0,
                partition="",
                nodes=1,
                time_limit_s=LIMIT_S,
                start_s=int(starts.start_s[row]),
                wait_s=int(starts.wait_s[row]),
            )
            for row in rows
        ]
    )


@pytest.mark.parametrize("policy", [Average(100), Quantile(100, 20)])
def test_policies_see_what_the_daemon_would_have_seen(cases, policy):
    """Asked with plain waits at every point, a policy releases at the same one."""
    case = cases[2]
    chosen = PolicyChooser(policy, "p").choose(case, WARY).point
    for point in range(0, len(case.episode), 5):
        seen = case.observe(point, WARY)
        plain = replace(seen, waits=plain_waits(case.starts, seen.now_s))
        assert policy.decide(seen) == policy.decide(plain)
        assert (policy.decide(plain).action is Action.RELEASE) <= (point >= chosen)


def test_policies_see_the_starts_of_the_pairs_own_pool():
    nodes = make_nodes(24)
    names = [node.name for node in nodes]
    both = (
        Partition("gpu", tuple(names[:12]), max_time_s=DAY_S),
        Partition("cpu", tuple(names[12:]), max_time_s=DAY_S),
    )
    site = ClusterConfig(nodes, both, cluster().params, name="toy")
    elsewhere = np.arange(len(frame())) % 2 == 1
    limits_s = np.where(elsewhere, 7777, frame().timelimit_s)
    log = trace(partition=np.where(elsewhere, "cpu", "gpu"), timelimit_s=limits_s)
    case = sample(
        Background(site, read_log(log, site)),
        EpisodePlan(EPOCH_S + 12 * DAY_S, fixed_pair(1, 2 * HOUR_S)),
    )
    assert isinstance(case, Case)
    assert len(case.starts.limit_s) > 20
    assert 7777 not in case.starts.limit_s


def test_an_observation_is_that_of_a_running_pair(cases):
    seen = cases[0].observe(5, WARY)
    episode = cases[0].episode
    assert seen.remaining_s == episode.remaining_s[5]
    assert seen.predecessor.state is JobState.RUNNING
    assert seen.successor.reason == "Dependency"
    assert seen.history.latest.at_s == seen.now_s == episode.decision_s[5]
    assert len(seen.history.latest.queued) == episode.windows[5][-1, 0]
    pair = JobPair(seen.predecessor, seen.successor)
    assert np.array_equal(seen.history.matrix(pair, seen.now_s), episode.windows[5])
    assert seen.history.is_complete(seen.now_s)


def test_seen_waits_are_waits():
    starts = PoolStarts(
        *(np.array(column) for column in ([10, 20, 30], [1, 2, 3], [1, 2, 2], [60, 0, 60]))
    )
    seen = PoolWaits(starts, 1, 3)
    assert list(seen) == [
        WaitSample(job_id=0, partition="", nodes=2, time_limit_s=None, start_s=20, wait_s=2),
        WaitSample(job_id=0, partition="", nodes=2, time_limit_s=60, start_s=30, wait_s=3),
    ]
    assert seen[-1] == seen[1:][0]
    assert len(PoolStarts.none().seen_at(5)) == 0


def test_a_model_is_asked_for_all_points_at_once_and_the_first_release_counts(cases):
    for case in cases:
        choice = ModelChooser(Foresight(QUEUE, error_h=0.1), "m").choose(
            case, EVEN, with_quantiles=True
        )
        assert case.episode.interruption_s[choice.point] < HOUR_S
        assert case.episode.overlap_s[choice.point] < HOUR_S
        assert choice.wait_quantiles_s.shape == (len(case.episode), 3)


# --- names


def test_reactive_first_oracle_last_the_rest_as_asked():
    found = requested_methods(["oracle", "avg", "timer", "reactive"], None)
    assert [each.label for each in found] == ["reactive", "avg", "timer", "oracle"]


def test_quantile_without_a_model_is_the_rule(tmp_path):
    assert [
        (each.label, each.method, each.folder) for each in requested_methods(["quantile"], tmp_path)
    ][1] == (
        "quantile",
        RECENT,
        None,
    )


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["bogus"], "no such method"),
        (["avg", "avg"], "avg twice"),
        (["moe-dqn"], "no model of moe-dqn there"),
        (["mine=nowhere"], "no such folder"),
        (["avg=somewhere"], "a label of your own"),
    ],
)
def test_methods_that_are_not_there_are_refused(names, words, tmp_path):
    with pytest.raises(InputError, match=words):
        requested_methods(names, tmp_path)


# --- files


def test_the_three_files(comparison, tmp_path):
    record = results(comparison, PROVENANCE)
    out = tmp_path / "new" / "results"
    write(out, comparison, record, "<!DOCTYPE html>")
    write(out, comparison, record, "<!DOCTYPE html>again")
    assert sorted(path.name for path in out.iterdir()) == [
        "episodes.csv",
        "report.html",
        "results.json",
    ]
    assert json.loads((out / "results.json").read_text()) == json.loads(json.dumps(record))
    with (out / "episodes.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert tuple(rows[0]) == COLUMNS
    assert len(rows) == 2 * 24 * 2 * 4
    of_one = [
        row for row in rows if (row["nodes"], row["begin"]) == (rows[0]["nodes"], rows[0]["begin"])
    ]
    assert len(of_one) == 2 * 4
    assert all(float(row["penalty_h"]) >= float(row["oracle_penalty_h"]) for row in rows)
    never = [row for row in rows if row["method"] == "reactive"]
    assert all(row["choice"] == row["decision_points"] and row["release"] == "" for row in never)
    told = [row for row in rows if row["method"] == "foresight" and row["release"]]
    assert all(float(row["predicted_p10_s"]) <= float(row["predicted_p90_s"]) for row in told)


def test_the_table_and_the_summary_agree(comparison, tmp_path):
    write(tmp_path, comparison, results(comparison, PROVENANCE), "")
    with (tmp_path / "episodes.csv").open(newline="") as lines:
        rows = [
            row for row in csv.DictReader(lines) if row["method"] == "timer" and row["nodes"] == "8"
        ]
    rows = [row for row in rows if row["penalty_interruption"] == "4"]
    row = comparison.row(8, "all", WARY, "timer")
    assert row.interruption_h.value == pytest.approx(
        np.mean([int(each["interruption_s"]) for each in rows]) / HOUR_S
    )
    assert row.penalty_h.value == pytest.approx(
        np.mean([float(each["penalty_h"]) for each in rows]), abs=1e-3
    )
    assert row.node_hours_wasted_total == pytest.approx(
        sum(float(e["node_hours_wasted"]) for e in rows), abs=0.01
    )


def test_equal_input_gives_equal_results(comparison):
    assert json.dumps(results(comparison, PROVENANCE)) == json.dumps(
        results(comparison, PROVENANCE)
    )


def test_a_folder_that_can_not_be_written_is_an_error(comparison, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(MirageError, match="can't be written"):
        write(tmp_path / "file" / "out", comparison, results(comparison, PROVENANCE), "")


# --- the page


class Checker(HTMLParser):
    """Every tag is closed in its order; keeps what the tests look at."""

    VOID = frozenset({"meta", "br", "rect", "line", "circle", "path"})

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.ids, self.links, self.text = [], [], [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.ids += [value for name, value in attrs if name == "id"]
        self.links += [value for name, value in attrs if name in ("href", "src")]
        if tag not in self.VOID or (
            tag in ("rect", "circle") and not self.get_starttag_text().endswith("/>")
        ):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)


@pytest.fixture(scope="module")
def checked(comparison):
    checker = Checker()
    checker.feed(page(comparison, PROVENANCE))
    checker.close()
    return checker


def test_the_page_is_whole_and_needs_nothing_else(comparison, checked):
    assert checked.open == []
    assert all(link.startswith("#") and link[1:] in checked.ids for link in checked.links)
    assert len(set(checked.ids)) == len(checked.ids)
    text = page(comparison, PROVENANCE)
    assert not re.search(r"https?://|<script|@import|url\(", text)
    assert "t&lt;&amp;&gt;.csv" in text
    assert "a&lt;b" in text
    assert "what &lt;timer&gt; does" in text


def test_every_picture_is_well_formed_and_told_in_words(comparison):
    pictures = re.findall(r"<svg.*?</svg>", page(comparison, PROVENANCE), re.DOTALL)
    assert len(pictures) > 20
    for picture in pictures:
        root = ElementTree.fromstring(picture)
        assert root.get("aria-hidden") == "true" or len(root.get("aria-label")) > 20
        assert "nan" not in picture.lower().replace("nano", "")


def test_the_page_can_be_read_without_eyes(checked):
    tags = [tag for tag, _ in checked.tags]
    assert tags.count("h1") == 1
    assert tags.count("table") == tags.count("caption")
    assert ("html", {"lang": "en"}) in checked.tags
    levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h\d", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_the_headline_says_what_came_out(comparison):
    words = headline(comparison)
    row = comparison.row(1, "heavy", EVEN, "foresight")
    assert words.startswith("Under heavy load on 1 node, foresight cut the mean interruption from")
    assert hours(row.interruption_h.value) in words


def judged(queues, sizes):
    """Two pairs of each size, in a queue of its own."""
    choosers = [Never(), PolicyChooser(Timer(3 * HOUR_S), "timer", False), Oracle()]
    setup = Setup(BEGIN_S, 12 * HOUR_S, 2, sizes, LIMIT_S, "paper", resamples=20)
    cases = [
        case for queue, nodes in queues for case in queue.cases(2, every_s=12 * HOUR_S, nodes=nodes)
    ]
    trials = [try_all(case, choosers, setup.all_penalties) for case in cases]
    return compare(
        setup, [MethodInfo(chooser.name, "rule", "") for chooser in choosers], trials, {1: {}}
    )


CALM, LONG = Queue(spells=0, nodes_factor=0.0), Queue(spells=5, nodes_factor=30.0)


def test_the_headline_is_of_the_size_that_met_the_heaviest_load_and_names_it():
    found = judged([(CALM, 1), (LONG, 16)], (1, 16))
    assert headline(found).startswith("Under heavy load on 16 nodes, timer")
    assert "heavy load, 16 nodes" in page(found, PROVENANCE)
    assert headline(judged([(CALM, 1), (CALM, 16)], (1, 16))).startswith(
        "Under light load on 1 node nothing waited"
    )
    assert headline(judged([(CALM, 16)], (1, 16))).startswith(
        "Under light load on 16 nodes nothing waited"
    )


def test_a_mean_that_is_shown_as_0_is_no_wait():
    found = judged([(CALM, 1)], (1,))
    tenth_of_a_minute = Estimate(0.1 / 60)
    summary = tuple(
        replace(
            row,
            interruption_h=tenth_of_a_minute if row.method == "reactive" else Estimate(0),
            reduction=Estimate(1),
        )
        for row in found.summary
    )
    assert headline(replace(found, summary=summary)).startswith(
        "Under light load nothing waited, and timer made 3.0 h"
    )


def test_the_page_says_what_the_data_can_not_tell(comparison):
    told = " ".join(caveats(comparison))
    assert "separate spell" in told
    assert "8 nodes: 2 pairs of jobs are left out" in told
    seen = replace(
        comparison,
        methods=tuple(replace(each, saw_these=each.name == "timer") for each in comparison.methods),
    )
    assert "very time that is shown here: timer" in " ".join(caveats(seen))
    assert "These figures are too good" in page(seen, PROVENANCE)


def test_a_page_of_light_load_alone(comparison):
    """Nothing waits, nobody tells quantiles, and there is no interval to be had."""
    found = judged([(CALM, 1)], (1,))
    assert "None of the methods tells" in page(found, PROVENANCE)
    assert (
        headline(found)
        == "Under light load nothing waited, and timer made 3.0 h of overlap on average"
    )
    json.dumps(results(found, PROVENANCE), allow_nan=False)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0"),
        (0.008, "0"),
        (0.2, "12 min"),
        (-0.5, "\u221230 min"),
        (0.999, "1.0 h"),
        (3.14, "3.1 h"),
        (26.4, "26 h"),
    ],
)
def test_hours_for_people(value, words):
    assert hours(value) == words


@pytest.mark.parametrize(
    ("value", "words"), [(0.001, "0"), (0.25, "0.25"), (-3.2, "\u22123.2"), (1234.5, "1,234")]
)
def test_numbers_for_people(value, words):
    assert number(value) == words


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        ("1:1", "interruption and overlap weigh the same (1:1)"),
        ("4:1", "an hour of interruption weighs as much as 4 of overlap (4:1)"),
        ("1:2", "an hour of overlap weighs as much as 2 of interruption (1:2)"),
        ("1:0", "only interruption counts (1:0)"),
        ("0:1", "only overlap counts (0:1)"),
    ],
)
def test_penalties_in_words(ratio: str, words: str) -> None:
    assert penalties_words(ratio) == words

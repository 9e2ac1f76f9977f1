"""`mirage evaluate` on a small cluster: from a job history to the three files, and what it refuses."""

import json

import numpy as np
import pytest

from mirage.cli import evaluate
from mirage.cli.main import main, parser_of
from mirage.errors import InputError
from mirage.figures.provenance import sha256
from mirage.models.folder import write_folder
from mirage.models.recipe import Recipe
from mirage.provision.evaluation.sampling import Grid, sample
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.background import Background, WarmUp
from mirage.provision.learn.inputs import read_background
from mirage.provision.learn.joblog import read_log
from mirage.provision.learn.sampler import DropReason
from slurm_sim.clusters import read_cluster
from slurm_sim.traces import read_trace
from tests.queue_logs import write_log
from tests.small_cluster import small_cluster

HOUR = 3600
FIRST_S = 1_675_209_600
CLUSTER = small_cluster()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Four nodes, wanted by day and hardly by night, for ten days."""
    folder = tmp_path_factory.mktemp("evaluate")
    random = np.random.default_rng(1)
    submit_s = FIRST_S + np.sort(random.integers(0, 10 * 24 * HOUR, 330))
    submit_s = submit_s[(submit_s % 86_400 < 14 * HOUR) | (random.random(330) < 0.1)]
    lines = ["job_id,user,partition,submit,start,end,timelimit_s,nodes,gpus,cpus,state"]
    for number, at_s in enumerate(submit_s, start=1):
        start_s = at_s + int(random.integers(0, 2 * HOUR))
        end_s = start_s + int(random.integers(HOUR, 6 * HOUR))
        nodes = int(random.integers(1, 3))
        lines.append(
            f"{number},u{number % 7},gpu,{at_s},{start_s},{end_s},{6 * HOUR},{nodes},0,,COMPLETED"
        )
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    (folder / "c.toml").write_text(CLUSTER)
    return folder


def parsed(folder, *more):
    words = [
        "evaluate",
        "pairs",
        "--trace",
        str(folder / "t.csv"),
        "--cluster",
        str(folder / "c.toml"),
        "--workers",
        "1",
    ]
    words += ["--start", "2023-02-03", "--every", "12h", "--episodes", "4", "--limit", "6h"]
    return parser_of("evaluate").parse_args([*words, "--methods", "avg,timer", *more])


def test_jobs_of_a_log_without_memory_keep_nobody_off_their_nodes(files, tmp_path):
    """Slurm gives all memory of its nodes to a job that names none; where no job of the log does,
    nothing is known.
    """
    shared = (
        '[scheduler]\nselect_type = "select/cons_tres"\nmemory_is_consumable = true\n' + CLUSTER
    )
    (tmp_path / "c.toml").write_text(shared)
    header, *jobs = (files / "t.csv").read_text().splitlines()
    (tmp_path / "t.csv").write_text(
        "\n".join([f"{header},mem_mib", f"{jobs[0]},1", *(f"{job}," for job in jobs[1:])])
    )
    for log, told, memory_mib in (
        (files / "t.csv", "memory is not counted: no job of the file names any", {1}),
        (tmp_path / "t.csv", f"{len(jobs) - 1} jobs name no memory", {0, 1}),
    ):
        background, notes = read_background(log, tmp_path / "c.toml")
        assert sum(told in note for note in notes) == 1
        assert {spec.memory_mib_per_node for spec in background.log.submissions()} == memory_mib
        assert background.cluster.counts_memory  # of live jobs it is known


def test_from_a_job_history_to_the_three_files(files, tmp_path, capsys):
    out = tmp_path / "out"
    assert evaluate.run(parsed(files, "--out", str(out), "--nodes", "1,2", "--json")) == 0
    shown = json.loads(capsys.readouterr().out)
    written = json.loads((out / "results.json").read_text())
    assert shown["summary"] == written["summary"]
    assert [method["name"] for method in written["methods"]] == [
        "reactive",
        "avg",
        "timer",
        "oracle",
    ]
    assert {row["nodes"] for row in written["summary"]} == {1, 2}
    assert {row["penalties"] for row in written["summary"]} == {"1:1", "4:1"}
    assert written["provenance"]["trace"]["sha256"] == sha256(files / "t.csv")
    assert "--methods avg,timer" in written["provenance"]["command"]
    assert (out / "report.html").read_text().startswith("<!DOCTYPE html>")


def test_the_same_input_gives_the_same_figures_in_any_number_of_processes(files, tmp_path):
    for workers in ("1", "2"):
        evaluate.run(parsed(files, "--out", str(tmp_path / workers), "--workers", workers))
    one, two = (
        json.loads((tmp_path / workers / "results.json").read_text()) for workers in ("1", "2")
    )
    assert one.pop("provenance") != two.pop("provenance")
    assert one == two
    assert (tmp_path / "1" / "episodes.csv").read_bytes() == (
        tmp_path / "2" / "episodes.csv"
    ).read_bytes()


def test_the_figures_are_shown_to_people(files, tmp_path, capsys):
    evaluate.run(parsed(files, "--out", str(tmp_path), "--penalties", "1:1"))
    shown = capsys.readouterr().out
    assert "1 node, penalties 1:1" in shown
    assert "reactive" in shown
    assert "report.html" in shown


@pytest.mark.parametrize(
    "words",
    [
        ("--start", "yesterday"),
        ("--every", "0h"),
        ("--episodes", "0"),
        ("--nodes", "1,x"),
        ("--penalties", "1"),
        ("--penalties", "0:0"),
        ("--penalties", "-1:1"),
        ("--methods", " , "),
        ("--warm-up", "cold"),
        ("--seed", "-1"),
        ("--start", "0001-01-01"),
        ("--start", "9999-12-31T23:59-12:00"),
    ],
)
def test_wrong_words_are_refused(files, tmp_path, words, capsys):
    with pytest.raises(SystemExit) as ended:
        parsed(files, "--out", str(tmp_path), *words)
    assert ended.value.code == 2
    assert words[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--nodes", "5"), "could never run"),
        (("--partition", "cpu"), "cpu"),
        (("--start", "2023-02-10"), "none of the 4 episodes has an outcome"),
        (
            ("--start", "2022-02-10"),
            "first submission is at 2023-02-01T.*from 2022-02-09T00:00Z on. Begin episodes later",
        ),
        (("--start", "9999-12-31"), "--start 9999-12-31T00:00Z: .*t.csv ends before, at 2023-02-1"),
        (("--trace", "nowhere.csv"), "nowhere.csv"),
        (("--cluster", "nowhere.toml"), "nowhere.toml"),
        (("--methods", "moe-dqn"), "needs a trained model"),
    ],
)
def test_wrong_input_is_one_clear_error_and_leaves_nothing(files, tmp_path, words, message):
    out = tmp_path / "out"
    with pytest.raises(InputError, match=message):
        evaluate.run(parsed(files, "--out", str(out), *words))
    assert not out.exists()


def test_a_start_after_the_history_is_refused_before_any_work(files, tmp_path, monkeypatch):
    monkeypatch.setattr("mirage.provision.evaluation.run._methods", None)
    with pytest.raises(InputError, match="choose an earlier time"):
        evaluate.run(parsed(files, "--out", str(tmp_path / "out"), "--start", "2023-02-12"))


def test_begins_after_the_history_are_left_out_like_those_at_its_end(files, tmp_path, capsys):
    evaluate.run(parsed(files, "--out", str(tmp_path), "--every", "1000000h", "--episodes", "2"))
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "1 node: 1 pair of jobs is left out for want of an outcome (the job history ends"
        " before: 1)." in shown
    )


def test_a_size_without_outcomes_is_told_to_people(files, tmp_path, capsys, monkeypatch):
    def all_wide_ones_dropped(background, plan):
        return (
            DropReason.PREDECESSOR_WAITS
            if plan.pair.successor.nodes == 4
            else sample(background, plan)
        )

    monkeypatch.setattr("mirage.provision.evaluation.trials.sample", all_wide_ones_dropped)
    evaluate.run(parsed(files, "--out", str(tmp_path), "--nodes", "1,4"))
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "4 nodes: 4 pairs of jobs are left out for want of an outcome (the predecessor never"
        " started: 4)." in shown
    )
    with pytest.raises(
        InputError,
        match=r"4 predecessor_waits\); jobs of this size wait for weeks .* smaller --nodes",
    ):
        evaluate.run(parsed(files, "--out", str(tmp_path), "--nodes", "4"))


def test_a_file_in_the_way_is_seen_first(files, tmp_path):
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="is a file"):
        evaluate.run(parsed(files, "--out", str(tmp_path / "out")))


@pytest.fixture(scope="module")
def background(files):
    cluster = read_cluster(files / "c.toml").cluster
    return Background(cluster, read_log(read_trace(files / "t.csv"), cluster))


GRID = Grid(FIRST_S + 2 * 86_400, 12 * HOUR, 3, (1, 2), 6 * HOUR, WarmUp.TRACE)


def test_starts_are_those_of_the_log_and_then_those_of_the_simulation(background):
    plan = next(iter(GRID.plans()))
    case = sample(background, plan)
    starts, from_s = case.starts, plan.begin_s - plan.lead_s
    assert np.all(np.diff(starts.start_s) >= 0)
    assert starts.start_s[-1] <= case.episode.decision_s[-1]
    logged = background.log.column("start_s")
    assert np.sum(starts.start_s <= from_s) == np.sum(logged <= from_s)
    mine = np.flatnonzero(starts.start_s == case.episode.predecessor_start_s)
    assert plan.begin_s + starts.wait_s[mine].max() >= case.episode.predecessor_start_s
    assert set(starts.limit_s.tolist()) == {6 * HOUR}


class _Quiet:
    """A model that never releases, as data: just enough of a folder."""

    name = "quantile"

    def write(self, folder):
        (folder / "weights.json").write_text("{}")


def test_a_model_that_saw_the_months_it_is_judged_on_is_marked(files, tmp_path, background):
    from mirage.provision.evaluation.methods import MethodRequest

    def described(train_s, cluster="small", pool="gpu", nodes=4, trace="00"):
        about = ProvisionAbout(
            cluster=cluster,
            pool=pool,
            nodes=nodes,
            trace="t.csv",
            trace_sha256=trace,
            train_s=train_s,
            validation_s=train_s,
        )
        recipe = Recipe(system="provision", method="quantile", seed=1, about=about.table())
        write_folder(tmp_path / "quantile", _Quiet(), recipe, "card")
        mine = MethodRequest("mine", "quantile", tmp_path / "quantile")
        return mine.described(background.cluster, None, "11", (1000, 2000))

    assert described((1500, 3000)).saw_these
    assert not described((0, 1000)).saw_these
    for other in ({"cluster": "other"}, {"pool": "cpu"}, {"nodes": 76}):
        assert not described((1500, 3000), **other).saw_these
        assert described((1500, 3000), **other, trace="11").saw_these
    assert described((0, 500)).foreign is None
    assert described((0, 500), pool="cpu", nodes=76).foreign == "small cpu with 76 nodes"
    assert described((0, 500)).recipe_sha256 == sha256(tmp_path / "quantile" / "recipe.toml")


def test_forecasts_of_starts_are_judged_on_a_queue_log(tmp_path, capsys):
    log, out = write_log(tmp_path / "log.csv.gz"), tmp_path / "waits"
    words = ["evaluate", "--waits", "--queue-log", str(log), "--start", "2023-02-07"]
    assert main([*words, "--out", str(out), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    result = json.loads((out / "results.json").read_text())
    assert shown == {"out": str(out)} | result
    ours, point, like = result["scores"]
    assert [each["method"] for each in (ours, point, like)] == [
        "mirage when",
        "boosted point",
        "like jobs",
    ]
    assert ours["within_2"] > 0.8 > like["within_2"]
    assert 0.6 <= ours["covered"] <= 1
    assert point["covered"] is None
    assert "by day" in (out / "report.html").read_text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "no column 'poll_time'"),
        ("poll_time,submit_time,job_unique_id,account_id,partition_id\n", "no rows"),
        (
            "poll_time,submit_time,job_unique_id,account_id,partition_id\nnoon,1,1,1,1\n",
            "poll_time: expected 2026-01-31 12:00:00",
        ),
    ],
)
def test_what_is_no_queue_log_is_refused(tmp_path, capsys, text, said):
    path, out = tmp_path / "log.csv", tmp_path / "waits"
    path.write_text(text)
    assert main(["evaluate", "waits", "--queue-log", str(path), "--out", str(out)]) == 2
    assert said in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["pairs"], "--episodes"),
        (["--trace", "t"], "--episodes"),
        (["--out", "t", "--waits"], "--queue-log"),
        (["waits", "--out", "t"], "--queue-log"),
        (["--chains", "--nodes", "1"], "--start, --out"),
    ],
)
def test_what_is_judged_is_a_word_an_option_or_pairs(words, needed, capsys):
    with pytest.raises(SystemExit):
        main(["evaluate", *words])
    assert needed in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "option"),
    [("pairs", "--begins"), ("chains", "--episodes"), ("waits", "--nodes"), ("waits", "--workers")],
)
def test_an_option_of_another_kind_is_refused(kind, option, capsys):
    start = ["--start", "2023-02-01", "--out", "o"]
    history = ["--trace", "t", "--cluster", "c"]
    needed = {
        "pairs": [*history, "--episodes", "1", "--methods", "avg"],
        "chains": history,
        "waits": ["--queue-log", "q"],
    }
    assert main(["evaluate", kind, *start, *needed[kind], option, "2"]) == 2
    said = capsys.readouterr().err
    assert f"unrecognized arguments: {option} 2" in said
    assert f"`mirage evaluate {kind} --help`" in said

"""Streams of arrivals on the simulator, training on them, and the verbs."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from mirage.cli.main import main
from mirage.errors import InputError
from mirage.routing import stream
from mirage.routing.agent import Agent, Layer
from mirage.routing.arrivals import (
    JOBS,
    ArrivalHistory,
    StreamJob,
    bursts,
    draw_streams,
    fitting,
    from_history,
    read_history,
    stream_jobs,
    stream_sizes,
    windows,
)
from mirage.routing.flavors import Demand, paper_partitions, parse_partitions
from mirage.routing.proof import FEWEST, Proof, prove
from mirage.routing.state import Variant, width
from tests.routing_tables import random_agent
from tests.unit.routing.test_plugin import publisher_in

ROOT = Path(__file__).parents[3]
HOUR = 3600
KINDS = paper_partitions()


def job(submit_s: int, gpus: int, hours: int = 1) -> StreamJob:
    return StreamJob(submit_s, hours * HOUR, Demand(gpus, gpus, gpus, hours * HOUR))


def pool(name: str, gpus: int, sizes: dict[int, float], servers: int = 3) -> str:
    """A partition as TOML; ``sizes``: GPUs of each flavour, and its limit in hours. Four CPUs and 1
    GiB a GPU.
    """
    head = f"[{name}]\nservers={servers}\ngpus={gpus}\ncpus={4 * gpus}\nmemory_mib={1024 * gpus}\nidle_w=1\nbusy_w=2\n"
    return head + "".join(
        f"[[{name}.flavors]]\nname='{name}{size}'\ngpus={size}\ncpus={4 * size}\n"
        f"memory_mib={1024 * size}\nlimit_h={limit_h}\n"
        for size, limit_h in sizes.items()
    )


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (pool("a", 1, {1: 0.5}) + pool("b", 1, {1: 0.25}), (1, 1, 1)),
        (pool("a", 4, {1: 0.5, 4: 0.75}) + pool("b", 16, {1: 12, 2: 12, 16: 1}), (1, 4, 16)),
        (pool("a", 6, {2: 24, 6: 48}) + pool("b", 6, {3: 24, 6: 48}), (2, 3, 6)),
    ],
)
def test_streams_fit_servers_of_any_size_and_limits_under_an_hour(
    text: str, sizes: tuple[int, ...]
) -> None:
    kinds = parse_partitions(text, "mine.toml")
    assert stream_sizes(kinds) == sizes
    jobs = bursts(kinds, np.random.default_rng(1))
    assert {each.demand.gpus for each in jobs} == set(sizes)
    for each in jobs:
        assert fitting(kinds, each.demand)
    if sizes == (1, 1, 1):  # limits are drawn, not all cut to the shortest that is allowed
        limits_s = {each.demand.limit_s or 0 for each in jobs}
        assert 225 <= min(limits_s) < max(limits_s) <= 900
        assert len(limits_s) > 10
    outcome = stream.route_stream(kinds, jobs[:40], stream.everywhere)
    assert len(outcome.wait_s) == 40


def test_the_papers_streams_have_two_four_and_eight_gpus() -> None:
    assert stream_sizes(KINDS) == (2, 4, 8)


def test_a_partition_without_a_flavour_of_one_server_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "f.toml"
    file.write_text(
        pool("a", 2, {2: 1})
        + pool("b", 2, {4: 1}, servers=2).replace("[[b.flavors]]", "[[b.flavors]]\nservers=2")
    )
    for verb in (["train", "--episodes", "1"], ["train", "--lesson", "paper"], ["evaluate"]):
        assert main(["route", *verb, "--flavors", str(file), "--out", str(tmp_path / "o")]) == 2
        assert "partition b: no flavour of one server" in capsys.readouterr().err


def test_rules_name_the_partitions_that_they_should() -> None:
    kinds = parse_partitions(pool("a", 2, {1: 5, 2: 5}) + pool("b", 4, {1: 5, 4: 5}), "f.toml")
    under_way = stream.Stream(kinds, [])
    asked = under_way.arrive(job(0, 4))
    assert stream.everywhere(asked) == stream.one_partition(asked) == "b"
    assert stream.every_partition(asked) == "a,b"
    under_way.submit(job(0, 4), "a,b")  # as Slurm does, it starts where it can
    asked = under_way.arrive(job(60, 1))
    assert [server.free[0] for state in asked.states for server in state.servers] == [2] * 3 + [
        0,
        4,
        4,
    ]
    assert (stream.everywhere(asked), stream.one_partition(asked)) == ("a,b", "a")


def test_nice_by_limit_and_gpus_lets_a_short_job_go_first() -> None:
    jobs = [job(0, 8, 2)] * 4 + [job(60, 8, 40), replace(job(120, 8), user="u1")]
    jobs[4] = replace(jobs[4], user="u1")
    plain = stream.route_stream(KINDS, jobs, stream.everywhere)
    nice = stream.route_stream(
        KINDS, [*jobs, job(180, 8, 40)], stream.everywhere, stream.by_gpu_minutes
    )
    assert stream.by_gpu_minutes(Demand(8, limit_s=7200)) == 960
    assert plain.wait_s[5] > 2 * HOUR - 200
    assert nice.wait_s[5] <= plain.wait_s[5]


def test_the_forecast_is_slurms_plan_by_limits() -> None:
    under_way = stream.Stream(KINDS, [])
    for hours in (5, 5):
        under_way.submit(replace(job(0, 8, hours), runtime_s=60), "A100")
    next_one = job(10, 8)
    asked = under_way.with_forecasts(under_way.arrive(next_one), next_one)
    assert asked.states[0].waits_s[2] == pytest.approx(5 * HOUR, abs=300)
    assert asked.states[1].waits_s[2] == 0
    assert under_way.count == 2


def test_waits_completion_utilization_and_energy() -> None:
    jobs = [job(0, 8, 2), job(0, 8, 2), job(60, 8, 1)]
    found = stream.route_stream(KINDS, jobs, lambda _: "A100")
    assert found.wait_s[2] == pytest.approx(2 * HOUR, abs=120)
    assert found.completion_s[2] == pytest.approx(3 * HOUR, abs=120)
    assert found.utilization == pytest.approx(5 * 8 / (32 * 3), rel=0.03)
    assert found.slowdown_mean == pytest.approx((1 + 1 + 3) / 3, rel=0.03)
    idle, busy = 1.5 * 1 + 0.9 * 2 * 3, 6.5 * 5
    assert found.energy_kwh == pytest.approx(idle + busy, rel=0.03)


def test_submitted_everywhere_a_job_starts_where_it_first_can() -> None:
    jobs = [job(0, 8, 9), job(0, 8, 9), job(0, 8, 9), job(60, 8), job(120, 8)]
    found = stream.route_stream(KINDS, jobs, stream.everywhere)
    assert found.wait_s[3] < 120
    assert found.wait_s[4] == pytest.approx(HOUR, abs=180)


UNEQUAL = (
    replace(KINDS[0], speeds=(1.0, 1.0)),
    replace(KINDS[1], speeds=(0.5, 0.25)),
)


def test_how_long_a_job_runs_depends_on_where_it_runs() -> None:
    slow = replace(job(0, 8, 40), runtime_s=HOUR)
    jobs = [slow, replace(slow, submit_s=60, type=1)]
    found = stream.route_stream(UNEQUAL, jobs, lambda _: "V100")
    runs_s = [end - wait for end, wait in zip(found.completion_s, found.wait_s, strict=True)]
    assert runs_s == [2 * HOUR, 4 * HOUR]
    found = stream.route_stream(UNEQUAL, [slow] * 5, stream.everywhere)
    runs_s = [end - wait for end, wait in zip(found.completion_s, found.wait_s, strict=True)]
    assert runs_s == [HOUR, HOUR, 2 * HOUR, 2 * HOUR, HOUR]  # the fifth follows a fast one


def test_a_fork_goes_its_own_way() -> None:
    slow = replace(job(0, 8, 40), runtime_s=HOUR)
    under_way = stream.Stream(UNEQUAL, [slow, slow, slow])
    under_way.submit(slow, "V100")
    twin = under_way.ahead([replace(slow, submit_s=HOUR)])
    assert (under_way.count, twin.total_s()) == (1, pytest.approx((2 + 1) * HOUR, abs=10))
    assert under_way.total_s() == pytest.approx(2 * HOUR, abs=10)


def test_who_knows_run_times_goes_where_servers_get_free_first() -> None:
    under_way = stream.Stream(KINDS, [])
    for _ in range(2):
        under_way.submit(StreamJob(0, HOUR, Demand(8, 8, 8, 10 * HOUR)), "A100")
        under_way.submit(StreamJob(0, 5 * HOUR, Demand(8, 8, 8, 5 * HOUR)), "V100")
    next_one = job(60, 8)
    under_way.arrive(next_one)
    coming = [job(120, 8), job(180, 2)]
    assert under_way.best_known(next_one, coming) in ("A100", "A100,V100")
    assert len(stream.route_knowing(KINDS, [job(0, 8), job(60, 8), job(60, 2)]).wait_s) == 3


def test_being_kept_off_a_slow_partition_gains_what_the_job_runs_shorter() -> None:
    """The fast servers are free in an hour, by limits in fifty; on a slow one the job would run for
    four more.
    """
    pytest.importorskip("torch", reason="the extra `train` is not installed")
    from mirage.routing.advantage import gains_at

    jobs = [
        StreamJob(0, HOUR, Demand(8, 8, 8, 90 * HOUR)),
        StreamJob(0, HOUR, Demand(8, 8, 8, 90 * HOUR)),
        StreamJob(10, 4 * HOUR, Demand(8, 8, 8, 40 * HOUR)),
    ]
    under_way = stream.Stream(UNEQUAL, jobs)
    for each in jobs[:2]:
        under_way.submit(each, "A100")
    asked = under_way.arrive(jobs[2])
    off_fast, off_slow = gains_at(under_way, asked, [])
    assert (off_fast.partition, off_slow.partition) == (0, 1)
    assert off_fast.gain_h == 0
    assert off_slow.gain_h == pytest.approx(8 - (1 + 4), abs=0.02)
    assert len(off_slow.inputs) == width(UNEQUAL[1], Variant.CHOICE, 2)
    assert under_way.count == 2


def test_streams_grow_with_the_servers() -> None:
    many = [replace(kind, servers=40) for kind in KINDS]
    assert len(bursts(many, np.random.default_rng(1))) == stream_jobs(many) == 640
    with pytest.raises(InputError, match="has 640 jobs"):
        windows(ArrivalHistory(*(np.arange(600) for _ in range(5))), many)


def test_generated_streams_fit_everywhere_and_have_the_wanted_load() -> None:
    random = np.random.default_rng(4)
    jobs = bursts(KINDS, random)
    assert len(jobs) == JOBS
    assert all(kind.flavor_of(each.demand) is not None for kind in KINDS for each in jobs)
    assert all(first.submit_s <= then.submit_s for first, then in pairwise(jobs))
    load = sum(each.gpu_s for each in jobs) / (32 * jobs[-1].submit_s)
    assert 0.69 < load < 1.11


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(1)
    lines = ["job_id,user,partition,submit,start,end,timelimit_s,nodes,gpus,cpus,state"]
    at_s = 1_600_000_000
    for number in range(1400):
        at_s += int(random.exponential(600))
        run_s, nodes = int(random.integers(60, 7200)), int(random.choice([1, 1, 2, 4]))
        lines.append(
            f"{number + 1},u,gpu,{at_s},{at_s + 10},{at_s + 10 + run_s},{2 * HOUR},{nodes},0,0,COMPLETED"
        )
    path = tmp_path_factory.mktemp("trace") / "jobs.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_streams_of_a_history_and_its_two_parts(trace: Path) -> None:
    history = read_history(trace)
    learnt, judged = history.part(test=False), history.part(test=True)
    assert learnt.submit_s[-1] <= judged.submit_s[0]
    assert len(learnt.submit_s) + len(judged.submit_s) == 1400
    jobs = from_history(judged, KINDS, 0, np.random.default_rng(1))
    assert {each.demand.gpus for each in jobs} == {2, 4, 8}
    assert all(60 <= each.runtime_s <= 2 * HOUR == each.demand.limit_s for each in jobs)


def test_a_trace_that_is_too_short_is_one_clear_error(tmp_path: Path, trace: Path) -> None:
    short = tmp_path / "short.csv"
    short.write_text("\n".join(trace.read_text().splitlines()[:50]) + "\n")
    with pytest.raises(InputError, match="streams need at least 1200"):
        read_history(short)
    with pytest.raises(InputError, match="none"):
        read_history(tmp_path / "none.csv")


def test_an_agent_learns_the_mean_gain_through_its_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long jobs gain two hours by being kept off, short ones lose two; single gains scatter by six."""
    torch = pytest.importorskip("torch", reason="the extra `train` is not installed")
    from mirage.routing import advantage
    from mirage.routing.network import make_network

    monkeypatch.setattr(advantage, "STEPS", 300)
    torch.manual_seed(1)
    random = np.random.default_rng(1)
    network = make_network(KINDS[1], Variant.CHOICE, (16, 8), 2)
    learner = advantage.Learner(KINDS[1], network, advantage.OPTIONS)
    inputs = random.random((2000, width(KINDS[1], Variant.CHOICE, 2)))
    gains_h = np.where(inputs[:, -2] > 0.5, 2, -2) + random.normal(scale=6, size=len(inputs))
    rows = zip(inputs.tolist(), gains_h.tolist(), strict=True)
    learner.fit([advantage.Gain(1, *row) for row in rows], random)
    others = random.random((200, inputs.shape[1]))
    values = np.array([learner.agent().values(row)[0] for row in others.tolist()])
    assert np.mean((values > 0) == (others[:, -2] > 0.5)) > 0.85


def test_an_agent_that_makes_jobs_wait_is_given_a_margin_that_silences_it() -> None:
    pytest.importorskip("torch", reason="the extra `train` is not installed")
    from mirage.routing.advantage import NEVER_H, _margins

    kinds = [replace(KINDS[0], speeds=(1.0,)), replace(KINDS[1], speeds=(0.1,))]
    rows = ((0.0,),) * width(kinds[0], Variant.CHOICE, 2)
    agents = [
        Agent(kind, Variant.CHOICE, (Layer(rows, (gain,)),))
        for kind, gain in zip(kinds, (20.0, -20.0), strict=True)
    ]
    assert (
        _margins(kinds, agents, draw_streams(kinds, None, 1, np.random.default_rng(1)))[0]
        == NEVER_H
    )


def test_few_windows_prove_nothing() -> None:
    few = draw_streams(KINDS, None, FEWEST - 1, np.random.default_rng(1))
    few = few._replace(jobs=[jobs[:30] for jobs in few.jobs])
    assert prove(KINDS, team_of(-20.0), few) == Proof(1.0, 0.0, np.inf)


def team_of(value: float) -> list[Agent]:
    rows = ((0.0,),) * width(KINDS[0], Variant.CHOICE, 2)
    return [Agent(kind, Variant.CHOICE, (Layer(rows, (value,)),)) for kind in KINDS]


@pytest.mark.parametrize("holds", [True, False])
def test_agents_without_a_proof_are_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holds: bool
) -> None:
    pytest.importorskip("torch", reason="the extra `train` is not installed")
    from mirage.routing import advantage
    from mirage.routing.model import read_model

    for name, value in {"STEPS": 5, "SHARE": 0.02}.items():
        monkeypatch.setattr(advantage, name, value)
    monkeypatch.setattr(advantage, "_margins", lambda *_: [0.0, 0.0])
    proof = Proof(0.9, 0.8, 0.99 if holds else 1.01)
    monkeypatch.setattr(advantage, "prove", lambda *_: proof)
    monkeypatch.setattr("mirage.routing.arrivals.JOBS", 60)
    assert main(["route", "train", "--episodes", "2", "--out", str(tmp_path / "m")]) == 0
    biases = [agent.layers[-1].bias[0] for agent in read_model(tmp_path / "m").agents]
    assert all((bias > -100) is holds for bias in biases)
    card = (tmp_path / "m" / "card.md").read_text()
    assert f"proof: {proof}" in card
    assert ("agents are silent" in card) is not holds


def test_agents_without_a_proof_on_the_sites_history_are_not_published(
    tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("safetensors")
    monkeypatch.setattr("mirage.routing.proof.PROOFS", 2)
    from mirage.routing.model import read_model, record_proof, save_model

    model = tmp_path / "m"
    save_model(model, team_of(-20.0), "nothing", 1, {})
    publish = ["route", "publish", "--run", str(tmp_path), "--model", str(model)]
    prove = ["route", "prove", "--trace", str(trace), "--model", str(model)]
    assert main(publish) == 2
    assert "mirage route prove --model" in capsys.readouterr().err
    record_proof(model, "of last year's jobs")
    assert main(prove) == 2
    assert "not over sooner by these agents" in capsys.readouterr().err
    assert read_model(model).proof == ""
    assert main(publish) == 2
    assert not (tmp_path / "routing.state").exists()
    random = np.random.default_rng(1)
    save_model(model, [random_agent(kind, Variant.PAPER, random) for kind in KINDS], "x", 1, {})
    assert main(prove) == 2
    assert "needs no proof" in capsys.readouterr().err


def test_a_proof_lets_agents_be_published_and_the_service_asks_too(
    tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("safetensors")
    from mirage.config import Config, RoutingConfig
    from mirage.daemon.app import routing_table
    from mirage.routing import proof
    from mirage.routing.model import read_model, save_model
    from mirage.routing.publish import agents_of

    model = tmp_path / "m"
    save_model(model, team_of(-20.0), "nothing", 1, {"margins_h": (0.0, 2.0)})
    config = replace(Config(), routing=RoutingConfig(model=str(model), run=str(tmp_path)))
    with pytest.raises(InputError, match="no proof on the site's own jobs"):
        routing_table(config)
    monkeypatch.setattr(proof, "prove", lambda *_: proof.Proof(0.9, 0.8, 0.99))
    assert main(["route", "prove", "--trace", str(trace), "--model", str(model)]) == 0
    assert read_model(model).proof.endswith("0.990) of that by -p A,B on the last part of jobs.csv")
    assert "0.900 (0.800 to 0.990)" in (model / "card.md").read_text()
    assert agents_of(model) == tuple(team_of(-20.0))
    assert routing_table(config) is not None


def test_train_and_evaluate_write_what_they_say(
    tmp_path: Path, trace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="the extra `train` is not installed")
    from mirage.routing import advantage
    from mirage.routing.model import read_model

    for name, value in {
        "TRIALS": 1,
        "PROOFS": 1,
        "STEPS": 5,
        "SHARE": 0.02,
        "MARGINS_H": (0.0,),
    }.items():
        monkeypatch.setattr(advantage, name, value)
    monkeypatch.setattr("mirage.routing.arrivals.JOBS", 60)
    model = tmp_path / "m"
    assert (
        main(["route", "train", "--trace", str(trace), "--episodes", "2", "--out", str(model)]) == 0
    )
    assert [agent.kind.name for agent in read_model(model).agents] == ["A100", "V100"]
    assert (
        "2 streams of bursts; proof on the first part of jobs.csv"
        in (model / "card.md").read_text()
    )
    out = tmp_path / "out"
    words = [
        "--trace",
        str(trace),
        "--episodes",
        "20",
        "--judged",
        "5",
        "--streams",
        "2",
        "--known",
        "1",
        "--model",
        str(model),
        str(model),
    ]
    assert main(["route", "evaluate", *words, "--out", str(out)]) == 0
    assert [path.name for path in out.iterdir()] == ["results.json"]
    results = json.loads((out / "results.json").read_text())
    assert set(results["paper"]) == {"A100", "V100"}
    assert set(results["streams"]) == {"bursts", "jobs.csv"}
    assert results["streams"]["bursts"]["-p A,B"]["completion_to_all"] == [1, 1, 1]
    assert len(results["streams"]["jobs.csv"]["agents"]["seeds"]) == 2
    figures = results["paper"]["A100"]
    assert figures["best possible"]["run_h"] <= figures["first-fit"]["run_h"]
    assert results["provenance"]["jobs.csv"]["file"] == "jobs.csv"
    said = capsys.readouterr().out
    for row in ("| all_partitions |", "| -p A,B --nice |", "| agents |", "| best possible |"):
        assert row in said


def test_partitions_without_a_full_job_have_no_episodes(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra `train` is not installed")
    from mirage.routing.evaluate import Plan, evaluate

    kinds = parse_partitions(pool("a", 2, {1: 5, 2: 5}) + pool("b", 2, {1: 5}), "f.toml")
    rows = ((0.0,),) * width(kinds[0], Variant.CHOICE, 2)
    team = tuple(Agent(kind, Variant.CHOICE, (Layer(rows, (-1.0,)),)) for kind in kinds)
    results = evaluate(kinds, Plan(streams=1, known=1, teams=(team,)), lambda _: None)
    assert results["paper"] == {}
    assert results["streams"]["bursts"]["agents"]["completion_to_all"] == [1, 1, 1]


def test_the_papers_lesson(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra `train` is not installed")
    from mirage.routing.model import read_model

    words = ["--lesson", "paper", "--episodes", "3", "--out", str(tmp_path / "m")]
    assert main(["route", "train", *words]) == 0
    assert {agent.variant for agent in read_model(tmp_path / "m").agents} == {Variant.PAPER}


def test_wrong_use_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("years")
    assert main(["route", "train", "--out", str(tmp_path)]) == 2
    assert "has files that are no model" in capsys.readouterr().err
    assert main(["route", "publish", "--model", str(tmp_path / "none")]) == 2
    assert main(["route", "publish", "--model", str(tmp_path), "--every", "300"]) == 2
    assert "every state would be stale" in capsys.readouterr().err
    assert main(["route", "publish"]) == 2
    assert "give --partitions A,B" in capsys.readouterr().err


def test_agents_that_slurmctld_would_wait_for_too_long_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("torch", reason="the extra `train` is not installed")
    from mirage.routing.model import save_model
    from mirage.routing.publish import agents_of

    lines = (ROOT / "mirage/routing/flavors.toml").read_text().split("[V100]")[0]
    flavors = tmp_path / "many.toml"
    flavors.write_text(
        lines.split('[[A100.flavors]]\nname = "f-A100"')[0].replace("servers = 2", "servers = 64")
    )
    words = ["--flavors", str(flavors), "--out", str(tmp_path / "m")]
    assert main(["route", "train", "--lesson", "paper", *words]) == 2
    assert "--lesson streams" in capsys.readouterr().err
    agent = random_agent(replace(KINDS[0], servers=200), Variant.PAPER, np.random.default_rng(1))
    save_model(tmp_path / "m", [agent], "nothing", 1, {})
    with pytest.raises(InputError, match="since slurmctld waits"):
        publisher_in(tmp_path, agents=agents_of(tmp_path / "m"))

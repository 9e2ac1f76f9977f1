"""The plugin in plain Lua: agrees with the Python reference in every choice, and never stands in a
job's way.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mirage.routing.agent import Agent, Layer
from mirage.routing.decide import Choice, RoutedJob, corrected, decide, limit_of
from mirage.routing.flavors import Demand, paper_partitions
from mirage.routing.places import places_of
from mirage.routing.state import Variant, width
from mirage.routing.table import (
    AGENTS,
    STATE,
    agents_text,
    read_agents,
    read_state,
    state_text,
    write,
)
from tests.routing_tables import (
    NOW_S,
    idle_table,
    larger,
    plain_agents,
    random_agent,
    random_demand,
    random_table,
    rough,
    with_nan,
)

LIB = Path(__file__).parents[3] / "mirage" / "routing" / "lua"
LUA = Path(__file__).parents[2] / "lua"
TABLES, JOBS = 120, 20


@pytest.fixture(params=["lua5.1", "lua5.3", "lua5.4"])
def lua(request: pytest.FixtureRequest) -> str:
    return needed(request.param)


def needed(command: str) -> str:
    """A command of Debian's packages; skips where it is missing, unless scripts/test has installed
    it.
    """
    if shutil.which(command) is None:
        if os.environ.get("MIRAGE_LUA_REQUIRED"):
            pytest.fail(f"{command} is missing; scripts/lua-up installs it")
        pytest.skip(f"{command} is not installed (scripts/lua-up, as root on Debian)")
    return command


def run(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def shown(choice: Choice | None) -> str:
    """As tests/lua/choices.lua prints it."""
    if choice is None:
        return "-"
    return f"{choice.names} {choice.flavors[0]} {-1 if choice.place is None else choice.place}"


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Random tables, agents and bursts of jobs, and the reference's choices."""
    folder, random = tmp_path_factory.mktemp("cases"), np.random.default_rng(5)
    lines: list[str] = []
    choices: list[str] = []
    for number in range(TABLES):
        a100, v100 = paper_partitions()
        kinds = (
            (a100, v100)
            if number % 2
            else (a100, larger(v100, 5), larger(replace(a100, name="more"), 3))
        )
        variant = list(Variant)[number // 2 % 2]
        agents = [random_agent(kind, variant, random, len(kinds)) for kind in kinds]
        if number % 5 == 0:
            agents = [rough(agent) for agent in agents]
        table = random_table(kinds, random)
        agents_of, state_of = folder / f"{number}.agents", folder / f"{number}.state"
        agents_of.write_text(agents_text(agents))
        state_of.write_text(state_text(table, agents_text(agents)))
        lines.append(f"table {number}")
        routed: list[RoutedJob] = []
        for _ in range(JOBS):
            demand, now_s = random_demand(random), NOW_S + int(random.integers(600))
            allowed = [kind.name for kind in kinds if random.random() < 0.9] or ["none"]
            choice = decide(corrected(table, routed), agents, demand, allowed)
            if choice:
                routed.append(RoutedJob(now_s, choice, limit_of(table, choice, demand)))
            sizes = (demand.gpus, demand.cpus, demand.memory_mib, demand.nodes, demand.limit_s or 0)
            lines.append(f"job {now_s} {' '.join(map(str, sizes))} {','.join(allowed)}")
            kind = str(random.choice(["", "a100", "v100"]))
            many = int(random.integers(1, 5))
            lines[-1] += f" {many} {kind or '-'}"
            asked = Demand(
                nodes=many,
                gpus=demand.gpus // 2 * many,
                gpu_type=kind,
                cpus=demand.cpus,
                memory_mib=demand.memory_mib,
                limit_s=demand.limit_s,
            )
            places = ",".join(places_of(table.places, asked, allowed)) or "-"
            choices.append(f"{shown(choice)} {places}")
    (folder / "cases").write_text("\n".join(lines) + "\n")
    return folder, choices


def test_lua_chooses_as_the_reference(cases: tuple[Path, list[str]], lua: str) -> None:
    folder, choices = cases
    assert run(lua, str(LUA / "choices.lua"), str(LIB), str(folder)).splitlines() == choices


def test_the_random_cases_are_of_every_kind(cases: tuple[Path, list[str]]) -> None:
    choices = [choice.rpartition(" ")[0] for choice in cases[1]]
    assert {choice.split()[0].split(",")[0] for choice in choices} == {"A100", "V100", "more", "-"}
    assert any(choice.startswith("A100,V100,more") for choice in choices)
    assert any(choice.startswith("A100,V100 ") for choice in choices)
    assert any(choice.split()[0] == "more" and choice.endswith("-1") for choice in choices)
    waits = sum(choice.endswith(" -1") for choice in choices)
    assert waits > 100
    assert len(choices) - waits > 200
    assert len(set(choices)) > 25
    places = {choice.rpartition(" ")[2] for choice in cases[1]}
    assert {"-", "A100", "V100", "more", "A100,V100", "V100,A100", "more,A100"} <= places


@pytest.fixture
def good(tmp_path: Path) -> Path:
    folder = tmp_path / "good"
    folder.mkdir()
    (tmp_path / "scratch").mkdir()
    now_s, agents = int(time.time()), agents_text(plain_agents())
    write(folder, AGENTS, agents)
    states = {STATE: now_s - 30, "same.state": now_s - 20, "later.state": now_s + 50}
    states |= {"stale.state": now_s - 601, "future.state": now_s + 1000}
    for name, at_s in states.items():
        write(folder, name, state_text(idle_table(at_s), agents))
    write(folder, "places.state", state_text(replace(idle_table(now_s), partitions=())))
    body = with_nan(agents)
    nan = f"mirage-agents 3 {zlib.adler32(body.encode())} {len(body)}\n{body}"
    assert "nan" in nan
    write(folder, "nan.agents", nan)
    write(folder, "nan.state", state_text(idle_table(now_s), nan))
    return folder


def test_shim(good: Path, lua: str) -> None:
    told = run(lua, str(LUA / "test_shim.lua"), str(LIB), str(good), str(good.parent / "scratch"))
    assert len(told.splitlines()) == (LUA / "test_shim.lua").read_text().count("\nfunction tests.")


def test_luacheck() -> None:
    files = sorted(map(str, [*LIB.glob("*.lua"), *LUA.glob("*.lua")]))
    run(
        needed("luacheck"),
        "--std",
        "max",
        "--globals",
        "slurm",
        "--max-line-length",
        "120",
        "--no-color",
        *files,
    )


def test_plugin_opens_no_socket_runs_no_command_and_does_not_wait() -> None:
    code = "".join(path.read_text() for path in LIB.glob("*.lua"))
    for word in (
        "popen",
        "os.execute",
        "require",
        "socket.",
        "sleep(",
        "load(",
        "loadstring",
        "os.exit",
    ):
        assert word not in code


def test_published_files_read_back_as_they_were(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    kinds = paper_partitions()
    agents, table = (
        [random_agent(kind, Variant.PAPER, random) for kind in kinds],
        random_table(kinds, random),
    )
    write(tmp_path, AGENTS, agents_text(agents))
    write(tmp_path, STATE, state_text(table, agents_text(agents)))
    found, checksum = read_agents(tmp_path / AGENTS)
    assert [agent.layers for agent in found] == [agent.layers for agent in agents]
    assert read_state(tmp_path / STATE, kinds) == (table, checksum)
    assert [path.name for path in sorted(tmp_path.iterdir())] == [AGENTS, STATE]


def test_a_job_goes_where_its_value_is_highest_and_a_burst_is_spread() -> None:
    table, agents, routed = idle_table(NOW_S), plain_agents(), []
    for _ in range(6):
        choice = decide(corrected(table, routed), agents, Demand(8), {"A100", "V100"})
        assert choice is not None
        routed.append(RoutedJob(NOW_S, choice, 3600))
    found = [(job.choice.names, job.choice.place) for job in routed]
    assert found == [
        ("A100", 0),
        ("A100", 1),
        ("V100", 0),
        ("V100", 1),
        ("A100,V100", None),
        ("A100,V100", None),
    ]


def test_without_agents_a_job_goes_everywhere_that_can_run_it_the_shortest_wait_first() -> None:
    places, both = idle_table(NOW_S).places, {"A100", "V100"}

    def names(job: Demand) -> list[str]:
        return places_of(places, job, both)

    assert names(Demand(nodes=1, gpus=8)) == ["V100", "A100"]
    assert names(Demand(nodes=2, gpus=16, limit_s=10**6)) == ["V100", "A100"]
    assert names(Demand(nodes=1, gpus=2, gpu_type="a100")) == ["A100"]
    assert names(Demand(nodes=1, gpus=2, memory_mib=600_000)) == ["A100"]
    for too_much in (Demand(nodes=3, gpus=3), Demand(nodes=1, gpus=9)):
        assert names(too_much) == []
    assert names(Demand(nodes=1, gpus=0)) == []  # it would take GPUs from those who need them
    assert places_of(places, Demand(nodes=1, gpus=1), {"A100"}) == ["A100"]


def test_an_agent_keeps_a_job_off_its_partition_only_where_it_expects_a_gain() -> None:
    kinds, table = paper_partitions(), idle_table(NOW_S)
    for state in table.partitions:
        state.wait(0, 3600)
    rows = width(kinds[0], Variant.CHOICE, 2)

    def names(gains: tuple[float, float]) -> str:
        agents = [
            Agent(kind, Variant.CHOICE, (Layer(((0.0,),) * rows, (gain,)),))
            for kind, gain in zip(kinds, gains, strict=True)
        ]
        found = decide(table, agents, Demand(4), {"A100", "V100"})
        assert found is not None
        return found.names

    assert names((-1.0, 0.0)) == "A100,V100"
    assert names((-1.0, 0.5)) == "A100"
    assert names((1.0, 0.5)) == "V100"  # the last one is not asked

"""Any text, and any damage to right text: each parser gives records or its own error, and never
another exception.

The parsers of squeue, sacct, sinfo, sacctmgr and sbatch have theirs in test_parsing.py.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mirage.chain.batch_script import parse_script
from mirage.chain.command_line import parse_request
from mirage.chain.directives import directives
from mirage.chain.durations import parse_duration, parse_time_limit
from mirage.chain.folder import OVER_MARKERS, over_marker, queued_jobs, read_link, read_record
from mirage.chain.request import with_directives
from mirage.chain.tag import parse_tag
from mirage.config import parse_config
from mirage.config_sources import load
from mirage.daemon.drift import drift
from mirage.daemon.impact import impact
from mirage.daemon.metrics import parse_address
from mirage.daemon.socket import Source, answer
from mirage.errors import ClusterNonsense, InputError, MirageError
from mirage.models.folder import read_recipe
from mirage.models.recipe import RECIPE, sealed
from mirage.slurm.resources import parse_node_use
from mirage.slurm.survey import controller_time_s
from mirage.store.journal import read_journal
from mirage.store.repository import SqlStore
from mirage.store.url import parse_url
from slurm_sim import JobSpec, Simulator
from slurm_sim.clusters import read_cluster, read_live
from slurm_sim.errors import InvalidCluster, SimulationError
from slurm_sim.traces import TraceError
from slurm_sim.traces.sacct import import_sacct

DATA = Path(__file__).parents[2] / "data" / "slurm"
few = settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)

SLURM_CONF = """\
ClusterName=c
SlurmctldHost=localhost(127.0.0.1)
SchedulerParameters=bf_window=2880,bf_interval=30,default_queue_depth=100
PriorityType=priority/multifactor
PriorityMaxAge=7-0
NodeName=n[1-4,7] CPUs=4 RealMemory=4000 Gres=gpu:a100:2 State=UNKNOWN
PartitionName=gpu Nodes=ALL Default=YES MaxTime=2-00:00:00 \\
    PriorityTier=10 State=UP
Include other.conf
"""
CLUSTER_TOML = """\
[cluster]
name = "c"
[scheduler]
bf_interval_s = 30
bf_max_job_user = 20
priority_weight_age = 1000
[[nodes]]
name = "n"
count = 4
gpus = 2
[[partitions]]
name = "gpu"
nodes = "ALL"
max_time_s = "2-0"
priority_tier = 3
[[qos]]
name = "normal"
max_jobs_per_user = 5
[[reservations]]
name = "r"
start_s = 60
end_s = 120
nodes = "n1"
[[node_changes]]
time_s = 90
node = "n2"
action = "DOWN"
"""
SACCT = "JobID|Submit|User|State|Start|End|TimelimitRaw|NNodes\n"
SACCT += "5_[2-7%2]|9|al|COMPLETED|9|10|60|1\n6|1|b|FAILED|2|3||2\n"
CONFIG = (
    '[daemon]\npoll_s = 600\nstore = "sqlite:////x"\n[acting]\nmode = "observe"\nusers = ["a",'
    ' "b"]\n[policy.timer]\n'
)
SCRIPT = """\
#!/bin/sh
#SBATCH --time=1:00:00 -p "gpu" # x
#MIRAGE --segments 5 --mode=train --penalties 4:1
#MIRAGE --done-file 'a b' --on-failure retry:3 --total-time 7d
echo
"""
LIVE = (
    (
        "Configuration data as of 1700000000\nClusterName = c\nSchedulerType ="
        " sched/backfill\nPriorityMaxAge = 7-0\n\nSlurmctld(primary) at c is UP\n"
    ),
    "NodeName=n1 CPUTot=4 RealMemory=4000 Gres=gpu:2 State=IDLE+DRAIN Weight=1 Partitions=gpu\n",
    "PartitionName=gpu MaxTime=2-00:00:00 Nodes=n1 State=UP PriorityTier=1 Default=YES\n",
    "Name|Priority|MaxJobsPU|GrpTRES\nnormal|0|5|gres/gpu=4\n",
    "Cluster|Account|User|ParentName|RawShares|MaxJobs\nc|root|||1|\nc|a||root|1|\nc|a|u||1|3\n",
)
SPECIAL = [
    "\n",
    "|",
    '"',
    "'",
    "\\",
    "=",
    "[",
    "]",
    "[1-",
    "999999999999999999999",
    "-1",
    "\0",
    "é",
    "\ud7ff",
    "#",
    "%",
    ":",
    ",",
]


def damaged(text: str) -> st.SearchStrategy[str]:
    """The text with pieces cut out, doubled, or replaced by what separators and numbers are made
    of.
    """

    @st.composite
    def draw(pick: st.DrawFn) -> str:
        words = text
        for _ in range(pick(st.integers(1, 4))):
            place = pick(st.integers(0, len(words)))
            end = pick(st.integers(place, min(len(words), place + 12)))
            words = (
                words[:place]
                + pick(st.one_of(st.sampled_from(SPECIAL), st.text(max_size=5)))
                + words[end:]
            )
        return words

    return st.one_of(draw(), st.text())


def as_file(path: Path, text: str) -> Path:
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    return path


def check(
    strategy: st.SearchStrategy[str], parse: Callable[[str], object], *errors: type[Exception]
) -> None:
    @few
    @given(strategy)
    def run(text: str) -> None:
        with suppress(*errors):
            parse(text)

    run()


def test_a_script_with_mirage_lines() -> None:
    def parse(text: str) -> None:
        content = os.fsencode(text.encode("utf-8", "surrogatepass"))
        list(directives(io.BytesIO(content)))
        with_directives(parse_request(["x.sh"]), content, "x.sh")
        parse_script(content)

    check(damaged(SCRIPT), parse, InputError)


@few
@given(
    st.lists(
        st.one_of(
            st.text(),
            st.sampled_from(["--segments", "--mode=", "-p", "--", "x.sh", "--comment", "-"]),
        )
    )
)
def test_a_command_line(words: list[str]) -> None:
    with suppress(InputError):
        parse_request(words)


def test_a_tag() -> None:
    check(
        damaged("mirage/1 chain=abcdef12 seg=2/5 pred=77 mode=train ei=4 eo=1 -- hello"), parse_tag
    )


@pytest.mark.parametrize("parse", [parse_time_limit, parse_duration])
def test_a_duration(parse: Callable[[str], object]) -> None:
    check(damaged("1-12:30:00"), parse, ValueError)
    check(damaged("7d12h30m"), parse, ValueError)


def test_a_configuration() -> None:
    check(damaged(CONFIG), parse_config, InputError)


@few
@given(st.sampled_from(["DAEMON__POLL_S", "ACTING__USERS", "POLICY", "X", "", "__"]), st.text())
def test_a_variable_of_the_environment(tmp_path: Path, name: str, text: str) -> None:
    with suppress(InputError):
        load(None, tmp_path / "none.toml", {f"MIRAGE__{name}": text})


def test_a_slurm_conf_and_a_clusters_toml(tmp_path: Path) -> None:
    def use(words: str, name: str) -> None:
        simulator = Simulator(
            read_cluster(as_file(tmp_path / name, words)).cluster, [JobSpec(1, 60, 30)]
        )
        simulator.run_until(600)

    for name, text in (("slurm.conf", SLURM_CONF), ("c.toml", CLUSTER_TOML)):
        check(damaged(text), lambda words, name=name: use(words, name), SimulationError)


@pytest.mark.parametrize("index", range(len(LIVE)))
def test_what_a_live_slurm_says_of_itself(index: int) -> None:
    read_live(*LIVE)
    check(
        damaged(LIVE[index]),
        lambda text: read_live(*LIVE[:index], text, *LIVE[index + 1 :]),
        InvalidCluster,
    )


def test_what_sacct_printed_for_an_import(tmp_path: Path) -> None:
    assert import_sacct(as_file(tmp_path / "t", SACCT)).rows == 2
    check(damaged(SACCT), lambda text: import_sacct(as_file(tmp_path / "t", text)), TraceError)


def test_nodes_for_routing_and_slurmctlds_time() -> None:
    check(
        damaged("n1|gpu*|0/4/0/4|4000|100|gpu:a100:2(S:0)|gpu:a100:1|idle|\n"),
        parse_node_use,
        ClusterNonsense,
    )
    check(damaged(LIVE[0]), controller_time_s, ClusterNonsense)


def test_an_address_and_a_stores_url() -> None:
    check(damaged("127.0.0.1:9815"), lambda text: parse_address(text, "metrics"), InputError)
    check(damaged("postgresql://u:p@h:5432/d?sslmode=require"), parse_url, InputError)


def test_a_models_recipe(tmp_path: Path) -> None:
    from mirage.models.shipped import shipped

    text = (shipped("kth-sp2") / "quantile" / RECIPE).read_text()
    first, _, rest = text.split("\n", 2)

    def read(words: str) -> None:
        read_recipe(as_file(tmp_path / RECIPE, words).parent)

    check(damaged(text), read, InputError)
    check(damaged(rest), lambda words: read(sealed(first, words)), InputError)


def test_a_chains_records(tmp_path: Path) -> None:
    def parse(text: str) -> None:
        for name in ("link.1", "queued.1", "chain", *OVER_MARKERS):
            as_file(tmp_path / name, text)
        read_record(tmp_path / "chain")
        read_link(tmp_path, 1)
        queued_jobs(tmp_path)
        over_marker(tmp_path)

    check(damaged("job=5\nstart=1\nwork=2\nend=3\nexit=0\nhow=exit\n"), parse)

    @few
    @given(st.binary(max_size=30))
    def not_even_text(content: bytes) -> None:
        for name in ("link.1", "queued.1", "chain", "done"):
            (tmp_path / name).write_bytes(content)
        read_record(tmp_path / "chain")
        read_link(tmp_path, 1)
        queued_jobs(tmp_path)
        over_marker(tmp_path)

    not_even_text()


ANY_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text()),
    lambda inner: st.one_of(
        st.lists(inner),
        st.dictionaries(st.one_of(st.text(), st.sampled_from(["ask", "chain", "job"])), inner),
    ),
)


@few
@given(
    st.one_of(
        ANY_JSON,
        st.fixed_dictionaries(
            {"ask": st.sampled_from(["chains", "explain"]), "chain": ANY_JSON, "job": ANY_JSON}
        ),
    )
)
def test_a_question_at_the_socket(question) -> None:
    with SqlStore.open("sqlite://") as store, suppress(MirageError):
        answer(Source(store=store), "mirage-alice", question)


DECISION = (
    '{"at":5,"kind":"decision","user":"a","chain":"c","successor":2,"predecessor":1,"action":"release","held_back":null,'
    '"model":{"version":"v"},"reason":"x","remaining_s":9,"wait_p10_s":1,"wait_p50_s":2,"wait_p90_s":3}\n'
)


def test_an_audit_log(tmp_path: Path) -> None:
    def parse(text: str) -> None:
        path = as_file(tmp_path / "audit.jsonl", text)
        impact(read_journal(path), 0, 100, 3600)
        drift(read_journal(path), 100)

    check(damaged(DECISION * 2), parse, MirageError)

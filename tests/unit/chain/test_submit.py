"""mirage-submit with a fake sbatch, and what its parts make of the command line."""

from __future__ import annotations

import errno
import json
import os
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from mirage.chain.batch_script import parse_script
from mirage.chain.folder import (
    chain_folder,
    make_chains_folder,
    mark_over,
    over_marker,
    queued_jobs,
    read_link,
    read_then,
    then_script,
)
from mirage.chain.sbatch import take_options
from mirage.chain.tag import parse_tag
from mirage.cli.submit import main
from mirage.daemon.socket import Source, serving
from mirage.errors import InputError
from mirage.store.lock import exclusive
from mirage.store.memory import MemoryStore

SBATCH = r"""#!/bin/sh
printf '%s\037' "$@" >>"$FAKE/sbatch"; echo >>"$FAKE/sbatch"
calls=$(wc -l <"$FAKE/sbatch" | tr -d ' ')
[ ! -e "$FAKE/do.$calls" ] || . "$FAKE/do.$calls"
[ ! -e "$FAKE/refuse.$calls" ] || { cat "$FAKE/refuse.$calls" >&2; exit "$(cat "$FAKE/exit" 2>/dev/null || echo 1)"; }
echo "$((100 + calls));mycluster"
"""
SCANCEL = '#!/bin/sh\necho "$*" >>"$FAKE/scancel"\n[ ! -e "$FAKE/scancel.fails" ]\n'
SQUEUE = (
    '#!/bin/sh\n[ ! -e "$FAKE/down" ] && cat "$FAKE/queue" 2>/dev/null || [ ! -e "$FAKE/down" ]\n'
)
SCRIPT = """#!/bin/bash
#SBATCH --time=1:00:00   # an hour
#SBATCH -p gpu

echo hello
#SBATCH --time=5
"""


class Site:
    """A user's home with a script in it, and fakes of sbatch and scancel."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.fake = root / "fake"
        self.chains = root / "home" / ".mirage" / "chains"

    def write(self, name: str, content: str) -> None:
        (self.root / name).write_text(content)

    def refuse(self, call: int, message: str) -> None:
        (self.fake / f"refuse.{call}").write_text(f"{message}\n")

    def in_call(self, call: int, shell: str) -> None:
        """Shell code for the fake sbatch to run in this call, before it prints the id. `$PPID` is
        mirage-submit.
        """
        (self.fake / f"do.{call}").write_text(shell)

    def sbatch_calls(self) -> list[list[str]]:
        path = self.fake / "sbatch"
        return (
            [line.split("\037")[:-1] for line in path.read_text().splitlines()]
            if path.exists()
            else []
        )

    def cancelled(self) -> list[str]:
        path = self.fake / "scancel"
        return path.read_text().splitlines() if path.exists() else []

    def folders(self) -> list[Path]:
        return list(self.chains.iterdir()) if self.chains.exists() else []


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    for folder in ("bin", "fake", "home"):
        (tmp_path / folder).mkdir()
    for name, body in (("sbatch", SBATCH), ("scancel", SCANCEL), ("squeue", SQUEUE)):
        (tmp_path / "bin" / name).write_text(body)
        (tmp_path / "bin" / name).chmod(0o755)
    for name in [name for name in os.environ if name.startswith(("SLURM", "SBATCH", "MIRAGE"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE", str(tmp_path / "fake"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    site = Site(tmp_path)
    site.write("train.sbatch", SCRIPT)
    return site


def option(words: Sequence[str], name: str) -> str:
    return next(word.partition("=")[2] for word in words if word.startswith(f"--{name}="))


# ---- What is submitted


def test_a_chain_is_its_first_link_and_one_successor(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--segments", "5", "-N", "2", "train.sbatch", "a b", "--segments=9"]) == 0
    first, second = site.sbatch_calls()
    (folder,) = site.folders()
    tag = f"mirage/1 chain={folder.name} seg={{}}/20 of=5{{}} mode=train ei=1 eo=1"
    own = ["-N", "2", "--job-name=train.sbatch"]
    job = str(folder / "job.sh")
    assert first == [
        *own,
        "--parsable",
        f"--comment={tag.format(1, '')}",
        job,
        "1",
        "0",
        "a b",
        "--segments=9",
    ]
    assert second == [
        *[*own, f"--chdir={site.root}", "--parsable", f"--comment={tag.format(2, ' pred=101')}"],
        *["--dependency=afterany:101", job, "2", "101", "a b", "--segments=9"],
    ]
    assert (
        capsys.readouterr().out
        == f"Submitted chain {folder.name}: 5 time limits (at most 20 links); jobs 101 102, then each link"
        " queues the next\n"
    )


def test_the_folder_is_the_owners_alone_and_complete(site: Site) -> None:
    main(["--segments", "2", "train.sbatch"])
    (folder,) = site.folders()
    assert [
        stat.S_IMODE(path.stat().st_mode) for path in (site.chains.parent, site.chains, folder)
    ] == [0o700] * 3
    assert (folder / "script").read_text() == SCRIPT
    assert os.access(folder / "script", os.X_OK)
    assert queued_jobs(folder) == {1: 101, 2: 102}
    assert not (folder / "submitting").exists()
    assert list(folder.glob(".*")) == []


def test_the_job_script_has_the_users_directives_first(site: Site) -> None:
    main(["--segments", "2", "train.sbatch"])
    (folder,) = site.folders()
    lines = (folder / "job.sh").read_text().splitlines()
    assert lines[:3] == ["#!/bin/sh", "#SBATCH --time=1:00:00   # an hour", "#SBATCH -p gpu"]
    assert "#SBATCH --time=5" not in lines


def test_up_front_queues_every_link_behind_the_one_before(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--segments=4", "--up-front", "--json", "train.sbatch"]) == 0
    calls = site.sbatch_calls()
    assert [option(words, "dependency") for words in calls[1:]] == [
        "afterany:101",
        "afterany:102",
        "afterany:103",
    ]
    document = json.loads(capsys.readouterr().out)
    assert document["segments"] == 4
    assert document["jobs"] == [{"segment": k, "job_id": 100 + k} for k in (1, 2, 3, 4)]
    assert document["folder"] == str(chain_folder(document["chain"]))


def test_a_chain_of_one_is_one_job(site: Site) -> None:
    assert main(["--segments=1", "train.sbatch"]) == 0
    assert len(site.sbatch_calls()) == 1


def test_dependency_and_begin_are_for_the_first_link(site: Site) -> None:
    main(["--segments=2", "-d", "afterok:7", "--begin=20:00", "--mem", "5G", "train.sbatch"])
    first, second = site.sbatch_calls()
    assert first[:5] == ["-d", "afterok:7", "--begin=20:00", "--mem", "5G"]
    assert second[:4] == ["--mem", "5G", "--job-name=train.sbatch", "--begin=now"]
    assert "afterok:7" not in second


def test_begin_in_the_script_is_for_the_first_link_too(site: Site) -> None:
    site.write("late.sh", "#!/bin/sh\n#SBATCH --begin=20:00\n")
    main(["--segments=2", "late.sh"])
    first, second = site.sbatch_calls()
    assert "--begin=now" not in first
    assert "--begin=now" in second


@pytest.mark.parametrize("words", [["--comment=mine | -- x"], ["--comment", "mine | -- x"]])
def test_the_users_comment_is_kept_behind_the_tag(site: Site, words: list[str]) -> None:
    main(["--segments=2", *words, "train.sbatch"])
    for call in site.sbatch_calls():
        assert option(call, "comment").endswith(" eo=1 -- mine | -- x")
        assert parse_tag(option(call, "comment"))
        assert sum(word.startswith("--comment") for word in call) == 1


def test_the_comment_of_the_script_is_kept_too(site: Site) -> None:
    site.write("a.sh", '#!/bin/sh\n#SBATCH --comment "my run"\n')
    main(["--segments=1", "a.sh"])
    assert option(site.sbatch_calls()[0], "comment").endswith(" -- my run")


def test_a_job_name_of_the_users_own_stays(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.write("a.sh", "#!/bin/sh\n#SBATCH -J mine\n")
    main(["--segments=1", "a.sh"])
    main(["--segments=1", "-J", "mine", "train.sbatch"])
    monkeypatch.setenv("SBATCH_JOB_NAME", "mine")
    main(["--segments=1", "train.sbatch"])
    for call in site.sbatch_calls():
        assert "--job-name=train.sbatch" not in call


def test_mode_and_penalties_stand_in_the_tag(site: Site) -> None:
    main(
        [
            "--segments=1",
            "--mode=service",
            "--penalty-interruption=2.5",
            "--penalty-overlap",
            "0",
            "train.sbatch",
        ]
    )
    tag = parse_tag(option(site.sbatch_calls()[0], "comment"))
    assert tag
    assert (tag.mode.value, tag.penalties.interruption, tag.penalties.overlap) == (
        "service",
        2.5,
        0,
    )


@pytest.mark.parametrize(
    ("total", "words", "segments"),
    [
        ("10:00:00", [], 40),
        ("90min", [], 8),
        ("1-0", ["-t", "7:00:00"], 16),
        ("1h", ["--time=0:30"], 240),
        ("1h", ["--time=0:30", "--up-front"], 60),
    ],
)
def test_total_time_is_divided_by_the_time_limit(
    site: Site, total: str, words: list[str], segments: int
) -> None:
    """Of --time on the command line, else of the script; Slurm rounds a limit up to minutes. Links
    may be cut to a quarter, so there may be four times as many.
    """
    main(["--total-time", total, *words, "train.sbatch"])
    tag = parse_tag(option(site.sbatch_calls()[0], "comment"))
    assert tag
    assert tag.segments == segments


@pytest.mark.parametrize(
    ("words", "segments"),
    [(["--time-min=0:15:00"], 160), (["-t", "2:00:00", "--time-min", "30"], 80)],
)
def test_total_time_leaves_room_for_links_that_slurm_shortens(
    site: Site, words: list[str], segments: int
) -> None:
    main(["--total-time=10:00:00", *words, "train.sbatch"])
    tag = parse_tag(option(site.sbatch_calls()[0], "comment"))
    assert tag
    assert tag.segments == segments


def test_time_min_goes_to_each_link_and_into_the_tag(site: Site) -> None:
    """On the command line, or in the script, which sbatch reads for each link."""
    assert main(["--segments=9", "--time-min=0:20:00", "train.sbatch"]) == 0
    for call in site.sbatch_calls():
        assert "--time-min=0:20:00" in call
        tag = parse_tag(option(call, "comment"))
        assert tag
        assert tag.time_min_s == 1200
    (folder,) = site.folders()
    job = (folder / "job.sh").read_text()
    assert "m_wishes='ei=1 eo=1 min=1200'" in job
    assert 'm_sbatch() { "$m_sbatch_program" --time-min=0:20:00' in job


def test_time_min_in_the_script(site: Site) -> None:
    site.write("short.sbatch", SCRIPT.replace("-p gpu", "--time-min=10 -p gpu"))
    assert main(["--segments=9", "short.sbatch"]) == 0
    tag = parse_tag(option(site.sbatch_calls()[0], "comment"))
    assert tag
    assert tag.time_min_s == 600
    (folder,) = site.folders()
    assert "#SBATCH --time-min=10 -p gpu" in (folder / "job.sh").read_text()


def values(site: Site) -> dict[str, str]:
    (folder,) = site.folders()
    lines = (folder / "job.sh").read_text().splitlines()
    return dict(line.partition("=")[::2] for line in lines if line.startswith("m_") and "=" in line)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "TERM"),
        (["--signal=USR1@120"], "USR1"),
        (["--signal=B:10@60"], "B:USR1"),
        (["--signal=RB:SIGUSR2"], "B:USR2"),
        (["--signal=USR1", "--handover-signal=b:term"], "B:TERM"),
        (["--handover-signal", "none"], "none"),
    ],
)
def test_the_handover_signal_is_the_users_own_by_default(
    site: Site, words: list[str], expected: str
) -> None:
    main(["--segments=2", *words, "train.sbatch"])
    assert values(site)["m_handover_signal"] == expected


def test_the_options_reach_the_job(site: Site) -> None:
    main(
        [
            *[
                "--segments=2",
                "--mode=service",
                "--on-failure=retry:4",
                "--handover-grace=90s",
                "--max-overlap=2h",
            ],
            *[
                "--min-runtime",
                "5",
                "--max-short=0",
                "--health-command=curl -f 'x y'",
                "--health-count=7",
                "--health-failures=9",
            ],
            *["--done-file=fin", "--signal=B:USR1@90", "train.sbatch"],
        ]
    )
    got = values(site)
    expected = {
        "m_on_failure": "retry",
        "m_retries": "4",
        "m_min_runtime": "300",
        "m_max_short": "0",
        "m_grace": "90",
        "m_max_overlap": "7200",
        "m_health_command": """'curl -f '"'"'x y'"'"''""",
        "m_health_count": "7",
        "m_health_failures": "9",
        "m_done_file": f"{site.root}/fin",
        "m_limit_signal": "10",
        "m_limit_lead": "150",
    }
    assert {name: got[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--health-http=8000/v1/health"], {"port": "8000", "path": "/v1/health"}),
        (["--health-tcp", "22"], {"port": "22", "path": "''", "reached": "22"}),
        (["--port=22"], {"port": "22", "path": "''", "reached": "22"}),
        (["--port=free", "--health-http=/up"], {"port": "free", "path": "/up", "reached": "free"}),
        (["--port=22", "--health-http=23/up"], {"port": "23", "path": "/up", "reached": "22"}),
        (["--port=22", "--health-command=true"], {"port": "''", "reached": "22"}),
        (["--startup=8min"], {"startup": "480", "cost": "480"}),
        (["--time=1:00:00"], {"startup": "360", "on_failure": "continue"}),
        (["--on-failure=stop"], {"startup": "360", "on_failure": "stop"}),
    ],
)
def test_when_a_service_is_ready_reaches_the_job(
    site: Site, words: list[str], expected: dict[str, str]
) -> None:
    main(["--mode=service", *words, "train.sbatch"])
    got = values(site)
    names = {"port": "health_port", "path": "health_path", "reached": "port"}
    assert {name: got[f"m_{names.get(name, name)}"] for name in expected} == expected


@pytest.mark.parametrize(
    ("words", "uptime", "startup_s"),
    [
        (["--uptime=99.9%", "--startup=90s"], 0.999, 90),
        (["--uptime", "99.95"], 0.9995, None),
        ([], None, None),
    ],
)
def test_the_up_time_and_the_start_up_stand_in_the_tag(
    site: Site, words: list[str], uptime: float | None, startup_s: int | None
) -> None:
    main(["--mode=service", "--segments=2", *words, "train.sbatch"])
    tags = [parse_tag(option(call, "comment")) for call in site.sbatch_calls()]
    told = [(tag.uptime, tag.handover_s, tag.ready_s) for tag in tags if tag]
    assert told == [(uptime and pytest.approx(uptime), startup_s, 0)] * 2
    assert ("up=" in values(site)["m_wishes"]) is (uptime is not None)


@pytest.mark.parametrize(
    ("words", "body", "is_told"),
    [
        ([], "", True),
        (["--health-tcp=8000"], "", False),
        (["--health-command=true"], "", False),
        ([], 'touch "$MIRAGE_READY_FILE"\n', False),
    ],
    ids=["none", "port", "command", "ready file"],
)
def test_a_service_without_a_check_is_told_when_it_counts_as_ready(
    site: Site, capsys: pytest.CaptureFixture[str], words: list[str], body: str, is_told: bool
) -> None:
    site.write("train.sbatch", SCRIPT + body)
    assert main(["--mode=service", *words, "train.sbatch"]) == 0
    line = "no health check is given, so each link counts as ready 6 min after its start"
    assert (line in capsys.readouterr().err) is is_told


# ---- Where the script is


def test_the_script_is_found_as_sbatch_finds_it(site: Site) -> None:
    (site.root / "sub").mkdir()
    (site.root / "sub" / "in-sub.sh").write_text("#!/bin/sh\n")
    (site.root / "bin" / "on-path.sh").write_text("#!/bin/sh\n")
    assert main(["--segments=1", "--chdir", "sub", "in-sub.sh"]) == 0
    assert main(["--segments=1", "sub/in-sub.sh"]) == 0
    assert main(["--segments=1", "on-path.sh"]) == 0
    assert main(["--segments=1", str(site.root / "sub" / "in-sub.sh")]) == 0


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["-N4", "x"], ["nodes"]),
        (["-N", "4"], ["nodes"]),
        (["--nodes", "4"], ["nodes"]),
        (["--nodes=4"], ["nodes"]),
        (["-QsN", "4"], ["quiet", "oversubscribe", "nodes"]),
        (["--nice", "x"], ["nice"]),
        (["--nice=5"], ["nice"]),
        (["-k", "x"], ["no-kill"]),
        (["-koff"], ["no-kill"]),
        (["--exclusive", "x"], ["exclusive"]),
        (["--exclusive=user"], ["exclusive"]),
        (["--parti", "gpu"], ["partition"]),
        (["--arr=1"], ["array"]),
        (["--tasks-per-node", "4"], ["ntasks-per-node"]),
        (["--new-flag", "x"], ["new-flag"]),
    ],
)
def test_options_of_sbatch_are_told_from_their_values(words: list[str], names: list[str]) -> None:
    options, taken = take_options(words)
    assert [found.name for found in options] == names
    assert taken == (1 if "=" in words[0] or "x" in words or len(words) == 1 else 2)


def test_a_new_option_with_a_separate_value_is_explained(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--segments=1", "--brand-new", "value", "train.sbatch"]) == 2
    assert (
        "value: no such batch script (if it is the value of --brand-new, attach it with =)"
        in capsys.readouterr().err
    )


def test_every_option_of_the_manual_is_in_the_table() -> None:
    """sbatch(1) of the Slurm that is installed, if any, is the judge."""
    done = subprocess.run(
        ["man", "-P", "cat", "sbatch"], capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("no sbatch(1) here")
    entries = [
        line.strip()
        for line in done.stdout.replace("\b", "").splitlines()
        if line.startswith("       -")
    ]
    assert len(entries) > 90
    for entry in entries:
        long = next(word for word in entry.replace(",", " ").split() if word.startswith("--"))
        name, _, value = long.removeprefix("--").partition("=")
        name, optional, _ = name.partition("[")
        _options, taken = take_options([f"--{name}", "value"])
        assert taken == (2 if value and not optional else 1), entry


# ---- What is refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--segments", "0", "train.sbatch"],
            "--segments: '0' is not a whole number from 1 to 9999",
        ),
        (["--segments", "x", "train.sbatch"], "--segments: 'x' is not"),
        (["--segments"], "--segments needs a value"),
        (["--up-front", "train.sbatch"], "--up-front queues all links now: give --segments N"),
        (
            ["--segments=2", "--total-time=2h", "train.sbatch"],
            "give either --segments N or --total-time D",
        ),
        (["--total-time=UNLIMITED", "train.sbatch"], "--total-time: 'UNLIMITED' is not a duration"),
        (["--total-time=0", "train.sbatch"], "makes 0 links"),
        (["--total-time=2h", "--time=0", "train.sbatch"], "needs the time limit of one link"),
        (["--total-time=2h", "-t", "soon", "train.sbatch"], "--time: 'soon' is not a time limit"),
        (
            ["--segments=2", "--min-runtime=99d", "train.sbatch"],
            "--min-runtime=99d: no link runs so long, since the time limit is 3600 s: 3 in a row",
        ),
        (
            ["--segments=2", "--time-min=2:00:00", "train.sbatch"],
            "--time-min=2:00:00 is above --time=1:00:00: give a shorter one",
        ),
        (
            ["--segments=2", "--time-min=0", "train.sbatch"],
            "--time-min: '0': expected a time above",
        ),
        (
            ["--segments=2", "--time-min=soon", "train.sbatch"],
            "--time-min: 'soon' is not a time limit",
        ),
        (
            ["--total-time=9h", "--up-front", "--time-min=30", "train.sbatch"],
            "--total-time with --up-front counts links of the full --time",
        ),
        (["--segments=2"], "no batch script given: name its file after the options"),
        (["--segments=2", "nope.sh"], "nope.sh: no such batch script: name its file after the"),
        (
            ["--segments=2", "--exclusive", "user", "train.sbatch"],
            "user: no such batch script (if it is the value of --exclusive, attach it with =)",
        ),
        (["--segments=2", "binary"], "binary: this does not look like a batch script"),
        (["--segments=2", "dos.sh"], "dos.sh: the batch script contains DOS line breaks"),
        (["--segments=2", "hidden.sh"], "hidden.sh: can't be read"),
        (
            ["--segments=2", "--array=1-3", "train.sbatch"],
            "--array=1-3: a job array can't be chained",
        ),
        (["--segments=2", "-a1-3", "train.sbatch"], "a job array can't be chained"),
        (
            ["--segments=2", "array.sh"],
            "a job array can't be chained: start one chain for each task",
        ),
        (
            ["--array=1-10%1", "train.sbatch"],
            "--array=1-10%1: an array of one task at a time (%1) is a chain already",
        ),
        (["--array=1-10%1", "train.sbatch"], "take it out and give --segments 10"),
        (["-a0-9:3,20%1", "train.sbatch"], "give --segments 5"),
        (["--array=1-10%10", "train.sbatch"], "start one chain for each task"),
        (["--array=1-0%1", "train.sbatch"], "start one chain for each task"),
        (["--segments=2", "pbs-array.sh"], "#PBS -J 1-3: a job array can't be chained"),
        (["--segments=2", "pbs-hold.sh"], "#PBS -h: nobody but you could release a held link"),
        (["--segments=2", "bom.sh"], "bom.sh: this begins with a UTF-8 byte order mark"),
        (["--segments=2", "nul.sh"], "nul.sh: the batch script contains a NUL character"),
        (["--segments=2", "--wrap=hostname"], "--wrap=hostname: a chain needs a script file"),
        (["--segments=2", "-H", "train.sbatch"], "-H: nobody but you could release a held link"),
        (
            ["--segments=2", "-N1", ":", "-N2", "train.sbatch"],
            "heterogeneous jobs can't be chained",
        ),
        (["--segments=2", "het.sh"], "heterogeneous jobs can't be chained"),
        (["--segments=2", "-W", "train.sbatch"], "would wait for the first link alone"),
        (["--segments=2", "-Mother", "train.sbatch"], "run mirage-submit there"),
        (["--segments=2", "--parsable", "train.sbatch"], "use --json"),
        (
            ["--segments=2", "--mode=both", "train.sbatch"],
            "--mode: 'both' is none of train, service",
        ),
        (
            ["--segments=2", "--on-failure=retry", "train.sbatch"],
            "'retry' is none of stop, continue, retry:N",
        ),
        (["--segments=2", "--on-failure=stop:2", "train.sbatch"], "'stop:2' is none of"),
        (
            ["--segments=2", "--on-failure=retry:0", "train.sbatch"],
            "--on-failure: '0' is not a whole number from 1",
        ),
        (
            ["--segments=2", "--penalty-overlap=nan", "train.sbatch"],
            "--penalty-overlap: 'nan' is not a number",
        ),
        (
            ["--segments=2", "--penalty-overlap=-1", "train.sbatch"],
            "--penalty-overlap: '-1' is not a number",
        ),
        (["--segments=2", "--handover-signal=KILL", "train.sbatch"], "'KILL' is no signal"),
        (["--segments=2", "--handover-signal=FOO", "train.sbatch"], "'FOO' is no signal"),
        (
            ["--segments=2", "--handover-grace=soon", "train.sbatch"],
            "--handover-grace: 'soon' is not a duration",
        ),
        (
            ["--segments=2", "--health-command=true", "train.sbatch"],
            "no meaning without --mode service",
        ),
        (
            [
                "--segments=2",
                "--handover-cost=1h",
                "--time=2:00:00",
                "--signal=B:USR1@3600",
                "train.sbatch",
            ],
            "--handover-cost 1h: a link of --time 2:00:00 would make no progress until its signal",
        ),
        (
            ["--segments=2", "--handover-cost=3h", "--time=2:00:00", "train.sbatch"],
            "--handover-cost 3h: a link of --time 2:00:00 would make no progress",
        ),
        (
            ["--segments=2", "--handover-cost=5min", "--mode=service", "train.sbatch"],
            "--handover-cost has no meaning with --mode service",
        ),
        (
            ["--mode=service", "--uptime=120%", "train.sbatch"],
            "'120%' is not a percentage from 50%",
        ),
        (["--mode=service", "--uptime=0.999", "train.sbatch"], "such as 99.9%"),
        (
            ["--mode=service", "--uptime=99%", "--penalty-overlap=2", "train.sbatch"],
            "give either --uptime or --penalty-overlap",
        ),
        (["--uptime=99%", "train.sbatch"], "--uptime has no meaning without --mode service"),
        (["--startup=5min", "train.sbatch"], "--startup has no meaning without --mode service"),
        (
            ["--mode=service", "--startup=1h", "train.sbatch"],
            "--startup 1h: a link of --time 1:00:00 would never be ready",
        ),
        (["--mode=service", "--health-http=foo", "train.sbatch"], "'foo' is not PORT/path"),
        (["--mode=service", "--health-http=8000", "train.sbatch"], "'8000' is not PORT/path"),
        (["--mode=service", "--health-http=/up", "train.sbatch"], "'/up' is not PORT/path"),
        (["--mode=service", "--port=0", "train.sbatch"], "--port: '0' is no port"),
        (["--port=8000", "train.sbatch"], "--port"),
        (
            ["--mode=service", "--health-http=70000/up", "train.sbatch"],
            "--health-http: '70000' is no port: expected 1 to 65535",
        ),
        (["--mode=service", "--health-tcp=http", "train.sbatch"], "'http' is no port"),
        (
            ["--mode=service", "--health-tcp=1", "--health-command=true", "train.sbatch"],
            "give one of --health-command and --health-tcp",
        ),
        (["--mode=service", "--health-command=", "train.sbatch"], "needs a shell command"),
        (
            ["--mode=service", "--health-command=exit (", "train.sbatch"],
            "--health-command: sh can't read it: ",
        ),
        (["--mode=service", "--startup=0", "train.sbatch"], "--startup 0 without a check: "),
        (["--mode=service", "--health-count=2", "train.sbatch"], "no meaning without a check"),
        (["--mode=service", "--health-failures=2", "train.sbatch"], "no meaning without a check"),
        (
            ["--segments=2", "--handover-cost=soon", "train.sbatch"],
            "--handover-cost: 'soon' is not a duration",
        ),
        (["--segments=2", "--done-file=train.sbatch", "train.sbatch"], "exists already"),
        (["--segments=2", "--done-file=", "train.sbatch"], "is a folder: give a file"),
        (["--segments=2", f"--done-file={'x' * 300}", "train.sbatch"], "x: File name too long"),
        (["--segments=2", "--time"], "--time needs a value"),
    ],
)
def test_wrong_input_is_told_in_one_sentence(
    site: Site, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    site.write("binary", "\x7fELF")
    site.write("dos.sh", "#!/bin/sh\r\necho\r\n")
    site.write("bom.sh", "\ufeff#!/bin/sh\n")
    site.write("nul.sh", "#!/bin/sh\n\0\n")
    site.write("pbs-array.sh", "#!/bin/sh\n#PBS -J 1-3\n")
    site.write("pbs-hold.sh", "#!/bin/sh\n#PBS -h\n")
    site.write("array.sh", "#!/bin/sh\n#SBATCH --array 1-3\n")
    site.write("het.sh", "#!/bin/sh\n#SBATCH -N1\n#SBATCH hetjob\n#SBATCH -N2\n")
    if "hidden.sh" in words:
        site.write("hidden.sh", SCRIPT)
        (site.root / "hidden.sh").chmod(0)
        if os.access(site.root / "hidden.sh", os.R_OK):
            pytest.skip("root may read everything")
    assert main(words) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.startswith("mirage-submit: ")
    assert err.count("\n") == 1
    assert site.sbatch_calls() == []
    assert not site.chains.exists()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("SBATCH_ARRAY_INX", "1-3", "SBATCH_ARRAY_INX: a job array"),
        ("SBATCH_ARRAY_INX", "1-3%1", "give --segments 3"),
        ("SBATCH_WAIT", "1", "SBATCH_WAIT: it would wait for the first link alone"),
        ("SBATCH_WAIT", "", "SBATCH_WAIT: it would wait"),
        ("SBATCH_WAIT", "Yes", "SBATCH_WAIT: it would wait"),
        ("SBATCH_WAIT", "0", ""),
        ("SBATCH_WAIT", "no", ""),
        ("SBATCH_CLUSTERS", "other", "SBATCH_CLUSTERS: a chain lives on one cluster"),
        ("SLURM_CLUSTERS", "other", "SLURM_CLUSTERS: a chain lives on one cluster"),
        ("SBATCH_PARTITION", "gpu", ""),
    ],
)
def test_what_the_environment_asks_for_is_refused_as_on_the_command_line(
    site: Site,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    value: str,
    message: str,
) -> None:
    monkeypatch.setenv(name, value)
    assert main(["--segments=2", "train.sbatch"]) == (2 if message else 0)
    assert message in capsys.readouterr().err
    assert bool(site.sbatch_calls()) is not bool(message)


def test_a_directive_with_a_broken_quotation_is_left_to_sbatch() -> None:
    script = parse_script(b'#!/bin/sh\n#SBATCH --comment "open -N 2\n#SBATCH -n 3\n')
    assert [found.name for found in script.options][-1] == "ntasks"


# ---- What goes wrong at submission


def test_sbatchs_message_and_exit_code_are_passed_on(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    site.refuse(1, "sbatch: error: invalid partition specified: nope")
    (site.fake / "exit").write_text("7")
    assert main(["--segments=3", "-p", "nope", "train.sbatch"]) == 7
    assert (
        capfd.readouterr().err == "sbatch: error: invalid partition specified: nope\n"
        "mirage-submit: sbatch refused the job; its own message is above. No chain was started.\n"
    )
    assert site.folders() == []
    assert site.cancelled() == []


def test_bytes_that_sbatch_prints_in_place_of_a_job_id_are_shown_readably(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    site.in_call(1, "printf '\\377\\033[2Jhello'; exit 0")
    assert main(["--segments=3", "train.sbatch"]) == 1
    assert "printed no job id, but '\ufffd\\x1b[2Jhello'" in capfd.readouterr().err


def test_a_refused_successor_takes_the_first_link_along(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    site.refuse(2, "sbatch: error: Batch job submission failed: Job dependency problem")
    assert main(["--segments=3", "train.sbatch"]) == 1
    assert "Job dependency problem" in capfd.readouterr().err
    assert site.cancelled() == ["101"]
    assert site.folders() == []


def test_an_option_after_the_script_is_the_scripts_and_that_is_said(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--segments=3", "train.sbatch", "--dry-run", "--epochs=3"]) == 0
    error = capfd.readouterr().err
    assert "--dry-run stands after the script" in error
    assert "--epochs" not in error


def test_a_forgotten_script_after_an_unknown_option_is_explained(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["--segments=2", "--name", "X"]) == 2
    error = capfd.readouterr().err
    assert "X: no such batch script (did you mean --job-name, where --name stands?): " in error
    assert "name its file after the options, as in `mirage-submit --segments 4 train" in error


def test_a_misspelt_option_is_recognised(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["--segmets", "3", "train.sbatch"]) == 2
    assert "did you mean --segments" in capfd.readouterr().err


LIMIT = (
    "sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Batch job submission failed: (job submit"
    " limit, ...)"
)


def test_at_the_submit_limit_the_first_link_stays_and_queues_the_second(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    site.refuse(2, LIMIT)
    assert main(["--segments=3", "train.sbatch"]) == 0
    captured = capfd.readouterr()
    assert "AssocMaxSubmitJobLimit" in captured.err
    assert (
        "link 2 is not queued yet, because of the limit above: job 101 tries again while it runs"
        in captured.err
    )
    assert site.cancelled() == []
    (folder,) = site.folders()
    assert queued_jobs(folder) == {1: 101}
    assert not (folder / "submitting").exists()


def test_up_front_at_the_submit_limit_leaves_nothing(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    site.refuse(3, LIMIT)
    assert main(["--segments=4", "--up-front", "train.sbatch"]) == 1
    assert site.cancelled() == ["101 102"]
    assert site.folders() == []


def test_without_sbatch_it_says_where_to_run(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(site.fake))
    assert main(["--segments=4", "train.sbatch"]) == 1
    assert "run mirage-submit where you can run sbatch" in capsys.readouterr().err
    assert site.folders() == []


def test_a_dry_run_prints_the_exact_commands_and_does_nothing(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--segments=3", "--dry-run", "-N2", "train.sbatch", "a b"]) == 0
    first, second, note = capsys.readouterr().out.splitlines()
    assert first.startswith(
        "sbatch -N2 --job-name=train.sbatch --parsable '--comment=mirage/1 chain="
    )
    assert first.endswith("/job.sh 1 0 'a b'")
    assert " pred=JOB1 mode=" in second
    assert "--dependency=afterany:JOB1" in second
    assert note.startswith("# JOB1 stands for")
    assert site.sbatch_calls() == []
    assert not site.chains.exists()


def test_anywhere_names_the_partitions_of_all_links_and_stands_in_their_comment(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--segments=3",
        "--dry-run",
        "--anywhere=gpu,gpu-long",
        "--comment=mine",
        "train.sbatch",
    ]
    assert main(words) == 0
    first, second, _ = capsys.readouterr().out.splitlines()
    for command in (first, second):
        assert " --partition=gpu,gpu-long " in command
        assert "-- mirage:anywhere=gpu,gpu-long mine'" in command
    assert main(["--anywhere=a", "-p", "b", "train.sbatch"]) == 2
    assert "leave --partition out" in capsys.readouterr().err
    for wrong in ("", "a,,b", "a b", "a;b"):
        assert main([f"--anywhere={wrong}", "train.sbatch"]) == 2
        assert "expected names of partitions" in capsys.readouterr().err


@pytest.mark.parametrize("word", ["--dry-run", "--dry", "--dry-r"])
def test_an_abbreviated_dry_run_is_one(site: Site, word: str) -> None:
    assert main(["--segments=3", word, "train.sbatch"]) == 0
    assert site.sbatch_calls() == []
    assert not site.chains.exists()


@pytest.mark.parametrize(
    "words",
    [["--test-only", "train.sbatch"], ["--test", "-N2", "train.sbatch"], ["test.sh"]],
    ids=" ".join,
)
def test_test_only_asks_sbatch_about_the_first_link_and_submits_nothing(
    site: Site, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    site.write("test.sh", "#!/bin/sh\n#SBATCH -t5 --test-only\n")
    site.in_call(1, 'cat >"$FAKE/stdin"; exit 7\n')
    assert main(["--segments=3", *words]) == 7
    (call,) = site.sbatch_calls()
    assert call[-1] == "--test-only"
    assert " seg=1/12 of=3 " in option(call, "comment")
    assert not site.chains.exists()
    assert "nothing was submitted" in capsys.readouterr().err
    script = (site.fake / "stdin").read_text()
    assert script.startswith("#!/bin/sh\n#SBATCH ")
    assert "#SBATCH --time=5\n" not in script, "behind the first command"


def test_a_script_that_looks_for_itself_is_pointed_to_the_variable(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    idiom = "#!/bin/sh\nhere=$(scontrol show job $SLURM_JOB_ID | awk -F= '/Command=/{print $2}')\n"
    site.write("self.sh", idiom)
    main(["--segments=2", "self.sh"])
    assert "use $MIRAGE_SCRIPT" in capsys.readouterr().err
    site.write("self.sh", f"{idiom}here=${{MIRAGE_SCRIPT:-$here}}\n")
    main(["--segments=2", "self.sh"])
    assert "MIRAGE_SCRIPT" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("queue", "words"),
    [
        ("9 gpu PartitionNodeLimit", "job 101 can't start as it is: Slurm says PartitionNodeLimit"),
        ("9 gpu Priority", ""),
        ("", ""),
    ],
)
def test_a_job_that_slurm_took_but_can_never_start_is_told_in_one_line(
    site: Site, capsys: pytest.CaptureFixture[str], queue: str, words: str
) -> None:
    (site.fake / "queue").write_text(f"{queue}\n")
    assert main(["--segments=1", "-N", "900", "train.sbatch"]) == 0
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == (1 if words else 0)
    assert ("`mirage cancel " in said) == bool(words)


def test_a_chain_is_told_what_the_daemon_knows_to_do_better(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def better(*size: object) -> str:
        asked.append(size)
        return "with links of 2 d 77%" if size[2] == 6 * 3600 else ""

    monkeypatch.setenv("MIRAGE_SOCKET", str(tmp_path / "m.sock"))
    (site.fake / "queue").write_text("9 gpu Priority\n")
    with serving(tmp_path / "m.sock", Source(store=MemoryStore(), better_sizes=better)):
        assert main(["--segments=3", "-t", "6:00:00", "train.sbatch"]) == 0
        assert capsys.readouterr().err == "mirage-submit: note: with links of 2 d 77%\n"
        assert main(["--segments=3", "--again", "train.sbatch"]) == 0
    assert capsys.readouterr().err == ""
    assert asked == [("gpu", 9, 6 * 3600), ("gpu", 9, 3600)]


def test_a_chain_that_nobody_watches_is_told_so_in_one_line(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRAGE_SOCKET", str(tmp_path / "m.sock"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))

    def told(*words: str) -> bool:
        assert main([*words, "train.sbatch"]) == 0
        return "note: no Mirage daemon answers on this machine" in capsys.readouterr().err

    assert told("--segments=2")
    assert not told("--segments=1"), "there is no successor to let in"
    assert not told("--segments=2", "--dry-run")
    with exclusive(tmp_path / "state" / "mirage" / "mirage.lock"):
        assert not told("--segments=2"), "an agent runs"
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(str(tmp_path / "m.sock"))
        assert told("--segments=2"), "a socket that a daemon left behind"
        daemon.listen()
        assert not told("--segments=2")
    once = tmp_path / "state" / "mirage" / "mirage.once"
    once.touch()
    assert not told("--segments=2"), "an agent ran from cron"
    os.utime(once, (1, 1))
    assert told("--segments=2")
    store = tmp_path / "elsewhere" / "m.db"
    (tmp_path / "config" / "mirage").mkdir(parents=True)
    (tmp_path / "config" / "mirage" / "mirage.toml").write_text(
        f'[daemon]\nstore = "sqlite:///{store}"\n'
    )
    with exclusive(store.with_suffix(".lock")):
        assert not told("--segments=2"), "an agent whose configuration puts its store elsewhere"


@pytest.mark.parametrize(
    ("line", "is_refused"),
    [
        ('[ -e done ] || sbatch -d afterany:$SLURM_JOB_ID "$0"', True),
        ("sbatch ${BASH_SOURCE[0]}", True),
        ("  sbatch self.sh", True),
        ("next=$(sbatch --parsable ../x/self.sh)", True),
        ('me=$(realpath "$0")\nsbatch $me', True),
        ("me=$(scontrol show job $SLURM_JOB_ID | grep Command=)\nsbatch ${me#*=}", True),
        ('sbatch \\\n  --dependency=singleton "$0"', True),
        ('sbatch <"$0"', True),
        ("echo hi | sbatch self.sh", True),
        ("# sbatch self.sh", False),
        ("echo usage: sbatch self.sh", False),
        ("sbatch evaluate.sh", False),
        ("sbatch evaluate_self.sh", False),
        ("sbatch self.sh.old", False),
        ("cd $HOME && /usr/bin/sbatch --export=ALL $HOME/self.sh", True),
        ("sbatch evaluate.sbatch  # after self.sh", False),
        ("cp self.sh copy.sbatch", False),
        ('echo "$0"', False),
        ("sbatch $01", False),
    ],
)
def test_a_script_that_submits_itself_is_refused(
    site: Site, capsys: pytest.CaptureFixture[str], line: str, is_refused: bool
) -> None:
    for name in ("self.sh", "self.sbatch"):
        site.write(name, f"#!/bin/sh\n{line}\n".replace("self.sh", name))
        assert main(["--segments=2", "--dry-run", name]) == (2 if is_refused else 0)
        assert (f"{name} seems to submit itself, so" in capsys.readouterr().err) is is_refused
    assert main(["--segments=2", "self.sbatch"]) == (2 if is_refused else 0)
    assert bool(site.sbatch_calls()) is not is_refused
    assert main(["--segments=2", "--nested", "self.sbatch"]) == 0


def test_where_sbatch_is_the_wrapper_a_script_may_submit_itself(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each link the wrapper refuses it."""
    (site.root / "wrap").mkdir()
    site.write("wrap/sbatch", "#!/usr/bin/python3\nfrom mirage.cli.sbatch import main\n")
    (site.root / "wrap" / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{site.root / 'wrap'}:{os.environ['PATH']}")
    site.write("self.sh", "#!/bin/sh\nsbatch self.sh\n")
    assert main(["--segments=2", "self.sh"]) == 0
    assert "note: " in capsys.readouterr().err


# ---- The same command twice


def is_queued(site: Site, folder: Path) -> None:
    (site.fake / "queue").write_text(f"mirage/1 chain={folder.name} seg=1/8 of=2 mode=train\n")


def test_the_same_command_twice_is_noticed_while_the_first_chain_lives(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--segments=2", "train.sbatch", "--lr", "1"]
    assert main(words) == 0
    (first,) = site.folders()
    is_queued(site, first)
    assert main(["--segments=3", "--time=5", "train.sbatch", "--lr", "1"]) == 2
    error = capsys.readouterr().err
    assert f"chain {first.name} runs the same script in the same folder" in error
    assert "--again" in error
    assert f"mirage cancel {first.name}" in error
    assert site.folders() == [first]
    assert main(["--again", *words]) == 0
    mark_over(first, "done", "all 2 links have run")
    for folder in site.folders():
        mark_over(folder, "done", "all 2 links have run")
    assert main(words) == 0


@pytest.mark.parametrize(
    "words",
    [
        ["train.sbatch", "--lr", "2"],
        ["--job-name=other", "train.sbatch", "--lr", "1"],
        ["--export=LR=2", "train.sbatch", "--lr", "1"],
        ["--chdir=/tmp", str(Path("train.sbatch")), "--lr", "1"],
        ["other.sbatch", "--lr", "1"],
    ],
)
def test_another_command_is_another_chain(site: Site, words: list[str]) -> None:
    site.write("other.sbatch", SCRIPT)
    assert main(["--segments=2", "train.sbatch", "--lr", "1"]) == 0
    (first,) = site.folders()
    is_queued(site, first)
    script = next(word for word in words if word.endswith(".sbatch"))
    words[words.index(script)] = str(site.root / script)
    assert main(["--segments=2", *words]) == 0


def test_a_chain_that_left_the_queue_is_no_twin(site: Site) -> None:
    """One that was used up has no mark."""
    assert main(["--segments=2", "train.sbatch"]) == 0
    assert main(["--segments=2", "train.sbatch"]) == 0


# ---- The user's own --dependency


def dependencies(site: Site) -> list[str]:
    return [
        word.partition("=")[2]
        for call in site.sbatch_calls()
        for word in call
        if word.startswith("--dependency=")
    ]


@pytest.mark.parametrize(
    ("given", "of_link_2"),
    [
        ("singleton", "singleton,afterany:101"),
        ("afterok:7", "afterok:7,afterany:101"),
        ("afterok:7,singleton", "afterok:7,singleton,afterany:101"),
        ("afterok:7?afterok:8", "afterany:101"),
    ],
)
def test_what_link_1_waits_for_keeps_link_2_too(
    site: Site, capsys: pytest.CaptureFixture[str], given: str, of_link_2: str
) -> None:
    assert main(["--segments=3", f"--dependency={given}", "train.sbatch"]) == 0
    assert dependencies(site) == [given, of_link_2]
    (folder,) = site.folders()
    kept = "m_singleton=,singleton\n" if "singleton" in given else "m_singleton=''\n"
    assert kept in (folder / "job.sh").read_text()
    noted = "--dependency=singleton holds for every link" in capsys.readouterr().err
    assert noted is ("singleton" in given)


def test_a_singleton_in_the_script_counts_too(site: Site) -> None:
    site.write("one.sh", "#!/bin/sh\n#SBATCH -d singleton\n#SBATCH -J gpt\n")
    assert main(["--segments=3", "one.sh"]) == 0
    assert dependencies(site) == ["singleton,afterany:101"]


def test_no_chain_begins_by_giving_its_nodes_away(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--segments=3", "--dependency=expand:7", "train.sbatch"]) == 2
    assert "expand" in capsys.readouterr().err


def test_help_and_version_do_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "--total-time D" in capsys.readouterr().out
    assert main(["-V"]) == 0
    assert capsys.readouterr().out.startswith("mirage-submit ")


# ---- The folder


def test_a_folder_that_others_could_write_is_refused(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.chains.mkdir(parents=True)
    site.chains.chmod(0o777)
    assert main(["--segments=2", "train.sbatch"]) == 2
    assert "can be written by others: run chmod go-w" in capsys.readouterr().err


def test_a_linked_folder_is_refused(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.chains.parent.mkdir(mode=0o700)
    site.chains.symlink_to(site.root)
    assert main(["--segments=2", "train.sbatch"]) == 2
    assert "is not a directory (a link is not accepted)" in capsys.readouterr().err


def test_a_home_that_cannot_be_written_is_told(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRAGE_HOME", "/proc/mirage")
    assert main(["--segments=2", "train.sbatch"]) == 2
    assert "set MIRAGE_HOME to a folder that you can write to" in capsys.readouterr().err


def test_a_full_disk_leaves_nothing(
    site: Site, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_path: Path, _content: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")  # write(2) names no file

    monkeypatch.setattr(Path, "write_bytes", full)
    assert main(["--segments=2", "train.sbatch"]) == 1
    assert re.search(
        r"/chains/\w+: No space left on device; no chain was started", capsys.readouterr().err
    )
    assert site.folders() == []
    assert site.sbatch_calls() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make another user's folder")
def test_another_users_folder_is_refused(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.chains.mkdir(parents=True)
    os.chown(site.chains, 65534, 65534)
    assert main(["--segments=2", "train.sbatch"]) == 2
    assert "belongs to another user (uid 65534)" in capsys.readouterr().err


def test_mirage_home_moves_the_folder(tmp_path: Path) -> None:
    environ = {"MIRAGE_HOME": str(tmp_path / "m"), "HOME": "/nowhere"}
    assert make_chains_folder(environ) == tmp_path / "m" / "chains"
    assert chain_folder("abcdef", environ) == tmp_path / "m" / "chains" / "abcdef"


@pytest.mark.parametrize("chain_id", ["", "short", "../../etc", "ABCDEFG", "x" * 33])
def test_a_chain_id_never_leaves_the_folder(chain_id: str) -> None:
    with pytest.raises(InputError, match="is no chain id"):
        chain_folder(chain_id)


def test_records_are_read_or_are_not_there(tmp_path: Path) -> None:
    assert read_link(tmp_path, 1) is None
    (tmp_path / "link.1").write_text(
        "job=5\nrestart=0\nstart=10\nwork=12\nend=20\nexit=3\nhow=exit\n"
    )
    record = read_link(tmp_path, 1)
    assert record
    assert (record.job_id, record.work_s, record.end_s, record.exit_code, record.how) == (
        5,
        12,
        20,
        3,
        "exit",
    )
    (tmp_path / "link.2").write_text("job=what\n")
    assert read_link(tmp_path, 2) is None
    assert over_marker(tmp_path) is None
    mark_over(tmp_path, "cancelled", "enough")
    assert over_marker(tmp_path) == ("cancelled", "enough")
    (tmp_path / "cancelled").unlink()
    (tmp_path / "done").touch()
    assert over_marker(tmp_path) == ("done", f"{tmp_path}/done exists")


def test_it_imports_little() -> None:
    """It must feel like sbatch: at most 150 ms more."""
    code = "import sys; import mirage.cli.submit; print(' '.join(sys.modules))"
    modules = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.split()
    )
    assert not modules & {
        "torch",
        "pandas",
        "numpy",
        "sqlalchemy",
        "rich",
        "argparse",
        "json",
        "shutil",
        "matplotlib",
    }


def test_the_default_grace_is_five_minutes_until_the_chain_knows_better(site: Site) -> None:
    main(["--segments=2", "train.sbatch"])
    assert (values(site)["m_grace"], values(site)["m_least_grace"]) == ("''", "300")


@pytest.mark.parametrize(
    ("words", "lead_s"),
    [
        ([], 0),
        (["--signal=B:USR1@300"], 300),
        (["--signal", "USR1"], 60),  # sbatch(1): the default time will be 60 seconds
        (["--signal=R:TERM@65535"], 65535),
        (["--signal=rb:10@7"], 7),
        (["--signal=KILL@90"], 90),  # it ends the steps, and can't be caught
        (["--signal=50@90"], 90),  # a real-time signal without a name
        (["--signal=USR1@0"], 0),
        (["--signal=USR1@"], 0),
        (["--signal=USR1@65536"], 0),  # sbatch refuses these
        (["--signal=NOPE@9"], 0),
        (["--signal=X:USR1@9"], 0),
    ],
)
def test_the_signals_lead_stands_in_the_tag_of_all_links(
    site: Site, words: list[str], lead_s: int
) -> None:
    main(["--segments=3", *words, "train.sbatch"])
    tags = [parse_tag(option(call, "comment")) for call in site.sbatch_calls()]
    assert [tag.lead_s if tag else None for tag in tags] == [lead_s, lead_s]
    assert (values(site)["m_limit_signal"] != "0") == (lead_s > 0), (
        "Slurm never sends one without a lead"
    )
    assert values(site)["m_wishes"] == (f"'ei=1 eo=1 lead={lead_s}'" if lead_s else "'ei=1 eo=1'")


def test_what_the_owner_says_of_handovers_stands_in_the_tag(site: Site) -> None:
    main(["--segments=3", "--handover-cost=15min", "--min-runtime=30min", "train.sbatch"])
    tags = [parse_tag(option(call, "comment")) for call in site.sbatch_calls()]
    assert [(tag.least_run_s, tag.handover_s) if tag else None for tag in tags] == [(1800, 900)] * 2
    assert values(site)["m_wishes"] == "'ei=1 eo=1 least=1800'"
    assert (values(site)["m_cost"], values(site)["m_min_runtime"]) == ("900", "1800")


def test_without_a_word_of_its_owner_the_tag_says_nothing_of_handovers(site: Site) -> None:
    main(["--segments=2", "train.sbatch"])
    assert option(site.sbatch_calls()[0], "comment").endswith("mode=train ei=1 eo=1")
    assert values(site)["m_cost"] == "''"


def test_the_command_line_goes_before_the_environment_and_that_before_the_script(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.write("signal.sbatch", "#!/bin/sh\n#SBATCH --signal=USR1@111\n")
    main(["--segments=1", "signal.sbatch"])
    monkeypatch.setenv("SBATCH_SIGNAL", "USR1@222")
    main(["--segments=1", "signal.sbatch"])
    main(["--segments=1", "--signal=USR1@333", "signal.sbatch"])
    assert [option(call, "comment").partition("lead=")[2] for call in site.sbatch_calls()] == [
        "111",
        "222",
        "333",
    ]


@pytest.mark.parametrize("option", ["container=/images/b", "container-image=docker://x"])
def test_a_batch_script_in_a_container_is_noted(
    site: Site, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    site.write("inside.sh", f"#!/bin/sh\n#SBATCH --{option}\ntrue\n")
    assert main(["--segments=2", "inside.sh"]) == 0
    name = option.partition("=")[0]
    assert f"start the program by `srun --{name}=...`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("signal", "command", "is_noted"),
    [
        ("USR1@300", "python train.py", True),
        ("USR1@300", "# srun python train.py", True),
        ("USR1@300", "time srun python train.py", False),
        ("USR1@300", "exec ./job_steps.sh", False),
        ("B:USR1@300", "python train.py", False),
    ],
)
def test_a_signal_that_no_job_step_gets_is_noted(
    site: Site, capsys: pytest.CaptureFixture[str], signal: str, command: str, is_noted: bool
) -> None:
    site.write("steps.sbatch", f"#!/bin/sh\n#SBATCH --signal={signal}\n{command}\n")
    assert main(["--segments=1", "steps.sbatch"]) == 0
    note = f"--signal={signal} reaches job steps only, and no srun is seen in the script"
    assert (note in capsys.readouterr().err) == is_noted


@pytest.mark.parametrize("words", [["-t60", "--signal=USR1@3600"], ["-t60", "--signal=USR1@3540"]])
def test_a_signal_that_comes_at_once_is_noted(
    site: Site, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    assert main(["--segments=1", *words, "train.sbatch"]) == 0
    assert "comes as soon as a link starts" in capsys.readouterr().err


def test_a_signal_that_never_comes_is_not_said_to_come_at_once(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--segments=1", "-t1", "--signal=USR1@0", "train.sbatch"]) == 0
    assert "--signal" not in capsys.readouterr().err
    main(["--segments=1", "-t60", "--signal=USR1@3539", "train.sbatch"])
    assert "comes as soon" not in capsys.readouterr().err


POST = "#!/bin/sh\n#SBATCH --comment=mine -p debug\ntrue\n"


def test_then_is_kept_for_the_last_link_to_queue(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write("post it.sh", POST)
    site.write("more.sh", "#!/bin/sh\n#SBATCH -J own\n")
    site.write(
        "chain.sbatch",
        "#!/bin/sh\n#MIRAGE --segments=2 --then='post it.sh'\n#MIRAGE --then more.sh\n",
    )
    assert main(["--json", "chain.sbatch"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [then["script"] for then in told["then"]] == [
        str(site.root / "post it.sh"),
        str(site.root / "more.sh"),
    ]
    assert len(site.sbatch_calls()) == 2
    (folder,) = site.folders()
    assert [then.script for then in read_then(folder)] == [then["script"] for then in told["then"]]
    assert then_script(folder, 1).read_text() == POST
    words = "--parsable '--job-name=post it.sh' '--comment=mirage-then/1 chain="
    assert words in (folder / "job.sh").read_text()
    assert " n=1 -- mine'" in (folder / "job.sh").read_text()
    assert "--job-name=more.sh" not in (folder / "job.sh").read_text()


def test_then_on_the_command_line_goes_before_that_in_the_script(site: Site) -> None:
    site.write("post.sh", POST)
    site.write("chain.sbatch", "#!/bin/sh\n#MIRAGE --segments=2 --then=nothing.sh\n")
    assert main(["--then", "post.sh", "chain.sbatch"]) == 0
    (folder,) = site.folders()
    assert [Path(then.script).name for then in read_then(folder)] == ["post.sh"]


def test_up_front_it_is_queued_behind_the_last_link(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.write("post.sh", POST)
    assert main(["--json", "--up-front", "--segments=3", "--then=post.sh", "train.sbatch"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [job["job_id"] for job in told["jobs"]] == [101, 102, 103]
    assert told["then"] == [{"script": str(site.root / "post.sh"), "job_id": 104}]
    assert "--dependency=afterok:103" in site.sbatch_calls()[-1]
    (folder,) = site.folders()
    assert (folder / "then.1").read_text() == "104\n"


def test_up_front_nothing_stays_if_it_is_refused(site: Site) -> None:
    site.write("post.sh", POST)
    site.refuse(3, "sbatch: error: invalid partition specified: debug")
    assert main(["--up-front", "--segments=2", "--then=post.sh", "train.sbatch"]) == 1
    assert site.folders() == []
    assert site.cancelled() == ["101 102"]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "no such batch script"),
        ("true\n", "does not look like a batch script"),
        ("#!/bin/sh\r\ntrue\r\n", "DOS line breaks"),
        ("#!/bin/sh\n#SBATCH -d afterok:1\n", "-d: the chain sets it"),
        ("#!/bin/sh\n#SBATCH --wait\n", "--wait: it would wait"),
        ("#!/bin/sh\n#SBATCH --test-only\n", "--test-only"),
        ("#!/bin/sh\n#MIRAGE --segments=3\n", "has #MIRAGE lines"),
    ],
)
def test_then_is_checked_before_anything_is_submitted(
    site: Site, capsys: pytest.CaptureFixture[str], content: str | None, said: str
) -> None:
    if content is not None:
        site.write("post.sh", content)
    assert main(["--segments=2", "--then=post.sh", "train.sbatch"]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "--then: " in err
    assert "post.sh" in err
    assert (site.sbatch_calls(), site.folders()) == ([], [])


def test_a_dry_run_shows_what_follows(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.write("post.sh", POST)
    assert main(["--dry-run", "--segments=5", "--then=post.sh", "train.sbatch"]) == 0
    out = capsys.readouterr().out
    assert "# once the chain is done: sbatch --parsable --job-name=post.sh" in out
    assert "--dependency=afterany:LAST" in out
    assert (site.sbatch_calls(), site.folders()) == ([], [])


def test_parsable_names_what_follows_a_chain(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--parsable", "--segments=2", "train.sbatch"]) == 2
    assert "--then SCRIPT" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--segments=1"], "1 time limit; job 101\n"),
        (["--segments=5"], "5 time limits (at most 20 links); jobs 101 102, then each"),
        (["--total-time=7d", "--time=1-0"], "7 d (at most 28 links); jobs 101 102, then each"),
        (["--segments=2", "--up-front"], "2 links; jobs 101 102\n"),
        (
            [],
            "until the work is done: a done-file, `mirage done`, or a link that exits with 0"
            " (at most 1000 links); jobs 101 102, then each",
        ),
    ],
)
def test_how_long_the_chain_is_is_said_as_it_was_asked_for(
    site: Site, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main([*words, "train.sbatch"]) == 0
    assert said in capsys.readouterr().out

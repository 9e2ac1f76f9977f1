"""Starts a real slurmctld on a slurm.conf, and compares what it makes of the file with what
`slurm_sim` makes of it.

Needs root (a mount namespace for /etc/hosts, so that any node's name has an address) and slurmctld
22.05. No slurmd, no munge: the file is included in one that sets ports, paths and auth/none after
it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from slurm_sim.clusters import ClusterDescription, NoteKind, read_live
from slurm_sim.clusters.scheduler import OPTIONS, why_ignored
from slurm_sim.clusters.slurm_conf import read_slurm_conf
from slurm_sim.clusters.values import expand_hosts
from slurm_sim.config import ClusterConfig
from slurm_sim.errors import InvalidCluster

SLURMCTLD = "/usr/sbin/slurmctld"
RELEASE = "22.05."
START_S = 60
"""Longest wait for slurmctld; it takes about one second."""
PASS_S = 4
"""A main pass comes batch_sched_delay after a submission, by default 3 s; with a longer one it is
not waited for.
"""
OWN = """
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/pid
SlurmctldLogFile={folder}/log
SlurmctldDebug=info
SlurmctldSyslogDebug=quiet
PlugStackConfig={folder}/plugstack.conf
PluginDir=/usr/lib/x86_64-linux-gnu/slurm-wlm
ProctrackType=proctrack/linuxproc
MpiDefault=none
MailProg=/bin/true
PrivateData=cloud
MessageTimeout=10
TCPTimeout=2
"""
OPTION = re.compile(
    r"(?:Invalid|ignoring)(?: SchedulerParameters:?)? ([a-z_]+)(?: value of|:) -?\d+"
)
QUEUE = re.compile(
    r"SchedulerParameters=default_queue_depth=(\d+),.*partition_job_depth=(\d+),sched_max_job_start=(\d+)"
)


@dataclass(frozen=True)
class Case:
    """Files by name; ``slurm.conf`` is the one to read."""

    name: str
    files: dict[str, str]


@dataclass(frozen=True)
class Shown:
    """What slurmctld made of it; `refusal`: why it did not start."""

    refusal: str
    config: str = ""
    nodes: str = ""
    partitions: str = ""
    log: str = ""


@dataclass(frozen=True)
class Verdict:
    """Empty `differences`: the same reading. `ran`: slurmctld started."""

    case: Case
    ran: bool
    differences: tuple[str, ...]
    excused: bool = False
    """slurmctld refuses a parameter that it does not know, or no more; we read on, with a note on
    it.
    """


def why_not() -> str:
    """Why there can be no judge on this machine; empty: there can."""
    if os.geteuid() != 0:
        return "needs root"
    if shutil.which("unshare") is None or not Path(SLURMCTLD).exists():
        return "needs slurmctld and unshare"
    version = subprocess.run([SLURMCTLD, "-V"], capture_output=True, text=True, check=True).stdout
    if f" {RELEASE}" not in version:
        return f"needs slurmctld {RELEASE}x, not {version.strip()}"
    tried = subprocess.run(["unshare", "-m", "true"], capture_output=True, text=True, check=False)
    return f"needs a mount namespace: {tried.stderr.strip()}" if tried.returncode else ""


def judge(case: Case, port: int | None = None) -> Verdict:
    """Both readings of one case."""
    with _folder(case, port or _free_port()) as folder:
        conf = folder / "judged.conf"
        try:
            ours: ClusterDescription | str = read_slurm_conf(conf)
        except InvalidCluster as error:
            ours = str(error)
        shown = ask_slurmctld(
            folder, conf, "schedulerparameters" in case.files["slurm.conf"].lower()
        )
        excused = isinstance(ours, ClusterDescription) and _other_release(ours, shown.refusal)
        found = () if excused else tuple(_compare(ours, shown, str(folder)))
        return Verdict(case, not shown.refusal, found, excused)


@contextlib.contextmanager
def _folder(case: Case, port: int) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="slurm-conf-", dir="/var/tmp") as name:
        folder = Path(name)
        (folder / "state").mkdir()
        (folder / "plugstack.conf").touch()
        for file, text in case.files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text)
        names = {node for text in case.files.values() for node in _node_names(text)}
        hosts = Path("/etc/hosts").read_text() + "".join(
            f"127.0.0.1 {node}\n" for node in sorted(names)
        )
        (folder / "hosts").write_text(hosts)
        head = (
            ""
            if _sets(case, "SlurmctldHost") or _sets(case, "ControlMachine")
            else "SlurmctldHost=localhost(127.0.0.1)\n"
        )
        named = "" if _sets(case, "ClusterName") else "ClusterName=judged\n"
        (folder / "judged.conf").write_text(
            f"{named}include slurm.conf\n{head}{OWN.format(port=port, folder=folder)}"
        )
        yield folder


def _sets(case: Case, key: str) -> bool:
    return any(re.search(rf"(?im)^\s*{key}\s*=", text) for text in case.files.values())


def _node_names(text: str) -> Iterator[str]:
    text = text.replace("\\\n", "")
    for quoted, plain in re.findall(
        r"(?i)(?:NodeName|NodeAddr|NodeHostname)\s*[-+*/]?=\s*(?:\"([^\"]*)\"|(\S+))", text
    ):
        value = quoted or plain
        with contextlib.suppress(ValueError):
            yield from expand_hosts(value)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def ask_slurmctld(folder: Path, conf: Path, with_job: bool = False) -> Shown:
    """Starts one, asks it with scontrol, and ends it.

    `with_job`: a job is submitted, too: only a main pass looks at its own options, and says in the
    log what it takes.
    """
    command = f"mount --bind {folder}/hosts /etc/hosts && exec {SLURMCTLD} -D -c -f {conf}"
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith("SLURM")},
        "SLURM_CONF": str(conf),
    }
    with (folder / "out").open("wb") as out:
        daemon = subprocess.Popen(
            ["unshare", "-m", "sh", "-c", command],
            stdout=out,
            stderr=out,
            env=environment,
            start_new_session=True,
        )
    try:
        if not _up(daemon, folder):
            return Shown(refusal=_why(folder), log=_log(folder))
        try:
            texts = [
                _scontrol(environment, *words)
                for words in (("config",), ("node", "-o"), ("partition", "-o"))
            ]
            if with_job:
                _submit(environment, folder)
        except subprocess.SubprocessError:
            if daemon.poll() is None:
                raise
            return Shown(
                refusal=_why(folder), log=_log(folder)
            )  # some of its threads end it a moment later
        return Shown("", *texts, log=_log(folder))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(daemon.pid, signal.SIGKILL)
        daemon.wait()


def _submit(environment: dict[str, str], folder: Path) -> None:
    job = ["/usr/bin/sbatch", "--chdir=/tmp", "--output=/dev/null", "--wrap=true"]
    if subprocess.run(
        job, capture_output=True, env=environment, timeout=30, check=False
    ).returncode:
        return  # no partition takes it
    deadline = time.monotonic() + PASS_S
    while time.monotonic() < deadline and QUEUE.search(_log(folder)) is None:
        time.sleep(0.05)


def _up(daemon: subprocess.Popen[bytes], folder: Path) -> bool:
    """Whether it has read everything: it says so. Raises TimeoutError."""
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if daemon.poll() is not None:
            return False
        log = _log(folder)
        if "Running as primary controller" in log and "mcs: MCSParameters" in log:
            return True
        time.sleep(0.02)
    raise TimeoutError(f"slurmctld neither started nor ended in {START_S} s: {_log(folder)[-500:]}")


def _log(folder: Path) -> str:
    return "".join(
        path.read_text(errors="replace")
        for name in ("out", "log")
        if (path := folder / name).exists()
    )


def _why(folder: Path) -> str:
    lines = [line for line in _log(folder).splitlines() if "fatal" in line or "error:" in line]
    words = [re.sub(r"^(\[[^]]*\]|slurmctld:) ", "", line) for line in lines]
    return "; ".join(dict.fromkeys(words)) or "it ended without a word"


def _scontrol(environment: dict[str, str], what: str, *options: str) -> str:
    command = ["/usr/bin/scontrol", "-a", *options, "show", what]
    return subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment, timeout=30
    ).stdout


# ---- comparing


def _compare(ours: ClusterDescription | str, shown: Shown, folder: str) -> Iterator[str]:
    if shown.refusal:
        if isinstance(ours, ClusterDescription):
            yield f"slurmctld refuses it, we read it: {shown.refusal.replace(folder, '')}"
        return
    # Without a slurmd no node reports, which the file does not say.
    nodes = re.sub(r"\bState=UNKNOWN", "State=IDLE", shown.nodes)
    try:
        theirs: ClusterDescription | str = read_live(shown.config, nodes, shown.partitions)
    except InvalidCluster as error:
        theirs = str(error)
    if isinstance(ours, str) or isinstance(theirs, str):
        if (
            isinstance(ours, ClusterDescription)
            or isinstance(theirs, ClusterDescription)
            or not _both_empty(ours, theirs)
        ):
            yield (
                f"slurmctld runs with it; file: {_short(ours, folder)}; live:"
                f" {_short(theirs, folder)}"
            )
        return
    yield from _differences(ours.cluster, theirs.cluster)
    yield from _options(ours, shown.log)


REMOVED = re.compile(r"unrecognized key: (\w+)|(\w+)(?: option)? has been removed")


def _other_release(ours: ClusterDescription, refusal: str) -> bool:
    """Whether slurmctld refuses nothing but parameters and words of other releases, of which there are
    notes.
    """
    if any(note.kind is NoteKind.UNKNOWN for note in ours.notes):
        return True
    named = {(a or b).lower() for a, b in REMOVED.findall(refusal)}
    rest = [
        line
        for line in refusal.split("; ")
        if not REMOVED.search(line) and not CONSEQUENCE.search(line)
    ]
    return bool(named) and not rest and named <= {note.parameter.lower() for note in ours.notes}


CONSEQUENCE = re.compile(
    r'Parse error in file|specified more than once|"Include" failed|Unable to process configuration'
    r" file|"
    r"[Pp][Mm][Ii]x|MPI: "
)


def _both_empty(ours: str, theirs: str) -> bool:
    """slurmctld runs without any node or partition for jobs; neither reading makes a cluster of
    that.
    """
    theirs = theirs.replace("found 'No nodes in the system'", "no nodes that could be used")
    return any(word in ours and word in theirs for word in ("no nodes that", "no partition that"))


def _short(reading: ClusterDescription | str, folder: str) -> str:
    return "read" if isinstance(reading, ClusterDescription) else reading.replace(folder, "")


def _differences(ours: ClusterConfig, theirs: ClusterConfig) -> Iterator[str]:
    for kind in ("nodes", "partitions"):
        mine = {item.name: _in_order(item) for item in getattr(ours, kind)}
        live = {item.name: _in_order(item) for item in getattr(theirs, kind)}
        for name in sorted({*mine, *live}):
            if name not in mine or name not in live:
                yield f"{kind}: {name} is only {'live' if name in live else 'in the file'}"
            else:
                yield from _fields(f"{kind}: {name}", mine[name], live[name])
    if ours.partitions[0].name != theirs.partitions[0].name:
        yield f"default partition: file {ours.partitions[0].name}, live {theirs.partitions[0].name}"
    if set(ours.node_changes) != set(theirs.node_changes):
        yield f"node states: file {ours.node_changes}, live {theirs.node_changes}"
    mine, live = dataclasses.asdict(ours.params), dataclasses.asdict(theirs.params)
    if (
        theirs.params.no_normal_part
        and theirs.params.no_normal_qos
        and theirs.params.no_normal_tres
    ):
        # scontrol 22.05 shows NO_NORMAL_ALL for any of these flags.
        mine = {name: value for name, value in mine.items() if not name.startswith("no_normal_")}
    if not ours.params.priority_multifactor:  # scontrol then shows none of these
        mine = {
            name: value for name, value in mine.items() if not why_ignored(ours.params, name, value)
        }
    yield from _fields("scheduler", mine, live)
    if ours.name != theirs.name:
        yield f"cluster: file {ours.name}, live {theirs.name}"


def _in_order(item: object) -> dict[str, object]:
    values = dataclasses.asdict(item)  # type: ignore[call-overload]
    return {
        name: tuple(sorted(value)) if name == "nodes" else value for name, value in values.items()
    }


def _fields(what: str, mine: dict[str, object], live: dict[str, object]) -> Iterator[str]:
    for name, value in mine.items():
        if value != live[name]:
            yield f"{what}: {name}: file {value}, live {live[name]}"


def _options(ours: ClusterDescription, log: str) -> Iterator[str]:
    """What slurmctld says in its log of SchedulerParameters: scontrol shows only the text that was
    given.
    """
    refused = {name.lower() for name in OPTION.findall(log)}
    noted = {note.parameter.lower() for note in ours.notes if "takes its default" in note.why}
    for name in sorted((refused & set(OPTIONS)) - noted):
        yield f"SchedulerParameters: slurmctld refuses the value of {name}, we have no note"
    params = ours.cluster.params
    if (found := QUEUE.search(log)) is not None:
        depth, of_partition, start = (int(number) for number in found.groups())
        mine = (
            params.default_queue_depth,
            params.partition_job_depth or 0,
            params.sched_max_job_start or 0,
        )
        if mine != (max(1, depth), of_partition, start):
            yield (
                f"default_queue_depth, partition_job_depth, sched_max_job_start: file {mine}, live"
                f" {found[0]}"
            )

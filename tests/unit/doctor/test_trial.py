"""`mirage doctor --try-job`: the job's own shell code is run here, in place of a compute node."""

from __future__ import annotations

import subprocess
from collections.abc import Collection, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirage.doctor.finding import Severity
from mirage.doctor.trial import NO_ANSWER, NO_FOLDER, NO_SBATCH, Trial, check_trial, try_job
from mirage.domain import Job, JobState
from mirage.errors import InputError


class Node:
    """A cluster of one node: a submitted script runs at once, with this PATH, and ends as it ends."""

    def __init__(self, path: str, state: JobState | None = None) -> None:
        self.path, self.state = path, state
        self.script = ""
        self.cancelled: list[int] = []

    def submit(self, args: Sequence[str], script: str) -> int:
        self.options, self.script = list(args), Path(script).read_text()
        env = {"PATH": self.path, "SLURM_JOB_ID": "7"}
        self.code = subprocess.run(["/bin/sh", script], env=env, check=False).returncode
        return 7

    def jobs(self, job_ids: Collection[int]) -> dict[int, Job]:
        state = self.state or (JobState.FAILED if self.code else JobState.COMPLETED)
        return {
            7: Job(
                job_id=7,
                user="u",
                partition="gpu",
                state=state,
                nodes=1,
                submit_s=0,
                reason="Priority",
                exit_code=self.code,
            ),
        }

    def cancel(self, job_ids: Collection[int]) -> None:
        self.cancelled += job_ids


def programs(folder: Path, *names: str, squeue_code: int = 0) -> str:
    """A folder with these commands, beside those of the system."""
    folder.mkdir()
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\nexit {squeue_code if name == 'squeue' else 0}\n")
        (folder / name).chmod(0o755)
    return str(folder)


@pytest.fixture(autouse=True)
def _without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is not there stays away."""
    monkeypatch.setattr("mirage.doctor.trial.time", SimpleNamespace(sleep=lambda _: None))


@pytest.fixture
def chains(tmp_path: Path) -> Path:
    (tmp_path / "it's mine").mkdir()
    return tmp_path / "it's mine"


@pytest.fixture
def system(tmp_path: Path) -> str:
    """A PATH without Slurm, also where one is installed."""
    (tmp_path / "system").mkdir()
    (tmp_path / "system" / "uname").write_text("#!/bin/sh\necho n3\n")
    (tmp_path / "system" / "uname").chmod(0o755)
    return str(tmp_path / "system")


def test_a_node_that_has_all(tmp_path: Path, chains: Path, system: str) -> None:
    slurm = programs(tmp_path / "bin", "sbatch", "squeue", "scancel")
    node = Node(
        system
    )  # its PATH lacks Slurm; the folder of sbatch here is looked in, as a link does
    trial = try_job(node, chains, slurm, ["-p", "debug"])  # type: ignore[arg-type]
    assert trial == Trial(node="n3", missing=0, is_shared=True)
    assert node.options == ["-p", "debug"]
    assert not list(chains.iterdir())
    assert {finding.severity for finding in check_trial(trial, chains)} == {Severity.OK}


@pytest.mark.parametrize(
    ("commands", "squeue_code", "exists", "missing", "said"),
    [
        (("sbatch", "squeue", "scancel"), 0, False, NO_FOLDER, {"chain-folder": Severity.ERROR}),
        (("squeue", "scancel"), 0, True, NO_SBATCH, {"node-sbatch": Severity.WARNING}),
        (("sbatch", "squeue", "scancel"), 1, True, NO_ANSWER, {"node-sbatch": Severity.WARNING}),
        (
            (),
            0,
            False,
            NO_FOLDER + NO_SBATCH + NO_ANSWER,
            {"chain-folder": Severity.ERROR, "node-sbatch": Severity.WARNING},
        ),
    ],
)
def test_a_node_that_lacks_something(
    tmp_path: Path,
    chains: Path,
    system: str,
    commands: tuple[str, ...],
    squeue_code: int,
    exists: bool,
    missing: int,
    said: dict[str, Severity],
) -> None:
    slurm = programs(tmp_path / "bin", *commands, squeue_code=squeue_code)
    folder = chains if exists else chains / "not on the node"
    trial = try_job(Node(system), folder, slurm, [])  # type: ignore[arg-type]
    assert trial.missing == missing
    bad = {
        it.check: it.severity for it in check_trial(trial, folder) if it.severity is not Severity.OK
    }
    assert bad == said


def test_a_node_whose_jobs_may_not_submit(tmp_path: Path, chains: Path, system: str) -> None:
    slurm = programs(tmp_path / "bin", "squeue", "scancel", "sbatch")
    (tmp_path / "bin" / "sbatch").write_text(
        '#!/bin/sh\necho "$1 $2 $3: not allowed from this host" >&2\nexit 1\n'
    )
    trial = try_job(Node(system), chains, slurm, ["-p", "debug"])  # type: ignore[arg-type]
    (finding,) = (it for it in check_trial(trial, chains) if it.severity is not Severity.OK)
    assert finding.what == (
        "jobs on n3 may not submit jobs: --test-only -p debug: not allowed from this host"
    )
    assert "--up-front" in finding.do


def test_a_folder_of_the_same_name_that_is_not_shared(chains: Path) -> None:
    (finding,) = [
        it
        for it in check_trial(Trial("the compute node", 0, False), chains)
        if it.severity is not Severity.OK
    ]
    assert finding.severity is Severity.ERROR
    assert "is another folder than here" in finding.what


def test_a_job_that_does_not_start_is_cancelled(chains: Path, system: str) -> None:
    node = Node(system, JobState.PENDING)
    with pytest.raises(
        InputError, match=r"job 7 has not ended after 0 s \(PENDING, Priority\); it is cancelled"
    ):
        try_job(node, chains, "", [], patience_s=0, poll_s=0)  # type: ignore[arg-type]
    assert node.cancelled == [7]


def test_a_job_that_slurm_ends(chains: Path, system: str) -> None:
    with pytest.raises(InputError, match="job 7 ended with NODE_FAIL"):
        try_job(Node(system, JobState.NODE_FAIL), chains, "", [])  # type: ignore[arg-type]

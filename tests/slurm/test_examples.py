"""The worked examples of docs/handover.md as users run them: bytes of checkpoints, one writer, no
lost request.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.slurm.site import ALICE, BUSY, PYTHON, ROOT, until
from tests.slurm.truth import assert_history_is_slurms, history_of

pytestmark = pytest.mark.slurm

EXAMPLES = ROOT / "docs" / "examples"
HEAD = """#!/bin/bash
#SBATCH -N1 -n1 -t10 -o {home}/{name}.log --open-mode=append
export PYTHONPATH={path} OMP_NUM_THREADS=1
pace=0.5; [ "$MIRAGE_SEGMENT" -lt {last} ] || pace=0
"""


@pytest.fixture(scope="session")
def path(site, tmp_path_factory) -> str:
    """PYTHONPATH with which plain users have the examples and their frameworks: those of the tests
    where that works.
    """
    examples = site.folder / "examples"
    shutil.copytree(EXAMPLES, examples, dirs_exist_ok=True)
    ours = Path(torch.__file__).parents[1]
    theirs = site.run(
        ALICE, PYTHON, "-c", "import sys; print(*sys.version_info[:2])"
    ).stdout.split()
    readable = (
        site.run(ALICE, "test", "-r", str(ours / "torch" / "__init__.py"), check=False).returncode
        == 0
    )
    if not readable or theirs != [str(number) for number in sys.version_info[:2]]:
        ours = site.folder / "frameworks"
        pip = [
            str(site.bin / "pip"),
            "install",
            "-q",
            "--no-compile",
            "-c",
            str(ROOT / "constraints.txt"),
            "--target",
            str(ours),
        ]
        frameworks = [
            "pytorch-lightning",
            "snakemake",
            "snakemake-executor-plugin-slurm",
            "submitit",
        ]
        subprocess.run([*pip, "torch", *frameworks], check=True)
    return f"{examples}:{ours}"


@pytest.fixture
def run(site, path):
    """Starts a chain of an example in alice's folder `run`."""
    folder = site.home(ALICE) / "run"
    shutil.rmtree(folder, ignore_errors=True)
    site.run(ALICE, "mkdir", str(folder))

    def start(*options: str, command: str) -> Run:
        name = command.split()[-1].removesuffix(".py")
        (site.home(ALICE) / f"{name}.log").unlink(missing_ok=True)
        last = int(options[0].removeprefix("--segments="))
        head = HEAD.format(home=site.home(ALICE), name=name, path=path, last=last)
        program = (
            f"{command.replace(name + '.py', str(site.folder / 'examples' / (name + '.py')))}"
            f" {folder}"
        )
        chain, jobs = site.submit_chain(
            ALICE, *options, site.script(ALICE, f"{name}.sbatch", head + program + ARGS[name])
        )
        return Run(site, folder, chain, jobs, site.home(ALICE) / f"{name}.log")

    return start


@pytest.fixture
def observer(service):
    """The site's daemon, which only looks."""
    service.configure(mode="observe")
    with service.running():
        yield service


ARGS = {
    "train": " --steps 400 --step-s $pace\n",
    "lightning_train": " --steps 200 --step-s $pace\n",
}


class Run:
    def __init__(self, site, folder: Path, chain: str, jobs: list[int], log: Path) -> None:
        self.site, self.folder, self.chain, self.jobs, self.log = site, folder, chain, jobs, log

    def journal(self) -> list[str]:
        """`what link` of each line of writers.log, in the order in which they were written."""
        path = self.folder / "writers.log"
        return (
            [" ".join(line.split()[1:3]) for line in path.read_text().splitlines()]
            if path.exists()
            else []
        )

    def wait_for(self, entry: str, timeout_s: float = 120) -> None:
        until(
            lambda: entry in self.journal(),
            timeout_s,
            f"{entry!r} in {self.journal()}, {self._told()}",
        )

    def let_in(self, segment: int) -> None:
        """The link starts although its predecessor runs, as when Mirage has let it into the queue."""
        links = until(
            lambda: self.site.chain_jobs(ALICE, self.chain).get(segment),
            60,
            f"link {segment} in the queue",
        )
        self.site.run(ALICE, "scontrol", "update", f"JobId={links[0]}", "Dependency=")

    def finish(self, segment: int) -> None:
        """Waits until the work is done and its last link has ended."""
        (job,) = self.site.chain_jobs(ALICE, self.chain)[segment]
        until(
            lambda: self.site.state(job) == "COMPLETED",
            150,
            f"link {segment}, the last, to end: {self._told()}",
        )
        folder = self.site.home(ALICE) / ".mirage" / "chains" / self.chain
        assert (folder / "done").exists()
        for number in range(1, segment + 1):
            assert (folder / f"ready.{number}").exists(), "it says when its work goes on"

    def history_is_slurms(self, observer) -> dict:
        """`mirage history` says what `sacct -D` says, field by field."""
        jobs = [ids[0] for ids in self.site.chain_jobs(ALICE, self.chain).values()]
        ran = [job for job in jobs if self.site.job(job).get("NodeList") not in ("", "(null)")]
        until(lambda: history_of(self.site, self.chain)["state"] == "done", 60, "the chain's end")
        assert observer.process.poll() is None
        return assert_history_is_slurms(self.site, self.chain, ran)

    def _told(self) -> str:
        return self.log.read_text()[-2000:] if self.log.exists() else "no output"


def payload(path: Path) -> bytes:
    content = path.read_bytes()
    assert hashlib.sha256(content[32:]).digest() == content[:32]
    return content[32:]


def bits(value: object) -> object:
    """A checkpoint's content such that == compares it bit for bit."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.contiguous().numpy().tobytes()
    if isinstance(value, dict):
        return {key: bits(part) for key, part in value.items()}
    return [bits(part) for part in value] if isinstance(value, list | tuple) else value


def test_pytorch_three_links_end_with_the_bits_of_one_uninterrupted_run(site, run, path, tmp_path):
    train = run("--segments=3", "--signal=USR1@60", command="srun python3 train.py")
    for segment in (2, 3):
        train.wait_for(f"begin {segment - 1}")
        train.let_in(segment)
    train.finish(3)
    assert [entry for entry in train.journal() if "save" not in entry] == [
        f"{what} {link}" for link in (1, 2, 3) for what in ("begin", "end")
    ]
    held = [entry.split() for entry in train.journal()]
    assert [link for _, link in held] == sorted(
        link for _, link in held
    )  # nobody saved before or after its turn
    told = [line.split() for line in train.log.read_text().splitlines() if " step " in line]
    froms = [int(words[-1]) for words in told if words[0] == "from"]
    saved = [int(words[-1]) for words in told if words[0] == "saved"]
    assert froms == [0, *saved[:2]]
    assert 0 < saved[0] < saved[1] < saved[2] == 400
    command = [
        str(site.bin / "python3"),
        str(EXAMPLES / "train.py"),
        str(tmp_path / "once"),
        "--steps=400",
    ]
    subprocess.run(command, check=True, env={"PYTHONPATH": path, "OMP_NUM_THREADS": "1"})
    ends = [
        torch.load(io.BytesIO(payload(folder / "checkpoint.pt")), weights_only=True)
        for folder in (train.folder, tmp_path / "once")
    ]
    assert bits(ends[0]) == bits(ends[1])


def test_lightning_requeues_itself_and_its_successor_goes_on_from_what_it_saved(
    site, run, observer
):
    lightning = run("--segments=2", "--signal=USR1@60", command="srun python3 lightning_train.py")
    lightning.wait_for("begin 1")
    # Lightning takes the signal once it trains; one that came before would end it without a
    # checkpoint.
    until(
        lambda: "SLURM auto-requeueing enabled" in lightning.log.read_text(),
        60,
        "Lightning's own handler",
    )
    lightning.let_in(2)
    lightning.finish(2)
    journal = lightning.journal()
    first, second = journal[: journal.index("begin 2")], journal[journal.index("begin 2") :]
    (saved,) = [
        entry.split()[0].removeprefix("save-") for entry in first if entry.startswith("save")
    ]
    assert first == ["begin 1", f"save-{saved} 1"]  # it is killed by its own requeue: no "end"
    assert second == ["begin 2", f"load-{saved} 2", "save-200 2", "end 2"]
    assert "Requeued SLURM job" in lightning.log.read_text()
    until(
        lambda: site.state(lightning.jobs[0]) == "COMPLETED", 90, "the requeued link, which leaves"
    )
    assert lightning.journal() == journal
    told = lightning.history_is_slurms(observer)
    assert told["links"][0]["state"] == "REQUEUED"
    assert told["links"][0]["end"] - told["links"][0]["start"] > 0


def test_submitits_result_is_that_of_all_links(site, path, observer, tmp_path):
    folder, log = site.home(ALICE) / "run", tmp_path / "submitit.log"
    shutil.rmtree(folder, ignore_errors=True)
    program = str(site.folder / "examples" / "submitit_chain.py")
    words = [program, str(folder), "--steps=120", "--minutes=5", "--segments=3"]
    program_run = site.start(ALICE, "env", f"PYTHONPATH={path}", PYTHON, *words, log=log)
    try:
        first = until(
            lambda: re.search(r"job (\d+) is the first link", log.read_text()),
            60,
            f"the first link: {log.read_text()}",
        )
        shown = site.run("root", "scontrol", "show", "job", first[1]).stdout
        chain = re.search(r"chain=(\w+)", shown)[1]
        run = Run(site, folder, chain, [int(first[1])], log)
        run.wait_for("begin 1")
        run.let_in(2)
        assert program_run.wait(180 * BUSY) == 0, log.read_text()
    finally:
        program_run.terminate()
    assert log.read_text().splitlines()[-1] == "result: 120"
    run.history_is_slurms(observer)
    assert [entry for entry in run.journal() if "save" not in entry] == [
        f"{what} {link}" for link in (1, 2) for what in ("begin", "end")
    ]


SNAKEMAKE_LINKS = """#!/bin/bash
#SBATCH -N1 -n1 -t10 -o links.log --open-mode=append
#MIRAGE --segments=3
echo "$MIRAGE_SEGMENT" >>links
[ "$MIRAGE_SEGMENT" = 2 ] || exit {code}
echo weights >model.txt
touch "$MIRAGE_DONE_FILE"
"""


def test_snakemake_waits_for_the_chain(site, path):
    done, folder = snakemake(site, path, code=0)
    assert done.returncode == 0, done.stderr
    assert (folder / "links").read_text().split() == ["1", "2"]
    assert (folder / "report.txt").read_text().strip() == str(len("weights\n"))


def test_snakemake_stops_where_the_chain_fails(site, path):
    done, folder = snakemake(site, path, code=1)
    assert done.returncode == 1
    assert (folder / "links").read_text().split() == ["1"]
    assert not (folder / "report.txt").exists()


def snakemake(site, path, code: int) -> tuple[subprocess.CompletedProcess, Path]:
    """A run of docs/examples/Snakefile, whose first link exits with ``code``; the folder that it
    worked in.
    """
    folder = site.home(ALICE) / "snakemake"
    shutil.rmtree(folder, ignore_errors=True)
    site.run(ALICE, "mkdir", str(folder))
    site.script(ALICE, "snakemake/train.sbatch", SNAKEMAKE_LINKS.format(code=code))
    snakefile = str(site.folder / "examples" / "Snakefile")
    words = ["-m", "snakemake", "--snakefile", snakefile, "--cores=1"]
    environment = ["env", "-C", str(folder), f"PYTHONPATH={path}"]
    return site.run(ALICE, *environment, PYTHON, *words, check=False, timeout_s=300), folder

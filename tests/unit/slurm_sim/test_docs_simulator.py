"""The simulator's pages: each ``console`` block is run, in order, in one folder, and must print
what the page says.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirage.cli.main import main as mirage
from slurm_sim.cli.main import main as slurm_sim
from slurm_sim.clusters import read_cluster

DOCS = Path(__file__).parents[3] / "docs"
SMALL = Path(__file__).parents[2] / "data" / "slurm_conf" / "small"
BLOCK = re.compile(r"^```(?P<kind>\w+)\n(?P<text>.*?)^```", re.MULTILINE | re.DOTALL)
PROGRAMS = {"slurm-sim": slurm_sim, "mirage": mirage}
FREELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def blocks(page: str, kind: str) -> list[str]:
    return [
        found["text"]
        for found in BLOCK.finditer((DOCS / page).read_text())
        if found["kind"] == kind
    ]


def commands(page: str) -> Iterator[tuple[str, str]]:
    """Each command of the page with the output that it shows."""
    for text in blocks(page, "console"):
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def run(command: str, shown: str) -> str:
    """The command's whole output; a file that a page shows first is made as it is shown there."""
    words = shlex.split(command)
    if words[0] == "cat":
        if not Path(words[1]).exists():
            Path(words[1]).write_text(shown)
        return Path(words[1]).read_text()
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        PROGRAMS[words[0]](words[1:])
    return out.getvalue()


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder with what the administrator of a cluster has: its slurm.conf, and what its commands
    print.
    """
    monkeypatch.chdir(tmp_path)
    for path in (*SMALL.glob("*.conf"), *(SMALL / "live").glob("*.txt")):
        shutil.copy(path, tmp_path)
    Path("assoc_parents.txt").rename("assoc.txt")


@pytest.mark.parametrize("page", ["slurm-sim.md", "traces.md", "workloads.md", "clusters.md"])
def test_commands_print_what_the_page_says(page: str) -> None:
    checker, seen = doctest.OutputChecker(), 0
    for command, shown in commands(page):
        got, seen = run(command, shown), seen + 1
        example = doctest.Example(command, shown)
        assert checker.check_output(shown, got, FREELY), checker.output_difference(
            example, got, FREELY
        )
    assert seen > 0


def test_the_python_of_the_page_on_clusters() -> None:
    run("cat cluster.toml", blocks("clusters.md", "toml")[0])
    for text in blocks("clusters.md", "python"):
        exec(text, {})


def test_the_toml_of_the_page_on_clusters() -> None:
    Path("c.toml").write_text(blocks("clusters.md", "toml")[0])
    cluster = read_cluster("c.toml").cluster
    assert (cluster.name, len(cluster.nodes), cluster.params.bf_window_s) == ("ls6", 76, 172800)

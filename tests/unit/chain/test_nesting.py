"""Chains do not multiply: what mirage-submit and mirage-sbatch do inside a chain."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mirage.cli.submit import main
from tests.unit.chain.test_sbatch_wrapper import CHAIN, PLAIN, SUBMITTING
from tests.unit.chain.test_sbatch_wrapper import Site as Wrapped
from tests.unit.chain.test_submit import Site, site

__all__ = ["site"]


@pytest.fixture
def inside(site: Site, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a chain that was started with train.sbatch; we are in one of its links."""
    assert main(["--segments=3", "train.sbatch"]) == 0
    (folder,) = site.folders()
    (site.fake / "sbatch").unlink()
    monkeypatch.setenv("MIRAGE_CHAIN_ID", folder.name)
    monkeypatch.setenv("MIRAGE_CHAIN_DIR", str(folder))
    return folder


@pytest.mark.parametrize("how", ["name", "path", "symlink", "copy", "edited", "chains", "job.sh"])
@pytest.mark.parametrize("more", [[], ["--nested"], ["--dry-run"], ["--test-only"]], ids=" ".join)
def test_the_chains_own_script_is_refused_by_any_name(
    site: Site, inside: Path, capsys: pytest.CaptureFixture[str], how: str, more: list[str]
) -> None:
    script = site.root / "train.sbatch"
    other = site.root / "other.sh"
    if how == "symlink":
        other.symlink_to(script)
    elif how == "copy":
        shutil.copy(script, other)
    elif how == "edited":
        script.write_text(f"{script.read_text()}# later\n")
    named = {
        "name": "train.sbatch",
        "chains": str(inside / "script"),
        "job.sh": str(inside / "job.sh"),
    }
    path = named.get(how) or str(other if other.exists() else script)
    assert main(["--segments=3", *more, path]) == 2
    error = capsys.readouterr().err
    assert f"is the script of chain {inside.name}, inside which this runs" in error
    assert "remove this submission from the script" in error
    assert error.count("\n") == 1
    assert site.sbatch_calls() == []
    assert site.folders() == [inside]


@pytest.mark.parametrize("folder", ["there", "gone", "unnamed"])
def test_another_script_needs_nested(
    site: Site,
    inside: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    folder: str,
) -> None:
    if folder == "gone":
        shutil.rmtree(inside)
    elif folder == "unnamed":
        monkeypatch.delenv("MIRAGE_CHAIN_DIR")
    site.write("other.sh", "#!/bin/sh\n#SBATCH -t5\n")
    assert main(["--segments=3", "other.sh"]) == 2
    assert "add --nested if that is meant" in capsys.readouterr().err
    assert site.sbatch_calls() == []
    assert main(["--segments=3", "--nested", "other.sh"]) == 0
    site.write("other.sh", "#!/bin/sh\n#SBATCH -t5\n#MIRAGE --segments=2 --nested\n")
    assert main(["other.sh"]) == 0
    assert len(site.sbatch_calls()) == 4


def test_without_its_folder_variable_the_chains_own_script_is_known_too(
    site: Site, inside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MIRAGE_CHAIN_DIR")
    assert main(["--segments=3", "--nested", "train.sbatch"]) == 2


# ---- The wrapper


@pytest.fixture
def wrapped(tmp_path: Path) -> Wrapped:
    """A site with the wrapper; a chain of chain.sh and one of plain.sh are under way."""
    (tmp_path / "w").mkdir()
    wrapped = Wrapped(tmp_path / "w")
    wrapped.real.write_text(SUBMITTING)
    return wrapped


def started(wrapped: Wrapped, script: str) -> None:
    """We are inside a chain of this script from now on."""
    folder = wrapped.root / ".mirage" / "chains" / "abcdefgh"
    folder.mkdir(parents=True)
    shutil.copy(wrapped.root / script, folder / "script")
    (folder / "chain").write_text(f"script={wrapped.root / script}\n")
    wrapped.more = {b"MIRAGE_CHAIN_ID": b"abcdefgh", b"MIRAGE_CHAIN_DIR": str(folder).encode()}


def calls(wrapped: Wrapped) -> list[str]:
    path = Path(f"{wrapped.real}.calls")
    return path.read_text().splitlines() if path.exists() else []


def test_a_script_that_resubmits_itself_starts_no_chain_from_each_link(wrapped: Wrapped) -> None:
    started(wrapped, "chain.sh")
    for script in (b"chain.sh", str(wrapped.root / ".mirage/chains/abcdefgh/script").encode()):
        code, out, err, _seen = wrapped.seen(wrapped.wrapper, [script])
        assert (code, out) == (2, b"")
        assert b"is the script of chain abcdefgh" in err
    assert calls(wrapped) == []


def test_a_link_may_submit_other_jobs(wrapped: Wrapped) -> None:
    started(wrapped, "chain.sh")
    assert wrapped.seen(wrapped.wrapper, [b"plain.sh"])[:3] == (0, b"101\n", b"")
    assert calls(wrapped) == ["[plain.sh]"]


def test_another_chain_needs_nested_on_the_command_line_or_in_the_script(wrapped: Wrapped) -> None:
    started(wrapped, "plain.sh")
    code, _out, err, _seen = wrapped.seen(wrapped.wrapper, [b"chain.sh"])
    assert (code, calls(wrapped)) == (2, [])
    assert b"add --nested" in err
    assert wrapped.seen(wrapped.wrapper, [b"--nested", b"chain.sh"])[0] == 0
    (wrapped.root / "nested.sh").write_text(CHAIN.replace("three", "three\n#MIRAGE --nested"))
    assert wrapped.seen(wrapped.wrapper, [b"nested.sh"])[0] == 0


def test_a_script_without_mirage_lines_is_not_resubmitted_from_its_chain_either(
    wrapped: Wrapped,
) -> None:
    """It would be a chain made by hand, beside ours and on the same checkpoint."""
    started(wrapped, "plain.sh")
    assert b"#MIRAGE" not in PLAIN.encode().partition(b"date")[0]
    for words, stdin in (([b"plain.sh"], b""), ([], PLAIN.encode())):
        code, out, err, _seen = wrapped.seen(wrapped.wrapper, words, stdin)
        assert (code, out) == (2, b"")
        assert b"is the script of chain abcdefgh" in err
    assert calls(wrapped) == []

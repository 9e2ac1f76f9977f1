"""What a release needs beside code: its check, and the recipes for Spack and EasyBuild."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

import mirage

ROOT = Path(__file__).parents[3]


def script(path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(path), *words], capture_output=True, text=True, check=False
    )


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout with all that a release of version 1.2.3 needs."""
    for name, text in {
        "mirage/__init__.py": '__version__ = "1.2.3"\n',
        "CHANGELOG.md": "# Changelog\n\n## 1.2.3 (2026-12-01)\n",
        "docs/releases/1.2.3.md": "# Mirage 1.2.3\n",
        "scripts/check-release": (ROOT / "scripts" / "check-release").read_text(),
        "scripts/check-figures": (ROOT / "scripts" / "check-figures").read_text(),
        "benchmarks/figures.toml": "",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "scripts" / "check-figures").chmod(0o755)
    return tmp_path


def test_a_page_that_says_another_figure_than_its_kept_result_is_named(checkout):
    (checkout / "benchmarks" / "cost.json").write_text('{"s": 1.5}')
    (checkout / "benchmarks" / "figures.toml").write_text(
        '["cost.json"]\ncode = ["mirage"]\npages."CHANGELOG.md" = ["{s} s"]\n'
    )
    done = script(checkout / "scripts" / "check-release", "v1.2.3")
    assert done.returncode == 1
    assert "CHANGELOG.md: cost.json gives '1.5 s', and the page does not say so" in done.stderr


def test_a_release_whose_parts_agree_passes(checkout):
    done = script(checkout / "scripts" / "check-release", "v1.2.3")
    assert (done.returncode, done.stderr.strip()) == (0, "")


@pytest.mark.parametrize(
    ("tag", "missing", "said"),
    [
        ("1.2.3", "", "tag 1.2.3: expected one like v0.1.0"),
        ("v1.2.4", "", "expected version 1.2.4, found 1.2.3"),
        ("v1.2.3", "docs/releases/1.2.3.md", "release notes are missing"),
        ("v1.2.3", "CHANGELOG.md", "expected a heading `## 1.2.3`"),
    ],
)
def test_what_is_missing_is_said(checkout, tag, missing, said):
    if missing.endswith("CHANGELOG.md"):
        (checkout / missing).write_text("# Changelog\n\n## Unreleased: 1.2.3\n")
    elif missing:
        (checkout / missing).unlink()
    done = script(checkout / "scripts" / "check-release", tag)
    assert done.returncode == 1
    assert said in done.stderr


def test_this_version_can_be_released(checkout):
    tag = f"v{mirage.__version__}"
    for name in ("mirage/__init__.py", "CHANGELOG.md", f"docs/releases/{mirage.__version__}.md"):
        (checkout / name).write_text((ROOT / name).read_text())
    done = script(checkout / "scripts" / "check-release", "--prepare", tag)
    assert (done.returncode, done.stderr.strip()) == (0, "")
    log = (checkout / "CHANGELOG.md").read_text()
    assert f"\n## {mirage.__version__} (20" in log
    assert "Unreleased" not in log


def test_a_change_log_is_not_prepared_for_another_release(checkout):
    before = "# Changelog\n\n## Unreleased\n"
    (checkout / "CHANGELOG.md").write_text(before)
    done = script(checkout / "scripts" / "check-release", "--prepare", "v1.2.4")
    assert done.returncode == 1
    assert "expected a heading `## 1.2.4`" in done.stderr
    assert (checkout / "CHANGELOG.md").read_text() == before


def test_recipes_name_the_files_and_their_checksums(tmp_path):
    dist, out = tmp_path / "dist", tmp_path / "out"
    needs = (
        "h11-1.0",
        "mdurl-1.0",
        "markdown_it_py-1.0",
        "pygments-1.0",
        "rich-1.0",
        "python_hostlist-1.0",
    )
    names = ["mirage_slurm-1.2.3.tar.gz", "mirage_slurm_client-1.2.3-py3-none-any.whl"]
    for name in (*names, *(f"needs/{need}-py3-none-any.whl" for need in needs)):
        (dist / name).parent.mkdir(parents=True, exist_ok=True)
        (dist / name).write_text(name)
    done = script(ROOT / "packaging" / "recipes", str(dist), str(out))
    assert done.returncode == 0, done.stderr
    spack = (out / "spack" / "packages" / "py-mirage-slurm" / "package.py").read_text()
    compile(spack, "package.py", "exec")
    checksum = hashlib.sha256(names[0].encode()).hexdigest()
    assert f'version("1.2.3", sha256="{checksum}")' in spack
    easyconfig = {"SYSTEM": "system"}
    exec((out / "easybuild" / "mirage-slurm-client-1.2.3.eb").read_text(), easyconfig)
    assert (easyconfig["name"], easyconfig["version"]) == ("mirage-slurm-client", "1.2.3")
    assert easyconfig["sources"][0] == names[1]
    assert easyconfig["checksums"][0] == hashlib.sha256(names[1].encode()).hexdigest()
    assert len(easyconfig["sources"]) == len(easyconfig["checksums"]) == 7
    assert (out / "easybuild" / "rich-1.0-py3-none-any.whl").exists()


def test_recipes_of_a_folder_without_a_release(tmp_path):
    done = script(ROOT / "packaging" / "recipes", str(tmp_path), str(tmp_path / "out"))
    assert done.returncode == 1
    assert "expected one mirage_slurm-*.tar.gz, found 0" in done.stderr

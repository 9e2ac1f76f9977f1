"""What pages print is what the kept results give; and results that are older than their code are found."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchmarks.again import Again, part

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "check-figures"
TABLE = tomllib.loads((ROOT / "benchmarks" / "figures.toml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def check() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("check_figures", str(SCRIPT))
    spec = importlib.util.spec_from_loader("check_figures", loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


def test_pages_say_what_the_kept_results_give(check: ModuleType) -> None:
    assert check.untrue(ROOT, TABLE) == []


def test_each_kept_result_is_in_the_table_and_each_path_is_there() -> None:
    kept = {file.name for file in (ROOT / "benchmarks").glob("*.json")}
    assert set(TABLE) == kept
    for file, entry in TABLE.items():
        assert entry["pages"], f"{file}: no page prints it"
        for path in [*entry["code"], *entry["pages"]]:
            assert (ROOT / path).exists(), f"{file}: {path}"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository with a result, its code and a page."""
    git(tmp_path, "init", "-q")
    for name, text in {
        "code/a.py": "a = 1\n",
        "other.py": "b = 1\n",
        "page.md": "It takes\n1.5 s.\n",
        "benchmarks/cost.json": '{"row": {"cpu_s": 1.52}}',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    commit(tmp_path)
    return tmp_path


def git(folder: Path, *words: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    done = subprocess.run(
        ["git", "-C", str(folder), *names, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(folder: Path) -> str:
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "change")
    return git(folder, "rev-parse", "HEAD")


def entry(sentence: str = "It takes {row[cpu_s]:.1f} s.") -> dict[str, object]:
    return {"cost.json": {"code": ["code"], "pages": {"page.md": [sentence]}}}


def test_a_result_is_stale_once_its_code_changes_and_fresh_once_it_is_made_again(
    check: ModuleType, checkout: Path
) -> None:
    assert check.stale(checkout, entry()) == []
    (checkout / "other.py").write_text("b = 2\n")
    commit(checkout)
    assert check.stale(checkout, entry()) == []
    (checkout / "code" / "a.py").write_text("a = 2\n")
    changed = commit(checkout)
    (line,) = check.stale(checkout, entry())
    assert line.startswith("cost.json (page.md): of ")
    assert line.endswith("; changed since: code/a.py")
    kept = {"row": {"cpu_s": 1.5, "commit": changed[:8]}}
    (checkout / "benchmarks" / "cost.json").write_text(json.dumps(kept))
    assert check.stale(checkout, entry()) == []


def test_a_commit_that_stands_in_the_result_counts_more_than_the_files_last_change(
    check: ModuleType, checkout: Path
) -> None:
    first = git(checkout, "rev-parse", "HEAD")
    (checkout / "code" / "a.py").write_text("a = 2\n")
    commit(checkout)
    kept = {"row": {"cpu_s": 1.5, "machine": {"commit": f"{first[:8]}-dirty"}}}
    (checkout / "benchmarks" / "cost.json").write_text(json.dumps(kept))
    commit(checkout)
    assert len(check.stale(checkout, entry())) == 1


@pytest.mark.parametrize(("day", "old"), [("2099-01-01", True), ("2099-03-01", False)])
def test_a_result_with_a_date_is_no_younger_for_a_later_change_of_its_file(
    check: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch, day: str, old: bool
) -> None:
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2099-02-01T00:00:00Z")
    (checkout / "code" / "a.py").write_text("a = 2\n")
    commit(checkout)
    monkeypatch.setenv("GIT_COMMITTER_DATE", "2099-04-01T00:00:00Z")
    (checkout / "benchmarks" / "cost.json").write_text(json.dumps({"row": {"date": day}}))
    commit(checkout)
    assert bool(check.stale(checkout, entry())) is old


def test_a_page_that_says_something_else_is_named(check: ModuleType, checkout: Path) -> None:
    assert check.untrue(checkout, entry()) == []
    (checkout / "page.md").write_text("It takes 0.4 s.\n")
    assert check.untrue(checkout, entry()) == [
        "page.md: cost.json gives 'It takes 1.5 s.', and the page does not say so"
    ]


def test_comments_and_docstrings_make_no_result_stale(check: ModuleType, checkout: Path) -> None:
    (checkout / "code" / "a.py").write_text('"""What it is."""\n\na = 1  # one\n')
    commit(checkout)
    assert check.stale(checkout, entry()) == []


BENCHMARK = (
    "import json\nfrom code.a import a\nprint(json.dumps({'row': {'cpu_s': 0.1, 'answer': a}}))\n"
)


def with_benchmark(checkout: Path, answer: int) -> dict[str, Any]:
    """The table of a checkout whose benchmark prints what code/a.py says; the kept answer is this one."""
    for name, text in {
        "bench.py": BENCHMARK,
        "benchmarks/cost.json": json.dumps({"row": {"cpu_s": 7, "answer": answer}, "other": 1}),
        "code/__init__.py": "",
    }.items():
        (checkout / name).write_text(text)
    shutil.copy(ROOT / "benchmarks" / "again.py", checkout / "benchmarks")
    commit(checkout)
    table: dict[str, Any] = entry()
    table["cost.json"]["again"] = {"command": f"{sys.executable} bench.py"}
    return table


def test_a_confirmed_result_is_not_stale_until_its_code_changes_again(
    check: ModuleType, checkout: Path
) -> None:
    table = with_benchmark(checkout, 2)
    (checkout / "code" / "a.py").write_text("a = 1 + 1\n")
    commit(checkout)
    assert len(check.stale(checkout, table)) == 1
    assert check.compute_again(checkout, table, ["cost.json"], keep=True) == []
    assert check.stale(checkout, table) == []
    (checkout / "code" / "a.py").write_text("a = 4 // 2\n")
    commit(checkout)
    assert len(check.stale(checkout, table)) == 1


def test_a_result_whose_answer_changed_is_untrue_and_loses_its_confirmation(
    check: ModuleType, checkout: Path
) -> None:
    table = with_benchmark(checkout, 1)
    assert check.compute_again(checkout, table, ["cost.json"], keep=True) == []
    (checkout / "code" / "a.py").write_text("a = 3\n")
    commit(checkout)
    (line,) = check.compute_again(checkout, table, ["cost.json"], keep=True)
    assert line.startswith("cost.json is not confirmed: [row][answer] is 3, kept 1 (")
    assert check.read(checkout, check.CONFIRMED) == {}


def test_each_command_is_one_of_this_checkout_and_its_place_is_in_the_kept_result() -> None:
    for file, known in TABLE.items():
        if "again" not in known:
            continue
        again = Again(**known["again"])
        part(json.loads((ROOT / "benchmarks" / file).read_text(encoding="utf-8")), again.at)
        program, *words = shlex.split(again.command)
        if program == "python":
            assert (ROOT / f"{words[1].replace('.', '/')}.py").exists(), file
        else:
            assert program == "mirage" or (ROOT / program).exists(), file


def test_a_sentence_reads_a_kept_list_as_rows(check: ModuleType, checkout: Path) -> None:
    (checkout / "benchmarks" / "cost.json").write_text('[{"cpu_s": 1.52}]')
    assert check.untrue(checkout, entry("It takes {rows[0][cpu_s]:.1f} s.")) == []
    assert len(check.untrue(checkout, entry("It takes {rows[0][cpu_s]:.2f} s."))) == 1

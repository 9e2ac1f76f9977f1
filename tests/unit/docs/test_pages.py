"""What pages lead to is there, and the decisions have an index that says what the records say."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[3]
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]+)")
NAMED = re.compile(
    r"`((?:mirage|slurm_sim|scripts|tests|benchmarks|packaging|systemd|docs)/[a-z\d_./-]+)`"
)
"""A path of the repository, as pages write it."""


def pages() -> Iterator[Path]:
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-co", "--exclude-standard", "*.md"],
        capture_output=True,
        text=True,
        check=True,
    )
    return (ROOT / line for line in listed.stdout.splitlines() if (ROOT / line).exists())


def without_code(page: Path) -> str:
    return re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)


def test_each_link_leads_to_a_file() -> None:
    broken = [
        f"{page.relative_to(ROOT)}: {link}"
        for page in pages()
        for link in LINK.findall(without_code(page))
        if not (page.parent / link).exists()
    ]
    assert broken == []


def test_each_path_that_a_page_names_is_there() -> None:
    missing = [
        f"{page.relative_to(ROOT)}: {path}"
        for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
        for path in NAMED.findall(without_code(page))
        if not (ROOT / path).exists()
    ]
    assert missing == []


@pytest.fixture(scope="module")
def decisions() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("decisions", str(ROOT / "scripts" / "decisions"))
    spec = importlib.util.spec_from_loader("decisions", loader)
    assert spec is not None
    module = sys.modules["decisions"] = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
    loader.exec_module(module)
    sys.dont_write_bytecode = before
    return module


def test_the_index_says_what_the_records_say(decisions: ModuleType) -> None:
    assert (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8") == decisions.index()


def write(folder: Path, number: str, head: str) -> None:
    (folder / f"{number}-a.md").write_text(f"# {number}: A choice\n\n{head}\n\nText.\n")


def test_a_replaced_number_leads_to_the_record_that_replaced_it(
    decisions: ModuleType, tmp_path: Path
) -> None:
    write(tmp_path, "0003", "2026-11-28. Accepted. Replaces 0001, 0002.")
    page = decisions.index(tmp_path)
    assert "| 0003 | [A choice](0003-a.md) | 2026-11-28 |" in page
    assert "| 0001 | [0003](0003-a.md) |\n| 0002 | [0003](0003-a.md) |" in page


@pytest.mark.parametrize(
    ("number", "head", "words"),
    [
        ("0003", "Accepted.", "must begin with"),
        ("0003", "2026-11-28. Accepted. Replaces 0004.", "0004 is said to be replaced"),
    ],
)
def test_a_record_without_its_head_or_a_number_twice_is_refused(
    decisions: ModuleType, tmp_path: Path, number: str, head: str, words: str
) -> None:
    write(tmp_path, number, head)
    write(tmp_path, "0004", "2026-11-27. Accepted.")
    with pytest.raises(SystemExit, match=words):
        decisions.index(tmp_path)


MOST_WORDS = 2_100
"""Of prose and tables, without code: ten minutes."""


def test_each_page_takes_ten_minutes_at_most() -> None:
    counts = {
        str(page.relative_to(ROOT)): len(re.findall(r"[^\s|]+", without_code(page)))
        for folder in ("docs", "benchmarks")
        for page in (ROOT / folder).glob("*.md")
    }
    assert {page: count for page, count in counts.items() if count > MOST_WORDS} == {}


MOST_WORDS_OF_A_SENTENCE = 25
SENTENCE_END = re.compile(r"(?<=[.!?:])[)\"*]*\s+")
NO_PROSE = re.compile(r"\s*(?:[-*|#>]|\d+\. )")
"""How a line of a list, a table or a title begins."""
WORD = re.compile(r"[A-Za-z][\w'-]+")


def long_sentences(text: str) -> Iterator[str]:
    """In paragraphs; neither code, links, numbers nor single letters count as words."""
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|#>]|\d+\. ))", text):
        if NO_PROSE.match(block) is None:
            plain = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", block)
            yield from (
                " ".join(sentence.split())
                for sentence in SENTENCE_END.split(plain)
                if len(WORD.findall(sentence)) > MOST_WORDS_OF_A_SENTENCE
            )


def test_sentences_have_25_words_at_most() -> None:
    folders = (ROOT / "docs", ROOT / "docs/decisions", ROOT / "benchmarks", ROOT)
    found = [
        f"{page.relative_to(ROOT)}: {sentence}"
        for folder in folders
        for page in folder.glob("*.md")
        for sentence in long_sentences(without_code(page))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("word " * 25, 0),
        ("word " * 26, 1),
        (("word " * 13 + ". ") * 2, 0),
        ("| " + "word " * 26, 0),
        ("`" + "word " * 26 + "` word", 0),
        ("- item\n\n" + "word " * 13 + "\n" + "word " * 13, 1),
    ],
    ids=["short", "long", "two", "table", "code", "lines"],
)
def test_long_sentences_are_found(text: str, count: int) -> None:
    assert len(list(long_sentences(text))) == count

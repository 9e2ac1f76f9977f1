"""What counts as a difference between a kept result and one that is computed again."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from benchmarks.again import Again

KEPT = {
    "rows": [{"name": "a", "goodput": 0.9}, {"name": "b", "goodput": 0.8}],
    "cpu_s": 2.0,
    "waits_h": [0.1, 2.3457, 7.0],
}


def differences(fresh: object, **rule: object) -> list[str]:
    return list(Again(command="", **rule).differences(fresh, KEPT))  # type: ignore[arg-type]


def test_a_part_of_the_kept_result_is_no_difference() -> None:
    assert differences({"rows": [{"name": "b", "goodput": 0.8}], "cpu_s": 90.0}) == []


def test_the_nearest_row_says_what_differs() -> None:
    fresh = {"rows": [{"name": "b", "goodput": 0.81}]}
    assert differences(fresh) == ["[rows][goodput] is 0.81, kept 0.8"]
    assert differences(fresh, but=["goodput"]) == []


def test_what_the_kept_result_lacks_is_a_difference() -> None:
    assert differences({"more": 1}) == ["[more] is 1, kept None"]


def test_five_digits_of_a_list_from_its_begin_on_count() -> None:
    assert differences({"waits_h": [0.1, 2.34567891]}) == []
    assert len(differences({"waits_h": [0.1, 2.346]})) == 1
    assert len(differences({"waits_h": []})) == 1


@pytest.mark.parametrize(("cpu_s", "holds"), [(3.0, True), (1.0, True), (4.1, False), (0.9, False)])
def test_a_time_may_lie_within_the_stated_ratio(cpu_s: float, holds: bool) -> None:
    assert (differences({"cpu_s": cpu_s}, within={"cpu_s": 2}) == []) is holds


@pytest.mark.parametrize(
    ("printed", "said"),
    [("[]", "gave nothing"), ("no JSON", "Expecting value"), (None, "exit 3: out of memory")],
)
def test_a_command_that_gives_nothing_is_no_confirmation(
    tmp_path: Path, printed: str | None, said: str
) -> None:
    program = tmp_path / "bench.py"
    ending = "import sys; print('out of memory', file=sys.stderr); sys.exit(3)"
    program.write_text(ending if printed is None else f"print({printed!r})")
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "cost.json").write_text(json.dumps(KEPT))
    (line,) = Again(command=f"{sys.executable} bench.py").wrong(tmp_path, "cost.json")
    assert said in line


def test_a_file_or_a_folder_may_hold_what_the_command_writes(tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "cost.json").write_text(json.dumps({"b": KEPT["rows"]}))
    text = json.dumps({"a": KEPT["rows"]})
    for name, write in {
        "file.py": f"open(out, 'w').write({text!r})",
        "folder.py": f"import os; os.mkdir(out); open(out + '/results.json', 'w').write({text!r})",
    }.items():
        (tmp_path / name).write_text(f"import sys\nout = sys.argv[1]\n{write}\n")
        again = Again(command=f"{sys.executable} {name} {{out}}", of="a", at="b")
        assert again.wrong(tmp_path, "cost.json") == []

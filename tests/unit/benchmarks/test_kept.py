"""Results that are kept in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import learning_cv, learning_seeds
from benchmarks.kept import checksum, kept


def never() -> dict[str, Any]:
    raise AssertionError("it is kept")


def test_what_is_kept_is_not_computed_again(tmp_path: Path) -> None:
    file = tmp_path / "cv" / "quantile-1.npz"
    assert kept(file, lambda: {"spent": np.arange(3)})["spent"].tolist() == [0, 1, 2]
    assert kept(file, never)["spent"].tolist() == [0, 1, 2]


def test_a_failure_while_writing_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(out: Any, **_: object) -> None:
        out.write(b"half")
        raise RuntimeError("no space left")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(RuntimeError, match="no space left"):
        kept(tmp_path / "cv" / "quantile-1.npz", lambda: {"spent": np.arange(3)})
    assert not list((tmp_path / "cv").iterdir())


def test_the_checksum_is_of_names_contents_and_settings(tmp_path: Path) -> None:
    (tmp_path / "00000.npz").write_bytes(b"one")
    first = checksum([tmp_path], {"rate": 1})
    assert checksum([tmp_path], {"rate": 2}) != first
    (tmp_path / "00000.npz").write_bytes(b"two")
    assert checksum([tmp_path], {"rate": 1}) != first
    (tmp_path / "00000.npz").write_bytes(b"one")
    assert checksum([tmp_path], {"rate": 1}) == first
    (tmp_path / "00000.npz").rename(tmp_path / "00001.npz")
    assert checksum([tmp_path], {"rate": 1}) != first


def test_other_samples_and_other_settings_have_results_of_their_own(tmp_path: Path) -> None:
    for part in ("train", "judged", "online"):
        (tmp_path / part).mkdir()
        (tmp_path / part / "samples.json").write_text("1")
    seeds = learning_seeds.kept_file("quantile", tmp_path, 1)
    assert seeds != learning_seeds.kept_file("quantile, as logged", tmp_path, 1)
    case = learning_cv.Case(method="quantile")
    blocks = learning_cv.kept_file(case, tmp_path, 1)
    changed = learning_cv.Case(method="quantile", settings=("boosting.rounds=40",))
    assert blocks != learning_cv.kept_file(changed, tmp_path, 1)
    (tmp_path / "online" / "samples.json").write_text("2")  # `quantile` doesn't learn from these
    assert seeds == learning_seeds.kept_file("quantile", tmp_path, 1)
    (tmp_path / "train" / "samples.json").write_text("2")
    assert seeds != learning_seeds.kept_file("quantile", tmp_path, 1)
    assert blocks != learning_cv.kept_file(case, tmp_path, 1)

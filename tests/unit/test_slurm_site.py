"""The compiled core that tests on a real Slurm keep."""

from __future__ import annotations

from pathlib import Path

from tests.slurm.site import core_key


def test_a_core_is_that_of_its_sources(tmp_path: Path) -> None:
    core = tmp_path / "slurm_sim" / "core"
    core.mkdir(parents=True)
    (tmp_path / "CMakeLists.txt").write_text("project(x)\n")
    for name in ("a.cpp", "b.hpp", "__init__.py"):
        (core / name).write_text("1\n")
    first = core_key(tmp_path)
    (core / "__init__.py").write_text("2\n")
    assert core_key(tmp_path) == first
    (core / "b.hpp").write_text("2\n")
    assert core_key(tmp_path) != first
    (core / "b.hpp").write_text("1\n")
    (core / "b.hpp").rename(core / "c.hpp")
    assert core_key(tmp_path) != first
    (core / "c.hpp").rename(core / "b.hpp")
    assert core_key(tmp_path) == first

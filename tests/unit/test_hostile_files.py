"""Files that others made: each is read, or refused in one line, in bounded time and memory."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copytree
from threading import Thread
from time import process_time

import pytest

import slurm_sim.files
from mirage.config import read_tree
from mirage.config_sources import load
from mirage.errors import InputError
from mirage.models.folder import read_recipe
from mirage.models.recipe import RECIPE
from mirage.models.shipped import shipped
from mirage.routing.flavors import load_partitions
from slurm_sim.clusters import read_cluster
from slurm_sim.clusters.files import read_live_files
from slurm_sim.errors import InvalidCluster
from slurm_sim.files import open_bytes, read_bytes
from slurm_sim.formats import parse_json, parse_toml
from slurm_sim.results import read_results
from slurm_sim.traces import TraceError
from slurm_sim.traces.imports import import_csv, import_swf
from slurm_sim.traces.sacct import import_sacct
from slurm_sim.workload import load_model
from tests.toy_models import write_toy_model

READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a configuration": ("m.toml", read_tree),
    "a model's recipe": (RECIPE, lambda path: read_recipe(path.parent)),
    "partitions to route to": ("flavors.toml", load_partitions),
    "a cluster": ("c.toml", read_cluster),
    "a slurm.conf": ("slurm.conf", read_cluster),
    "what a live Slurm says": ("nodes.txt", lambda path: read_live_files([path])),
    "a workload": ("w.toml", load_model),
    "a dump of sacct": ("s.txt", import_sacct),
    "an SWF": ("s.swf", import_swf),
    "a CSV": ("s.csv", import_csv),
}
REFUSALS = (InputError, InvalidCluster, TraceError)
TOML = [name for name, (file, _) in READERS.items() if file.endswith(".toml")]


def refused(read: Callable[[Path], object], path: Path) -> str:
    begin_s = process_time()
    with pytest.raises(REFUSALS) as error:
        read(path)
    assert process_time() - begin_s < 30
    text = str(error.value)
    assert len(text.splitlines()) == 1
    assert len(text) < 1500
    return text


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for files in (slurm_sim.files, slurm_sim.files):
        monkeypatch.setattr(files, "WRITER_S", 0.2)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("name", list(READERS))
def test_a_pipe_that_nobody_writes_to_is_refused_soon(tmp_path: Path, name: str) -> None:
    file, read = READERS[name]
    os.mkfifo(tmp_path / file)
    assert "nobody writes to" in refused(read, tmp_path / file)


@pytest.mark.parametrize("name", list(READERS))
def test_a_folder_in_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    file, read = READERS[name]
    (tmp_path / file).mkdir()
    refused(read, tmp_path / file)


@pytest.mark.parametrize("name", list(READERS))
def test_a_link_to_itself_is_refused(tmp_path: Path, name: str) -> None:
    file, read = READERS[name]
    (tmp_path / file).symlink_to(file)
    refused(read, tmp_path / file)


@pytest.mark.parametrize(
    "name", [name for name, (file, _) in READERS.items() if file[0] == "s" and "conf" not in file]
)
def test_one_line_without_an_end_does_not_fill_the_memory(tmp_path: Path, name: str) -> None:
    file, read = READERS[name]
    with (tmp_path / file).open("wb") as sparse:
        sparse.truncate(3 << 30)
    assert "lines of less than" in refused(read, tmp_path / file)


def test_a_long_field_in_a_header_is_refused(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("x" * 200_000 + "\na,b\n")
    assert "field limit" in refused(read_results, tmp_path / "r.csv")


@pytest.mark.parametrize("name", [name for name in READERS if name != "a model's recipe"])
def test_a_device_in_place_of_a_file_is_refused(tmp_path: Path, name: str) -> None:
    file, read = READERS[name]
    (tmp_path / file).symlink_to("/dev/zero")
    assert "device" in refused(read, tmp_path / file).lower()


@pytest.mark.parametrize(
    "name", [name for name, (file, _) in READERS.items() if file[0] != "s" or "conf" in file]
)
def test_a_file_far_too_large_is_not_read(tmp_path: Path, name: str) -> None:
    file, read = READERS[name]
    with (tmp_path / file).open("wb") as sparse:
        sparse.truncate(3 << 30)
    assert "KiB, too large for what it is" in refused(read, tmp_path / file)


@pytest.mark.parametrize("name", TOML)
@pytest.mark.parametrize(
    "text", ["a = " + "[" * 100_000, ".".join("a" * 200_000) + " = 1", "a = " + "{a=" * 50_000]
)
def test_toml_that_is_nested_too_deep_is_refused(tmp_path: Path, name: str, text: str) -> None:
    file, read = READERS[name]
    (tmp_path / file).write_text(text + "\n")
    refused(read, tmp_path / file)


def test_a_variable_of_the_environment_that_is_nested_too_deep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="MIRAGE__ACTING__USERS"):
        load(None, tmp_path / "none.toml", {"MIRAGE__ACTING__USERS": "[" * 100_000})


def test_json_that_is_nested_too_deep_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="brackets within brackets"):
        parse_json("[" * 100_000)
    assert parse_json("[1]") == [1]


def test_toml_as_people_write_it_is_read() -> None:
    dotted = " ".join(["word."] * 60)
    text = f'x.y."z.z" = [{", ".join(["0.5"] * 200)}]\ns = "{dotted}"\n[t.u]\nv = 1.5\n'
    assert parse_toml(text)["t"] == {"u": {"v": 1.5}}


@pytest.mark.parametrize("read", [read_bytes, lambda path: open_bytes(path).read()])
def test_pipes_and_files_are_read_whole(tmp_path: Path, read: Callable[[Path], bytes]) -> None:
    content = b"text" * 100_000
    (tmp_path / "file").write_bytes(content)
    assert read(tmp_path / "file") == content
    assert read(Path(os.devnull)) == b""
    os.mkfifo(tmp_path / "pipe")
    writer = Thread(target=(tmp_path / "pipe").write_bytes, args=(content,))
    writer.start()
    assert read(tmp_path / "pipe") == content
    writer.join()


def test_more_than_what_it_may_have_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 101)
    assert len(read_bytes(tmp_path / "file", 101)) == 101
    with pytest.raises(OSError, match="too large for what it is"):
        read_bytes(tmp_path / "file", 100)


FLIPS = """
import random, resource, sys
from dataclasses import replace
from pathlib import Path
import numpy as np
from mirage.errors import InputError
from mirage.provision.learn.episode import HISTORY
from mirage.models.folder import _sha256, read_recipe
from mirage.models.recipe import RECIPE, recipe_text
from mirage.provision.learn.methods import read_model
from mirage.provision.learn.model import States
from mirage.state.variables import VARIABLES

resource.setrlimit(resource.RLIMIT_CPU, (120, 120))
dice, matrices = random.Random(1), np.ones((3, HISTORY, len(VARIABLES)), np.float32)
states = States(matrices, np.full(3, 3600), np.ones((3, 2)), forecast_s=np.full(3, 60))

def spoil(text):
    for _ in range(dice.choice((1, 1, 3, 30))):
        # A file's head says how large its arrays are, and of which kind; most of the bytes are not there.
        most = len(text) if dice.random() < 0.5 else min(len(text), 1200)
        text[dice.randrange(most)] = dice.choice((0, 1, 127, 128, 255, dice.randrange(256)))
    if dice.random() < 0.2:
        del text[dice.randrange(len(text)) :]

def is_refused(place):
    try:
        with np.errstate(all="ignore"):
            read_model(place).model.assess(states)
    except InputError as error:
        assert len(str(error)) < 2000, error
        return True
    return False

for place, count in ((Path(folder), int(count)) for folder, count in zip(sys.argv[1::2], sys.argv[2::2])):
    recipe, refused = read_recipe(place), 0
    whole = {file: (place / file).read_bytes() for file in recipe.weights}
    for _ in range(count):
        content = {file: bytearray(text) for file, text in whole.items()}
        spoil(content[dice.choice(sorted(content))])
        for file, text in content.items():
            (place / file).write_bytes(bytes(text))
        weights = {file: _sha256(bytes(text)) for file, text in content.items()}
        (place / RECIPE).write_text(recipe_text(replace(recipe, weights=weights)))
        refused += is_refused(place)
    print(place.name, refused)
"""
METHODS = {"xgboost": 40, "quantile": 30, "random-forest": 20, "transformer": 6}


def test_sealed_weights_with_any_bytes_never_end_the_process(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the extra `train` is not installed")
    words = []
    for method, count in METHODS.items():
        if method == "quantile":
            copytree(shipped("kth-sp2") / method, tmp_path / method)
        else:
            write_toy_model(tmp_path / method, method)
        words += [str(tmp_path / method), str(count)]
    done = subprocess.run(
        [sys.executable, "-c", FLIPS, *words], capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr[-2000:]
    refused = {line.split()[0]: int(line.split()[1]) for line in done.stdout.splitlines()}
    assert refused.keys() == METHODS.keys()
    assert all(0 < refused[method] <= count for method, count in METHODS.items())

"""Model folders: complete or not there, and nothing is read that was changed, is of another kind,
or could run code.
"""

import hashlib
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from mirage.elastic import model as elastic
from mirage.elastic.settings import read_setting
from mirage.errors import InputError
from mirage.models.folder import (
    CARD,
    check_folder,
    read_recipe,
    write_folder,
)
from mirage.models.recipe import RECIPE, About, Recipe, parse_recipe, recipe_text, sealed
from mirage.models.shipped import shipped
from mirage.provision.learn.episode import HISTORY
from mirage.provision.learn.forest import Growth
from mirage.provision.learn.method import TrainingData
from mirage.provision.learn.methods import METHODS, read_model
from mirage.provision.learn.model import States
from mirage.provision.learn.ranges import NAMES, outside, ranges_of
from mirage.provision.learn.trees import FILES, ForestOptions, train_random_forest
from tests.toy_models import ABOUT, EPISODES, write_toy_model

WEIGHTS = FILES["random-forest"]
RECIPE_OF_TOY = Recipe(
    system="provision",
    method="random-forest",
    seed=3,
    options={"every": 3, "growth": {"trees": 4, "features": 0.33}, "shares": [0.2, 0.5]},
    libraries={"numpy": np.__version__},
    about=ABOUT.table(),
)


@pytest.fixture(scope="module")
def model():
    return train_random_forest(EPISODES, ForestOptions(every=6, growth=Growth(trees=4)))


@pytest.fixture
def folder(model, tmp_path):
    path = tmp_path / "models" / "toy" / "random-forest"
    write_folder(path, model, RECIPE_OF_TOY, "# A toy\n")
    return path


def test_what_is_written_comes_back(folder, model):
    again, recipe, about = read_model(folder, "random-forest")
    states = States.of(EPISODES[0])
    assert np.array_equal(again.assess(states).release, model.assess(states).release)
    digest = hashlib.sha256((folder / WEIGHTS).read_bytes()).hexdigest()
    assert about == ABOUT
    assert recipe_text(recipe) == recipe_text(replace(RECIPE_OF_TOY, weights={WEIGHTS: digest}))
    assert (folder / CARD).read_text() == "# A toy\n"
    assert sorted(path.name for path in folder.parent.iterdir()) == ["random-forest"]


def test_every_user_may_read_what_is_written(folder):
    """`mirage train` is one user's, the daemon another; safetensors makes its files 0600."""
    modes = {path.name: path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())}
    assert modes == {"random-forest": 0o755, WEIGHTS: 0o644, RECIPE: 0o644, CARD: 0o644}


def test_the_same_model_gives_the_same_folder(folder, model, tmp_path):
    write_folder(tmp_path / "again", model, RECIPE_OF_TOY, "# A toy\n")
    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_a_folder_is_replaced_in_whole(folder, model):
    write_folder(folder, model, replace(RECIPE_OF_TOY, seed=4), "# Anew\n")
    assert read_recipe(folder).seed == 4
    assert sorted(path.name for path in folder.parent.iterdir()) == ["random-forest"]


class Failing:
    name = "random-forest"

    def write(self, folder):
        (folder / WEIGHTS).write_bytes(b"half")
        raise KeyboardInterrupt


def test_a_write_that_is_cut_short_leaves_what_was_there(folder, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        write_folder(folder, Failing(), RECIPE_OF_TOY, "")
    with pytest.raises(KeyboardInterrupt):
        write_folder(tmp_path / "new", Failing(), RECIPE_OF_TOY, "")
    assert read_recipe(folder).seed == 3
    assert [path.name for path in folder.parent.iterdir()] == ["random-forest"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models"]


def test_other_peoples_files_are_not_replaced(model, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match="files that are no model"):
        write_folder(tmp_path, model, RECIPE_OF_TOY, "")
    with pytest.raises(InputError, match="no folder"):
        write_folder(tmp_path / "thesis.tex", model, RECIPE_OF_TOY, "")
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_recipe_and_model_must_be_of_one_method(model, tmp_path):
    with pytest.raises(InputError, match="of method 'xgboost'"):
        write_folder(tmp_path / "x", model, replace(RECIPE_OF_TOY, method="xgboost"), "")


@pytest.mark.parametrize("name", ["model.pkl", "model.pt", "Model.json", ".hidden.json", "weights"])
def test_weights_of_odd_names_are_not_written(name, tmp_path):
    class Odd:
        name = "random-forest"

        def write(self, folder):
            (folder / odd).write_bytes(b"{}")

    odd = name
    with pytest.raises(InputError, match="no name of a weight file"):
        write_folder(tmp_path / "x", Odd(), RECIPE_OF_TOY, "")
    assert not (tmp_path / "x").exists()


# ---- refusals


def scribble(folder, before, after):
    text = (folder / RECIPE).read_text()
    assert before in text
    (folder / RECIPE).write_text(text.replace(before, after))


def edit(folder, before, after):
    """With fitting checksums, as a program would that writes other recipes."""
    scribble(folder, before, after)
    first, _, rest = (folder / RECIPE).read_text().split("\n", 2)
    (folder / RECIPE).write_text(sealed(first, rest))


def weights_in(folder):
    """The lines of the recipe's table of weights."""
    return (folder / RECIPE).read_text().partition("[weights]")[2].partition("\n[about]")[0]


def put(folder, name, content):
    (folder / name).write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    edit(folder, weights_in(folder), f'\n"{name}" = "{digest}"\n')


def link(folder, name):
    (folder / name).rename(folder.parent / "elsewhere")
    (folder / name).symlink_to(folder.parent / "elsewhere")


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


REFUSALS = {
    "truncated": (
        lambda f: (f / WEIGHTS).write_bytes((f / WEIGHTS).read_bytes()[:-9]),
        "truncated or changed",
    ),
    "empty": (lambda f: (f / WEIGHTS).write_bytes(b""), "truncated or changed"),
    "one bit": (lambda f: flip(f / WEIGHTS), "truncated or changed"),
    "missing": (lambda f: (f / WEIGHTS).unlink(), "missing"),
    "another file": (lambda f: (f / "setup.py").write_text("import os"), "does not name it"),
    "a folder": (lambda f: (f / "weights").mkdir(), "does not name it"),
    "no recipe": (lambda f: (f / RECIPE).unlink(), "no recipe.toml"),
    "half a recipe": (
        lambda f: (f / RECIPE).write_text((f / RECIPE).read_text()[:-40]),
        "can't be read",
    ),
    "no text": (lambda f: (f / RECIPE).write_bytes(b"\xff\xfe"), "can't be read"),
    "no weights": (
        lambda f: edit(f, weights_in(f), "\n"),
        "weights: it names none",
    ),
    "another schema": (
        lambda f: edit(f, "schema = 3", "schema = 2"),
        "this version of Mirage reads 3",
    ),
    "no schema": (lambda f: edit(f, "schema = 3\n", ""), "this version of Mirage reads 3"),
    "another method": (lambda f: edit(f, '"random-forest"', '"xgboost"'), "not 'random-forest'"),
    "another system": (
        lambda f: edit(f, '"provision"', '"routing"'),
        "a model of system 'routing', not 'provision'",
    ),
    "nothing about it": (
        lambda f: edit(f, 'pool = "gpu"\n', ""),
        "recipe.toml: about: pool: missing",
    ),
    "times that are none": (
        lambda f: edit(f, "train_s = [0, 100]", "train_s = [0, true]"),
        r"about: train_s: expected tuple\[int, int\]",
    ),
    "a key is missing": (lambda f: edit(f, "seed = 3\n", ""), "seed: missing"),
    "a key is unknown": (lambda f: edit(f, "seed = 3", "seed = 3\nsead = 3"), "sead: unknown key"),
    "a value is no number": (lambda f: edit(f, "seed = 3", 'seed = "3"'), "seed: expected int"),
    "a range is no range": (
        lambda f: edit(f, "remaining_s = [", "remaining_s = [5, "),
        "about: ranges: expected",
    ),
    "a range upside down": (
        lambda f: edit(f, "remaining_s = [", "remaining_s = [1e9, 0]\n#"),
        "expected finite numbers",
    ),
    "a range that is none": (
        lambda f: edit(f, "remaining_s = [", "remaining_s = [nan, 9]\n#"),
        "expected finite numbers",
    ),
    "no nodes": (
        lambda f: edit(f, "nodes = 20", "nodes = 0"),
        "about: nodes: expected at least 1, got 0",
    ),
    "wider ranges": (
        lambda f: scribble(f, "remaining_s = [600.0", "remaining_s = [0.0"),
        "recipe.toml: changed since",
    ),
    "another pool": (
        lambda f: scribble(f, 'pool = "gpu"', 'pool = ""'),
        "recipe.toml: changed since",
    ),
    "more nodes": (
        lambda f: scribble(f, "nodes = 20", "nodes = 200"),
        "recipe.toml: changed since",
    ),
    "other words": (lambda f: scribble(f, "# How", "# Who"), "recipe.toml: changed since"),
    "no checksum": (lambda f: scribble(f, "\nsha256 = ", "\n#"), "recipe.toml: changed since"),
    "hardly a line": (
        lambda f: (f / RECIPE).write_text("schema = 3"),
        "recipe.toml: changed since",
    ),
    "linked weights": (lambda f: link(f, WEIGHTS), "not a plain file"),
    "linked recipe": (lambda f: link(f, RECIPE), "symbolic link"),
    "outside": (
        lambda f: edit(f, f'"{WEIGHTS}" =', '"../../secret.json" ='),
        "no name of a weight file",
    ),
    "pickle": (lambda f: put(f, WEIGHTS, pickle.dumps({"a": [1] * 99})), "perhaps a pickle"),
    "pickle by name": (
        lambda f: put(f, "forest.pkl", pickle.dumps([])),
        "no name of a weight file",
    ),
    "other weights": (lambda f: put(f, WEIGHTS, bytes(8) + b"{}"), "not the weights of a model"),
}


@pytest.mark.parametrize("case", list(REFUSALS))
def test_what_is_not_as_it_was_written_is_refused(folder, case):
    spoil, words = REFUSALS[case]
    spoil(folder)
    with pytest.raises(InputError, match=words) as refusal:
        read_model(folder, "random-forest")
    assert str(folder) in str(refusal.value)


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        check_folder(tmp_path / "none")


def test_a_method_that_is_not_known(folder):
    edit(folder, '"random-forest"', '"crystal-ball"')
    with pytest.raises(InputError, match="'crystal-ball' is none of"):
        read_model(folder)


# ---- the recipe's text

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
values = st.recursive(
    st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)


tables = st.dictionaries(text, values, max_size=5)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(tables, tables, st.dictionaries(text, text, max_size=3))
def test_a_recipe_comes_back_from_its_text(options, about, libraries):
    recipe = replace(RECIPE_OF_TOY, options=options, about=about, libraries=libraries)
    assert parse_recipe(recipe_text(recipe), Path("x")) == recipe


@dataclass(frozen=True, kw_only=True)
class WalkAbout(About):
    """Of a system that is not there yet."""

    SYSTEM: ClassVar[str] = "walk"
    shares: tuple[float, ...]
    servers: Mapping[str, int]
    is_large: bool


class Walker:
    name = "legs"

    def write(self, folder):
        (folder / "steps.json").write_text("{}")


def test_another_system_has_a_table_of_its_own(tmp_path):
    about = WalkAbout(shares=(0.5, 1), servers={"big one": 3}, is_large=True)
    recipe = Recipe(system="walk", method="legs", seed=0, about=about.table())
    write_folder(tmp_path / "m", Walker(), recipe, "")
    again = check_folder(tmp_path / "m", system="walk", method="legs")
    assert WalkAbout.of(again, tmp_path) == about
    with pytest.raises(InputError, match="a model of system 'walk', not 'provision'"):
        read_model(tmp_path / "m")
    with pytest.raises(InputError, match="about: is_large: expected bool, got 1"):
        WalkAbout.of(replace(again, about=again.about | {"is_large": 1}), tmp_path)


@pytest.mark.parametrize(
    "folder", [path.parent for path in shipped("kth-sp2").parent.glob("**/recipe.toml")], ids=str
)
def test_the_models_that_come_with_mirage_are_as_they_were_written(folder):
    recipe = check_folder(folder)
    assert recipe_text(recipe) == (folder / RECIPE).read_text()


# ---- ranges


def test_the_ranges_hold_what_was_seen():
    ranges = ranges_of(EPISODES)
    assert set(ranges) == set(NAMES)
    for episode in EPISODES:
        assert outside(ranges, episode.windows, episode.remaining_s) == [None] * len(episode)
    assert ranges["remaining_s"] == (600, 8 * 3600 - 600)
    with pytest.raises(InputError, match="no episode"):
        ranges_of([])


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("queued_jobs", 4000, "queued_jobs 4,000 > 1"),
        ("successor_nodes", 8, "successor_nodes 8 > 0"),
        ("successor_limit_s", 8 * 3600 * 1.2, "successor_limit_s 34,560 > 28,800"),
        ("predecessor_limit_s", 3600, "predecessor_limit_s 3,600 < 28,800"),
        ("idle_nodes", float("nan"), "idle_nodes nan > 0"),
        ("queued_jobs", 110, None),
        ("successor_limit_s", 8 * 3600 * 1.05, None),
    ],
)
def test_what_is_far_out_of_range_is_told(name, value, words):
    matrices = EPISODES[0].windows[:2].copy()
    matrices[1, -1, NAMES.index(name)] = value
    first, second = outside(ranges_of(EPISODES), matrices, EPISODES[0].remaining_s[:2])
    assert first is None
    assert (second or "").startswith(words) if words else second is None


def test_without_ranges_nothing_is_out_of_range():
    assert outside({}, np.full((1, HISTORY, 40), 1e9, dtype=np.float32), np.array([1])) == [None]


# ---- the registry


def test_every_method_has_a_trainer_a_reader_and_options():
    for method in METHODS.values():
        assert method.default_options() is not None
        assert method.about
        assert METHODS.get(method.foundation, method) is not None
    assert METHODS["moe-dqn"].default_options().pretrain.shape.experts == 10


def test_a_method_is_trained_and_read_by_its_name(tmp_path):
    method = METHODS["random-forest"]
    trained = method.train(
        TrainingData(episodes=EPISODES, seed=5), ForestOptions(every=12, growth=Growth(trees=2))
    )
    trained.write(tmp_path)
    assert method.read(tmp_path).name == "random-forest"


def test_the_registry_alone_imports_no_learning_library():
    code = (
        "import sys, mirage.provision.policies.registry; print(*{'torch', 'xgboost', 'sklearn',"
        " 'pandas'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("dl2", elastic.load_model),
        ("random-forest", read_model),
    ],
)
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_sealed_weights_that_are_not_finite_are_refused(
    tmp_path: Path, name: str, read: Callable[[Path], object], value: float
) -> None:
    copy = tmp_path / "model"
    if name in METHODS:
        write_toy_model(copy, name)
    else:
        new = elastic.new_model(read_setting("small"), "drf", hidden=(4,), seed=1)
        elastic.save_model(copy, new, summary=["x"], facts=["y"])
    read(copy)
    recipe = read_recipe(copy)
    (file,) = (each for each in recipe.weights if each.endswith(".safetensors"))
    arrays = load_file(copy / file)
    first = next(each for each in arrays if arrays[each].dtype.kind == "f")
    arrays[first].flat[0] = value
    save_file(arrays, copy / file)
    seals = recipe.weights | {file: hashlib.sha256((copy / file).read_bytes()).hexdigest()}
    (copy / RECIPE).write_text(recipe_text(replace(recipe, weights=seals)))
    with pytest.raises(InputError, match=r"train (it|the model) again"):
        read(copy)

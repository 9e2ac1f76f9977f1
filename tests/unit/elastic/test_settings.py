"""Settings by name and from a file; what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

from mirage.elastic.settings import SETTINGS, Part, read_setting
from mirage.errors import InputError


@pytest.mark.parametrize("name", SETTINGS)
def test_sequences_of_two_parts_differ_and_those_of_one_seed_do_not(name):
    setting = read_setting(name)
    first, again, other = (
        setting.sequences(part, 3, 2) for part in (Part.TEST, Part.TEST, Part.TRAINING)
    )
    assert (first[1].epochs == again[1].epochs).all()
    assert not np.array_equal(first[0].epochs, other[0].epochs)
    assert setting.jobs == len(first[0])


def test_a_file_changes_a_setting(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(
        'base = "small"\nplaces = 4\n[world]\nservers = 20\ninterference = 0\n[workload]\njobs = 7\n'
    )
    setting = read_setting(str(path))
    assert (setting.name, setting.places, setting.jobs) == ("mine", 4, 7)
    assert (setting.world.servers, setting.world.interference) == (20, 0.0)
    assert setting.world.variation == read_setting("small").world.variation


def test_a_file_takes_some_of_the_types(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text('types = ["dssm", "vgg-16"]\n[workload]\njobs = 40\n')
    setting = read_setting(str(path))
    assert [kind.name for kind in setting.world.types] == ["dssm", "vgg-16"]
    (jobs,) = setting.sequences(Part.TEST, 1, 1)
    assert set(jobs.type_index.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("base = 'big'", "base: no setting 'big'; there are small"),
        ("[world]\nserver = 3", r"\[world\]: server: unknown key; there are servers"),
        ("[world]\nservers = 0", r"\[world\]: elastic world: servers must be above 0"),
        ("[world]\nservers = 'x'", "servers: expected int, got 'x'"),
        ("[world]\ncpus_per_server = 1", "a worker needs"),
        ("[workload]\njobs = 0", "must be above 0"),
        ("types = ['vgg-17']", "types: expected a list of resnet-50"),
        ("speed = 3", "speed: unknown key"),
        ("x = ", "no TOML"),
    ],
)
def test_wrong_files_are_refused(tmp_path, text, message):
    path = tmp_path / "f.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_setting(str(path))


def test_unknown_names_are_refused(tmp_path):
    with pytest.raises(InputError, match="no setting 'huge'; there are small"):
        read_setting("huge")
    with pytest.raises(InputError, match="can't be read"):
        read_setting(str(tmp_path / "none.toml"))


def test_jobs_of_the_first_types_alone_leave_the_world_as_it_is(tmp_path):
    path = tmp_path / "four.toml"
    path.write_text('base = "small"\ndrawn_types = 4\n[workload]\njobs = 40\n')
    setting = read_setting(str(path))
    (jobs,) = setting.sequences(Part.TRAINING, 1, 1)
    assert sorted(set(jobs.type_index.tolist())) == [0, 1, 2, 3]
    assert len(setting.world.types) == 8
    path.write_text('base = "small"\ndrawn_types = 9\n')
    with pytest.raises(InputError, match="drawn_types: expected 1 to 8, got 9"):
        read_setting(str(path))
    path.write_text('base = "pollux"\ndrawn_types = 2\n')
    with pytest.raises(InputError, match="are given, not drawn"):
        read_setting(str(path))

"""JOB.toml: what is read, and one clear line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mirage.elastic.jobs.act import batch_script
from mirage.elastic.jobs.request import Role, read_request, request_from, request_table
from mirage.errors import InputError

GOOD = """\
name = "mnist"
script = "train.py"
arguments = ["--data", "d"]
time = "8:00:00"
epochs = 30
steps_per_epoch = 100
[workers]
min = 1
max = 12
gpus = 1
partition = "gpu"
options = ["--account=research"]
[servers]
max = 4
[speed]
like = "vgg-16"
"""


def read(text: str, tmp_path: Path) -> object:
    path = tmp_path / "JOB.toml"
    path.write_text(text)
    return read_request(path)


def test_a_request_is_read_and_survives_json(tmp_path: Path) -> None:
    request = read(GOOD, tmp_path)
    assert request.time_s == 8 * 3600  # type: ignore[attr-defined]
    assert request.workers.options == ("--account=research",)  # type: ignore[attr-defined]
    table = json.loads(json.dumps(request_table(request)))  # type: ignore[arg-type]
    assert request_from(table) == request


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("epochs = 30", "epochs = 0", ":5: epochs: expected at least 1, got 0"),
        ("epochs = 30", "", "epochs: missing"),
        ("epochs = 30", 'epochs = "30"', "epochs: expected a whole number"),
        ('name = "mnist"', 'name = "../x"', "name: expected 1 to 32 of a-z, 0-9 and -"),
        ('time = "8:00:00"', 'time = "8 hours"', "time: '8 hours' is not a time limit"),
        ('time = "8:00:00"', 'time = "UNLIMITED"', "time: expected a limit above 0"),
        ("min = 1", "min = 13", "workers.min: 13 is above workers.max, 12"),
        ("max = 12", "max = 800", "workers.max: at most 64, got 800"),
        ("max = 4", "min = 0", "servers.min: expected at least 1"),
        ("gpus = 1", "gpu = 1", "workers.gpu: unknown key; did you mean 'gpus'?"),
        (
            "min = 1",
            "min = 5",
            "workers.min: 5 are as fast as 4, since a batch has 12 micro-shards",
        ),
        ("max = 12", "max = 8", "expected one of 1, 2, 3, 4, 6, 12"),
        ("gpus = 1", "shards = 4", "workers.max: 12 are as fast as 4"),
        ("gpus = 1", 'extra_options = ["--nice"]', "workers.options: '--nice'"),
        ("gpus = 1", 'memory = "lots"', "workers.memory: expected a size such as 4000M"),
        ("--account=research", "--comment=x", "workers.options: '--comment=x': expected an option"),
        ("--account=research", "--nice", "workers.options: '--nice'"),
        ("--account=research", "research", "workers.options: 'research'"),
        ('"vgg-16"', '"vgg-99"', "speed.like: unknown type 'vgg-99'; there are"),
        ("[servers]", "[servers", ":13:9: not TOML"),
        ("arguments = [", "arguments = [3, ", "arguments: expected a list of names"),
    ],
)
def test_bad_input_gives_one_line(old: str, new: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        read(GOOD.replace(old, new, 1), tmp_path)
    assert words in str(caught.value)
    assert str(tmp_path / "JOB.toml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_request(tmp_path / "none.toml")


def test_a_job_by_all_reduce_has_no_servers(tmp_path: Path) -> None:
    example = Path(__file__).parents[4] / "docs" / "examples" / "elastic_allreduce.toml"
    request = read_request(example)
    assert (request.is_replicated, request.servers.min, request.servers.max) == (True, 0, 0)
    words = batch_script(tmp_path, request, Role.WORKER, "w1")
    assert "--plane all-reduce -- elastic_digits.py" in words
    again = request_from(json.loads(json.dumps(request_table(request))))
    assert again == request


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('plane = "ring"', "plane: expected parameter-servers or all-reduce, got 'ring'"),
        ('plane = "all-reduce"\n[servers]\nmax = 2', "servers: a job of plane all-reduce has none"),
    ],
)
def test_a_wrong_plane_is_named(tmp_path: Path, lines: str, words: str) -> None:
    path = tmp_path / "job.toml"
    table = 'name = "a"\nscript = "t.py"\ntime = "1:00:00"\nepochs = 1\nsteps_per_epoch = 1\n'
    path.write_text(table + lines)
    with pytest.raises(InputError, match=words):
        read_request(path)

"""Figures of elastic jobs: the search of an oracle, and what is kept of a training."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.elastic import command, training
from benchmarks.elastic_oracle import bound, search
from mirage.elastic.baselines import baseline
from mirage.elastic.learn.online import OnlineOptions
from mirage.elastic.learn.training import TrainingOptions
from mirage.elastic.model import new_model, options_table
from mirage.elastic.rollout import roll_out
from mirage.elastic.settings import Part, read_setting


def test_the_oracle_is_never_worse_than_greedy_and_never_beats_the_bound(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text('base = "small"\n[world]\nservers = 4\n[workload]\njobs = 6\n')
    setting = read_setting(str(path))
    sequences = setting.sequences(Part.TEST, 1, 3)
    greedy = roll_out(baseline("greedy-neighbours"), setting.world, sequences, seed=1)
    best, course = search(setting, sequences, seed=1, candidates=8, generations=3)
    assert (best <= greedy.mean_jct_slots + 1e-9).all()
    assert best.mean() < greedy.mean_jct_slots.mean()
    assert course == sorted(course, reverse=True)
    lower = bound(setting.world, sequences, seed=1)
    assert (lower <= best).all()
    undisturbed = replace(setting.world, variation=0.0, interference=0.0)
    assert np.allclose(bound(undisturbed, sequences, seed=1), greedy.bound_slots)


def test_a_training_is_kept_with_the_options_that_someone_chose():
    setting = read_setting("small")
    options = TrainingOptions(phases="online", online=OnlineOptions(slots=160))
    model = new_model("dl2", setting, "srtf", hidden=(512, 256), seed=2)
    model = replace(model, options=options_table(options) | {"hidden": [512, 256]})
    assert training(model)["options"] == {"phases": "online", "online.slots": 160}


def test_a_kept_command_names_no_folder_of_the_machine_that_ran_it():
    words = ["--model", "mine=/home/ann/models/mine", "--out", "/home/ann/e.json"]
    assert command(words) == "python -m benchmarks.elastic --model mine=mine --out e.json"

"""Figures of elastic jobs: what is kept of a training."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.elastic import command, training
from mirage.elastic.learn.online import OnlineOptions
from mirage.elastic.learn.training import TrainingOptions
from mirage.elastic.model import new_model, options_table
from mirage.elastic.settings import read_setting


def test_a_training_is_kept_with_the_options_that_someone_chose():
    setting = read_setting("small")
    options = TrainingOptions(phases="online", online=OnlineOptions(slots=160))
    model = new_model(setting, "srtf", hidden=(512, 256), seed=2)
    model = replace(model, options=options_table(options) | {"hidden": [512, 256]})
    assert training(model)["options"] == {"phases": "online", "online.slots": 160}


def test_a_kept_command_names_no_folder_of_the_machine_that_ran_it():
    words = ["--model", "mine=/home/ann/models/mine", "--out", "/home/ann/e.json"]
    assert command(words) == "python -m benchmarks.elastic --model mine=mine --out e.json"

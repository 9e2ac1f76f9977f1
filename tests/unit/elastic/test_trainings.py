"""Figures that compare trainings: which curves a picture has."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mirage.elastic.evaluation import ElasticEvaluationPlan
from mirage.elastic.model import CurvePoint, new_model
from mirage.elastic.settings import read_setting
from mirage.elastic.trainings import learning_curves


def test_a_picture_has_the_curves_of_the_named_policies_from_where_they_began():
    setting = read_setting("small")
    untrained = new_model("dl2", setting, "srtf", hidden=(8,), seed=1)
    one = replace(
        untrained,
        curve=[CurvePoint("online", 20, 9.0), CurvePoint("online", 40, 8.25)],
        references={"srtf": 9.97, "start": 10.5, "online": 8.25},
    )
    models = {"one": one, "copy": untrained, "two": replace(one, references={"drf": 7.33})}
    plan = ElasticEvaluationPlan(
        setting=setting,
        models={name: (Path(name), model) for name, model in models.items()},
        against=[],
    )
    (picture,) = learning_curves(plan, ["one", "copy"], "Figure 16")
    assert "one ends at 8.25" in picture.svg
    assert "two ends at" not in picture.svg
    assert "srtf" in picture.svg
    assert "drf" not in picture.svg
    assert picture.svg.count("curve m0") == 1
    assert learning_curves(plan, ["copy"], "Figure 16") == []

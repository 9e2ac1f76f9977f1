"""The app card for Open OnDemand, rendered by Ruby as Open OnDemand renders it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from mirage.chain.tag import MAX_SEGMENTS

APP = Path(__file__).parents[3] / "packaging" / "ondemand"
RENDER = """
require "erb"; require "json"; require "ostruct"
context = OpenStruct.new(JSON.parse(ENV["CONTEXT"]))
print ERB.new(File.read(ARGV[0]), trim_mode: "-").result(binding)
"""


FORM = {"cluster", "form", "attributes", "title", "description", "cacheable"}
"""Keys of form.yml, https://osc.github.io/ood-documentation/latest/how-tos/app-development/interactive/form.html"""
WIDGETS = {
    "check_box",
    "hidden_field",
    "number_field",
    "radio_button",
    "resolution_field",
    "select",
}
WIDGETS |= {"text_area", "text_field", "path_selector"}
ATTRIBUTE = {"widget", "label", "value", "help", "required", "min", "max", "step", "options"}
"""https://osc.github.io/ood-documentation/latest/how-tos/app-development/interactive/form-widgets.html"""
MANIFEST = {"name", "category", "subcategory", "role", "description", "icon", "url", "metadata"}
"""https://osc.github.io/ood-documentation/latest/how-tos/app-development/interactive/manifest.html"""
SUBMISSION = {"batch_connect", "script", "cluster"}
SCRIPT = {
    "native",
    "wall_time",
    "queue_name",
    "accounting_id",
    "job_name",
    "email",
    "reservation_id",
}
"""https://osc.github.io/ood-documentation/latest/reference/files/submit-yml/script.html"""


def render(name: str, **context: object) -> str:
    if shutil.which("ruby") is None:
        pytest.skip("no Ruby here")
    environment = os.environ | {"CONTEXT": json.dumps(context), "MIRAGE_OOD_CLUSTER": "site"}
    words = ["ruby", "-e", RENDER, str(APP / name)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout


def rendered(name: str) -> dict[str, Any]:
    content = yaml.safe_load(render(name))
    assert isinstance(content, dict)
    return content


def test_the_manifest_makes_it_an_app_for_jobs():
    manifest = yaml.safe_load((APP / "manifest.yml").read_text())
    assert manifest["role"] == "batch_connect"
    assert {"name", "category", "description"} <= set(manifest) <= MANIFEST


def test_the_form_describes_each_of_its_fields():
    form = rendered("form.yml.erb")
    assert form["cluster"] == "site"
    assert form["form"] == list(form["attributes"])
    assert set(form) <= FORM
    for field in form["attributes"].values():
        assert "label" in field
        assert set(field) <= ATTRIBUTE
        assert field["widget"] in WIDGETS
    links = form["attributes"]["segments"]
    assert links["min"] <= links["value"] <= links["max"] == MAX_SEGMENTS


def test_the_job_that_submits_is_short():
    submission = rendered("submit.yml.erb")
    assert submission["batch_connect"]["template"] == "basic"
    assert submission["script"]["wall_time"] <= 600
    assert all(isinstance(word, str) for word in submission["script"]["native"])
    assert set(submission) <= SUBMISSION
    assert set(submission["script"]) <= SCRIPT


def test_the_script_may_be_run():
    """Open OnDemand copies it with its mode and runs ./script.sh (OSC/ood_core, issue 948)."""
    assert os.access(APP / "template" / "script.sh.erb", os.X_OK)


@pytest.mark.parametrize(
    ("options", "words"), [("", []), ("--account='a b' -p gpu", ["--account=a b", "-p", "gpu"])]
)
def test_the_script_starts_the_chain_in_the_scripts_folder(tmp_path, options, words):
    """With a mirage-submit that writes down how it was called."""
    folder, programs = tmp_path / "my $HOME; work", tmp_path / "bin"
    folder.mkdir()
    programs.mkdir()
    (programs / "mirage-submit").write_text(
        '#!/bin/sh\npwd; printf "%s\\n" "$@"; env | grep ^SLURM_\n'
    )
    (programs / "mirage-submit").chmod(0o755)
    script = folder / "train.sbatch"
    text = render("template/script.sh.erb", script=str(script), segments="3", options=options)
    environment = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "SLURM_JOB_ID": "7",
        "SLURM_CONF": "/etc/slurm.conf",
    }
    done = subprocess.run(
        ["bash"], input=text, env=environment, capture_output=True, text=True, check=False
    )
    said = [str(folder), "--segments", "3", *words, str(script), "SLURM_CONF=/etc/slurm.conf"]
    assert done.stdout.splitlines() == said
    assert done.stderr == ""


def test_a_number_of_links_that_is_none_is_refused():
    with pytest.raises(subprocess.CalledProcessError, match="status 1"):
        render("template/script.sh.erb", script="a", segments="3; rm", options="")

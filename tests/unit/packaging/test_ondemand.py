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

APP = Path(__file__).parents[3] / "packaging" / "ondemand"
RENDER = """
require "erb"; require "json"; require "ostruct"
context = OpenStruct.new(JSON.parse(ENV["CONTEXT"]))
print ERB.new(File.read(ARGV[0]), trim_mode: "-").result(binding)
"""


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
    assert {"name", "category", "description"} <= set(manifest)


def test_the_form_describes_each_of_its_fields():
    form = rendered("form.yml.erb")
    assert form["cluster"] == "site"
    assert form["form"] == list(form["attributes"])
    assert all("label" in field for field in form["attributes"].values())


def test_the_job_that_submits_is_short():
    submission = rendered("submit.yml.erb")
    assert submission["batch_connect"]["template"] == "basic"
    assert submission["script"]["wall_time"] <= 600


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

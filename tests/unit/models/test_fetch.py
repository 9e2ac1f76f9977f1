"""`mirage models fetch`: an archive from a file or a mirror, of which nothing is kept unless it is whole."""

from __future__ import annotations

import hashlib
import re
import subprocess
import tarfile
from functools import partial
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from threading import Thread

import pytest

from mirage.cli.main import main
from mirage.models import fetch
from mirage.models.folder import check_folder
from tests.toy_models import write_toy_model

TREE = Path(__file__).parents[3]


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of one model, whose checksum is then the expected one."""
    write_toy_model(tmp_path / "models" / "toy" / "random-forest", "random-forest")
    file = tmp_path / "mirage-models.tar"
    with tarfile.open(file, "w") as tar:
        tar.add(tmp_path / "models", "models")
    monkeypatch.setattr(fetch, "SHA256", hashlib.sha256(file.read_bytes()).hexdigest())
    return file


def test_models_from_a_file_and_once_more(archive: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for _ in range(2):
        assert main(["models", "fetch", str(archive), "--out", str(out)]) == 0
        assert check_folder(out / "toy" / "random-forest").method == "random-forest"
        assert [path.name for path in out.iterdir()] == ["toy"]


def test_models_from_a_mirror(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    handler = partial(SimpleHTTPRequestHandler, directory=str(archive.parent))
    with HTTPServer(("localhost", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        mirror = f"http://localhost:{server.server_port}"
        out = str(tmp_path / "out")
        assert main(["models", "fetch", f"{mirror}/{archive.name}", "--out", out]) == 0
        assert main(["models", "fetch", f"{mirror}/none", "--out", out]) == 1
        server.shutdown()
    told = capsys.readouterr()
    assert told.out == f"{out}/toy/random-forest\n"
    assert "Download it by other means" in told.err


def test_another_archive_is_refused_and_nothing_is_written(
    archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    archive.write_bytes(archive.read_bytes() + b"\0")
    assert main(["models", "fetch", str(archive), "--out", str(tmp_path / "out")]) == 2
    assert "not the models of this version" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_of_somebody_else_stays(archive: Path, tmp_path: Path) -> None:
    own = tmp_path / "out" / "toy" / "random-forest"
    own.mkdir(parents=True)
    (own / "thesis.txt").write_text("mine")
    assert main(["models", "fetch", str(archive), "--out", str(tmp_path / "out")]) == 2
    assert [path.name for path in own.iterdir()] == ["thesis.txt"]


def test_the_script_makes_the_archive_that_is_expected(tmp_path: Path) -> None:
    script = TREE / "scripts" / "build-models"
    commit = re.search(r"COMMIT=(\w+)", script.read_text())
    assert commit
    seen = subprocess.run(["git", "cat-file", "-e", commit[1]], cwd=TREE, capture_output=True)
    if seen.returncode:
        pytest.skip("this checkout is no clone with the commit that the models are from")
    subprocess.run([script, tmp_path], check=True, capture_output=True)
    content = (tmp_path / "mirage-models.tar").read_bytes()
    assert hashlib.sha256(content).hexdigest() == fetch.SHA256

"""`mirage gateway`: what it refuses, and the configuration that it prints."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from urllib.request import Request, urlopen

import pytest

from mirage.cli.main import main
from tests.unit.gateway.rig import PATIENCE_S, Server, Site, free_port, wait_until


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["chat:0"], "'chat:0' is not NAME:PORT"),
        (["chat:8080", "other"], "give each service a port of its own"),
        (["chat", "--wait=soon"], "--wait: "),
        (["nobody"], "there is no service nobody"),
        (["twice"], "twice means 2 services"),
        (["chat", "--token-file=/nowhere/token"], "/nowhere/token: No such file or directory"),
        (["chat", "--bind=256.0.0.1"], "can't listen on 256.0.0.1:8080"),
        (["chat", "--tcp", "--print-config=nginx"], "nginx is for HTTP here"),
    ],
)
def test_wrong_input_is_one_clear_error(
    site: Site,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    told: str,
) -> None:
    monkeypatch.setattr("mirage.gateway.endpoints._queue_of", lambda _owner: [])
    site.chain()
    for chain_id in ("aaaaaaaa", "bbbbbbbb"):
        site.chain(chain_id, name="twice")
    assert main(["gateway", *words]) == 2
    assert told in capsys.readouterr().err


def test_the_configuration_names_the_token_s_file_and_not_the_token(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gateway", "chat:8081", "--print-config=haproxy"]) == 0
    text = capsys.readouterr().out
    assert f"-f {site.home}/services/chat/token" in text
    assert "server waits 127.0.0.1:8081 backup" in text
    assert main(["gateway", "chat:8081", "--print-config=haproxy", "--no-token"]) == 0
    assert "token" not in capsys.readouterr().out


def test_it_serves_as_a_program_with_a_token_of_its_own(site: Site) -> None:
    site.chain()
    site.ready(Server("first").port)
    port, token = free_port(), site.home / "services" / "chat" / "token"
    code = (
        f"import sys; from mirage.cli.main import main; sys.exit(main(['gateway', 'chat:{port}']))"
    )
    without_slurm = {**os.environ, **site.environ, "PATH": ""}
    running = subprocess.Popen([sys.executable, "-c", code], env=without_slurm)
    try:
        wait_until(lambda: _accepts(port))
        assert token.stat().st_mode & 0o777 == 0o600
        headers = {"Authorization": f"Bearer {token.read_text().strip()}"}
        request = Request(f"http://127.0.0.1:{port}/", headers=headers)
        with urlopen(request, timeout=PATIENCE_S) as answer:
            assert answer.read() == b"first"
        counts = site.home / "services" / "chat" / "demand.json"
        wait_until(lambda: counts.exists() and json.loads(counts.read_text())["requests"] == 1)
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE_S) == 130
    finally:
        running.kill()


def _accepts(port: int) -> bool:
    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0

"""HAProxy and nginx as they are: a client that does not see a handover, and what is counted of it."""

from __future__ import annotations

import asyncio
import http.client
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from mirage.errors import MirageError
from mirage.gateway.haproxy import HAProxy, Slot, commands
from mirage.gateway.nginx import Nginx
from mirage.gateway.proxy_config import haproxy_config, nginx_config
from mirage.gateway.proxy_log import parse_line
from mirage.gateway.tokens import Tokens, make_token
from tests.unit.gateway.rig import CHAIN, PATIENCE_S, Server, Site, free_port, gateway, wait_until

HAPROXY, NGINX = (
    shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin") for name in ("haproxy", "nginx")
)
IS_REQUIRED = bool(os.environ.get("MIRAGE_PROXIES_REQUIRED"))
needs_haproxy = pytest.mark.skipif(
    not HAPROXY and not IS_REQUIRED, reason="haproxy is not installed"
)
needs_nginx = pytest.mark.skipif(not NGINX and not IS_REQUIRED, reason="nginx is not installed")


@contextmanager
def process(*words: str | Path) -> Iterator[subprocess.Popen[bytes]]:
    running = subprocess.Popen([str(word) for word in words])
    try:
        yield running
    finally:
        running.terminate()
        running.wait(PATIENCE_S)


def answers(port: int) -> bool:
    try:
        get(port)
    except (OSError, http.client.HTTPException):
        return False
    return True


def get(port: int, token: str = "") -> tuple[int, str]:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    link.request("GET", "/", headers={"Authorization": f"Bearer {token}"} if token else {})
    answer = link.getresponse()
    return answer.status, answer.read().decode()


def token_of(site: Site) -> str:
    make_token(site.home / "token")
    return (site.home / "token").read_text().strip()


def hand_over(site: Site, public: int, token: str) -> None:
    """A handover beside a stream, seen by clients at the proxy's port."""
    first, second = Server("first"), Server("second")
    path = site.ready(first.port)
    right = {"Authorization": f"Bearer {token}"}
    wait_until(lambda: get(public, token) == (200, "first"))
    assert get(public)[0] == 401
    assert get(public, "wrong")[0] == 401
    stream = http.client.HTTPConnection("127.0.0.1", public, timeout=PATIENCE_S)
    stream.request("GET", "/stream", headers=right)
    answer = stream.getresponse()
    assert answer.readline() == b"data: first\n"
    site.ready(second.port, 2)
    path.unlink()
    draining = site.home / "chains" / CHAIN
    wait_until(lambda: list(draining.glob("draining.1.*")), "the word that a stream is still there")
    wait_until(lambda: get(public, token) == (200, "second"))
    first.go_on.set()
    assert answer.read().endswith(b"data: last\n\n")
    wait_until(lambda: not list(draining.glob("draining.1.*")), "the word that all have left")


@needs_haproxy
def test_haproxy_follows_a_handover_and_lets_requests_wait(site: Site, tmp_path: Path) -> None:
    assert HAPROXY
    site.chain()
    token, stats, public = token_of(site), tmp_path / "stats.sock", free_port()
    tokens = Tokens(site.home / "token")
    with gateway(
        site, tokens=tokens, proxy=lambda port: HAProxy(str(stats), "chat", port)
    ) as running:
        running.shows("HAProxy does not answer")
        text = haproxy_config("chat", running.port, tokens.path, is_http=True)
        text = text.replace("SOCKET mode", f"{stats} mode").replace(
            ":8443 ssl crt CERTIFICATE.pem alpn h2,http/1.1", f"127.0.0.1:{public}"
        )
        (tmp_path / "haproxy.cfg").write_text(text)
        with process(HAPROXY, "-db", "-f", tmp_path / "haproxy.cfg"):
            wait_until(lambda: answers(public))
            late = http.client.HTTPConnection("127.0.0.1", public, timeout=PATIENCE_S)
            late.request("GET", "/", headers={"Authorization": f"Bearer {token}"})
            wait_until(lambda: running.demand()["waiting"] == 1, "a request that waits")
            hand_over(site, public, token)
            assert late.getresponse().read() == b"first"
            wait_until(lambda: running.demand()["requests"] > 5)
            assert 0 < running.demand()["slowest_s"] < PATIENCE_S


@needs_haproxy
def test_haproxy_takes_http_2_over_tls(site: Site, tmp_path: Path) -> None:
    """With the configuration as it is printed. Two requests share one connection of the client."""
    assert HAPROXY
    site.chain()
    site.ready(Server("first").port)
    token, stats, public = token_of(site), tmp_path / "stats.sock", free_port()
    tokens = Tokens(site.home / "token")
    certificate(tmp_path)
    with gateway(
        site, tokens=tokens, proxy=lambda port: HAProxy(str(stats), "chat", port)
    ) as running:
        text = haproxy_config("chat", running.port, tokens.path, is_http=True)
        text = text.replace("SOCKET mode", f"{stats} mode").replace(":8443", f"127.0.0.1:{public}")
        text = text.replace("CERTIFICATE.pem", str(tmp_path / "both.pem"))
        (tmp_path / "haproxy.cfg").write_text(text)
        url = f"https://127.0.0.1:{public}/"
        words = ["curl", "-sk", "--http2", "-H", f"Authorization: Bearer {token}", url, url]
        words += ["-w", " %{http_version} %{http_code}\n", "-o", "-"]
        with process(HAPROXY, "-db", "-f", tmp_path / "haproxy.cfg"):
            wait_until(lambda: running.demand()["replicas"] == 1)
            wait_until(lambda: "first 2 200" in said(words), "an answer by HTTP/2")
            assert said(words).count("first 2 200") == 2


def certificate(folder: Path) -> None:
    words = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-days",
        "1",
    ]
    files = ["-keyout", str(folder / "key.pem"), "-out", str(folder / "cert.pem")]
    subprocess.run([*words, *files], check=True, capture_output=True)
    both = (folder / "cert.pem").read_text() + (folder / "key.pem").read_text()
    (folder / "both.pem").write_text(both)


def said(words: list[str]) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


@needs_haproxy
def test_a_backend_that_haproxy_has_not_is_told(site: Site, tmp_path: Path) -> None:
    assert HAPROXY
    stats = tmp_path / "stats.sock"
    text = haproxy_config("other", free_port(), None, is_http=False)
    text = text.replace("SOCKET mode", f"{stats} mode").replace(":8443", f"127.0.0.1:{free_port()}")
    (tmp_path / "haproxy.cfg").write_text(text)
    with process(HAPROXY, "-db", "-f", tmp_path / "haproxy.cfg"):
        wait_until(stats.exists)
        with pytest.raises(MirageError, match="has no backend chat"):
            asyncio.run(HAProxy(str(stats), "chat", 1).follow([]))


@needs_nginx
def test_nginx_follows_a_handover(site: Site, tmp_path: Path) -> None:
    assert NGINX
    site.chain()
    token, public, conf = token_of(site), free_port(), tmp_path / "nginx.conf"
    tokens = Tokens(site.home / "token")
    command = [NGINX, "-p", str(tmp_path), "-c", str(conf), "-e", str(tmp_path / "error.log")]

    def proxy(port: int) -> Nginx:
        return Nginx(tmp_path / "chat.conf", "chat", port, tokens, [*command, "-s", "reload"])

    with gateway(site, tokens=tokens, proxy=proxy) as running:
        wait_until((tmp_path / "chat.conf").exists)
        assert (tmp_path / "chat.conf").stat().st_mode & 0o077 == 0, "it has the token"
        http_block = nginx_config("chat", running.port, tmp_path / "chat.conf")
        http_block = http_block.replace("listen 8443 ssl http2", f"listen 127.0.0.1:{public}")
        for line in (
            "    ssl_certificate CERTIFICATE.pem;\n",
            "    ssl_certificate_key KEY.pem;\n",
        ):
            http_block = http_block.replace(line, "")
        conf.write_text(
            f"user root;\npid {tmp_path}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{http_block}}}\n"
            if os.getuid() == 0
            else f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{\naccess_log off;\n{http_block}}}\n"
        )
        with process(*command, "-g", "daemon off;"):
            wait_until(lambda: answers(public))
            hand_over(site, public, token)
            wait_until(lambda: running.demand()["requests"] > 3)


def test_too_few_slots_are_told() -> None:
    slot = Slot(name="mirage1", address=("10.0.0.1", 80), is_free=False, drains=False, requests=0)
    with pytest.raises(MirageError, match="1 slots, too few"):
        commands("chat", [slot], [("10.0.0.1", 80), ("10.0.0.2", 80)])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("mirage-ms 200 5 1 20\n", (200, 0.026)),
        ("mirage-ms 504 0 -1 -1", (504, 0.0)),
        ("<190>Nov 28 20:00:00 mirage: 200 0.001 0.020", (200, 0.021)),
        ("<190>Nov 28 20:00:00 mirage: 502 0.001, 0.002 -, 0.1", (502, 0.103)),
        ("<190>Nov 28 20:00:00 mirage: 401 - -", (401, 0.0)),
        ("something else 200 1", None),
    ],
)
def test_a_proxys_log_is_read(line: str, expected: tuple[int, float] | None) -> None:
    assert parse_line(line) == (expected and (expected[0], pytest.approx(expected[1])))

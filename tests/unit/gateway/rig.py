"""A service without Slurm: chains' folders whose endpoint files name servers of this process."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from mirage.gateway.endpoints import find_service
from mirage.gateway.gateway import Gateway, GatewaySettings, Proxy
from mirage.gateway.tokens import Tokens

PATIENCE_S = 100
CHAIN = "abcdefgh"


def wait_until(happened: Callable[[], object], what: str = "it") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Server:
    """Says its name: at once, or as a stream that ends once it is told to."""

    def __init__(self, name: str, port: int = 0) -> None:
        self.seen: list[str] = []
        self.go_on = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.seen.append(self.path)
                if self.path == "/upgrade":
                    return self._echo()
                if self.path != "/stream":
                    return self._say(name.encode())
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                self._chunk(b"data: first\n\n")
                outer.go_on.wait(PATIENCE_S)
                self._chunk(b"data: last\n\n")
                self.wfile.write(b"0\r\n\r\n")
                return None

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.seen.append(self.path)
                if self.path == "/die":
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self._say(name.encode() + b":" + body)

            def _say(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def _chunk(self, data: bytes) -> None:
                self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
                self.wfile.flush()

            def _echo(self) -> None:
                self.send_response(101)
                self.send_header("Connection", "Upgrade")
                self.send_header("Upgrade", "echo")
                self.end_headers()
                self.close_connection = True
                while data := self.connection.recv(100):
                    self.connection.sendall(data.upper())

            def log_message(self, *_words: object) -> None:
                pass

        class Threads(ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 512

        self._server = Threads(("127.0.0.1", port), Handler)
        self.port = self._server.server_port
        threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        ).start()

    def stop(self) -> None:
        """The port is closed; connections that are open go on."""
        self._server.shutdown()
        self._server.server_close()


class Site:
    """Folders as mirage-submit and job.sh leave them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environ = {"MIRAGE_HOME": str(home)}

    def chain(self, chain_id: str = CHAIN, **record: object) -> Path:
        folder = self.home / "chains" / chain_id
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        words = {"mode": "service", "name": "chat", "submitted": 1, "segments": 9, **record}
        (folder / "chain").write_text("".join(f"{key}={value}\n" for key, value in words.items()))
        return folder

    def ready(self, port: int, link: int = 1, chain_id: str = CHAIN) -> Path:
        path = self.home / "chains" / chain_id / f"endpoint.{link}"
        told = {"host": "127.0.0.1", "port": port, "link": link, "ready_s": 1, "job": 100 + link}
        path.write_text(json.dumps(told))
        return path


class Running:
    """A gateway in a thread."""

    def __init__(self, gateway: Gateway, port: int, said: list[str], folder: Path) -> None:
        self.port, self.said, self.folder = port, said, folder
        self._gateway = gateway
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        async def main() -> None:
            self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            await self._gateway.run()

        with contextlib.suppress(asyncio.CancelledError):
            asyncio.run(main())

    def shows(self, words: str) -> None:
        wait_until(lambda: words in "\n".join(self.said), f"{words} in {self.said}")

    def demand(self) -> dict[str, float]:
        try:
            return defaultdict(float, json.loads((self.folder / "demand.json").read_text()))
        except FileNotFoundError:  # it has just begun
            return defaultdict(float)

    def stop(self) -> None:
        assert self._task
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(PATIENCE_S)


@contextlib.contextmanager
def gateway(
    site: Site,
    *,
    tokens: Tokens | None = None,
    is_http: bool = True,
    wait_s: float = PATIENCE_S,
    drain_s: float = PATIENCE_S,
    proxy: Callable[[int], Proxy] | None = None,
    name: str = "chat",
) -> Iterator[Running]:
    port, said = free_port(), list[str]()
    folder = site.home / "services" / name
    folder.mkdir(parents=True, exist_ok=True)
    settings = GatewaySettings(
        service=find_service(name, {**os.environ, **site.environ}),
        folder=folder,
        host="127.0.0.1",
        port=port,
        tokens=tokens,
        is_http=is_http,
        wait_s=wait_s,
        drain_s=drain_s,
    )
    running = Running(
        Gateway(settings, proxy(port) if proxy else None, said.append), port, said, folder
    )
    try:
        running.shows("is at")
        yield running
    finally:
        running.stop()

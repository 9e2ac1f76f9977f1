"""An inference service in a chain: `serve.py FOLDER` answers GET /predict?x=1,2,... and GET
/health.

Replicas run on different nodes, so no socket can pass from one to the other. What passes is a name:
FOLDER/endpoint says where the one replica is that serves, and clients' connections go there through
`relay.py`, or through nginx or HAProxy told by that file. A new replica loads its model, warms up,
asks its own /health over the network, and only then takes the name; so the old one serves until
that moment, then answers what it has begun, and leaves.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import json
import os
import signal
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit
from urllib.request import urlopen

import torch
from handover import load, note

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument(
    "--host", default=socket.gethostname(), help="under which clients reach this node"
)
parser.add_argument("--checks", type=int, default=3, help="so often in a row it must be healthy")
parser.add_argument(
    "--quiet-s", type=float, default=1, help="it leaves after so long without a new request"
)
args = parser.parse_args()
model = torch.nn.Linear(8, 1)
last_request_s = time.monotonic()
is_warm = threading.Event()


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        global last_request_s
        url = urlsplit(self.path)
        if url.path == "/health":
            self._answer(200 if is_warm.is_set() else 503, {"job": os.environ.get("SLURM_JOB_ID")})
        elif url.path == "/predict":
            last_request_s = time.monotonic()
            x = [float(word) for word in parse_qs(url.query)["x"][0].split(",")]
            self._answer(200, {"y": predict(x), "job": os.environ.get("SLURM_JOB_ID")})
        else:
            self._answer(404, {})

    def _answer(self, code: int, content: dict[str, object]) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        """One line a request would be the chain's whole log."""


class Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for the requests under way
    request_queue_size = 128


def predict(x: list[float]) -> float:
    with torch.no_grad():
        return float(model(torch.tensor(x)))


def warm_up() -> None:
    payload = load(args.folder / "model.pt")
    if payload is None:
        raise SystemExit(f"{args.folder}/model.pt: no model there")
    model.load_state_dict(torch.load(io.BytesIO(payload), weights_only=True))
    predict([0.0] * 8)  # the first call is the slow one
    is_warm.set()


def prove_healthy(port: int) -> None:
    """As a client sees it: over the network. An error ends this link, and the old replica stays."""
    for _ in range(args.checks):
        with urlopen(f"http://{args.host}:{port}/health", timeout=10) as answer:
            json.load(answer)
        predict([1.0] * 8)


def take_name(port: int) -> None:
    """From here on new requests come to us. The lock makes two that want it at once take turns."""
    with (args.folder / "endpoint.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fresh = args.folder / f".endpoint.{os.getpid()}"
        fresh.write_text(f"{args.host} {port}\n")
        fresh.replace(args.folder / "endpoint")
        note(args.folder, "serve")


def drain() -> None:
    while time.monotonic() - last_request_s < args.quiet_s:
        time.sleep(0.05)


stop = threading.Event()
signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
with Server(("", 0), Handler) as server:
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}).start()
    try:
        warm_up()
        prove_healthy(server.server_port)
        take_name(server.server_port)
        Path(os.environ.get("MIRAGE_READY_FILE", args.folder / "ready")).touch()
        while not stop.wait(1):
            pass
        drain()
    finally:
        server.shutdown()
note(args.folder, "left")

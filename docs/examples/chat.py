"""A server of OpenAI's protocol without a model: `chat.py --port 8000`. It stands for vLLM, SGLang
or llama.cpp's server; answers come as a whole or, with `"stream": true`, as server-sent events.

On SIGTERM it takes no new connections, finishes what it has begun, and ends.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, default=8000)
parser.add_argument("--load-s", type=float, default=0, help="time that a real model takes to load")
parser.add_argument("--token-s", type=float, default=0.02, help="time for a word of the answer")
args = parser.parse_args()
WHO = f"link {os.environ.get('MIRAGE_SEGMENT', '?')} on {socket.gethostname()}"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # clients keep their connections

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(200, {})
        elif self.path == "/v1/models":
            self._answer(200, {"object": "list", "data": [{"id": "stub", "object": "model"}]})
        else:
            self._answer(404, {"error": {"message": f"there is no {self.path}"}})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/v1/chat/completions":
            return self._answer(404, {"error": {"message": f"there is no {self.path}"}})
        try:
            request = json.loads(body)
            asked = request["messages"][-1]["content"]
        except (ValueError, KeyError, IndexError, TypeError):
            return self._answer(400, {"error": {"message": "messages are missing"}})
        words = f"{WHO} heard: {asked}".split(" ")
        if request.get("stream"):
            return self._stream(words)
        time.sleep(args.token_s * len(words))
        return self._answer(200, completion("chat.completion", "message", " ".join(words)))

    def _stream(self, words: list[str]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for line in events(words):
            data = f"data: {line}\n\n".encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
            time.sleep(args.token_s)
        self.wfile.write(b"0\r\n\r\n")

    def _answer(self, code: int, content: dict[str, object]) -> None:
        body = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_words: object) -> None:
        """One line a request would be the chain's whole log."""


class Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for the requests under way
    request_queue_size = 1024


def completion(kind: str, part: str, text: str) -> dict[str, object]:
    choice = {"index": 0, part: {"role": "assistant", "content": text}, "finish_reason": None}
    return {"id": "stub", "object": kind, "model": "stub", "choices": [choice]}


def events(words: list[str]) -> Iterator[str]:
    for word in words:
        yield json.dumps(completion("chat.completion.chunk", "delta", f"{word} "))
    yield "[DONE]"


time.sleep(args.load_s)
with Server(("", args.port), Handler) as server:
    signal.signal(
        signal.SIGTERM, lambda *_: threading.Thread(target=server.shutdown, daemon=True).start()
    )
    server.serve_forever(poll_interval=0.1)

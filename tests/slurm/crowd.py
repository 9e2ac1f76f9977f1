"""What one user can do with sockets, for a minute at most: `crowd.py SECONDS METRICS_PORT WEB_PORT
SOCKET [COUNT]`.

Holds COUNT idle connections to each of the three, and COUNT more that send a byte now and then.
What is hung up on is opened again. Sends to this machine only.
"""

from __future__ import annotations

import resource
import socket
import sys
import time


def connect(target: str | int) -> socket.socket | None:
    """None: nobody accepts now."""
    kind = socket.AF_UNIX if isinstance(target, str) else socket.AF_INET
    connection = socket.socket(kind, socket.SOCK_STREAM)
    connection.settimeout(0.05)
    try:
        connection.connect(target if isinstance(target, str) else ("127.0.0.1", target))
    except OSError:
        connection.close()
        return None
    connection.setblocking(False)
    return connection


def is_open(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(4096))
    except BlockingIOError:
        return True
    except OSError:
        return False


def trickles(connection: socket.socket, byte: bytes) -> bool:
    try:
        connection.send(byte)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return True


def main(seconds: float, targets: list[str | int], count: int) -> None:
    least = 2 * len(targets) * count + 64
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(least, hard), hard))
    held: list[tuple[int, socket.socket]] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for kind in range(2 * len(targets)):
            missing = count - sum(each == kind for each, _ in held)
            for _ in range(min(missing, 40)):
                if connection := connect(targets[kind // 2]):
                    held.append((kind, connection))
        kept = []
        for kind, connection in held:
            if is_open(connection) and (
                kind % 2 == 0 or trickles(connection, b"{" if kind // 2 == 2 else b"G")
            ):
                kept.append((kind, connection))
            else:
                connection.close()
        held = kept
        print(len(held), flush=True)
        time.sleep(0.1)


if __name__ == "__main__":
    main(
        min(60.0, float(sys.argv[1])),
        [int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]],
        min(1000, int(sys.argv[5]) if len(sys.argv) > 5 else 550),
    )

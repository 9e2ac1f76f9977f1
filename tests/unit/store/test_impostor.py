"""Somebody who listens where the database was gets no password."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest
from sqlalchemy import make_url
from sqlalchemy.exc import SQLAlchemyError

from mirage.store.server import server_engine

SECRET = "correct-horse-battery"
PATIENCE_S = 60


@contextmanager
def impostor(speak: Callable[[socket.socket, bytearray], None]) -> Iterator[tuple[int, bytearray]]:
    """Its port, and all that it is told."""
    told = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                connection, _ = listener.accept()
                connection.settimeout(PATIENCE_S)
                with connection:
                    speak(connection, told)
                    while more := connection.recv(4096):
                        told.extend(more)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1], told
        thread.join(PATIENCE_S)


def postgresql(connection: socket.socket, told: bytearray) -> None:
    """Has no TLS and no GSS, and asks for the password in the clear."""
    while True:
        (size,) = struct.unpack("!I", connection.recv(4, socket.MSG_WAITALL))
        body = connection.recv(size - 4, socket.MSG_WAITALL)
        told.extend(body)
        if struct.unpack_from("!I", body)[0] == 196_608:  # the startup message of protocol 3.0
            break
        connection.sendall(b"N")
    connection.sendall(b"R" + struct.pack("!II", 8, 3))


def mariadb(plugin: bytes) -> Callable[[socket.socket, bytearray], None]:
    """Greets, and then asks for another way to authenticate."""

    def packet(number: int, body: bytes) -> bytes:
        return struct.pack("<I", len(body))[:3] + bytes([number]) + body

    def speak(connection: socket.socket, told: bytearray) -> None:
        flags = 0x0000_0200 | 0x0000_8000 | 0x0008_0000  # 4.1, secure, plugins
        connection.sendall(
            packet(
                0,
                b"\x0a5.5.5-10.11.6-MariaDB\0"
                + struct.pack("<I", 7)
                + b"saltsalt\0"
                + struct.pack("<HBHHB", flags & 0xFFFF, 33, 2, flags >> 16, 21)
                + bytes(10)
                + b"saltsaltsalt\0mysql_native_password\0",
            )
        )
        told.extend(connection.recv(4096))
        connection.sendall(packet(2, b"\xfe" + plugin + b"\0" + b"Password: \0"))

    return speak


@pytest.mark.parametrize(
    ("scheme", "speak"),
    [
        ("postgresql+psycopg", postgresql),
        *(("mariadb+pymysql", mariadb(plugin)) for plugin in (b"mysql_clear_password", b"dialog")),
    ],
)
def test_an_impostor_is_not_told_the_password(
    scheme: str, speak: Callable[[socket.socket, bytearray], None]
) -> None:
    with impostor(speak) as (port, told):
        url = make_url(f"{scheme}://mirage:{SECRET}@127.0.0.1:{port}/mirage")
        with pytest.raises(SQLAlchemyError):
            server_engine(url, 1.0).connect()
    assert b"mirage" in told, "it was spoken to"
    assert SECRET.encode() not in told

"""A visitor's connection to the page, as waitress has it, among the listener's guests."""

from __future__ import annotations

import socket
from typing import Any

from waitress.channel import HTTPChannel

from mirage.peers import Connection, Connections


class _Visitor(Connection):
    def __init__(self, channel: HTTPChannel, connection: socket.socket, since_s: float) -> None:
        super().__init__(connection, since_s)
        self._channel = channel

    @property
    def is_busy(self) -> bool:
        return bool(self._channel.requests)

    def hang_up(self) -> None:
        """Called by waitress's own thread, as it accepts another connection."""
        self._channel.handle_close()


def visit_class(guests: Connections) -> type[HTTPChannel]:
    """Connections of one server, bounded by ``guests``."""

    class Visit(HTTPChannel):  # type: ignore[misc]
        def __init__(
            self, server: Any, connection: socket.socket, *more: Any, **named: Any
        ) -> None:
            super().__init__(server, connection, *more, **named)
            if not guests.admit(_Visitor(self, connection, guests.now_s())):
                self.handle_close()

        def handle_read(self) -> None:
            """Only a whole request is a sign of life: `channel_timeout` ends who trickles, too."""
            before_s: float = self.last_activity  # type: ignore[has-type]
            super().handle_read()
            if not self.requests:
                self.last_activity = before_s

        def del_channel(self, map: Any = None) -> None:
            super().del_channel(map)
            guests.leave(self.socket)

    return Visit

"""A port that does what a broker does for moments only: it cuts off logins."""

from __future__ import annotations

import socket
import struct
import threading
from contextlib import suppress

from tests.mock_cluster import FETCH, METADATA

_SASL_HANDSHAKE, _API_VERSIONS = 17, 18
_APIS = ((FETCH, 0, 4), (METADATA, 0, 4), (_SASL_HANDSHAKE, 0, 1), (_API_VERSIONS, 0, 0), (36, 0, 1))


class CuttingPort:
    """A port that ends each connection in its login, as a broker does that goes down.

    Attributes:
        servers: Where it is.
        cuts: How many connections it has ended.
    """

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.servers = f"127.0.0.1:{self._server.getsockname()[1]}"
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        with suppress(OSError):  # it is closed already
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                with connection, suppress(OSError, struct.error):
                    self._answer(connection)
                self.cuts += 1

    def _answer(self, connection: socket.socket) -> None:
        file = connection.makefile("rb")
        while True:
            (size,) = struct.unpack(">i", file.read(4))
            kind, version, number = struct.unpack(">hhi", file.read(size)[:8])
            if kind != _API_VERSIONS:
                return
            error = 35 if version else 0  # of versions that it does not know; the lowest is asked for then
            body = struct.pack(">ihi", number, error, len(_APIS)) + b"".join(struct.pack(">hhh", *a) for a in _APIS)
            connection.sendall(struct.pack(">i", len(body)) + body)

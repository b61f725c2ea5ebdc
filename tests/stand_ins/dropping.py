"""An engine that drops a limit in silence: a proxy before the real one, which changes the requests to create a container."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

HostConfig = dict[str, Any]


class DroppingEngine:
    """Listens at a socket of its own for as long as the block runs. Each connection has one request."""

    def __init__(self, real: str, path: Path, drop: Callable[[HostConfig], object]) -> None:
        self.url = f"unix://{path}"
        self._real = real.removeprefix("unix://")
        self._drop = drop
        self._server = socket.socket(socket.AF_UNIX)
        self._server.bind(str(path))
        self._server.listen(64)

    def __enter__(self) -> DroppingEngine:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client, socket.socket(socket.AF_UNIX) as engine:
            engine.connect(self._real)
            engine.sendall(self._request(client))
            back = threading.Thread(target=_copy, args=(engine, client), daemon=True)
            back.start()
            _copy(client, engine)
            back.join()

    def _request(self, client: socket.socket) -> bytes:
        """The first request of a connection, as the engine is to get it; of any but `create` the body may follow."""
        sent = b""
        while b"\r\n\r\n" not in sent:
            sent += _received(client)
        head, _, body = sent.partition(b"\r\n\r\n")
        if b"\r\nUpgrade:" not in head:
            # Go on with one request a connection: the next one may be the one to change.
            head = re.sub(rb"\r\nConnection: [^\r]*", b"", head) + b"\r\nConnection: close"
        if not re.match(rb"POST \S*/containers/create", head):
            return head + b"\r\n\r\n" + body
        length = re.search(rb"\r\nContent-Length: (\d+)", head)
        assert length is not None
        while len(body) < int(length[1]):
            body += _received(client)
        container = json.loads(body)
        self._drop(container["HostConfig"])
        body = json.dumps(container).encode()
        return head.replace(length[0], b"\r\nContent-Length: %d" % len(body)) + b"\r\n\r\n" + body


def _received(connection: socket.socket) -> bytes:
    data = connection.recv(1 << 16)
    if not data:
        raise ConnectionError("it ended in the middle of a request")
    return data


def _copy(source: socket.socket, target: socket.socket) -> None:
    """Hand on what comes, and its end."""
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)

"""A package index on loopback: wheels with the files, the metadata, the size and the day of upload that a test gives them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import unquote

from packaging.utils import canonicalize_name


@dataclass(frozen=True)
class Release:
    """One wheel of the index."""

    name: str
    version: str
    requires: tuple[str, ...] = ()
    python: str = ">=3.6"
    day: date = date(2026, 1, 1)
    tag: str = "py3-none-any"
    holds: tuple[str, ...] = ()  # files; a library holds its name and the wheel's, the others nothing

    @property
    def file(self) -> str:
        return f"{self.name.replace('-', '_')}-{self.version}-{self.tag}.whl"

    @property
    def content(self) -> bytes:
        """The wheel: its files and its metadata, the same bytes each time."""
        folder = f"{self.name.replace('-', '_')}-{self.version}.dist-info"
        files = {name: f"# {name} of {self.name}\n" if name.endswith(".so") else "" for name in self.holds}
        files |= {
            f"{folder}/METADATA": self.metadata,
            f"{folder}/WHEEL": f"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: {self.tag}\n",
        }
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            rows = []
            for name, text in files.items():
                digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
                rows.append(f"{name},sha256={digest},{len(text)}")
                archive.writestr(zipfile.ZipInfo(name), text)
            archive.writestr(zipfile.ZipInfo(f"{folder}/RECORD"), "\n".join([*rows, f"{folder}/RECORD,,\n"]))
        return buffer.getvalue()

    @property
    def metadata(self) -> str:
        head = f"Metadata-Version: 2.1\nName: {self.name}\nVersion: {self.version}\nRequires-Python: {self.python}\n"
        extras = {word.partition("extra == '")[2].rstrip("'") for word in self.requires if "extra ==" in word}
        head += "".join(f"Provides-Extra: {extra}\n" for extra in sorted(extras))
        return head + "".join(f"Requires-Dist: {line}\n" for line in self.requires)


@contextlib.contextmanager
def serve(releases: Sequence[Release], fetched: list[str] | None = None) -> Iterator[str]:
    """Serve the releases within the block; gives the index's URL. `fetched` gets the name of each wheel that is fetched."""
    by_name: dict[str, list[Release]] = {}
    for release in releases:
        by_name.setdefault(canonicalize_name(release.name), []).append(release)
    files = {release.file: release for release in releases}

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            kind, _, name = unquote(self.path).strip("/").partition("/")
            if kind == "files" and name.removesuffix(".metadata") in files and name.endswith(".metadata"):
                self._answer(files[name.removesuffix(".metadata")].metadata.encode(), "text/plain")
            elif kind == "files" and name in files:
                if fetched is not None:
                    fetched.append(name)
                self._answer(files[name].content, "application/octet-stream")
            elif kind == "simple" and name in by_name:
                self._answer(_page(name, by_name[name]), "application/vnd.pypi.simple.v1+json")
            else:
                self.send_error(404)

        def _answer(self, content: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/simple"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _page(name: str, releases: Sequence[Release]) -> bytes:
    """A package's page, as PEP 691 and PEP 700 have it."""
    files = [
        {
            "filename": release.file,
            "url": f"/files/{release.file}",
            "hashes": {"sha256": hashlib.sha256(release.content).hexdigest()},
            "requires-python": release.python,
            "core-metadata": {"sha256": hashlib.sha256(release.metadata.encode()).hexdigest()},
            "size": len(release.content),
            "upload-time": f"{release.day}T00:00:00.000000Z",
        }
        for release in releases
    ]
    page = {
        "meta": {"api-version": "1.1"},
        "name": name,
        "versions": [release.version for release in releases],
        "files": files,
    }
    return json.dumps(page).encode()

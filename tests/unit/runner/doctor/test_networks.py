"""What the doctor and verify say of each kind of network between them and an address: each row names what is in the way."""

from __future__ import annotations

import http.server
import os
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from runner.doctor import container_engine
from runner.doctor.scene import WARN, Scene
from runner.engines.docker.engine import DockerEngine
from runner.paths import find_program
from runner.verify.references.contributed.site import IndexSite, SiteError

NOWHERE = Scene((), None, (), None, None, "no container engine answers", {}, None, None)
LOGIN = b"<html><body><form action=/login>Welcome to the airport</form></body></html>"
ANSWERS = {
    "proxy": (407, b""),
    "limit": (429, b"slow down"),
    "forbidden": (403, b""),
    "login": (200, LOGIN),
    "certificate": (200, b"{}"),
}


class Server:
    """Answers each request the same, at an address of this machine."""

    def __init__(self, kind: str, folder: Path) -> None:
        code, page = ANSWERS[kind]

        class Handler(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                self.send_response(code)
                self.send_header("Proxy-Authenticate", "Basic realm=site")
                self.send_header("Content-Type", "text/html")
                self.send_header("Content-Length", str(len(page)))
                self.end_headers()
                self.wfile.write(page)

            do_GET = do_CONNECT = answer  # noqa: N815

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        if kind == "certificate":
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*of_nobody(folder))
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.place = f"localhost:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


def of_nobody(folder: Path) -> tuple[Path, Path]:
    """A certificate that no authority signed, and its key."""
    openssl = find_program("openssl")
    if openssl is None:
        pytest.skip("no openssl on this machine")
    words = [
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
    ]
    made = folder / "certificate.pem", folder / "key.pem"
    subprocess.run([openssl, *words, "-out", made[0], "-keyout", made[1]], check=True, capture_output=True)
    return made


@pytest.fixture(params=["refused", *ANSWERS])
def address(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, str]]:
    """(the kind of network, an address beyond it), for pip and for Python."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "UV_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    kind = request.param
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        server = None if kind == "refused" else Server(kind, tmp_path)
        place = server.place if server else f"localhost:{unheard.getsockname()[1]}"
        if kind == "proxy":
            monkeypatch.setenv("HTTPS_PROXY", f"http://user:secret@{place}")
        yield kind, {"proxy": "https://index.invalid", "certificate": f"https://{place}"}.get(kind, f"http://{place}")
        if server:
            server.server.shutdown()


def test_the_doctor_names_what_lies_between_pip_and_its_index(
    address: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, place = address
    monkeypatch.setenv("PIP_INDEX_URL", f"{place}/simple")
    monkeypatch.setattr(container_engine, "_is_anything_installed", lambda: True)
    (row,) = container_engine.pip_index(NOWHERE)
    words, fix = {
        "refused": ("Connection refused", "names your site's index"),
        "proxy": ("the proxy that HTTPS_PROXY or HTTP_PROXY names", "look at these variables"),
        "limit": ("answers with the error 429 (Too Many Requests)", "names your site's index"),
        "forbidden": ("answers with the error 403 (Forbidden)", "names your site's index"),
        "login": ("a network that asks for a login first", "names your site's index"),
        "certificate": ("a server's certificate is not accepted", "names the authority"),
    }[kind]
    assert row.status == WARN
    assert words in row.saw
    assert fix in row.fix
    assert "secret" not in f"{row}"


def test_the_doctor_names_what_lies_between_it_and_a_container_engine(
    address: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, place = address
    monkeypatch.setenv("DOCKER_HOST", f"tcp://{place.rpartition('/')[2]}")
    if kind == "proxy":
        monkeypatch.setenv("DOCKER_HOST", "tcp://engine.invalid:2375")
        monkeypatch.setenv("HTTP_PROXY", os.environ["HTTPS_PROXY"])
    (row,) = container_engine.engine(replace(NOWHERE, why_no_engine=DockerEngine().unavailable()))
    words, fix = {
        "refused": ("no container engine answers at tcp://", "install Docker and start it"),
        "proxy": ("Proxy Authentication Required", "look at these variables"),
        "limit": ("answers with an error (slow down)", "docker version"),
        "forbidden": ("answers with an error (403 ", "a name and password"),
        "login": ("something that is no container engine answers at tcp://", "docker version"),
        "certificate": ("no container engine answers at tcp://", "docker version"),
    }[kind]
    assert words in row.saw
    assert fix in row.fix
    assert "secret" not in f"{row}"


def test_a_dead_proxy_before_a_container_engine_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("DOCKER_HOST", "tcp://engine.invalid:2375")
    (row,) = container_engine.engine(replace(NOWHERE, why_no_engine=DockerEngine().unavailable()))
    assert "look at these variables" in row.fix


def test_verify_names_what_lies_between_it_and_an_index_of_references(address: tuple[str, str]) -> None:
    kind, place = address
    words = {
        "refused": "Connection refused",
        "proxy": " that HTTPS_PROXY names (Tunnel connection failed: 407",
        "limit": "Too Many Requests",
        "forbidden": "Forbidden",
        "login": "is a web page: a network that asks for a login first",
        "certificate": "CERTIFICATE_VERIFY_FAILED",
    }[kind]
    with pytest.raises(SiteError) as refused:
        IndexSite(f"{place}/references").devices  # noqa: B018
    assert words in str(refused.value)
    assert "secret" not in str(refused.value)

"""The answers of registries, portals and broken networks to a real engine: each has its own sentence, and its remedy.

Small servers answer as Docker Hub, other registries and networks do. The engine asks those of the loopback without encryption.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import socket
import ssl
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from runner.doctor import container_engine
from runner.doctor.scene import WARN, Scene
from runner.images.docker_client import DeniedError, DockerError, NotThereError, pull_image, registry_digest
from runner.paths import find_program

pytestmark = [pytest.mark.engine, pytest.mark.slow]

Handler = http.server.BaseHTTPRequestHandler
# (status, headers, body); None: it was answered by hand.
Answer = tuple[int, dict[str, str], bytes] | None
Answers = Callable[[Handler], Answer]

JSON = {"Content-Type": "application/json", "Docker-Distribution-Api-Version": "registry/2.0"}
HTML = {"Content-Type": "text/html"}
MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


@pytest.fixture
def serve() -> Iterator[Callable[..., str]]:
    servers: list[http.server.ThreadingHTTPServer] = []

    def serve(answers: Answers, host: str = "127.0.0.1", certificate: tuple[Path, Path] | None = None) -> str:
        class Own(http.server.BaseHTTPRequestHandler):
            def answer(self) -> None:
                if (answer := answers(self)) is None:
                    return
                status, headers, body = answer
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body if self.command != "HEAD" else b"")

            do_GET = do_HEAD = answer  # noqa: N815

            def log_message(self, *_: object) -> None: ...

        server = http.server.ThreadingHTTPServer((host, 0), Own)
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"{host}:{server.server_address[1]}"

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def address() -> str:
    """An address of this machine that an engine asks with encryption: all but those of the loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outwards:
        try:
            # It sends nothing: it only looks up by which address this machine would.
            outwards.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("left out, because this machine has no address but those of the loopback")
        return str(outwards.getsockname()[0])


def error(status: int, code: str, message: str, **headers: str) -> Answer:
    return status, JSON | headers, json.dumps({"errors": [{"code": code, "message": message}]}).encode()


def registry(answer: Answer) -> Answers:
    """A registry that answers so for every image."""
    return lambda request: (200, JSON, b"{}") if request.path == "/v2/" else answer


def with_tokens(token: Answer, answer: Answer) -> Answers:
    """A registry that sends its users to another service for a token, as Docker Hub does."""

    def answers(request: Handler) -> Answer:
        if request.path.startswith("/token"):
            return token
        if request.path != "/v2/" and request.headers.get("Authorization"):
            return answer
        realm = f'Bearer realm="http://{request.headers["Host"]}/token",service="registry"'
        return 401, JSON | {"WWW-Authenticate": realm}, b"{}"

    return answers


def with_layers(layer: Answers) -> Answers:
    """A registry with an image of one layer, for which it answers so."""
    settings = json.dumps(
        {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": []}}
    ).encode()
    entry = {"mediaType": "application/vnd.docker.container.image.v1+json", "size": len(settings)}
    entry["digest"] = f"sha256:{hashlib.sha256(settings).hexdigest()}"
    kind = "application/vnd.docker.image.rootfs.diff.tar.gzip"
    parts = [{"mediaType": kind, "size": 100, "digest": f"sha256:{'a' * 64}"}]
    manifest = json.dumps({"schemaVersion": 2, "mediaType": MANIFEST, "config": entry, "layers": parts}).encode()

    def answers(request: Handler) -> Answer:
        if "/manifests/" in request.path:
            digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
            return 200, {"Content-Type": MANIFEST, "Docker-Content-Digest": digest}, manifest
        if request.path.endswith(str(entry["digest"])):
            return 200, {}, settings
        return (200, JSON, b"{}") if request.path == "/v2/" else layer(request)

    return answers


def reset(request: Handler) -> None:
    request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    request.connection.close()


LIMIT = error(
    429,
    "TOOMANYREQUESTS",
    "You have reached your unauthenticated pull rate limit. https://www.docker.com/increase-rate-limit",
)
DENIED = error(403, "DENIED", "requested access to the resource is denied")
LOGIN = 200, HTML, b"<html><body>Welcome to the airport: log in</body></html>"
A_TOKEN = 200, JSON, b'{"token": "t"}'
LIMITED = ("no more images for now", "`docker login` raises its limit")
REFUSED = ("the registry refuses this user", "`docker login` names another one")
ABSENT = ("the registry does not have it", "look at its name and tag")
A_PAGE = ("something answers in the place of the registry", "in a browser")
ITS_FAULT = ("the registry has a fault of its own", "try again later")
BROKE_OFF = ("the connection to the registry broke off", "a firewall or proxy cuts it")

CASES: dict[str, tuple[Answers, tuple[str, str], type[DockerError]]] = {
    "Docker Hub's limit": (registry(LIMIT), LIMITED, DockerError),
    "a limit without JSON": (registry((429, {"Content-Type": "text/plain"}, b"Too Many Requests")), LIMITED, DockerError),
    "a limit as a page": (registry((429, HTML, b"<html>slow down</html>")), LIMITED, DockerError),
    "a limit of tokens": (with_tokens((429, JSON, b'{"details": "too many requests"}'), DENIED), LIMITED, DockerError),
    "a limit with a token": (with_tokens(A_TOKEN, LIMIT), LIMITED, DockerError),
    "a registry that asks for a name": (
        lambda _: error(401, "UNAUTHORIZED", "authentication required", **{"WWW-Authenticate": 'Basic realm="site"'}),
        REFUSED, DeniedError,
    ),
    "a private image": (registry(DENIED), REFUSED, DeniedError),
    "a wrong password": (with_tokens((401, JSON, b'{"details": "incorrect username or password"}'), DENIED), REFUSED, DeniedError),
    "a token that does not suffice": (with_tokens(A_TOKEN, error(401, "UNAUTHORIZED", "authentication required")), REFUSED, DeniedError),
    "no such tag": (registry(error(404, "MANIFEST_UNKNOWN", "manifest unknown")), ABSENT, NotThereError),
    "no such name": (registry(error(404, "NAME_UNKNOWN", "repository name not known to registry")), ABSENT, NotThereError),
    "a login page": (lambda _: LOGIN, A_PAGE, DockerError),
    "a login page for the token": (with_tokens(LOGIN, DENIED), A_PAGE, DockerError),
    "a firewall's page": (registry((403, HTML, b"<html>Blocked by the policy of this site</html>")), A_PAGE, DockerError),
    "a page of the law": (registry((451, HTML, b"<html>not in your country</html>")), A_PAGE, DockerError),
    "a broken registry": (registry(error(500, "UNKNOWN", "unknown error")), ITS_FAULT, DockerError),
    "an overloaded registry": (lambda _: (503, HTML, b"<html>Service Unavailable</html>"), ITS_FAULT, DockerError),
    "a connection that is reset": (reset, BROKE_OFF, DockerError),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_each_answer_of_a_registry_has_its_sentence_and_its_remedy(
    case: str, serve: Callable[..., str], client: Any
) -> None:
    answers, (means, fix), kind = CASES[case]
    reference = f"{serve(answers)}/base/python:3.11"
    for ask in (registry_digest, pull_image):
        with pytest.raises(DockerError) as raised:
            ask(client, reference)
        assert type(raised.value) is kind
        assert means in str(raised.value)
        assert fix in raised.value.fix
    row = of_the_doctor(client, reference)
    assert means in row.saw
    assert fix in row.fix


def of_the_doctor(client: Any, reference: str) -> Any:
    """The doctor's row on base images, where the engine has none of them and this one's registry is asked."""
    scene = Scene((), None, (), None, client, None, {}, None, reference.replace("3.11", "{python}"))
    (row,) = container_engine.base_image(scene)
    assert row.status == WARN
    return row


@pytest.mark.parametrize(
    ("layer", "means", "fix"),
    [
        (lambda _: error(404, "BLOB_UNKNOWN", "blob unknown to registry"), "lacks a part of the image", "push the image again"),
        (lambda _: (403, HTML, b"<html>forbidden</html>"), "something answers in the place of the registry", "in a browser"),
        (lambda _: (200, HTML, b"<html>log in</html>" + b" " * 81), "damaged or tampered with", "a proxy or the registry changes"),
    ],
)  # fmt: skip
def test_a_layer_that_is_not_there_or_is_something_else_is_named(
    layer: Answers, means: str, fix: str, serve: Callable[..., str], client: Any
) -> None:
    with pytest.raises(DockerError) as raised:
        pull_image(client, f"{serve(with_layers(layer))}/base/python:3.11")
    assert means in str(raised.value)
    assert fix in raised.value.fix


def certificate(folder: Path, kind: str, host: str) -> tuple[Path, Path]:
    openssl = find_program("openssl")
    if openssl is None:
        pytest.skip("left out, because there is no openssl")
    made, key, request = (folder / name for name in ("certificate.pem", "key.pem", "request.pem"))
    name = "DNS:other.example" if kind == "another name" else f"IP:{host}"
    words = [
        "req",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=site",
        "-addext",
        f"subjectAltName={name}",
        "-keyout",
        key,
    ]
    subprocess.run([openssl, *words, "-out", request], check=True, capture_output=True)
    days = "-1" if kind == "expired" else "2"
    signing = ["x509", "-req", "-days", days, "-in", request, "-signkey", key, "-copy_extensions", "copy"]
    subprocess.run([openssl, *signing, "-out", made], check=True, capture_output=True)
    return made, key


@pytest.mark.parametrize(
    ("kind", "means", "fix"),
    [
        ("of nobody", "its certificate is not trusted here", "certs.d"),
        ("expired", "its certificate is out of date, or the clock", "`date` tells the clock"),
        ("another name", "of another name than the one that was asked", "by the name in its certificate"),
        ("none", "answers without encryption, and the engine asks for it", '"insecure-registries"'),
    ],
)
def test_each_fault_of_a_certificate_is_told_apart(
    kind: str, means: str, fix: str, serve: Callable[..., str], address: str, client: Any, tmp_path: Path
) -> None:
    shown = None if kind == "none" else certificate(tmp_path, kind, address)
    reference = f"{serve(registry(DENIED), address, shown)}/base/python:3.11"
    with pytest.raises(DockerError) as raised:
        registry_digest(client, reference)
    assert means in str(raised.value)
    assert fix in raised.value.fix
    row = of_the_doctor(client, reference)
    assert means in row.saw
    assert fix in row.fix


@pytest.mark.parametrize(
    ("host", "means", "fix"),
    [
        ("127.0.0.1:1", "the registry does not answer (", "whether it needs a proxy"),
        ("registry.invalid", "its name is not known on the engine's machine", "DNS"),
    ],
)
def test_a_registry_that_is_not_there_is_told_with_where_to_look(host: str, means: str, fix: str, client: Any) -> None:
    row = of_the_doctor(client, f"{host}/base/python:3.11")
    assert means in row.saw
    assert fix in row.fix

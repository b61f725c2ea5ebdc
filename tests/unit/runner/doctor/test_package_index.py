"""The package index is asked as pip's configuration names it, and pip itself is started only where it may know more."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from runner.doctor import builds, package_index
from runner.doctor.scene import OK, Scene

SCENE = Scene((), None, (), None, None, "no Docker Engine answers", {}, None, None)


class Index(BaseHTTPRequestHandler):
    """It has a page on pip, and notes what it was asked for."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(200 if self.path == "/simple/pip/" else 404)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def index(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """The address of an index on this machine. Nothing is configured for pip."""
    for name in [name for name in os.environ if name.startswith("PIP_") or name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(Index, "asked", [], raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Index)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/simple"
    server.shutdown()
    server.server_close()


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What pip is started with; it finds no index."""
    words: list[str] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        words.extend(command)
        return subprocess.CompletedProcess(command, 1, "", "no matching distribution")

    monkeypatch.setattr(subprocess, "run", run)
    return words


def check() -> Any:
    (one,) = builds.pip_index(SCENE)
    return one


def test_an_index_that_answers_is_asked_once_and_without_pip(
    index: str, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{index}/")
    assert (check().status, started, Index.asked) == (OK, [], ["/simple/pip/"])


@pytest.mark.parametrize(
    ("variable", "value"),
    [("PIP_INDEX_URL", "{index}/of/another/team"), ("PIP_NO_INDEX", "1"), ("PIP_PROXY", "http://127.0.0.1:9")],
)
def test_pip_decides_where_the_page_is_missing_or_more_is_configured(
    index: str, started: list[str], monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index)
    monkeypatch.setenv(variable, value.format(index=index))
    assert check().status != OK
    assert started[:3] == [sys.executable, "-m", "pip"]


def test_a_password_in_the_address_is_left_to_pip_and_is_not_shown(
    index: str, started: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index.replace("//", "//me:secret@"))
    assert "secret" not in str(check())
    assert started
    assert Index.asked == []


def test_the_last_of_pips_files_counts_and_a_variable_before_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("PIP_INDEX_URL", "PIP_CONFIG_FILE", "PIP_CERT", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "machine"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    monkeypatch.setattr(package_index, "_OF_THE_MACHINE", tmp_path / "etc.conf")

    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def found() -> str | None:
        return package_index.configured("index-url")

    write(tmp_path / "machine" / "pip" / "pip.conf", "[global]\nindex-url = http://machine/%(simple\ncert = /a.pem\n")
    assert found() == "http://machine/%(simple"
    write(tmp_path / ".pip" / "pip.conf", "[global]\nindex-url = http://user\n")
    assert found() == "http://user"
    write(tmp_path / ".config" / "pip" / "pip.conf", "[install]\nindex-url = http://install\n")
    assert found() == "http://install"
    write(tmp_path / "environment" / "pip.conf", "no configuration")
    assert found() == "http://install"
    write(tmp_path / "own.conf", "[global]\nextra-index-url = http://more\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "own.conf"))
    # It takes the place of the user's files.
    assert found() == "http://machine/%(simple"
    assert package_index.configured("cert") == "/a.pem"
    monkeypatch.setenv("PIP_INDEX_URL", "http://variable")
    assert found() == "http://variable"
    monkeypatch.delenv("PIP_INDEX_URL")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert found() is None


def test_without_a_setting_the_index_is_the_one_that_pip_has(monkeypatch: pytest.MonkeyPatch) -> None:
    from pip._internal.models.index import PyPI

    assert package_index._own_index() == PyPI.simple_url
    monkeypatch.delattr("pip._internal.models.index.PyPI")
    assert package_index._own_index() == ""

"""Whether the package index of pip's configuration answers, asked without pip: to start pip takes longer than all other checks.

It knows less than pip. Where more than an address and a certificate is configured, it says that it does not know.
"""

from __future__ import annotations

import configparser
import contextlib
import os
import sys
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

_NAME = "pip.conf"
_OF_THE_MACHINE = Path("/etc") / _NAME

# What only pip understands.
_BEYOND = ("no-index", "proxy", "client-cert", "trusted-host")


def configured(option: str) -> str | None:
    """What pip's environment variables, or else its files, say of an option of `pip install`. None where they say nothing."""
    if value := os.environ.get(f"PIP_{option.upper().replace('-', '_')}"):
        return value
    found = None
    # The later file counts, and of one file the section of the command.
    for path in _files():
        parser = configparser.RawConfigParser()
        with contextlib.suppress(OSError, UnicodeDecodeError, configparser.Error):
            parser.read_string(path.read_text("utf-8"))
        for section in ("global", "install"):
            found = parser.get(section, option, fallback=found)
    return found or None


def _files() -> Iterator[Path]:
    """The files of pip's configuration in its order: the machine's, the user's, the environment's, and the one that a variable names."""
    own = os.environ.get("PIP_CONFIG_FILE")
    # With it pip reads no file at all.
    if own == os.devnull:
        return
    folders = os.environ.get("XDG_CONFIG_DIRS") or "/etc/xdg"
    yield from (Path(folder) / "pip" / _NAME for folder in folders.split(os.pathsep))
    yield _OF_THE_MACHINE
    # In place of the user's own.
    if not (own and Path(own).exists()):
        yield Path.home() / ".pip" / _NAME
        yield Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "pip" / _NAME
    yield Path(sys.prefix) / _NAME
    if own:
        yield Path(own)


def _own_index() -> str:
    """The index that pip asks without a setting, as pip has it. Empty where pip has no such name: its command is asked then."""
    with contextlib.suppress(ImportError, AttributeError):
        from pip._internal.models.index import PyPI

        return str(PyPI.simple_url)
    return ""


def answers(seconds: float) -> bool:
    """Whether the index has a page on pip. False also where it gives none to somebody who knows only its address."""
    import ssl
    from urllib.request import Request, urlopen

    url = configured("index-url") or _own_index()
    with contextlib.suppress(OSError, ValueError, HTTPException):
        if urlsplit(url).scheme in ("http", "https") and "@" not in url and not any(map(configured, _BEYOND)):
            asked = Request(f"{url.rstrip('/')}/pip/", headers={"User-Agent": "dlbench", "Accept": "*/*"})
            trusted = ssl.create_default_context(cafile=configured("cert"))
            with urlopen(asked, timeout=seconds, context=trusted) as answer:
                return bool(answer.status == 200)
    return False

"""Files of an index, or saved references, by their address. Each is bounded in size; a proxy or a web page in the way is named."""

from __future__ import annotations

import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from runner.errors import UserError
from runner.text import in_a_line
from runner.verify.references.saved import MAX_BYTES, Reference, SavedError, read

_SECONDS = 30


class DownloadError(UserError):
    """An address that cannot be read; the message says why."""


def download(address: str, most: int) -> bytes:
    """The content of an address, at most so many bytes. Raises DownloadError."""
    try:
        with urllib.request.build_opener().open(address, timeout=_SECONDS) as answer:
            content: bytes = answer.read(most + 1)
    except (OSError, ValueError) as error:
        said = error.reason if isinstance(error, urllib.error.URLError) else getattr(error, "strerror", None) or error
        raise DownloadError(f"cannot be read{_through(address)} ({in_a_line(str(said), 300)})") from None
    if len(content) > most:
        raise DownloadError(f"has more than {most} bytes")
    if content[:200].lstrip()[:1] == b"<":
        raise DownloadError(
            "is a web page: a network that asks for a login first answers so, and so does another address"
        )
    return content


def _through(address: str) -> str:
    """Which proxy is asked, since an error is the proxy's then as well."""
    parts = urlsplit(address)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy or urllib.request.proxy_bypass(parts.netloc):
        return ""
    # Without the name and the password that it may hold.
    place = proxy.rpartition("@")[2].rpartition("//")[2]
    return f" through the proxy {in_a_line(place, 100)} that {parts.scheme.upper()}_PROXY names"


def fetched(address: str) -> Reference:
    """A saved reference by its address, with every hash checked. Raises SavedError."""
    try:
        content = download(address, MAX_BYTES)
    except DownloadError as error:
        raise SavedError(
            f"{address} {error}; name the address of a file that `runner reference export` wrote"
        ) from None
    with tempfile.NamedTemporaryFile(suffix=".reference.parquet") as file:
        file.write(content)
        file.flush()
        try:
            return read(Path(file.name))
        except SavedError as error:
            raise SavedError(str(error).replace(file.name, address)) from None

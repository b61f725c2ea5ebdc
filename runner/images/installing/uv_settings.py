"""The site's settings of pip as uv takes them: uv reads none of pip's files and variables.

uv's own variables are handed on where they say from where and how to fetch. A setting of pip goes before them. Those that would install
elsewhere, or something else than the lock, are not handed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

# Files are copied: a cell that writes into its environment must not change uv's cache, of which others are made. Every index is asked, as
# by pip, since the digests of the lock say which file is right.
FLAGS = ("--no-config", "--link-mode", "copy", "--no-deps", "--index-strategy", "unsafe-best-match")

# The options of pip that uv has under another name or the same, once for each word of the value.
_EACH = {
    "index-url": "--default-index",
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
}
# Those that are variables of uv.
_VARIABLES = {"client-cert": "SSL_CLIENT_CERT", "timeout": "UV_HTTP_TIMEOUT", "retries": "UV_HTTP_RETRIES"}
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_TRUE = ("y", "yes", "t", "true", "on", "1")

# uv's own variables that are handed on.
_OF_UV = re.compile(
    r"UV_(CACHE_DIR|NO_CACHE|OFFLINE|INDEX|DEFAULT_INDEX|INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS|INDEX_\w+_(USERNAME|PASSWORD)|KEYRING_PROVIDER"
    r"|INSECURE_HOST|SYSTEM_CERTS|NATIVE_TLS|HTTP_TIMEOUT|HTTP_RETRIES|CONCURRENT_\w+)"
)


def effective(configured: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """pip's options by name: a variable of the environment goes before a file. configured: PIP_* -> value, of the files."""
    named = {**configured, **{name: value for name, value in environment.items() if name.startswith("PIP_")}}
    return {name[4:].lower().replace("_", "-"): value for name, value in named.items() if value}


def arguments(options: Mapping[str, str]) -> list[str]:
    """The arguments of `uv pip install` for these options of pip."""
    found = [part for option, own in _EACH.items() for each in _words(options, option) for part in (own, each)]
    if options.get("no-index", "").lower() in _TRUE:
        found.append("--no-index")
    if options.get("no-cache-dir", "").lower() in _TRUE:
        found.append("--no-cache")
    if options.get("keyring-provider") in ("subprocess", "disabled"):
        found += ["--keyring-provider", options["keyring-provider"]]
    # pip takes the authorities of the machine where it is asked to.
    if "truststore" in options.get("use-feature", ""):
        found.append("--system-certs")
    return found


def _words(options: Mapping[str, str], option: str) -> Iterator[str]:
    for word in options.get(option, "").split():
        local = (
            word.removeprefix("file://")
            if option == "find-links" and (word[:7] == "file://" or "://" not in word)
            else None
        )
        # pip passes over a folder that is not there, and uv ends.
        if local is None or Path(local).expanduser().exists():
            yield word if local is None else str(Path(local).expanduser())


def variables(options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of uv, of the environment that pip would have."""
    own = {name: value for name, value in environment.items() if not name.startswith("UV_") or _OF_UV.fullmatch(name)}
    # Both go before what else says which authorities to trust.
    certificate = options.get("cert") or environment.get("REQUESTS_CA_BUNDLE") or environment.get("CURL_CA_BUNDLE")
    if certificate:
        own["SSL_CERT_FILE"] = certificate
    if proxy := options.get("proxy"):
        own |= dict.fromkeys((*_PROXIES, *map(str.lower, _PROXIES)), proxy)
    own |= {name: options[option] for option, name in _VARIABLES.items() if option in options}
    if "cache-dir" in options and "UV_CACHE_DIR" not in own:
        # A site that moves pip's cache to a large disk moves this one, too.
        own["UV_CACHE_DIR"] = str(Path(options["cache-dir"]) / "uv")
    return own

"""The words of a registry, or of an engine that asks one: what they mean, and what to do.

They are those of dockerd 20.10 to 28, of containerd and of Docker Hub, most of them met (tests/engine/test_registry_answers.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Meaning:
    """The meaning of an answer, by a pattern that is in its words, in any case of letters."""

    pattern: str
    means: str
    fix: str
    # A refusal of this user, or an image that is not there: callers may go on without it.
    kind: Literal["other", "refused", "absent"] = "other"


_AGAIN = "try again later"
_MIRROR = '"registry-mirrors" in daemon.json, or --base-image, names another one'

# The first that fits counts. An engine speaks of what is absent and what is refused in one sentence, and repeats a page that it got.
MEANINGS = (
    Meaning(r"no space left", "the engine's disk is full", "`runner images prune` frees a part of it"),
    Meaning(
        r"no matching manifest|does not match the specified platform|no match for platform",
        "the image has no build for this kind of processor",
        "take an image of this machine's architecture (`uname -m`)",
    ),
    Meaning(
        r"verification failed|failed to verify|digest mismatch|does not match|unexpected commit digest",
        "the registry gave other content than the digest says: it was damaged or tampered with, so nothing of it is kept",
        "try again; if it stays so, a proxy or the registry changes what it hands on",
    ),
    Meaning(
        r"proxy authentication required|proxyconnect|connecting to proxy",
        "the engine's proxy refuses or does not answer, and not the registry",
        "its settings or HTTPS_PROXY name another one (`docker info` shows them)",
    ),
    Meaning(
        r"toomanyrequests|too many requests|rate limit|http 429",
        "the registry gives this address no more images for now",
        "`docker login` raises its limit, or wait some hours; a mirror in daemon.json asks it less",
    ),
    Meaning(
        r"http 408|request time-?out",
        "the registry waited in vain for the engine's question: packets are lost on the way",
        'a VPN or bridge with a smaller MTU is the usual reason: `ip link` shows it, and "mtu" in daemon.json sets it',
    ),
    Meaning(
        r"invalid character '<'|unexpected content type.*html|content-type.*text/html",
        "something answers in the place of the registry, with a page of its own: a network that asks for a login first, or a proxy or "
        "firewall that forbids the address",
        "open the registry's address in a browser on that machine and log in, or ask who runs the network",
    ),
    Meaning(
        r"certificate has expired|is not yet valid",
        "its certificate is out of date, or the clock of the engine's machine is wrong",
        "`date` tells the clock; a registry of your site needs a new certificate",
    ),
    Meaning(
        r"cannot validate certificate for|certificate is (not )?valid for|any IP SANs|legacy common name|no valid names",
        "its certificate is of another name than the one that was asked",
        "ask the registry by the name in its certificate; if that is a stranger's, something answers in its place",
    ),
    Meaning(
        r"x509|certificate|tls: (bad|unknown)",
        "its certificate is not trusted here: a proxy shows one of its own, or the registry's authority is your site's",
        "give the engine that authority's certificate (/etc/docker/certs.d/HOST/ca.crt)",
    ),
    Meaning(
        r"server gave HTTP response|first record does not look like a TLS handshake",
        "the registry answers without encryption, and the engine asks for it",
        'give the registry a certificate, or name it in "insecure-registries" of daemon.json',
    ),
    Meaning(
        r"unauthorized|denied|authentication required|no basic auth|forbidden",
        "the registry refuses this user, or hides that it has no such image",
        "`docker login` names another one",
        "refused",
    ),
    Meaning(
        r"unknown blob|blob unknown",
        "the registry lacks a part of the image",
        "push the image again, or ask the registry that a mirror copies",
    ),
    Meaning(
        r"manifest\.v1|schema ?1|unsupported (manifest )?media ?type",
        "the image has a form that this engine does not read",
        "push it again with a newer Docker, or take a newer engine",
    ),
    # A fault of its own comes before what is not found: some write both into one sentence.
    Meaning(
        r"http status: 5\d\d|http 5\d\d|internal server error|bad gateway|service unavailable|gateway time-?out",
        "the registry has a fault of its own, or is overloaded",
        f"{_AGAIN}; {_MIRROR}",
    ),
    Meaning(
        r"no such host|server misbehaving|name resolution|dns",
        "the registry does not answer: its name is not known on the engine's machine",
        "look at the address, and at that machine's DNS (/etc/resolv.conf)",
    ),
    Meaning(
        r"manifest unknown|name unknown|not found|no such image|no such manifest",
        "the registry does not have it",
        "look at its name and tag; some registries say so of a private one until `docker login`",
        "absent",
    ),
    Meaning(
        r"connection reset|broken pipe|\bEOF\b|byte range request|connection closed",
        "the connection to the registry broke off",
        f"{_AGAIN}; if it stays so, a firewall or proxy cuts it",
    ),
    Meaning(
        r"connection refused|timeout|timed out|deadline exceeded|no route to host|network is unreachable|host is down",
        "the registry does not answer",
        f"look at the network of the engine's machine, and whether it needs a proxy (`docker info` shows it); {_MIRROR}",
    ),
)


def meaning(words: str) -> Meaning | None:
    """The meaning of an engine's words; None where nobody knows them."""
    return next((each for each in MEANINGS if re.search(each.pattern, words, re.IGNORECASE)), None)

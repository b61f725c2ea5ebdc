"""The check that two installations are one release: what a node measures must be what the driver planned."""

from __future__ import annotations

from pathlib import Path

from bench import identity
from runner import trees
from runner.nodes.wire.messages import PROTOCOL, Versions
from runner.paths import PROJECT
from runner.version import runner_version

# The files of a folder that decide what is measured, and how.
_RUNNER = ("*.py",)
_CATALOG = ("*.toml", "*.in", "*.lock", "*.seal", "Dockerfile*", "*.sh", "*.R", "*.jl")


def versions() -> Versions:
    """Those of this installation."""
    return Versions(
        protocol=PROTOCOL,
        runner=runner_version(),
        runner_sha256=_digest(PROJECT / "runner", _RUNNER),
        bench_sha256=identity.source_digest(),
        catalog_sha256=_digest(PROJECT / "images", _CATALOG),
    )


def _digest(folder: Path, patterns: tuple[str, ...]) -> str:
    here = [path for path in trees.files(folder) if any(path.match(pattern) for pattern in patterns)]
    paths = {path.relative_to(folder).as_posix() for path in here}
    return str(identity.digest(paths, str(folder)))


def difference(own: Versions, other: Versions) -> str | None:
    """Why a node's installation is not this one's, as a sentence; None where it is."""
    advice = "install the same checkout there"
    if own.protocol != other.protocol:
        return f"it speaks version {other.protocol} of the agent's protocol, and this runner version {own.protocol}; {advice}"
    for what, mine, its in (
        ("runner", own.runner, other.runner),
        ("bench", own.bench_sha256[:12], other.bench_sha256[:12]),
        ("catalog of images", own.catalog_sha256[:12], other.catalog_sha256[:12]),
        ("runner's code", own.runner_sha256[:12], other.runner_sha256[:12]),
    ):
        if mine != its:
            return f"its {what} is {its}, and here it is {mine}; {advice}"
    return None

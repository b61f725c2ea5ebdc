"""Published faults of versions of CUDA and cuDNN: images/known_issues.toml, validated, and the cells and images that have them.

A fault is a library's, and eight locks may hold that library: so a table of faults stands once, and no image.toml repeats it.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError, field_validator, model_validator

from bench import rules
from runner.errors import UserError
from runner.paths import PROJECT
from runner.results.validate import Frozen

KNOWN_ISSUES = PROJECT / "images" / "known_issues.toml"
# As the end of a range of compute capabilities: no GPU is known to be without the fault.
ABOVE_ALL = "1000.0"

_Version = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)+$")]
_Words = Annotated[str, Field(pattern=r"^\S.*[^\s.]$")]


class KnownIssuesError(UserError):
    """A table of known issues that cannot be used; the message names file, issue, field and fix."""


class IssueCells(Frozen):
    """The cells of one framework, in all modes or in one."""

    framework: str
    mode: str | None = None

    @field_validator("framework")
    @classmethod
    def _there(cls, name: str) -> str:
        if name not in rules.framework_names():
            raise ValueError(f"there is no framework {name!r}; name one of {', '.join(rules.framework_names())}")
        return name


class KnownIssue(Frozen):
    """One published fault of a library, from version `first` to below `fixed`."""

    name: str = Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")
    library: Literal["cuda", "cudnn"]
    first: _Version
    fixed: _Version
    # of GPUs from a compute capability to below another; ABOVE_ALL: and newer
    capabilities: tuple[_Version, _Version] = ("0.0", ABOVE_ALL)
    # the cells and precisions that it can touch; empty: all
    cells: tuple[IssueCells, ...] = ()
    precisions: tuple[str, ...] = ()
    # the operation, in words
    touches: _Words
    sentence: _Words
    # the source
    title: _Words
    url: str = Field(pattern=r"^https://\S+$")

    @model_validator(mode="after")
    def _ranges_are_ranges(self) -> KnownIssue:
        for field, low, high in (
            ("fixed", self.first, self.fixed),
            ("capabilities", *self.capabilities),
        ):
            if _numbers(high) <= _numbers(low):
                raise ValueError(
                    f"{field}: {high} is not above {low}; the second number is the first one without the fault"
                )
        return self

    def is_of(self, versions: Mapping[str, str | None]) -> bool:
        """True if the library has the fault in these versions, by library. A bound of two numbers compares two of the version's."""
        version = _numbers(versions.get(self.library) or "")
        # A version that says less than a bound does may lie on either side.
        told = len(version) >= max(len(_numbers(bound)) for bound in (self.first, self.fixed))
        return told and _compared(version, self.first) >= 0 > _compared(version, self.fixed)

    def is_on(self, least: str, most: str) -> bool:
        """True if a GPU from one compute capability to another, both included, can have it."""
        low, below = map(_numbers, self.capabilities)
        return _numbers(most) >= low and _numbers(least) < below

    def touches_cell(self, framework: str, mode: str, precision: str) -> bool:
        """True if cells of this kind can meet the fault."""
        named = any(one.framework == framework and one.mode in (None, mode) for one in self.cells)
        return (named or not self.cells) and (not self.precisions or precision in self.precisions)

    @property
    def said(self) -> str:
        """The fault in a sentence, with its source."""
        return f"{self.sentence} ({self.title}: {self.url})"


def known_issues(
    framework: str, mode: str, precision: str, versions: Mapping[str, str | None], capability: str | None
) -> tuple[str, ...]:
    """A sentence with its source for each fault that a cell on such a GPU can meet; none where its versions or the GPU are not known.

    `versions`: of "cuda" and "cudnn". Raises KnownIssuesError.
    """
    if not capability:
        return ()
    return tuple(
        issue.said
        for issue in load_known_issues()
        if issue.is_of(versions)
        and issue.is_on(capability, capability)
        and issue.touches_cell(framework, mode, precision)
    )


@functools.cache
def load_known_issues(path: Path = KNOWN_ISSUES) -> tuple[KnownIssue, ...]:
    """Every known issue, in the file's order. Raises KnownIssuesError."""
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise KnownIssuesError(f"{path} cannot be read ({error}); restore the file, or fix that line") from None
    listed = entries.get("issue", [])
    if set(entries) - {"issue"} or not isinstance(listed, list):
        raise KnownIssuesError(f"{path}: it holds more than [[issue]] tables; write each issue as one")
    issues: dict[str, KnownIssue] = {}
    for number, entry in enumerate(listed, start=1):
        try:
            issue = KnownIssue.model_validate(entry)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            problem = first["msg"].removeprefix("Value error, ")
            fix = "" if first["type"] == "value_error" else "; fix it: the other issues show the form"
            raise KnownIssuesError(f"{path}: issue {number}: {field + ': ' if field else ''}{problem}{fix}") from None
        if issue.name in issues:
            raise KnownIssuesError(f"{path}: issue {number}: name: {issue.name} stands twice; give one another name")
        issues[issue.name] = issue
    return tuple(issues.values())


def _compared(version: tuple[int, ...], bound: str) -> int:
    """-1, 0 or 1: the version is below the bound, the same as far as the bound says it, or above."""
    limit = _numbers(bound)
    cut = version[: len(limit)]
    return (cut > limit) - (cut < limit)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"[0-9]+", version))

"""Gives a command's help its examples, its groups of options, and types that a reader knows."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MethodType
from typing import Any

# Option -> what stands in the place of its value, where the command does not say it.
_VALUES: Mapping[str, str] = {
    **dict.fromkeys(("--images", "--frameworks", "--workloads", "--precision", "--modes", "--reference"), "NAME,…"),
    **dict.fromkeys(("--results", "--data", "--images-from", "--catalog", "--references", "--sbom"), "FOLDER"),
    **dict.fromkeys(("-o", "--output", "--junit", "--markdown", "--html"), "FILE"),
    **dict.fromkeys(("--runs", "--run"), "RUN"),
    **dict.fromkeys(("--image", "--base-image", "--against"), "IMAGE"),
    **dict.fromkeys(("--name", "--workload", "--gpu", "--licence", "--architecture"), "NAME"),
    **dict.fromkeys(("--jobs", "--most-repeats", "--level"), "N"),
    "--devices": "N,…",
    "--gpus": "GPU,…",
    "--engine": "ENGINE",
    "--nodes": "NODES",
    "--python": "PROGRAM",
    "--margin": "PERCENT",
    "--to-loss": "LEVEL",
    "--registry": "REGISTRY",
    "--date": "DAY",
    "--limit": "SECONDS",
    "--driver": "VERSION",
    "--compile-for": "GPU,…",
}

# Names that are taken and not shown: an idea has one. --out was easily taken for -o, which is a file.
OLDER = ("--out", "--runs", "--html", "--precisions")
_OLDER = re.compile(rf"(, )?({'|'.join(OLDER)})(?![\w-])")

# The same of an argument that is not called by its own name.
_NAMES: Mapping[str, str] = {
    "run": "RUN", "runs": "RUN", "names": "IMAGE", "frameworks": "FRAMEWORK", "bundles": "BUNDLE", "first": "REFERENCE",
    "second": "REFERENCE", "name": "REFERENCE",
}  # fmt: skip

# Of commands with many options, the heads under which these stand.
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "Cells": (
        "--images", "--frameworks", "--workloads", "--precision", "--modes", "--preset", "--devices", "--scaling", "--to-loss",
        "--each-gpu", "--data", "--catalog", "--image",
    ),
    "How often, and for how long": (
        "--repeats", "--minutes", "--time", "--most-repeats", "--timeout", "--seed", "--profile", "--level", "--again",
    ),
    "On which machine": (
        "--gpus", "--least-gpus", "--share", "--cool-down", "--lock-clocks", "--wait", "--nodes", "--engine", "--python", "--against",
        "--base-image", "--images-from", "--build",
    ),
    "Compared with": ("--reference", "--references", "--margin", "--run"),
}  # fmt: skip
_MANY = 12

# A type of Python's, behind the name of an argument.
_TYPE = re.compile(r" <(?:str|int|float|path|list)\b[^>]*>")


def furnish(command: Any, path: str) -> None:
    """Change the help of a command, which is called by the words of `path`."""
    for parameter in command.params:
        if parameter.metavar is None and not getattr(parameter, "is_flag", False):
            is_option = parameter.param_type_name == "option"
            parameter.metavar = _VALUES.get(parameter.opts[0]) if is_option else _NAMES.get(parameter.name)
        if len(parameter.opts) > 1:
            parameter.get_help_record = MethodType(_without_older(parameter.get_help_record), parameter)
    if hasattr(command, "commands"):
        return
    command.format_options = MethodType(_in_groups, command)
    command.format_epilog = MethodType(_with(path, command.format_epilog), command)


def _without_older(before: Any) -> Any:
    """The row of an option in the help, without its older names."""

    def get_help_record(_: Any, context: Any) -> tuple[str, str] | None:
        record = before(context)
        return record and (_OLDER.sub("", record[0]).removeprefix(", "), record[1])

    return get_help_record


def _in_groups(command: Any, context: Any, formatter: Any) -> None:
    """The arguments, and the options; many of them under the heads of _GROUPS."""
    many = len(command.params) >= _MANY
    rest = "Results and answers" if many else "Options"
    heads: dict[str, list[tuple[str, str]]] = {"Arguments": [], **{head: [] for head in _GROUPS}, rest: []}
    of_option = {option: head for head, names in _GROUPS.items() for option in names} if many else {}
    for parameter in command.get_params(context):
        if record := parameter.get_help_record(context):
            head = next((of_option[name] for name in parameter.opts if name in of_option), rest)
            head = "Arguments" if parameter.param_type_name == "argument" else head
            heads[head].append((_TYPE.sub("", record[0]), record[1]))
    for head, records in heads.items():
        if records:
            with formatter.section(head):
                formatter.write_dl(records)


def _with(path: str, before: Any) -> Any:
    """The text below the options: the one that stood there before, and the examples."""

    def format_epilog(_: Any, context: Any, formatter: Any) -> None:
        from runner.cli.help.examples import EXAMPLES

        before(context, formatter)
        if path not in EXAMPLES:
            return
        with formatter.section("Examples"):
            for what, line in EXAMPLES[path]:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n{'':{formatter.current_indent + 4}}{what}\n")

    return format_epilog

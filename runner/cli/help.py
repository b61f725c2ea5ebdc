"""The help of all commands: its examples, groups of options and plain types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MethodType
from typing import Any

# Two to four examples of each command, as its help shows them. A test runs those that measure nothing, and plans the others.

# The words of a command -> (what it does, the command line).
EXAMPLES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "": (
        ("ten minutes of measuring", "runner matrix --minutes 10"),
        ("the answer of the newest run", "runner report --text"),
        ("is this installation healthy?", "runner verify --python /path/to/its/python"),
    ),
    "matrix": (
        ("ten minutes, the most used frameworks first", "runner matrix --minutes 10"),
        ("what an hour would measure", "runner matrix --minutes 60 --dry-run"),
        ("two frameworks at one network", "runner matrix --frameworks torch,jax --workloads gru-imdb"),
        ("go on with the newest run", "runner matrix --resume latest"),
    ),
    "import": (
        ("what a kit measured elsewhere", "runner import results.tar.gz"),
        ("into another folder of runs", "runner import results.tar.gz --results lab"),
    ),
    "gpu-kit": (
        ("a folder for a GPU machine without a network", "runner gpu-kit kit"),
        ("the same with a network of your own, which it measures first", "runner gpu-kit kit --workloads ./my_net.py"),
        ("the same, and then what it measured", "runner gpu-kit kit && runner import results.tar.gz"),
    ),
    "share": (
        ("a bundle of the newest run", "runner share latest -o bundle.tar.gz"),
        ("into a collection, by an account", "runner share latest -o COLLECTION --by me"),
    ),
    "report": (
        ("the page of the newest run", "runner report"),
        ("the answer in the terminal", "runner report latest --text"),
        ("every cell with its figures", "runner report latest --format csv"),
        ("several runs in one page", "runner report RUN OTHER -o both.html"),
    ),
    "compare": (
        ("two frameworks of the newest run", "runner compare torch jax"),
        ("two runs, as a page", "runner compare RUN latest -o changes.html"),
        ("only what changed by a tenth", "runner compare RUN latest --margin 10"),
    ),
    "blame": (
        ("which package made it slower", "runner blame torch-2.9.1-cu128 torch-2.14.1-cu130 --workloads gru-imdb"),
        ("go on where it ended", "runner blame --resume latest"),
    ),
    "history": (
        ("what changed over all runs", "runner history"),
        ("the same as a page with its pictures", "runner history -o history.html"),
        ("every cell, for a script", "runner history --all --format csv"),
    ),
    "rosetta": (
        ("one network in two frameworks", "runner rosetta cnn-cifar10 torch jax"),
        ("the same as a page", "runner rosetta gru-imdb torch tensorflow -o stone.html"),
    ),
    "verify": (
        ("an installation, in some ten minutes a framework", "runner verify --python /path/to/its/python"),
        ("each GPU beside the others of its model", "runner verify --each-gpu"),
        ("a run that was measured", "runner verify --run latest"),
        ("is it correct, in seconds?", "runner verify --level 1 --python /path/to/its/python"),
    ),
    "reference save": (
        ("of the newest run", "runner reference save latest --name lab"),
        ("of several days", "runner reference save RUN OTHER --name lab"),
    ),
    "reference list": (
        ("your references", "runner reference list"),
        ("for a script", "runner reference list --format json"),
    ),
    "reference show": (
        ("one of yours", "runner reference show lab"),
        ("published numbers beside your run", "runner reference show published --run latest"),
    ),
    "reference diff": (
        ("two references", "runner reference diff lab old"),
        ("for a script", "runner reference diff lab old --format json"),
    ),
    "reference export": (
        ("one to a file", "runner reference export lab -o FILE"),
        ("under another name", "runner reference export lab -o copy.reference.parquet"),
    ),
    "reference import": (
        ("from a file or an address", "runner reference import FILE --replace"),
        ("into another folder of references", "runner reference import FILE --references team"),
    ),
    "reference judge": (
        ("each bundle of a collection", "runner reference judge COLLECTION"),
        ("one that somebody brings", "runner reference judge COLLECTION bundle.tar.gz --by me"),
    ),
    "reference index": (
        ("the page of a collection", "runner reference index COLLECTION -o site"),
        ("with its licence", "runner reference index COLLECTION -o site --licence CC-BY-4.0"),
    ),
    "gpus": (
        ("the GPUs of this machine", "runner gpus"),
        ("for a script", "runner gpus --format json"),
    ),
    "doctor": (
        ("what is missing", "runner doctor"),
        ("for a script", "runner doctor --format json"),
    ),
    "images list": (
        ("all images", "runner images list"),
        ("for a script", "runner images list --format json"),
    ),
    "images show": (
        ("one image", "runner images show torch-2.13.0-cpu"),
        ("those of a framework", "runner images show 'jax-*'"),
    ),
    "images check": (
        ("all images", "runner images check"),
        ("those of a framework", "runner images check 'torch-*'"),
    ),
    "images build": (
        ("the images of a framework", "runner images build 'torch-*-cpu'"),
        ("and push them", "runner images build 'torch-*' --push registry.example.org/dlbench"),
    ),
    "images reproduce": (
        ("one image", "runner images reproduce torch-2.13.0-cpu"),
        ("those of a framework", "runner images reproduce 'jax-*-cpu'"),
    ),
    "images push": (
        ("the images of a framework", "runner images push registry.example.org/dlbench 'torch-*'"),
        ("one image", "runner images push registry.example.org/dlbench jax-0.10.2-cpu"),
    ),
    "images export": (
        ("for nodes without a registry", "runner images export 'torch-*-cpu' --to FOLDER"),
        ("for Apptainer", "runner images export torch-2.13.0-cpu --as sif --to FOLDER"),
    ),
    "images lock": (
        ("of one image", "runner images lock torch-2.13.0-cpu"),
        ("as of a day", "runner images lock torch-2.13.0-cpu --date 2026-11-15"),
    ),
    "images update": (
        ("newer releases of a framework", "runner images update 'torch-*'"),
        ("as of a day", "runner images update 'jax-*' --date 2026-11-15"),
    ),
    "images pin": (
        ("the digests of base images", "runner images pin 'torch-*'"),
        ("of published images", "runner images pin 'torch-*' --registry registry.example.org/dlbench"),
    ),
    "images try": (
        ("one image", "runner images try torch-2.9.1-cu128"),
        ("at one network", "runner images try torch-2.9.1-cu128 --workloads gru-imdb"),
    ),
    "images prune": (
        ("what would go", "runner images prune --dry-run"),
        ("remove it", "runner images prune"),
    ),
    "images new": (
        ("a framework and its CPU image", "runner images new myframework-1.2.0-cpu myframework==1.2.0 numpy==2.4.6"),
        ("and make its lock", "runner images new tinygrad-0.15.0-cpu && runner images lock tinygrad-0.15.0-cpu"),
    ),
    "images files": (
        ("write them", "runner images files"),
        ("and see what changed", "runner images files && git diff --stat"),
    ),
    "images ci-matrix": (
        ("of all images", "runner images ci-matrix"),
        ("that a registry lacks", "runner images ci-matrix --missing-from registry.example.org/dlbench"),
    ),
    "nodes": (
        ("hosts over ssh, one a line", "runner nodes --nodes ssh:hosts.txt"),
        ("those of a Slurm partition", "runner nodes --nodes slurm:gpu"),
    ),
    "list": (
        ("the networks that are measured", "runner list workloads"),
        ("the frameworks", "runner list frameworks"),
        ("the stored runs", "runner list runs"),
    ),
    "completion": (
        ("in this bash, and in later ones by ~/.bashrc", 'eval "$(runner completion bash)"'),
        ("in zsh", 'eval "$(runner completion zsh)"'),
        ("in fish", "runner completion fish > ~/.config/fish/completions/runner.fish"),
    ),
}


# Gives a command's help its examples, its groups of options, and types that a reader knows.

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

        before(context, formatter)
        if path not in EXAMPLES:
            return
        with formatter.section("Examples"):
            for what, line in EXAMPLES[path]:
                formatter.write(f"{'':{formatter.current_indent}}{line}\n{'':{formatter.current_indent + 4}}{what}\n")

    return format_epilog

"""Lists of names, and the completion of a shell, which offers them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import typer

from runner.cli.shared import PLAIN, Out

# The command `runner list`: the names that options take.

Kind = Literal["workloads", "frameworks", "precisions", "images", "runs"]

app = typer.Typer(**PLAIN)


@app.command()
def list_names(
    kind: Annotated[Kind, typer.Argument(help="The names of what.")],
    out: Out = Path("results"),
) -> None:
    """A line has a name, and what it stands for."""
    from runner.text import visible

    named = names_of(kind, out)
    longest = max(map(len, named), default=0)
    for name, what in named.items():
        typer.echo(visible(f"{name:{longest}}  {what}".rstrip(), 300))


def names_of(kind: Kind, out: Path) -> dict[str, str]:
    """Each name with what it stands for."""
    # The shell's completion asks for one kind at a time.
    if kind == "workloads":
        from runner.catalog.workloads import load_workloads

        return {name: workload.title for name, workload in load_workloads().items()}
    if kind == "frameworks":
        from runner.catalog.frameworks import load_frameworks

        return {name: framework.title for name, framework in load_frameworks().items()}
    if kind == "precisions":
        from runner.catalog.workloads import load_workloads

        measured: dict[str, list[str]] = {}
        for name, workload in load_workloads().items():
            for precision in workload.precisions:
                measured.setdefault(precision, []).append(name)
        return {precision: f"of {len(names)} workloads" for precision, names in measured.items()}
    if kind == "images":
        from runner.catalog.images import load_catalog

        return {name: " ".join(image.frameworks) for name, image in load_catalog(locks=False).items()}
    from runner.results.store import LATEST, runs_below

    runs = [folder.name for folder in reversed(runs_below(out))]
    return {LATEST: runs[0], **dict.fromkeys(runs, "")} if runs else {}


# The commands `runner completion` and `runner complete`: a shell completes commands, options, and names of images, runs and more.

_SCRIPTS = {
    "bash": """\
_runner() {
    local IFS=$'\\n'
    COMPREPLY=($("${COMP_WORDS[0]}" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2> /dev/null))
    [[ ${COMPREPLY[0]} == *, ]] && compopt -o nospace
}
complete -o default -F _runner runner
""",
    "zsh": """\
_runner() {
    local -a found
    found=("${(@f)$(${words[1]} complete -- "${(@)words[2,CURRENT]}" 2> /dev/null)}")
    compadd -a found
}
compdef _runner runner
""",
    "fish": "complete -c runner -f -a '(runner complete -- (commandline -opc)[2..-1] (commandline -ct) 2> /dev/null)'\n",
}

# Option -> the kind of names that it takes (runner.cli.completion).
_KINDS = {
    "--images": "images",
    "--image": "images",
    "--against": "images",
    "--frameworks": "frameworks",
    "--workloads": "workloads",
    "--workload": "workloads",
    "--precision": "precisions",
    "--precisions": "precisions",
    "--resume": "runs",
    "--run": "runs",
    "--runs": "runs",
    "--again": "runs",
}
# The same of an argument, by its name in the command's function.
_ARGUMENTS = {
    "run": "runs",
    "runs": "runs",
    "a": "runs",
    "b": "runs",
    "names": "images",
    "first": "images",
    "second": "images",
    "workload": "workloads",
    "frameworks": "frameworks",
}


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell.")],
) -> None:
    """It names commands, options, images, workloads, frameworks, precisions and runs."""
    typer.echo(_SCRIPTS[shell], nl=False)


def complete(
    words: Annotated[
        list[str] | None, typer.Argument(help="The words after `runner`; the last one is completed.")
    ] = None,
) -> None:
    """A line for each completion."""
    *before, last = words or [""]
    for found in sorted(set(candidates(before, last))):
        typer.echo(found)


def candidates(before: list[str], last: str) -> Iterable[str]:
    """The words that the last one may become, after the words before it."""
    from runner.cli.main import app

    command: Any = typer.main.get_command(app)
    rest = list(before)
    while rest and rest[0] in getattr(command, "commands", ()):
        command = command.commands[rest.pop(0)]
    if hasattr(command, "names") and not rest and not last.startswith("-"):
        return [name for name in command.names if name.startswith(last)]
    if hasattr(command, "commands") and not rest and not last.startswith("-"):
        return [name for name in command.commands if name.startswith(last)]
    options = {name: parameter for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    previous = options.get(rest[-1]) if rest else None
    if previous is not None and not getattr(previous, "is_flag", False):
        return _values(previous, rest[-1], last)
    if last.startswith("-"):
        return [name for name in (*options, "--help") if name.startswith(last) and name.startswith("-")]
    arguments = [parameter for parameter in command.params if parameter.param_type_name == "argument"]
    return _values(arguments[min(_given(rest, options), len(arguments) - 1)], "", last) if arguments else []


def _given(words: list[str], options: Mapping[str, Any]) -> int:
    """How many of these words are arguments: no option, and no option's value."""
    takes_value = {name for name, option in options.items() if not getattr(option, "is_flag", False)}
    values = [before in takes_value for before in ("", *words)]
    return sum(not word.startswith("-") and not value for word, value in zip(words, values, strict=False))


def _values(parameter: Any, option: str, last: str) -> Iterable[str]:
    """The values of an option or an argument: its choices, or names, of which several may stand between commas."""
    if choices := _choices(parameter.type_descriptor.annotation):
        return [choice for choice in choices if choice.startswith(last)]
    first, comma, part = last.rpartition(",")
    kind = _KINDS.get(option) if option else _ARGUMENTS.get(parameter.name)
    return [f"{first}{comma}{found}" for found in _names(kind, part)]


def _choices(annotation: Any) -> list[str]:
    """The words of a Literal, which may be inside another type."""
    if get_origin(annotation) is Literal:
        return list(map(str, get_args(annotation)))
    return [choice for inner in get_args(annotation) for choice in _choices(inner)]


def _names(kind: Any, last: str) -> Iterable[str]:

    return [name for name in names_of(kind, Path("results")) if name.startswith(last)] if kind else []

"""The command `runner`: its commands by name. A user's error ends here, with one sentence and its exit code."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import os
import re
import sys
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar

import typer

from runner.cli.shared import PLAIN, LazyGroup
from runner.errors import (
    MEANINGS,
    ExitCode,
    UserError,
    code_of,
    code_of_fault,
    name_stdout_in_faults,
    numbered,
    system_fault,
)
from runner.paths import PROJECT

# In characters. If nothing can run, each combination has its reason.
_LONGEST_ERROR = 20_000
# An error about the command line repeats what was typed.
_LONGEST_USAGE = 1_500
# No option needs that many digits.
_DIGITS = re.compile(r"(\d{20})\d{20,}(?:\.\d+)?")
_FIRST_DIGITS = r"\1…"


def _say(error: str) -> None:
    # Help needs no control characters made visible.
    from runner.text import visible

    # It may name what a file from elsewhere holds.
    typer.echo(f"runner: {visible(_DIGITS.sub(_FIRST_DIGITS, error), _LONGEST_ERROR)}", err=True)


# The base of all errors of Click's about the command line. Typer has its own copy of Click, and exports only this one.
_CommandLineError: type[Exception] = typer.BadParameter.__mro__[1]


@contextlib.contextmanager
def _one_style() -> Iterator[None]:
    """Within the block, an error about the command line reads as every other error of the runner."""
    try:
        yield
    except _CommandLineError as error:
        # This one prints a group's help.
        if type(error).__name__ == "NoArgsIsHelpError":
            raise
        names: list[str] = []
        context = getattr(error, "ctx", None)
        while context is not None and context.parent is not None:
            names.insert(0, context.info_name)
            context = context.parent
        path = " ".join(["runner", *names])
        # Help needs no paths.
        from runner.text import visible

        words = error.format_message().rstrip(".").replace("Value error, ", "")  # type: ignore[attr-defined]
        _say(f"{visible(words, _LONGEST_USAGE)}; `{path} --help` shows what there is")
        raise typer.Exit(ExitCode.USAGE) from None


class Commands(LazyGroup):
    package = "runner.cli"
    names: ClassVar[Mapping[str, str]] = {
        "matrix": "Run every image, framework and workload on the devices of this machine; write results and a report.",
        "import": "Make a run of what another machine measured: by a kit (gpu-kit), or by `runner share`.",
        "gpu-kit": "Write a folder that measures a GPU machine without a network and without an installation.",
        "share": "Write what others need to judge a run again, without names, for a collection of references.",
        "report": "Write one self-contained HTML report from stored runs.",
        "compare": "Say which step times differ between two runs, images, frameworks, GPUs or CUDA versions.",
        "blame": "Say which package makes one image faster or slower than another: measure the images between the two.",
        "history": "Say which step times changed since an earlier run, and after which event.",
        "rosetta": "Show the same workload in several frameworks, side by side.",
        "verify": "Say whether an installation computes correctly and as fast as it should.",
        "reference": "Manage references: measurements of other machines, to compare with.",
        "gpus": "Show the GPUs of this machine, their links and the processes on them.",
        "doctor": "Check all that GPU cells need, and say how to fix what is wrong.",
        "images": "Manage the catalog of images.",
        "list": "Print the names of workloads, frameworks, precisions, images or stored runs.",
        "completion": "Print what makes bash, zsh or fish complete the words of a command.",
        "nodes": "Look at several machines: their GPUs, what differs between them, what would not run.",
    }
    unlisted: ClassVar[Mapping[str, str]] = {
        "agent": "Run cells on this node for a driver on another machine.",
        "complete": "Print the completions of a command's last word.",
    }
    modules: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("doctor", "gpus", "nodes", "agent"), "machines"),
        **dict.fromkeys(("import_", "gpu_kit", "share"), "reference"),
        **dict.fromkeys(("list", "completion", "complete"), "completion"),
        "rosetta": "report",
        "history": "compare",
    }

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        with _one_style():
            return list(super().parse_args(ctx, args))

    def invoke(self, ctx: Any) -> Any:
        try:
            with _one_style():
                return super().invoke(ctx)
        except UserError as error:
            _say(str(error))
            raise typer.Exit(code_of(error)) from None
        except KeyboardInterrupt:
            _say("interrupted")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
        except EOFError as error:
            # Bytecode that a full disk cut short. Typer would say "Aborted!" alone, as of a question without an answer.
            _say(
                f"{error}: a disk ran full while a module was compiled; remove the __pycache__ folders below {sys.prefix} and {PROJECT}"
            )
            raise typer.Exit(ExitCode.CANNOT_BEGIN) from None
        except (OSError, MemoryError, RuntimeError) as raised:
            fault = numbered(raised)
            # A reader that is gone. Python has one class for that and for a disk on the network that was shut down.
            if fault.errno == errno.EPIPE:
                raise
            _say(system_fault(fault))
            raise typer.Exit(code_of_fault(fault)) from None


# Every command below takes these names of its help from here.
_HELP = {"help_option_names": ["--help", "-h"]}

# A paragraph each: the terminal and docs/cli.md show it alike.
_CODES = "\n\n".join(["Exit codes of every command:", *(f"* `{code:d}`: {words}." for code, words in MEANINGS.items())])

app = typer.Typer(cls=Commands, no_args_is_help=True, context_settings=_HELP, epilog=_CODES, **PLAIN)


def _print_version(wanted: bool) -> None:
    if wanted:
        # Only this needs the packages' metadata.
        from runner.paths import runner_version

        typer.echo(f"runner {runner_version()}")
        raise typer.Exit


@app.callback()
def main_group(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Print the version and exit.")
    ] = False,
) -> None:
    """One benchmark, every deep-learning framework: run the matrix of images, read the report, verify a machine."""


def _open_what_is_closed() -> None:
    """Python has no stream where the shell closed one (`>&-`)."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 it is open as long as the process runs


def _print_in_any_encoding() -> None:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and not stream.encoding.lower().startswith("utf"):
            # Most terminals have all characters.
            from runner.terminal import replace_what_lacks

            replace_what_lacks(stream)


def main() -> None:
    _open_what_is_closed()
    _print_in_any_encoding()
    name_stdout_in_faults()
    # Pydantic looks through every installed package for plugins, which takes as long as to load Typer. Nothing here has one.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # Modules make much that stays and no garbage. To search it again and again takes a tenth of a short command's time.
    gc.disable()
    try:
        try:
            app()
        finally:
            # An answer that its file has no room for is no success, and neither is one that nobody reads to its end.
            sys.stdout.flush()
    except OSError as error:
        # Python would write the rest as it ends, and fail once more.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        if error.errno == errno.EPIPE:
            sys.exit(ExitCode.FOUND)
        _say(system_fault(error))
        sys.exit(code_of_fault(error))

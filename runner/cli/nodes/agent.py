"""The command `runner agent`."""

from __future__ import annotations

import os
import sys

import typer

from runner.errors import UserError


def agent() -> None:
    """A driver starts it, here or over ssh, and speaks to it in frames (docs/nodes.md). It is not for people."""
    if sys.stdin.isatty() or sys.stdout.isatty():
        raise UserError("runner agent speaks to `runner matrix --nodes` over a pipe; start that instead")
    from runner.nodes.node_agent import serve

    # A library's output must not come between two frames.
    with os.fdopen(os.dup(0), "rb", buffering=0) as source, os.fdopen(os.dup(1), "wb") as sink:
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        serve(source, sink)
    # Threads that wait for an engine without an answer must not keep this process.
    sys.stderr.flush()
    os._exit(typer.Exit().exit_code)

"""The one error that a user is meant to read. `runner.cli.main` catches it, prints its sentence and exits with its code.

A subclass says where it comes from, so that code between can catch it. A traceback is for bugs.
"""

from __future__ import annotations


class UserError(Exception):
    """What went wrong, where, and what to do, in a sentence for the user."""

    exit_code = 2

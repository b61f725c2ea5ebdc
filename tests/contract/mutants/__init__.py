"""Planted mistakes: classes over the real adapters, each of which breaks one thing, and rewrites that break nothing.

`python -m tests.contract.mutants.run FRAMEWORK` sends them through the gates of a cell, in an interpreter that has the framework.
`python -m tests.contract.mutants.table` does so for all frameworks, and writes docs/mutants.md.
"""

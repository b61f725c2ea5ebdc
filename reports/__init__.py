"""Reads stored runs and renders them as one HTML file. Never looks at a live run, and at nothing of the runner but its store."""

from reports.render import render

__all__ = ["render"]

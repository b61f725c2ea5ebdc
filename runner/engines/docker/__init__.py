"""Cells in containers of a Docker Engine."""

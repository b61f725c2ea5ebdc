"""Cells in containers of Podman."""

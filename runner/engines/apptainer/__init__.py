"""Cells in containers of Apptainer."""

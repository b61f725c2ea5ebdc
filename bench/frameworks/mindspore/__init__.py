"""MindSpore 2."""

"""A run as a bundle for people whom we never met: without names, and all that is needed to judge it again."""

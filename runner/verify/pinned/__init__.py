"""The pinned image that an installation is held against, and what a difference of their releases explains."""

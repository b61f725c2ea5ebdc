"""The verdict on an installation's speed, and the causes if it is slow."""

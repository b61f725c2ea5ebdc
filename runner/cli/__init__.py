"""The command `runner`: a file a command, or a few that belong together."""

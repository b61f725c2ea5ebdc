"""The command `runner`: a file a command."""

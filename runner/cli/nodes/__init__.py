"""The commands about nodes: a file a command."""

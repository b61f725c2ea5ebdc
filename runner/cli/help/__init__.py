"""The help of all commands: examples, groups of options, plain types; lists of names, and the completion of a shell."""

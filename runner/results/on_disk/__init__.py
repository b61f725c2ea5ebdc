"""How a run lies on disk: its files and what they are called, which of them hold a repeat, and which are refused."""

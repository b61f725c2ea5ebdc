"""How a run lies on disk: its tables and what they were derived from, and how files are read and written whole."""

"""Which cells are slower than which: their levels within the blocks of a run, and the ranking that all readers ask. Pure."""

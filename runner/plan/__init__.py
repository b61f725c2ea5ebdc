"""Which cells a run has, how long they take and what they need of the disk."""

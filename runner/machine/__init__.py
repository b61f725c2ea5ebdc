"""What this machine has and does: its devices, who uses them, and what they do while a cell runs. It imports `results` only."""

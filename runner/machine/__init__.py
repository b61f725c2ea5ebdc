"""The machine: its devices, their users, and their telemetry while a cell runs. It imports `results` only."""

"""The judges of a cell's claims, by the host's own facts: a cell that lies, or is merely wrong, is no result."""

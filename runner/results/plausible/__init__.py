"""What a cell says that it measured, held against what the host saw and knows: a cell that lies, or is merely wrong, is no result."""

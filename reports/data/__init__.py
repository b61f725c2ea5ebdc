"""The stored results of runs, as the answers want them."""

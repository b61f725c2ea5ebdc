"""The answers of the results: comparisons with their intervals, and the sentences that these support."""

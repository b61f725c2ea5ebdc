"""What the results say: comparisons with their intervals, and the sentences that these support."""

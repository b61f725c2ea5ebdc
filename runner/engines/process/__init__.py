"""Cells as processes of this machine: in environments made from the locks, or in an interpreter that is already there."""

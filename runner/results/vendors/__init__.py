"""Faults that vendors publish of their libraries, matched with stored cells, planned cells and images."""

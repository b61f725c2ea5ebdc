"""Verification of many nodes: which node is slow, which GPU in its node, and in what a slow node is set up otherwise."""

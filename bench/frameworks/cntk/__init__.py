"""CNTK 2.7, Microsoft's Cognitive Toolkit."""

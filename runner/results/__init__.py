"""The stored tables, their validation, and the statistics of measured windows.

Imports nothing else of runner: runner and reports both stand on it.
"""

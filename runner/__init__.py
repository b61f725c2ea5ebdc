"""Runs on the host: plans the matrix, runs its cells, keeps what they measured."""

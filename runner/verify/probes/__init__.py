"""Measurements outside cells: the highest rates of an environment, a device under full load, the bits of its products."""

"""References from people whom we never met: bundles in a folder, the judge of new ones, and the index of all."""

"""What is computed: one framework-free specification a file, with its float64 reference (bench.contract.Specification).

The numbers that a planner needs lie in the .json beside it.
"""

"""The benchmark that runs inside every image: Python >= 3.6 syntax, standard library, NumPy and that image's framework."""

"""Loads the CPU with a framework for a second a load, and prints the rates: `python full_load.py FRAMEWORK`."""

import sys

from bench import load

if __name__ == "__main__":
    load.main(sys.argv[1], "cpu", "1", "0")

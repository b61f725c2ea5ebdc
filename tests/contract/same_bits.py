"""Looks at the bits of a framework's products on the CPU, and prints them: `python same_bits.py FRAMEWORK`."""

import sys

from bench import same_bits

if __name__ == "__main__":
    same_bits.main(sys.argv[1], "cpu", "1")

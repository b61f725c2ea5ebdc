"""Shared libraries of the wheels of GPU images: what each asks the loader for, and whether the image has it where the loader looks."""

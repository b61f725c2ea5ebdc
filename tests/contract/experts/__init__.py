"""The variants of adapters that experts of each framework would try for speed: a module a framework, a function a variant."""

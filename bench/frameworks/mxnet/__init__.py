"""Apache MXNet 1.9: what its two interfaces, Gluon and Module, share."""

"""MXNet Gluon: MXNet's imperative interface, compiled by hybridize()."""

"""MXNet Module: MXNet's symbolic interface."""

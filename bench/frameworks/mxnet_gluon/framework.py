"""MXNet Gluon: MXNet's switches under this interface's name."""

from bench.frameworks.mxnet.framework import *  # noqa: F403

NAME = "mxnet_gluon"

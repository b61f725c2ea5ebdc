"""MXNet Module: MXNet's switches under this interface's name."""

from bench.frameworks.mxnet import framework as shared

NAME = "mxnet_module"

configure = shared.configure
versions = shared.versions
device = shared.device
settings = shared.settings
synchronize = shared.synchronize
device_peak_bytes = shared.device_peak_bytes
is_out_of_memory = shared.is_out_of_memory

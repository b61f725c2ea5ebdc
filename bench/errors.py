"""The errors of a cell: an exception for each kind of error in the protocol."""


class BenchError(Exception):
    """A sentence for the user: what, where, what to do. `kind` is the protocol's."""

    kind = "bug"


class Unsupported(BenchError):
    """This framework, image or device cannot compute this cell."""

    kind = "unsupported"


class NoDevice(BenchError):
    """CUDA can open no GPU in this process: the state of a machine, which has a remedy, and no property of the framework."""

    kind = "no-device"


class BrokenImportError(BenchError):
    """A file of the bench imports what the bench does not have. The message names the file and the line."""


class DataError(BenchError):
    """A data file is missing or wrong. The message names the file, what is wrong and the fix."""

    kind = "data"


class Overflow(BenchError):
    """A loss scaler skipped steps that had to be measured or checked: they did not train."""

    kind = "framework"


def says_out_of_memory(error):
    """True if an exception's text says that the device's memory is full: few frameworks have a class for that."""
    return "out of memory" in str(error).lower()

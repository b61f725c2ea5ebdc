"""What can go wrong in a cell, each kind of the protocol an exception of its own."""


class BenchError(Exception):
    """A sentence for the user: what, where, what to do. `kind` is the protocol's."""

    kind = "bug"


class Unsupported(BenchError):
    """This framework, image or device cannot do what was asked."""

    kind = "unsupported"


class DataError(BenchError):
    """A data file is missing or wrong. The message names the file, what is wrong and the fix."""

    kind = "data"


class Overflow(BenchError):
    """A loss scaler skipped steps that were to be measured or checked: what would be told is not training."""

    kind = "framework"

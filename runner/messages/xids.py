"""The Xid errors of NVIDIA's driver, in words."""

from __future__ import annotations

from collections.abc import Sequence

# The Xid errors that one meets, after NVIDIA's list of them.
_XIDS = {
    13: (
        "a fault in a kernel's memory access or instructions",
        "most often the program's; try the image on another GPU",
    ),
    31: ("a program touched memory that is not its own", "most often the program's; try the image on another GPU"),
    43: ("a program's fault stopped its channel", "most often the program's"),
    45: ("the driver ended a program's work after another error", "look at the Xid before it"),
    48: ("two bits of memory failed at once", "reset the GPU; retire it when it comes again"),
    63: ("a row of memory was remapped", "reset the GPU when nothing runs on it"),
    64: ("a row of memory could not be remapped", "reset the GPU; return it when it comes again"),
    74: ("an error on an NVLink", "look at the bridge or switch, and `nvidia-smi nvlink -e`"),
    79: ("the GPU has fallen off the bus", "restart the machine; when it comes again: power supply, riser, heat"),
    94: ("an error of memory that stayed within one program", "start the program again"),
    95: ("an error of memory that may have reached every program", "reset the GPU"),
    119: ("the GPU's own processor (GSP) does not answer", "a newer driver; restart the machine"),
    120: ("the GPU's own processor (GSP) failed", "a newer driver; restart the machine"),
    121: (
        "an error on the link between CPU and GPU (C2C) was corrected",
        "when it comes often, have the board looked at",
    ),
    140: ("an error of memory that could not be corrected", "reset the GPU; when it comes again, return it"),
    143: ("the GPU could not be started", "reset the GPU, or restart the machine; when it comes again, return it"),
    # NVLink 5, by its units: the catalog's 144 to 150.
    **dict.fromkeys(
        range(144, 151),
        ("an error on an NVLink", "look at the bridge or switch, and `nvidia-smi nvlink -e`; reset the GPUs"),
    ),
    154: ("the driver says what the GPU needs to recover", "`nvidia-smi -q` shows it: a reset, a restart, or none"),
}


def xid(number: int) -> tuple[str, str]:
    """(what an Xid means, what to do)."""
    return _XIDS.get(number, ("an error of the GPU or its driver", "NVIDIA's list of Xid errors tells more"))


def xids(reported: Sequence[tuple[str, int]]) -> str:
    """The driver's reports on a cell's boards, as a clause: (board, Xid)."""
    each = ", ".join(f"Xid {number} ({xid(number)[0]})" for _, number in dict.fromkeys(reported))
    return f"the NVIDIA driver reported {each}"

"""A network's parameters from a file of the user's: safetensors, or NumPy's npz, with the names that the workload gives them.

Files that hold pickled code (.pth) are not read; `safetensors.torch.save_file(state_dict, path)` makes one that is.
"""

import json
import os
import struct

import numpy as np

from bench.errors import DataError

SUFFIXES = (".safetensors", ".npz")
# the header of a network of thousands of tensors is about 1 MB
_MAX_HEADER = 64 * 1024 * 1024
_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
# Files of other programs. Some of them would run code when they are read.
OTHERS = (".pth", ".pt", ".bin", ".ckpt", ".h5", ".keras")


def find(folder, workload):
    """The weight file of a workload in the user's data folder, or None: <workload>.safetensors or <workload>.npz.

    Raises DataError where there are both, or a file of that name that is not read.
    """
    if folder is None:
        return None
    paths = [os.path.join(folder, workload + suffix) for suffix in SUFFIXES]
    present = [path for path in paths if os.path.isfile(path)]
    if len(present) > 1:
        raise DataError("%s and %s: one weight file is enough; remove one" % tuple(present))
    unread = next(
        (name for name in (workload + suffix for suffix in OTHERS) if os.path.isfile(os.path.join(folder, name))), None
    )
    if unread and not present:
        message = "%s is not read: make %s of it (safetensors.torch.save_file(state_dict, path)), or remove it"
        raise DataError(message % (os.path.join(folder, unread), workload + SUFFIXES[0]))
    return present[0] if present else None


def read(path, specifications):
    """name -> C-contiguous float32 array in the order of `specifications`; what the file holds beside them is left out.

    Raises DataError, naming the file, the tensor and the fix.
    """
    held = _safetensors(path) if path.endswith(".safetensors") else _npz(path)
    parameters = {}
    for spec in specifications:
        if spec.name not in held:
            message = "%s: %s: missing; the file must hold %d tensors%s"
            raise DataError(message % (path, spec.name, len(specifications), _similar(spec.name, held)))
        value = held[spec.name]
        if value.shape != spec.shape or value.dtype.kind != "f" or not np.all(np.isfinite(value)):
            message = "%s: %s: it is %s %s, and must be finite floats of shape %s; export the network again"
            raise DataError(message % (path, spec.name, value.dtype, value.shape, spec.shape))
        parameters[spec.name] = np.ascontiguousarray(value, dtype=np.float32)
    return parameters


def _similar(name, held):
    """A clause with the name that a tensor may have in a file, or with some of the names that are there."""
    longer = sorted(other for other in held if other.endswith("." + name))
    if longer:
        return "; %s is there: take the prefix off all names" % longer[0][:80]
    return "; it holds %s" % (", ".join(sorted(other[:80] for other in held)[:3]) or "no tensor of floats")


def _npz(path):
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # a damaged zip raises exceptions of many types
        raise DataError("%s: is no readable npz (%s); write it again with numpy.savez" % (path, error))


def _safetensors(path):
    """The float tensors of a safetensors file: a length, a JSON header, raw little-endian values."""
    try:
        with open(path, "rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            if size > _MAX_HEADER:
                raise ValueError("its header is said to have %d bytes" % size)
            header = json.loads(file.read(size).decode("utf-8"))
            values = file.read()
        arrays = {}
        for name, entry in header.items():
            if name != "__metadata__" and entry["dtype"] in _DTYPES:
                begin, end = entry["data_offsets"]
                flat = np.frombuffer(values[begin:end], dtype=_DTYPES[entry["dtype"]])
                if entry["dtype"] == "BF16":
                    # The upper half of a float32.
                    flat = (flat.astype("<u4") << 16).view("<f4")
                arrays[name] = flat.reshape([int(n) for n in entry["shape"]])
        return arrays
    except (IOError, OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, struct.error) as error:
        raise DataError("%s: is no readable safetensors file (%s); write it again" % (path, error))

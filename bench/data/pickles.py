"""Read the pickles that data sets come in, and nothing else: a pickle may otherwise run any code.

The classes that a NumPy array names in a pickle are replaced by our own, which only hold and check values; every other
name is refused. So nothing of the pickle's choosing is ever imported or called.

The unpickler makes a table as long as the number of an entry says, and a bytearray as long as its head says: 12 bytes would fill any
memory. So the operations are looked through before it starts. They are only those that a data file needs, as pickletools lists them.
"""

import io
import pickle
import re

import numpy as np


class Refused(ValueError):
    """The pickle holds something that a data file has no need of."""


class _Dtype(object):
    """Stands for numpy.dtype: "u1" and its like, or "O"."""

    def __init__(self, name, *_):
        self.name = _text(name)
        self.order = "|"

    def __setstate__(self, state):
        self.order = _text(state[1])

    def numpy(self):
        if self.name[:1] not in ("u", "i", "b"):
            raise Refused("an array of type %r" % self.name)
        return np.dtype((self.order if self.order in "<>" else "") + self.name)


class _Array(object):
    """Stands for numpy.ndarray while it is unpickled; `value` is an array of integers, or a list of objects."""

    value = None

    def __setstate__(self, state):
        _, shape, dtype, fortran, content = state
        if not isinstance(dtype, _Dtype) or fortran:
            raise Refused("an array that is not in C order")
        if dtype.name.startswith("O"):
            if not isinstance(content, list) or len(shape) != 1 or len(content) != shape[0]:
                raise Refused("an array of objects that is not a plain list")
            self.value = content
        else:
            content = content.encode("latin-1") if isinstance(content, str) else content
            self.value = np.frombuffer(content, dtype.numpy()).reshape(shape)


def _text(value):
    return value.decode("latin-1") if isinstance(value, bytes) else value


def _new_array(_kind, _shape, _type):
    return _Array()


def _latin1(text, encoding):
    """The form of bytes in protocol 2 of Python 3: codecs.encode(text, "latin1")."""
    if _text(encoding) != "latin1":
        raise Refused("text in the encoding %r" % (encoding,))
    return text.encode("latin-1")


_KNOWN = {
    ("numpy.core.multiarray", "_reconstruct"): _new_array,
    ("numpy._core.multiarray", "_reconstruct"): _new_array,
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _latin1,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module, name):
        try:
            return _KNOWN[module, name]
        except KeyError:
            raise Refused("the name %s.%s" % (module, name))


# Operations with an argument of 1 or 2 bytes, without one (but STOP), and with one of 4 or 8. A match has an end, since it takes memory.
_SHORT = re.compile(rb"(?:[Khq\x80].|M..|[]()}Naeltdsub0R\x85-\x89\x93\x94]|[Jj].{4}|[G\x95].{8}){1,1000}", re.DOTALL)
# Of texts and long integers: how many bytes their length has. Of operations whose argument is text: how many lines it has.
_COUNTED = {b"U": 1, b"C": 1, b"\x8c": 1, b"\x8a": 1, b"T": 4, b"B": 4, b"X": 4, b"\x8b": 4, b"\x8d": 8, b"\x8e": 8}
_LINES = {b"I": 1, b"L": 1, b"F": 1, b"S": 1, b"V": 1, b"g": 1, b"p": 1, b"c": 2}


def _look_through(data):
    """Raise Refused where a pickle holds other operations, or says that its table is longer than its bytes can fill."""
    at = 0
    while data[at : at + 1] != b".":
        short = _SHORT.match(data, at)
        if short:
            at = short.end()
            continue
        operation, end = data[at : at + 1], at + 1
        if operation in _COUNTED:
            end += _COUNTED[operation]
            end += int.from_bytes(data[at + 1 : end], "little")
        elif operation in _LINES:
            for _ in range(_LINES[operation]):
                end = data.find(b"\n", end) + 1 or len(data) + 1
        elif operation == b"r":
            end += 4
        else:
            raise Refused("the operation %r" % operation if operation else "a damaged pickle (it is cut short)")
        if operation in b"pr":
            number = data[at + 1 : end]
            entry = int.from_bytes(number, "little") if operation == b"r" else int(number)
            # Whatever is kept in the table takes two bytes or more.
            if entry > at // 2:
                raise Refused("the entry %d of a table that has %d at most" % (entry, at // 2))
        at = end


def loads(data):
    """The value in a pickle (bytes): dict, list, bytes, str, int; arrays as NumPy arrays, object arrays as lists.

    Raises Refused for anything else, and for a pickle that is cut short or damaged.
    """
    try:
        _look_through(data)
        return _plain(_Unpickler(io.BytesIO(data), encoding="bytes").load())
    except Refused:
        raise
    except Exception as error:  # the unpickler raises nearly anything on damaged input
        raise Refused("a damaged pickle (%s: %s)" % (type(error).__name__, error))


def _plain(value):
    if isinstance(value, _Array):
        return value.value
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return value


def python2_batch(label, labels, data, names):
    """A CIFAR-10 batch as Python 2 wrote the official ones (protocol 2). labels: uint8, data: uint8 (N, 3072)."""
    rows, columns = data.shape
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n" + b"K\x00\x85" + _string(b"b") + b"tR"
        + b"(K\x01" + _integer(rows) + _integer(columns) + b"\x86"
        + b"cnumpy\ndtype\n(" + _string(b"u1") + b"K\x00K\x01tR(K\x03" + _string(b"|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        + b"\x89" + _string(np.ascontiguousarray(data).tobytes()) + b"tb"
    )  # fmt: skip
    return (
        b"\x80\x02}(" + _string(b"batch_label") + _string(label)
        + _string(b"labels") + _list(_integer(int(v)) for v in labels)
        + _string(b"data") + array
        + _string(b"filenames") + _list(_string(n) for n in names) + b"u."
    )  # fmt: skip


def _string(value):
    if len(value) < 256:
        return b"U" + bytes(bytearray([len(value)])) + value
    return b"T" + int(len(value)).to_bytes(4, "little") + value


def _integer(value):
    return b"K" + bytes(bytearray([value])) if value < 256 else b"J" + int(value).to_bytes(4, "little")


def _list(items):
    return b"](" + b"".join(items) + b"e"

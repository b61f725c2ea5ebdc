"""Read the pickles that data sets come in, and nothing else: a pickle may otherwise run any code.

The classes that a NumPy array names in a pickle are replaced by our own, which only hold and check values; every other
name is refused. So nothing of the pickle's choosing is ever imported or called.

A small pickle can still fill the memory. The files are vouched for by a digest before they are read (bench/data/files.py), so only their
own list could let one in.
"""

import io
import pickle

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


def loads(data):
    """The value in a pickle (bytes): dict, list, bytes, str, int; arrays as NumPy arrays, object arrays as lists.

    Raises Refused for anything else, and for a pickle that is cut short or damaged.
    """
    try:
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

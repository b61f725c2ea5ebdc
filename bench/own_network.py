"""A person's own network: one Python file for a framework, which the bench measures and proves as it does its own.

The file has ITEMS, how many items a step takes; FRAMEWORK, the framework's name here; `batch(random)`, which draws a batch as NumPy arrays
of so many rows; and a class Network. Network(setup) builds the network and its optimiser by a bench.contract.Setup, and its `step(*batch)`
takes a step of the optimiser and returns the loss. PRECISIONS names what else than fp32 it computes by setup.precision. DROPOUT = True
says that its steps draw random numbers, which it leaves out where setup.training is False; "always", that it cannot.

Two frameworks begin from the same parameters where both files have `read()`, which returns name -> NumPy array, and `load(values)`.

The file runs in the cell and nowhere else: the host reads its constants without running it (runner/catalog/own_networks.py).
"""

import contextlib
import hashlib
import importlib
import importlib.util
import linecache
import math
import os
import traceback

import numpy as np

from bench import contract, rules
from bench.errors import BenchError, DataError, Unsupported

# Batches that are drawn before anything is measured, and taken in turn.
POOL = 8
# Layers that a sentence names.
MOST_LAYERS = 4


class NetworkError(BenchError):
    """A person's own network failed. The message quotes the line of its file."""

    kind = "framework"


def path_of(folder, framework):
    """The file of a network for a framework, in the folder that holds nothing else: its only one, or the one with the framework's name."""
    files = sorted(name for name in os.listdir(folder) if name.endswith(".py"))
    own = framework + ".py"
    if own not in files and len(files) != 1:
        raise Unsupported("the network has no file for %s: it has %s" % (framework, ", ".join(files) or "none"))
    return os.path.join(folder, own if own in files else files[0])


def load(folder, framework):
    """The module of a network's file. Raises DataError, Unsupported and NetworkError."""
    path = path_of(folder, framework)
    spec = importlib.util.spec_from_file_location("own_network", path)
    module = importlib.util.module_from_spec(spec)
    with quoting(path):
        try:
            spec.loader.exec_module(module)
        except ImportError as error:
            raise Unsupported("%s: this image lacks what the file imports: %s" % (_where(path, error), error))
    items, name = getattr(module, "ITEMS", None), os.path.basename(path)
    if not isinstance(items, int) or isinstance(items, bool) or items < 1:
        raise DataError("%s: ITEMS is %r; write how many items a step takes, like ITEMS = 32" % (name, items))
    for what, kind in (("batch", "a function"), ("Network", "a class")):
        if not callable(getattr(module, what, None)):
            raise DataError("%s: it has no %s named %s" % (name, kind, what))
    return module


def state_of(framework):
    """The module that reads and sets all that training changes in a network of this framework. Raises Unsupported."""
    module = rules.adapter_module(framework, "own")
    if module is None:
        raise Unsupported("own networks are not proved in %s yet" % framework)
    return importlib.import_module(module)


def draw(module, seed):
    """POOL batches as tuples of NumPy arrays. Raises DataError where they are not of ITEMS rows, or not all alike."""
    name, random, batches = os.path.basename(module.__file__), np.random.RandomState(seed), []
    for _ in range(POOL):
        with quoting(module.__file__):
            drawn = module.batch(random)
        batch = drawn if isinstance(drawn, tuple) else (drawn,)
        if not batch:
            raise DataError("%s: batch() returned no array; return NumPy arrays of ITEMS rows" % name)
        for array in batch:
            if not isinstance(array, np.ndarray) or not array.ndim:
                raise DataError("%s: batch() returned %s; return NumPy arrays" % (name, type(array).__name__))
            if len(array) != module.ITEMS:
                raise DataError("%s: batch() has %d rows and ITEMS says %d" % (name, len(array), module.ITEMS))
        if batches and _forms(batch) != _forms(batches[0]):
            raise DataError(
                "%s: batch() has the shapes %s, and %s before: batches of one form are compared"
                % (name, _forms(batch), _forms(batches[0]))
            )
        batches.append(batch)
    with quoting(module.__file__):
        again = module.batch(np.random.RandomState(seed))
    pairs = zip(again if isinstance(again, tuple) else (again,), batches[0])
    if not all(one.tobytes() == other.tobytes() for one, other in pairs):
        raise DataError(
            "%s: batch() draws otherwise from the same numbers: draw all that it draws from its argument" % name
        )
    return batches


def _forms(batch):
    return ", ".join("%s%s" % (array.dtype, list(array.shape)) for array in batch)


class Measured(contract._Adapter):
    """A Network as the cell runs it: its errors name the line of the file, its losses are finite numbers."""

    def __init__(self, module, setup):
        self._path = module.__file__
        self._state = state_of(module.FRAMEWORK)
        with quoting(self._path):
            self.network = module.Network(setup)

    def step(self, *batch):
        """Take a step. Returns the loss without waiting for it."""
        with quoting(self._path):
            return self._state.started(self.network, self.network.step(*batch))

    def value(self, loss):
        """The result of `step`, as a float. Raises NetworkError where it is not finite."""
        name = os.path.basename(self._path)
        try:
            value = float(loss)
        except (TypeError, ValueError):
            of = " of shape %s" % (tuple(loss.shape),) if hasattr(loss, "shape") else ""
            raise NetworkError(
                "%s: step() returned %s%s; return the loss, one number" % (name, type(loss).__name__, of)
            )
        if not math.isfinite(value):
            raise NetworkError("%s: step() returned a loss of %s: training diverged" % (name, value))
        return value

    def values(self):
        """Name -> all that training changes, as NumPy arrays; floats as float64. Raises DataError where there is nothing."""
        found = self._state.values(self.network)
        if not any(name.startswith("parameter/") for name in found):
            raise DataError(
                "%s: the Network has no attribute that holds parameters: %s"
                % (os.path.basename(self._path), self._state.HOLDS)
            )
        return found

    def in_eval(self):
        """The layers that are in eval() mode and compute otherwise there, in words; empty where none is, or without such a mode."""
        layers = self._state.in_eval(self.network)
        named = ", ".join(layers[:MOST_LAYERS])
        return named + (" and %d more" % (len(layers) - MOST_LAYERS) if len(layers) > MOST_LAYERS else "")

    def restore(self, values):
        """Set all that `values` told. Raises DataError where a step made an attribute that was not there."""
        try:
            self._state.restore(self.network, values)
        except KeyError as error:
            raise DataError(
                "%s: %s appears with the first step: set it in Network(), so that a step can be taken again"
                % (os.path.basename(self._path), error)
            )

    def begin(self, seed):
        """Set parameters that are drawn by their names, their shapes and a seed alone. Returns all that `values` tells then."""
        before = self.read()
        wanted = dict(before, **drawn(before, seed, self._exchanges()))
        if not self._exchanges():
            self.restore(dict(self.values(), **wanted))
            return self.values()
        with quoting(self._path):
            self.network.load(dict(wanted))
        for name, value in self.read().items():
            if np.linalg.norm(value - wanted[name]) > 0.01 * np.linalg.norm(wanted[name]):
                raise DataError("%s: load() did not set %s to what it was given" % (os.path.basename(self._path), name))
        return self.values()

    def read(self):
        """Name -> parameter in float64, as the file names them; else by the attributes that hold them. Raises DataError."""
        if not self._exchanges():
            return {name: value for name, value in self.values().items() if name.startswith("parameter/")}
        with quoting(self._path):
            found = self.network.read()
        if not (isinstance(found, dict) and found and all(isinstance(each, np.ndarray) for each in found.values())):
            raise DataError("%s: read() must return a dict of NumPy arrays" % os.path.basename(self._path))
        return {str(name): np.array(value, dtype="float64") for name, value in found.items()}

    def _exchanges(self):
        return callable(getattr(self.network, "read", None)) and callable(getattr(self.network, "load", None))


def drawn(values, seed, every):
    """Name -> parameters drawn by their names and shapes alone, so that every image has the same.

    One that is all alike stays, as a scale of ones does; but with `every`, since frameworks begin otherwise: a vector is then drawn around
    a half, which serves a scale and a bias.
    """
    found = {}
    for name, value in values.items():
        if value.size and (every or np.any(value != value.flat[0])):
            digest = hashlib.sha256(("%d %s" % (seed, name)).encode()).hexdigest()
            wide = value.size // value.shape[0] if value.ndim > 1 else value.size
            normal = np.random.RandomState(int(digest[:8], 16)).standard_normal(value.shape) / np.sqrt(max(1, wide))
            around = 0.5 if every and value.ndim < 2 else 0.0
            found[name] = (around + normal).astype("float32").astype("float64")
    return found


@contextlib.contextmanager
def quoting(path):
    """An error in a network's file becomes a NetworkError that quotes the last line of the file that was run. Full memory stays itself."""
    try:
        yield
    except BenchError:
        raise
    except MemoryError as error:
        raise MemoryError("%s: %s" % (_where(path, error), _said(error)))
    except (Exception, SystemExit) as error:
        said = _said(error)
        if "out of memory" in said.lower() or "RESOURCE_EXHAUSTED" in said:
            raise
        raise NetworkError("%s: %s: %s" % (_where(path, error), type(error).__name__, said))


def _said(error):
    """The words of an error of a person's own, which may raise themselves."""
    try:
        return str(error)
    except Exception as fault:
        return "(its own words raise %s)" % type(fault).__name__


def _where(path, error):
    """The file, and of an error the number and the text of the last of its lines that were run."""
    lines = [frame[1] for frame in traceback.extract_tb(error.__traceback__) if frame[0] == path]
    line = lines[-1] if lines else getattr(error, "lineno", None)
    name = os.path.basename(path)
    return "%s, line %d: `%s`" % (name, line, linecache.getline(path, line).strip()[:200]) if line else name

"""Mistakes as text: an adapter whose source has some passages in place of others. tests/contract/mutants/edits.py is the table of them."""

import collections
import contextlib
import importlib
import importlib.abc
import importlib.util
import sys
import tempfile
from pathlib import Path

from bench import contract, rules

# file: below bench/frameworks. old, new: a passage that is there exactly once and what takes its place, or as many of both.
# steps, not_caught, slow: as of registry.Mutant.
Edit = collections.namedtuple("Edit", "framework workloads family name sentence file old new steps not_caught slow")
Edit.__new__.__defaults__ = (0, "", True)


# The changed sources. TensorFlow's AutoGraph reads the source of a function again, from the file that its code names.
_FOLDER = tempfile.TemporaryDirectory()


class StaleEditError(Exception):
    """The passage of an edit is not in its file exactly once: the adapter was changed, and the edit must be, too."""


def passages(edit):
    """[(old, new)]."""
    return [(edit.old, edit.new)] if isinstance(edit.old, str) else list(zip(edit.old, edit.new, strict=True))


def changed(edit, folder=rules.FRAMEWORKS):
    """The source of the edit's file with the other passages. Raises StaleEditError."""
    path = Path(folder) / edit.file
    source = path.read_text(encoding="utf-8")
    for old, new in passages(edit):
        count = source.count(old)
        if count != 1 or old == new:
            raise StaleEditError(
                "%s of %s: its old text is %d times in %s, and must be there once and differ from its new text: %r"
                % (edit.name, edit.framework, count, path, old)
            )
    for old, new in passages(edit):
        source = source.replace(old, new)
    return source


class _Source(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from a changed source; all others are found as usual."""

    def __init__(self, name, source, path):
        self.name, self.source, self.path = name, source, path

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_loader(name, self, origin=self.path) if name == self.name else None

    def exec_module(self, module):
        module.__file__ = self.path
        file = Path(_FOLDER.name) / ("%d_%s" % (len(list(Path(_FOLDER.name).iterdir())), Path(self.path).name))
        file.write_text(self.source, encoding="utf-8")
        exec(compile(self.source, str(file), "exec"), module.__dict__)


def _of(packages):
    """The modules of these packages, but their framework.py, which has the framework's state and no mistake."""
    return [
        name for name in sys.modules if name.rpartition(".")[0] in packages and name.rpartition(".")[2] != "framework"
    ]


@contextlib.contextmanager
def _anew(packages, finder):
    """The adapters and helpers of these packages are imported anew inside, and are the real ones again after it."""
    for package in packages:
        importlib.import_module(package)
    real = {name: sys.modules[name] for name in _of(packages)}

    def remove():
        for name in _of(packages):
            del sys.modules[name]
            package, _, end = name.rpartition(".")
            vars(sys.modules[package]).pop(end, None)

    remove()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        remove()
        for name, module in real.items():
            sys.modules[name] = module
            package, _, end = name.rpartition(".")
            setattr(sys.modules[package], end, module)


def adapter_of(edit, workload):
    """The adapter class of a workload with the edit. Raises StaleEditError."""
    folder, _, file = edit.file.partition("/")
    module = "bench.frameworks.%s.%s" % (folder, file[: -len(".py")])
    packages = {"bench.frameworks." + name for name in (edit.framework, folder)}
    with _anew(packages, _Source(module, changed(edit), str(Path(rules.FRAMEWORKS) / edit.file))):
        real = contract.load_adapter(edit.framework, workload)
        if module not in sys.modules:
            raise StaleEditError("%s: the adapter of %s does not import %s" % (edit.name, workload, edit.file))
    return type(edit.name, (real,), {"__doc__": edit.sentence, "__module__": real.__module__})

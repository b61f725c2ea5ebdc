"""The identity of a cell's code: the sources that it runs, and no more.

A cell runs the bench's core, the files of its workload, and the folder of its framework with the folders that this one uses.
Which folders and workloads a file uses is read from its imports, so nobody keeps a list. An edit of another framework, or of
another workload, leaves a cell's digest as it is. Standard library only: the host reads the same functions as the image.
"""

import ast
import contextlib
import functools
import hashlib
import io
import json
import os
import re
from collections import namedtuple

FOLDER = os.path.dirname(os.path.abspath(__file__))

# In R and Julia: `import("bench.frameworks.keras._adam")` through Python, `include("../julia/bench.jl")` by path.
_NAMED = re.compile(r"bench\.(frameworks|workloads)\.(\w+)(?:\.(\w+))?")
_INCLUDED = re.compile(r"\.\./(\w+)/(\w+)")

_OURS = re.compile(r"bench\.(frameworks|workloads)\.\w")

# Files that a file imports when it is loaded, and those that its functions import.
_Used = namedtuple("_Used", "at_once later")


def core_sha256(workload, folder=FOLDER):
    """sha256 (hex) of what every framework shares in a cell of this workload: the bench's core and the workload's files."""
    return digest(_sources(folder).shared_by_all(workload), folder)


def code_sha256(framework, workload, folder=FOLDER):
    """sha256 (hex) of all that a cell of this framework and workload runs of the bench."""
    return digest(code_files(framework, workload, folder), folder)


def code_digests(pairs, folder=FOLDER):
    """(framework, workload) -> its code_sha256, for each of these pairs."""
    sources = _sources(folder)
    return {pair: digest(sources.of_cell(*pair), folder) for pair in pairs}


def code_files(framework, workload, folder=FOLDER):
    """The files that a cell may read or load, as sorted paths relative to `folder` with slashes."""
    return _sources(folder).of_cell(framework, workload)


def adapter_files(framework, workload, folder=FOLDER):
    """The files of an adapter, as `code_files`: itself, what it imports, and the workload's own. No other workload's adapter."""
    return _sources(folder).of_adapter(framework, workload)


def image_files(frameworks, folder=FOLDER):
    """The files of an image that serves these frameworks: the core, every workload, their folders and those that these use."""
    sources = _sources(folder)
    wanted = sources.folders(list(frameworks))
    return sorted(path for name in (None, *wanted) for path in sources.of_framework(name))


def folders(frameworks, folder=FOLDER):
    """The folders below bench/frameworks that these frameworks use, their own included; sorted."""
    return sorted(_sources(folder).folders(list(frameworks)))


def source_digest(folder=FOLDER):
    """sha256 (hex) of all sources of the bench below `folder`: a fact that is recorded, and nobody's identity."""
    return digest(_sources(folder).files, folder)


def digest(paths, folder=FOLDER):
    """sha256 (hex) over the names and contents of files, which are relative to `folder`."""
    whole = hashlib.sha256()
    for path in sorted(paths):
        whole.update(
            ("%s %s\n" % (path, _once(_sha256, os.path.join(folder, path)))).encode("utf-8", "surrogateescape")
        )
    return whole.hexdigest()


# folder -> its _Sources, within `unchanging`.
_still = {}


@contextlib.contextmanager
def unchanging(folder=FOLDER):
    """Within the block nobody edits these files: they are listed once, and not for each question."""
    _still[folder] = _Sources(folder)
    try:
        yield
    finally:
        del _still[folder]


def _sources(folder):
    return _still.get(folder) or _Sources(folder)


# The result of reading each unchanged file: a catalog of images asks for the same files once an image.
_known = {}


def _once(read, path):
    """read(path), once for each state of the file."""
    state = os.stat(path)
    key = read, path, state.st_mtime_ns, state.st_size, state.st_ino
    if key not in _known:
        _known[key] = read(path)
    return _known[key]


def _sha256(path):
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()


def _framework_of(path):
    """The folder below frameworks/ that a file lies in; None for a file of the core or of a workload."""
    parts = path.split("/")
    return parts[1] if parts[0] == "frameworks" and len(parts) > 2 else None


def _stem(path):
    return path.rpartition("/")[2].split(".")[0]


def _is_workload(path):
    return path.startswith("workloads/") and path != "workloads/__init__.py"


def _remembered(method):
    """A method of _Sources that answers each question once: the files of a workload are the same for each framework."""

    @functools.wraps(method)
    def answer(self, question):
        key = method.__name__, tuple(question) if isinstance(question, list) else question
        if key not in self._answers:
            self._answers[key] = method(self, question)
        return self._answers[key]

    return answer


class _Sources(object):
    """The files of a bench, and which of them each one names in its imports."""

    def __init__(self, folder):
        self.folder = folder
        self._answers = {}
        self.files = list(_walk(folder))
        self._present = set(self.files)
        self._used = {}
        self._own = {}
        for path in self.files:
            self._own.setdefault(_framework_of(path), []).append(path)

    def of_framework(self, name):
        """The files of a framework's own folder; of None, the core's and the workloads'."""
        return self._own.get(name, [])

    def of_cell(self, framework, workload):
        """All files of a cell, sorted."""
        folders = self.folders([framework])
        files = {path for name in folders for path in self.of_framework(name)}
        files.update(self.shared_by_all(workload))
        files.update(self.reached(self.entries(framework, workload), folders))
        return sorted(files)

    def of_adapter(self, framework, workload):
        """The files of an adapter, sorted. Of a folder with another language's files all: their loaders are not read here."""
        folders = self.folders([framework])
        files = self.entries(framework, workload) + self.of_workload(workload)
        reached = self.reached(files, folders)
        for own in map(self.of_framework, folders):
            if not all(path.endswith((".py", ".json")) for path in own):
                files += own
        return sorted(reached.union(files))

    @_remembered
    def shared_by_all(self, workload):
        """The core, the files of a workload, and of other workloads the modules that one of these imports."""
        core = [path for path in self.of_framework(None) if not _is_workload(path)]
        own = self.of_workload(workload)
        return sorted(set(core + own) | self.reached(core + own))

    @_remembered
    def of_workload(self, workload):
        """The declaration, specification, references and curves of a workload, and of the one that it shares them with."""
        shared = self._declared("workloads/%s.json" % workload).get("computes")
        names = {workload, shared if isinstance(shared, str) else workload}
        stems = names | {name.replace("-", "_") for name in names}
        return [path for path in self.of_framework(None) if _is_workload(path) and _stem(path) in stems]

    @_remembered
    def folders(self, frameworks):
        """The frameworks' folders and those that these use, as far as they exist.

        A folder may serve several backends and import each inside the functions that are for it: of these only the one that
        framework.json names is used.
        """
        reached, waiting = set(), list(frameworks)
        while waiting:
            name = waiting.pop()
            own = self.of_framework(name)
            if name in reached or not own:
                continue
            reached.add(name)
            declared = self._declared("frameworks/%s/framework.json" % name)
            waiting += [shared for shared in map(declared.get, ("adapters", "backend")) if isinstance(shared, str)]
            waiting += [_framework_of(used) for path in own for used in self.used(path).at_once if _framework_of(used)]
        return reached

    def entries(self, framework, workload):
        """The files that a cell loads by name: the workload's adapter, and what is no adapter of another workload."""
        workloads = filter(_is_workload, self.of_framework(None))
        others = set(map(_stem, workloads)) - set(map(_stem, self.of_workload(workload)))
        files = [path for name in sorted(self.folders([framework])) for path in self.of_framework(name)]
        return [path for path in files if _stem(path) not in others and not _stem(path).startswith("_")]

    def reached(self, paths, within=()):
        """The workloads' files that these files import, and those of the frameworks `within`, directly or through one another."""
        reached, waiting = set(), list(paths)
        while waiting:
            used = self.used(waiting.pop())
            for path in used.at_once + used.later:
                if path not in reached and (_is_workload(path) or _framework_of(path) in within):
                    reached.add(path)
                    waiting.append(path)
        return reached

    def used(self, path):
        """The files below frameworks/ and workloads/ that a file names in its imports."""
        if path not in self._used:
            at_once, later = _once(_imports, os.path.join(self.folder, path))
            self._used[path] = _Used(self._modules(at_once), self._modules(later))
        return self._used[path]

    def _modules(self, names):
        """The files of these names, each a tuple such as ("frameworks", "torch", "_mixed")."""
        used = []
        for name in names:
            stem = "/".join(part for part in name if part)
            used += [stem + end for end in (".py", ".R", ".jl", "/__init__.py") if stem + end in self._present]
        return used

    def _declared(self, path):
        """A declaration as a dict; empty where there is none, or where its own reader will say what is wrong with it."""
        if path not in self._present:
            return {}
        with io.open(os.path.join(self.folder, path), encoding="utf-8") as file:
            try:
                declared = json.load(file)
            except (ValueError, RecursionError):
                return {}
        return declared if isinstance(declared, dict) else {}


def _imports(path):
    """Imports of a file below bench.frameworks and bench.workloads, as tuples such as ("frameworks", "torch", "_mixed"): (when it is
    loaded, inside its functions).
    """
    suffix = os.path.splitext(path)[1]
    if suffix not in (".py", ".R", ".jl"):
        return (), ()
    with io.open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    if suffix != ".py":
        return _NAMED.findall(text) + [("frameworks",) + match for match in _INCLUDED.findall(text)], ()
    if "bench.frameworks" not in text and "bench.workloads" not in text:
        return (), ()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):  # the cell that loads it will say what is wrong
        return (), ()
    statements = list(_statements(tree))
    return tuple(_imported(node for node, inside in statements if inside is later) for later in (False, True))


def _statements(block, inside=False):
    """Each statement below a node, with whether it lies inside a function. An import is a statement: expressions are not searched."""
    for part in ("body", "handlers", "orelse", "finalbody"):
        for node in getattr(block, part, ()):
            yield node, inside
            for below in _statements(node, inside or isinstance(node, ast.FunctionDef)):
                yield below


def _imported(nodes):
    """The names below bench.frameworks and bench.workloads that these nodes of a Python file import."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.update([node.module], ("%s.%s" % (node.module, alias.name) for alias in node.names))
    return sorted(tuple(name.split(".")[1:]) for name in names if _OURS.match(name))


def _walk(folder):
    """The bench's files below `folder`, as paths relative to it with slashes: sources and references, no caches."""
    for path, names, files in os.walk(folder):
        names[:] = sorted(name for name in names if name != "__pycache__" and not name.startswith("."))
        below = os.path.relpath(path, folder).replace(os.sep, "/")
        for name in sorted(files):
            if not name.endswith((".pyc", ".pyo", ".part", "~")) and not name.startswith("."):
                yield name if below == "." else "%s/%s" % (below, name)

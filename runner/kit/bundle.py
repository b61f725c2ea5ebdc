"""Makes the kit: `python -m runner.kit.bundle FOLDER`. What it copies is read from the imports of runner.kit.measure."""

from __future__ import annotations

import ast
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from runner import trees
from runner.errors import UserError
from runner.paths import BENCH, PROJECT

MOST_BYTES = 50 * 2**20

# The program on the GPU machine, by name; its script is written as kit.py.
ENTRY = "runner.kit.measure"
SCRIPT = "kit.py"

# The names of what build wrote. A later build removes these files only.
LIST = "kit-files.json"

# psutil is compiled for one processor, for every Python from 3.6 on. Where it cannot be loaded, only the cells' CPU time is missing.
NEEDS = ("nvidia-ml-py", "platformdirs", "psutil")
_NEEDED_MODULES = {"pynvml", "platformdirs", "psutil"}

README = """Measures a GPU with the frameworks of a Python, without a network and without an installation.

    python3 kit.py                          # 9 minutes on the first free GPU; run it again, and it goes on
    python3 kit.py --python /path/to/python # the interpreter that has the frameworks
    python3 kit.py --help

--frameworks, --workloads, --precision and --repeats say what is measured: the first start decides. --minutes is the time of one start,
and --out another folder for the results: a measurement with other options needs one. Exit code 0: every step ended well or was refused
as not supported; 1: some failed, or the time did not suffice (run it again); 2: nothing could be measured.

It writes into gpu-kit-results, or the folder of --out, and nowhere else. Take gpu-kit-results.tar.gz of it to a machine
that has the project, and say `runner import gpu-kit-results.tar.gz` there.
"""


class KitError(UserError):
    """The kit cannot be made; the message says why."""


def build(folder: Path) -> int:
    """Write the kit into a folder, in the place of an older one; returns its bytes. Raises KitError."""
    _check_target(folder)
    with tempfile.TemporaryDirectory(prefix="gpu-kit-") as made:
        size = _write(Path(made))
        if size > MOST_BYTES:
            raise KitError(f"the kit has {size} bytes, and it may have {MOST_BYTES}; make what is in it smaller")
        trees.remove(folder)
        folder.mkdir(parents=True)
        # The list comes first: what a build that was killed left is then known as the kit's.
        shutil.copyfile(Path(made) / LIST, folder / LIST)
        shutil.copytree(made, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
    return size


def _check_target(folder: Path) -> None:
    """Raises KitError where something would be lost with the folder, or the folder is none."""
    if folder.is_symlink():
        raise KitError(f"{folder} is a link; name the folder that it points to, or a new one")
    if not folder.exists():
        return
    if not folder.is_dir():
        raise KitError(f"{folder} is a file; name a folder")
    if (folder / "gpu-kit-results").exists():
        raise KitError(f"{folder} has gpu-kit-results of a measurement; move them away, or name a new folder")
    if (folder / SCRIPT).is_file() and not (folder / LIST).is_file():
        raise KitError(f"{folder} has no {LIST}: an older release made this kit; remove it, or name a new folder")
    ours = _listed(folder)
    for path in sorted(trees.files(folder)):
        name = path.relative_to(folder).as_posix()
        compiled = path.suffix == ".pyc" and path.parent.name == "__pycache__"
        if path.is_symlink() or not (name in ours or compiled):
            raise KitError(f"{folder} has {name}, which no kit put there; move it away, or name a new folder")


def _listed(folder: Path) -> set[str]:
    """The list of files of an earlier build."""
    try:
        names = json.loads((folder / LIST).read_bytes())
    except (OSError, ValueError, RecursionError):
        return set()
    return {str(name) for name in names} if isinstance(names, list) else set()


def _write(folder: Path) -> int:
    """Write the files of the kit into an empty folder, with their list; returns their bytes."""
    shutil.copytree(
        BENCH, folder / "bench", ignore=shutil.ignore_patterns("__pycache__", "*.pyc", "*.part", "*~", ".*")
    )
    for source in sorted(sources()):
        _copy(source, folder / source.relative_to(PROJECT))
    for name in NEEDS:
        _copy_distribution(name, folder / "needs")
    shutil.copyfile(Path(__file__).with_name("start.py"), folder / SCRIPT)
    shutil.copyfile(PROJECT / "LICENSE", folder / "LICENSE")
    (folder / "README.txt").write_text(README, encoding="utf-8")
    names = [path.relative_to(folder).as_posix() for path in trees.files(folder)]
    (folder / LIST).write_text(json.dumps(sorted([*names, LIST]), indent=0), encoding="utf-8")
    return trees.size(folder).said


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    # A package's own __init__ may import what the kit does not have.
    while (target := target.parent).name and target.parent.name and not (target / "bench").is_dir():
        (target / "__init__.py").write_text('"""A part of the project, for the kit."""\n', encoding="utf-8")


def sources() -> set[Path]:
    """The files of runner that the entry imports, directly or through others. Raises KitError for an import that no kit has."""
    reached: set[Path] = set()
    waiting = [ENTRY]
    while waiting:
        path = _file_of(waiting.pop())
        if path is None or path in reached:
            continue
        reached.add(path)
        waiting += list(_imports(path))
    # It is started by its path, and nobody imports it.
    return reached | {PROJECT / "runner/engines/process/keeper.py"}


def _imports(path: Path) -> Iterator[str]:
    """The modules of runner that are imported when a file is loaded. The kit does not call what imports more, as it admits nothing."""
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        for_types = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        if not for_types and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            waiting += ast.iter_child_nodes(node)
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        for name in _names(node):
            top = name.partition(".")[0]
            if top == "runner":
                yield name
            elif top != "bench" and top not in sys.stdlib_module_names and top not in _NEEDED_MODULES:
                raise KitError(f"{path}:{node.lineno} imports {name}, which a kit does not have; import it elsewhere")


def _names(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The names in an import: modules, and for `from a import b` both a and a.b."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)]


def _file_of(module: str) -> Path | None:
    """The file of a module; None for a package or a name in a module."""
    path = PROJECT.joinpath(*module.split(".")).with_suffix(".py")
    return path if path.is_file() else None


def _copy_distribution(name: str, folder: Path) -> None:
    """Copy an installed package with its licence. Raises KitError."""
    try:
        files = metadata.files(name)
    except metadata.PackageNotFoundError:
        raise KitError(f"{name} is not installed here; run `make gpu-kit`, which installs it") from None
    for file in files or ():
        if ".." not in file.parts and file.suffix != ".pyc" and "tests" not in file.parts:
            target = folder.joinpath(*file.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), target)


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: python -m runner.kit.bundle FOLDER", file=sys.stderr)
        return 2
    folder = Path(sys.argv[1])
    try:
        size = build(folder)
    except UserError as error:
        print(f"gpu-kit: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"gpu-kit: {error.filename or folder}: {error.strerror or error}; name another folder", file=sys.stderr)
        return 2
    print(f"{folder}: {size / 1e6:.1f} MB; copy it to a machine with a GPU, and run python3 kit.py there")
    return 0


if __name__ == "__main__":
    sys.exit(main())

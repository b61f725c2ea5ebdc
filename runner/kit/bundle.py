"""Makes the kit (`runner gpu-kit FOLDER`): it copies what runner.kit.measure loads."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

from runner import paths, trees
from runner.catalog.own_networks import OwnNetwork
from runner.errors import UserError
from runner.kit.steps import NETWORKS

MOST_BYTES = 50 * 2**20

# The program on the GPU machine, by name; its script is written as kit.py.
ENTRY = "runner.kit.measure"
SCRIPT = "kit.py"

# The names of what build wrote. A later build removes these files only.
LIST = "kit-files.json"

# psutil is compiled for one processor, for every Python from 3.6 on. Where it cannot be loaded, only the cells' CPU time is missing.
NEEDS = ("nvidia-ml-py", "platformdirs", "psutil")
_NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.pyc", "*.part", "*~", ".*")

# Prints the files that a module loads from the first of the folders.
_LOADED = """
import importlib, os, sys
entry, made = sys.argv[1:3]
sys.path[:0] = sys.argv[2:]
importlib.import_module(entry)
files = [getattr(module, "__file__", None) or "" for module in sys.modules.values()]
print(*[os.path.relpath(file, made) for file in files if file.startswith(made + os.sep)], sep="\\n")
"""


class KitError(UserError):
    """The kit cannot be made; the message says why."""


def build(folder: Path, networks: Iterable[OwnNetwork] = ()) -> int:
    """Write the kit into a folder, in the place of an older one, with networks of a person's own; returns its bytes. Raises KitError."""
    _check_target(folder)
    with tempfile.TemporaryDirectory(prefix="gpu-kit-") as made:
        size = _write(Path(made), networks)
        if size > MOST_BYTES:
            raise KitError(f"the kit has {size} bytes, and it may have {MOST_BYTES}; make what is in it smaller")
        folder.mkdir(parents=True, exist_ok=True)
        _empty(folder)
        try:
            # The list comes first: what a build that was killed left is then known as the kit's.
            shutil.copyfile(Path(made) / LIST, folder / LIST)
            shutil.copytree(made, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
        except OSError:
            # By a list that a full disk cut short, the next build would know none of the files.
            _empty(folder)
            raise
    return size


def _empty(folder: Path) -> None:
    """Remove what is in a folder. It stays itself: it may be a disk that is mounted there."""
    for path in folder.iterdir():
        trees.remove(path)


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


def _write(folder: Path, networks: Iterable[OwnNetwork]) -> int:
    """Write the files of the kit into an empty folder, with their list; returns their bytes."""
    shutil.copytree(paths.BENCH, folder / "bench", ignore=_NOT_COPIED)
    for name in NEEDS:
        _copy_distribution(name, folder / "needs")
    _copy_loaded(folder)
    shutil.copyfile(Path(__file__).with_name("start.py"), folder / SCRIPT)
    shutil.copyfile(paths.PROJECT / "LICENSE", folder / "LICENSE")
    shutil.copyfile(paths.PROJECT / "docs/gpu-kit.md", folder / "README.md")
    # The planner's facts of a network stand beside its files: the kit cannot read them as the host does.
    told = {
        each.name: {
            "batch": each.batch,
            "precisions": each.precisions,
            "frameworks": [*each.files],
            "files": each.texts,
        }
        for each in networks
    }
    if told:
        (folder / NETWORKS).write_text(json.dumps(told), encoding="utf-8")
    names = [path.relative_to(folder).as_posix() for path in trees.files(folder)]
    (folder / LIST).write_text(json.dumps(sorted([*names, LIST]), indent=0), encoding="utf-8")
    return trees.size(folder).said


def _copy_loaded(folder: Path) -> None:
    """Copy the modules of runner that the entry loads, directly or through others. Raises KitError where it cannot be loaded.

    Its interpreter has the kit's packages only. A function that imports more is not called there, as a kit admits nothing.
    """
    with tempfile.TemporaryDirectory(prefix="gpu-kit-") as made:
        shutil.copytree(paths.PROJECT / "runner", Path(made) / "runner", ignore=_NOT_COPIED)
        # A package's own __init__ may import what the kit does not have.
        for path in trees.files(Path(made)):
            if path.name == "__init__.py":
                path.write_text('"""A part of the project, for the kit."""\n', encoding="utf-8")
        command = [sys.executable, "-I", "-S", "-B", "-c", _LOADED, ENTRY, made, *map(str, (folder, folder / "needs"))]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            lines = ended.stderr.replace(f"{made}/", "").strip().splitlines()
            where = next((line.strip() for line in reversed(lines) if "File" in line), "")
            raise KitError(f"the kit cannot be loaded without packages: {lines[-1]} ({where}); import it elsewhere")
        # The keeper of a cell is started by its path, and nobody imports it.
        for name in (*ended.stdout.splitlines(), "runner/engines/process/keeper.py"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(made) / name, folder / name)


def _copy_distribution(name: str, folder: Path) -> None:
    """Copy an installed package with its licence. Raises KitError."""
    try:
        files = metadata.files(name)
    except metadata.PackageNotFoundError:
        raise KitError(f"{name} is not installed beside the runner; install the runner anew") from None
    for file in files or ():
        if ".." not in file.parts and file.suffix != ".pyc" and "tests" not in file.parts:
            target = folder.joinpath(*file.parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(file.locate()), target)

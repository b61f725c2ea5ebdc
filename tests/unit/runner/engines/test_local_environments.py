"""What cells as processes run in: the interpreters of this machine, environments made of locks, and what the user has installed."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from runner import known_messages
from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import CatalogError, load_catalog
from runner.catalog.workloads import load_workloads
from runner.cli.images.push import remove_environment, stale_environments, trees
from runner.engines.base import EngineError, ReadyImage, Settings
from runner.engines.process import environment_pins, installed, interpreters, venv
from runner.engines.process.host import HostEngine
from runner.engines.process.interpreters import Interpreter, find_interpreter
from runner.engines.process.process import NOT_WALLED_IN
from runner.engines.process.venv import VenvEngine
from runner.plan.plan import Plan, plan
from runner.plan.request import Request
from tests.fixtures.mounts import tmpfs
from tests.fixtures.plans import NO_GPU, with_gpu
from tests.unit.runner.engines.test_local_engines import image


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg" / "dlbench"


# --- interpreters


def test_the_interpreter_that_runs_this_is_found() -> None:
    found = find_interpreter(f"3.{sys.version_info.minor}")
    assert isinstance(found, Interpreter)
    assert found.path.exists()
    # Its own installation, and no virtual environment of it: an environment of an environment has the packages of both.
    asked = subprocess.run(
        [found.path, "-c", "import sys; print(sys.prefix == sys.base_prefix, *sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert asked.stdout.split() == ["True", *map(str, sys.version_info[:2])]


def test_a_python_that_is_not_here_is_told_with_how_to_get_it() -> None:
    found = find_interpreter("3.99")
    assert isinstance(found, str)
    assert "no Python 3.99 was found" in found
    assert "`uv python install 3.99`" in found


def test_a_folder_of_pyenv_that_cannot_be_looked_at_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    # Another user's is an error like this one, but not for root, who runs these tests.
    monkeypatch.setenv("PYENV_ROOT", "/" + "a" * 300)
    find_interpreter.cache_clear()
    assert "no Python 3.97 was found" in str(find_interpreter("3.97"))


def test_an_interpreter_of_pyenv_is_found_and_the_newest_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for patch in ("9", "10"):
        fake = tmp_path / "versions" / f"3.98.{patch}" / "bin" / "python3.98"
        fake.parent.mkdir(parents=True)
        told = {"path": str(fake), "version": f"3.98.{patch}", "bits": 64, "implementation": "cpython",
                "machine": "x86_64", "complete": True}  # fmt: skip
        fake.write_text(f"#!/bin/sh\necho '{json.dumps(told)}'\n")
        fake.chmod(0o755)
    # Where pyenv's shims are on PATH, they come first. Each is a shell script that takes as long as five interpreters.
    shim, started = tmp_path / "shims" / "python3.98", tmp_path / "started"
    shim.parent.mkdir()
    shim.write_text(f"#!/bin/sh\ntouch {started}\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", f"{shim.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    interpreters.find_interpreter.cache_clear()
    assert find_interpreter("3.98") == Interpreter(tmp_path / "versions/3.98.10/bin/python3.98", "3.98.10")
    assert not started.exists()


# --- venv


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Path]:
    """A tiny wheel in a folder that only the site's pip configuration names; returns its locked requirement."""
    import base64
    import hashlib
    import zipfile

    folder = tmp_path / "wheels"
    folder.mkdir()
    path = folder / "tinyframework-1.0-py3-none-any.whl"
    files = {
        "tinyframework.py": b"ANSWER = 42\n",
        "tinyframework-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tinyframework\nVersion: 1.0\n",
        "tinyframework-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(content)}")
        archive.writestr(
            "tinyframework-1.0.dist-info/RECORD", "\n".join([*rows, "tinyframework-1.0.dist-info/RECORD,,\n"])
        )
    config = tmp_path / "pip.conf"
    config.write_text(f"[global]\nno-index = true\nfind-links = {folder}\n")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    return f"tinyframework==1.0 --hash=sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}\n", folder


@pytest.fixture(params=["uv", pytest.param("pip", marks=pytest.mark.slow)])
def installer(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The program that installs: pip does it where there is no uv, and for Pythons that uv does not know."""
    if request.param == "pip":
        monkeypatch.setattr(venv.paths, "find_program", lambda name: None)
    return str(request.param)


def log_of(cache: Path) -> str:
    return (cache / "build-logs" / "tiny-cpu.venv.log").read_text()


def test_a_lock_is_installed_once_as_the_sites_pip_configuration_says(
    tmp_path: Path, wheel: tuple[str, Path], own_cache: Path, installer: str
) -> None:
    tiny, said = image(tmp_path, wheel[0]), []
    engine = VenvEngine()
    assert engine.unfit(tiny) is None
    assert sum(engine.parts(tiny).values()) == tiny.download_bytes
    prepared = engine.prepare(tiny, said.append)
    assert said
    assert sum(engine.parts(tiny).values()) == 0
    python = prepared.command[0]
    script = "import sys, tinyframework; print(tinyframework.ANSWER, sys.prefix != sys.base_prefix)"
    assert subprocess.check_output([python, "-I", "-c", script], text=True).split() == ["42", "True"]
    words = {"uv": " + tinyframework==1.0", "pip": "Successfully installed tinyframework-1.0"}
    assert [name for name in words if words[name] in log_of(own_cache)] == [installer]

    said.clear()
    begin = time.monotonic()
    assert engine.prepare(tiny, said.append) == prepared
    assert time.monotonic() - begin < 5
    assert not said


@pytest.mark.slow
def test_the_indexes_of_the_sites_pip_configuration_are_all_asked_and_the_lock_says_which_file_is_right(
    tmp_path: Path, wheel: tuple[str, Path], own_cache: Path, installer: str
) -> None:
    # The first index has another file of that name, and the second one the right file.
    other, right = tmp_path / "other", tmp_path / "right"
    for index in (other, right):
        folder = index / "tinyframework"
        folder.mkdir(parents=True)
        (file,) = wheel[1].glob("*.whl")
        (folder / file.name).write_bytes(file.read_bytes())
        digest = wheel[0].strip().rpartition(":")[2] if index is right else "0" * 64
        (folder / "index.html").write_text(f'<a href="{file.name}#sha256={digest}">{file.name}</a>')
    Path(os.environ["PIP_CONFIG_FILE"]).write_text(
        f"[global]\nindex-url = file://{other}\nextra-index-url = file://{right}\nfind-links = {tmp_path / 'gone'}\n"
    )
    said: list[str] = []
    VenvEngine().prepare(image(tmp_path, wheel[0]), said.append)
    assert not any("pip tries it" in line for line in said)


@pytest.mark.slow
def test_a_cell_that_writes_into_its_environment_changes_no_other_one(tmp_path: Path, wheel: tuple[str, Path]) -> None:
    first, second = (
        next(Path(python).parent.parent.glob("lib/*/site-packages/tinyframework.py"))
        for lock in (wheel[0], "# again\n" + wheel[0])
        for python in VenvEngine().prepare(image(tmp_path, lock), lambda line: None).command[:1]
    )
    assert first.stat().st_nlink == second.stat().st_nlink == 1
    with first.open("r+") as file:
        file.write("ANSWER = 13\n")
    assert second.read_text() == "ANSWER = 42\n"
    third = VenvEngine().prepare(image(tmp_path, "# anew\n" + wheel[0]), lambda line: None).command[0]
    assert subprocess.check_output([third, "-c", "import tinyframework as t; print(t.ANSWER)"], text=True) == "42\n"


@pytest.mark.slow
def test_the_first_step_of_a_framework_writes_the_bytecode_that_cells_read_and_its_failure_is_told(
    tmp_path: Path, wheel: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    # Cells are started with it.
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(venv, "_FIRST_STEP", ("-c", "import tinyframework, sys; sys.exit('no ' + sys.argv[1])"))
    python = Path(VenvEngine().prepare(image(tmp_path, wheel[0]), said.append).command[0])
    assert said[1:] == ["tiny-cpu: its first step failed (no torch); its cells will tell more"]
    assert list(python.parent.parent.glob("lib/*/site-packages/__pycache__/tinyframework.*.pyc"))


@pytest.mark.slow
def test_what_uv_cannot_install_pip_tries_and_its_words_are_the_errors(
    tmp_path: Path, wheel: tuple[str, Path], own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "uv"
    broken.write_text("#!/bin/sh\necho 'error: a setting that uv does not know'; exit 2\n")
    broken.chmod(0o755)
    monkeypatch.setattr(venv.paths, "find_program", lambda name: str(broken))
    said: list[str] = []
    VenvEngine().prepare(image(tmp_path, wheel[0]), said.append)
    assert "tiny-cpu: uv could not install its lock, so pip tries it" in said
    assert "Successfully installed tinyframework-1.0" in log_of(own_cache)


@pytest.mark.slow
def test_the_words_of_ensurepip_are_kept_where_files_run_out(
    tmp_path: Path, wheel: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = image(tmp_path, wheel[0])
    with tmpfs(tmp_path / "disk", "nr_inodes=200") as disk:
        monkeypatch.setenv("XDG_CACHE_HOME", str(disk))
        with pytest.raises(EngineError, match="its pip could not be installed") as error:
            VenvEngine().prepare(tiny, lambda line: None)
    assert "No space left on device" in str(error.value)


@pytest.mark.slow
def test_an_environment_that_was_left_half_made_is_made_again(tmp_path: Path, wheel: tuple[str, Path]) -> None:
    tiny = image(tmp_path, wheel[0])
    prepared = VenvEngine().prepare(tiny, lambda line: None)
    folder = Path(prepared.command[0]).parent.parent
    (folder / ".complete").unlink()
    next(folder.glob("lib/*/site-packages/tinyframework.py")).unlink()
    assert VenvEngine().prepare(tiny, lambda line: None) == prepared
    assert list(folder.glob("lib/*/site-packages/tinyframework.py"))


@pytest.mark.slow
def test_a_wheel_that_is_not_the_locked_one_is_refused_with_the_logs_last_lines(
    tmp_path: Path, wheel: tuple[str, Path], installer: str
) -> None:
    # As many as a pin has: pip's refusal names each.
    digests = [f"--hash=sha256:{number:064}" for number in range(172)]
    tiny = image(tmp_path, " ".join(["tinyframework==1.0", *digests]) + "\n")
    with pytest.raises(EngineError, match="^tiny-cpu: for tinyframework 1.0 the package index served another") as error:
        VenvEngine().prepare(tiny, lambda line: None)
    assert "HASHES" in str(error.value)
    assert "do not change the lock" in str(known_messages.hint("engine", str(error.value)))
    assert "the whole log: " in str(error.value)
    assert sum(VenvEngine().parts(tiny).values()) == tiny.download_bytes, "a failed environment must not count as made"


def test_a_lock_with_a_line_that_is_no_pin_is_not_given_to_pip(tmp_path: Path) -> None:
    for line in ("six==1.17.0", "--index-url https://index.invalid/simple", "six==1.17.0 --hash=md5:0"):
        with pytest.raises(CatalogError, match=f"{line!r} is not `name==version --hash") as error:
            VenvEngine().prepare(image(tmp_path, f"numpy==1.0 --hash=sha256:{'0' * 64}\n{line}\n"), print)
        assert "somebody changed a lock by hand" in str(known_messages.hint("engine", str(error.value)))


@pytest.mark.slow
def test_a_refused_wheel_is_not_looked_for_in_the_further_index(
    tmp_path: Path, wheel: tuple[str, Path], installer: str
) -> None:
    lock = "tinyframework==1.0 --hash=sha256:" + "0" * 64 + "\n"
    said: list[str] = []
    with pytest.raises(EngineError, match="HASHES"):
        VenvEngine().prepare(image(tmp_path, lock, extra_index="https://index.invalid/simple"), said.append)
    assert not any("index.invalid" in line for line in said)


@pytest.mark.slow
def test_what_the_site_does_not_have_is_looked_for_in_the_images_further_index(
    tmp_path: Path, wheel: tuple[str, Path], own_cache: Path, installer: str
) -> None:
    lock = "absentframework==1.0 --hash=sha256:" + "0" * 64 + "\n"
    tiny, said = image(tmp_path, lock, extra_index="https://index.invalid/simple"), []
    with pytest.raises(EngineError, match="No matching distribution"):
        VenvEngine().prepare(tiny, said.append)
    assert "tiny-cpu: once more with https://index.invalid/simple" in said


@pytest.mark.slow
def test_a_site_whose_pip_installs_for_the_user_still_gets_its_environment(
    tmp_path: Path, wheel: tuple[str, Path], installer: str
) -> None:
    with Path(os.environ["PIP_CONFIG_FILE"]).open("a") as config:
        config.write(f"[install]\nuser = true\ntarget = {tmp_path / 'mine'}\nconstraint = {tmp_path / 'gone.txt'}\n")
    prepared = VenvEngine().prepare(image(tmp_path, wheel[0]), lambda line: None)
    subprocess.run([prepared.command[0], "-I", "-c", "import tinyframework"], check=True)
    assert not (tmp_path / "mine").exists()


@pytest.mark.slow
@pytest.mark.parametrize("change", ["gone", "another version", "no code"])
def test_an_environment_that_is_not_what_its_lock_says_is_made_again(
    tmp_path: Path, wheel: tuple[str, Path], change: str
) -> None:
    tiny, said = image(tmp_path, wheel[0]), []
    prepared = VenvEngine().prepare(tiny, lambda line: None)
    (told,) = Path(prepared.command[0]).parent.parent.glob("lib/*/site-packages/tinyframework-1.0.dist-info")
    if change == "no code":
        (told.parent / "tinyframework.py").unlink()
    else:
        told.rename(
            told.with_name("tinyframework-2.0.dist-info" if change == "another version" else "other-1.0.dist-info")
        )
    assert VenvEngine().prepare(tiny, said.append) == prepared
    why = {
        "gone": "tinyframework 1 is not in it",
        "another version": "its tinyframework is 2, and the lock has 1",
        "no code": "its tinyframework lacks tinyframework.py",
    }
    assert f"({why[change]}): it is made again" in said[0]
    assert told.exists()


def test_every_file_that_was_installed_and_is_gone_is_found_and_nothing_else(tmp_path: Path) -> None:
    site = tmp_path / "lib" / "python3.11" / "site-packages"
    files = ["deep/__init__.py", "deep/inside/linalg.py", "deep/table.bin", '"deep/odd, name.py"', "../../../bin/deep"]
    (site / "deep-1.0.dist-info").mkdir(parents=True)
    record = [*files, "deep/__pycache__/linalg.cpython-311.pyc", "deep-1.0.dist-info/RECORD"]
    (site / "deep-1.0.dist-info" / "RECORD").write_text("".join(f"{name},,\n" for name in record))
    for name in files:
        path = site / name.strip('"')
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert environment_pins.lost(tmp_path) == []
    for name in ("deep/inside/linalg.py", "deep/odd, name.py"):
        (site / name).unlink()
    assert environment_pins.lost(tmp_path) == ["deep/inside/linalg.py", "deep/odd, name.py"]


@pytest.mark.slow
def test_an_environment_that_lost_a_file_within_a_package_is_made_again(
    tmp_path: Path, wheel: tuple[str, Path]
) -> None:
    tiny = image(tmp_path, wheel[0])
    prepared = VenvEngine().prepare(tiny, lambda line: None)
    assert VenvEngine().lost_files(prepared) is None
    (licence,) = Path(prepared.command[0]).parent.parent.glob("lib/*/site-packages/tinyframework-1.0.dist-info/WHEEL")
    licence.unlink()
    assert "has lost 1 file, such as tinyframework-1.0.dist-info/WHEEL: it is made again" in str(
        VenvEngine().lost_files(prepared)
    )
    assert VenvEngine().prepare(tiny, lambda line: None) == prepared
    assert licence.exists()


@pytest.mark.slow
def test_another_lock_gets_another_environment(tmp_path: Path, wheel: tuple[str, Path]) -> None:
    first = VenvEngine().prepare(image(tmp_path, wheel[0]), lambda line: None)
    second = VenvEngine().prepare(image(tmp_path, "# again\n" + wheel[0]), lambda line: None)
    assert first.digest != second.digest
    assert first.command != second.command


@pytest.mark.slow
def test_two_runners_that_want_one_environment_make_it_once(
    tmp_path: Path, wheel: tuple[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny, made = image(tmp_path, wheel[0]), []
    make = venv._make
    monkeypatch.setattr(venv, "_make", lambda *arguments: (made.append(1), make(*arguments)))
    results: list[ReadyImage] = []
    threads = [
        threading.Thread(target=lambda: results.append(VenvEngine().prepare(tiny, lambda line: None))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(results) == 2
    assert results[0] == results[1]


def test_a_folder_of_the_cache_that_goes_meanwhile_ends_no_pruning(
    own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A runner beside it probes the cache by a folder of a moment, and a listing that goes into each met it."""
    moment = own_cache / ".dlbench-moment"
    moment.mkdir(parents=True)
    (own_cache / "venvs" / "torch-2.13.0-cpu-0123456789ab").mkdir(parents=True)
    listed = os.scandir

    def gone_after_the_listing(path: Any) -> Any:
        if not isinstance(path, str | os.PathLike) or Path(path) != own_cache or not moment.exists():
            return listed(path)
        with listed(path) as found:
            entries = list(found)
        moment.rmdir()
        return contextlib.nullcontext(entries)

    monkeypatch.setattr(os, "scandir", gone_after_the_listing)
    assert [folder.name for folder, _ in stale_environments([load_catalog()["torch-2.13.0-cpu"]])] == [
        "torch-2.13.0-cpu-0123456789ab"
    ]


@pytest.mark.slow
def test_environments_of_older_locks_are_removed_but_not_one_that_is_used(
    tmp_path: Path, wheel: tuple[str, Path], own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny = image(tmp_path, wheel[0])
    venvs = own_cache / "venvs"
    old, used, made, another = (
        venvs / name
        for name in ("tiny-cpu-0123456789ab", "tiny-cpu-1123456789ab", "tiny-cpu-2123456789ab", "tiny-cpu-big")
    )
    current = Path(VenvEngine().prepare(tiny, lambda line: None).command[0]).parents[1]
    for folder in (old, used, made, another):
        (folder / "bin").mkdir(parents=True)
        (folder / "bin" / "python").symlink_to(sys.executable)
    (old / "wheel").write_bytes(b"0" * 10**8)
    assert [(folder, what.rpartition(" of ")[2]) for folder, what in stale_environments([tiny])] == [
        (old, "another lock or Python, 0.1 GB"),
        (used, "another lock or Python, 0.0 GB"),
        (made, "another lock or Python, 0.0 GB"),
    ]
    assert list(stale_environments([image(tmp_path, wheel[0], python="3.99")])) == []
    process = subprocess.Popen([used / "bin" / "python", "-c", "input()"], stdin=subprocess.PIPE)
    try:
        with venv.alone(made, lambda line: None):
            kept = {folder: remove_environment(folder) for folder, _ in stale_environments([tiny])}
    finally:
        process.communicate(b"\n")
    assert kept == {old: None, used: f"process {process.pid} runs in it", made: "a runner is making it"}
    assert {path for path in venvs.iterdir() if path.is_dir()} == {current, used, made, another}
    (used / venv.COMPLETE).touch()
    with monkeypatch.context() as broken:
        broken.setattr(trees, "remove", lambda folder: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            remove_environment(used)
    assert not (used / venv.COMPLETE).exists()  # what is half removed is made anew, and not used
    assert remove_environment(used) is None


def test_what_a_try_left_is_pruned(tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left = own_cache / "tried" / "tiny-cpu-0123456789ab"
    (left / "bin").mkdir(parents=True)
    (left / venv.COMPLETE_TRIAL).touch()
    (own_cache / "tried" / "tiny-cpu-big").mkdir()
    ((folder, what),) = stale_environments([image(tmp_path)])
    assert folder == left
    assert "as `runner images try` left it" in what
    with monkeypatch.context() as broken:
        broken.setattr(trees, "remove", lambda folder: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            remove_environment(left)
    assert not (left / venv.COMPLETE_TRIAL).exists()
    assert remove_environment(left) is None
    assert not left.exists()


def test_an_image_whose_python_is_not_here_is_unfit(tmp_path: Path) -> None:
    reason = VenvEngine().unfit(image(tmp_path, python="3.99"))
    assert reason is not None
    assert "no Python 3.99" in reason


# --- host


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[dict[str, Any]]]:
    """What the interpreter says it has, without importing a framework."""
    found: list[dict[str, Any]] = []
    ask = installed._ask
    monkeypatch.setattr(
        installed, "_ask", lambda python, words, kind: found if "bench" in words else ask(python, words, kind)
    )
    return iter([found])


def test_each_framework_of_the_interpreter_is_an_image(listed: Iterator[list[dict[str, Any]]]) -> None:
    next(listed).extend([{"framework": "torch", "version": "2.13.0+cpu", "device_kinds": ["cpu"]},
                         {"framework": "jax", "version": "0.12.0", "device_kinds": ["cpu", "cuda"]}])  # fmt: skip
    engine = HostEngine()
    assert engine.unavailable() is None
    images = engine.images(gpus=True)
    assert {name: each.accelerator for name, each in images.items()} == {
        "host-torch-2.13.0": "cpu",
        "host-jax-0.12.0": "cuda",
    }
    assert {each.accelerator for each in engine.images(gpus=False).values()} == {"cpu"}
    assert engine.notes(gpus=True) == (
        NOT_WALLED_IN,
        f"torch: on the CPU, since {sys.executable} has no build with CUDA",
    )
    assert engine.notes(gpus=False) == (NOT_WALLED_IN,)
    assert all(len(each.lock_sha256) == 64 for each in images.values())
    assert engine.unfit(images["host-jax-0.12.0"]) is None
    assert engine.prepare(images["host-jax-0.12.0"], lambda line: None).command == (sys.executable, "-m", "bench")


@pytest.mark.parametrize(
    ("framework", "version", "kinds", "precisions"),
    [
        # The machine that has an H200: PyTorch 2.11 and JAX 0.11, between two of the catalog's images each.
        ("torch", "2.11.0+cu130", ["cpu", "cuda"], {"fp32", "tf32", "fp64", "fp16", "bf16", "fp8"}),
        ("jax", "0.11.2", ["cpu", "cuda"], {"fp32", "tf32", "fp64", "fp16", "bf16", "fp8"}),
        ("torch", "1.13.1", ["cpu", "cuda"], {"fp32", "tf32", "fp64", "fp16", "bf16"}),
        ("tensorflow_v1", "1.15.0", ["cpu", "cuda"], {"fp32", "fp64", "fp16"}),
        ("torch", "99.0", ["cpu", "cuda"], {"fp32", "tf32", "fp64", "fp16", "bf16", "fp8"}),
        ("torch", "my own build", ["cpu", "cuda"], {"fp32", "tf32", "fp64", "fp16", "bf16", "fp8"}),
        ("torch", "2.13.0+cpu", ["cpu"], {"fp32", "fp64", "fp16", "bf16"}),
        ("onnxruntime", "1.30.0", ["cpu"], {"fp32"}),
        ("tinygrad", "0.14.0", ["cpu", "cuda"], {"fp32"}),
    ],
)
def test_an_installed_framework_offers_what_the_catalogs_image_of_it_does(
    listed: Iterator[list[dict[str, Any]]], framework: str, version: str, kinds: list[str], precisions: set[str]
) -> None:
    next(listed).append({"framework": framework, "version": version, "device_kinds": kinds})
    (found,) = HostEngine().images(gpus=True).values()
    assert set(found.precisions) == precisions
    assert found.accelerator == kinds[-1]


@pytest.mark.parametrize("kinds", [None, "cuda", {"cuda": 1}, []])
def test_a_framework_that_does_not_tell_its_devices_as_a_list_is_planned_for_the_cpu(
    listed: Iterator[list[dict[str, Any]]], kinds: object
) -> None:
    next(listed).append({"framework": "torch", "version": "2.13.0", "device_kinds": kinds})
    assert {image.accelerator for image in HostEngine().images(gpus=True).values()} == {"cpu"}


def test_mixed_precision_and_half_types_are_planned_for_the_interpreter_on_a_gpu(
    listed: Iterator[list[dict[str, Any]]],
) -> None:
    next(listed).append({"framework": "torch", "version": "2.11.0+cu130", "device_kinds": ["cpu", "cuda"]})
    images = list(HostEngine().images(gpus=True).values())
    asked = ("fp32", "tf32", "amp-fp16", "amp-bf16", "fp64", "fp16", "bf16", "fp8")
    request = Request(precisions=asked, workloads=("cnn-cifar10", "ops"))
    found = plan(request, images, load_workloads(), load_frameworks(), with_gpu(), lambda _: None)
    of = {name: {cell.precision for cell in found.cells if cell.workload == name} for name in ("cnn-cifar10", "ops")}
    assert of["cnn-cifar10"] == {"fp32", "tf32", "amp-fp16", "amp-bf16"}
    assert of["ops"] == {"fp32", "tf32", "fp64", "fp16", "bf16", "fp8"}


def test_what_a_release_does_not_compute_on_a_cpu_is_left_out_of_the_interpreter_that_has_it(
    listed: Iterator[list[dict[str, Any]]],
) -> None:
    installed_here = next(listed)
    request = Request(precisions=("fp32", "amp-fp16"), workloads=("cnn-cifar10",))

    def planned_of(version: str) -> Plan:
        installed_here[:] = [{"framework": "tensorflow", "version": version, "device_kinds": ["cpu"]}]
        images = list(HostEngine().images(gpus=False).values())
        return plan(request, images, load_workloads(), load_frameworks(), NO_GPU, lambda _: None)

    old, new = planned_of("2.10.0"), planned_of("2.21.0")
    assert {cell.precision for cell in old.cells} == {"fp32"}
    assert [skip.reason for skip in old.skips] == [
        "host-tensorflow-2.10.0 does not compute amp-fp16 on a CPU: "
        + load_catalog()["tensorflow-2.10.1-cu112"].not_on_cpu["amp-fp16"]
    ]
    assert {cell.precision for cell in new.cells} == {"fp32", "amp-fp16"}


def test_an_interpreter_without_frameworks_or_that_is_none_is_told_in_a_sentence(
    listed: Iterator[list[dict[str, Any]]], tmp_path: Path
) -> None:
    assert "has none of the frameworks" in str(HostEngine().unavailable())
    with pytest.raises(EngineError, match="did not say what it has"):
        _ = HostEngine(Settings(python=tmp_path / "python")).packages


def test_a_framework_whose_companion_is_missing_is_named_with_it_and_not_called_absent(
    tmp_path: Path,
) -> None:
    """An interpreter has JAX and Keras. It lacks flax, which JAX's adapters use; TensorFlow is a backend, and no companion."""
    environment = tmp_path / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "numpy.pth").write_text(str(Path(np.__file__).parents[1]))
    for name in ("jax", "keras"):
        (packages / name).mkdir()
        (packages / name / "__init__.py").write_text("__version__ = '1.0'\n")
    python = environment / "bin" / "python"
    host = HostEngine(Settings(python=str(python)))
    said = str(host.unavailable())
    assert said.startswith(f"{python} has jax and keras_jax and lacks flax, which their cells need: install that there")
    assert "none of the frameworks" not in said
    assert "lacks tensorflow" not in said
    assert "lacks torch" not in said
    assert any("lacks flax" in note for note in host.notes(gpus=False))


def test_what_pip_prints_goes_to_the_log_and_its_end_into_an_error(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    steps = venv._Steps("x-cpu", log)
    words = "print('Collecting numpy'); raise SystemExit(3)"
    with pytest.raises(EngineError, match=r"(?s)x-cpu: it failed.*Collecting numpy.*the whole log: "):
        steps.must_succeed([sys.executable, "-c", words], "it failed")
    assert log.read_text() == "Collecting numpy\n"


def test_making_an_environment_is_one_line_for_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    torch = load_catalog()["torch-2.13.0-cpu"]
    monkeypatch.setattr(venv._Steps, "succeeds", lambda *_, **__: print("Collecting numpy") is None)
    interpreter = find_interpreter(f"3.{sys.version_info.minor}")
    assert isinstance(interpreter, Interpreter)
    (tmp_path / "made").mkdir()
    monkeypatch.setattr(venv.trees, "remove", lambda *_: None)
    monkeypatch.setattr(venv.environment_pins, "difference", lambda *_: None)
    venv._make(torch, interpreter, tmp_path / "made", said.append)
    pins = sum("==" in line and line[0] != " " for line in torch.lock_path.read_text().splitlines() if line)
    assert said == [f"torch-2.13.0-cpu: installing {pins} packages, {torch.download_gb:g} GB where none are cached"]

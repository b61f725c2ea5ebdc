"""The libraries of GPU images find each other: by the record of what their wheels ask for, and by the loader itself."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runner.catalog.images import LINKS, Image, load_catalog
from runner.cli.main import app
from runner.images import lock_facts, locking
from runner.images.libraries import base_names
from runner.images.libraries import library_record as record
from runner.images.libraries.resolution import Missing, installed_path, resolve
from runner.images.libraries.shared_objects import SharedObject, read
from runner.images.libraries.wheel_files import shared_objects
from tests.stand_ins.fleet import compiler

GPU_IMAGES = [image for image in load_catalog().values() if image.accelerator == "cuda"]


@pytest.mark.parametrize("image", GPU_IMAGES, ids=lambda image: image.name)
def test_every_library_of_a_gpu_image_finds_what_it_asks_for(image: Image) -> None:
    found = record.resolution(image, record.read_record())
    assert found is not None, f"its lock was not read; run `runner images libraries {image.name}`"
    assert found.missing == ()
    assert record.cell_text(image) == record.column(image, found, record.read_record()), (
        f"the record is old; run `runner images libraries {image.name}`"
    )
    # An image without CUDA in its wheels has it in its base.
    assert found.asked
    assert bool(found.of_the_base) is (image.cuda_from == "base")


def test_without_the_links_cudnn_does_not_find_nvrtc() -> None:
    lacking = {
        image.name
        for image in GPU_IMAGES
        for at in (record.resolution(image, record.read_record(), links=False) or pytest.fail(image.name)).missing
        if "/cudnn/" in at.library and at.name.startswith("libnvrtc.so")
    }
    # None of these loads NVRTC before cuDNN opens it.
    assert lacking >= {"tensorflow-2.15.1-cu122", "tensorflow-2.18.1-cu125", "jax-0.4.30-cu123"}
    assert lacking >= {"onnxruntime-1.18.1-cu118", "onnxruntime-training-1.19.2-cu118"}


@pytest.mark.parametrize(
    ("name", "unseen"),
    [
        ("mxnet-1.9.1-cu112", []),
        ("tensorflow-2.10.1-cu112", []),
        ("tensorflow-1.15.5-cu100", ["libcufft", "libcusolver"]),
        ("chainer-7.8.1-cu110", ["cublas", "cudart", "cufft", "curand", "cusolver", "cusparse", "nvToolsExt", "nvrtc"]),
    ],
)
def test_the_names_that_a_base_image_has_to_have_are_those_of_its_release_of_cuda(name: str, unseen: list[str]) -> None:
    image = load_catalog()[name]
    known = record.read_record()
    files = {path.rpartition("/")[2] for wheel in known.wheels.values() for path in wheel.libraries}
    names = (record.resolution(image, known) or pytest.fail(name)).of_the_base
    found = base_names.of_the_base(image, names, files)
    assert [each.partition(".")[0] for each in found.unseen] == [f"lib{each.removeprefix('lib')}" for each in unseen]
    assert sorted([*found.unseen, *(each for _, part in found.seen for each in part)]) == list(names)


def test_the_libraries_of_cuda_10_are_those_in_the_wheel_of_cntk() -> None:
    known = record.read_record()
    (wheel,) = known.images["cntk-2.7-cu100"].wheels
    files = {path.rpartition("/")[2] for path in known.wheels[wheel].libraries}
    image = load_catalog()["cntk-2.7-cu100"]
    assert image.cuda == "10.0.130"
    seen = base_names.of_the_base(image, files, files).seen
    assert seen[0][1] == tuple(sorted(file for file in files if file.startswith("libcu") and "cudnn" not in file))


def test_the_page_tells_a_lock_that_was_not_read() -> None:
    image = next(image for image in GPU_IMAGES if image.source_builds).model_copy(update={"source_builds": ()})
    other = image.model_copy(update={"debian": {"g++": "", "another": ""}})
    assert record.resolution(other, record.read_record()) is None
    assert record.cell_text(other) == "**not read with this lock and these scripts**"


def _library(**facts: tuple[str, ...]) -> SharedObject:
    empty: dict[str, tuple[str, ...]] = {"needed": (), "folders": (), "named": ()}
    return SharedObject(soname="", **{**empty, **facts})


def test_names_are_looked_up_as_the_loader_does() -> None:
    libraries = {
        "nvidia/cublas/lib/libcublas.so.12": _library(needed=("libcublasLt.so.12",), folders=("$ORIGIN",)),
        "nvidia/cublas/lib/libcublasLt.so.12": _library(),
        # It has no folder where the loader looks, not even its own.
        "nvidia/cusolver/lib/libcusolver.so.11": _library(needed=("libcublas.so.12", "libcuda.so.1", "libm.so.6")),
        "nvidia/cudnn/lib/libcudnn.so.8": _library(
            named=("libnvrtc.so.%d", "libnvrtc.so"), folders=("${ORIGIN}/../../nvrtc/lib",)
        ),
        "nvidia/cuda_nvrtc/lib/libnvrtc.so.12": _library(),
    }
    found = resolve(libraries, (), (), cuda_in_base=False)
    solver = Missing("nvidia/cusolver/lib/libcusolver.so.11", "libcublas.so.12", False)
    assert found.asked == 3
    assert found.missing == (Missing("nvidia/cudnn/lib/libcudnn.so.8", "libnvrtc.so.%d", True), solver)
    assert resolve(libraries, ("libnvrtc",), (), cuda_in_base=False).missing == (solver,)
    # A link beside cuDNN is of no use to a library that does not look beside itself.
    assert len(resolve(libraries, (), (LINKS,), cuda_in_base=False).missing) == 2
    assert installed_path("a-1.data/purelib/nvidia/x.so") == "nvidia/x.so"


@pytest.mark.skipif(compiler() is None, reason="no C compiler is here")
def test_the_links_let_the_loader_find_nvrtc_from_the_folders_that_cudnn_names(tmp_path: Path) -> None:
    wheel_of = tmp_path / "lib" / "python" / "site-packages" / "nvidia"
    opener, nvrtc = (wheel_of / name for name in ("cudnn/lib/libcudnn_ops_infer.so.8", "cuda_nvrtc/lib/libnvrtc.so.12"))
    source = tmp_path / "opener.c"
    source.write_text('#include <dlfcn.h>\nint opens(void) { return dlopen("libnvrtc.so.12", RTLD_NOW) != 0; }\n')
    (tmp_path / "empty.c").write_text("int nothing;\n")
    search = "-Wl,--enable-new-dtags,-rpath,$ORIGIN:$ORIGIN/../../cublas/lib:$ORIGIN/../../nvrtc/lib"
    for code, library, options in (
        (source, opener, [search]),
        (tmp_path / "empty.c", nvrtc, ["-Wl,-soname,libnvrtc.so.12"]),
    ):
        library.parent.mkdir(parents=True)
        command = [str(compiler()), "-shared", "-fPIC", "-o", str(library), str(code), *options]
        subprocess.run(command, check=True)
    facts = read(opener.read_bytes())
    assert facts is not None
    assert facts.folders == ("$ORIGIN", "$ORIGIN/../../cublas/lib", "$ORIGIN/../../nvrtc/lib")
    assert "libnvrtc.so.12" in facts.named
    assert "libc.so.6" in facts.needed
    wheel = tmp_path / "nvidia.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as file:
        file.write(opener, "nvidia/cudnn/lib/libcudnn_ops_infer.so.8")
        file.writestr("nvidia/cudnn/lib/libcudnn.so", "INPUT(libcudnn.so.8)")
    assert dict(shared_objects(wheel.as_uri())) == {
        "nvidia/cudnn/lib/libcudnn_ops_infer.so.8": facts,
        "nvidia/cudnn/lib/libcudnn.so": None,
    }
    assert not _opens(opener)
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "python").write_text(f'#!/bin/sh\necho "{wheel_of.parent}"\n')
    (programs / "python").chmod(0o755)
    for _ in range(2):
        subprocess.run(["sh", str(LINKS)], env={"PATH": f"{programs}:/usr/bin:/bin"}, check=True)
    assert _opens(opener)


def _opens(library: Path) -> bool:
    """True if the library's dlopen finds NVRTC: in a process of its own, since the loader keeps what it opened."""
    code = f"import ctypes, sys; sys.exit(ctypes.CDLL({str(library)!r}).opens())"
    return subprocess.run([sys.executable, "-c", code], check=False).returncode == 1


class _Ranges(http.server.SimpleHTTPRequestHandler):
    """An index that gives files by ranges. `cuts_off`: it ends in the middle of an answer from a file's beginning."""

    cuts_off = False

    def do_GET(self) -> None:
        data = Path(self.translate_path(self.path)).read_bytes()
        first, last = map(int, re.findall(r"\d+", self.headers["Range"]))
        self.send_response(206)
        self.send_header("Content-Length", str(last + 1 - first))
        self.end_headers()
        self.wfile.write(data[first : last + 1][: 10 if self.cuts_off and first == 0 else None])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def wheel_url(tmp_path: Path) -> Iterator[str]:
    """The address of a wheel with one library, which needs NVRTC and finds none."""
    folder = tmp_path / "index"
    folder.mkdir()
    with zipfile.ZipFile(folder / "nvidia.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        wheel.write(_wants_nvrtc(tmp_path), "nvidia/cudnn/lib/libcudnn.so.9")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: _Ranges(*a, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/nvidia.whl"
    server.shutdown()
    server.server_close()


def _wants_nvrtc(folder: Path) -> Path:
    source, nvrtc, library = folder / "empty.c", folder / "libnvrtc.so", folder / "wants.so"
    source.write_text("int nothing;\n")
    command = [str(compiler()), "-shared", "-fPIC"]
    subprocess.run([*command, "-Wl,-soname,libnvrtc.so.12", "-o", str(nvrtc), str(source)], check=True)
    subprocess.run([*command, "-Wl,--no-as-needed", "-o", str(library), str(source), str(nvrtc)], check=True)
    return library


@pytest.mark.skipif(compiler() is None, reason="no C compiler is here")
def test_the_command_reads_what_is_new_and_says_what_is_not_found(
    wheel_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = next(image for image in GPU_IMAGES if image.name.startswith("jax-"))
    monkeypatch.setattr(record, "RECORD", tmp_path / "libraries.json")
    shutil.copy(record.PROJECT / "docs" / "libraries.json", record.RECORD)
    record.read_record.cache_clear()
    result = CliRunner().invoke(app, ["images", "libraries", image.name])
    assert result.exit_code == 0, result.output
    asked = record.resolution(image, record.read_record())
    assert asked is not None
    assert result.stdout == f"{image.name}: {asked.asked} of {asked.asked}\n"

    record.RECORD.unlink()
    record.read_record.cache_clear()
    monkeypatch.setattr(locking, "pylock", lambda *_: "")
    file = lock_facts.LockedFile(wheel_url, None, "0" * 64)
    monkeypatch.setattr(lock_facts, "files", lambda *_: {"nvidia-cudnn-cu12==9.1.0": file})
    monkeypatch.setattr(_Ranges, "cuts_off", True)
    result = CliRunner().invoke(app, ["images", "libraries", image.name])
    assert result.exit_code == 2
    assert "a wheel could not be read" in result.stderr
    assert "was cut off" in result.stderr
    assert not record.RECORD.exists()

    monkeypatch.setattr(_Ranges, "cuts_off", False)
    result = CliRunner().invoke(app, ["images", "libraries", image.name])
    assert result.exit_code == 1, result.output
    assert result.stdout == f"{image.name}: 0 of 1; **libcudnn.so.9 does not find libnvrtc.so.12**\n"
    assert json.loads(record.RECORD.read_text())["images"][image.name]["files"] == 1
    record.read_record.cache_clear()

"""The libraries in wheels: the links by which NVIDIA's find each other, and the machines that a wheel is for."""

from __future__ import annotations

import http.server
import re
import struct
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner.catalog.images import LINKS
from runner.images.locking import machines
from tests.stand_ins.fleet import compiler

X86_64, AARCH64 = 62, 183


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
def index(tmp_path: Path) -> Iterator[str]:
    """The address of an index with a wheel for two machines, in which a linker's script has the name of a library."""
    with zipfile.ZipFile(tmp_path / "both.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, machine in (("a/libx.so.9", X86_64), ("b/liby.so", AARCH64)):
            wheel.writestr(name, b"\x7fELF" + bytes(14) + struct.pack("<H", machine))
        wheel.writestr("a/libx.so", "INPUT(libx.so.9)")
        wheel.writestr("a/notes.txt", b"\x7fELF" + bytes(14) + struct.pack("<H", 3))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: _Ranges(*a, directory=str(tmp_path)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_the_machines_of_a_wheel_are_read_from_its_index_and_from_a_folder(index: str, tmp_path: Path) -> None:
    assert machines(f"{index}/both.whl") == {X86_64, AARCH64}
    assert machines((tmp_path / "both.whl").as_uri()) == {X86_64, AARCH64}


def test_an_index_that_cuts_its_answer_off_is_an_error_of_the_system(
    index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_Ranges, "cuts_off", True)
    with pytest.raises(OSError, match="was cut off"):
        machines(f"{index}/both.whl?")

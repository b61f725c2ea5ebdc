"""The facts of an installation that explain its speed: which libraries, who installed it, which variables steer it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest

from bench import rules, speed


def test_each_kind_of_library_is_told_by_its_files_name_and_the_rest_is_left_out() -> None:
    paths = [
        "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0",
        "/usr/lib/x86_64-linux-gnu/lapack/liblapack.so.3.11.0",
        "/opt/env/lib/python3.11/site-packages/numpy.libs/libscipy_openblas64_-ff651d7f.so",
        "/opt/env/lib/python3.11/site-packages/torch/lib/libgomp-24e2ab19.so.1",
        "/usr/lib/x86_64-linux-gnu/libdnnl.so.2.6",
        "/usr/lib/x86_64-linux-gnu/libc_malloc_debug.so.0",
        "/opt/env/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9",
        "/usr/lib/x86_64-linux-gnu/libc.so.6",
        "/usr/lib/libblas.notes",
    ]
    assert speed.libraries(paths) == {
        "blas": "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3.11.0; numpy.libs/libscipy_openblas64_.so",
        "lapack": "/usr/lib/x86_64-linux-gnu/lapack/liblapack.so.3.11.0",
        "openmp": "torch/lib/libgomp.so.1",
        "onednn": "/usr/lib/x86_64-linux-gnu/libdnnl.so.2.6",
        "allocator": "/usr/lib/x86_64-linux-gnu/libc_malloc_debug.so.0",
        "cudnn": "nvidia/cudnn/lib/libcudnn.so.9",
    }


def test_the_files_of_this_process_are_those_of_its_numpy() -> None:
    assert any("blas" in path for path in speed.mapped() if "numpy" in path)
    assert speed.mapped("/nowhere/maps") == []
    assert speed.numpy_blas(numpy)
    assert speed.numpy_blas(SimpleNamespace(__config__=SimpleNamespace())) is None


@pytest.mark.parametrize(
    ("files", "folder", "who"),
    [
        ({"INSTALLER": "pip\n"}, "site-packages", "pip"),
        ({"INSTALLER": "conda\n"}, "site-packages", "conda"),
        ({"INSTALLER": "pip\n", "direct_url.json": "{}"}, "site-packages", "pip, no index"),
        ({}, "dist-packages", "the distribution"),
        ({}, "site-packages", None),
    ],
)
def test_who_installed_a_framework_is_what_its_metadata_says(
    tmp_path: Path, files: dict[str, str], folder: str, who: str | None
) -> None:
    package = tmp_path / folder / "torch"
    info = tmp_path / folder / "torch-2.13.0.dist-info"
    package.mkdir(parents=True)
    info.mkdir()
    for name, text in files.items():
        (info / name).write_text(text)
    module = SimpleNamespace(__name__="torch", __file__=str(package / "__init__.py"))
    assert speed.installed_by(module) == who


def test_variables_that_steer_are_facts_but_for_what_every_cell_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in rules.steering(os.environ):
        monkeypatch.delenv(name)
    for name in rules.THREAD_VARIABLES:
        monkeypatch.setenv(name, "2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("CUDA_CACHE_PATH", "/cache")
    monkeypatch.setenv("TF_CLI_CONFIG_FILE", "/of/terraform")
    assert speed.variables(2) == {}
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert speed.variables(2) == {"variable ATEN_CPU_CAPABILITY": "default", "variable OMP_NUM_THREADS": "1"}


def test_a_number_of_threads_that_a_person_or_an_image_set_is_named_and_one_that_an_adapter_set_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in rules.steering(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(speed, "started_with", lambda: {"OMP_NUM_THREADS"})
    assert speed.variables(1) == {"variable OMP_NUM_THREADS": "1"}
    monkeypatch.setattr(speed, "started_with", set)
    assert speed.variables(1) == {}


def test_the_variables_of_the_start_are_those_that_the_process_was_given() -> None:
    code = "import os; os.environ['LATER'] = '1'; from bench import speed; print(sorted({'FIRST', 'LATER'} & speed.started_with()))"
    ended = subprocess.run([sys.executable, "-c", code], env={"FIRST": "1"}, capture_output=True, text=True, check=True)
    assert ended.stdout == "['FIRST']\n"
    assert speed.started_with("/no/such/file") == set()


def test_files_by_which_an_image_steers_libraries_are_told_with_what_they_say(tmp_path: Path) -> None:
    (tmp_path / "nccl.conf").write_text("# of our site\nNCCL_P2P_DISABLE=1\n\nNCCL_DEBUG=WARN\n")
    (tmp_path / "ld.so.preload").write_bytes(b"")
    (tmp_path / "long").write_bytes(b"\xff" * 5000)
    found = speed.configuration([str(tmp_path / name) for name in ("nccl.conf", "ld.so.preload", "long", "absent")])
    assert found[f"file {tmp_path / 'nccl.conf'}"] == "NCCL_P2P_DISABLE=1; NCCL_DEBUG=WARN"
    assert found[f"file {tmp_path / 'ld.so.preload'}"] == "empty"
    assert len(found) == 3
    assert max(map(len, found.values())) == 300


def test_the_facts_of_a_cell_have_no_empty_ones() -> None:
    assert "no-such-module" not in sys.modules
    found = speed.facts("no-such-module", 2)
    assert "installed_by" not in found
    assert None not in found.values()
    assert "blas" in found

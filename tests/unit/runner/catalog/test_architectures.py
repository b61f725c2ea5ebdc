"""Which images run on which architecture, by their locks and without a network."""

from __future__ import annotations

import shutil
import struct
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from runner.admission.admit import image_of
from runner.catalog import architectures
from runner.catalog.architectures import AARCH64, X86_64, emulated, holds_on, why_not
from runner.catalog.images import BASES, IMAGES, CatalogError, Image, load_catalog, load_image
from runner.cli.main import app
from runner.engines.base import Launch, ReadyImage, Slot
from runner.engines.docker import engine
from runner.engines.process import interpreters, venv
from runner.errors import EngineError
from runner.images import locking
from runner.images.lock_facts import LockedFile
from runner.images.recipe import installed_files, recipe
from tests.fixtures.plans import make_cell

CATALOG = load_catalog()


@pytest.fixture
def jax(tmp_path: Path) -> Image:
    shutil.copytree(IMAGES / "jax-0.10.2-cpu", tmp_path / "jax-0.10.2-cpu")
    shutil.copy(IMAGES / BASES, tmp_path)
    return load_image(tmp_path / "jax-0.10.2-cpu")


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_sixteen_images_or_more_run_on_both_architectures() -> None:
    both = [image.name for image in CATALOG.values() if holds_on(image) == ["x86_64", "aarch64"]]
    assert len(both) >= 16
    assert {"jax-0.10.2-cpu", "onnxruntime-1.31.1-cu132", "torch-2.15.0-cu132", "tensorflow-2.21.0-cpu"} <= set(both)


def test_every_lock_was_looked_at() -> None:
    assert [name for name, image in CATALOG.items() if "was not looked at" in (why_not(image, "arm64") or "")] == []


def test_an_architecture_has_the_names_of_the_kernel_and_of_docker() -> None:
    assert [architectures.by_name(name) for name in ("arm64", "aarch64", "amd64", "x86_64", "riscv64")] == [
        *(AARCH64, AARCH64, X86_64, X86_64, None)
    ]
    reason = why_not(CATALOG["jax-0.10.2-cpu"], "riscv64")
    assert reason == "jax-0.10.2-cpu is locked for x86_64 and aarch64; the machine is riscv64"


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ("torch-2.13.0-cpu", "torch==2.13.0+cpu has no wheel for aarch64 in its lock"),
        ("torch-2.7.1-cu126", "triton==3.3.1 has no wheel for aarch64 in its lock"),
        # Every pin has a wheel, and that of PyTorch is one without CUDA.
        ("torch-2.9.1-cu128", "its framework has no CUDA in its wheel for aarch64: it does not ask for nvidia-"),
        ("tensorflow-2.10.1-cu112", "on aarch64 its packages ask for tensorflow-cpu-aws, which is not in its lock"),
        # Every pin has a wheel and all are asked for, and the wheel of TensorFlow is one without CUDA all the same.
        ("tensorflow-2.21.0-cu128", "TensorFlow's wheel for aarch64 has no CUDA"),
        # Found by the import: the lock holds.
        ("mxnet-1.9.1-cpu", "MXNet's wheel for aarch64 needs Arm's libarmpl_lp64_mp.so"),
        ("caffe2-1.8.1-cu102", "its CUDA comes from the framework, and its lock does not show whether"),
    ],
)
def test_the_reason_names_the_package(image: str, reason: str) -> None:
    assert (why_not(CATALOG[image], "arm64") or "").startswith(reason)


def test_a_lock_without_the_hash_of_the_wheel_does_not_hold(jax: Image) -> None:
    assert why_not(jax, "aarch64") is None
    (line,) = [line for line in jax.seal_path.read_text().splitlines() if line.startswith("aarch64 jaxlib==")]
    edit(jax.seal_path, line.rpartition(" ")[2], "0" * 16)
    assert why_not(jax, "aarch64") == "jaxlib==0.10.2 has no wheel for aarch64 in its lock"
    assert why_not(jax, "x86_64") is None


def test_a_wheel_of_another_machine_or_a_newer_glibc_proves_nothing(jax: Image) -> None:
    edit(jax.seal_path, "manylinux_2_27_aarch64", "manylinux_2_39_aarch64")
    assert "jaxlib==0.10.2" in (why_not(jax, "aarch64") or "")
    edit(jax.seal_path, "manylinux_2_39_aarch64", "manylinux_2_27_x86_64")
    assert "jaxlib==0.10.2" in (why_not(jax, "aarch64") or "")


def test_a_lock_that_was_not_looked_at_holds_nowhere_else(jax: Image) -> None:
    jax.seal_path.unlink()
    assert "was not looked at for aarch64" in (why_not(jax, "aarch64") or "")


def test_an_architecture_with_a_lock_of_its_own_is_another_image_with_the_same_tag(tmp_path: Path) -> None:
    shutil.copytree(IMAGES / "tensorflow-2.21.0-cpu", tmp_path / "tensorflow-2.21.0-cpu")
    shutil.copy(IMAGES / BASES, tmp_path)
    image = load_image(tmp_path / "tensorflow-2.21.0-cpu")
    there, here = (architectures.for_machine(image, machine) for machine in ("arm64", "x86_64"))
    assert [path.name for path in (there.lock_path, there.seal_path)] == [
        *("requirements.aarch64.lock", "requirements.aarch64.seal")
    ]
    assert here.lock_path == image.lock_path != there.lock_path
    assert here.lock_sha256 == image.lock_sha256 != there.lock_sha256
    # A person's cell is known by the lock of the machine that measured it.
    cells = [make_cell(image=image.name, lock_sha256=each.lock_sha256) for each in (here, there)]
    assert [own and own.lock_path.name for own in map(image_of, cells)] == [here.lock_path.name, there.lock_path.name]
    # An index has one tag for both, which changes with either lock.
    layers = recipe(there).layers
    assert recipe(there).input_tag == recipe(image).input_tag
    assert recipe(there).labels("")["dlbench.lock_sha256"] == there.lock_sha256
    assert {path.name for path in installed_files(image)} == {"requirements.lock", "requirements.aarch64.lock"}
    edit(there.lock_path, "wheel==0.48.0", "wheel==0.48.1")
    assert recipe(image).layers != layers
    assert image.lock_sha256 == here.lock_sha256


def test_a_gpu_image_has_one_lock(tmp_path: Path) -> None:
    shutil.copytree(IMAGES / "torch-2.15.0-cu132", tmp_path / "torch-2.15.0-cu132")
    shutil.copy(IMAGES / BASES, tmp_path)
    shutil.copy(
        IMAGES / "torch-2.15.0-cu132" / "requirements.lock",
        tmp_path / "torch-2.15.0-cu132" / "requirements.aarch64.lock",
    )
    with pytest.raises(
        CatalogError, match=r"requirements\.aarch64\.lock: the layers of NVIDIA's wheels are made of one"
    ):
        load_image(tmp_path / "torch-2.15.0-cu132")


def test_nothing_is_measured_where_it_would_be_emulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert emulated("amd64", "x86_64") is None
    assert "its times would be those of the emulation" in (emulated("arm64", "x86_64") or "")
    # Inside an emulated container uname says aarch64, and the kernel's own file tells the truth.
    (tmp_path / "arch").write_text("x86_64\n")
    monkeypatch.setattr(architectures, "_KERNEL_ARCHITECTURE", tmp_path / "arch")
    assert emulated("aarch64")


@pytest.mark.parametrize(
    ("machine", "base", "image", "reason"),
    [
        ("aarch64", "arm64", "jax-0.10.2-cpu", None),
        ("x86_64", "amd64", "torch-2.13.0-cpu", None),
        ("aarch64", "arm64", "torch-2.13.0-cpu", "torch==2.13.0+cpu has no wheel for aarch64 in its lock"),
        # No base is here yet: the engine pulls that of its own machine.
        ("aarch64", None, "torch-2.13.0-cpu", "torch==2.13.0+cpu has no wheel for aarch64 in its lock"),
        ("aarch64", "arm64", "tensorflow-2.21.0-cpu", None),
        ("x86_64", "arm64", "jax-0.10.2-cpu", "it is for arm64 and would be emulated on this x86_64 machine"),
        ("aarch64", "amd64", "jax-0.10.2-cpu", "it is for amd64 and would be emulated on this aarch64 machine"),
    ],
)
def test_an_engine_leaves_out_what_it_could_only_emulate(
    monkeypatch: pytest.MonkeyPatch, machine: str, base: str | None, image: str, reason: str | None
) -> None:
    here = SimpleNamespace(attrs={"Architecture": base}) if base else None
    monkeypatch.setattr(engine.builder.docker_client, "find_image", lambda *_: here)
    monkeypatch.setattr(engine.builder, "built", lambda *_: "sha256:1")
    for name, fact in (
        ("_client", SimpleNamespace(info=lambda: {"Architecture": machine})),
        ("_info", {"Architecture": machine}),
        ("_listed", lambda _: None),
    ):
        monkeypatch.setattr(engine.DockerEngine, name, fact)
    why = engine.DockerEngine().unfit(CATALOG[image])
    assert why is None if reason is None else (why or "").startswith(reason)


def test_a_loaded_image_of_another_architecture_is_checked_and_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        engine.builder.docker_client, "find_image", lambda *_: SimpleNamespace(attrs={"Architecture": "arm64"})
    )
    facts = {"_client": None, "_info": {"Architecture": "x86_64"}, "_hook": "", "options": lambda *_: {}}
    for name, fact in facts.items():
        monkeypatch.setattr(engine.DockerEngine, name, fact)
    monkeypatch.setattr(engine.DockerEngine, "_started", lambda *_: "started")
    prepared = ReadyImage(CATALOG["jax-0.10.2-cpu"], "sha256:1", ("python", "-m", "bench"))
    launch = Launch(prepared, ["check", "mlp-mnist"], Slot("cpu", (), (), None), "", Path())
    docker = engine.DockerEngine()
    assert docker.start(launch) == "started"
    with pytest.raises(EngineError, match="jax-0.10.2-cpu: it is for arm64 and would be emulated"):
        docker.start(replace(launch, arguments=["run", "mlp-mnist"]))


def test_no_environment_is_made_for_another_machine_than_the_kernels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "arch").write_text("aarch64\n")
    monkeypatch.setattr(architectures, "_KERNEL_ARCHITECTURE", tmp_path / "arch")
    monkeypatch.setattr(interpreters, "find_interpreter", interpreters.find_interpreter.__wrapped__)
    monkeypatch.setattr(venv, "find_interpreter", interpreters.find_interpreter)
    made = venv.VenvEngine()
    assert made.unfit(CATALOG["torch-2.13.0-cpu"]) == "torch==2.13.0+cpu has no wheel for aarch64 in its lock"
    # The interpreters of this machine are for x86-64.
    assert "would be emulated on this aarch64 machine" in (made.unfit(CATALOG["jax-0.10.2-cpu"]) or "")


@pytest.mark.parametrize(("machine", "fits"), [(None, True), (183, True), (62, False)])
def test_a_wheel_that_names_no_machine_is_opened(tmp_path: Path, machine: int | None, fits: bool) -> None:
    path = tmp_path / f"package{machine}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("package/__init__.py", "")
        if machine:
            wheel.writestr("package/code.so", b"\x7fELF\x02\x01\x01" + bytes(11) + struct.pack("<H", machine))
    said: list[str] = []
    assert locking._is_for(AARCH64, LockedFile(path.as_uri(), 1, ""), said.append) is fits
    assert said == []
    assert not locking._is_for(AARCH64, LockedFile("file:///absent-1.0-py3-none-any.whl", 1, ""), said.append)
    assert "could not be read" in said[0]


def test_the_command_says_it_for_each_image() -> None:
    run = CliRunner().invoke(app, ["images", "check", "--architecture", "arm64", "jax-0.10.2-cpu", "cntk-2.7-cpu"])
    assert (run.exit_code, run.stdout.splitlines()[1:]) == (
        1,
        [
            "jax-0.10.2-cpu: every pin of its lock has a wheel there, with its hash",
            "1 of 2 images on aarch64",
        ],
    )
    assert "cntk==2.7 has no wheel for aarch64" in run.stdout
    assert CliRunner().invoke(app, ["images", "check", "--architecture", "aarch64", "jax-*-cpu"]).exit_code == 0
    unknown = CliRunner().invoke(app, ["images", "check", "--architecture", "mips"])
    assert unknown.exit_code == 2

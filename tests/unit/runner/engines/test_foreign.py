"""Images of no catalog: their addresses, what a look into one believes, and their place in a plan."""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.addresses import ForeignImage, addresses
from runner.catalog.images import version_contradiction, version_proof
from runner.engines import foreign as look
from runner.engines.base import Engine, Exit, Launch, ReadyImage, Slot, with_threads
from runner.engines.docker import foreign_image
from runner.engines.foreign import CANDIDATES, ForeignImages, Looked, _bare, looked_inside
from runner.engines.probe import Printed
from runner.engines.sif import pin
from runner.errors import BadFileError, CannotBeginError, EngineError, UserError
from runner.paths import PROJECT
from runner.plan.plan import Plan, plan
from runner.plan.request import Request
from runner.results.on_disk.image_names import NO_LOCK, as_file_name
from runner.run.begin import _refuse_moved
from runner.run.prospect import Prospect
from tests.fixtures.plans import FRAMEWORKS, NO_GPU, WORKLOADS

TORCH = {"framework": "torch", "version": "1.13.0a0", "device_kinds": ["cpu"], "versions": {"torch": "1.13.0a0"}}


def answers(said: Mapping[str, Any], **more: Any) -> Printed:
    return replace(Printed(json.dumps(said).encode(), Exit(0, False, ""), 0.1, False, False), **more)


ABSENT = Printed(
    b"", Exit(127, False, "[FATAL tini (7)] exec python failed: No such file or directory"), 0.1, False, False
)

# As Podman 4.3.1 says it.
ABSENT_OF_PODMAN = Printed(
    b"", Exit(1, False, "ERROR (catatonit:2): failed to exec pid1: No such file or directory\n"), 0.1, False, False
)


def python(version: str = "3.11.2", numpy: str = "1.24.2", place: str = "/usr/bin/python3 /usr") -> Printed:
    return answers({"version": version, "place": place, "numpy": numpy})


def image_with(
    interpreters: Mapping[str, Printed], frameworks: Mapping[str, Printed]
) -> Callable[[str, Sequence[str]], Printed]:
    """An image by its interpreters: what each says of itself, and what the bench lists in it."""

    def ask(program: str, arguments: Sequence[str]) -> Printed:
        return (frameworks if "bench" in arguments else interpreters).get(program, ABSENT)

    return ask


def test_the_first_interpreter_that_has_a_framework_is_taken() -> None:
    bare = python(numpy="", place="/usr/local/bin/python3 /usr/local")
    found = looked_inside(
        image_with(
            {"python": bare, "python3": bare, "/usr/bin/python3": python()}, {"/usr/bin/python3": answers([TORCH])}
        )  # type: ignore[arg-type]
    )
    assert (found.interpreter, found.python, found.numpy) == ("/usr/bin/python3", "3.11.2", "1.24.2")
    assert [one.framework for one in found.frameworks] == ["torch"]


LISTED = {"python": python()}


@pytest.mark.parametrize(
    ("interpreters", "frameworks", "words"),
    [
        ({}, {}, "it has no Python: install one in it"),
        (dict.fromkeys(CANDIDATES, ABSENT_OF_PODMAN), {}, "it has no Python: install one in it"),
        ({"python": python("2.7.18")}, {}, "its python is Python 2.7.18, and the bench needs 3.6 or newer"),
        ({"python": python("3.5.10")}, {}, "Python 3.5.10"),
        ({"python": python(numpy="")}, {}, "its python has no NumPy, which every cell needs: add `RUN python -m pip install numpy`"),
        (
            LISTED,
            {"python": answers([{"framework": "jax", "lacks": "flax"}])},  # type: ignore[arg-type]
            "its python has jax and lacks flax: install that in it",
        ),
        (LISTED, {"python": answers([])}, "imports none of the bench's frameworks (caffe2, chainer,"),  # type: ignore[arg-type]
        (LISTED, {"python": answers([{**TORCH, "framework": "evil"}])}, "imports none of the bench's frameworks"),  # type: ignore[arg-type]
        (LISTED, {"python": answers([{**TORCH, "version": "<script>"}])}, "did not say what it has (exit 0): another answer"),  # type: ignore[arg-type]
        (LISTED, {"python": answers([TORCH] * 100)}, "another answer"),  # type: ignore[arg-type]
        (LISTED, {"python": answers({}, output=b"[" * 100_000)}, "no JSON"),
        (LISTED, {"python": answers({}, late=True)}, "within 300 s"),
        (LISTED, {"python": answers({}, too_long=True)}, "it printed more than 1 MiB"),
        (LISTED, {"python": answers({}, output=b"", ended=Exit(1, False, "a\nKeyError: '\x1b[31m'"))}, "(exit 1): KeyError: '"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_a_sentence_with_a_remedy(
    interpreters: Mapping[str, Printed], frameworks: Mapping[str, Printed], words: str
) -> None:
    with pytest.raises(EngineError) as caught:
        looked_inside(image_with(interpreters, frameworks))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    "word",
    [
        "sif:",
        "sif: a.sif",
        "sif:a.sif ",
        "sif:a;b.sif",
        "docker:./a b(c).tar",
        "docker:",
        "docker:a b",
        "docker:<b>",
        "docker:$(id)",
        "docker:--help",
        f"docker:{'a' * 300}",
    ],
)
def test_an_address_that_can_be_none_is_refused(word: str) -> None:
    with pytest.raises(UserError, match="is no address of an image"):
        addresses([word])


def test_addresses_stand_beside_patterns() -> None:
    digest = f"docker:ghcr.io/me/it@sha256:{'0' * 64}"
    words = [
        "torch-*",
        "docker:python:3.11-slim",
        digest,
        "docker:./image.tar",
        "docker:127.0.0.1:5000/a_b:1",
        "sif:/a/b.sif",
        "sif:./my own/b c.sif",
        "docker:./my own/b c.tar",
    ]
    assert addresses(words) == tuple(words[1:])


def test_the_name_of_a_file_has_no_slash_and_another_address_has_another() -> None:
    names = [as_file_name(f"docker:{word}") for word in ("a/b:1", "a-b:1", "../../etc/passwd", f"{'a/' * 120}b")]
    assert len(set(names)) == 4
    assert all("/" not in name and ":" not in name and len(name) < 150 for name in names)
    assert as_file_name("torch-2.13.0-cpu") == "torch-2.13.0-cpu"


def no_apptainer() -> Engine:
    raise EngineError("there is no Apptainer here")


def test_a_sif_is_pinned_by_the_digest_of_its_file_and_another_file_is_none(tmp_path: Path) -> None:
    file = tmp_path / "mine.sif"
    address = f"sif:{file}"
    with pytest.raises(EngineError, match=r"mine\.sif cannot be read"):
        pin(address)
    file.write_bytes(b"#!/bin/sh\n" * 100)
    with pytest.raises(BadFileError, match="is no SIF; `apptainer build"):
        pin(address)
    content = b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0" + b"x" * 100
    file.write_bytes(content)
    os.utime(file, ns=(0, 1))
    assert pin(address) == f"sha256:{hashlib.sha256(content).hexdigest()}"
    file.write_bytes(content + b"more")
    os.utime(file, ns=(0, 2))
    assert pin(address) == f"sha256:{hashlib.sha256(content + b'more').hexdigest()}"


def test_a_sif_without_apptainer_is_skipped_with_the_reason_and_needs_no_docker(tmp_path: Path) -> None:
    file = tmp_path / "mine.sif"
    file.write_bytes(b"#!/usr/bin/env run-singularity\n\0SIF_MAGIC\0")
    images = ForeignImages([f"sif:{file}"], [], no_apptainer)
    (image,) = images.images(gpus=False).values()
    assert image.refusal == "there is no Apptainer here"  # type: ignore[attr-defined]
    assert images.engines() == []


def made(address: str = "docker:mine:1", pinned: str = f"sha256:{'a' * 64}", **more: Any) -> ForeignImage:
    fields = {"frameworks": ("torch",), "releases": {"torch": "1.13.0a0"}, "framework_version": "1.13.0a0"}
    return _bare(address, pinned, {}, **fields | more)


def test_the_digest_stands_in_for_the_lock() -> None:
    own, other = made(python="3.11"), made(pinned=f"sha256:{'b' * 64}")
    assert own.lock_sha256 != other.lock_sha256
    assert made("docker:name:2").lock_sha256 == own.lock_sha256
    assert len(own.lock_sha256) == 64
    said = {"framework": "torch", "framework_version": "1.13.0a0", "versions": {"python": "3.11.2"}}
    assert version_proof(own, said, own.name) == version_proof(None, said, own.name) == f"not proved: {NO_LOCK}"
    assert version_contradiction(own, said) is None
    assert (
        version_contradiction(own, said | {"framework_version": "2.0"})
        == "it reports torch 2.0, and docker:mine:1 has 1.13.0a0"
    )


def test_on_a_machine_with_gpus_the_frameworks_without_cuda_are_skipped_with_a_note() -> None:
    both = [TORCH | {"device_kinds": ["cpu", "cuda"], "versions": {"cuda": "12.8"}}, TORCH | {"framework": "jax"}]
    frameworks = tuple(map(look.FoundFramework.model_validate, both))
    images = ForeignImages(["docker:mine:1"], [], no_apptainer)
    inside = look.Interior("python", "3.11.2", "1.24.2", frameworks)
    images._looked["docker:mine:1"] = Looked("docker:mine:1", "sha256:1", 1, {}, inside)
    (on_gpu,) = images.images(gpus=True).values()
    assert (on_gpu.accelerator, on_gpu.frameworks, on_gpu.cuda) == ("cuda", ("torch",), "12.8")
    assert images.notes(gpus=True) == ("docker:mine:1: jax skipped, since its build there has no CUDA",)
    (on_cpu,) = images.images(gpus=False).values()
    assert (on_cpu.accelerator, on_cpu.frameworks, on_cpu.cuda) == ("cpu", ("torch", "jax"), None)
    assert images.notes(gpus=False) == ()


def plan_of(*images: ForeignImage) -> Plan:
    return plan(Request(), images, WORKLOADS, FRAMEWORKS, NO_GPU, lambda image: getattr(image, "refusal", None))


def test_an_image_that_cannot_be_used_is_skipped_once_and_the_others_are_planned() -> None:
    broken = made("docker:broken:1", frameworks=(), refusal="it has no Python")
    found = plan_of(made(), broken)
    assert {cell.image for cell in found.cells} == {"docker:mine:1"}
    assert [(skip.image, skip.reason) for skip in found.skips if skip.image == broken.name] == [
        ("docker:broken:1", "it has no Python")
    ]


def test_the_bench_is_shown_and_the_images_own_path_stays_behind_it() -> None:
    pytest.importorskip("docker")
    options = {"mounts": ["cache"], "environment": {"HOME": "/tmp"}, "image": "x"}
    seen = foreign_image.with_bench(options, made(python_path="/opt/site"))
    assert seen["environment"] == {"HOME": "/tmp", "PYTHONPATH": "/dlbench:/opt/site"}
    assert (seen["image"], seen["mounts"][0], seen["working_dir"]) == ("x", "cache", "/dlbench")
    mount = seen["mounts"][1]
    assert (mount["Target"], mount["Source"], mount["ReadOnly"]) == ("/dlbench/bench", str(PROJECT / "bench"), True)
    assert options["mounts"] == ["cache"]


@pytest.mark.parametrize(("variables", "more"), [({"OMP_NUM_THREADS": "1"}, ["--threads", "1"]), ({}, []), ({"OMP_NUM_THREADS": "9"}, []),
                                                ({"OMP_NUM_THREADS": "2,1"}, [])])  # fmt: skip
def test_the_threads_that_an_image_asks_for_are_those_of_its_cells(variables: dict[str, str], more: list[str]) -> None:
    launch = Launch(ReadyImage(None, "", ()), ["run"], Slot("cpu", (), (0, 1), None), "", Path())
    assert with_threads(launch, variables).arguments == ["run", *more]


class Found:
    def __init__(self, **attributes: Any) -> None:
        self.attrs, self.id = attributes, f"sha256:{'1' * 64}"


def test_an_image_is_pinned_by_its_own_registrys_digest_else_by_its_id() -> None:
    there = Found(RepoDigests=["other.site/python@sha256:2", "python@sha256:3"])
    assert foreign_image.pin(there, "docker:docker.io/library/python:3.11") == "python@sha256:3"  # type: ignore[arg-type]
    assert foreign_image.pin(there, "docker:other.site/python:3.11") == "other.site/python@sha256:2"  # type: ignore[arg-type]
    assert foreign_image.pin(there, "docker:mine:1") == there.id  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("system", "machine", "words"),
    [("windows", "amd64", "it is an image of windows"), ("linux", "arm64", "docker pull --platform linux/amd64"), ("linux", "amd64", "")],
)  # fmt: skip
def test_an_image_for_another_machine_says_how_to_get_this_ones(system: str, machine: str, words: str) -> None:
    why = foreign_image.unfit(Found(Os=system, Architecture=machine), {"Architecture": "x86_64"})  # type: ignore[arg-type]
    assert words in (why or "")
    assert (why is None) == (words == "")


def tar(path: Path, manifest: object) -> Path:
    content = json.dumps(manifest).encode()
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("manifest.json")
        entry.size = len(content)
        archive.addfile(entry, io.BytesIO(content))
    return path


def test_the_file_of_an_image_names_it(tmp_path: Path) -> None:
    config = {"Config": f"blobs/sha256/{'c' * 64}"}
    assert foreign_image._id_in(tar(tmp_path / "one.tar", [config])) == f"sha256:{'c' * 64}"
    for name, manifest in (("two", [config, config]), ("none", []), ("list", [1]), ("text", "x")):
        with pytest.raises(EngineError, match=r"docker save NAME -o FILE\.tar"):
            foreign_image._id_in(tar(tmp_path / f"{name}.tar", manifest))
    (tmp_path / "text.tar").write_text("no archive")
    for name in ("text.tar", "gone.tar"):
        with pytest.raises(EngineError, match="docker save"):
            foreign_image._id_in(tmp_path / name)


def test_a_run_goes_on_only_with_the_images_that_it_began_with() -> None:
    image = made()
    today = Prospect.__new__(Prospect)
    object.__setattr__(today, "images", {image.name: image})
    _refuse_moved("RUN", {image.name: image.pinned}, today)
    with pytest.raises(
        UserError, match=f"docker:mine:1 was sha256:{'b' * 64} when the run began, and is {image.pinned} now"
    ):
        _refuse_moved("RUN", {image.name: f"sha256:{'b' * 64}"}, today)
    object.__setattr__(today, "images", {image.name: _bare(image.name, "", {}, refusal="it has no Python")})
    object.__setattr__(today, "plan", plan_of(made(frameworks=(), refusal="no")))
    with pytest.raises(CannotBeginError, match="docker:mine:1: no"):
        _refuse_moved("RUN", {image.name: image.pinned}, today)


def test_the_limits_of_a_look_are_those_that_its_sentences_say() -> None:
    assert (look.SECONDS, look.MOST_BYTES) == (300.0, 1 << 20)

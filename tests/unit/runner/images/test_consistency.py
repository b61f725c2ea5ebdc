"""`runner images check`: the catalog is right as it is, and whatever is edited in it is named."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from runner.catalog import cuda
from runner.catalog.images import BASES, IMAGES, load_catalog, read_bases, read_pins
from runner.catalog.workloads import adapters, load_workloads
from runner.cli.main import app
from runner.images import consistency as images_check
from runner.images import generated_files, locking
from runner.images import generated_files as images_files
from runner.images.lock_facts import cuda_alone
from tests.fixtures.waiting import within

NAME = "torch-2.9.1-cu128"
# aarch64 has a lock of its own.
OWN = "tensorflow-2.21.0-cpu"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A catalog of the GPU image that most of this is about, its twin, and one whose CUDA is in its base."""
    for name in (
        NAME,
        "torch-2.13.0-cpu",
        "mxnet-1.9.1-cu112",
        "mxnet-1.9.1-cpu",
        "jax-0.12.0.1-cu132",
        "jax-0.10.2-cpu",
        OWN,
    ):
        shutil.copytree(IMAGES / name, tmp_path / name)
    shutil.copy(IMAGES / BASES, tmp_path)
    return tmp_path


def problems(folder: Path, strict: bool = False) -> list[str]:
    found = images_check.check(load_catalog(folder).values(), load_workloads().values(), adapters())
    return [str(problem) for problem in found if strict or not problem.only_strict]


def edit(path: Path, old: str, new: str, seal: bool = False) -> None:
    """Replace what is there exactly once; with `seal`, as if the lock had been made so."""
    text = path.read_text()
    assert text.count(old) == 1, (old, text.count(old))
    path.write_text(text.replace(old, new))
    if seal:
        locking.write_seal(load_catalog(path.parent.parent)[path.parent.name])


def test_nothing_is_wrong_with_the_catalog_and_it_takes_no_two_seconds() -> None:
    found = within(2.0, lambda: images_check.check(load_catalog().values(), load_workloads().values(), adapters()))
    assert [str(problem) for problem in found if not problem.only_strict] == []


def test_every_image_that_trains_on_pictures_can_decode_them() -> None:
    readers = {
        framework for framework, module in adapters() if module in ("resnet50_imagenet", "densenet121_chestxray")
    }
    images = [image for image in load_catalog().values() if readers & set(image.frameworks)]
    assert images
    assert [image.name for image in images if "pillow" not in {pin.name for pin in read_pins(image.lock_path)}] == []


def test_nothing_is_wrong_with_the_copy(folder: Path) -> None:
    assert problems(folder) == []


def test_a_machine_that_has_another_name_is_named(folder: Path) -> None:
    edit(folder / NAME / "image.toml", "\nlocked =", '\nnot_on_machine = { arm64 = "no CUDA" }\nlocked =')
    toml = folder / NAME / "image.toml"
    assert problems(folder) == [f"{toml}: not_on_machine: 'arm64' is no architecture; write x86_64 or aarch64"]


def test_an_edited_version_is_named(folder: Path) -> None:
    edit(folder / NAME / "requirements.lock", "sympy==1.14.0", "sympy==1.13.3")
    found = problems(folder)
    assert len(found) == 2
    assert found[0].startswith(
        f"{folder / NAME / 'requirements.lock'}: sympy==1.14.0 is not there, or its line was edited"
    )
    assert f"sympy==1.13.3 was not locked; make the lock again with `runner images lock {folder / NAME}" in found[1]


def test_an_edited_hash_is_named(folder: Path) -> None:
    path = folder / NAME / "requirements.lock"
    digest = sorted(next(pin for pin in read_pins(path) if pin.name == "triton").hashes)[0]
    edit(path, digest, "0" * 64)
    assert [line.split("; ")[0] for line in problems(folder)] == [
        f"{path}: triton==3.5.1: its hashes are not those that were locked"
    ]


def test_a_removed_hash_is_named(folder: Path) -> None:
    path = folder / NAME / "requirements.lock"
    text = path.read_text()
    path.write_text(re.sub(r"(networkx==\S+ \\\n)    --hash=\S+ \\\n", r"\1", text))
    assert path.read_text() != text
    assert len(problems(folder)) == 1
    assert "networkx==3.7: its hashes are not those that were locked" in problems(folder)[0]


def test_a_requirement_changed_without_a_new_lock_is_named(folder: Path) -> None:
    edit(folder / NAME / "requirements.in", "numpy<2.4", "numpy<2.3")
    found = problems(folder)
    assert f"{folder / NAME / 'requirements.in'}: it was changed after the lock was made" in found[0]
    assert "numpy==2.3.5 is not the numpy<2.3 of requirements.in" in found[1]


def test_the_lock_of_another_architecture_is_checked_as_the_first_one_is(folder: Path) -> None:
    lock, requirements = (folder / OWN / f"requirements.{end}" for end in ("aarch64.lock", "in"))
    edit(lock, "wrapt==2.5.2", "wrapt==2.5.1")
    assert [line.split("; ")[0] for line in problems(folder)] == [
        f"{lock}: wrapt==2.5.2 is not there, or its line was edited",
        f"{lock}: wrapt==2.5.1 was not locked",
    ]
    edit(lock, "wrapt==2.5.1", "wrapt==2.5.2")
    edit(requirements, "tensorflow==2.21.0; ", "tensorflow==2.21.1; ")
    assert f"{lock}: tensorflow==2.21.0 is not the tensorflow==2.21.1; platform_machine" in "\n".join(problems(folder))
    edit(requirements, 'tensorflow==2.21.1; platform_machine == "aarch64"\n', "")
    edit(requirements, '; platform_machine != "aarch64"', "")
    assert f"{lock}: it and requirements.in, which does not name its architecture in a marker" in problems(folder)[0]
    lock.unlink()
    edit(requirements, "tensorflow-cpu==2.21.0", 'tensorflow-cpu==2.21.0; platform_machine != "aarch64"')
    assert f"{lock}: it and requirements.in, which names its architecture, do not go together" in problems(folder)[0]


def test_a_missing_seal_is_named_with_the_command_that_makes_it(folder: Path) -> None:
    (folder / NAME / "requirements.seal").unlink()
    assert problems(folder) == [
        f"{folder / NAME / 'requirements.seal'}: it is missing; make the lock again with "
        f"`runner images lock {folder / NAME} --date 2026-11-20`"
    ]


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (NAME, 'cuda = "12.8.90"', 'cuda = "12.8.1"', "cuda: it says 12.8.1, and the lock holds 12.8.90"),
        (NAME, 'cudnn = "9.10.2.21"', 'cudnn = "9.10.2.22"', "cudnn: it says 9.10.2.22, and the lock holds 9.10.2.21"),
        (NAME, 'nccl = "2.27.5"', 'nccl = "2.27.7"', "nccl: it says 2.27.7, and the lock holds 2.27.5"),
        (NAME, 'nccl = "2.27.5"\n', "", "nccl: it says none, and the lock holds 2.27.5"),
        (NAME, '"525.60.13"', '"450.80.02"', "min_driver: it says 450.80.02, and CUDA 12.8 takes 525.60.13 or newer"),
        (NAME, '"525.60.13"', '"580.65.06"', "min_driver: it says 580.65.06, and CUDA 12.8 takes 525.60.13 or newer; write 525.60.13"),
        (NAME, "download_gb = 4.1", "download_gb = 3.04", "download_gb: it says 3.04, and the lock's files weigh 4.1; write 4.1"),
        (NAME, "locked = 2026-11-20", "locked = 2026-11-19", "locked: it says 2026-11-19, and requirements.lock was made as of 2026-11-20"),
        (NAME, ', "keras_torch"', "", "frameworks: keras is installed, and no framework of the image is keras's; add the framework"),
        (NAME, "python:3.12-slim-bookworm", "ubuntu:24.04", "base: the name ubuntu:24.04 does not say which Python it holds"),
        (NAME, '= "12.0"', '= "8.6"', "precisions: a GPU of 8.6 has no fp8: it takes compute capability 8.9; remove it"),
        ("mxnet-1.9.1-cu112", '= "8.9"', '= "9.0"', "max_compute_capability: it says 9.0, which takes CUDA 11.8, and the image has 11.2.2"),
        (NAME, '= "7.0"', '= "3.7"', "min_compute_capability: it says 3.7, and CUDA 12 begins at 5.0"),
        (NAME, 'framework_version = "2.9.1"', 'framework_version = "2.9.2"', "nothing in the lock has version 2.9.2"),
        (NAME, 'python = "3.12"', 'python = "3.11"', "python: it says 3.11, and the base image is python:3.12-slim"),
        ("mxnet-1.9.1-cu112", 'cuda = "11.2.2"', 'cuda = "11.2.1"', "cuda: it says 11.2.1, and the base image is nvidia/cuda:11.2.2"),
        ("mxnet-1.9.1-cu112", "-cudnn8-", "-cudnn9-", "cudnn: it says 8.1.1.33, and the base image is nvidia/cuda:11.2.2-cudnn9"),
    ],
)  # fmt: skip
def test_a_fact_that_the_lock_or_the_base_does_not_bear_out_is_named(
    folder: Path, name: str, old: str, new: str, said: str
) -> None:
    edit(folder / name / "image.toml", old, new)
    assert any(line.startswith(str(folder / name)) and said in line for line in problems(folder)), problems(folder)


@pytest.mark.parametrize(
    ("name", "old", "new", "said"),
    [
        (NAME, "nvidia-nvjitlink-cu12==12.8.93", "nvidia-nvjitlink-cu12==12.9.86", "nvidia-nvjitlink-cu12==12.9.86 is of another CUDA"),
        (NAME, "nvidia-cufft-cu12==11.3.3.83", "nvidia-cufft-cu13==11.3.3.83", "nvidia-cufft-cu13 is of another CUDA"),
        ("jax-0.12.0.1-cu132", "jax-cuda13-plugin==0.12.0.1", "jax-cuda13-plugin==0.10.2", "jax-cuda13-plugin is 0.10.2, and jax is"),
        ("jax-0.12.0.1-cu132", "jax-cuda13-pjrt==0.12.0.1", "jax-cuda12-pjrt==0.12.0.1", "jax-cuda13-pjrt is missing"),
        ("mxnet-1.9.1-cu112", "urllib3==2.2.3", "nvidia-cudnn-cu11==8.5.0.96", "CUDA comes from the base; leave it out"),
        ("torch-2.13.0-cpu", "mpmath==1.3.0", "nvidia-nccl-cu12==2.27.5", "nvidia-nccl-cu12 is in it, and it is a cpu image"),
        (NAME, "keras==3.15.1", "keras==3.15.0", "keras==3.15.0 is not the keras==3.15.1 of requirements.in"),
        (NAME, "numpy==2.3.5", "nampy==2.3.5", "numpy is not in it, and the bench needs it"),
    ],
)  # fmt: skip
def test_a_lock_that_resolved_to_something_else_is_named(
    folder: Path, name: str, old: str, new: str, said: str
) -> None:
    edit(folder / name / "requirements.lock", old, new, seal=True)
    assert any(said in line for line in problems(folder)), problems(folder)


@pytest.mark.parametrize(
    ("table", "entry", "field"),
    [
        ("LEAST_DRIVER", "12", "cuda"),
        ("LEAST_CAPABILITY", "12", "cuda"),
        ("FIRST_RELEASE", "12.0", "max_compute_capability"),
    ],
)
def test_a_table_that_lacks_a_new_cuda_or_gpu_is_named(
    monkeypatch: pytest.MonkeyPatch, folder: Path, table: str, entry: str, field: str
) -> None:
    monkeypatch.delitem(getattr(cuda, table), entry)
    (problem,) = {line.partition(": ")[2] for line in problems(folder)}
    assert problem.startswith(f"{field}: {table} of runner/catalog/cuda.py has nothing for ")


def test_a_folder_whose_name_says_another_cuda_is_named(folder: Path) -> None:
    (folder / NAME).rename(folder / "torch-2.9.1-cu126")
    assert any("its name does not end with '-2.9.1-cu128'" in line for line in problems(folder))


def test_an_image_that_no_workload_reaches_is_named_unless_it_says_why(folder: Path) -> None:
    images = list(load_catalog(folder).values())
    found = images_check.check(images, load_workloads().values(), frozenset({("jax", "cnn_cifar10")}))
    unreached = {problem.path.parent.name for problem in found if "no workload is computed by" in problem.what}
    assert unreached == {image.name for image in images if "jax" not in image.frameworks}
    excused = [image.model_copy(update={"untested": "no time"}) for image in images]
    assert not [problem for problem in images_check.check(excused, [], frozenset()) if "no workload" in problem.what]


def test_only_strict_counts_a_base_that_is_not_pinned(folder: Path) -> None:
    edit(folder / BASES, '"python:3.12-slim-bookworm" = ""', f'"python:3.12-slim-bookworm" = "sha256:{"a" * 64}"')
    missing = [line for line in problems(folder, strict=True) if "it has no digest" in line]
    # Five images stand on two other bases: each base is named once.
    assert [line.partition(": it")[0] for line in missing] == [
        f"{folder / BASES}: python:3.11-slim-bookworm",
        f"{folder / BASES}: nvidia/cuda:11.2.2-cudnn8-runtime-ubuntu20.04",
    ], missing


def test_every_base_stands_in_the_one_file_of_bases(folder: Path) -> None:
    edit(folder / BASES, '"python:3.11-slim-bookworm" = ""\n', "")
    missing = problems(folder)
    fix = 'add `"python:3.11-slim-bookworm" = ""`, or let `runner images pin` ask for it'
    assert missing == [f"{folder / BASES}: python:3.11-slim-bookworm: it is missing; {fix}"]
    stood_on = {image.base for image in load_catalog().values()}
    stood_on |= {image.julia for image in load_catalog().values() if image.julia}
    assert set(read_bases(IMAGES)) == stood_on


def test_bake_builds_each_base_on_the_digest_that_the_file_has(folder: Path) -> None:
    digest = f"sha256:{'a' * 64}"
    edit(folder / BASES, '"python:3.11-slim-bookworm" = ""', f'"python:3.11-slim-bookworm" = "{digest}"')
    bake = json.loads(images_files.bake_text(load_catalog(folder).values()))
    assert bake["target"]["base-python_3_11-slim-bookworm"]["args"]["BASE"] == f"python:3.11-slim-bookworm@{digest}"
    assert bake["target"]["base-python_3_12-slim-bookworm"]["args"]["BASE"] == "python:3.12-slim-bookworm"


def test_the_command_ends_with_1_and_names_what_is_wrong(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    from runner.catalog import images as catalog

    monkeypatch.setattr(catalog.load_catalog, "__defaults__", (folder, None, True))
    right = CliRunner().invoke(app, ["images", "check", NAME])
    assert right.exit_code == 0, right.output
    assert "1 image, 0 problems; 1 base image without a digest" in right.output
    assert CliRunner().invoke(app, ["images", "check", NAME, "--strict"]).exit_code == 1
    edit(folder / NAME / "image.toml", 'cuda = "12.8.90"', 'cuda = "12.8.93"')
    wrong = CliRunner().invoke(app, ["images", "check", NAME])
    assert wrong.exit_code == 1
    assert "it says 12.8.93, and the lock holds 12.8.90" in wrong.output


def test_show_tells_what_an_image_installs() -> None:
    shown = CliRunner().invoke(app, ["images", "show", NAME, "--format", "json"])
    (fact,) = json.loads(shown.output)["images"]
    assert fact["installs"]["nvidia-cudnn-cu12"] == fact["cudnn"] == "9.10.2.21"
    assert "cuda: 12.8.90" in CliRunner().invoke(app, ["images", "show", NAME]).output


# -- files for other tools ---------------------------------------------------------------------------------------------


def test_compose_and_bake_are_what_the_catalog_makes_of_them() -> None:
    assert images_files.out_of_step(load_catalog().values()) == []


def test_a_new_image_puts_the_files_out_of_step() -> None:
    images = [*load_catalog().values()]
    extra = images[0].model_copy(update={"name": "new-1.0-cpu"})
    assert [path for path, _ in images_files.out_of_step([*images, extra])] == [
        images_files.COMPOSE,
        images_files.BAKE,
        generated_files.IMAGES,
    ]


def test_every_target_of_bake_builds_on_targets_that_are_there() -> None:
    bake = json.loads(images_files.BAKE.read_text())
    for name, target in bake["target"].items():
        assert re.fullmatch(r"[A-Za-z0-9_-]+", name)
        assert (images_files.PROJECT / target["dockerfile"]).is_file()
        for context, source in target.get("contexts", {}).items():
            assert target["args"]["BASE"] == context
            assert source.removeprefix("target:") in bake["target"]
    tested = [image for image in load_catalog().values() if image.accelerator == "cpu" and image.untested is None]
    assert bake["group"]["default"]["targets"] == [re.sub(r"\.", "_", image.name) for image in tested]
    grouped = {name for group in bake["group"].values() for name in group["targets"]}
    assert grouped == {re.sub(r"\.", "_", name) for name in load_catalog()}


def test_a_day_that_is_none_is_told_with_its_option() -> None:
    ended = CliRunner().invoke(app, ["images", "lock", "torch-2.13.0-cpu", "--date", "yesterday"])
    assert ended.exit_code == 2
    assert "--date: 'yesterday' is not a day; write it like" in ended.output


def test_the_bill_of_materials_names_every_pin_once_and_is_the_same_bytes_again() -> None:
    image = load_catalog()["chainer-7.8.1-cpu"]
    document = json.loads(images_files.sbom(image, "site:3.12"))
    assert images_files.sbom(image, "site:3.12") == images_files.sbom(image, "site:3.12")
    assert document["comment"].endswith(" on site:3.12.")
    assert document["spdxVersion"] == "SPDX-2.3"
    references = [package["externalRefs"][0]["referenceLocator"] for package in document["packages"]]
    assert "pkg:pypi/chainer@7.8.1" in references  # built from its source archive
    assert len(references) == sum(len(read_pins(path)) for path in image.locks)
    identities = [package["SPDXID"] for package in document["packages"]]
    assert len(set(identities)) == len(identities) == len(document["documentDescribes"])
    assert all(re.fullmatch(r"SPDXRef-[A-Za-z0-9.-]+", identity) for identity in identities)
    cpu = load_catalog()["torch-2.13.0-cpu"]
    text = images_files.sbom(cpu, cpu.base)
    assert "pkg:pypi/torch@2.13.0%2Bcpu" in text
    assert "pkg:deb/debian/g%2B%2B" in text
    # Where the built image was asked, its packages have versions, and all are there.
    text = images_files.sbom(cpu, cpu.base, {"g++": "4:12.2.0-3", "libc6": "2.36-9"})
    assert "pkg:deb/debian/g%2B%2B@4%3A12.2.0-3" in text
    assert "pkg:deb/debian/libc6@2.36-9" in text


def test_two_images_between_which_cuda_alone_is_to_change_hold_the_same_of_all_else(tmp_path: Path) -> None:
    catalog = load_catalog()
    pairs = [(older.name, newer.name) for older, newer in cuda_alone(catalog.values())]
    assert ("jax-0.12.0.1-cu129", "jax-0.12.0.1-cu132") in pairs
    assert not [pair for pair in pairs if "torch" in pair[0]], "PyTorch's ladder changes two things"
    older, newer = (catalog[name] for name in ("jax-0.12.0.1-cu129", "jax-0.12.0.1-cu132"))
    shutil.copytree(newer.folder, tmp_path / newer.name)
    lock = tmp_path / newer.name / newer.lock_path.name
    lock.write_text(lock.read_text().replace("\nnumpy==2.5.5", "\nnumpy==2.5.4"))
    edited = newer.model_copy(update={"folder": tmp_path / newer.name})
    said = [str(problem) for problem in images_check.check([older, edited], load_workloads().values(), adapters())]
    assert [line for line in said if "numpy is 2.5.4, and 2.5.5 in jax-0.12.0.1-cu129; only CUDA may change" in line]

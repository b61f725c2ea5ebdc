"""The catalog: what is in it holds together, and whatever is wrong in a folder is told with file, field and fix."""

from __future__ import annotations

import re
import shutil
import tomllib
from datetime import date
from pathlib import Path

import pytest

from runner.catalog.images import CatalogError, Image, load_catalog, read_pins, select_images
from runner.images import locking


def versions(lock: Path) -> dict[str, str]:
    return {pin.name: pin.version for pin in read_pins(lock)}


FRAMEWORKS = ("jax", "tensorflow", "torch")

GPU = """\
frameworks = ["torch"]
framework_version = "2.9.1"
python = "3.12"
accelerator = "cuda"
cuda = "12.8.90"
cudnn = "9.10.2.21"
min_driver = "525.60.13"
min_compute_capability = "7.0"
max_compute_capability = "12.0"
base = "python:3.12-slim-bookworm"
cpu_twin = "small-cpu"
precisions = ["fp32", "tf32"]
locked = 2026-11-20
download_gb = 4.1
"""

CPU = """\
frameworks = ["torch"]
framework_version = "2.13.0"
python = "3.11"
accelerator = "cpu"
base = "python:3.11-slim-bookworm"
precisions = ["fp32"]
locked = 2026-11-20
download_gb = 0.2
"""


def add(folder: Path, name: str, text: str) -> Path:
    image = folder / name
    image.mkdir(parents=True, exist_ok=True)
    (image / "image.toml").write_text(text)
    (image / "requirements.in").write_text("torch\n")
    (image / "requirements.lock").write_text(f"torch==2.13.0 --hash=sha256:{'0' * 64}\n")
    return image / "image.toml"


def load(folder: Path) -> dict[str, Image]:
    return load_catalog(folder, FRAMEWORKS)


def julia_project(image: Image) -> dict[str, dict[str, str]]:
    return tomllib.loads((image.folder / "Project.toml").read_text())


@pytest.fixture(scope="module")
def catalog() -> dict[str, Image]:
    return load_catalog()


# -- the catalog as it is ----------------------------------------------------------------------------------------------


# GPU images whose CPU twin is another version of the framework. Nothing runs these versions without a GPU.
PROVED_ON_GPUS_ONLY = {
    *("jax-0.4.30-cu123", "jax-0.12.0.1-cu126", "jax-0.12.0.1-cu128", "jax-0.12.0.1-cu129"),
    "jax-0.12.0.1-cu132",
    *("onnxruntime-1.18.1-cu118", "onnxruntime-1.31.1-cu132", "paddle-2.6.2-cu118"),
    *("tensorflow-2.10.1-cu112", "tensorflow-2.15.1-cu122", "tensorflow-2.18.1-cu125"),
    *("torch-1.13.1-cu117", "torch-2.4.1-cu121", "torch-2.6.0-cu124", "torch-2.7.1-cu126", "torch-2.9.1-cu128"),
    *("torch-2.14.1-cu130", "torch-2.15.0-cu132"),
}


def test_every_gpu_image_has_a_cpu_twin_with_its_frameworks_and_with_its_version_unless_it_is_listed(
    catalog: dict[str, Image],
) -> None:
    gpu_images = [image for image in catalog.values() if image.accelerator == "cuda"]
    assert len(gpu_images) >= 24
    for image in gpu_images:
        assert image.cpu_twin is not None
        assert set(catalog[image.cpu_twin].frameworks) >= set(image.frameworks)
    versions = {
        image.name: (image.framework_version, catalog[str(image.cpu_twin)].framework_version) for image in gpu_images
    }
    assert {name for name, (own, twin) in versions.items() if own != twin} == PROVED_ON_GPUS_ONLY


def test_every_lock_pins_the_framework_and_every_requirement_has_a_hash(catalog: dict[str, Image]) -> None:
    for image in catalog.values():
        pins = versions(image.lock_path)
        if image.source_builds:
            pins |= versions(image.sources_path)
        if image.julia:
            pins |= {name: pin.removeprefix("=") for name, pin in julia_project(image)["compat"].items()}
        assert any(version.split("+")[0] == image.framework_version for version in pins.values()), image.name
        assert "numpy" in pins, image.name


def test_julia_s_project_pins_every_package_and_julia_to_one_release(catalog: dict[str, Image]) -> None:
    images = [image for image in catalog.values() if image.julia]
    assert images
    for image in images:
        project = julia_project(image)
        assert set(project["compat"]) == {*project["deps"], "julia"}
        assert all(re.fullmatch(r"=\d+\.\d+\.\d+", pin) for pin in project["compat"].values()), image.name
        assert str(image.julia).startswith(f"julia:{project['compat']['julia'].removeprefix('=')}-")


def test_what_julia_installs_is_of_the_lock_s_digest(tmp_path: Path, catalog: dict[str, Image]) -> None:
    image = next(image for image in catalog.values() if image.julia)
    shutil.copytree(image.folder, tmp_path / image.name)
    copy = image.model_copy(update={"folder": tmp_path / image.name})
    assert copy.lock_sha256 == image.lock_sha256
    project = copy.folder / "Project.toml"
    project.write_text(project.read_text().replace("=0", "=1"))
    assert copy.lock_sha256 != image.lock_sha256
    project.write_bytes((image.folder / "Project.toml").read_bytes())
    assert copy.model_copy(update={"julia": "julia:1.0.0-bookworm"}).lock_sha256 != image.lock_sha256


@pytest.mark.parametrize(("extra", "file"), [('julia = "julia:1.10.10-bookworm"\n', None), ("", "Project.toml")])
def test_julia_s_image_and_its_project_go_together(tmp_path: Path, extra: str, file: str | None) -> None:
    path = add(tmp_path, "small-cpu", CPU + extra)
    if file:
        (path.parent / file).write_text("[deps]\n")
    with pytest.raises(CatalogError, match="julia: it and Project.toml do not go together"):
        load(tmp_path)


def test_a_lock_names_no_host_and_no_path(catalog: dict[str, Image]) -> None:
    for image in catalog.values():
        text = image.lock_path.read_text()
        assert not re.search(r"https?:|file:|--(index|extra|find|trusted)|/(home|root|opt|work|tmp)/", text), image.name


def test_a_lock_says_how_it_is_made_again_on_the_day_that_the_image_says(catalog: dict[str, Image]) -> None:
    for image in catalog.values():
        assert f"runner images lock {image.name} --date {image.locked}" in image.lock_path.read_text().splitlines()[0]


def test_a_lock_pins_every_package_that_its_requirements_name(catalog: dict[str, Image]) -> None:
    for image in catalog.values():
        found = versions(image.lock_path) | (versions(image.sources_path) if image.source_builds else {})
        pins = {name.lower().replace("_", "-"): version for name, version in found.items()}
        for line in (image.folder / "requirements.in").read_text().splitlines():
            if match := re.match(r"([\w-]+)(?:\[[^]]*\])?==(\S+)$", line):
                assert pins[match[1].lower()] == match[2], f"{image.name}: {line}"


def test_a_cpu_image_fetches_less_than_a_gigabyte(catalog: dict[str, Image]) -> None:
    assert all(image.download_bytes < 1e9 for image in catalog.values() if image.accelerator == "cpu")


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "field", "said"),
    [
        ("framework_version", "framwork_version", "framwork_version", "(did you mean 'framework_version'?)"),
        ('"3.11"', '"3.11.7"', "python", 'write it like `python = "3.11"`'),
        ('"3.11"', "3.11", "python", 'valid string; write it like `python = "3.11"`'),
        ('"cpu"', '"gpu"', "accelerator", "'gpu': input should be 'cpu' or 'cuda'; write it like"),
        ('["torch"]', '["pytorch"]', "frameworks", "'pytorch' has no adapter (did you mean 'torch'?); known are jax"),
        ('["torch"]', "[]", "frameworks", 'write it like `frameworks = ["torch"]`'),
        ('["torch"]', '["torch", "torch"]', "frameworks", "stands there twice; name each once"),
        ('["fp32"]', '["fp31"]', "precisions", 'write it like `precisions = ["fp32"]`'),
        ('["fp32"]', '["fp32", "tf32"]', "precisions", "a CPU has no tf32; remove it"),
        ("download_gb = 0.2", "download_gb = -1", "download_gb", "greater than 0; write it like `download_gb = 0.25`"),
        ("download_gb = 0.2", "", "download_gb", "it is missing; add `download_gb = 0.25`"),
        ("2026-11-20", '"soon"', "locked", "write it like `locked = 2026-11-20`"),
        ("download_gb", 'cuda = "12.8"\ndownload_gb', "cuda", 'remove it, or set accelerator = "cuda"'),
        ("download_gb", 'base_digest = "sha256:12"\ndownload_gb', "base_digest", "bases.toml; remove the line"),
        ("download_gb", 'extra_index = "http://x"\ndownload_gb', "extra_index", '`extra_index = "https://'),
        ("download_gb", 'extra_index = "https://me:secret@x"\ndownload_gb', "extra_index", "write it like"),
        ("download_gb", 'name = "x"\ndownload_gb', "name", "the folder's name says it; remove the line"),
    ],
)
def test_a_wrong_field_is_told_with_file_field_and_fix(
    tmp_path: Path, old: str, new: str, field: str, said: str
) -> None:
    assert CPU.count(old) >= 1
    path = add(tmp_path, "small-cpu", CPU.replace(old, new, 1))
    with pytest.raises(CatalogError) as error:
        load(tmp_path)
    lines = str(error.value).splitlines()
    assert any(line.startswith(f"{path}: {field}: ") and said in line for line in lines), lines


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("python", "not TOML: "),
        ('"python:3.11" = "sha256:12"', "python:3.11: 'sha256:12' is no digest; write it like \"sha256:<64 hex"),
        ('"python:3.11" = 12', "python:3.11: 12 is no digest"),
    ],
)
def test_a_wrong_digest_of_a_base_is_named_with_its_file(tmp_path: Path, text: str, said: str) -> None:
    add(tmp_path, "small-cpu", CPU)
    (tmp_path / "bases.toml").write_text(text)
    with pytest.raises(CatalogError) as error:
        load(tmp_path)
    assert str(error.value).startswith(f"{tmp_path / 'bases.toml'}: {said}")


@pytest.mark.parametrize(
    ("old", "new", "field", "said"),
    [
        ('cudnn = "9.10.2.21"\n', "", "cudnn", 'a cuda image must have it; add `cudnn = "9.10.2.21"`'),
        ('"7.0"', '"13.0"', "min_compute_capability", "it is above max_compute_capability; swap the two"),
        ("base = ", 'no_code_for = ["13.0"]\nbase = ', "no_code_for", "13.0 is not between 7.0 and 12.0; remove it"),
        ("base = ", 'ptx_only = { "6.0" = "12.5" }\nbase = ', "ptx_only", "6.0 is not between 7.0 and 12.0; remove it"),
        ("base = ", 'ptx_only = { "9.0" = "12.4" }\nbase = ', "ptx_only", "PTX of CUDA 12.4 is not known"),
        ("base = ", 'no_code_for = ["08.0"]\nbase = ', "no_code_for", """'08.0': string should match"""),
        ("base = ", 'no_code_for = ["08.0"]\nbase = ', "no_code_for", 'write it like `no_code_for = ["10.0"]`'),
        ("base = ", 'ptx_only = { "\u0669.0" = "12.5" }\nbase = ', "ptx_only", 'write it like `ptx_only = { "9.0" = '),
        ("base = ", 'ptx_only = { "9.0" = "1\u0662.5" }\nbase = ', "ptx_only", 'write it like `ptx_only = { "9.0" = '),
        ("base = ", 'ptx_only = { 9 = "12.5" }\nbase = ', "ptx_only", 'write it like `ptx_only = { "9.0" = "12.5" }`'),
        ("base = ", 'no_code_for = ["9.0"]\nptx_only = { "9.0" = "12.5" }\nbase = ', "no_code_for", "9.0 is also in"),
        ('"small-cpu"', '"smal-cpu"', "cpu_twin", "is not in the catalog (did you mean 'small-cpu'?)"),
        ('"small-cpu"', '"big-gpu"', "cpu_twin", "'big-gpu' is no cpu image; name one that is"),
        ('["torch"]', '["jax"]', "cpu_twin", "does not serve jax; name one that serves jax"),
    ],
)
def test_what_does_not_fit_together_is_told_too(tmp_path: Path, old: str, new: str, field: str, said: str) -> None:
    add(tmp_path, "small-cpu", CPU)
    path = add(tmp_path, "big-gpu", GPU.replace(old, new, 1))
    with pytest.raises(CatalogError) as error:
        load(tmp_path)
    assert str(error.value).startswith(f"{path}: {field}: ")
    assert said in str(error.value)


def test_all_that_is_wrong_is_told_at_once(tmp_path: Path) -> None:
    add(tmp_path, "a", CPU.replace('"3.11"', '"3"').replace("download_gb = 0.2", ""))
    add(tmp_path, "b", CPU.replace('"cpu"', '"tpu"'))
    with pytest.raises(CatalogError) as error:
        load(tmp_path)
    assert len(str(error.value).splitlines()) == 3


def test_a_file_that_is_no_toml_is_told_with_its_line(tmp_path: Path) -> None:
    path = add(tmp_path, "small-cpu", CPU.replace('"3.11"', "three"))
    with pytest.raises(CatalogError, match=rf"{path}: not TOML: .*line 3.*; fix that line"):
        load(tmp_path)


@pytest.mark.parametrize("missing", ["image.toml", "requirements.in", "requirements.lock"])
def test_a_missing_file_is_named(tmp_path: Path, missing: str) -> None:
    path = add(tmp_path, "small-cpu", CPU).with_name(missing)
    path.unlink()
    with pytest.raises(CatalogError, match=str(path)) as error:
        load(tmp_path)
    assert "missing" in str(error.value)


@pytest.mark.parametrize("name", ["Torch", "torch 2", "torch--cpu", "-torch"])
def test_a_folder_that_cannot_name_an_image_is_refused(tmp_path: Path, name: str) -> None:
    add(tmp_path, name, CPU)
    with pytest.raises(CatalogError, match="a folder's name is an image's name"):
        load(tmp_path)


def test_no_folder_at_all_is_told() -> None:
    with pytest.raises(CatalogError, match="no such folder"):
        load(Path("/nowhere"))


def test_an_image_cannot_be_changed_once_it_is_made(catalog: dict[str, Image]) -> None:
    image = next(iter(catalog.values()))
    with pytest.raises(ValueError, match="frozen"):
        image.python = "3.9"  # type: ignore[misc]


# -- choosing ----------------------------------------------------------------------------------------------------------


def test_images_are_chosen_by_patterns(catalog: dict[str, Image]) -> None:
    names = [image.name for image in select_images(catalog, ["torch-*", "jax-*-cpu"])]
    assert names == ["jax-0.10.2-cpu", *sorted(name for name in catalog if name.startswith("torch-"))]
    assert {"torch-1.13.1-cu117", "torch-2.13.0-cpu"} < set(names)


def test_a_pattern_that_fits_nothing_is_told_with_what_was_meant(catalog: dict[str, Image]) -> None:
    with pytest.raises(
        CatalogError, match=r"no image is called 'torch-2.13-cpu' \(did you mean 'torch-2.13.0-cpu'\?\)"
    ):
        select_images(catalog, ["torch-2.13-cpu"])


# -- locks -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "torch==2.13.0",
        "torch>=2.13.0 --hash=sha256:" + "0" * 64,
        "torch==2.13.0 --hash=md5:" + "0" * 32,
        "--index-url https://example.org",
        "torch @ https://example.org/torch.whl",
        "-e .",
    ],
)
def test_a_lock_line_that_is_no_pin_with_a_hash_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "small-cpu" / "requirements.lock"
    path.parent.mkdir()
    path.write_text(f"numpy==2.4.6 --hash=sha256:{'1' * 64}\n{line}\n")
    with pytest.raises(CatalogError, match=r"runner images lock \S*small-cpu"):
        versions(path)


def test_an_empty_lock_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "requirements.lock"
    path.write_text("# nothing\n")
    with pytest.raises(CatalogError, match="holds no requirement"):
        versions(path)


def test_what_is_of_the_machine_that_resolved_is_not_in_the_lock(catalog: dict[str, Image]) -> None:
    resolved = f"""\
# uv pip compile /home/someone/requirements.in
--find-links /srv/wheels
--index-url https://packages.example.org/simple
torch==2.13.0+cpu \\
    --hash=sha256:{"0" * 64}
    # via -r /home/someone/requirements.in
"""
    text = locking.lock_text(catalog["torch-2.13.0-cpu"], date(2026, 11, 20), "0.13.8", resolved)
    assert text.splitlines()[2:] == ["torch==2.13.0+cpu \\", f"    --hash=sha256:{'0' * 64}"]


def test_a_lock_that_cannot_be_made_leaves_the_old_one(
    tmp_path: Path, catalog: dict[str, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "torch-2.13.0-cpu"
    shutil.copytree(catalog["torch-2.13.0-cpu"].folder, folder)
    image = catalog["torch-2.13.0-cpu"].model_copy(update={"folder": folder, "extra_index": None})
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    (folder / "requirements.in").write_text("torch===\n")
    with pytest.raises(locking.LockError, match="cannot be resolved as of 2026-01-02"):
        locking.make_lock(image, date(2026, 1, 2), lambda line: None)
    (folder / "requirements.in").write_bytes(before["requirements.in"])
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

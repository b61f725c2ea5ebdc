"""NVIDIA's wheels lie in layers that images share: what decides a layer, who shares it, and what that saves."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.images import PROJECT, Image, load_catalog, read_pins
from runner.images import generated_files, lock_facts
from runner.images import recipe as recipes
from runner.images.transfer import registry

A, B = "a" * 64, "b" * 64


@pytest.fixture(scope="module")
def catalog() -> dict[str, Image]:
    return load_catalog()


def of_nvidia(image: Image) -> set[Any]:
    return {pin for pin in read_pins(image.lock_path) if pin.name.startswith("nvidia-")}


def with_lock(image: Image, folder: Path, text: str) -> Image:
    folder.mkdir()
    (folder / "requirements.lock").write_text(text)
    return image.model_copy(update={"folder": folder})


def tags(image: Image, base: str = "site:3.12") -> list[str]:
    return recipes.recipe(image, base).nvidia_tags


def test_the_layers_hold_each_of_nvidia_s_pins_once_and_no_other(catalog: dict[str, Image], tmp_path: Path) -> None:
    with_layers = 0
    for image in catalog.values():
        layers = recipes.recipe(image).nvidia
        pins = [pin for layer in layers for pin in layer.pins]
        if not pins:
            assert not of_nvidia(image), image.name
            continue
        with_layers += 1
        # Read back as a lock: the same names, versions and hashes.
        lock = tmp_path / image.name
        lock.write_text("\n".join(pins))
        assert len(pins) == len(of_nvidia(image)), image.name
        assert set(read_pins(lock)) == of_nvidia(image), image.name
        assert [wheel for layer in layers for wheel in layer.wheels] == [pin.split()[0] for pin in pins]
        assert all(layer.pins for layer in layers)
        assert len(layers) <= 5
    assert with_layers > 20


def test_images_whose_locks_agree_have_the_same_layers_below_them(catalog: dict[str, Image]) -> None:
    jax, tensorflow, torch, inference = (
        recipes.recipe(catalog[name])
        for name in ("jax-0.12.0.1-cu128", "tensorflow-2.21.0-cu128", "torch-2.9.1-cu128", "onnxruntime-1.26.0-cu128")
    )
    # cuBLAS and its companions, cuDNN, the solvers, NCCL; then each has its own.
    assert jax.nvidia_tags[:4] == tensorflow.nvidia_tags[:4]
    assert jax.nvidia_tags[:3] == torch.nvidia_tags[:3]
    assert jax.nvidia_tags[:2] == inference.nvidia_tags[:2]
    assert len({jax.nvidia_tags[4], tensorflow.nvidia_tags[4], torch.nvidia_tags[4], inference.nvidia_tags[2]}) == 4
    assert jax.nvidia_tags[3] != torch.nvidia_tags[3]  # another NCCL
    # The same wheels on another CUDA's are another layer in the engine, and the same bytes in a registry.
    older = recipes.recipe(catalog["jax-0.12.0.1-cu126"])
    assert older.nvidia_tags[1] != jax.nvidia_tags[1]
    assert older.nvidia[1].pins == jax.nvidia[1].pins
    assert jax.below_tag == jax.nvidia_tags[-1]
    assert len({jax.layers, tensorflow.layers, torch.layers, inference.layers}) == 4


def test_a_layer_follows_from_the_base_and_the_wheels_below_and_in_it_alone(image: Image, tmp_path: Path) -> None:
    lock = (
        f"attrs==25.1 \\\n    --hash=sha256:{A}\n"
        f"nvidia-cublas-cu12==12.8.4.1 \\\n    --hash=sha256:{A} \\\n    --hash=sha256:{B}\n"
        f"nvidia-cudnn-cu12==9.10.2.21 \\\n    --hash=sha256:{B}\n"
    )
    first = with_lock(image, tmp_path / "first", lock)
    assert [layer.wheels for layer in recipes.recipe(first).nvidia] == [
        ["nvidia-cublas-cu12==12.8.4.1"],
        ["nvidia-cudnn-cu12==9.10.2.21"],
    ]
    before = tags(first)

    def changed(name: str, old: str, new: str) -> list[bool]:
        assert old in lock
        other = with_lock(image, tmp_path / name, lock.replace(old, new)).model_copy(update={"name": name})
        other = other.model_copy(update={"frameworks": ("jax",), "debian": {"ed": "ed"}, "notes": "Another."})
        return [tag != one for tag, one in zip(tags(other), before, strict=True)]

    assert changed("another-package", "attrs==25.1", "attrs==25.2") == [False, False]
    assert (
        changed("hashes-in-another-order", f"{A} \\\n    --hash=sha256:{B}", f"{B} \\\n    --hash=sha256:{A}")
        == [False] * 2
    )
    assert changed("another-cudnn", "9.10.2.21", "9.10.2.22") == [False, True]
    assert changed("another-cublas", "12.8.4.1", "12.8.4.2") == [True, True]
    assert changed("another-hash", f" \\\n    --hash=sha256:{B}\nnvidia-cudnn", "\nnvidia-cudnn") == [True, True]
    assert not set(before) & set(tags(first, "site:3.13"))


@pytest.fixture
def image(catalog: dict[str, Image]) -> Image:
    return catalog["torch-2.9.1-cu128"]


def test_an_edit_of_its_dockerfile_changes_every_layer_and_the_images_on_them_only(
    image: Image, catalog: dict[str, Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def inputs(*of: Image) -> list[str]:
        return [text for one in of for text in (*tags(one), recipes.recipe(one).layers)]

    cpu = catalog[str(image.cpu_twin)]
    before, of_the_cpu, labels = inputs(image), inputs(cpu), recipes.recipe(image).labels("")
    for name in ("bench", "Dockerfile.base"):
        (tmp_path / name).symlink_to(PROJECT / name)
    shutil.copytree(PROJECT / "images", tmp_path / "images", ignore=shutil.ignore_patterns("*-c*"))
    with (tmp_path / "images" / "Dockerfile.nvidia").open("a") as file:
        file.write("# edited\n")
    monkeypatch.setattr(recipes, "PROJECT", tmp_path)
    assert not set(before) & set(inputs(image))
    assert registry.other_inputs(labels, recipes.recipe(image)) == ["other layers of NVIDIA's wheels"]
    assert inputs(cpu) == of_the_cpu
    assert tags(cpu) == []


def test_every_name_of_a_build_is_removed_after_its_proof_and_kept_for_another_checkout(image: Image) -> None:
    wanted = recipes.recipe(image)
    # From the image down: a name whose layers others need goes last.
    assert wanted.names[-1 - len(wanted.nvidia) :] == [*reversed(wanted.nvidia_tags), wanted.base_tag]


def test_what_the_dockerfile_gives_to_pip_is_a_lock_of_the_layer_s_pins(image: Image, tmp_path: Path) -> None:
    text = (PROJECT / "images" / "Dockerfile.nvidia").read_text()
    loop = re.search(r"for word in \$WHEELS.*?done", text, flags=re.S)
    assert loop
    for layer in recipes.recipe(image).nvidia:
        script = loop[0].replace("\\\n", "")
        ended = subprocess.run(["sh", "-euc", script], env={"WHEELS": layer.argument}, capture_output=True, check=True)
        assert ended.stdout.decode().strip().split("\n") == list(layer.pins)


def test_bake_builds_the_same_layers_each_once(catalog: dict[str, Image]) -> None:
    targets = json.loads(generated_files.bake_text(catalog.values()))["target"]
    for image in catalog.values():
        below, pins = targets[re.sub(r"[^A-Za-z0-9_-]", "_", image.name)], list[str]()
        while "dlbench/base" in below.get("contexts", {}):
            below = targets[below["contexts"]["dlbench/base"].removeprefix("target:")]
            if below["dockerfile"] == "images/Dockerfile.nvidia":
                pins.insert(0, below["args"]["WHEELS"])
        assert pins == [layer.argument for layer in recipes.shared_layers(image)], image.name
        assert below["dockerfile"] == "Dockerfile.base"
    made = [target for target in targets.values() if target["dockerfile"] == "images/Dockerfile.nvidia"]
    shared = {(image.base, layer.digest) for image in catalog.values() for layer in recipes.shared_layers(image)}
    assert len(made) == len(shared)


def test_the_groups_come_near_to_what_a_layer_for_each_wheel_would_save(catalog: dict[str, Image]) -> None:
    once: dict[tuple[str, str], int] = {}
    layers: dict[tuple[str, tuple[str, ...]], int] = {}
    everything = 0
    for image in catalog.values():
        sizes = lock_facts.wheel_bytes(image)
        for layer in recipes.shared_layers(image):
            for pin, wheel in zip(layer.pins, layer.wheels, strict=True):
                once[image.base, pin] = sizes[wheel]
            layers[image.base, layer.pins] = sum(sizes[wheel] for wheel in layer.wheels)
            everything += layers[image.base, layer.pins]
    best, saved = (everything - sum(kept.values()) for kept in (once, layers))
    assert saved >= 0.9 * best > 10e9
    rows = {row[0]: row[1] for row in generated_files._gigabytes(catalog.values())}
    assert rows["without shared layers"] == f"{everything / 1e9:.1f} GB"
    assert rows["in a registry"] == f"{sum(layers.values()) / 1e9:.1f} GB"


def test_a_seal_holds_what_each_of_nvidia_s_wheels_weighs(catalog: dict[str, Image]) -> None:
    for image in catalog.values():
        sizes = lock_facts.wheel_bytes(image)
        assert set(sizes) == {f"{pin.name}=={pin.version}" for pin in of_nvidia(image)}, image.name
        assert sum(sizes.values()) < image.download_bytes

"""The images between two images: which pins change together, and what is written of each."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from runner import paths
from runner.blame import ladder
from runner.catalog.images import CatalogError, Image, load_catalog, read_pins
from runner.images import locking
from runner.images.locking import LockError, UnresolvableError

CUDA = {
    "cuda": '"12.6.3"',
    "cudnn": '"9.10.2.21"',
    "nccl": '"2.27.7"',
    "min_driver": '"525.60.13"',
    "min_compute_capability": '"7.0"',
    "max_compute_capability": '"9.0"',
}
OLD = {"jax": "1.0", "jaxlib": "1.0", "nvidia-cuda-runtime-cu12": "12.6", "nvidia-cudnn-cu12": "9.1", "numpy": "1.4"}
NEW = {"jax": "2.0", "jaxlib": "2.0", "nvidia-cuda-runtime-cu12": "12.8", "nvidia-cudnn-cu12": "9.2", "numpy": "2.4"}


def write(folder: Path, locked: Mapping[str, str], version: str, **fields: str) -> Image:
    """An image of the framework jax, in a folder of a catalog."""
    folder.mkdir(parents=True)
    own = {
        "frameworks": '["jax"]',
        "framework_version": f'"{version}"',
        "python": '"3.12"',
        "accelerator": '"cuda"',
        "base": '"python:3.12-slim-bookworm"',
        "precisions": '["fp32"]',
        "locked": "2026-11-20",
        "download_gb": "1.0",
    }
    (folder / "image.toml").write_text("".join(f"{name} = {value}\n" for name, value in (own | CUDA | fields).items()))
    (folder / "requirements.in").write_text(f"jax[cuda12]=={version}  # a comment\n")
    (folder / "requirements.lock").write_text(
        "".join(
            f"{name}=={number} \\\n    --hash=sha256:{hashlib.sha256(f'{name}{number}'.encode()).hexdigest()}\n"
            for name, number in locked.items()
        )
    )
    return load_catalog(folder.parent)[folder.name]


@pytest.fixture
def two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Image, Image]:
    """Two images of which jax 2.0 needs numpy 2.4, in a cache of their own, with a resolver that knows that."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(locking, "resolve", resolve)
    first = write(tmp_path / "images" / "jax-1-cu126", OLD, "1.0")
    return first, write(tmp_path / "images" / "jax-2-cu126", NEW, "2.0")


def resolve(image: Image, requirements: Path, *_: Any) -> str:
    text = requirements.read_text()
    if "jax[cuda12]==2.0" in text and "numpy==1.4" in text:
        raise UnresolvableError("jax 2.0 needs numpy 2.4")
    return re.sub(r"\[.*?\]", "", text)


def made(two: tuple[Image, Image]) -> ladder.Ladder:
    return ladder.make(*two, lambda _: None)


def test_each_step_changes_one_part_or_what_only_resolves_together(two: tuple[Image, Image]) -> None:
    result = made(two)
    assert [image.name for image in result.images] == [
        "jax-1-cu126", "jax-1-cu126-step-1", "jax-1-cu126-step-2", "jax-1-cu126-step-3", "jax-2-cu126",
    ]  # fmt: skip
    locks = [{pin.name: pin.version for pin in read_pins(image.lock_path)} for image in result.images]
    changed = [
        {name for name in before if before[name] != after[name]}
        for before, after in zip(locks, locks[1:], strict=False)
    ]
    assert changed == [{"nvidia-cuda-runtime-cu12"}, {"nvidia-cudnn-cu12"}, {"numpy"}, {"jax", "jaxlib"}]
    assert result.steps[-1] == "jax 1.0 → 2.0 with 1 more"


def test_an_image_between_two_is_whole_and_keeps_the_hashes(two: tuple[Image, Image]) -> None:
    # It is of another architecture, for which there is no ladder.
    (two[1].folder / "requirements.aarch64.lock").write_text("torch==2.0\n")
    result = made(two)
    between = result.images[2]
    hashes = {pin for image in two for pin in read_pins(image.lock_path)}
    assert set(read_pins(between.lock_path)) <= hashes
    assert between.cudnn == "9.2"
    assert between.framework_version == "1.0"
    assert between.seal_path.is_file()
    assert result.images[0].lock_path.read_bytes() == two[0].lock_path.read_bytes()


def test_a_ladder_that_was_made_is_read(two: tuple[Image, Image], monkeypatch: pytest.MonkeyPatch) -> None:
    result = made(two)
    monkeypatch.setattr(locking, "resolve", None)
    assert made(two) == result


def test_packages_that_need_one_another_change_in_one_step(two: tuple[Image, Image]) -> None:
    first, second = map(ladder.pinned_image, two)
    framework, numpy = frozenset({"jax", "jaxlib"}), frozenset({"numpy"})
    found = ladder.steps(first, second, lambda changed: (framework <= changed) == (numpy <= changed))
    assert found == [frozenset({"nvidia-cuda-runtime-cu12"}), frozenset({"nvidia-cudnn-cu12"}), framework | numpy]


def test_small_packages_change_together_where_the_ladder_is_long(tmp_path: Path) -> None:
    others = [f"package-{number}" for number in range(20)]
    first = write(tmp_path / "jax-1-cu126", OLD | dict.fromkeys(others, "1.5"), "1.0")
    second = write(tmp_path / "jax-2-cu126", NEW | dict.fromkeys(others, "1.6"), "2.0")
    found = ladder.steps(ladder.pinned_image(first), ladder.pinned_image(second), lambda _: True)
    assert len(found) == ladder.MOST_STEPS
    assert found[:3] == [
        frozenset({"jax", "jaxlib"}), frozenset({"nvidia-cuda-runtime-cu12"}), frozenset({"nvidia-cudnn-cu12"}),
    ]  # fmt: skip
    assert max(map(len, found[3:])) <= 10


def test_a_package_that_is_only_added_changes_with_the_step_after_it(tmp_path: Path) -> None:
    first = write(tmp_path / "jax-1-cu126", {"jax": "1.0", "numpy": "1.5"}, "1.0")
    second = write(tmp_path / "jax-2-cu126", {"jax": "2.0", "numpy": "1.6", "helper": "3.0"}, "2.0")
    found = ladder.steps(
        ladder.pinned_image(first),
        ladder.pinned_image(second),
        lambda changed: "jax" not in changed or "helper" in changed,
    )
    assert found == [frozenset({"helper", "numpy"}), frozenset({"jax"})]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"python": '"3.13"'}, "image.toml: python: one has 3.12, the other 3.13"),
        ({"frameworks": '["torch"]'}, "one serves jax and the other torch"),
        ({"base": '"python:3.12-slim-trixie"'}, "image.toml: base: "),
    ],
)
def test_images_that_differ_in_what_no_pin_holds_are_refused(
    tmp_path: Path, fields: dict[str, str], words: str
) -> None:
    first = write(tmp_path / "jax-1-cu126", OLD, "1.0")
    second = write(tmp_path / "jax-2-cu126", NEW, "2.0", **fields)
    with pytest.raises(ladder.LadderError, match=re.escape(words)):
        ladder.make(first, second, lambda _: None)


def test_images_whose_pins_only_change_at_once_are_a_ladder_of_one_step(
    two: tuple[Image, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    def all_or_none(image: Image, requirements: Path, *_: Any) -> str:
        text = resolve(image, requirements)
        numbers = set(re.findall(r"==(.*)$", text, flags=re.M))
        if numbers not in (set(OLD.values()), set(NEW.values())):
            raise UnresolvableError("mixed")
        return text

    monkeypatch.setattr(locking, "resolve", all_or_none)
    result = made(two)
    assert [image.name for image in result.images] == ["jax-1-cu126", "jax-2-cu126"]
    assert len(result.steps) == 1


def test_a_network_that_fails_is_said_and_not_taken_for_pins_that_do_not_fit(
    two: tuple[Image, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    def offline(*_: Any) -> str:
        raise LockError("the index cannot be reached")

    monkeypatch.setattr(locking, "resolve", offline)
    with pytest.raises(LockError, match="the index cannot be reached"):
        made(two)


def test_a_network_that_fails_later_is_said_too_and_leaves_no_ladder(
    two: tuple[Image, Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Path] = []

    def offline(image: Image, requirements: Path, *_: Any) -> str:
        calls.append(requirements)
        if len(calls) == 3:
            raise LockError("the index cannot be reached")
        return resolve(image, requirements)

    monkeypatch.setattr(locking, "resolve", offline)
    with pytest.raises(LockError, match="the index cannot be reached"):
        made(two)
    assert list((paths.cache_folder() / "ladders").iterdir()) == []
    assert len(made(two).steps) == 4


def test_a_ladder_is_made_again_where_a_file_of_it_or_of_an_end_is_another(two: tuple[Image, Image]) -> None:
    first = made(two)
    (first.images[1].folder / "requirements.lock").unlink()
    assert made(two) == first
    assert first.images[1].lock_path.is_file()
    for image in two:
        (image.folder / "finish.sh").write_text("true\n")
    again = made(two)
    assert again.folder != first.folder
    assert all((image.folder / "finish.sh").is_file() for image in again.images)


def test_the_two_images_of_a_step_have_a_ladder_of_their_own(two: tuple[Image, Image]) -> None:
    whole = made(two)
    below = made((whole.images[0], whole.images[2]))
    assert [image.name for image in below.images] == ["jax-1-cu126", "jax-1-cu126-step-step-1", "jax-1-cu126-step-2"]


def test_one_image_is_read_whatever_lies_beside_its_folder(two: tuple[Image, Image]) -> None:
    (two[0].folder.parent / "results").mkdir()
    assert ladder.named_image(str(two[0].folder)).name == two[0].name


def test_another_package_that_has_the_framework_s_version_by_chance_is_no_part_of_it(tmp_path: Path) -> None:
    first = write(tmp_path / "jax-1-cu126", OLD | {"aaa": "1.0"}, "1.0")
    second = write(tmp_path / "jax-2-cu126", NEW | {"aaa": "1.7"}, "2.0")
    sides = ladder.pinned_image(first), ladder.pinned_image(second)
    assert ladder.framework_of(*sides) == {"jax", "jaxlib"}
    assert frozenset({"aaa"}) in ladder.parts(*sides)


def test_a_word_that_is_no_image_is_refused() -> None:
    with pytest.raises(CatalogError, match="no image of the catalog, nor a folder"):
        ladder.named_image("no-such-image")

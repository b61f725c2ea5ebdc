"""ImageNet: folders of classes, tar shards, three kinds of pictures, what is broken in them, and a stand-in that a network can learn."""

from __future__ import annotations

import io
import subprocess
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from bench.data import imagenet, jpeg, pictures, png
from bench.errors import DataError


def picture(shade: int = 0) -> np.ndarray:
    return np.full((256, 256, 3), shade, np.uint8)


def npy(pixels: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.save(stream, pixels)
    return stream.getvalue()


def folder_of(path: Path, train: dict[str, bytes], val: dict[str, bytes]) -> str:
    """A folder with the classes' pictures: "fish/a.png" -> its bytes."""
    for part, files in (("train", train), ("val", val)):
        for name, content in files.items():
            at = path / part / name
            at.parent.mkdir(parents=True, exist_ok=True)
            at.write_bytes(content)
    return str(path)


def shard_of(path: Path, members: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def load(folder: str | None, train: int = 100, test: int = 100, cache: str = "") -> imagenet.Pictures:
    return imagenet.load(folder, train, test, 1, cache)


WHITE = png.write(picture(255))


def test_classes_are_counted_in_the_order_of_their_folders_names(tmp_path: Path) -> None:
    train = {"n03/x.png": WHITE, "n01/b.PNG": WHITE, "n01/a.npy": npy(picture(7)), "n02/notes.txt": b"no picture"}
    found = load(folder_of(tmp_path, train, {"n03/v.png": WHITE}))
    assert [Path(each[0]).name for each in found.train.pictures] == ["a.npy", "b.PNG", "x.png"]
    assert found.train.labels.tolist() == [0, 0, 2]
    assert found.test.labels.tolist() == [2]
    assert found.train.labels.dtype == np.int32
    assert (found.name, found.source, found.validation) == ("imagenet (3 of 1000 classes)", "files", None)
    assert (found.train.read(found.train.pictures[0]) == 7).all()
    assert found.train.read(found.train.pictures[1]).shape == (256, 256, 3)


def test_folders_that_hold_no_file_are_no_classes(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, {"n01/a.png": WHITE, "n02/b.png": WHITE}, {"n02/v.png": WHITE})
    for part in ("train", "val"):
        (tmp_path / part / "lost+found").mkdir()
        (tmp_path / part / "__MACOSX" / "n01").mkdir(parents=True)
    found = load(folder)
    assert found.name == "imagenet (2 of 1000 classes)"
    assert (found.train.labels.tolist(), found.test.labels.tolist()) == ([0, 1], [1])


def test_fewer_are_taken_evenly_spaced(tmp_path: Path) -> None:
    found = load(folder_of(tmp_path, {f"c/{index}.png": WHITE for index in range(10)}, {"c/v.png": WHITE}), train=5)
    assert [Path(each[0]).stem for each in found.train.pictures] == ["0", "2", "4", "6", "8"]


def test_a_missing_part_an_unknown_class_or_an_empty_part_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere cannot be read"):
        load(str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match=r"train is missing \(it is empty\): put ImageNet's classes there"):
        load(str(tmp_path))
    folder_of(tmp_path, {"fish/a.png": WHITE}, {"bird/a.png": WHITE})
    with pytest.raises(DataError, match=r"bird is no class of .*train: sort the validation pictures"):
        load(str(tmp_path))
    (tmp_path / "val" / "bird").rename(tmp_path / "val" / "fish")
    (tmp_path / "val" / "fish" / "a.png").unlink()
    with pytest.raises(DataError, match=r"val has no pictures .* in folders of their classes; it holds fish"):
        load(str(tmp_path))
    (tmp_path / "val" / "ILSVRC2012_val_00000001.JPEG").write_bytes(WHITE)
    with pytest.raises(DataError, match=r"val has its pictures in no folder of a class .*: move each into"):
        load(str(tmp_path))


@pytest.mark.parametrize("given", ["", "ILSVRC", "ILSVRC/Data"])
def test_the_path_to_give_is_told_of_imagenet_as_kaggle_packs_it(tmp_path: Path, given: str) -> None:
    inner = tmp_path / "ILSVRC" / "Data" / "CLS-LOC"
    folder_of(inner, {"fish/a.png": WHITE}, {"fish/a.png": WHITE})
    with pytest.raises(
        DataError, match=f"as Kaggle packs it: name {inner} instead; store every picture once at 256 x 256"
    ):
        load(str(tmp_path / given))
    assert len(load(str(inner)).train.pictures) == 1


def test_the_commands_that_unpack_imagenet_as_it_is_downloaded_are_told_and_work(tmp_path: Path) -> None:
    of_class = shard_of(tmp_path / "n01440764.tar", {"n01440764_1.JPEG": WHITE})
    folder = tmp_path / "data"
    folder.mkdir()
    shard_of(folder / "ILSVRC2012_img_train.tar", {of_class.name: of_class.read_bytes()})
    shard_of(folder / "ILSVRC2012_img_val.tar", {"ILSVRC2012_val_00000001.JPEG": WHITE})
    for part in ("train", "val"):
        with pytest.raises(DataError, match=f"ILSVRC2012_img_{part}.tar is ImageNet as it is downloaded") as error:
            load(str(folder))
        assert "256 x 256" in str(error.value)
        subprocess.run(["sh", "-c", str(error.value).split("`")[1]], cwd=folder, check=True)
    assert [path.name for path in (folder / "train").iterdir()] == ["n01440764"]
    with pytest.raises(DataError, match=r"val has its pictures in no folder of a class .*: move each into"):
        load(str(folder))
    (folder / "val" / "n01440764").mkdir()
    (folder / "val" / "ILSVRC2012_val_00000001.JPEG").rename(folder / "val" / "n01440764" / "v.JPEG")
    assert len(load(str(folder)).train.pictures) == 1


def test_hidden_files_that_a_mac_leaves_beside_pictures_are_passed_over(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a", {"fish/a.png": WHITE, "fish/._a.png": b"", "._fish": b""}, {"fish/v.png": WHITE})
    assert len(load(folder).train.pictures) == 1
    shard = shard_of(tmp_path / "train-0.tar", {"x.png": WHITE, "._x.png": b"", "x.cls": b"3", "._x.cls": b""})
    assert [label for _, label in imagenet.read_shard(str(shard))] == [3]


def test_more_classes_than_the_network_tells_apart_are_refused(tmp_path: Path) -> None:
    for index in range(1001):
        (tmp_path / "train" / f"{index:04}").mkdir(parents=True)
        (tmp_path / "train" / f"{index:04}" / "a.png").touch()
    with pytest.raises(DataError, match="has 1001 folders, and the network tells 1000 classes apart"):
        load(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("wide.png", png.write(np.zeros((256, 300, 3), np.uint8)), "is 300 x 256 pixels"),
        ("torn.png", WHITE[:100], "is cut short|is damaged"),
        ("text.jpg", b"hello", "is no PNG, no .npy and no JPEG"),
        ("empty.png", b"", "is no PNG, no .npy and no JPEG"),
        ("small.npy", npy(np.zeros((8, 8, 3), np.uint8)), r"is uint8 \(8, 8, 3\)"),
        ("float.npy", npy(np.zeros((256, 256, 3), np.float32)), "is float32"),
        ("objects.npy", npy(np.array([None])), "is object"),
        (
            "columns.npy",
            npy(np.asfortranarray(np.zeros((256, 256, 3), np.uint8))),
            r"is uint8 \(256, 256, 3\), columns first",
        ),
        ("torn.npy", npy(picture())[:-1], "has 196607 bytes of pixels and not 196608"),
        ("header.npy", b"\x93NUMPY\x01\x00\xff\xff{", "has a damaged .npy header"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value and " " not in value else "",
)
def test_a_picture_that_cannot_be_used_is_told_with_its_path_and_the_fix(
    tmp_path: Path, name: str, content: bytes, says: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=rf"{name} ({says}).*; store every picture once at 256 x 256"):
        imagenet.read_picture((str(tmp_path / name), None, None))


def slopes() -> np.ndarray:
    """uint8 (256, 256, 3): red grows to the right, green downwards, blue along both."""
    y, x = np.mgrid[:256, :256]
    return np.stack([x, y, (x + y) // 2], axis=2).astype(np.uint8)


def as_jpeg(pixels: np.ndarray, mode: str = "RGB", **options: Any) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, "JPEG", quality=95, **options)
    return stream.getvalue()


def test_jpegs_of_every_kind_that_imagenet_has_become_rgb(tmp_path: Path) -> None:
    train = {
        "n01/colour.JPEG": as_jpeg(slopes()),
        "n01/progressive.jpg": as_jpeg(slopes(), progressive=True),
        "n02/cmyk.JPEG": as_jpeg(slopes(), "CMYK"),
        "n02/grey.jpeg": as_jpeg(slopes(), "L"),
        "n02/png_all_the_same.JPEG": png.write(slopes()),  # ImageNet has one
    }
    found = load(folder_of(tmp_path, train, {"n02/v.JPEG": as_jpeg(slopes())}))
    assert (found.train.labels.tolist(), found.test.labels.tolist()) == ([0, 0, 1, 1, 1], [1])
    grey = np.asarray(Image.fromarray(slopes()).convert("L"))[:, :, None]
    for place in found.train.pictures:
        pixels = found.train.read(place)
        wanted = grey if "grey" in place[0] else slopes()
        assert (pixels.dtype, pixels.shape) == (np.uint8, (256, 256, 3))
        assert np.abs(pixels.astype(int) - wanted).max() <= 4, place
    x, labels = pictures.batch(found.train, np.arange(5), pictures.centre(5, found.train.stored))
    assert (x.shape, labels.tolist()) == ((5, 3, 224, 224), [0, 0, 1, 1, 1])


def test_jpegs_are_read_from_shards(tmp_path: Path) -> None:
    for part in ("train", "val"):
        shard_of(tmp_path / f"{part}-0.tar", {"1.jpg": as_jpeg(slopes()), "1.cls": b"3", "2.jpg": b"", "2.cls": b"4"})
    part = load(str(tmp_path)).train
    assert np.abs(part.read(part.pictures[0]).astype(int) - slopes()).max() <= 4
    with pytest.raises(DataError, match=r"train-0\.tar at byte \d+ is no PNG, no .npy and no JPEG"):
        part.read(part.pictures[1])


def bad_jpegs() -> dict[str, tuple[bytes, str]]:
    good = as_jpeg(slopes())
    progressive = as_jpeg(picture(90), "L", progressive=True)
    scan = progressive[progressive.rindex(jpeg.SCAN) : -2]
    size = good.index(b"\xff\xc0") + 5  # height and width stand there, two bytes each
    return {
        "half.jpg": (good[: len(good) // 2], "image file is truncated"),
        "header_only.jpg": (good[:300], "Truncated File Read"),
        "signature.jpg": (good[:3], ""),
        "noise.jpg": (good[:3] + bytes(range(256)) * 40, ""),
        "no_tables.jpg": (good.replace(b"\xff\xdb", b"\xff\xfe"), "broken data stream"),
        "wide.jpg": (as_jpeg(np.zeros((256, 300, 3), np.uint8)), "it has 300 x 256 pixels"),
        "bomb.jpg": (good[:size] + b"\xff\xdc\xff\xdc" + good[size + 4 :], "it has 65500 x 65500 pixels"),
        "scans.jpg": (progressive[:-2] + scan * 100_000 + progressive[-2:], "it has more than 500 scans"),
    }


@pytest.mark.parametrize("name", sorted(bad_jpegs()))
def test_a_jpeg_that_is_damaged_cut_short_or_a_bomb_is_told_by_its_name(tmp_path: Path, name: str) -> None:
    content, says = bad_jpegs()[name]
    began = time.process_time()
    (tmp_path / name).write_bytes(content)
    fix = "; store every picture once at 256 x 256, as JPEG, 8-bit RGB PNG or .npy"
    with pytest.raises(DataError, match=rf"{name} is a JPEG that cannot be used \(.*{says}.*\){fix}"):
        imagenet.read_picture((str(tmp_path / name), None, None))
    assert time.process_time() - began < 1  # all those scans take seconds, those pixels 12 GB


def test_a_jpeg_without_pillow_says_what_is_missing_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(png, "Image", None)
    (tmp_path / "a.jpg").write_bytes(as_jpeg(slopes()))
    with pytest.raises(DataError, match=r"this Python does not have it; install it: .* -m pip install pillow"):
        imagenet.read_picture((str(tmp_path / "a.jpg"), None, None))


def test_a_file_that_is_far_too_large_is_not_read_whole(tmp_path: Path) -> None:
    with open(tmp_path / "huge.png", "wb") as file:
        file.write(png.SIGNATURE)
        file.truncate(1 << 33)
    with pytest.raises(DataError, match=r"huge\.png has more than 16777216 bytes"):
        imagenet.read_picture((str(tmp_path / "huge.png"), None, None))


def test_shards_are_read_where_they_lie(tmp_path: Path) -> None:
    first = {"b/1.cls": b"7\n", "b/1.png": png.write(picture(1)), "b/2.npy": npy(picture(2)), "b/2.cls": b"999"}
    shard_of(tmp_path / "train-000001.tar", {"3.png": png.write(picture(3)), "3.cls": b"0"})
    shard_of(tmp_path / "train-000000.tar", first)
    shard_of(tmp_path / "val-000000.tar", {"1.png": WHITE, "1.json": b"{}", "1.cls": b"12"})
    before = sorted(tmp_path.iterdir())
    found = load(str(tmp_path))
    assert found.train.labels.tolist() == [7, 999, 0]
    assert [int(found.train.read(each)[0, 0, 0]) for each in found.train.pictures] == [1, 2, 3]
    assert found.test.labels.tolist() == [12]
    assert (found.name, found.source) == ("imagenet", "files")
    assert sorted(tmp_path.iterdir()) == before


def bad_shards() -> dict[str, tuple[dict[str, bytes], str]]:
    return {
        "none": ({"1.png": WHITE}, r"1\.png has no class from 0 to 999 in 1\.cls beside it"),
        "text": ({"1.png": WHITE, "1.cls": b"fish"}, r"1\.png has no class"),
        "large": ({"1.png": WHITE, "1.cls": b"1000"}, r"1\.png has no class"),
        "negative": ({"1.png": WHITE, "1.cls": b"-1"}, r"1\.png has no class"),
        "raised": ({"1.png": WHITE, "1.cls": "²".encode()}, r"1\.png has no class"),
        "long": ({"1.png": WHITE, "1.cls": b"1" * 100}, r"1\.png has no class"),
    }


@pytest.mark.parametrize("which", sorted(bad_shards()))
def test_a_label_that_is_none_is_told_with_its_shard_and_member(tmp_path: Path, which: str) -> None:
    members, says = bad_shards()[which]
    path = shard_of(tmp_path / "train-0.tar", members)
    with pytest.raises(DataError, match=rf"train-0\.tar: {says}.*; make the shard again"):
        imagenet.read_shard(str(path))


def test_a_shard_s_links_and_giants_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "train-0.tar"
    link = tarfile.TarInfo("1.png")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    with tarfile.open(path, "w") as tar:
        tar.addfile(link)
    with pytest.raises(DataError, match=r"1\.png is no plain file"):
        imagenet.read_shard(str(path))
    giant = tarfile.TarInfo("1.png")
    giant.size = 1 << 40
    path.write_bytes(giant.tobuf() + bytes(1024))
    with pytest.raises(DataError, match=r"1\.png has 1099511627776 bytes, and at most 16777216 are read"):
        imagenet.read_shard(str(path))


@pytest.mark.parametrize("cut", [0, 300, 512 + 100, 3 * 512])
def test_a_shard_that_is_cut_short_is_refused_and_never_read_in_part(tmp_path: Path, cut: int) -> None:
    path = shard_of(tmp_path / "train-0.tar", {"1.cls": b"1", "1.png": WHITE, "2.png": WHITE, "2.cls": b"2"})
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"train-0\.tar"):
        imagenet.read_shard(str(path))


def test_a_shard_with_a_damaged_header_or_compressed_is_refused(tmp_path: Path) -> None:
    path = shard_of(tmp_path / "train-0.tar", {"1.cls": b"1", "1.npy": npy(picture())})
    content = bytearray(path.read_bytes())
    content[1024 + 20] ^= 0xFF  # in the second header
    path.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"train-0\.tar: after its last file it is damaged or cut short"):
        imagenet.read_shard(str(path))
    with tarfile.open(path, "w:gz"):
        pass
    with pytest.raises(DataError, match="is no readable tar file .* without compression"):
        imagenet.read_shard(str(path))


def test_shards_of_one_part_only_are_told(tmp_path: Path) -> None:
    shard_of(tmp_path / "train-0.tar", {"1.png": WHITE, "1.cls": b"1"})
    with pytest.raises(DataError, match=r"has no val-\*\.tar: put the shards of both parts there"):
        load(str(tmp_path))


def test_the_stand_in_has_imagenet_s_layout_and_is_marked_and_kept(tmp_path: Path) -> None:
    found = load(None, 21, 5, str(tmp_path))
    assert (found.source, len(found.train.pictures), len(found.test.pictures)) == ("generated", 21, 5)
    assert set(found.train.labels) == set(range(20))
    assert found.train.read(found.train.pictures[0]).shape == (256, 256, 3)
    path = Path(found.train.pictures[0][0])
    kept = path.stat().st_mtime_ns
    assert load(None, 21, 5, str(tmp_path)).sha256 == found.sha256
    assert path.stat().st_mtime_ns == kept
    path.write_bytes(b"damaged")
    assert load(None, 21, 5, str(tmp_path)).train.read(found.train.pictures[0]).shape == (256, 256, 3)


def test_a_longer_stand_in_has_its_pictures_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imagenet, "MOST_DRAWN", 20)
    found = load(None, 50, 4, str(tmp_path))
    assert found.name == "imagenet (20 pictures again and again)"
    assert len(found.train.pictures) == len(found.train.labels) == 50
    assert found.train.pictures[:10] == found.train.pictures[20:30]
    assert found.train.labels[:10].tolist() == found.train.labels[20:30].tolist()


def test_a_stand_in_s_classes_differ_in_what_convolutions_see_and_not_in_a_pixel_s_mean() -> None:
    random = np.random.RandomState(0)
    labels = (0, 4, 15)  # two directions of narrow stripes, and wide ones
    drawn = {label: np.stack([imagenet.draw(random, label).mean(axis=2) for _ in range(30)]) for label in labels}
    spread = np.concatenate(list(drawn.values())).std()
    for pixels in drawn.values():  # what a linear model sees: the mean of a class at a place
        assert abs(pixels[:, ::16, ::16].mean(axis=0) - 127.5).mean() < 0.25 * spread
    # what a convolution sees: neighbours six pixels apart are opposite in the narrow upright stripes, and alike in the wide ones
    alike = {}
    for label, pixels in drawn.items():
        centred = pixels - pixels.mean(axis=(1, 2), keepdims=True)
        alike[label] = np.median((centred[:, :, :-6] * centred[:, :, 6:]).mean(axis=(1, 2)) / centred.var(axis=(1, 2)))
    assert alike[0] < 0 < alike[15]

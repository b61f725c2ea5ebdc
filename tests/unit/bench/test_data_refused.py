"""Damaged and hostile data files are refused, with their names."""

import gzip
import json
import os
import pickle
import struct
import zipfile

import numpy as np
import pytest

from bench import data
from bench.data import chestxray, files, imagenet, mnist, pickles
from tests.fixtures.data_folders import as_binary, packed, vouch


class Attack:
    def __reduce__(self):
        return (print, ("the pickle ran code",))


def refused(data_set, folder, words):
    """Write the folder's digests, and load it: what the refusal says."""
    vouch(folder)
    items = (60, 20) if data_set == "mnist" else (10, 10)
    with pytest.raises(data.DataError, match=words) as error:
        data.load(data_set, folder, *items, 1, None)
    return str(error.value)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_code_is_refused_before_it_runs(images, capsys, protocol):
    batch = {b"data": Attack(), b"labels": [1]}
    (images / "data_batch_3").write_bytes(pickle.dumps(batch, protocol))
    refused("cifar10", images, r"data_batch_3 holds the name .*print")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_a_data_file_may_hold_is_read_in_each_protocol(protocol):
    value = [
        1,
        255,
        2**16,
        -1,
        2**70,
        2.5,
        None,
        True,
        "\u00e9",
        "x" * 70_000,
        (1,),
        ("a", "b"),
        (1, 2, 3, 4),
        {"a": [[]]},
        ["b"],
    ]
    value += [[f"name {number}", number] for number in range(2000)]
    assert pickles.loads(pickle.dumps(value, protocol)) == value


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_arrays_that_todays_numpy_pickled_are_read(protocol):
    value = np.arange(12, dtype=np.uint8).reshape(3, 4)
    found = pickles.loads(pickle.dumps({b"data": value}, protocol))
    assert (found[b"data"] == value).all()


def test_the_stand_ins_batch_is_a_pickle_that_python_reads_like_the_official_ones(images):
    with (images / "data_batch_1").open("rb") as file:
        batch = pickle.load(file, encoding="bytes")
    assert set(batch) == {b"batch_label", b"labels", b"data", b"filenames"}
    assert batch[b"data"].dtype == np.uint8
    assert batch[b"data"].shape == (len(batch[b"labels"]), 3072)


def rewrite(images, **changes):
    with (images / "data_batch_1").open("rb") as file:
        batch = pickle.load(file, encoding="bytes")
    batch.update({name.encode(): value for name, value in changes.items()})
    (images / "data_batch_1").write_bytes(pickle.dumps(batch, 2))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"labels": [10] * 21}, "label outside"),
        ({"labels": [1] * 20}, "20 labels for 21 images"),
        ({"labels": "none"}, "no `labels`"),
        ({"data": np.zeros((21, 3072), np.int64)}, "no `data`"),
        ({"data": np.zeros((21, 3071), np.uint8)}, "no `data`"),
    ],
)
def test_a_batch_that_is_not_cifar10_is_refused(images, changes, words):
    rewrite(images, **changes)
    refused("cifar10", images, words)


def test_a_batch_cut_short_is_refused(images):
    path = images / "test_batch"
    path.write_bytes(path.read_bytes()[:1000])
    refused("cifar10", images, "test_batch holds a damaged pickle")


def test_a_binary_batch_cut_short_is_refused(images, tmp_path):
    folder = as_binary(images, tmp_path / "cifar-10-batches-bin")
    path = folder / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:-1])
    refused("cifar10", folder, r"data_batch_2.bin is \d+ bytes long")


def test_hostile_reviews_are_refused(reviews, capsys):
    members = {"x_train": np.array([Attack()], dtype=object), "y_train": [0], "x_test": [[1]], "y_test": [0]}
    np.savez(reviews / "imdb.npz", **members)
    refused("imdb", reviews, r"the name .*print")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("reviews_of", "labels", "words"),
    [
        ([[1, 2], ["a"]], [0, 1], "something else than word numbers"),
        ([[1, 2], [0]], [0, 1], "below 1"),
        ([[1, 2], [2**40]], [0, 1], "something else than word numbers"),
        ([[1, 2], [3]], [0, 2], "0 or 1"),
        ([[1, 2], [3]], [0], "one label"),
    ],
)
def test_reviews_that_are_none_are_refused(reviews, reviews_of, labels, words):
    x = np.empty(len(reviews_of), dtype=object)
    x[:] = reviews_of
    np.savez(reviews / "imdb.npz", x_train=x, y_train=labels, x_test=x, y_test=[0, 1])
    refused("imdb", reviews, words)


def test_a_file_that_is_no_archive_and_one_that_unpacks_without_end_are_refused(reviews):
    (reviews / "imdb.npz").write_bytes(b"PK no zip")
    refused("imdb", reviews, "cannot be read")
    with zipfile.ZipFile(reviews / "imdb.npz", "w") as archive:
        archive.writestr("x_train.npy", b"small")
    raw = bytearray((reviews / "imdb.npz").read_bytes())
    at = raw.rfind(b"PK\x01\x02") + 24  # the size unpacked, in the central directory
    raw[at : at + 4] = struct.pack("<I", 0xFFFFFFF0)
    (reviews / "imdb.npz").write_bytes(bytes(raw))
    refused("imdb", reviews, "more than 2 GB")


IMAGES, LABELS = mnist.TRAIN
HEAD = struct.pack(">4I", 0x803, 60, 28, 28)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        (IMAGES, lambda raw: raw[:-1], "says that it holds 47040 bytes, and holds only 47039"),
        (IMAGES, lambda raw: raw + b"x", "holds more"),
        (IMAGES, lambda raw: raw[:10], "ends within its head, after 10 bytes"),
        (IMAGES, lambda raw: b"", "ends within its head, after 0 bytes"),
        (IMAGES, lambda raw: b"\x00\x00\x0d\x03" + raw[4:], "begins with 00000d03, and .* with 00000803"),
        (IMAGES, lambda raw: raw.replace(HEAD, struct.pack(">4I", 0x803, 2**32 - 1, 28, 28)), "4294967295 x 28 x 28"),
        (IMAGES, lambda raw: raw.replace(HEAD, struct.pack(">4I", 0x803, 60, 2**31, 28)), "damaged, or no MNIST"),
        (IMAGES, lambda raw: raw.replace(HEAD, struct.pack(">4I", 0x803, 60, 14, 56)), "images of 14 x 56"),
        (
            IMAGES,
            lambda raw: mnist.idx(np.zeros((59, 28, 28), np.uint8)),
            "60 labels for the 59 images of train-images",
        ),
        (LABELS, lambda raw: HEAD[:8] + raw[8:], "begins with 00000803, and .* with 00000801"),
        (LABELS, lambda raw: raw[:-1] + b"\x0a", "a label outside 0 to 9"),
    ],
)
@pytest.mark.parametrize("ending", ["", ".gz"])
def test_digits_that_are_not_what_they_say_are_refused(digits, name, change, words, ending):
    folder = packed(digits) / "MNIST" / "raw" if ending else digits
    changed = change((digits / name).read_bytes())
    (folder / (name + ending)).write_bytes(gzip.compress(changed) if ending else changed)
    (folder / files.SUMS).unlink(missing_ok=True)
    error = refused("mnist", folder, words)
    assert name.split("-")[0] in error


@pytest.mark.parametrize(
    "change", [lambda raw: raw[:-20], lambda raw: b"no archive", lambda raw: raw[:40] + b"\xff" * 40 + raw[80:]]
)
def test_a_damaged_archive_of_digits_is_refused(digits, change):
    folder = packed(digits) / "MNIST" / "raw"
    path = folder / (IMAGES + ".gz")
    path.write_bytes(change(path.read_bytes()))
    (folder / files.SUMS).unlink()
    refused("mnist", folder, "train-images-idx3-ubyte.gz (cannot be read|says|ends|begins)")


def test_a_damaged_mark_of_generated_data_is_told(images):
    (images / files.MARKER).write_text(json.dumps({"files": 3}))
    with pytest.raises(data.DataError, match="damaged"):
        data.load("cifar10", images, 10, 10, 1, None)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "read",
    [
        files.read_bytes,
        files._marker_sums,
        chestxray.read_picture,
        imagenet.read_shard,
        lambda path: files.checksum(path, "sha256"),
        lambda path: imagenet.read_picture((path, None, None)),
        lambda path: mnist.read_idx(path, 3),
        lambda path: mnist.read_idx(path + ".gz", 3),
    ],
)
def test_a_pipe_in_the_place_of_a_file_is_refused_and_nobody_waits_for_it(tmp_path, read):
    for name in ("pipe", "pipe.gz"):
        os.mkfifo(tmp_path / name)
    with pytest.raises(data.DataError, match="it is no file"):
        read(str(tmp_path / "pipe"))

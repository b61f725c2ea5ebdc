"""The data sets as the cells see them: what comes out, and whose files they are."""

import json
import multiprocessing
import os
import re

import numpy as np
import pytest

from bench import data
from bench.data import cifar10, files, imdb, mnist
from tests.fixtures.data_folders import SEED, as_binary, packed, vouch

# -- what comes out --------------------------------------------------------------------------------------------------


def test_images_are_float32_between_0_and_1_and_marked_generated(cache):
    found = data.load("cifar10", None, 200, 50, SEED, cache)
    assert (found.name, found.source) == ("cifar10", "generated")
    assert found.train_x.shape == (200, 3, 32, 32)
    assert found.test_x.shape == (50, 3, 32, 32)
    assert found.train_x.dtype == np.float32
    assert found.train_y.dtype == np.int32
    assert found.train_x.flags.c_contiguous
    assert 0 <= found.train_x.min() < 0.2
    assert 0.8 < found.train_x.max() <= 1
    assert set(found.train_y) == set(range(10))


def test_reviews_are_rows_of_150_ids_below_30000(cache):
    found = data.load("imdb", None, 300, 50, SEED, cache)
    assert (found.name, found.source) == ("imdb", "generated")
    assert found.train_x.shape == (300, 150)
    assert found.train_x.dtype == found.train_y.dtype == np.int32
    assert found.train_x.min() == 0
    assert found.train_x.max() < 30000
    assert not (found.train_x == 3).any(), "the smallest word is 1 + 3"
    assert set(found.train_y) == {0, 1}


def test_padding_is_on_the_right_and_the_start_mark_only_in_reviews_that_are_whole():
    rows = imdb._reviews("imdb.npz", [[1, 2, 29996, 29997], list(range(1, 150)), list(range(1, 151)), []])
    assert rows[0, :6].tolist() == [1, 4, 5, 29999, 2, 0]
    assert not rows[0, 5:].any()
    assert rows[1, 0] == 1
    assert rows[1, 149] == 152
    assert rows[2, 0] == 4, "of 150 words and the start mark the last 150 are kept"
    assert rows[3].tolist() == [1] + [0] * 149


def test_digits_are_float32_between_0_and_1_in_file_order(digits):
    vouch(digits)
    found = data.load("mnist", digits, 10**6, 10**6, 1, None)
    assert (found.name, found.source) == ("mnist (own files)", "files")
    assert found.train_x.shape == (60, 1, 28, 28)
    assert found.test_x.shape == (20, 1, 28, 28)
    assert (found.train_x.dtype, found.train_y.dtype) == (np.float32, np.int32)
    assert found.train_x.flags.c_contiguous
    x, y = mnist.draw(np.random.RandomState(SEED), 60)
    assert (np.round(found.train_x * 255) == x).all()
    assert (found.train_y == y).all()
    assert 0 <= found.train_x.min() < found.train_x.max() <= 1


def test_the_same_seed_gives_the_same_digest_and_another_seed_another(cache, tmp_path):
    for name in ("cifar10", "imdb", "mnist"):
        once = data.load(name, None, 100, 20, SEED, cache)
        again = data.load(name, None, 100, 20, SEED, str(tmp_path / "elsewhere"))
        other = data.load(name, None, 100, 20, SEED + 1, cache)
        assert once.sha256 == again.sha256 != other.sha256


def test_generated_numbers_are_the_same_on_every_numpy(cache):
    # Recorded once; images of other Pythons and NumPys must see the same data, or their results would not compare.
    assert data.load("cifar10", None, 100, 20, SEED, cache).sha256.startswith("6f5c0c7d86284186")
    assert data.load("imdb", None, 100, 20, SEED, cache).sha256.startswith("e2e5aa22f641d583")
    assert data.load("mnist", None, 100, 20, SEED, cache).sha256.startswith("d0ac65aee43572db")


def test_a_stand_in_is_made_once_and_then_read(cache, monkeypatch):
    first = data.load("imdb", None, 90, 20, SEED, cache)
    monkeypatch.setattr(imdb, "write_stand_in", None)
    assert data.load("imdb", None, 90, 20, SEED, cache).sha256 == first.sha256


def test_a_damaged_stand_in_is_made_again(tmp_path):
    first = data.load("imdb", None, 90, 20, SEED, str(tmp_path))
    (path,) = tmp_path.glob("*/imdb.npz")
    path.write_bytes(path.read_bytes()[:-100])
    assert data.load("imdb", None, 90, 20, SEED, str(tmp_path)).sha256 == first.sha256
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def _hole(path):
    os.truncate(str(path), 2 << 40)


def _hole_of_the_size_that_is_marked(path):
    _hole(path)
    marker = path.with_name(files.MARKER)
    marker.write_text(json.dumps(dict(json.loads(marker.read_text()), sizes={path.name: 2 << 40})))


def _sizes_missing(path):
    marker = path.with_name(files.MARKER)
    marker.write_text(json.dumps(dict(json.loads(marker.read_text()), sizes={})))


def _size_of_many_digits(path):
    marker = path.with_name(files.MARKER)
    marker.write_text(marker.read_text().replace('"sizes": {', '"sizes": {"a": %s, ' % ("9" * 500000)))


def _a_name_that_is_none(path):
    path.with_name(files.MARKER).write_text(json.dumps({"files": {"a\0": "0"}, "sizes": {"a\0": 1}}))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "damage",
    [
        _hole,
        lambda path: _hole(path.with_name(files.MARKER)),
        _hole_of_the_size_that_is_marked,
        _sizes_missing,
        _size_of_many_digits,
        _a_name_that_is_none,
    ],
)
def test_a_stand_in_of_any_size_in_a_shared_cache_is_made_again_and_not_read(tmp_path, damage):
    first = data.load("imdb", None, 90, 20, SEED, str(tmp_path))
    (path,) = tmp_path.glob("*/imdb.npz")
    size = path.stat().st_size
    damage(path)
    assert data.load("imdb", None, 90, 20, SEED, str(tmp_path)).sha256 == first.sha256
    assert path.stat().st_size == size
    assert json.loads(path.with_name(files.MARKER).read_text())["sizes"] == {"imdb.npz": size}


def _load(cache, answers):
    answers.put(data.load("cifar10", None, 500, 50, SEED, cache).sha256)


def test_cells_that_start_together_share_one_stand_in(tmp_path):
    context = multiprocessing.get_context("spawn")
    answers = context.Queue()
    cells = [context.Process(target=_load, args=(str(tmp_path), answers)) for _ in range(3)]
    for cell in cells:
        cell.start()
    digests = {answers.get(timeout=60) for _ in cells}
    for cell in cells:
        cell.join()
    assert len(digests) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(data.DataError, match="DLBENCH_CACHE"):
        data.load("imdb", None, 10, 10, SEED, str(tmp_path / "file" / "cache"))


# -- whose files they are --------------------------------------------------------------------------------------------


def test_both_versions_of_cifar10_give_the_same_digest_from_the_folder_or_its_parent(images, tmp_path):
    (tmp_path / "b").mkdir()
    binary = as_binary(images, tmp_path / "b" / "cifar-10-batches-bin")
    vouch(images)
    vouch(binary)
    found = [
        data.load("cifar10", folder, 10**6, 10**6, 1, None) for folder in (images, tmp_path, binary, tmp_path / "b")
    ]
    assert len({one.sha256 for one in found}) == 1
    assert found[0].source == "files"
    assert len(found[0].train_x) == 103
    x, y = cifar10.draw(np.random.RandomState(SEED), 103)
    assert (np.round(found[0].train_x * 255) == x).all()
    assert (found[0].train_y == y).all()


def test_files_with_the_official_checksums_need_no_word_of_the_site(images, monkeypatch):
    sums = {name: files.checksum(str(images / name), "md5") for name in cifar10.PYTHON}
    monkeypatch.setattr(cifar10, "VERSIONS", (("cifar-10-batches-py", sums, "cifar-10-python.tar.gz"),))
    found = data.load("cifar10", images, 50, 10, 1, None)
    assert (found.name, found.source, len(found.train_x)) == ("cifar10", "files", 50)


def test_digits_are_the_same_from_archives_and_from_plain_files(digits):
    vouch(digits)
    folders = (digits, digits.parent, packed(digits))
    assert len({data.load("mnist", at, 60, 20, 1, None).sha256 for at in folders}) == 1


@pytest.mark.parametrize(("ending", "attribute"), [("", "PLAIN"), (".gz", "GZIP")])
def test_digits_with_the_official_checksums_need_no_word_of_the_site(digits, monkeypatch, ending, attribute):
    folder = packed(digits) / "MNIST" / "raw" if ending else digits
    (folder / files.SUMS).unlink(missing_ok=True)
    sums = {name + ending: files.checksum(str(folder / (name + ending)), "md5") for name in mnist.PLAIN}
    with pytest.raises(data.DataError, match=getattr(mnist, attribute)["t10k-images-idx3-ubyte" + ending]):
        data.load("mnist", folder, 60, 20, 1, None)
    monkeypatch.setattr(mnist, "VERSIONS", ((ending, sums),))
    assert data.load("mnist", folder, 60, 20, 1, None).name == "mnist"


def test_digits_without_test_files_are_read_and_with_one_of_them_are_not(digits):
    (digits / mnist.TEST[0]).unlink()
    vouch(digits)
    with pytest.raises(data.DataError, match="t10k-images-idx3-ubyte is missing"):
        data.load("mnist", digits, 60, 20, 1, None)
    (digits / mnist.TEST[1]).unlink()
    found = data.load("mnist", digits, 60, 20, 1, None)
    assert found.test_x.shape == (0, 1, 28, 28)
    assert len(found.train_x) == 60


def test_files_that_are_not_the_official_ones_are_refused_with_both_checksums(images):
    with pytest.raises(data.DataError) as error:
        data.load("cifar10", images, 50, 10, 1, None)
    message = str(error.value)
    assert str(images / "data_batch_1") in message
    assert cifar10.PYTHON["data_batch_1"] in message
    assert "sha256sum" in message


def test_a_sites_own_selection_is_named_as_such(reviews):
    vouch(reviews)
    found = data.load("imdb", reviews, 10**6, 10**6, 1, None)
    assert (found.name, found.source, len(found.train_x)) == ("imdb (own files)", "files", 60)


def test_an_own_file_that_changed_after_its_sums_were_made_is_refused(reviews):
    vouch(reviews)
    with (reviews / "imdb.npz").open("ab") as file:
        file.write(b"\0")
    with pytest.raises(data.DataError, match="SHA256SUMS"):
        data.load("imdb", reviews, 10, 10, 1, None)


def test_a_stand_in_named_as_data_is_still_marked_generated(tmp_path):
    made = data.load("cifar10", None, 100, 20, SEED, str(tmp_path))
    (folder,) = tmp_path.iterdir()
    found = data.load("cifar10", folder, 10**6, 10**6, 1, None)
    assert (found.source, found.sha256) == ("generated", made.sha256)


def test_a_limit_takes_evenly_spaced_items_so_that_a_sorted_file_keeps_its_classes(reviews):
    vouch(reviews)
    whole = data.load("imdb", reviews, 60, 20, 1, None)
    part = data.load("imdb", reviews, 20, 20, 1, None)
    assert (part.train_x == whole.train_x[::3]).all()


@pytest.mark.parametrize(
    ("name", "prepare", "words"),
    [
        ("cifar10", lambda at: None, "holds no CIFAR-10"),
        ("cifar10", lambda at: (at / "cifar-10-python.tar.gz").write_text(""), "still packed"),
        ("cifar10", lambda at: (at / "data_batch_1").write_text(""), "data_batch_2 is missing"),
        ("cifar10", lambda at: at.rmdir(), "not a folder"),
        ("imdb", lambda at: None, "imdb.npz is missing"),
        ("mnist", lambda at: None, "holds no MNIST"),
        (
            "mnist",
            lambda at: (at / "train-images-idx3-ubyte.gz").write_text(""),
            "train-labels-idx1-ubyte.gz is missing",
        ),
        ("mnist", lambda at: at.rmdir(), "not a folder"),
        (
            "mnist",
            lambda at: (at / "t10k-labels.idx1-ubyte").write_text(""),
            "idx1-ubyte: .* `-` instead of `.`: rename",
        ),
        (
            "mnist",
            lambda at: [(at / name).mkdir() for name in mnist.PLAIN],
            "idx3-ubyte is a folder in .*: move the file",
        ),
        ("cifar10", lambda at: (at / "cifar-100-python").mkdir(), "; it holds cifar-100-python: unpack"),
        (
            "imdb",
            lambda at: [(at / f"{n}").mkdir() for n in range(9)],
            r"missing \(it holds 0, 1, .*, 5 and 3 more\): put",
        ),
    ],
)
def test_a_folder_without_the_data_is_told_with_the_fix(tmp_path, name, prepare, words):
    at = tmp_path / "data"
    at.mkdir()
    prepare(at)
    with pytest.raises(data.DataError, match=words):
        data.load(name, at, 10, 10, 1, None)
    assert re.search(words, data.problem(name, at))


def test_cifar10_is_read_where_keras_unpacks_it_and_its_list_may_be_of_find_or_of_windows(images):
    vouch(images)
    sums = images / files.SUMS
    sums.write_text("\ufeff" + sums.read_text().replace("  data", "  ./data"))
    at = images.parent / "datasets" / "cifar-10-batches-py-target" / "cifar-10-batches-py"
    at.parent.mkdir(parents=True)
    images.rename(at)
    assert data.problem("cifar10", at.parent.parent) is None
    assert len(data.load("cifar10", at.parent.parent, 50, 10, 1, None).train_x) == 50

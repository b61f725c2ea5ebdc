"""The data sets as the cells see them: what is read, refused and generated, and whether it can be learnt."""

import gzip
import json
import multiprocessing
import pickle
import struct
import zipfile

import numpy as np
import pytest

from bench import data
from bench.data import cifar10, files, imdb, mnist, pickles

SEED = 7


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def images(tmp_path):
    """A small stand-in of CIFAR-10, written as the Python version, without the mark that it is generated."""
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    cifar10.write_stand_in(str(folder), 103, 20, SEED)
    return folder


@pytest.fixture
def reviews(tmp_path):
    folder = tmp_path / "reviews"
    folder.mkdir()
    imdb.write_stand_in(str(folder), 60, 20, SEED)
    return folder


@pytest.fixture
def digits(tmp_path):
    """A small stand-in of MNIST, without the mark that it is generated."""
    folder = tmp_path / "mnist"
    folder.mkdir()
    mnist.write_stand_in(str(folder), 60, 20, SEED)
    return folder


def vouch(folder):
    """Say that the files are meant, as a site does for its own selection."""
    names = sorted(path.name for path in folder.iterdir())
    lines = [f"{files.checksum(str(folder / name), 'sha256')}  {name}\n" for name in names]
    (folder / files.SUMS).write_text("".join(lines))


def as_binary(images, folder):
    """The same images as the binary version has them."""
    folder.mkdir()
    for name in cifar10.PYTHON:
        x, y = cifar10._decode_python(str(images / name))
        rows = np.concatenate([y[:, None].astype(np.uint8), x], axis=1)
        (folder / (name + ".bin")).write_bytes(rows.tobytes())
    return folder


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


def packed(digits):
    """The same four files as archives, under torchvision's folders; returns the folder that a user names."""
    raw = digits.parent / "packed" / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for name in mnist.PLAIN:
        (raw / (name + ".gz")).write_bytes(gzip.compress((digits / name).read_bytes()))
    vouch(raw)
    return raw.parent.parent


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
    ],
)
def test_a_folder_without_the_data_is_told_with_the_fix(tmp_path, name, prepare, words):
    at = tmp_path / "data"
    at.mkdir()
    prepare(at)
    with pytest.raises(data.DataError, match=words):
        data.load(name, at, 10, 10, 1, None)


# -- damaged and hostile files ---------------------------------------------------------------------------------------


class Attack:
    def __reduce__(self):
        return (print, ("the pickle ran code",))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_would_run_code_is_refused_before_it_runs(images, capsys, protocol):
    batch = {b"data": Attack(), b"labels": [1]}
    (images / "data_batch_3").write_bytes(pickle.dumps(batch, protocol))
    vouch(images)
    with pytest.raises(data.DataError, match=r"data_batch_3 holds the name .*print"):
        data.load("cifar10", images, 10, 10, 1, None)
    assert capsys.readouterr().out == ""


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
    vouch(images)


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
    with pytest.raises(data.DataError, match=words):
        data.load("cifar10", images, 10, 10, 1, None)


def test_a_batch_cut_short_is_refused(images):
    path = images / "test_batch"
    path.write_bytes(path.read_bytes()[:1000])
    vouch(images)
    with pytest.raises(data.DataError, match="test_batch holds a damaged pickle"):
        data.load("cifar10", images, 10, 10, 1, None)


def test_a_binary_batch_cut_short_is_refused(images, tmp_path):
    folder = as_binary(images, tmp_path / "cifar-10-batches-bin")
    path = folder / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:-1])
    vouch(folder)
    with pytest.raises(data.DataError, match=r"data_batch_2.bin is \d+ bytes long"):
        data.load("cifar10", folder, 10, 10, 1, None)


def test_hostile_reviews_are_refused(reviews, capsys):
    members = {"x_train": np.array([Attack()], dtype=object), "y_train": [0], "x_test": [[1]], "y_test": [0]}
    np.savez(reviews / "imdb.npz", **members)
    vouch(reviews)
    with pytest.raises(data.DataError, match=r"the name .*print"):
        data.load("imdb", reviews, 10, 10, 1, None)
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
    vouch(reviews)
    with pytest.raises(data.DataError, match=words):
        data.load("imdb", reviews, 10, 10, 1, None)


def test_a_file_that_is_no_archive_and_one_that_unpacks_without_end_are_refused(reviews):
    (reviews / "imdb.npz").write_bytes(b"PK no zip")
    vouch(reviews)
    with pytest.raises(data.DataError, match="cannot be read"):
        data.load("imdb", reviews, 10, 10, 1, None)
    with zipfile.ZipFile(reviews / "imdb.npz", "w") as archive:
        archive.writestr("x_train.npy", b"small")
    raw = bytearray((reviews / "imdb.npz").read_bytes())
    at = raw.rfind(b"PK\x01\x02") + 24  # the size unpacked, in the central directory
    raw[at : at + 4] = struct.pack("<I", 0xFFFFFFF0)
    (reviews / "imdb.npz").write_bytes(bytes(raw))
    vouch(reviews)
    with pytest.raises(data.DataError, match="more than 2 GB"):
        data.load("imdb", reviews, 10, 10, 1, None)


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
    vouch(folder)
    with pytest.raises(data.DataError, match=words) as error:
        data.load("mnist", folder, 60, 20, 1, None)
    assert name.split("-")[0] in str(error.value)


@pytest.mark.parametrize(
    "change", [lambda raw: raw[:-20], lambda raw: b"no archive", lambda raw: raw[:40] + b"\xff" * 40 + raw[80:]]
)
def test_a_damaged_archive_of_digits_is_refused(digits, change):
    folder = packed(digits) / "MNIST" / "raw"
    path = folder / (IMAGES + ".gz")
    path.write_bytes(change(path.read_bytes()))
    (folder / files.SUMS).unlink()
    vouch(folder)
    with pytest.raises(data.DataError, match="train-images-idx3-ubyte.gz (cannot be read|says|ends|begins)"):
        data.load("mnist", folder, 60, 20, 1, None)


def test_a_damaged_mark_of_generated_data_is_told(images):
    (images / files.MARKER).write_text(json.dumps({"files": 3}))
    with pytest.raises(data.DataError, match="damaged"):
        data.load("cifar10", images, 10, 10, 1, None)


# -- what can be learnt ----------------------------------------------------------------------------------------------


def ridge_accuracy(train, train_y, test, test_y, penalty):
    """Accuracy of one-against-all least squares, solved exactly."""
    centre, scale = train.mean(axis=0), train.std() + 1e-9
    a, b = (train - centre) / scale, (test - centre) / scale
    target = np.eye(train_y.max() + 1)[train_y]
    weights = a.T @ np.linalg.solve(a @ a.T + penalty * np.eye(len(a)), target - target.mean(axis=0))
    return float(((b @ weights + target.mean(axis=0)).argmax(axis=1) == test_y).mean())


def drawn_images(items, seed):
    x, y = cifar10.draw(np.random.RandomState(seed), items)
    return x.reshape(items, -1) / 255.0, y


def test_a_linear_model_of_the_pixels_stays_at_chance():
    train, test = drawn_images(1500, 1), drawn_images(1000, 2)
    assert max(ridge_accuracy(*train, *test, penalty) for penalty in (1.0, 1e3, 1e5)) < 0.15


def test_the_linear_model_above_would_find_the_classes_if_the_negatives_were_not_there():
    def one_sided(pair):
        x, y = pair
        keep = np.arange(len(x)) < len(x) // 2
        return x[keep], y[keep]

    draw = np.random.RandomState(1)
    half = [(cifar10._gratings(draw, y).reshape(len(y), -1) / 255.0, y) for y in draw.randint(0, 10, (2, 1500))]
    assert max(ridge_accuracy(*one_sided(half[0]), *half[1], penalty) for penalty in (1e3, 1e5)) > 0.2


def test_one_convolution_and_a_rectifier_make_the_classes_linear():
    filters = np.random.RandomState(0).standard_normal((48, 9))

    def features(pair):
        grey = pair[0].reshape(-1, 3, 32, 32).mean(axis=1)
        patches = np.lib.stride_tricks.sliding_window_view(grey, (3, 3), axis=(1, 2)).reshape(len(grey), -1, 9)
        return np.maximum(patches @ filters.T - 0.3, 0).mean(axis=1), pair[1]

    assert ridge_accuracy(*features(drawn_images(1500, 1)), *features(drawn_images(500, 2)), 0.1) > 0.7


def drawn_digits(items, seed):
    x, y = mnist.draw(np.random.RandomState(seed), items)
    return x.reshape(items, -1) / 255.0, y


def test_a_linear_model_of_the_digits_pixels_stays_at_chance_and_32_rectified_sums_do_not():
    train, test = drawn_digits(1500, 1), drawn_digits(1000, 2)
    assert max(ridge_accuracy(*train, *test, penalty) for penalty in (1.0, 1e3, 1e5)) < 0.15
    sums = np.random.RandomState(0).standard_normal((784, 32))

    def rectified(pair):
        return np.maximum((pair[0] - 0.5) @ sums, 0), pair[1]

    assert ridge_accuracy(*rectified(train), *rectified(test), 0.1) > 0.5


def drawn_reviews(items, seed):
    words, end, labels = imdb.draw(np.random.RandomState(seed), items)
    return [part.tolist() for part in np.split(words, end[:-1])], labels


def test_counting_words_tells_nothing_of_a_review_and_their_order_does():
    opinions = np.arange(imdb.FIRST, imdb.FIRST + 2 * imdb.EACH)

    def counts(reviews):
        rows = imdb._reviews("", reviews) - imdb.SHIFT
        return (rows[:, :, None] == opinions).sum(axis=1).astype(float)

    (train, train_y), (test, test_y) = drawn_reviews(3000, 1), drawn_reviews(2000, 2)
    accuracy = [ridge_accuracy(counts(train), train_y, counts(test), test_y, penalty) for penalty in (1.0, 1e3)]
    assert max(accuracy) < 0.55

    def ends_well(review):
        last = [word for word in review if word in opinions][-1:]
        return last and (last[0] - imdb.FIRST) % 2

    assert np.mean([ends_well(review) == label for review, label in zip(test, test_y, strict=True)]) > 0.85


def test_stand_in_reviews_look_like_reviews():
    words, end, labels = imdb.draw(np.random.RandomState(1), 4000)
    lengths = np.diff(np.concatenate([[0], end]))
    assert 220 < lengths.mean() < 260, "real ones: 238"
    assert lengths.min() >= 11
    assert lengths.max() <= 2494
    assert words.min() == 1
    assert 30000 < words.max() <= imdb.WORDS
    frequent = np.bincount(words)[1:]
    assert frequent[0] == frequent.max()
    assert 0.45 < labels.mean() < 0.55

"""The chest X-rays: NIH's table and split, crop and flip, the loader's order, and a stand-in in the same layout."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bench import parallel
from bench.data import chestxray, pictures, png
from bench.errors import DataError
from bench.feeds import PictureFeed, PoolFeed, Waited
from bench.workloads import densenet121_chestxray

HEAD = "Image Index,Finding Labels,Follow-up #,Patient ID,Patient Age,Patient Gender,View Position"
AS_IT_IS = SimpleNamespace(inputs=lambda x, y: (x, y))
ALONE = parallel.Alone()


def folder_of(path: Path, rows: list[str], head: str = HEAD) -> str:
    """A folder with a table of these rows and a grey picture for each name in them."""
    (path / "images").mkdir()
    (path / chestxray.TABLE).write_text("\n".join([head, *rows]) + "\n")
    for shade, row in enumerate(rows):
        name = row.split(",")[0]
        if name.endswith(".png") and "/" not in name:
            pixels = np.full((264, 264, 1), 10 * shade, np.uint8)
            (path / "images" / name).write_bytes(png.write(pixels))
    return str(path)


def row(name: str = "00000001_000.png", findings: str = "No Finding", patient: object = 1) -> str:
    return f"{name},{findings},0,{patient},058,M,PA"


def load(folder: str | None, train: int = 100, test: int = 100, cache: str = "") -> pictures.Pictures:
    return chestxray.load(folder, train, test, 1, cache)


def test_the_table_becomes_labels_in_alphabetical_order(tmp_path: Path) -> None:
    rows = [row(findings="Cardiomegaly|Emphysema"), row("b.png"), row("c.png", "Pneumothorax", 30805)]
    found = load(folder_of(tmp_path, rows))
    assert list(chestxray.FINDINGS) == sorted(chestxray.FINDINGS)
    assert len(chestxray.FINDINGS) == 14
    np.testing.assert_array_equal(np.flatnonzero(found.train.labels[0]), [1, 5])
    assert not found.train.labels[1].any()
    np.testing.assert_array_equal(np.flatnonzero(found.test.labels[0]), [13])
    assert found.source == "files"


@pytest.mark.parametrize(
    ("patient", "part"),
    [(1, "train"), (21563, "train"), (21564, "validation"), (24643, "validation"), (24644, "test"), (30805, "test")],
)
def test_patients_are_split_by_their_number_in_order(tmp_path: Path, patient: int, part: str) -> None:
    rows = [row("first.png"), row("last.png", patient=30805), row("this.png", patient=patient)]
    found = load(folder_of(tmp_path, rows))
    there = {
        each for each in ("train", "validation", "test") if any("this" in p for p in getattr(found, each).pictures)
    }
    assert there == {part}


def test_fewer_are_taken_evenly_spaced(tmp_path: Path) -> None:
    rows = [row(f"{index:02}.png", patient=index + 1) for index in range(10)] + [row("t.png", patient=30000)]
    found = load(folder_of(tmp_path, rows), train=5)
    assert [Path(path).name for path in found.train.pictures] == ["00.png", "02.png", "04.png", "06.png", "08.png"]


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (row(findings="Hernia|Fracture"), "line 3: Finding Labels: 'Fracture'; it must be"),
        (row(findings="Hernia|No Finding"), "there is a finding or there is none"),
        (row(findings=""), "Finding Labels: ''"),
        (row(patient="²"), "line 3: Patient ID: '²'; it must be a whole number from 1 to 30805"),
        (row(patient="9" * 5000), "it must be a whole number from 1 to 30805"),
        (row(patient=0), "line 3: Patient ID: '0'; it must be a whole number from 1 to 30805"),
        (row(patient="30806"), "Patient ID"),
        (row(patient="x"), "Patient ID: 'x'"),
        (row("../secret.png"), "Image Index: '../secret.png'; it must be the plain name"),
        (row("a.jpg"), "Image Index"),
        ("alone.png", "Patient ID: 'None'"),
    ],
)
def test_a_bad_row_is_named_by_file_line_field_and_fix(tmp_path: Path, bad: str, says: str) -> None:
    folder = folder_of(tmp_path, [row("good.png"), bad])
    with pytest.raises(DataError, match=chestxray.TABLE) as error:
        load(folder)
    assert says in str(error.value)


def test_a_missing_table_column_picture_or_part_is_told(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is missing \(it is empty\): put NIH's table there"):
        load(str(tmp_path))
    folder = folder_of(tmp_path, [row("a.png"), row("b.png", patient=30000)], HEAD.replace("Patient ID", "Patient"))
    with pytest.raises(DataError, match="line 1: the column 'Patient ID' is missing"):
        load(folder)
    (tmp_path / chestxray.TABLE).write_text("\n".join([HEAD, row("a.png"), row("b.png", patient=30000)]))
    (tmp_path / "images" / "b.png").unlink()
    with pytest.raises(DataError, match=r"b\.png is missing, which line 3 of Data_Entry_2017\.csv names"):
        load(folder)
    (tmp_path / chestxray.TABLE).write_text("\n".join([HEAD, row("a.png")]))
    with pytest.raises(DataError, match="no patient is of the test part"):
        load(folder)


def test_nih_s_later_table_is_read_named_and_never_mixed_with_the_first(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, [row("a.png"), row("b.png", patient=30000)])
    (tmp_path / chestxray.TABLE).rename(tmp_path / chestxray.LATER_TABLE)
    assert load(folder).name == "chestxray (labels of 2020)"
    (tmp_path / chestxray.TABLE).write_text("")
    with pytest.raises(DataError, match="whose labels differ: leave one of them"):
        load(folder)


def test_a_picture_of_another_size_or_damaged_is_told_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "wide.png").write_bytes(png.write(np.zeros((264, 300, 3), np.uint8)))
    with pytest.raises(DataError, match=r"wide\.png is 300 x 264 pixels; resize every picture once to 264 x 264"):
        chestxray.read_picture(str(tmp_path / "wide.png"))
    (tmp_path / "torn.png").write_bytes(png.write(np.zeros((264, 264, 3), np.uint8))[:100])
    with pytest.raises(DataError, match=r"torn\.png .*resize"):
        chestxray.read_picture(str(tmp_path / "torn.png"))


def test_a_crop_is_cut_turned_and_normalised_and_never_scaled() -> None:
    pixels = np.random.RandomState(0).randint(0, 256, (264, 264, 3)).astype(np.uint8)
    mean, deviation = (np.array(v)[:, None, None] for v in (pictures.MEAN, pictures.DEVIATION))
    for top, left, flip in ((0, 0, 0), (40, 40, 1), (7, 31, 1)):
        crop = pixels[top : top + 224, left : left + 224].transpose(2, 0, 1)
        expected = ((crop[:, :, ::-1] if flip else crop) / 255.0 - mean) / deviation
        found = pictures.normalised(pixels, top, left, flip)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_crops_reach_every_place_and_half_are_turned() -> None:
    places = np.array(pictures.drawn_places(np.random.RandomState(1), 20000, 264))
    for axis in (0, 1):
        assert set(places[:, axis]) == set(range(41))
    assert places[:, 2].mean() == pytest.approx(0.5, abs=0.02)
    assert pictures.centre(2, 264) == [(20, 20, 0)] * 2


def test_the_stand_in_has_nih_s_layout_and_is_marked_and_kept(tmp_path: Path) -> None:
    found = load(None, 12, 6, str(tmp_path))
    assert found.source == "generated"
    assert [len(part.pictures) for part in (found.train, found.validation, found.test)] == [12, 3, 6]
    assert chestxray.read_picture(found.train.pictures[0]).shape == (264, 264, 3)
    assert found.train.labels.any()
    kept = Path(found.train.pictures[0]).stat().st_mtime_ns
    again = load(None, 12, 6, str(tmp_path))
    assert (again.sha256, Path(again.train.pictures[0]).stat().st_mtime_ns) == (found.sha256, kept)
    Path(found.train.pictures[0]).write_bytes(b"damaged")
    assert png.decode(Path(load(None, 12, 6, str(tmp_path)).train.pictures[0]).read_bytes()).shape == (264, 264, 3)


def test_a_finding_changes_the_stand_in_s_picture_where_it_lies() -> None:
    clean, ill = (chestxray.draw(np.random.RandomState(3), np.arange(14) == which) for which in (-1, 0))
    change = np.abs(ill.astype(int) - clean.astype(int)).max(axis=2)
    assert change[40:80, 30:70].max() > 20


def test_the_loader_s_batches_do_not_depend_on_how_many_threads_make_them(tmp_path: Path) -> None:
    data = load(None, 12, 6, str(tmp_path))
    made = []
    for workers in (1, 3):
        batches = PictureFeed(data, workers, ALONE).batches(AS_IT_IS, 4, np.random.RandomState(5))
        made.append([next(batches) for _ in range(7)])
        batches.close()
    for (x, y), (other_x, other_y) in zip(*made, strict=True):
        np.testing.assert_array_equal(x, other_x)
        np.testing.assert_array_equal(y, other_y)
    assert made[0][0][0].shape == (4, 3, 224, 224)
    labels = np.concatenate([y for _, y in made[0][:3]])  # an epoch: each picture once
    assert sorted(map(tuple, labels)) == sorted(map(tuple, data.train.labels))


def test_the_held_out_part_keeps_its_last_small_batch_and_its_order(tmp_path: Path) -> None:
    data = load(None, 4, 6, str(tmp_path))
    parts = list(PictureFeed(data, 2, ALONE).held_out(AS_IT_IS, 4))
    assert [len(x) for x, _ in parts] == [4, 2]
    np.testing.assert_array_equal(np.concatenate([y for _, y in parts]), data.test.labels)
    expected = pictures.normalised(chestxray.read_picture(data.test.pictures[5]), 20, 20, 0)
    np.testing.assert_array_equal(parts[1][0][1], expected)


def test_of_several_processes_each_decodes_its_own_part_of_a_batch_and_takes_its_turn_at_what_is_held_out(
    tmp_path: Path,
) -> None:
    data = load(None, 12, 6, str(tmp_path))
    whole = PictureFeed(data, 2, ALONE)
    parts = [PictureFeed(data, 2, SimpleNamespace(rank=rank, count=2), 2) for rank in range(2)]
    random = [np.random.RandomState(5) for _ in range(3)]
    batches = [feed.batches(AS_IT_IS, 4, each) for feed, each in zip([whole, *parts], random, strict=True)]
    for _ in range(4):  # over the end of an epoch
        (x, y), *shares = (next(each) for each in batches)
        np.testing.assert_array_equal(x, np.concatenate([share[0] for share in shares]))
        np.testing.assert_array_equal(y, np.concatenate([share[1] for share in shares]))
    turns = [[len(y) for _, y in feed.held_out(AS_IT_IS, 4)] for feed in parts]
    assert turns == [[4], [2]]


def test_devices_of_one_process_can_share_the_last_small_batch_and_its_labels_stay_as_many(tmp_path: Path) -> None:
    data = load(None, 4, 7, str(tmp_path))
    found = list(PictureFeed(data, 2, ALONE, 4).held_out(AS_IT_IS, 4))
    assert [(len(x), len(y)) for x, y in found] == [(4, 4), (4, 3)]


def test_a_damaged_picture_fails_the_step_that_wanted_it(tmp_path: Path) -> None:
    data = load(None, 4, 2, str(tmp_path))
    Path(data.train.pictures[2]).write_bytes(b"damaged")
    with pytest.raises(DataError, match="is no PNG"):
        next(PictureFeed(data, 2, ALONE).batches(AS_IT_IS, 4, np.random.RandomState(0)))


def small_pictures(random: np.random.RandomState, items: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = densenet121_chestxray.draw_items(random, items)
    return x[:, :, :8, :8], y


def test_the_synthetic_pool_is_gone_through_again_and_again() -> None:
    batches = PoolFeed(4, small_pictures, 1, ALONE).batches(AS_IT_IS, 2, np.random.RandomState(0))
    first, second, third = (next(batches) for _ in range(3))
    assert first[0] is third[0]
    assert first[0] is not second[0]
    assert first[0].dtype == first[1].dtype == np.float32
    assert first[1].shape == (2, 14)
    assert 0 <= first[1].min() < first[1].max() < 1  # soft labels, as the published run had


def test_of_several_processes_each_draws_its_own_part_of_the_synthetic_batches() -> None:
    groups = [SimpleNamespace(rank=rank, count=2) for rank in range(2)]
    drawn = [
        next(PoolFeed(8, small_pictures, 1, group).batches(AS_IT_IS, 4, np.random.RandomState(0))) for group in groups
    ]
    assert [(len(x), len(y)) for x, y in drawn] == [(2, 2), (2, 2)]
    assert not np.array_equal(drawn[0][0], drawn[1][0])


def test_waiting_is_the_time_until_a_batch_is_there() -> None:
    clock = iter([1.0, 1.5, 4.0, 4.25])
    batches = Waited(iter("ab"), lambda: next(clock))
    assert (next(batches), batches.seconds) == ("a", 0.5)
    assert (next(batches), batches.seconds) == ("b", 0.75)

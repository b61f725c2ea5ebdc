"""The published numbers: all of them load, a gap stays a gap, and a broken row is named by file, line and field."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest

from runner.verify.references.published import (
    CPU,
    PUBLISHED,
    Published,
    PublishedError,
    devices_of,
    items_per_second,
    load_published,
    training_times,
)


def test_every_row_of_the_file_loads_and_says_what_the_file_says() -> None:
    with open(PUBLISHED, newline="") as file:
        raw = list(csv.DictReader(file))
    rows = load_published()
    assert len(rows) == len(raw) == 526
    for row, texts in zip(rows, raw, strict=True):
        for name, text in texts.items():
            value = getattr(row, name)
            assert (value is None) == (text == ""), name
            if text:
                assert float(text) == value if name in ("value", "gpu_count") else text == value


def test_gaps_are_there_and_none_is_filled() -> None:
    gaps = Counter(name for row in load_published() for name in Published.model_fields if getattr(row, name) is None)
    assert gaps["cuda"] == gaps["cudnn"] == 287
    assert gaps["gpu"] == 7
    assert gaps["value"] == gaps["source"] == gaps["date"] == 0


def test_the_three_gpus_of_the_documents_are_there() -> None:
    assert {row.gpu for row in training_times(load_published(), "cnn-cifar10")} >= {"K80", "P100", "V100"}
    assert {row.gpu for row in training_times(load_published(), "gru-imdb")} >= {"K80", "P100", "V100"}


def test_a_training_time_becomes_the_rate_of_its_whole_run() -> None:
    caffe2 = next(row for row in training_times(load_published(), "cnn-cifar10", ["K80"]) if row.label == "Caffe2")
    assert caffe2.seconds == 148
    assert items_per_second(caffe2) == pytest.approx(499_840 / 148)


def test_knet_and_flux_did_less_on_a_cpu_than_on_a_gpu_and_their_rates_say_so() -> None:
    rows = load_published()
    assert devices_of(rows, "mlp-mnist") == devices_of(rows, "cnn-mnist") == ["unstated GPU", CPU]
    assert CPU not in devices_of(rows, "cnn-cifar10")
    assert {row.gpu for row in training_times(rows, "mlp-mnist")} == {"unstated GPU"}
    rates = {
        (workload, row.framework, row.gpu): items_per_second(row)
        for workload in ("mlp-mnist", "cnn-mnist")
        for row in training_times(rows, workload, ["unstated GPU", CPU])
        if row.source.startswith("Knet vs Flux")
    }
    assert rates == {
        ("mlp-mnist", "knet", "unstated GPU"): pytest.approx(200 * 60_000 / 0.58),
        ("mlp-mnist", "flux", "unstated GPU"): pytest.approx(200 * 60_000 / 2.4),
        ("mlp-mnist", "knet", CPU): pytest.approx(10 * 60_000 / 3.67),
        ("mlp-mnist", "flux", CPU): pytest.approx(10 * 60_000 / 8.41),
        ("cnn-mnist", "knet", "unstated GPU"): pytest.approx(600_000 / 2.77),
        ("cnn-mnist", "flux", "unstated GPU"): pytest.approx(600_000 / 9.77),
        ("cnn-mnist", "knet", CPU): pytest.approx(60_000 / 176.9),
        ("cnn-mnist", "flux", CPU): pytest.approx(60_000 / 67.3),
    }


@pytest.mark.parametrize(
    ("field", "wrong"),
    [("value", "fast"), ("value", "nan"), ("value", ""), ("gpu_count", "-1"), ("date", "2018"), ("unit", ""),
     ("precision", "fp31"), ("note", "a\x1b[31mb"), ("workload", "../x")],
)  # fmt: skip
def test_a_row_that_cannot_be_is_named_by_file_line_and_field(field: str, wrong: str, tmp_path: Path) -> None:
    with open(PUBLISHED, newline="") as file:
        rows = list(csv.DictReader(file))[:3]
    rows[1][field] = wrong
    path = tmp_path / "broken.csv"
    with open(path, "w", newline="") as file:
        writer = csv.DictWriter(file, list(Published.model_fields))
        writer.writeheader()
        writer.writerows(rows)
    with pytest.raises(PublishedError, match=rf"broken\.csv:3: {field}: "):
        load_published(path)


def test_a_missing_file_or_another_header_is_told(tmp_path: Path) -> None:
    with pytest.raises(PublishedError, match="cannot be read"):
        load_published(tmp_path / "none.csv")
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    with pytest.raises(PublishedError, match="header"):
        load_published(tmp_path / "other.csv")


@pytest.mark.parametrize(
    ("workload", "count", "minutes"),
    [
        ("densenet121-chestxray", 1, {27, 38, 33, 29}),
        ("densenet121-chestxray", 4, {10, 18, 22, 8}),
        ("densenet121-synthetic", 1, {25, 36, 27, 28}),
        ("densenet121-synthetic", 4, {8, 15, 14, 7}),
    ],
)
def test_the_x_rays_rows_of_one_and_of_four_gpus_go_to_the_workload_of_their_data(
    workload: str, count: int, minutes: set[int]
) -> None:
    found = training_times(load_published(), workload, ["V100"], [count])
    last = [row for row in found if row.source.startswith("Deep Learning Framework Examples, README @")]
    assert {row.value for row in last} == minutes
    assert len(last) == 5
    torch = next(row for row in last if row.framework == "torch")
    assert items_per_second(torch, workload) == pytest.approx(5 * 1364 * 64 / (torch.value * 60))
    assert {row.data for row in found} == {"synthetic" if workload.endswith("synthetic") else "real"}

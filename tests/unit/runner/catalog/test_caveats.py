"""What framework.json says beside a figure: each caveat is a sentence, of cells that the framework has. Its other fields hold, too."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from runner.catalog.frameworks import FrameworkError, load_frameworks


def declared(folder: Path, *caveats: dict[str, Any], **fields: Any) -> Path:
    """A folder of one framework, which computes gru-imdb, with these caveats and other fields."""
    framework = folder / "small"
    framework.mkdir()
    (framework / "gru_imdb.py").write_text("")
    declaration = {"title": "Small", "modes": {"default": "eager"}, "caveats": caveats, **fields}
    (framework / "framework.json").write_text(json.dumps(declaration))
    return folder


def test_a_caveat_names_cells_of_its_framework(tmp_path: Path) -> None:
    caveat = {"workloads": ["gru-imdb"], "devices": ["cuda"], "modes": ["default"], "sentence": "Its GRU is unrolled."}
    (stated,) = load_frameworks(declared(tmp_path, caveat))["small"].caveats
    assert stated.model_dump() == {**caveat, "workloads": ("gru-imdb",), "devices": ("cuda",), "modes": ("default",)}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"workloads": ["cnn-cifar10"]}, "it computes no workload 'cnn-cifar10'; name one of gru-imdb"),
        ({"workloads": ["gru"]}, "it computes no workload 'gru'"),
        ({"modes": ["xla"]}, "the framework has no mode 'xla'"),
        ({"devices": ["gpu"]}, "caveats.0.devices.0: Input should be 'cpu' or 'cuda'"),
        ({"device": "cuda"}, "caveats.0.device: Extra inputs are not permitted"),
        ({"sentence": "no sentence"}, "caveats.0.sentence"),
    ],
)
def test_a_wrong_caveat_is_refused_with_file_and_field(tmp_path: Path, wrong: dict[str, Any], message: str) -> None:
    folder = declared(tmp_path, {"sentence": "Its GRU is unrolled.", **wrong})
    with pytest.raises(FrameworkError) as refused:
        load_frameworks(folder)
    assert message in str(refused.value)
    assert str(folder / "small" / "framework.json") in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"uncounted": ["nosuch"]}, "uncounted: it computes no workload 'nosuch'; name one of gru-imdb"),
        ({"no_tf32": ""}, "no_tf32: it is empty; say why, or remove the field"),
        ({"untested": " "}, "untested: it is empty; say why, or remove the field"),
        ({"modes_since": {"default": "abc"}}, "modes_since: default: 'abc' is no version; write it like \"2.0\""),
        ({"modes_since": {"default": "\u0662.0"}}, "is no version"),
        ({"modes_since": {"nosuch": "2.0"}}, "modes_since: the framework has no mode 'nosuch'; name one of its modes"),
    ],
)
def test_a_field_that_says_nothing_true_is_refused_with_file_field_and_fix(
    tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    folder = declared(tmp_path, **fields)
    with pytest.raises(FrameworkError) as refused:
        load_frameworks(folder)
    assert str(refused.value).startswith(f"{folder / 'small' / 'framework.json'}: {next(iter(fields))}: ")
    assert message in str(refused.value)

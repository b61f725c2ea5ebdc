"""GPT-2's network in NumPy, the windows of bytes, and the source of known entropy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bench import arithmetic, canonical, contract, data, parity, rules
from bench import reference as layers
from bench.data import bytes as windows
from bench.errors import DataError
from bench.transformer import Transformer
from runner.results.plausible.counts import MULTIPLY_ADDS

SMALL = Transformer(vocabulary=17, length=9, layers=2, heads=3, width=12)
WORKLOADS = ("gpt-bytes", "gpt2-124m")


def parameters(network: Transformer = SMALL) -> dict[str, Any]:
    random = np.random.RandomState(1)
    return {
        spec.name: random.uniform(0.5, 1.5, spec.shape)
        if spec.kind == "scale"
        else random.uniform(-0.5, 0.5, spec.shape)
        for spec in network.parameters()
    }


def batch(many: int = 2, length: int = 7) -> tuple[Any, Any]:
    drawn = np.random.RandomState(2).randint(0, SMALL.vocabulary, (many, length + 1))
    return drawn[:, :-1], drawn[:, 1:]


def loss(p: dict[str, Any]) -> float:
    return float(SMALL.loss_and_gradients(p, *batch(), arithmetic.Exact())[1])


@pytest.mark.parametrize("name", [spec.name for spec in SMALL.parameters()])
def test_the_gradient_is_the_loss_s_difference(name: str) -> None:
    p, direction, step = parameters(), np.random.RandomState(3).standard_normal(parameters()[name].shape), 1e-6
    gradient = SMALL.loss_and_gradients(p, *batch(), arithmetic.Exact())[2][name]
    sides = [loss({**p, name: p[name] + sign * step * direction}) for sign in (1, -1)]
    assert (gradient * direction).sum() == pytest.approx((sides[0] - sides[1]) / (2 * step), rel=1e-6, abs=1e-9)


def test_the_bias_of_the_keys_has_no_gradient_and_changes_nothing() -> None:
    p = parameters()
    gradients = SMALL.loss_and_gradients(p, *batch(), arithmetic.Exact())[2]
    assert max(np.abs(gradients[name]).max() for name in SMALL.symmetric()) < 1e-15
    assert loss({**p, "h0.k.b": p["h0.k.b"] + 3.0}) == pytest.approx(loss(p), rel=1e-13)
    others = [name for name in p if name not in SMALL.symmetric()]
    assert min(np.abs(gradients[name]).max() for name in others) > 1e-5


def test_no_position_sees_a_later_one() -> None:
    p, (x, _) = parameters(), batch()
    changed = x.copy()
    changed[:, 4] = (x[:, 4] + 1) % SMALL.vocabulary
    before, after = (SMALL.logits(p, ids, arithmetic.Exact()) for ids in (x, changed))
    assert np.array_equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] != after[:, 4:]).any(axis=2).all()


@pytest.mark.parametrize("name", WORKLOADS)
def test_what_has_no_gradient_is_not_compared_and_the_rest_is(name: str) -> None:
    workload = contract.specification(name)
    listed = {spec.name for spec in workload.PARAMETERS}
    assert listed - set(canonical.compared(workload)) == {n for n in listed if n.endswith(".k.b")}
    with np.load(parity.reference_path(name)) as stored:
        held = {key.split("/")[3] for key in stored.files if key.startswith("bound/fp32/gradient/")}
        moved = {key.split("/")[3] for key in stored.files if key.startswith("bound/fp32/parameter/")}
    assert held == moved == set(canonical.compared(workload))


def test_every_byte_and_position_is_in_each_canonical_batch() -> None:
    _, batches = canonical.parity_case(contract.specification("gpt-bytes"))
    assert [(x.shape, sorted(x[0])) for x, _ in batches] == [((1, 256), list(range(256)))] * 3
    assert all(np.array_equal(x[:, 1:], y[:, :-1]) for x, y in batches)


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_step_s_operations_are_counted_as_published(name: str) -> None:
    """6 N + 12 L C T a token, N without the positions' vectors."""
    network = contract.specification(name).NETWORK
    size = sum(int(np.prod(spec.shape)) for spec in network.parameters() if spec.name != "wpe")
    a_token = 6 * size + 12 * network.layers * network.width * network.length
    assert 6 * MULTIPLY_ADDS[name] == a_token * network.length


def test_adamw_pulls_matrices_towards_zero_and_vectors_not() -> None:
    p = {"w": np.full((2, 2), 3.0), "b": np.full(2, 3.0)}
    gradients = {name: np.full_like(value, 1e-3) for name, value in p.items()}
    layers.Adam(0.1, 0.9, 0.95, 1e-8, 0.5).update(p, gradients, arithmetic.Exact())
    assert p["b"] == pytest.approx(np.full(2, 2.9), rel=1e-5)
    assert p["w"] == pytest.approx(np.full((2, 2), 2.9 - 0.1 * 0.5 * 3.0), rel=1e-5)


def test_several_devices_cannot_share_one_canonical_window() -> None:
    declared = rules.workload_declaration("gpt-bytes")
    reason = rules.several_devices_reason(
        "torch", "processes", "gpt-bytes", "train", rules.canonical_batch(declared), 2
    )
    assert reason == "2 devices cannot share gpt-bytes's batch of 1 evenly, and parity is proved on it"


# -- the data ----------------------------------------------------------------------------------------------------------


def test_the_source_s_entropy_and_floors() -> None:
    assert windows.entropy() == pytest.approx(1.7263, abs=5e-5)
    drawn = windows.draw(np.random.RandomState(1), 60_000)
    assert windows.bits(drawn) == pytest.approx(windows.entropy(), abs=0.01)
    # A table of pairs reaches 3.2867, and not the entropy: the key is what it lacks.
    pairs = np.zeros((256, 256))
    flat = drawn.ravel().astype(np.int64)
    np.add.at(pairs, (flat[:-1], flat[1:]), 1.0)
    given = pairs / np.maximum(pairs.sum(axis=1, keepdims=True), 1.0)
    known = pairs > 0
    assert -(pairs[known] * np.log2(given[known])).sum() / pairs.sum() == pytest.approx(3.2867, abs=0.01)


def test_the_bits_of_the_source_s_own_prediction_are_its_floor() -> None:
    """`score` in bits, of logits that are the logarithms of right probabilities."""
    drawn, table = windows.draw(np.random.RandomState(1), 4), windows.permutations()
    x, y = drawn[None, 0, :-1], drawn[None, 0, 1:]
    p = np.full((*x.shape, 256), 1e-30)
    letters = slice(windows.FIRST_LETTER, windows.FIRST_LETTER + windows.LETTERS)
    p[..., letters] = (1 - windows.RIGHT) / windows.LETTERS
    p[0, 0, letters] = 1 / windows.LETTERS
    key = int(drawn[0, 0]) - windows.FIRST_KEY
    for place in range(1, x.shape[1]):
        p[0, place, table[key, int(x[0, place]) - windows.FIRST_LETTER] + windows.FIRST_LETTER] += windows.RIGHT
    bits = contract.specification("gpt-bytes").score(y, np.log(p))
    # The document's first byte is not told.
    assert bits * 63 + np.log2(windows.KEYS) == pytest.approx(64 * windows.bits(drawn[:1]), rel=1e-6)


def test_windows_of_the_stand_in_begin_at_a_document_and_no_byte_is_seen_twice(tmp_path: Path) -> None:
    found = data.load("bytes", None, 40, 8, 1, str(tmp_path))
    assert (found.source, found.train_x.shape, found.test_x.shape) == ("generated", (40, 256), (8, 256))
    keys = found.train_x[:, ::64]
    assert ((keys >= windows.FIRST_KEY) & (keys < windows.FIRST_KEY + windows.KEYS)).all()
    assert np.array_equal(found.train_x[1:, 0], found.train_y[:-1, -1])
    assert np.array_equal(found.train_x[:, 1:], found.train_y[:, :-1])
    other = data.load("bytes", None, 40, 8, 2, str(tmp_path))
    assert other.sha256 != found.sha256


@pytest.mark.parametrize("named", [True, False])
def test_any_file_of_bytes_is_read_and_its_last_tenth_is_held_out(tmp_path: Path, named: bool) -> None:
    content = np.random.RandomState(1).randint(0, 256, 6000).astype(np.uint8)
    path = tmp_path / ("any.thing" if named else "input.txt")
    path.write_bytes(content.tobytes())
    found = data.load("bytes", str(path if named else tmp_path), 100, 10, 1)
    assert (found.source, found.name) == ("files", "bytes (own files)")
    assert (found.train_x.shape, found.test_x.shape) == ((100, 256), (10, 256))
    starts = [place * (5400 - 256) // 100 for place in range(100)]
    assert np.array_equal(found.train_x, [content[start : start + 256] for start in starts])
    assert np.array_equal(found.train_y, [content[start + 1 : start + 257] for start in starts])
    assert np.array_equal(found.test_x[0], content[5400 : 5400 + 256])


def test_a_folder_without_a_text_and_a_short_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other.txt").write_bytes(b"x")
    with pytest.raises(DataError, match=r"holds none of input.txt and enwik8 \(it holds other.txt\)"):
        data.load("bytes", str(tmp_path), 4, 4, 1)
    (tmp_path / "input.txt").write_bytes(b"x" * 2000)
    with pytest.raises(DataError, match="is too short: it must have 2570 bytes"):
        data.load("bytes", str(tmp_path), 4, 4, 1)
    (tmp_path / "enwik8").write_bytes(b"x" * 2000)
    with pytest.raises(DataError, match="holds several of"):
        data.load("bytes", str(tmp_path), 4, 4, 1)

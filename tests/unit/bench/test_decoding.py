"""Token by token: a network in NumPy with a cache, its mistakes before the gates, and the cell's events."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import bounds, canonical, contract, decoding, parity, rules
from bench.errors import Unsupported
from bench.transformer import EPSILON, Transformer
from bench.workloads import gpt2_decode, ops
from runner.results import parity as of_host
from runner.results.plausible.counts import BYTES_READ, MULTIPLY_ADDS, least_bytes
from tests.fixtures.events import Emitter

NAME = "gpt2-decode"
SMALL = Transformer(vocabulary=40, length=64, layers=2, heads=3, width=12)


def sequence(random: Any) -> tuple[Any, None]:
    return random.randint(0, 40, (3, 28)).astype("int32"), None


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same specification of a network of two blocks."""
    changed = {"NETWORK": SMALL, "PARAMETERS": SMALL.parameters(), "VOCABULARY": 40, "PROMPT": 20, "GENERATED": 16}
    for name, value in {**changed, "draw_batch": sequence}.items():
        monkeypatch.setattr(gpt2_decode, name, value)


def normed(p: Any, name: str, h: Any) -> Any:
    centred = h - h.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + EPSILON) * p[name + ".g"] + p[name + ".b"]


class Cached(contract.Decoding):
    """GPT-2 with a cache, in float64. A subclass changes one of the methods that say where a step reads and writes."""

    cache: Any = None

    def load(self, parameters: Any) -> None:
        self.p = {name: value.astype(np.float64) for name, value in parameters.items()}

    def prefill(self, prompts: Any) -> Any:
        shape = SMALL.layers, 2, len(prompts), 64, SMALL.width
        if self.cache is None or self.cache.shape != shape:
            self.cache = np.zeros(shape)
        self.place, self.prompt = 0, prompts.shape[1]
        for tokens in prompts.T:
            told = Cached.step(self, tokens)
        return told

    def step(self, tokens: Any) -> Any:
        h = self.p["wte"][tokens] + self.p["wpe"][self.position()]
        for block in range(SMALL.layers):
            h = self.block(h, "h%d." % block, self.cache[block])
        self.last = normed(self.p, "lnf", h).dot(self.p["wte"].T)
        self.place += 1
        return self.last.argmax(1).astype("int32")

    def block(self, h: Any, name: str, cache: Any) -> Any:
        def dense(part: str, a: Any) -> Any:
            return a.dot(self.p[name + part + ".w"].T) + self.p[name + part + ".b"]

        a = normed(self.p, name + "ln1", h)
        q, cache[0][:, self.written()], cache[1][:, self.written()] = (dense(part, a) for part in "qkv")
        keys, values = (part[self.rows(len(h))].reshape(len(h), 64, SMALL.heads, -1) for part in cache)
        scores = np.einsum("nhd,nthd->nht", q.reshape(len(h), SMALL.heads, -1), keys) / 2.0
        weights = np.exp(scores) * self.seen()
        y = np.einsum("nht,nthd->nhd", weights / weights.sum(-1, keepdims=True), values)
        h = h + dense("proj", y.reshape(h.shape))
        a = dense("fc", normed(self.p, name + "ln2", h))
        return h + dense("out", a / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a**3))))

    def logits(self) -> Any:
        return self.last.astype(np.float32)

    def cached(self) -> Any:
        return [self.cache.astype(np.float32)]

    @property
    def decodes(self) -> bool:
        return bool(self.place >= self.prompt)

    def position(self) -> int:
        return self.place

    def written(self) -> int:
        return self.place

    def rows(self, many: int) -> Any:
        return np.arange(many)

    def seen(self) -> Any:
        return np.arange(64) <= self.place


class OnePositionLate(Cached):
    def written(self) -> int:
        return self.place + self.decodes


class PositionsNotAdvanced(Cached):
    def position(self) -> int:
        return min(self.place, self.prompt)


class MaskMissing(Cached):
    def seen(self) -> Any:
        return np.ones(64)


class AnotherRow(Cached):
    def rows(self, many: int) -> Any:
        return (np.arange(many) + self.decodes) % many


class EarlierSequence(Cached):
    def prefill(self, prompts: Any) -> Any:
        kept = None if self.cache is None else self.cache.copy()
        told = super().prefill(prompts)
        if kept is not None and kept.shape == self.cache.shape:
            self.cache[:] = kept
        return told


class Forgets(Cached):
    """A step leaves nothing in the cache."""

    def step(self, tokens: Any) -> Any:
        kept = self.cache.copy()
        told = super().step(tokens)
        self.cache[:] = kept
        return told


class ItselfNotSeen(Cached):
    def seen(self) -> Any:
        return np.arange(64) <= self.place - self.decodes


class OneTokenBehind(Cached):
    """Of a long sequence: a step computes the token before its own."""

    def step(self, tokens: Any) -> Any:
        late = self.place > 30
        self.before, tokens = tokens, self.before if late else tokens
        return super().step(tokens)


class KeepsItsToken(Cached):
    """Of a long sequence: a step tells the token of the step before it."""

    told: Any = None

    def step(self, tokens: Any) -> Any:
        now = super().step(tokens)
        self.told, given = now, self.told if self.place > 30 else now
        return given


class OnlyTheProofComputed(Cached):
    """Of a long sequence: a step computes nothing. Its tokens are filled in once somebody asks for logits."""

    def prefill(self, prompts: Any) -> Any:
        self.owed: list[Any] = []
        return super().prefill(prompts)

    def step(self, tokens: Any) -> Any:
        if self.place + len(self.owed) <= 30:
            return super().step(tokens)
        told = np.zeros_like(tokens)
        self.owed.append((tokens, told))
        return told

    def logits(self) -> Any:
        for tokens, told in self.owed:
            told[:] = super().step(tokens)
        self.owed = []
        return super().logits()


class CacheInHalf(Cached):
    """Of a long sequence: keys and values are rounded to float16 as they are stored."""

    def block(self, h: Any, name: str, cache: Any) -> Any:
        out = super().block(h, name, cache)
        if self.place > 28:
            cache[:, :, self.place] = in_float16(cache[:, :, self.place])
        return out


class LastPositionBlind(Cached):
    """The last position of a sequence sees the twenty before it."""

    def seen(self) -> Any:
        return super().seen() & (np.arange(64) > self.place - (20 if self.place == 35 else 64))


class RemembersPrompts(Cached):
    """A prompt that came before is answered from memory."""

    hits = 0

    def load(self, parameters: Any) -> None:
        super().load(parameters)
        self.known: dict[bytes, Any] = {}

    def prefill(self, prompts: Any) -> Any:
        self.hits += prompts.tobytes() in self.known
        self.known[prompts.tobytes()] = None
        return super().prefill(prompts)


BY_PARITY = (OnePositionLate, PositionsNotAdvanced, MaskMissing, AnotherRow, EarlierSequence, Forgets, ItselfNotSeen)


@functools.cache
def made_once() -> Any:
    return bounds.make_reference(NAME)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The reference of the small network."""
    path = tmp_path / "small.npz"
    np.savez(path, **made_once())
    monkeypatch.setattr(parity, "reference_path", lambda name: path)


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("adapter", [Cached, *BY_PARITY])
def test_the_logits_of_every_cached_step_are_those_without_a_cache(adapter: type[Cached]) -> None:
    results = parity.check(NAME, adapter(), "fp32")
    assert [result.tensor for result in results][:2] == ["sequence 1, prompt", "sequence 1, step 1"]
    assert len(results) == 2 * 13
    failed = {result.tensor for result in results if not result.passed}
    assert bool(failed) is (adapter is not Cached)
    if adapter is EarlierSequence:
        assert not any(tensor.startswith("sequence 1") for tensor in failed), "nothing came before it"


def in_float16(value: Any) -> Any:
    return np.asarray(value).astype(np.float16).astype(np.float64)


class InHalf(Cached):
    """Parameters, the sums of the blocks and the cache are float16's."""

    def load(self, parameters: Any) -> None:
        super().load({name: in_float16(value) for name, value in parameters.items()})

    def block(self, h: Any, name: str, cache: Any) -> Any:
        out = in_float16(super().block(in_float16(h), name, cache))
        cache[:] = in_float16(cache)
        return out


class InHalfWithoutPositions(InHalf, PositionsNotAdvanced):
    pass


@pytest.mark.usefixtures("stored")
def test_a_half_type_has_bounds_of_its_own_and_nothing_passes_for_it_that_is_float32s() -> None:
    assert all(result.passed for result in parity.check(NAME, InHalf(), "fp16"))
    assert not all(result.passed for result in parity.check(NAME, InHalf(), "fp32"))
    assert not all(result.passed for result in parity.check(NAME, InHalfWithoutPositions(), "fp16"))
    with pytest.raises(Unsupported, match="nothing was computed in bf16"):
        parity.check(NAME, Cached(), "bf16")


def cell(preset: dict[str, Any], emitter: Any, batch: int = 5) -> decoding.DecodingCell:
    options = SimpleNamespace(
        workload=NAME, preset="quick", data=None, seed=1, device="cpu", precision="fp32", devices=1
    )
    made = decoding.DecodingCell(options, emitter)
    made.batch = batch
    made.preset = {"seconds": None, "windows": 1000, "noise": 1e-9, "epochs": None, **preset}
    return made


def measured(adapter: Cached, preset: dict[str, Any]) -> tuple[decoding.DecodingCell, Any]:
    emitter = Emitter()
    made = cell(preset, emitter)
    data = made.load_data()
    made.fill(adapter, data, np.random.RandomState(1))
    made.measure(contract.Framework(SimpleNamespace(synchronize=lambda: None)), adapter, data, None)
    return made, emitter


@pytest.mark.parametrize(("epochs", "stop"), [(None, "time"), (2, "count")])
def test_a_cell_times_each_prompt_and_each_token(epochs: int | None, stop: str) -> None:
    made, emitter = measured(Cached(), {"seconds": None if epochs else 0.4, "epochs": epochs, "test_items": 5 * 16 * 3})
    samples = [event for event in emitter.events if event["event"] == "sample"]
    assert {sample["stage"] for sample in samples} == {"first", "warm-up", "steady"}
    assert all(sample["items"] == 5 * sample["steps"] for sample in samples)
    steady = [sample for sample in samples if sample["stage"] == "steady"]
    (each,) = {sample["steps"] for sample in steady}
    assert 16 % each == 0, "a window ends where a sequence ends"
    assert made.stop == stop
    (plan,) = [event for event in emitter.events if event["event"] == "plan"]
    assert plan["short"] is (epochs is None)
    steps = sum(sample["steps"] for sample in steady)
    if epochs:
        assert steps == 2 * 3 * 16
    values: dict[str, list[float]] = {}
    for event in emitter.events:
        if event["event"] == "metric":
            values.setdefault(event["name"], []).append(event["value"])
    # The last of the five prompts before the first window begins the first sequence.
    assert len(values[rules.FIRST_TOKEN]) == decoding.FEWEST_PROMPTS + -(-steps // 16) - 1
    assert len(made.between) == steps
    assert sum(made.between) == pytest.approx(sum(sample["seconds"] for sample in steady), rel=0.05)
    assert values[rules.BETWEEN_TOKENS] == [float(np.median(made.between))]
    if steps >= decoding.FEWEST_TOKENS:
        assert values[rules.BETWEEN_TOKENS_99] == [float(np.percentile(made.between, 99))]
    else:
        assert rules.BETWEEN_TOKENS_99 in {event["what"] for event in emitter.events if event["event"] == "left-out"}


@pytest.mark.parametrize(
    ("adapter", "failed"),
    [
        (Cached, set()),
        *((mistake, {"logits"}) for mistake in BY_PARITY if mistake is not EarlierSequence),
        (CacheInHalf, {rules.DIGITS_OF_CACHE}),
        (OneTokenBehind, {"logits"}),
        (KeepsItsToken, {rules.GREEDY}),
        (OnlyTheProofComputed, {rules.GREEDY}),
    ],
)
def test_the_last_sequence_is_held_as_it_was_measured(adapter: type[Cached], failed: set[str]) -> None:
    made, _ = measured(adapter(), {"epochs": 1, "test_items": 5 * 16 * 2})
    parameters = canonical.draw_parameters(made.workload, np.random.RandomState(1), True)
    results = decoding.last_sequence(made.workload, parameters, "fp32", *made.last)
    assert failed <= {result.tensor for result in results if not result.passed}
    assert failed or all(result.passed for result in results), results
    assert {(result.quantity, result.tensor) for result in results} == {
        (rules.DECODED, "logits"),
        (rules.DECODED, rules.GREEDY),
        (rules.DECODED, rules.DIGITS_OF_CACHE),
    }


def test_a_sequence_that_the_windows_end_within_is_taken_to_its_end_and_held_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The warm-up takes more steps than a sequence has, and the window is one step.
    monkeypatch.setattr(decoding.DecodingCell, "steps_per_window", lambda self, seconds: 1)
    made, emitter = measured(LastPositionBlind(), {"seconds": 1e-6, "test_items": 5 * 16})
    assert sum(event["event"] == "sample" and event["stage"] == "steady" for event in emitter.events) < 16
    assert len(made.last[1]) == 1 + 16
    parameters = canonical.draw_parameters(made.workload, np.random.RandomState(1), True)
    results = decoding.last_sequence(made.workload, parameters, "fp32", *made.last)
    assert "logits" in {result.tensor for result in results if not result.passed}


def test_no_sequence_comes_twice_and_each_follows_from_the_seed_and_its_number() -> None:
    adapter = RemembersPrompts()
    made, _ = measured(adapter, {"seconds": 0.3, "test_items": 5 * 16 * 2})
    assert len(adapter.known) > 4
    assert adapter.hits == 0
    first, again = (made.workload.draw_sequence(1, 7, 5) for _ in range(2))
    assert (first == again).all()
    assert (
        len({made.workload.draw_sequence(seed, number, 5).tobytes() for seed in (1, 2, 2**40) for number in range(9)})
        == 27
    )


def test_the_digits_of_a_cache_show_a_shorter_type() -> None:
    values = np.random.RandomState(0).normal(size=(2, 5000)).astype(np.float32)
    bfloat16 = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    fp8 = ops.to_fp8(values.astype(np.float64)).astype(np.float32)
    half = values.astype(np.float16).astype(np.float32)
    bound = {
        precision: rules.decoded(precision)[rules.DECODED, rules.DIGITS_OF_CACHE]
        for precision in ("fp32", "bf16", "fp16")
    }
    assert decoding.shorter_share([values], "fp32") < bound["fp32"] / 10
    for shorter in (bfloat16, half, fp8, np.zeros_like(values)):
        assert decoding.shorter_share([shorter], "fp32") == 1.0 > bound["fp32"]
    assert decoding.shorter_share([values, half[:, :500]], "fp32") > bound["fp32"]
    for precision, honest in (("bf16", bfloat16), ("fp16", half)):
        assert decoding.shorter_share([honest], precision) < bound[precision] / 4
        assert decoding.shorter_share([fp8], precision) > bound[precision]


@pytest.mark.usefixtures("stored")
def test_the_proof_is_of_the_measured_object_which_then_can_go_on() -> None:
    made, emitter = measured(Cached(), {"epochs": 1, "test_items": 5 * 16 * 2})
    assert all(result.passed for result in made.proved(made.decoding))
    made.loop.unmeasured(20)
    given = [event for event in emitter.events if event["event"] == "data"]
    assert [(event["source"], event["test_items"]) for event in given] == [("generated", 160)]


def test_the_host_asks_for_every_step_before_and_after_and_for_the_last_sequence() -> None:
    owed = of_host.due(of_host.Checked(NAME, "fp32", "quick", 1), [])
    assert owed == [("parity", "logits"), ("proof", "logits"), ("proof", "decoded")]
    assert of_host.due(of_host.Checked("gpt2-decode-16", "tf32", "full", 1), []) == owed
    own = of_host.bounds("gpt2-decode-16", "fp32", "", 1)
    assert {tensor for _, tensor in own} == {gpt2_decode.tensor_of(n, step) for n in (1, 2) for step in range(13)}
    assert max(own.values()) < 1e-4
    checked = of_host.Checked(NAME, "fp32", "quick", 1)
    row = {"phase": "proof", "quantity": "decoded", "tensor": rules.GREEDY, "variant": "", "error": 0.0, "bound": 0.5}
    assert of_host.allowed(row, checked, 1) == 0.5
    assert "it did not check decoded " in str(of_host.incomplete([row], checked, 1, []))


def test_the_arithmetic_and_the_bytes_of_a_token() -> None:
    """Of the network as it is: all parameters but the positions' are read and multiplied once."""
    network = Transformer(50304, 1024, 12, 12, 768)
    size = sum(int(np.prod(spec.shape)) for spec in network.parameters() if spec.name != "wpe")
    before = np.arange(128, 256)
    assert BYTES_READ[NAME] == (4 * size, 4 * 2 * 12 * 768 * before.mean())
    assert size < MULTIPLY_ADDS[NAME] < size + 2 * 12 * 768 * (before + 1).mean()
    assert least_bytes("gpt2-decode-16", 16, "fp32") == 4 * size + 16 * BYTES_READ[NAME][1]
    assert least_bytes("gpt2-decode-16", 16, "bf16") == 2 * size + 8 * BYTES_READ[NAME][1]
    assert least_bytes("gpt2-124m", 16, "fp32") is None

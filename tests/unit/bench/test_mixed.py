"""Mixed precision: how values are rounded to a half type, the loss scale, skipped steps, and who refuses what."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from bench import arithmetic, bounds, canonical, contract, mixed, parity, rules, timing
from bench.errors import Overflow, Unsupported
from runner.catalog.frameworks import load_frameworks
from tests.fixtures.adapters import Incomplete


def bfloat16(values: np.ndarray) -> np.ndarray:
    """float32 rounded to nearest, halves to even, by its bits."""
    bits = values.view(np.uint32)
    rounded = bits + 0x7FFF + ((bits >> 16) & 1)
    return (rounded & 0xFFFF0000).astype(np.uint32).view(np.float32)


VALUES = np.concatenate(
    [
        np.random.RandomState(0).standard_normal(20_000) * 10.0 ** np.random.RandomState(1).randint(-8, 4, 20_000),
        [0.0, 1.0, -1.0, 65504.0, 5.96e-8, 2.9e-8, -3.1e-8, 1.00390625, 1.01171875],
    ]
).astype(np.float32)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [(arithmetic.FLOAT16, VALUES.astype(np.float16)), (arithmetic.BFLOAT16, bfloat16(VALUES))],
    ids=["float16", "bfloat16"],
)
def test_factors_are_rounded_as_the_type_rounds_them_subnormals_and_ties_included(
    kind: arithmetic.HalfType, expected: np.ndarray
) -> None:
    rounding = arithmetic.Mixed(np.random.RandomState(0), kind, 1.0)
    assert (rounding.operand(VALUES.astype(np.float64)) == expected.astype(np.float64)).all()


@pytest.mark.parametrize("kind", [arithmetic.FLOAT16, arithmetic.BFLOAT16], ids=["float16", "bfloat16"])
def test_what_is_stored_is_a_neighbour_and_right_on_average(kind: arithmetic.HalfType) -> None:
    rounding = arithmetic.Mixed(np.random.RandomState(0), kind, 1.0)
    value = np.full(100_000, 1.0 + 0.3 * 2.0 ** (1 - kind.bits))
    stored = rounding.product(value[:, None], np.ones((1, 1)))[:, 0]
    assert set(np.unique(stored)) == {1.0, 1.0 + 2.0 ** (1 - kind.bits)}
    assert (stored.mean() - 1.0) * 2.0 ** (kind.bits - 1) == pytest.approx(0.3, abs=0.01)
    assert not rounding.product(np.zeros((3, 100)), np.ones((100, 1))).any()


def test_a_network_of_a_half_type_holds_its_parameters_and_the_sums_of_its_blocks_in_it() -> None:
    whole = arithmetic.Half(np.random.RandomState(0), arithmetic.FLOAT16)
    assert np.array_equal(whole.parameter(VALUES), VALUES.astype(np.float16))
    carried = whole.carried(VALUES)
    assert np.array_equal(carried, carried.astype(np.float16))
    mixed = arithmetic.Mixed(np.random.RandomState(0), arithmetic.FLOAT16, 1.0)
    assert np.array_equal(mixed.parameter(VALUES), VALUES)
    assert not np.array_equal(mixed.carried(VALUES), mixed.carried(VALUES).astype(np.float16))


def test_a_gradient_beyond_float16_is_an_error_of_the_derivation_and_no_infinity() -> None:
    with pytest.raises(OverflowError, match="take a smaller loss scale"):
        arithmetic.Mixed(np.random.RandomState(0), arithmetic.FLOAT16, 1.0).operand(np.array([7e4]))


def test_the_stored_bounds_are_those_that_the_model_gives() -> None:
    """The largest of eight runs is in the file: this first one is below it, and of its order."""
    name = "mlp-mnist"
    workload = contract.specification(name)
    exact = bounds.quantities(workload, arithmetic.Exact())
    with np.load(parity.reference_path(name)) as stored:
        for precision in mixed.HALF:
            _, _, model = bounds.ROUNDINGS[precision][0]
            run = bounds.quantities(workload, model(np.random.RandomState(0)))
            for key, value in run.items():
                error, bound = (
                    parity.relative_error(value, exact[key]),
                    float(stored[f"bound/{precision}/{'/'.join(key)}"]),
                )
                assert bounds.MARGIN * error <= bound * (1 + 1e-6), key
            gradients = [key for key in run if key[0] == "gradient"]
            worst = max(float(stored[f"bound/{precision}/{'/'.join(key)}"]) for key in gradients)
            assert worst < 10 * bounds.MARGIN * max(parity.relative_error(run[key], exact[key]) for key in gradients)


def test_a_loss_scale_is_gone_from_the_gradients_and_keeps_small_ones_from_vanishing() -> None:
    """Without a scale float16 has lost a good part of what the embedding's rows are told."""
    workload = contract.Specification(
        SimpleNamespace(
            PARAMETERS=contract.specification("mlp-mnist").PARAMETERS,
            VARIANTS={},
            draw_batch=lambda random: (
                1e-4 * random.uniform(size=(50, 1, 28, 28)).astype("float32"),
                np.arange(50) % 10,
            ),
            loss_and_gradients=contract.specification("mlp-mnist").loss_and_gradients,
        )
    )
    parameters, ((x, y), *_) = canonical.parity_case(workload)
    p = {name: value.astype(np.float64) for name, value in parameters.items()}
    _, _, exact = workload.loss_and_gradients(p, x.astype(np.float64), y, arithmetic.Exact())
    errors = {}
    for scale in (1.0, mixed.INITIAL_SCALE):
        rounding = arithmetic.Mixed(np.random.RandomState(0), arithmetic.FLOAT16, scale)
        _, _, found = workload.loss_and_gradients(p, x.astype(np.float64), y, rounding)
        errors[scale] = parity.relative_error(found["dense1.w"] / scale, exact["dense1.w"])
    assert errors[mixed.INITIAL_SCALE] < 0.01
    assert errors[1.0] > 3 * errors[mixed.INITIAL_SCALE]


class Scaler:
    """A device whose steps take a second each, and a loss scaler that skips those of these numbers."""

    def __init__(self, skips: set[int]) -> None:
        self.now, self.asked, self.skips = 0.0, 0, skips

    def step(self, x: object, y: object) -> str:
        self.now += 1.0
        self.asked += 1
        return "loss"

    def skipped(self) -> int:
        return sum(number < self.asked for number in self.skips)

    def loop(self) -> timing.Loop:
        return timing.Loop(
            self.step,
            itertools.repeat((0, 0)),
            lambda: None,
            lambda sample, handle: None,
            clock=lambda: self.now,
            skipped=self.skipped,
        )


def test_a_skipped_step_is_no_step_of_training_and_its_time_is() -> None:
    loop = Scaler({2}).loop()
    assert loop.window("steady", 5) == pytest.approx(5.0 / 4)
    assert (loop.samples[0].steps, loop.samples[0].seconds) == (4, pytest.approx(5.0))
    assert (loop.steps, loop.seconds, loop.skipped) == (4, pytest.approx(5.0), 1)


def test_a_window_of_skipped_steps_goes_on_until_one_is_taken() -> None:
    loop = Scaler({0, 1}).loop()
    assert loop.window("first", 1) == pytest.approx(3.0)
    assert (loop.steps, len(loop.samples), loop.skipped) == (1, 1, 2)


def test_a_whole_run_takes_its_number_of_steps_whatever_was_skipped() -> None:
    scaler = Scaler({1, 5})
    loop = scaler.loop()
    loop.for_steps(4, 10)
    assert (loop.steps, scaler.asked) == (10, 12)


def test_a_run_that_only_skips_ends_with_an_error() -> None:
    with pytest.raises(Overflow, match="training diverged"):
        Scaler(set(range(10_000))).loop().window("steady", 1)


def test_a_skipped_step_in_the_parity_check_is_an_error_of_its_own() -> None:
    class Skipping(Incomplete):
        def load(self, parameters: object) -> None:
            pass

        def step(self, x: object, y: object) -> float:
            self.steps = getattr(self, "steps", 0) + 1
            return 0.0

        def skipped(self) -> int:
            return min(getattr(self, "steps", 0), 1)

    with pytest.raises(Overflow, match="1 of the parity check's steps were skipped"):
        parity.check_steps("mlp-mnist", Skipping(), "amp-fp16")


def check_precision(framework: str, workload: str, precision: str, device: str, devices: int = 1) -> None:
    options = {"precision": precision, "device": device, "devices": devices, "mode": "default"}
    contract.check(SimpleNamespace(framework=framework, workload=workload, **options))


def test_a_precision_that_a_framework_or_a_workload_has_not_is_refused_before_anything_starts() -> None:
    check_precision("torch", "cnn-cifar10", "amp-bf16", "cpu")
    check_precision("lasagne", "cnn-cifar10", "fp32", "cpu")
    with pytest.raises(Unsupported, match="resnet50-features is not specified at amp-bf16"):
        check_precision("torch", "resnet50-features", "amp-bf16", "cpu")
    with pytest.raises(Unsupported, match="lasagne does not compute amp-bf16 here"):
        check_precision("lasagne", "cnn-cifar10", "amp-bf16", "cpu")
    with pytest.raises(Unsupported, match="keras_jax does not compute amp-bf16 on gru-imdb: its GRU sums"):
        check_precision("keras_jax", "gru-imdb", "amp-bf16", "cuda")
    with pytest.raises(Unsupported, match="amp-bf16 is measured on one device"):
        check_precision("torch", "cnn-cifar10", "amp-bf16", "cpu", 2)
    amp = {"amp-fp16": {"cpu": "it has no kernels"}}
    assert rules.half_reason("other", amp, "cnn-cifar10", "amp-fp16", "cuda", 1) is None
    reason = rules.half_reason("other", amp, "cnn-cifar10", "amp-fp16", "cpu", 1)
    assert reason == "other does not compute amp-fp16 on cpu: it has no kernels"


def test_the_planner_and_the_bench_read_the_same_of_a_framework() -> None:
    for name, found in load_frameworks().items():
        assert found.half == rules.framework_declaration(name).get("half", {})
    assert {name for name, found in load_frameworks().items() if found.half} >= {
        "torch",
        "jax",
        "tensorflow",
        "keras_jax",
    }

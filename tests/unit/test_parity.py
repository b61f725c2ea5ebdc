"""The float64 reference and the gate's own arithmetic: gradients against differences, sketches, stored numbers, derived bounds."""

import numpy as np
import pytest

from bench import canonical, parity, reference, workloads

WORKLOADS = ["cnn-cifar10", "gru-imdb", "mlp-mnist", "cnn-mnist"]


def small(name: str):
    """The canonical case with 2 items of the batch, in float64."""
    workload = workloads.module(name)
    parameters, x, y = canonical.parity_case(workload)
    return workload, {k: v.astype(np.float64) for k, v in parameters.items()}, x[:2], y[:2]


@pytest.mark.parametrize("name", WORKLOADS)
def test_the_reference_s_gradients_are_those_of_its_loss(name: str) -> None:
    """Central differences along a random direction: the two agree to the differences' own error."""
    workload, p, x, y = small(name)
    _, _, gradients = workload.loss_and_gradients(p, x, y, reference.Exact())
    random = np.random.RandomState(0)
    for tensor in p:
        # a direction where there is a gradient: most rows of an embedding have none
        direction = random.standard_normal(p[tensor].shape) * (gradients[tensor] != 0)
        step = 1e-6 / np.linalg.norm(direction)
        sides = []
        for sign in (1, -1):
            moved = dict(p, **{tensor: p[tensor] + sign * step * direction})
            sides.append(workload.loss_and_gradients(moved, x, y, reference.Exact())[1])
        expected = float((gradients[tensor] * direction).sum())
        assert (sides[0] - sides[1]) / (2 * step) == pytest.approx(expected, rel=2e-3, abs=1e-7), tensor


def test_the_parameters_are_as_many_as_the_specification_says() -> None:
    counts = {n: sum(np.prod(s.shape) for s in workloads.module(n).PARAMETERS) for n in WORKLOADS}
    assert counts == {"cnn-cifar10": 3_441_592, "gru-imdb": 3_818_302, "mlp-mnist": 25_450, "cnn-mnist": 3_490}


def test_a_pool_leaves_out_an_odd_last_row_and_column_and_gives_them_no_gradient() -> None:
    x = np.arange(2 * 5 * 7, dtype=float).reshape(1, 2, 5, 7)
    y, cache = reference.max_pool(x)
    assert (y == x[:, :, 1:4:2, 1:6:2]).all()
    expected = np.zeros(x.shape)
    expected[:, :, 1:4:2, 1:6:2] = 1.0 + np.arange(y.size).reshape(y.shape)
    assert (reference.max_pool_gradient(1.0 + np.arange(y.size).reshape(y.shape), cache) == expected).all()


def test_training_parameters_are_glorot_uniform_with_zero_biases() -> None:
    workload = workloads.module("cnn-cifar10")
    drawn = canonical.draw_parameters(workload, np.random.RandomState(1), parity=False)
    for spec in workload.PARAMETERS:
        if spec.kind == "bias":
            assert not drawn[spec.name].any()
        else:
            limit = np.sqrt(6 / (spec.fan_in + spec.fan_out))
            assert np.abs(drawn[spec.name]).max() <= limit
            assert np.abs(drawn[spec.name]).max() >= 0.98 * limit


def test_the_first_loss_is_that_of_a_guess() -> None:
    """Exactly one softmax: the loss of canonical training parameters is about ln(classes)."""
    workload, _, x, y = small("cnn-cifar10")
    p = canonical.draw_parameters(workload, np.random.RandomState(1), parity=False)
    _, loss, _ = workload.loss_and_gradients({k: v.astype(np.float64) for k, v in p.items()}, x, y, reference.Exact())
    assert loss == pytest.approx(np.log(10), abs=0.3)


@pytest.mark.parametrize("name", ["gru-imdb", "mlp-mnist", "cnn-mnist"])
def test_the_stored_reference_is_what_the_code_computes(name: str) -> None:
    exact = parity.quantities(workloads.module(name), reference.Exact())
    with np.load(parity.reference_path(name)) as stored:
        for key, value in exact.items():
            np.testing.assert_allclose(parity.sketch(key[1], value), stored["value/%s/%s" % key], rtol=1e-9, atol=1e-12)


def test_the_stored_reference_of_the_cnn_is_what_the_code_computes() -> None:
    workload = workloads.module("cnn-cifar10")
    parameters, x, y = canonical.parity_case(workload)
    p = {k: v.astype(np.float64) for k, v in parameters.items()}
    logits, loss, gradients = workload.loss_and_gradients(p, x.astype(np.float64), y, reference.Exact())
    with np.load(parity.reference_path("cnn-cifar10")) as stored:
        np.testing.assert_allclose(logits.ravel(), stored["value/logits/logits"], rtol=1e-9)
        assert loss == pytest.approx(stored["value/loss/loss"][0], rel=1e-12)
        for name, value in gradients.items():
            np.testing.assert_allclose(
                parity.sketch(name, value), stored[f"value/gradient/{name}"], rtol=1e-7, atol=1e-12
            )


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_quantity_has_a_value_and_a_bound_that_float32_can_meet_and_a_mistake_cannot(name: str) -> None:
    tensors = [spec.name for spec in workloads.module(name).PARAMETERS]
    with np.load(parity.reference_path(name)) as stored:
        for precision in parity.ROUNDOFF:
            for quantity, names in (
                ("logits", ["logits"]),
                ("loss", ["loss"]),
                ("gradient", tensors),
                ("parameter", tensors),
            ):
                for tensor in names:
                    assert f"value/{quantity}/{tensor}" in stored
                    bound = float(stored[f"bound/{precision}/{quantity}/{tensor}"])
                    assert 2.0**-24 <= bound < (0.01 if precision == "fp32" else 0.3)


def test_a_sketch_s_difference_has_the_norm_of_the_tensors_difference() -> None:
    random = np.random.RandomState(3)
    a = random.standard_normal((300, 400))
    for scale in (1e-7, 1e-3, 1.0):
        b = a + scale * random.standard_normal(a.shape)
        estimate = np.linalg.norm(parity.sketch("w", a) - parity.sketch("w", b))
        assert estimate == pytest.approx(np.linalg.norm(a - b), rel=0.15)


def test_a_single_wrong_element_shows_in_the_sketch() -> None:
    a = np.zeros((300, 400))
    b = a.copy()
    b[17, 3] = 1.0
    assert np.linalg.norm(parity.sketch("w", a) - parity.sketch("w", b)) == pytest.approx(1.0)


def test_not_finite_is_an_infinite_error_and_never_passes() -> None:
    assert parity.relative_error(np.array([np.nan, 1.0]), np.array([1.0, 1.0])) == float("inf")
    assert parity.relative_error(np.array([1.0, 1.0]), np.array([1.0, 1.0])) == 0.0

"""The float64 reference and the gate's own arithmetic: gradients against differences, sketches, stored numbers, derived bounds."""

import contextlib
import functools
import re
from collections import ChainMap
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bench import arithmetic, bounds, canonical, contract, parity, proof, reference, rules, sketches
from tests.fixtures.adapters import Incomplete

DECLARED = {name: rules.workload_declaration(name) for name in rules.workload_names()}
# Each that is trained and has a specification of its own.
WORKLOADS = [name for name, declared in DECLARED.items() if declared["task"] == "train" and "computes" not in declared]
# The most that a bound of each quantity may be. The widest of its tensors' is more than half of it. A workload without limits of its own
# is held to the widest of FEW_LAYERS.
# A network of 120 normalised layers tips so many of its ReLUs by rounding that two honest float32 gradients differ by some per cent.
LIMITS = {
    "cnn-cifar10": {
        "fp32": {"logits": 2.5e-05, "loss": 7.5e-07, "gradient": 0.015, "movement": 0.0155, "parameter": 0.025},
        "tf32": {"logits": 0.0065, "loss": 6e-05, "gradient": 0.35, "movement": 0.4, "parameter": 0.4},
        # Below the pools a gradient of 8 bits is held loosely, as a tipped maximum moves an element of it; the rest is not.
        "amp-fp16": {"logits": 0.0035, "loss": 2e-05, "gradient": 0.25, "movement": 0.3, "parameter": 0.3},
        "amp-bf16": {"logits": 0.03, "loss": 0.0003, "gradient": 0.7, "movement": 0.8, "parameter": 0.8},
    },
    # At fp32 it contains cuDNN's approximation of the tangent, and the loss at half types what errs alike in all items.
    "gru-imdb": {
        "fp32": {"logits": 7e-06, "loss": 7.5e-07, "gradient": 2e-05, "parameter": 0.00045},
        "tf32": {"logits": 0.002, "loss": 9e-05, "gradient": 0.0055, "parameter": 0.07},
        "amp-fp16": {"logits": 0.0065, "loss": 0.0003, "gradient": 0.0111, "parameter": 0.3},
        "amp-bf16": {"logits": 0.09, "loss": 0.006, "gradient": 0.2, "parameter": 0.91},
    },
    "mlp-mnist": {
        "fp32": {"logits": 5e-06, "loss": 8e-07, "gradient": 5.5e-06, "parameter": 0.00015},
        "tf32": {"logits": 0.0035, "loss": 0.00055, "gradient": 0.015, "parameter": 0.15},
        "amp-fp16": {"logits": 0.002, "loss": 9e-05, "gradient": 0.0055, "parameter": 0.035},
        "amp-bf16": {"logits": 0.015, "loss": 0.00035, "gradient": 0.025, "parameter": 0.3},
    },
    "cnn-mnist": {
        "fp32": {"logits": 5.5e-06, "loss": 7e-07, "gradient": 6.5e-05, "parameter": 0.00015},
        "tf32": {"logits": 0.0065, "loss": 0.00035, "gradient": 0.2, "parameter": 0.55},
        "amp-fp16": {"logits": 0.004, "loss": 7.5e-05, "gradient": 0.2, "parameter": 0.91},
        "amp-bf16": {"logits": 0.03, "loss": 0.00055, "gradient": 0.35, "parameter": 0.91},
    },
    "densenet121-chestxray": {
        "fp32": {"prediction": 1.5e-05, "logits": 0.00025, "loss": 2e-05, "gradient": 0.2, "parameter": 0.91}
    },
    "gpt-bytes": {
        "fp32": {"prediction": 1e-05, "logits": 1e-05, "loss": 8e-07, "gradient": 5e-05, "parameter": 0.004},
        "tf32": {"prediction": 0.005, "logits": 0.005, "loss": 0.00025, "gradient": 0.02, "parameter": 0.3},
        "amp-bf16": {"prediction": 0.03, "logits": 0.03, "loss": 0.0006, "gradient": 0.08, "parameter": 0.5},
    },
    # Its float32 tables of the rotation are off by 1e-5.
    "llama-bytes": {
        "fp32": {"prediction": 2.5e-05, "logits": 2.5e-05, "loss": 8e-07, "gradient": 7e-05, "parameter": 0.015},
        "tf32": {"prediction": 0.009, "logits": 0.009, "loss": 0.00025, "gradient": 0.025, "parameter": 0.3},
        "amp-bf16": {"prediction": 0.045, "logits": 0.045, "loss": 0.0006, "gradient": 0.12, "parameter": 0.5},
    },
    "moe-bytes": {
        "fp32": {"prediction": 1e-05, "logits": 1e-05, "loss": 8e-07, "gradient": 7e-05, "parameter": 0.01},
    },
    "resnet50-imagenet": {
        "fp32": {"prediction": 1.5e-05, "logits": 0.0015, "loss": 0.0002, "gradient": 0.4, "parameter": 0.4}
    },
}
# The parameter whose rows a workload's inputs select.
TABLES = {"gru-imdb": "embedding", "gpt-bytes": "wte", "gpt2-124m": "wte", "llama-bytes": "wte", "moe-bytes": "wte"}
# Its reference would take too long on so many tokens. Each row has a gradient all the same, as the embedding is the head's, too.
PART_OF_THE_TABLE = ("gpt2-124m",)
# tests/unit/bench/test_gpt.py and test_llama.py have the gradients of small ones.
DIFFERENCED = [name for name in WORKLOADS if not name.startswith(("gpt", "llama", "moe"))]
FEW_LAYERS = ("cnn-cifar10", "gru-imdb", "mlp-mnist", "cnn-mnist")
# Of several devices each statistic is of half as many values.
SEVERAL = {"densenet121-chestxray": {"gradient": 0.5}}


def small(name: str):
    """The canonical case with 2 items of the batch, in float64; of the deepest networks a few of their blocks."""
    workload = contract.specification(name)
    if name == "resnet50-imagenet":
        groups = ((2, 8, 1), (1, 8, 2))
        workload = contract.Specification(
            SimpleNamespace(
                PARAMETERS=workload.parameters(groups),
                VARIANTS={},
                draw_batch=workload.draw_batch,
                loss_and_gradients=functools.partial(workload.loss_and_gradients, groups=groups),
            )
        )
    if name == "densenet121-chestxray":
        layers = (2, 1, 1, 1)
        workload = contract.Specification(
            SimpleNamespace(
                PARAMETERS=workload.parameters(layers),
                VARIANTS={},
                draw_batch=workload.draw_batch,
                loss_and_gradients=functools.partial(workload.loss_and_gradients, layers=layers),
            )
        )
    parameters, ((x, y), *_) = canonical.parity_case(workload)
    return workload, {k: v.astype(np.float64) for k, v in parameters.items()}, x[:2], y[:2]


@pytest.mark.parametrize("name", WORKLOADS)
def test_whatever_an_index_selects_is_selected_in_the_canonical_case(name: str) -> None:
    """A row that no batch names has no gradient, so nobody would see that it is not trained."""
    parameters, batches = canonical.parity_case(contract.specification(name))
    inputs = [x for x, _ in batches]
    assert (inputs[0].dtype.kind in "iu") == (name in TABLES)
    if name in TABLES and name not in PART_OF_THE_TABLE:
        assert np.array_equal(np.unique(inputs), np.arange(len(parameters[TABLES[name]])))


def test_each_canonical_batch_of_reviews_has_the_special_ids_and_padding_and_names_other_rows() -> None:
    workload = contract.specification("gru-imdb")
    batches = [x for x, _ in canonical.parity_case(workload)[1]]
    assert (*range(1, 10), 29_999) == workload.SPECIAL
    for x in batches:
        assert {0, *workload.SPECIAL} <= set(x.ravel())
        assert 7_400 < np.count_nonzero(x) < 7_800
        assert ((x != 0).sum(axis=1) >= workload.SHORTEST).all()
        assert (np.diff((x != 0).astype(int), axis=1) <= 0).all(), "a review is padded on the right"
    common = set(batches[0].ravel()) & set(batches[1].ravel())
    assert common == {0, *workload.SPECIAL}


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERENCED)
def test_the_reference_s_gradients_are_those_of_its_loss(name: str) -> None:
    """Central differences along a random direction: the two agree to the differences' own error."""
    workload, p, x, y = small(name)
    _, _, gradients = workload.loss_and_gradients(p, x, y, arithmetic.Exact())
    random = np.random.RandomState(0)
    for tensor in [name for name in p if name in gradients]:
        # a direction where there is a gradient: most rows of an embedding have none
        direction = random.standard_normal(p[tensor].shape) * (gradients[tensor] != 0)
        step = 1e-6 / np.linalg.norm(direction)
        sides = []
        for sign in (1, -1):
            moved = dict(p, **{tensor: p[tensor] + sign * step * direction})
            sides.append(workload.loss_and_gradients(moved, x, y, arithmetic.Exact())[1])
        expected = float((gradients[tensor] * direction).sum())
        assert (sides[0] - sides[1]) / (2 * step) == pytest.approx(expected, rel=2e-3, abs=1e-7), tensor


def test_the_parameters_are_as_many_as_the_specification_says() -> None:
    counts = {n: sum(np.prod(s.shape) for s in contract.specification(n).PARAMETERS) for n in WORKLOADS}
    # 6 968 206 of DenseNet-121 are trained: the 7 978 856 of torchvision's, whose classifier has 1 000 outputs, with one of 14
    assert counts == {
        "cnn-cifar10": 3_441_592,
        "gru-imdb": 3_818_302,
        "mlp-mnist": 25_450,
        "cnn-mnist": 3_490,
        "densenet121-chestxray": 6_968_206 + 83_648,
        "gpt-bytes": 10_844_160,
        "gpt2-124m": 124_475_904,
        "llama-bytes": 9_638_784,
        "moe-bytes": 16_725_888,
        "resnet50-imagenet": 25_557_032 + 53_120,  # torchvision's, and the running statistics
    }


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_variant_of_a_specification_is_declared_by_an_adapter(name: str) -> None:
    """A variant that no adapter computes is a reference that nothing is held against."""
    declared = "".join(path.read_text() for path in Path(rules.FRAMEWORKS).glob(f"*/{name.replace('-', '_')}.*"))
    for variant in contract.specification(name).VARIANTS:
        assert re.search(f'(VARIANT|variant) = "{variant}"', declared), variant


def test_a_pool_leaves_out_an_odd_last_row_and_column_and_gives_them_no_gradient() -> None:
    x = np.arange(2 * 5 * 7, dtype=float).reshape(1, 2, 5, 7)
    y, cache = reference.max_pool(x)
    assert (y == x[:, :, 1:4:2, 1:6:2]).all()
    expected = np.zeros(x.shape)
    expected[:, :, 1:4:2, 1:6:2] = 1.0 + np.arange(y.size).reshape(y.shape)
    assert (reference.max_pool_gradient(1.0 + np.arange(y.size).reshape(y.shape), cache) == expected).all()


def test_training_parameters_are_glorot_uniform_with_zero_biases() -> None:
    workload = contract.specification("cnn-cifar10")
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
    _, loss, _ = workload.loss_and_gradients({k: v.astype(np.float64) for k, v in p.items()}, x, y, arithmetic.Exact())
    assert loss == pytest.approx(np.log(10), abs=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gru-imdb", "mlp-mnist", "cnn-mnist"])
def test_the_stored_reference_is_what_the_code_computes(name: str) -> None:
    exact = bounds.quantities(contract.specification(name), arithmetic.Exact())
    with np.load(parity.reference_path(name)) as stored:
        for key, value in exact.items():
            np.testing.assert_allclose(parity.sketch(key[1], value), stored["value/%s/%s" % key], rtol=1e-9, atol=1e-12)


@pytest.mark.slow
def test_the_stored_reference_of_the_cnn_is_what_the_code_computes() -> None:
    workload = contract.specification("cnn-cifar10")
    parameters, ((x, y), *_) = canonical.parity_case(workload)
    p = {k: v.astype(np.float64) for k, v in parameters.items()}
    logits, loss, gradients = workload.loss_and_gradients(p, x.astype(np.float64), y, arithmetic.Exact())
    with np.load(parity.reference_path("cnn-cifar10")) as stored:
        np.testing.assert_allclose(logits.ravel(), stored["value/logits/logits"], rtol=1e-9)
        assert loss == pytest.approx(stored["value/loss/loss"][0], rel=1e-12)
        for name, value in gradients.items():
            np.testing.assert_allclose(
                parity.sketch(name, value), stored[f"value/gradient/{name}"], rtol=1e-7, atol=1e-12
            )


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("name", ["densenet121-chestxray", "resnet50-imagenet"])
def test_the_stored_reference_of_a_deep_network_is_what_the_code_computes(name: str, devices: int) -> None:
    workload = contract.specification(name)
    parameters, ((x, y), *_) = canonical.parity_case(workload)
    p = {k: v.astype(np.float64) for k, v in parameters.items()}
    with np.load(parity.reference_path(name, devices=devices)) as stored:
        if devices == 1:  # several devices evaluate as one does
            predicted = parity.sketch("logits", workload.predict(p, x, arithmetic.Exact()), workload.BUCKETS)
            np.testing.assert_allclose(predicted, stored["value/prediction/logits"], rtol=1e-8)
        logits, loss, gradients = workload.loss_and_gradients(
            p, x.astype(np.float64), y, arithmetic.Exact(), parts=parity.parts_of(workload, devices)
        )
        found = parity.sketch("logits", logits, workload.BUCKETS)
        np.testing.assert_allclose(found, stored["value/logits/logits"], rtol=1e-8)
        assert loss == pytest.approx(stored["value/loss/loss"][0], rel=1e-11)
        for tensor, value in gradients.items():
            found = parity.sketch(tensor, value, workload.BUCKETS)
            assert parity.relative_error(found, stored[f"value/gradient/{tensor}"]) < 1e-8, tensor


@pytest.mark.parametrize("name", ["densenet121-chestxray", "resnet50-imagenet"])
def test_devices_that_share_a_batch_compute_what_each_would_of_its_own_part_and_tell_each_other_the_mean(
    name: str,
) -> None:
    """Logits side by side; loss, gradients and running statistics are the mean of the parts', though each normalises by itself."""
    workload, p, _, _ = small(name)
    _, ((x, y), *_) = canonical.parity_case(workload)
    half = len(x) // 2
    shared, shares = dict(p), [dict(p), dict(p)]
    logits, loss, gradients = workload.loss_and_gradients(shared, x, y, arithmetic.Exact(), parts=2)
    found = [
        workload.loss_and_gradients(own, x[at : at + half], y[at : at + half], arithmetic.Exact())
        for own, at in zip(shares, (0, half), strict=True)
    ]
    np.testing.assert_allclose(logits, np.concatenate([each[0] for each in found]), rtol=1e-9)
    assert loss == pytest.approx((found[0][1] + found[1][1]) / 2)
    for tensor, value in gradients.items():
        np.testing.assert_allclose(value, (found[0][2][tensor] + found[1][2][tensor]) / 2, rtol=1e-7, atol=1e-12)
    for tensor, value in shared.items():
        np.testing.assert_allclose(value, (shares[0][tensor] + shares[1][tensor]) / 2, rtol=1e-9, err_msg=tensor)
    whole, _, _ = workload.loss_and_gradients(dict(p), x, y, arithmetic.Exact())
    assert parity.relative_error(whole, logits) > 1e-3, "the parts must make a difference"


def test_the_case_of_the_parity_check_is_drawn_once_and_an_adapter_cannot_change_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    canonical.forget()
    drawn: list[str] = []
    draw = canonical.draw_parameters
    monkeypatch.setattr(canonical, "draw_parameters", lambda *words: drawn.append("drawn") or draw(*words))
    workload = contract.specification("gru-imdb")
    parameters, batches = canonical.parity_case(workload)
    kept, label = {name: value.copy() for name, value in parameters.items()}, batches[0][1][0]
    for value in parameters.values():
        value[...] = 0.0
    batches[0][1][...] = 7
    again, batches = canonical.parity_case(contract.specification("gru-imdb"))
    assert drawn == ["drawn"]
    assert all(np.array_equal(again[name], value) for name, value in kept.items())
    assert batches[0][1][0] == label
    # Another set of parameters is another case.
    assert "gru.c" not in canonical.parity_case(workload, "one-bias")[0]
    canonical.forget()
    canonical.parity_case(workload)
    assert len(drawn) == 3


@pytest.mark.parametrize("devices", [1, 2, 4, 8])
def test_however_many_devices_share_the_canonical_batch_their_mean_is_that_of_its_parts(devices: int) -> None:
    workload = contract.specification("resnet50-imagenet")
    x = np.arange(8.0)
    dealt = parity.dealt(workload, devices, x)
    shares = np.split(dealt, devices)
    assert {tuple(share) for share in shares} == (
        {(0, 1, 2, 3, 4, 5, 6, 7)} if devices == 1 else {(0, 1, 2, 3), (4, 5, 6, 7)}
    )
    assert dealt.mean() == x.mean()
    np.testing.assert_array_equal(parity.undealt(workload, devices, dealt), x)
    plain = contract.specification("cnn-cifar10")
    assert parity.dealt(plain, devices, x).tolist() == parity.undealt(plain, devices, x).tolist() == x.tolist()


def test_the_rate_of_the_resnet_is_the_study_s_schedule() -> None:
    workload = contract.specification("resnet50-imagenet")
    assert workload.rate(0, 256, 32) == pytest.approx(0.1)
    assert workload.rate(29, 32, 32) == pytest.approx(0.0125)
    assert workload.rate(0, 128 * 32, 32) == pytest.approx(1.6)  # the study's largest run
    assert [workload.rate(epoch, 256, 32) for epoch in (30, 59, 60, 90, 99)] == pytest.approx(
        [0.01, 0.01, 1e-3, 1e-4, 1e-4]
    )


def test_the_rate_of_the_densenet_goes_with_the_devices_and_not_with_a_preset_s_batch() -> None:
    workload = contract.specification("densenet121-chestxray")
    assert workload.rate(0, 64, 64) == workload.rate(4, 8, 8) == 1e-4
    assert workload.rate(0, 4 * 64, 64) == workload.rate(0, 4 * 8, 8) == pytest.approx(4e-4)  # the document's four GPUs


def test_momentum_with_decay_is_that_of_the_loss_and_half_the_decay_times_the_squared_weights() -> None:
    """And a change of the rate leaves the momentum that was gathered as it is."""
    optimizer, p = reference.Momentum(0.5, 0.9, 0.01), {"w": np.array([2.0])}
    optimizer.update(p, {"w": np.array([3.0])}, arithmetic.Exact())
    v = 3.0 + 0.01 * 2.0
    assert p["w"][0] == pytest.approx(2.0 - 0.5 * v)
    optimizer.rate = 0.05
    before = p["w"][0]
    optimizer.update(p, {"w": np.array([1.0])}, arithmetic.Exact())
    assert p["w"][0] == pytest.approx(before - 0.05 * (0.9 * v + 1.0 + 0.01 * before))


class Decaying(Incomplete):
    """A ResNet of one tensor of each name that matters: a step from rest with a gradient of its own and a decay that may be wrong."""

    def __init__(self, decays: dict[str, float]) -> None:
        self.decays, self.rate = decays, 0.0

    def load(self, parameters: dict[str, np.ndarray]) -> None:
        names = contract.specification("resnet50-imagenet").DECAYED
        self.held = {name: parameters[name].copy() for name in names}

    def probe(self, x: np.ndarray, y: np.ndarray) -> tuple[None, float, dict[str, np.ndarray]]:
        random = np.random.RandomState(0)
        return None, 0.0, {k: random.standard_normal(v.shape).astype("float32") for k, v in self.held.items()}

    def set_rate(self, rate: float) -> None:
        self.rate = rate

    def step(self, x: np.ndarray, y: np.ndarray) -> float:
        for name, gradient in self.probe(x, y)[2].items():
            decayed = gradient + np.float32(self.decays.get(name, 1e-4)) * self.held[name]
            self.held[name] = self.held[name] - np.float32(self.rate) * decayed
        return 0.0

    def read(self) -> dict[str, np.ndarray]:
        return self.held


def test_a_weight_decay_that_is_left_out_or_spares_a_tensor_fails() -> None:
    name = "resnet50-imagenet"
    decayed = contract.specification(name).DECAYED

    def failed(decays: dict[str, float]) -> list[str]:
        results = parity._decay(name, Decaying(decays), 1, None)
        assert [(result.quantity, result.tensor) for result in results] == [("decay", tensor) for tensor in decayed]
        return [result.tensor for result in results if not result.passed]

    assert failed({}) == []
    assert failed({"layer4.2.bn3.bias": 0.0}) == ["layer4.2.bn3.bias"]
    assert failed(dict.fromkeys(decayed, 2e-4)) == list(decayed)
    assert failed(dict.fromkeys(decayed, float("nan"))) == list(decayed)


def test_a_training_step_of_the_densenet_moves_its_running_statistics_a_tenth_of_the_way() -> None:
    workload = contract.specification("densenet121-chestxray")
    x = np.random.RandomState(0).standard_normal((4, 3, 64, 64))
    drawn = canonical.draw_parameters(
        SimpleNamespace(PARAMETERS=workload.parameters((1, 1, 1, 1)), VARIANTS={}), np.random.RandomState(1), True
    )
    before = {k: v.astype(np.float64) for k, v in drawn.items()}
    p = dict(before)
    workload.loss_and_gradients(p, x, np.zeros((4, 14)), arithmetic.Exact(), layers=(1, 1, 1, 1))
    h, _ = reference.conv2d(x, p["features.conv0.weight"], 0.0, 3, arithmetic.Exact(), 2)
    for tensor, now in (("running_mean", h.mean(axis=(0, 2, 3))), ("running_var", h.var(axis=(0, 2, 3), ddof=1))):
        expected = 0.9 * before[f"features.norm0.{tensor}"] + 0.1 * now
        np.testing.assert_allclose(p[f"features.norm0.{tensor}"], expected, rtol=1e-10)
    biased = 0.9 * before["features.norm0.running_var"] + 0.1 * h.var(axis=(0, 2, 3))
    np.testing.assert_allclose(p["features.norm0.running_var" + parity.EITHER], biased, rtol=1e-10)


# (workload, variant, devices) of each stored reference of training
REFERENCES = [
    (name, *kind)
    for name in WORKLOADS
    for workload in [contract.specification(name)]
    for kind in [(variant, 1) for variant in ("", *workload.VARIANTS)] + [("", 2)] * (workload.PARTS > 1)
]


@pytest.mark.parametrize(("name", "variant", "devices"), REFERENCES)
def test_every_quantity_has_a_value_and_a_bound_that_float32_can_meet_and_a_mistake_cannot(
    name: str, variant: str, devices: int
) -> None:
    workload = contract.specification(name)
    tensors = {
        "gradient": canonical.compared(workload, variant),
        "movement": [spec.name for spec in canonical.specifications(workload, variant)],
        "parameter": [
            spec.name for spec in canonical.specifications(workload, variant) if spec.name not in workload.SYMMETRIC
        ],
        "logits": ["logits"],
        "loss": ["loss"],
        "prediction": ["logits"],
    }
    assert set(limits_of(name)) == set(DECLARED[name]["precisions"])
    with contextlib.ExitStack() as stack:
        paths = [parity.reference_path(name, variant, devices)]
        paths += [parity.first_steps_path(name)] if rules.has_dropout(name) else []
        stored = ChainMap(*(stack.enter_context(np.load(path)) for path in paths))
        for precision, limits in limits_of(name).items():
            for quantity, limit in {**limits, **(SEVERAL.get(name, {}) if devices > 1 else {})}.items():
                assert all(f"value/{quantity}/{tensor}" in stored for tensor in tensors[quantity])
                allowed = [float(stored[f"bound/{precision}/{quantity}/{tensor}"]) for tensor in tensors[quantity]]
                assert min(allowed) >= bounds.MARGIN * 2.0**-24
                assert max(allowed) < limit, (precision, quantity)
                # A variant's bound of the loss may be 2.7 times the specification's: it is the largest of few draws.
                assert name not in LIMITS or limit / 3 < max(allowed), (precision, quantity)


def limits_of(name: str) -> dict[str, dict[str, float]]:
    """precision -> quantity -> the most that its bound may be."""
    if name in LIMITS:
        return LIMITS[name]
    widest: dict[str, dict[str, float]] = {precision: {} for precision in DECLARED[name]["precisions"]}
    for precision, limits in widest.items():
        for few in FEW_LAYERS:
            for quantity, limit in LIMITS[few][precision].items():
                if quantity != "movement" or rules.has_dropout(name):
                    limits[quantity] = max(limit, limits.get(quantity, 0))
    return widest


def test_a_workload_without_limits_of_its_own_is_held_to_the_widest_of_the_networks_of_few_layers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(DECLARED, "softmax-mnist", {"precisions": ["fp32"]})
    monkeypatch.setattr(rules, "has_dropout", lambda name: False)
    without_dropout = {"logits": 2.5e-05, "loss": 8e-07, "gradient": 0.015, "parameter": 0.025}
    assert limits_of("softmax-mnist") == {"fp32": without_dropout}
    assert limits_of("mlp-mnist") is LIMITS["mlp-mnist"]


@pytest.mark.parametrize("share", [0.0, 1.0, 0.5])
def test_of_two_values_left_open_each_passes_and_what_lies_between_does_not(share: float) -> None:
    """A running variance may take the biased or the unbiased estimate."""
    name, tensor = "densenet121-chestxray", "features.norm5.running_var"
    with np.load(parity.reference_path(name)) as stored:
        one, other = (stored[f"value/parameter/{tensor}{end}"] for end in ("", parity.EITHER))
        bound = float(stored[f"bound/fp32/parameter/{tensor}"])
        spread = parity.relative_error(one, other)
        tight = {key: stored[key] for key in stored.files if tensor in key}
        for end in ("", parity.EITHER):  # as if the arithmetic were ten times as exact
            tight[f"bound/fp32/parameter/{tensor}{end}"] = np.array(min(bound, spread) / 10)
        mixed = sketched_like(name, tensor, one + share * (other - one))
        result = parity._nearest_result(tight, "fp32", "parameter", tensor, mixed)
    assert result.passed == (share in (0.0, 1.0))


def sketched_like(name: str, tensor: str, wanted: np.ndarray) -> np.ndarray:
    """A tensor of the real size whose sketch is `wanted`: each bucket's sum in the first element that falls into it."""
    size = next(spec.shape[0] for spec in contract.specification(name).PARAMETERS if spec.name == tensor)
    value = np.zeros(size)
    for index in range(size):
        unit = np.zeros(size)
        unit[index] = 1.0
        image = parity.sketch(tensor, unit, wanted.size)
        bucket = int(np.flatnonzero(image)[0])
        if np.isnan(wanted[bucket]):
            continue
        value[index] = wanted[bucket] * image[bucket]
        wanted = wanted.copy()
        wanted[bucket] = np.nan
    return value


def test_a_sketch_s_difference_has_the_norm_of_the_tensors_difference() -> None:
    random = np.random.RandomState(3)
    a = random.standard_normal((300, 400))
    for scale in (1e-7, 1e-3, 1.0):
        b = a + scale * random.standard_normal(a.shape)
        estimate = np.linalg.norm(parity.sketch("w", a) - parity.sketch("w", b))
        assert estimate == pytest.approx(np.linalg.norm(a - b), rel=0.15)


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_movement_s_sketch_is_that_of_the_difference(size: int) -> None:
    """Of small tensors and of large ones, whose movement is never an array of its own."""
    random = np.random.RandomState(3)
    before = random.standard_normal(size).astype(np.float32)
    after = before + (1e-3 * random.standard_normal(size)).astype(np.float32)
    found = sketches.Sketch("w", size, 1024).of(sketches.Moved(after, before))
    expected = parity.sketch("w", after.astype(np.float64) - before)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize(
    "read",
    [np.zeros(6), np.zeros((3, 2)), np.zeros((2, 2, 3)), np.float32(0.0)],
    ids=["flat", "turned", "two copies", "a number"],
)
def test_a_tensor_that_is_read_in_another_shape_is_refused(read: np.ndarray) -> None:
    loaded = {"w": np.zeros((2, 3), dtype=np.float32)}
    with pytest.raises(ValueError, match="w was read as"):
        sketches.movement(loaded, {"w": read})
    with pytest.raises(ValueError, match="w was read as"):
        proof._moved("w", loaded, {"w": read})


def test_a_sketch_has_at_most_as_many_sums_as_its_places_can_count() -> None:
    with pytest.raises(ValueError, match="40000 sums; at most 32768"):
        sketches.Sketch("w", 10, 40_000)


def test_a_single_wrong_element_shows_in_the_sketch() -> None:
    a = np.zeros((300, 400))
    b = a.copy()
    b[17, 3] = 1.0
    assert np.linalg.norm(parity.sketch("w", a) - parity.sketch("w", b)) == pytest.approx(1.0)


def test_not_finite_is_an_infinite_error_and_never_passes() -> None:
    assert parity.relative_error(np.array([np.nan, 1.0]), np.array([1.0, 1.0])) == float("inf")
    assert parity.relative_error(np.array([1.0, 1.0]), np.array([1.0, 1.0])) == 0.0


def test_the_loss_of_items_that_err_alike_is_off_by_as_much_as_their_logits_may_move_it() -> None:
    name = "gru-imdb"
    workload = contract.specification(name)
    y = canonical.parity_case(workload)[1][0][1]
    logits = np.random.RandomState(1).standard_normal((len(y), 2))
    loss, d = reference.softmax_cross_entropy(logits, y, arithmetic.Exact())
    exact = {("logits", "logits"): logits, ("loss", "loss"): np.array([loss])}
    allowed = 3e-4
    # All items err in the direction that moves the loss most, together by a third of what their logits may.
    moved = logits + allowed / bounds.MARGIN * np.linalg.norm(logits) * d / np.linalg.norm(d)
    off = reference.softmax_cross_entropy(moved, y, arithmetic.Exact())[0] / loss - 1
    assert bounds.of_the_loss(workload, exact, {("logits", "logits"): allowed}, "") == pytest.approx(off, rel=1e-3)
    # Of findings each class has a loss of its own.
    chest = contract.specification("densenet121-chestxray")
    findings = canonical.parity_case(chest)[1][0][1]
    exact = {("logits", "logits"): np.zeros(findings.shape), ("loss", "loss"): np.array([1.0])}
    assert bounds.of_the_loss(chest, exact, {("logits", "logits"): allowed}, "") == 0


def test_the_movements_of_a_kind_of_tensor_have_one_bound_and_their_gradients_have_their_own() -> None:
    each = {
        ("parameter", "h0.fc.b"): 0.1,
        ("parameter", "h11.fc.b"): 0.02,
        ("parameter", "lnf.b"): 0.01,
        ("gradient", "h0.fc.b"): 0.3,
        ("gradient", "h1.fc.b"): 0.2,
    }
    pooled = bounds.pooled(contract.specification("gpt2-124m"), each)
    assert pooled == each | {("parameter", "h11.fc.b"): 0.1}
    assert bounds.pooled(contract.specification("gru-imdb"), each) == each


def test_an_approximation_of_the_tangent_errs_alike_for_like_arguments_and_as_much_as_cudnn_s() -> None:
    x = np.linspace(0.5, 2, 20001)
    model = arithmetic.ApproximateTanh(np.random.RandomState(1), 2.0**-24, 0.0)
    errors = (model.tanh(x) / np.tanh(x) - 1) * 2.0**24
    assert 70 < np.sqrt(np.mean(errors**2)) < 80
    assert np.corrcoef(errors[:-1], errors[1:])[0, 1] > 0.9
    exact = arithmetic.MonteCarlo(np.random.RandomState(1), 2.0**-24, 0.0)
    assert np.abs(exact.tanh(x) / np.tanh(x) - 1).max() < 4 * 2.0**-24

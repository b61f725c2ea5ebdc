"""Three measured steps against the adapter's own probe: the loss, the gradients, rows that no batch named; what is exact under dropout."""

from __future__ import annotations

import functools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import arithmetic, canonical, contract, dropout, items, measured, parity, proof, rules, timing
from bench.__main__ import parser
from bench.llama import Llama
from bench.training import TrainingCell
from bench.workloads import moe_bytes
from tests.fixtures.adapters import Incomplete
from tests.fixtures.events import Emitter

pytestmark = pytest.mark.keyed

GRU = contract.specification("gru-imdb")
CNN = contract.specification("cnn-cifar10")
MNIST = contract.specification("cnn-mnist")
ITEMS = 8
Batch = tuple[np.ndarray, np.ndarray]


class Reference(Incomplete):
    """The specification itself in float64, with parameters in float32 and Adam or momentum, as an adapter."""

    VARIANT = ""

    def __init__(self, workload: Any, mistake: Any = None) -> None:
        self.workload, self.mistake, self.count = workload, mistake, 0

    def load(self, parameters: dict[str, np.ndarray]) -> None:
        self.p = {name: value.astype(np.float32) for name, value in parameters.items()}
        self.optimizer, self.count = self.workload.optimizer(), 0

    def read(self) -> dict[str, np.ndarray]:
        return self.p

    def inputs(self, x: np.ndarray, y: np.ndarray) -> Batch:
        return x, y

    def predict(self, x: np.ndarray) -> np.ndarray:
        return self.computed(x, np.zeros(len(x), dtype=np.int64))[0]

    def computed(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float, dict[str, np.ndarray]]:
        return self.workload.loss_and_gradients(self.p, x, y, arithmetic.Exact())

    def probe(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, float, dict[str, np.ndarray]]:
        return self.computed(x, y)

    def step(self, x: np.ndarray, y: np.ndarray) -> float:
        self.count += 1
        mistake = self.mistake if self.count > 4 else None
        if mistake in HALVES:
            x, y = x[: len(y) // 2], y[: len(y) // 2]
        _, loss, gradients = self.computed(x, y)
        if callable(mistake):
            gradients = mistake(gradients)
        if mistake == "the rate is doubled":
            self.optimizer.rate = 2 * self.workload.optimizer().rate
        before = self.p
        self.p = dict(self.p)
        self.optimizer.update(self.p, gradients, arithmetic.Exact())
        self.p = {name: value.astype(np.float32) for name, value in self.p.items()}
        if mistake == "nothing moves":
            self.p = before
        return float(np.float32(loss))

    def value(self, loss: float) -> float:
        return loss


HALVES = ("half of the batch",)


def batches(workload: Any, count: int) -> list[Batch]:
    drawn = [workload.draw_batch(np.random.RandomState(step)) for step in range(count)]
    if workload is GRU:
        # Words are not as often as others: a tenth of the ids are drawn from ten.
        drawn = [(np.where(x % 10 == 0, x % 97 + 1, x).astype("int32"), y) for x, y in drawn]
    return [(x[:ITEMS], y[:ITEMS]) for x, y in drawn]


@functools.cache
def errors(name: str, mistake: Any = None, moment: float | None = None, count: int = 7) -> dict[str, float]:
    """Of each statement about the watched steps of a training of `count` windows its error, in bounds."""
    workload = contract.specification(name)
    adapter, due = Reference(workload, mistake), batches(workload, count + measured.STEPS)
    first = canonical.draw_parameters(workload, np.random.RandomState(1), False)
    adapter.load(first)
    loop = timing.Loop(adapter.step, iter(due), lambda: None, lambda sample, loss: watch.after(loss))
    watch = measured.Watch(adapter, loop, moment)
    for window in range(count):
        if watch.wants(window / count, count - window, 1):
            watch.copy()
        loop.window("steady", 1)
    watch.end(further=True)
    assert watch.steps is not None
    last = watch.steps.copies[-1].taken
    results = measured.check(name, adapter, watch.steps, due[last - 2 : last], "fp32", first)
    assert [one.quantity for one in results] == ["exact"] * len(results)
    assert [one.passed for one in results] == [one.error <= one.bound for one in results]
    return {one.tensor.rsplit(", ", 1)[1]: one.error / one.bound for one in results}


@pytest.mark.parametrize(
    ("name", "moment"), [("cnn-mnist", None), ("cnn-mnist", 0.0), ("cnn-mnist", 0.99), ("gru-imdb", 0.5)]
)
def test_right_steps_pass_at_any_moment(name: str, moment: float | None) -> None:
    found = errors(name, moment=moment)
    statements = {"loss", "gradient"} | ({"rows at rest", "first gradients"} if name == "gru-imdb" else set())
    assert set(found) == statements
    assert max(found.values()) < 0.5


def without(*tensors: str) -> Any:
    return lambda gradients: {name: 0 * g if name in tensors else g for name, g in gradients.items()}


def half_of_the_numbers(gradients: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    random = np.random.RandomState(0)
    return {name: g * (random.rand(*g.shape) < 0.5) for name, g in gradients.items()}


def in_bfloat16(gradients: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {name: eight_digits(value) for name, value in gradients.items()}


@pytest.mark.parametrize("name", ["cnn-mnist", pytest.param("gru-imdb", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("mistake", "statement"),
    [
        ("half of the batch", "loss"),
        ("half of the batch", "gradient"),
        ("the rate is doubled", "gradient"),
        ("nothing moves", "gradient"),
        (half_of_the_numbers, "gradient"),
        (in_bfloat16, "gradient"),
    ],
)
def test_a_mistake_that_begins_later_is_refused_by_the_last_steps(name: str, mistake: Any, statement: str) -> None:
    assert errors(name, mistake)[statement] >= 1.5


@pytest.mark.parametrize(("name", "tensor"), [("cnn-mnist", "conv1.w"), ("gru-imdb", "gru.u")])
def test_a_tensor_whose_gradient_is_zero_is_refused(name: str, tensor: str) -> None:
    assert errors(name, without(tensor))["gradient"] > 1


def test_a_mistake_that_is_over_at_the_end_is_refused_at_its_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    class Middle(Reference):
        def step(self, x: np.ndarray, y: np.ndarray) -> float:
            half = len(y) // 2 if self.count in (4, 5, 6) else len(y)
            return super().step(x[:half], y[:half])

    monkeypatch.setitem(globals(), "Reference", Middle)
    assert errors.__wrapped__("cnn-mnist", moment=4 / 9, count=9)["loss"] > 1
    assert errors.__wrapped__("cnn-mnist", count=11)["loss"] < 0.5


class Flattered(Reference):
    """Its evaluations between the first and the last are too good: the right class of each item stands out."""

    evaluations = 0

    def predict(self, x: np.ndarray) -> np.ndarray:
        logits = self.computed(x, np.zeros(len(x), dtype=np.int64))[0]
        self.evaluations += 1
        return logits + 5 * (self.evaluations == 2)


@pytest.mark.parametrize(("adapter", "passed"), [(Flattered, False), (Reference, True)])
def test_each_evaluation_of_a_whole_run_is_held_and_so_are_steps_of_it(
    adapter: type[Reference], passed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("DLBENCH_CACHE", str(tmp_path))
    words = ["run", "cnn-mnist", "--framework", "torch", "--preset", "full", "--proved-at", "0.4"]
    emitter = Emitter()
    cell = TrainingCell(parser().parse_args(words), emitter)
    cell.batch = cell.alone = ITEMS
    cell.preset = dict(cell.preset, epochs=3, train_items=5 * ITEMS, test_items=ITEMS)
    training, random = adapter(MNIST), np.random.RandomState(1)
    feed = cell.load_data()
    cell.fill(training, feed, random)
    cell.measure(contract.Framework(SimpleNamespace(synchronize=lambda: None)), training, feed, random)
    assert cell.watch is not None
    assert cell.watch.steps is not None
    windows = [event["steps"] for event in emitter.events if event["event"] == "sample"]
    assert cell.steps == sum(windows) == 15
    results = cell.took(training, proof.numbers(training), cell.drawn(np.random.RandomState(1)))
    held = {one.tensor: one.passed for one in results}
    assert held["logits"] is passed
    assert held["the loss, measured step, loss"]


def test_rows_that_no_batch_named_and_that_move_are_refused() -> None:
    def stirred(gradients: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return dict(gradients, embedding=gradients["embedding"] + 1e-6)

    assert errors("gru-imdb", stirred)["rows at rest"] > 100


def test_rows_that_are_named_for_the_first_time_and_do_not_move_are_refused() -> None:
    def frozen(gradients: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        small = np.abs(gradients["embedding"]).max(axis=1) < 1e-5
        return dict(gradients, embedding=np.where(small[:, None], 0.0, gradients["embedding"]))

    assert errors("gru-imdb", frozen)["first gradients"] > 1.5


def test_a_step_that_a_loss_scaler_skipped_is_not_among_those_that_are_held() -> None:
    adapter, skipped = Reference(MNIST), [0]
    adapter.load(canonical.draw_parameters(MNIST, np.random.RandomState(1), False))
    due = batches(MNIST, 12)

    def step(x: np.ndarray, y: np.ndarray) -> float:
        if loop.taken == 3:
            skipped[0] += 1
            return 1.0
        return adapter.step(x, y)

    loop = timing.Loop(
        step, iter(due), lambda: None, lambda sample, loss: watch.after(loss), skipped=lambda: skipped[0]
    )
    watch = measured.Watch(adapter, loop, 0.25)
    for window in range(8):
        if watch.wants(window / 8, 9, 1):
            watch.copy()
        loop.window("steady", 1)
    assert watch.steps is not None
    assert [(copy.taken, copy.steps) for copy in watch.steps.copies] == [(5, 4), (6, 5), (7, 6), (8, 7)]


@pytest.mark.parametrize(("moment", "single"), [(0.5, 3), (None, 0)])
def test_windows_around_copies_have_one_step_each_and_further_steps_come_after_the_last(
    moment: float | None, single: int
) -> None:
    adapter = Reference(MNIST)
    adapter.load(canonical.draw_parameters(MNIST, np.random.RandomState(1), False))
    due = iter(batches(MNIST, 40))
    loop = timing.Loop(adapter.step, due, lambda: None, lambda sample, loss: watch.after(loss))
    watch = measured.Watch(adapter, loop, moment)
    for window in range(10):
        one = watch.wants(window / 10, 10 - window, 3) and watch.copy()
        loop.window("steady", 1 if one else 3)
    windows = [sample.steps for sample in loop.samples]
    watch.end(further=True)
    assert windows.count(1) == single
    assert loop.taken == sum(windows) + (0 if single else 3)
    assert watch.steps is not None


@pytest.mark.parametrize(
    ("name", "count", "size"),
    [
        ("gpt-bytes", 64, 1),
        ("mlp-mnist", 60000, 1000),
        ("gru-imdb", 64, 64),
        ("gru-imdb", 8, 8),
        ("cnn-cifar10", 64, 64),
        ("resnet50-imagenet", 8, 8),
    ],
)
def test_probe_takes_the_canonical_shape_where_an_item_alone_is_the_same_function(
    name: str, count: int, size: int
) -> None:
    assert measured.part(contract.specification(name), "", count) == size


def test_steps_of_several_devices_are_not_held() -> None:
    assert measured.reason(1) is None
    assert measured.reason(2) == "they are held on one device"


def test_under_dropout_without_its_masks_a_tensor_that_stands_still_is_refused() -> None:
    copies = [measured.Copy(at, at, None, copy, None) for at, copy in enumerate([*steps_of_momentum(), {}])]
    copies[-1] = copies[-1]._replace(parameters=dict(copies[-2].parameters))
    steps = measured.Steps(copies, (None, None), (1.0, 1.0))
    assert measured._all_moved(steps).passed
    for copy in copies:
        copy.parameters["dense1.w"] = copies[0].parameters["dense1.w"]
    still = measured._all_moved(steps)
    assert (still.tensor, still.passed) == ("dense1.w, measured step, moved", False)


def steps_of_momentum(kept: Any = np.asarray, rate: float = 1.0) -> list[dict[str, np.ndarray]]:
    """The tensors of the CNN's last layer around two steps. A tenth of the units is silent in the second one."""
    random = np.random.RandomState(3)
    places = {
        "dense2.w": np.zeros((10, 512), np.float32),
        "dense1.w": random.uniform(-0.1, 0.1, (512, 64)).astype(np.float32),
    }
    velocity = {name: np.zeros_like(value) for name, value in places.items()}
    copies = [dict(places)]
    for step in range(2):
        for name, value in places.items():
            gradient = random.normal(0, 0.01, value.shape).astype(np.float32)
            if name == "dense2.w" and step:
                gradient[:, ::10] = 0
            velocity[name] = np.float32(0.9) * kept(velocity[name]) + gradient
            places[name] = value - np.float32(0.01 * (rate if step else 1.0)) * velocity[name]
        copies.append(dict(places))
    return copies


def eight_digits(values: np.ndarray) -> np.ndarray:
    return (np.float32(values).view(np.uint32) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def silent(copies: list[dict[str, np.ndarray]]) -> float:
    trail = dropout.Trail(copies[0], "dense2.w")
    for copy in copies[1:]:
        trail.add(copy)
    (result,) = [one for one in trail.results(CNN.optimizer()) if one.tensor.endswith("silent units")]
    return result.error / result.bound


def test_silent_units_move_on_by_momentum_and_by_nothing_else() -> None:
    assert silent(steps_of_momentum()) == 0.0
    assert silent(steps_of_momentum(eight_digits)) > 1.5
    assert silent(steps_of_momentum(rate=0.95)) == 2.0


@pytest.mark.parametrize(
    ("taken", "passes"),
    [(slice(None), True), (slice(32), False), (slice(8), False), (slice(None, None, -1), True)],
)
def test_the_last_bias_moves_by_the_labels_of_the_batch(taken: slice, passes: bool) -> None:
    random = np.random.RandomState(5)
    logits, y = random.normal(0, 0.3, (64, 10)), random.randint(0, 10, 64)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    velocity, places = random.normal(0, 0.05, 10), [random.normal(0, 0.01, 10)]
    for gradient in (velocity, 0.9 * velocity + (p - np.eye(10)[y])[taken].mean(axis=0)):
        places.append(places[-1] - 0.01 * gradient)
    copies = [SimpleNamespace(parameters={"dense2.b": np.float32(place)}) for place in (places[0], *places)]
    steps = measured.Steps(copies, (), ())
    (result,) = measured.of_labels(CNN, steps, y, logits)
    assert (result.tensor, result.passed) == ("dense2.b, measured step, labels", passes)
    # Of a batch that the network has learned nothing is said, and no logits are asked for.
    assert measured.of_labels(CNN, steps, y, 20 * np.eye(10)[y]) == []
    assert measured._labels(CNN, Incomplete(), steps._replace(told=(0.6, 0.5)), y, y) == []


@pytest.mark.parametrize(("decay", "passes"), [(0.0, True), (1e-4, False)])
def test_no_bit_of_a_row_changes_that_no_batch_has_named(decay: float, passes: bool) -> None:
    parameters, batches = canonical.parity_case(GRU)
    after = {name: value.copy() for name, value in parameters.items()}
    named = np.unique(batches[0][0])
    after["embedding"][named] += 1
    after["embedding"] -= np.float32(0.001 * decay) * after["embedding"]
    (result,) = parity._at_rest(GRU, parameters, after, batches[:1])
    assert (result.tensor, result.passed) == ("embedding, rows at rest", passes)


def test_the_bounds_of_what_is_exact_are_those_of_the_bench() -> None:
    of_digits = {", digits", ", silent units", ", activations"}
    of_steps = {", loss", ", gradient", ", first gradients", ", moved"}
    assert set(rules.EXACT) == of_digits | of_steps | {", rows at rest", ", labels", ", measured pictures"}


SMALL = Llama(16, 8, layers=2, heads=2, groups=1, width=8, hidden=8, experts=4, chosen=2)
POSITIONS = ITEMS * 8
DRAWN, CHECK = canonical.draw_parameters, measured.check


class Chooses(contract.Specification):
    """A small network with experts, as a workload of its own."""

    def __init__(self, chooses: bool) -> None:
        super().__init__(moe_bytes)
        self.CHOOSES = chooses
        self.PARAMETERS, self.predict, self.loss_and_gradients = (
            SMALL.parameters(),
            SMALL.logits,
            SMALL.loss_and_gradients,
        )
        self.draw_batch = lambda random: (random.randint(0, 16, (ITEMS, 8)), random.randint(0, 16, (ITEMS, 8)))


def errors_of_choices(
    monkeypatch: pytest.MonkeyPatch, mistake: Any = None, off: float = 0.0, chooses: bool = True
) -> dict[str, float]:
    """As `errors`, of the small network. off: nats by which the last loss is told wrong."""
    workload = Chooses(chooses)
    drawn = DRAWN(workload, np.random.RandomState(1), False)
    bounds = {("gradient", tensor): 1e-4 for tensor in drawn}
    monkeypatch.setattr(contract, "specification", lambda name: workload)
    monkeypatch.setattr(
        canonical, "draw_parameters", lambda *those: {name: value.copy() for name, value in drawn.items()}
    )
    monkeypatch.setattr(parity, "bounds_of", lambda *those: {("logits", "logits"): 1e-6, **bounds})
    monkeypatch.setattr(measured, "part", lambda *those: 1)

    def told_wrong(name: str, adapter: Any, steps: Any, *those: Any) -> list[parity.Result]:
        return CHECK(name, adapter, steps._replace(told=(steps.told[0], steps.told[1] + off)), *those)

    monkeypatch.setattr(measured, "check", told_wrong)
    return errors.__wrapped__("moe-bytes", mistake)


def test_of_a_network_that_chooses_experts_the_loss_is_held_with_its_term_of_the_whole_batch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    honest = errors_of_choices(monkeypatch)
    assert set(honest) == {"loss", "gradient"}
    assert max(honest.values()) < 0.5
    # The mean over the items, whose terms are others, is another loss by far.
    assert errors_of_choices(monkeypatch, chooses=False)["loss"] > 10.0


@pytest.mark.parametrize(
    ("mistake", "statement"),
    [("half of the batch", "loss"), (without("h0.router"), "gradient"), (without("h1.e2.up"), "gradient")],
)
def test_half_of_a_batch_and_a_router_or_an_expert_without_a_gradient_are_refused(
    monkeypatch: pytest.MonkeyPatch, mistake: Any, statement: str
) -> None:
    assert errors_of_choices(monkeypatch, mistake)[statement] > 1.0


def test_a_choice_that_rounding_may_turn_moves_the_loss_and_no_other_does(monkeypatch: pytest.MonkeyPatch) -> None:
    turned = 0.9 * measured.MOST_OF_A_CHOICE / POSITIONS
    assert errors_of_choices(monkeypatch, off=turned)["loss"] > 1.0
    # Each choice is near enough that rounding may turn it.
    monkeypatch.setattr(items, "CLOSE", 1e9)
    assert errors_of_choices(monkeypatch, off=turned)["loss"] <= 1.0
    # More than all positions together is refused.
    assert errors_of_choices(monkeypatch, off=1.1 * measured.MOST_OF_A_CHOICE)["loss"] > 1.0


def test_a_position_whose_second_and_third_expert_suit_it_alike_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = Chooses(True)
    parameters = DRAWN(workload, np.random.RandomState(1), False)
    batch = workload.draw_batch(np.random.RandomState(0))
    monkeypatch.setattr(contract, "specification", lambda name: workload)
    assert measured.close_choices("moe-bytes", parameters, *batch) == 0
    parameters["h1.router"][:] = parameters["h1.router"][0]
    assert measured.close_choices("moe-bytes", parameters, *batch) == POSITIONS


def test_one_workload_chooses_experts() -> None:
    names = [name for name in rules.workload_names() if contract.specification(name).CHOOSES]
    assert names == ["moe-bytes"]

"""The learning band: what the reference's own seeds show, what is refused, and that the stored losses are the reference's."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from bench import contract, learning, learning_reference, rules, training
from bench.training import TrainingCell
from tests.fixtures.events import Emitter

NAME, BATCH, STEPS = "gru-imdb", 7, 40
# Read before a test moves the folder of the stored losses.
DECLARED = {NAME: rules.workload_declaration(NAME)}
STORED = sorted(path for path in Path(rules.WORKLOADS).glob("*.learning.txt") if path.name.count(".") == 3)
LEARNING = sorted({path.name.split(".")[0] for path in Path(rules.WORKLOADS).glob("*.learning.txt")})
OF_SEED = sorted(Path(rules.WORKLOADS).glob("*.seed*.learning.txt"))


def drawn(random: np.random.Generator, rate: float = 1.0) -> np.ndarray:
    """Losses of one cell: a fall by a rate that differs a little between seeds, and the noise of its batches."""
    fall = rate * random.normal(1.0, 0.05)
    return 0.5 + 1.8 * np.exp(-fall * np.arange(STEPS) / 15.0) + random.normal(0.0, 0.02, STEPS)


def told(losses: np.ndarray) -> dict[int, float | None]:
    return {step: float(loss) for step, loss in enumerate(losses, start=1)}


@pytest.fixture
def band(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> np.random.Generator:
    """A stored band of eight seeds; more cells may be drawn from the generator."""
    random = np.random.default_rng(3)
    monkeypatch.setattr(rules, "WORKLOADS", str(tmp_path))
    rows = [drawn(random) for _ in range(8)]
    learning_reference.store(rules.losses_path(NAME, BATCH), NAME, rows)
    return random


def passes(losses: dict[int, float | None]) -> bool:
    results = learning.check(rules.losses_path(NAME, BATCH), losses)
    assert [(result.quantity, result.tensor) for result in results] == [("learning", "worst"), ("learning", "mean")]
    assert all(result.passed == (result.error <= result.bound) for result in results)
    return all(result.passed for result in results)


def test_cells_of_other_seeds_pass_whichever_of_their_losses_were_told(band: np.random.Generator) -> None:
    for number in range(200):
        steps = 1 + band.choice(STEPS, 3 + number % 30, replace=False)
        losses = told(drawn(band))
        assert passes({int(step): losses[int(step)] for step in steps})


@pytest.mark.parametrize("rate", [0.0, 0.5, 2.0])
def test_a_loss_that_falls_at_another_rate_is_refused(band: np.random.Generator, rate: float) -> None:
    assert not any(passes(told(drawn(band, rate))) for _ in range(20))


def test_a_loss_that_is_not_finite_is_refused(band: np.random.Generator) -> None:
    assert not passes({**told(drawn(band)), 20: None})


def test_a_single_loss_far_from_the_others_is_refused_by_the_largest_deviation(band: np.random.Generator) -> None:
    losses = told(drawn(band))
    worst, mean = learning.check(rules.losses_path(NAME, BATCH), {**losses, 30: 3.0})
    assert not worst.passed
    assert mean.error < worst.error / 10


def test_losses_after_the_stored_steps_are_not_compared(band: np.random.Generator) -> None:
    assert learning.check(rules.losses_path(NAME, BATCH), {STEPS + 1: 99.0}) == []
    losses = told(drawn(band))
    assert learning.check(rules.losses_path(NAME, BATCH), {**losses, STEPS + 1: 99.0}) == learning.check(
        rules.losses_path(NAME, BATCH), losses
    )


def test_what_is_not_compared_has_a_reason(band: np.random.Generator) -> None:
    stored = rules.stored_losses(NAME, BATCH, 1, 4096, "fp32")
    assert rules.losses_reason(stored, "generated", 1) is None
    assert "on files" in str(rules.losses_reason(stored, "files", 1))
    assert "one device" in str(rules.losses_reason(stored, "generated", 2))
    other = rules.stored_losses(NAME, BATCH + 1, 1, 4096, "fp32")
    assert "no losses are stored" in str(rules.losses_reason(other, "generated", 1))


def test_a_cell_of_the_default_seed_is_held_against_runs_of_that_seed_on_that_data(band: np.random.Generator) -> None:
    own = rules.losses_path_of_seed(NAME, BATCH, 1, 4096)
    learning_reference.store(own, NAME, [drawn(band) for _ in range(4)])
    assert rules.stored_losses(NAME, BATCH, 1, 4096, "fp32") == own
    for seed, items, precision in ((2, 4096, "fp32"), (1, 50000, "fp32"), (1, 4096, "tf32")):
        assert rules.stored_losses(NAME, BATCH, seed, items, precision) == rules.losses_path(NAME, BATCH)


def cell(seed: int) -> tuple[TrainingCell, Emitter]:
    """A cell of preset quick whose data is loaded."""
    emitter = Emitter()
    where = {"framework": "torch", "device": "cpu", "devices": 1, "scaling": "weak", "threads": 1, "mode": "default"}
    options = SimpleNamespace(workload=NAME, preset="quick", seed=seed, data=None, precision="fp32", **where)
    made = TrainingCell(options, emitter)
    made.batch = BATCH
    made.load_data()
    return made, emitter


def test_a_cell_holds_the_losses_that_it_told_against_those_of_its_seed(
    band: np.random.Generator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = SimpleNamespace(name="imdb", source="generated", sha256="", train_x=[0] * 4096, test_x=[])
    monkeypatch.setattr(training.data, "load", lambda *_: stand_in)
    monkeypatch.setattr(training.rules, "workload_declaration", DECLARED.__getitem__)
    own = rules.losses_path_of_seed(NAME, BATCH, 1, 4096)
    rows = [drawn(band, 0.2) for _ in range(4)]
    learning_reference.store(own, NAME, rows)
    made, emitter = cell(seed=1)
    made.losses = told(rows[0])
    assert all(result.passed for result in made.learned())
    other, _ = cell(seed=2)
    other.losses = told(rows[0])
    assert not all(result.passed for result in other.learned())
    assert [event["event"] for event in emitter.events] == ["data"]


def test_a_cell_whose_losses_are_not_compared_says_why(
    band: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = SimpleNamespace(name="imdb", source="files", sha256="", train_x=[0] * 4096, test_x=[])
    monkeypatch.setattr(training.data, "load", lambda *_: files)
    monkeypatch.setattr(training.rules, "workload_declaration", DECLARED.__getitem__)
    made, emitter = cell(seed=1)
    assert made.learned() == []
    left_out = emitter.events[-1]
    assert left_out["event"] == "left-out"
    assert left_out["what"] == rules.LOSSES_COMPARED
    assert "trains on files" in left_out["reason"]


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.name)
def test_stored_losses_are_of_a_batch_that_a_preset_has_and_of_its_first_epoch(path: Path) -> None:
    name, batch, _, _ = path.name.split(".")
    declared = rules.workload_declaration(name)
    presets = [
        preset for preset in declared["presets"].values() if (preset.get("batch") or declared["batch"]) == int(batch)
    ]
    assert presets
    losses = np.loadtxt(path, ndmin=2)
    assert len(losses) >= learning_reference.SEEDS
    assert np.isfinite(losses).all()
    # A set that is taken whole in each step has no first epoch.
    for preset in presets:
        assert preset["train_items"] == int(batch) or losses.shape[1] <= preset["train_items"] // int(batch)
    # Each seed lies in the band of the others.
    for row in losses:
        assert all(result.passed for result in learning.check(str(path), told(row)))


def test_of_a_deep_network_each_step_has_a_spread_of_its_own(tmp_path: Path) -> None:
    random = np.random.default_rng(5)
    steps = np.arange(learning_reference.DEEP_STEPS)

    def run() -> np.ndarray:
        return 7.0 + 1e-6 * 8.0**steps * random.normal(size=len(steps))

    path = str(tmp_path / "losses.txt")
    learning_reference.store(path, NAME, [run() for _ in range(learning_reference.DEEP_RUNS)])
    for _ in range(50):
        assert all(result.passed for result in learning.check(path, told(run())))
    for step, off in ((1, 0.05), (4, 0.3)):
        assert not learning.check(path, {**told(run()), step: 7.0 + off})[0].passed


def test_what_is_stored_of_a_deep_network_is_its_preset_quick_first_in_float64(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def losses(name: str, preset: str, seed: int, steps: int, kind: type, run: int) -> list[float]:
        assert (name, preset, seed) == ("resnet50-imagenet", "quick", learning_reference.DEFAULT_SEED)
        assert kind == (np.float32 if run else np.float64)
        return [float(run)] * steps

    declared = rules.workload_declaration("resnet50-imagenet")
    monkeypatch.setattr(rules, "WORKLOADS", str(tmp_path))
    monkeypatch.setattr(rules, "workload_declaration", lambda _: declared)
    monkeypatch.setattr(learning_reference, "losses", losses)
    (path,) = learning_reference.write_reference("resnet50-imagenet")
    assert Path(path).name == "resnet50-imagenet.8-of-128.seed1.learning.txt"
    assert (np.loadtxt(path)[:, 0] == np.arange(learning_reference.DEEP_RUNS)).all()


@pytest.mark.parametrize("path", OF_SEED, ids=lambda path: path.name)
def test_losses_of_a_seed_are_of_data_that_a_preset_has_and_a_loss_that_is_off_by_a_hundredth_is_refused(
    path: Path,
) -> None:
    name, data, _, _, _ = path.name.split(".")
    batch, items = (int(word) for word in data.split("-of-"))
    of_network = [other for other in rules.workload_names() if rules.losses_of(other) == name]
    presets = [
        (preset.get("batch") or declared["batch"], preset["train_items"])
        for declared in map(rules.workload_declaration, of_network)
        for preset in declared["presets"].values()
    ]
    assert (batch, items) in presets
    losses = np.loadtxt(path, ndmin=2)
    if learning_reference.is_deep(name):
        assert losses.shape == (learning_reference.DEEP_RUNS, learning_reference.DEEP_STEPS)
    else:
        assert len(losses) == learning_reference.SEED_RUNS
        assert losses.shape[1] <= learning_reference.SEED_STEPS
    for row in losses:
        assert all(result.passed for result in learning.check(str(path), told(row)))
        if not contract.specification(name).DROPOUT:
            assert not all(result.passed for result in learning.check(str(path), told(1.01 * row)))


# The first losses of deep networks in PyTorch 2.13 on a CPU, fp32, preset quick, seed 1, with one thing changed.
OF_TORCH = {
    ("resnet50-imagenet", "nothing"): [7.299692, 7.948080, 6.676390, 7.039700, 6.578414, 6.952272, 6.235784, 4.979741],
    ("resnet50-imagenet", "no update"): [
        7.299692,
        8.167280,
        7.205360,
        8.033706,
        7.814835,
        8.290661,
        7.406639,
        8.410872,
    ],
    ("resnet50-imagenet", "every second update"): [
        7.299692,
        7.948080,
        7.036660,
        7.655093,
        7.225970,
        7.091841,
        6.412473,
        6.107059,
    ],
    ("resnet50-imagenet", "twice the rate"): [
        7.299692,
        7.930119,
        6.102388,
        7.396945,
        7.089465,
        7.785538,
        10.068421,
        9.663593,
    ],
    ("densenet121-chestxray", "nothing"): [
        0.821229,
        0.763585,
        0.764103,
        0.737449,
        0.711694,
        0.715647,
        0.713480,
        0.683074,
    ],
    ("densenet121-chestxray", "no update"): [
        0.821229,
        0.772744,
        0.794827,
        0.812007,
        0.794631,
        0.801124,
        0.797701,
        0.751550,
    ],
}


@pytest.mark.parametrize(("name", "change"), OF_TORCH)
def test_the_first_losses_of_a_deep_network_tell_one_that_is_not_trained_as_specified(name: str, change: str) -> None:
    path = rules.losses_path_of_seed(name, 8, learning_reference.DEFAULT_SEED, 128)
    results = learning.check(path, told(np.array(OF_TORCH[name, change])))
    assert all(result.passed for result in results) == (change == "nothing")


@pytest.mark.slow
def test_the_stored_losses_are_those_of_the_float64_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64, where the stored ones are float32's: the difference is a thousandth of what another seed makes, or less."""
    monkeypatch.setenv("DLBENCH_CACHE", str(tmp_path))
    of_seeds = np.loadtxt(rules.losses_path("gru-imdb", 64))
    spread = of_seeds[:, :3].std(axis=0, ddof=1)
    further = learning_reference.FURTHER_SEEDS[-1]
    of_one = np.loadtxt(rules.losses_path_of_seed("gru-imdb", 64, further, 4096))
    for seed, stored in ((learning_reference.FIRST_SEED, of_seeds[0]), (further, of_one[0])):
        exact = learning_reference.losses("gru-imdb", "quick", seed, 3, np.float64)
        assert (np.abs(stored[:3] - exact) <= 1e-3 * spread).all()


@pytest.mark.parametrize("name", [name for name in LEARNING if not learning_reference.is_deep(name)])
def test_losses_of_six_seeds_are_stored_for_the_quick_cells_of_each_small_network(name: str) -> None:
    declared = rules.workload_declaration(name)
    items = declared["presets"]["quick"]["train_items"]
    for seed in (learning_reference.DEFAULT_SEED, *learning_reference.FURTHER_SEEDS):
        own = rules.losses_path_of_seed(name, declared["batch"], seed, items)
        assert rules.stored_losses(name, declared["batch"], seed, items, "fp32") == own


def quick_cell_of(path: Path) -> str:
    """The workload whose quick cells are held against the losses of a file: several have one network and one set."""
    network, counts, _ = path.name.split(".", 2)
    return next(
        name
        for name in rules.workload_names()
        if rules.losses_of(name) == network
        and counts.endswith("-of-%d" % rules.workload_declaration(name)["presets"]["quick"]["train_items"])
    )


def test_losses_are_stored_by_network_where_the_data_are_the_same() -> None:
    quick = rules.workload_declaration("gpt-bytes-to-loss")["presets"]["quick"]
    stored = rules.stored_losses("gpt-bytes-to-loss", quick["batch"], 1, quick["train_items"], "fp32")
    assert stored == rules.losses_path_of_seed("gpt-bytes", 4, 1, 64)
    assert rules.stored_losses("gpt-bytes-to-loss", 4, 1, 512, "fp32") == rules.losses_path_of_seed(
        "gpt-bytes", 4, 1, 512
    )
    # Its pictures are random numbers, and those of the other are a stand-in.
    assert rules.stored_losses("densenet121-synthetic", 8, 1, 128, "fp32") is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "path", [path for path in OF_SEED if learning_reference.is_deep(path.name.split(".")[0])], ids=str
)
def test_the_first_loss_of_a_deep_network_is_that_of_the_float64_reference(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLBENCH_CACHE", str(tmp_path))
    (exact,) = learning_reference.losses(quick_cell_of(path), "quick", learning_reference.DEFAULT_SEED, 1, np.float64)
    stored = np.loadtxt(path)[:, 0]
    assert stored[0] == pytest.approx(exact, rel=1e-8)
    assert stored[1:] == pytest.approx(np.full(len(stored) - 1, exact), rel=learning.ROUNDING)

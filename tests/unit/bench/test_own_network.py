"""A person's own network: it is measured, its steps are held against the same file in float64, and what is wrong with it has its line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bench import environment, own_float64, rules
from bench.errors import Unsupported
from bench.protocol import parse
from runner.catalog.images import PROJECT

TOY = PROJECT / "tests" / "fixtures" / "toy_framework" / "adapter"

NETWORK = """
import numpy as np

FRAMEWORK = "toy"
ITEMS = 8


def batch(random):
    return random.standard_normal((ITEMS, 20)).astype("float32"), random.randint(0, 5, ITEMS)


class Network:
    def __init__(self, setup):
        random = np.random.RandomState(setup.seed)
        self.parameters = {"w": random.standard_normal((20, 30)) / 4, "v": random.standard_normal((30, 5)) / 5}
        self.parameters = {name: value.astype("float32") for name, value in self.parameters.items()}
        self.momentum = {name: np.zeros_like(value) for name, value in self.parameters.items()}
        self.random = random
        self.training = setup.training
        self.taken = 0

    def step(self, x, y):
        self.taken += 1
        p = self.parameters
        hidden = np.tanh(x @ p["w"])
        logits = hidden @ p["v"]
        odds = np.exp(logits - logits.max(1, keepdims=True))
        odds /= odds.sum(1, keepdims=True)
        loss = -np.log(odds[np.arange(len(y)), y]).mean(dtype=odds.dtype)
        odds[np.arange(len(y)), y] -= 1
        odds /= np.asarray(len(y), odds.dtype)
        gradients = {"v": hidden.T @ odds, "w": x.T @ ((odds @ p["v"].T) * (1 - hidden * hidden))}
        for name in p:
            self.momentum[name] = 0.9 * self.momentum[name] + gradients[name]
            p[name] = p[name] - 0.05 * self.momentum[name]
        return loss
"""

# A mistake -> (old text, new text). Each begins where a cheat would: in the measured steps, unseen by those before them.
LATE = "self.taken > 40"
MISTAKES = {
    "half of the batch": (
        "        p = self.parameters\n",
        f"        p = self.parameters\n        if {LATE}: x, y = x[:4], y[:4]\n",
    ),
    "a frozen layer": ("        for name in p:\n", f"        for name in (['v'] if {LATE} else p):\n"),
    "another rate": ("0.05 * self", f"(0.1 if {LATE} else 0.05) * self"),
    "a loss that is told again": (
        "        return loss\n",
        f"        self.told = getattr(self, 'told', loss) if {LATE} else loss\n        return self.told\n",
    ),
    "shorter numbers": (
        "        return loss\n",
        f"        if {LATE}: p['w'] = p['w'].astype('float16').astype(p['w'].dtype)\n        return loss\n",
    ),
    "no step": ("        for name in p:\n", f"        for name in ([] if {LATE} else p):\n"),
}

# What is wrong with a file -> (old text, new text).
BAD = {
    "raises": ("        self.taken += 1\n", "        self.taken += 1\n        raise ValueError('no luck')\n"),
    "no number": ("        return loss\n", "        return None\n"),
    "not finite": ("        return loss\n", "        return loss * float('nan')\n"),
    "other rows": ("random.randint(0, 5, ITEMS)", "random.randint(0, 5, ITEMS + 1)"),
    "other shapes": ("(ITEMS, 20)", "(ITEMS, random.randint(20, 90))"),
    "nothing": (
        '    return random.standard_normal((ITEMS, 20)).astype("float32"), random.randint(0, 5, ITEMS)',
        "    return ()",
    ),
    "no array": ('    return random.standard_normal((ITEMS, 20)).astype("float32"),', "    return [1] * ITEMS,"),
    "lacks an import": ("import numpy as np\n", "import numpy as np\nimport no_such_thing\n"),
    "a shape that changes": (
        "        return loss\n",
        f"        if {LATE}: p['w'] = p['w'][:19]\n        return loss\n",
    ),
    "no parameters": ("self.parameters", "self.weights"),
    "ends the process": ("        self.taken += 1\n", "        raise SystemExit(0)\n"),
    "no step": ("    def step(self, x, y):\n", "    def steps(self, x, y):\n"),
    "a batch that raises": (
        "    return random.standard_normal",
        "    raise KeyError('no data')\n    return random.standard_normal",
    ),
    "gradients of the step before": (
        "        for name in p:\n",
        "        gradients = Network.kept = {n: g + getattr(Network, 'kept', gradients)[n] / 2 for n, g in gradients.items()}\n"
        "        for name in p:\n",
    ),
    "an attribute that appears": (
        "        self.taken += 1\n",
        "        self.taken, self.kept = self.taken + 1, {'seen': x}\n",
    ),
    "no step of an optimiser": ("        for name in p:\n", "        for name in []:\n"),
    "changes its batch": ("        self.taken += 1\n", "        self.taken += 1\n        x *= 1.01\n"),
    "changes a later batch": ("        self.taken += 1\n", f"        self.taken += 1\n        if {LATE}: x *= 1.01\n"),
    "no Unicode": ("        self.taken += 1\n", "        raise ValueError(chr(0xdcff) + chr(27))\n"),
    "an error without words": (
        "        self.taken += 1\n",
        "        raise type('E', (ValueError,), {'__str__': None})\n",
    ),
    "ten losses": ("        return loss\n", "        return np.full(10, loss)\n"),
    "batches of its own numbers": ("random.standard_normal((ITEMS", "np.random.standard_normal((ITEMS"),
    "moves by rounding": ("hidden = np.tanh(x @", "hidden = np.tanh(np.sin(3e7 * x) @"),
    "random numbers": (
        "        hidden = np.tanh(",
        "        x = x * (self.random.uniform(0, 1, x.shape) > 0.1)\n        hidden = np.tanh(",
    ),
}
# Its kind, and what the error must quote.
QUOTED = {
    "raises": ("framework", "net.py, line 24: `raise ValueError('no luck')`: ValueError: no luck"),
    "no number": ("framework", "step() returned NoneType; return the loss"),
    "not finite": ("framework", "a loss of nan"),
    "other rows": ("data", "batch() has 9 rows and ITEMS says 8"),
    "other shapes": ("data", "batches of one form are compared"),
    "nothing": ("data", "batch() returned no array"),
    "no array": ("data", "batch() returned list"),
    "lacks an import": ("unsupported", "this image lacks what the file imports"),
    "a shape that changes": ("framework", 'net.py, line 25: `hidden = np.tanh(x @ p["w"])`: ValueError'),
    "no parameters": ("data", "set self.parameters to a dict of arrays"),
    "ends the process": ("framework", "net.py, line 23: `raise SystemExit(0)`: SystemExit: 0"),
    "no step": ("framework", "AttributeError: 'Network' object has no attribute 'step'"),
    "a batch that raises": ("framework", "`raise KeyError('no data')`: KeyError: 'no data'"),
    "random numbers": ("unsupported", "taken twice from the same parameters, moves them otherwise by"),
    "gradients of the step before": ("unsupported", "clear the gradients of the step before (zero_grad)"),
    "an attribute that appears": ("data", "'optimizer/kept.seen' appears with the first step: set it in Network()"),
    "no step of an optimiser": ("unsupported", "moves no parameter: step() must take a step of its optimiser"),
    "changes its batch": ("data", "net.py: step() changes its batch in place: copy what it changes"),
    "changes a later batch": ("data", "net.py: step() changes its batch in place: copy what it changes"),
    "no Unicode": ("framework", "`raise ValueError(chr(0xdcff) + chr(27))`: ValueError: \\udcff"),
    "an error without words": ("framework", "E: (its own words raise TypeError)"),
    "ten losses": ("framework", "step() returned ndarray of shape (10,); return the loss, one number"),
    "batches of its own numbers": (
        "data",
        "batch() draws otherwise from the same numbers: draw all that it draws from its",
    ),
    "moves by rounding": (
        "unsupported",
        "rounding alone moves parameters as much as the first step does: take a lower rate",
    ),
}

Cell = Callable[..., list[dict[str, Any]]]


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    """Run a network's text as a cell of the toy framework; returns its events."""
    copy = tmp_path_factory.mktemp("project")
    shutil.copytree(PROJECT / "bench", copy / "bench", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(TOY, copy / "bench" / "frameworks" / "toy")
    # A cell of a second and not of ten.
    table = copy / "bench" / "rules.py"
    table.write_text(table.read_text().replace('"quick": (10, 30, 0.01)', '"quick": (1, 6, 1e-9)'))

    def run(text: str, *more: str) -> list[dict[str, Any]]:
        folder = Path(tmp_path_factory.mktemp("network"))
        (folder / "net.py").write_text(text)
        words = ["run", "net@0123456789ab", "--framework", "toy", "--data", str(folder), "--threads", "1", *more]
        ended = subprocess.run(
            [sys.executable, "-P", "-m", "bench", *words],
            cwd=copy,
            env=os.environ | {"PYTHONPATH": str(copy)},
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        return [parse(line.encode()) for line in ended.stdout.splitlines()]

    return run


def of(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == kind]


class Kinked:
    """A step of 400 rectifiers, of which one is so near its kink that a rounding of 128 units crosses it and one of a unit does not."""

    def __init__(self) -> None:
        self.w = np.ones(400)

    def restore(self, values: dict[str, Any]) -> None:
        self.w = values["parameter/w"].copy()

    def step(self, x: Any) -> float:
        on = self.w * x > 1.0
        self.w = self.w - 0.1 * on
        return float(on.mean())

    def value(self, loss: float) -> float:
        return loss

    def values(self) -> dict[str, Any]:
        return {"parameter/w": self.w.copy()}


@pytest.mark.parametrize(("lost", "holds"), [(1, True), (80, False)])
def test_a_gradient_may_jump_at_a_kink_as_far_as_wider_rounding_shows(lost: int, holds: bool) -> None:
    x = np.where(np.arange(400) == 7, 1.0 + 2.0**-19, 3.0)
    case = own_float64.taken("the first step", Kinked(), Kinked().values(), [[x]])
    found = own_float64.scatter(Kinked(), case, "fp32")
    assert found.parameters["parameter/w"] < 1e-6
    assert 0.02 < found.jumps["parameter/w"] < 0.1
    right = {"parameter/w": case.before["parameter/w"] - 0.1}
    after = right["parameter/w"].copy()
    after[:lost] = 1.0
    capped = found._replace(jumps={"parameter/w": min(3 * found.jumps["parameter/w"], own_float64.LARGEST_JUMP)})
    checks = own_float64._compared(
        case._replace(after={"parameter/w": after}, scatter=capped), (0.0, 0.0), right, "fp32"
    )
    (error, bound) = next(each[2:] for each in checks if each[0] == "parameter")
    assert (error <= bound) == holds


def planted(old: str, new: str) -> str:
    assert old in NETWORK
    return NETWORK.replace(old, new)


def test_an_honest_network_is_measured_and_proved(cell: Cell) -> None:
    events = cell(NETWORK)
    assert of(events, "error") == []
    checks = of(events, "parity")
    assert all(check["passed"] for check in checks), checks
    assert {("proof", check["quantity"]) for check in checks} == set(rules.due("net@0123456789ab", "quick"))
    assert {check["tensor"].partition(":")[0] for check in checks} == {
        "the first step",
        "a measured step",
    }
    assert sum(sample["items"] for sample in of(events, "sample")) == 8 * sum(s["steps"] for s in of(events, "sample"))
    settings = of(events, "environment")[-1]["settings"]
    assert len(settings[rules.OWN_LOSSES].split(", ")) == 3
    assert len(settings[rules.OWN_BATCHES]) == 16


def test_the_losses_in_float64_hang_on_the_network_and_not_on_where_it_began(cell: Cell) -> None:
    def told(text: str) -> str:
        return str(of(cell(text), "environment")[-1]["settings"][rules.OWN_LOSSES])

    assert told(NETWORK) == told(planted("standard_normal((20, 30)) / 4", "standard_normal((20, 30)) / 3"))
    assert told(NETWORK) != told(planted("np.tanh(x @", "np.tanh(1.00001 * x @"))


@pytest.mark.parametrize("trained", ["v", "w"])
def test_a_network_of_which_a_part_is_frozen_is_proved(cell: Cell, trained: str) -> None:
    """A person who tunes the head alone: what stays in float64 must stay, and only what moves is compared."""
    frozen = '"f": np.zeros((4,)), "g": np.ones((3, 2))'
    text = planted('{"w": random', "{" + frozen + ', "w": random').replace(
        "for name in p:", f"for name in '{trained}':"
    )
    events = cell(text)
    assert of(events, "error") == []
    checks = of(events, "parity")
    assert all(check["passed"] for check in checks), checks
    assert {check["tensor"].rpartition(", ")[2] for check in checks if check["quantity"] == "parameter"} == {"of 1"}


@pytest.mark.parametrize("mistake", sorted(MISTAKES))
def test_a_mistake_in_the_measured_steps_is_refused(cell: Cell, mistake: str) -> None:
    failed = [check for check in of(cell(planted(*MISTAKES[mistake])), "parity") if not check["passed"]]
    assert failed
    assert all(check["tensor"].startswith("a measured step") for check in failed)


@pytest.mark.parametrize(("moment", "refused"), [(("--proved-at", "0"), True), ((), False)])
def test_the_step_that_is_proved_is_of_the_moment_that_the_host_drew(
    cell: Cell, moment: tuple[str, ...], refused: bool
) -> None:
    """A mistake of the first part of the measurement is over before its last step. It has a second; the warm-up a fifth of one at most."""
    begins = "        self.taken += 1\n"
    early = "self.training and time.perf_counter() - self.began < 0.5"
    text = planted("0.05 * self", f"(0.1 if {early} else 0.05) * self")
    text = text.replace(begins, f"{begins}        self.began = getattr(self, 'began', time.perf_counter())\n")
    failed = [check for check in of(cell(f"import time\n{text}", *moment), "parity") if not check["passed"]]
    assert bool(failed) == refused


@pytest.mark.parametrize("what", sorted(BAD))
def test_what_is_wrong_with_a_file_is_named(cell: Cell, what: str) -> None:
    kind, quoted = QUOTED[what]
    events = cell(planted(*BAD[what]))
    errors = of(events, "error")
    assert errors, of(events, "parity")
    assert quoted in errors[0]["message"]
    assert errors[0]["kind"] == kind
    assert of(events, "end")[0]["status"] == "failed"


def test_dropout_is_declared_and_then_left_out_of_the_proof(cell: Cell) -> None:
    dropped = "        if self.training: x = x * (self.random.uniform(0, 1, x.shape) > 0.1)\n        hidden = np.tanh("
    text = planted("        hidden = np.tanh(", dropped)
    refused = [check for check in of(cell(text), "parity") if not check["passed"]]
    assert {check["tensor"].partition(":")[0] for check in refused} == {"a measured step"}
    declared = of(cell(text.replace("ITEMS = 8", "ITEMS = 8\nDROPOUT = True")), "parity")
    assert all(check["passed"] for check in declared), declared
    assert any(check["tensor"].startswith("a measured step, without random numbers") for check in declared)


def test_a_file_that_prints_a_megabyte_speaks_on_the_log_and_not_in_the_events(cell: Cell) -> None:
    loud = planted("        self.taken += 1\n", "        self.taken += 1\n        print('x' * 5000)\n")
    events = cell(loud)
    assert of(events, "error") == []
    assert of(events, "end")[0]["status"] == "ok"


WIDE = "        self.taken += 1\n        if x.dtype == np.float64: raise TypeError('no float64 kernel')\n"


def test_a_network_that_has_no_float64_tells_the_losses_of_several_seeds(cell: Cell) -> None:
    events = cell(planted("        self.taken += 1\n", WIDE))
    assert of(events, "error") == []
    assert {event["what"] for event in of(events, "left-out")} >= set(rules.OWN_LEFT_OUT)
    assert {check["quantity"] for check in of(events, "parity")} == {"moved"}
    settings = of(events, "environment")[-1]["settings"]
    assert "no float64 kernel" in settings[rules.OWN_WHY]
    assert "raise TypeError('no float64 kernel')" in settings[rules.OWN_WHY]
    losses = [float(word) for word in settings[rules.OWN_SEEDS].split(", ")]
    assert len(losses) == 12
    assert 0 < float(settings[rules.OWN_SCATTER]) < 1e-5
    # The first are those of the steps that float64 would have proved.
    right = of(cell(NETWORK), "environment")[-1]["settings"][rules.OWN_LOSSES]
    assert losses[:3] == pytest.approx([float(word) for word in right.split(", ")], rel=1e-5)


def test_a_network_that_cannot_leave_random_numbers_out_says_so(cell: Cell) -> None:
    dropped = "        x = x * (self.random.uniform(0, 1, x.shape) > 0.1)\n        hidden = np.tanh("
    text = planted("        hidden = np.tanh(", dropped).replace("ITEMS = 8", 'ITEMS = 8\nDROPOUT = "always"')
    events = cell(text)
    assert of(events, "error") == []
    settings = of(events, "environment")[-1]["settings"]
    assert "always draw random numbers" in settings[rules.OWN_WHY]
    assert 1e-3 < float(settings[rules.OWN_SCATTER]) < 1


EXCHANGE = """
    def read(self):
        return {"first": self.parameters["w"].T, "second": self.parameters["v"].T}

    def load(self, values):
        self.parameters = {"w": values["first"].T.astype("float32"), "v": values["second"].T.astype("float32")}
"""


def test_two_files_that_name_their_parameters_otherwise_begin_alike_by_read_and_load(cell: Cell) -> None:
    other = NETWORK.replace('p["w"]', 'p["u"]').replace('"w":', '"u":')

    def told(text: str) -> dict[str, Any]:
        events = cell(text)
        assert of(events, "error") == []
        return dict(of(events, "environment")[-1]["settings"])

    named = (rules.OWN_NAMES, rules.OWN_LOSSES)
    assert [told(other)[name] for name in named] != [told(NETWORK)[name] for name in named]
    renamed = EXCHANGE.replace('parameters["w"]', 'parameters["u"]').replace('"w":', '"u":')
    assert [told(other + renamed)[name] for name in named] == [told(NETWORK + EXCHANGE)[name] for name in named]


def test_a_load_that_leaves_a_parameter_out_is_named(cell: Cell) -> None:
    lazy = EXCHANGE.replace('"v": values["second"].T.astype("float32")', '"v": self.parameters["v"]')
    (error,) = of(cell(NETWORK + lazy), "error")
    assert "load() did not set second to what it was given" in error["message"]
    (error,) = of(
        cell(
            NETWORK
            + EXCHANGE.replace("return {", "return [")
            .replace("T}", "T]")
            .replace('"first": ', "")
            .replace('"second": ', "")
        ),
        "error",
    )
    assert "read() must return a dict of NumPy arrays" in error["message"]


@pytest.mark.parametrize(("turned", "holds"), [(3, True), (12, False)])
def test_a_number_whose_gradient_is_rounding_may_turn_and_one_in_a_hundred_may_not(turned: int, holds: bool) -> None:
    """Adam's first step moves each of 3 000 numbers by its rate, by the sign of a gradient that may be rounding."""
    random = np.random.RandomState(1)
    before = {"parameter/w": random.standard_normal((60, 50))}
    right = {"parameter/w": before["parameter/w"] + 1e-3 * np.sign(random.standard_normal((60, 50)))}
    after = right["parameter/w"].copy()
    after.flat[:turned] -= 2 * (after - before["parameter/w"]).flat[:turned]
    case = own_float64.Steps(
        "the first steps",
        before,
        {"parameter/w": after},
        [],
        [1.0],
        own_float64.Scatter(0.0, {"parameter/w": 1e-9}, {}, 0.0),
    )
    checks = own_float64._compared(case, (0.0, 0.0), right, "fp32")
    (error, bound) = next(each[2:] for each in checks if each[0] == "parameter")
    assert (error <= bound) == holds


DROPS = "        if self.training: x = x * (self.random.uniform(0, 1, x.shape) > 0.1)\n        hidden = np.tanh("


@pytest.mark.parametrize(("change", "random"), [(DROPS, "drawn"), ("        hidden = np.tanh(", "none")])
def test_a_declared_dropout_that_is_off_is_told(cell: Cell, change: str, random: str) -> None:
    """The measured step in eval() mode: nothing is wrong with what it computes, and it is less work than the file says."""
    text = planted("        hidden = np.tanh(", change).replace("ITEMS = 8", "ITEMS = 8\nDROPOUT = True")
    assert of(cell(text), "environment")[-1]["settings"][rules.OWN_RANDOM] == random


def test_layers_in_eval_mode_are_told(cell: Cell) -> None:
    text = planted("        self.taken = 0\n", "        self.taken = 0\n        self.in_eval = list('abcdef')\n")
    assert of(cell(text), "environment")[-1]["settings"][rules.OWN_EVAL] == "a, b, c, d and 2 more"
    assert rules.OWN_EVAL not in of(cell(NETWORK), "environment")[-1]["settings"]


@pytest.mark.parametrize("place", ["memory", "/tmp"])
def test_a_network_whose_proof_takes_more_than_there_is_says_so_before_it_is_measured(
    monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    values = {"parameter/w": np.zeros(1000), "optimizer/m": np.zeros(1000)}
    room = 79_000 if place == "memory" else None
    monkeypatch.setattr(environment, "free_memory", lambda: room)
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/tmp")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=10**9 if place == "memory" else 19_000))
    with pytest.raises(Unsupported, match=f"takes about 0.0 GB more (of|in) {place}, and 0.0 GB are free there"):
        own_float64.refuse_large(values)
    monkeypatch.setattr(environment, "free_memory", lambda: 81_000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=20_000))
    own_float64.refuse_large(values)


def test_what_a_network_keeps_in_float32_is_handed_on_in_half_of_its_bytes() -> None:
    narrow, wide, whole = np.array([0.5, 1.25]), np.array([0.1]), np.array([2**40 + 1])
    assert [own_float64._short(each).nbytes for each in (narrow, wide, whole)] == [8, 8, 8]
    assert all(np.array_equal(own_float64._short(each), each) for each in (narrow, wide, whole))

"""Networks that the catalog does not have, as a stranger writes them: proved by their own float64, and in one of two images written
wrong, refused or named."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench import rules
from runner.catalog.images import PROJECT
from runner.results.rank import own_agreement
from tests.fixtures.own_files import IMAGES, STRANGERS, cell_events, own_files
from tests.fixtures.weekly import drawn

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

STEP = "    def step(self, x, y):\n"
BACKWARD = "        loss.backward()\n"
DROPPED = "        import numpy as np\n        x = x * (np.random.uniform(size=x.shape) > 0.2).astype(x.dtype)\n"
# A wrong writing -> (old text, new text) in each file of PyTorch.
WRONG = {
    "half the batch": (STEP, f"{STEP}        x, y = x[:8], y[:8]\n"),
    "weights frozen": (BACKWARD, "        next(self.model.parameters()).requires_grad_(False)\n" + BACKWARD),
    "dropout left on": (STEP, STEP + DROPPED),
}

Cell = Callable[[str, str], Any]


@pytest.fixture(scope="module")
def cell(tmp_path_factory: pytest.TempPathFactory) -> Cell:
    """Run a file as a cell of some seconds; returns what the host holds of it."""
    project = tmp_path_factory.mktemp("project")
    shutil.copytree(PROJECT / "bench", project / "bench", ignore=shutil.ignore_patterns("__pycache__"))
    table = project / "bench" / "rules.py"
    table.write_text(table.read_text().replace('"quick": (10, 30, 0.01)', '"quick": (2, 6, 1e-9)'))

    def run(framework: str, text: str) -> Any:
        folder = Path(tmp_path_factory.mktemp("network"))
        (folder / "net.py").write_text(text)
        events = cell_events(framework, "net@0123456789ab", folder, project=project)
        told = [event for event in events if event["event"] == "environment"][-1:]
        return SimpleNamespace(
            image=IMAGES[framework],
            framework=framework,
            key=SimpleNamespace(workload="net@0123456789ab", precision="fp32"),
            environment=told[0] if told else {},
            error="; ".join(str(event["message"]) for event in events if event["event"] == "error"),
            checks=[event for event in events if event["event"] == "parity"],
        )

    return run


@pytest.fixture(scope="module")
def right(cell: Cell) -> Callable[[str], Any]:
    """The cell of a file as it stands, run once."""
    found: dict[str, Any] = {}

    def of(name: str) -> Any:
        if name not in found:
            found[name] = cell(framework_of(name), own_files(STRANGERS)[name])
        return found[name]

    return of


def framework_of(name: str) -> str:
    return name.removesuffix(".py").rpartition("_")[2]


def apart(first: Any, second: Any) -> str:
    told = [own_agreement._told(one) for one in (first, second)]
    assert told[0]
    assert told[1]
    return own_agreement._apart(told[0], told[1], "the other image", "fp32")


@pytest.mark.parametrize("name", sorted(own_files(STRANGERS)))
def test_it_is_short_and_proved_by_its_own_float64(right: Callable[[str], Any], name: str) -> None:
    assert len(own_files(STRANGERS)[name].splitlines()) <= 60
    found = right(name)
    assert found.error == ""
    assert {check["quantity"] for check in found.checks} == {"loss", "parameter", "moved"}
    assert [check for check in found.checks if not check["passed"]] == []
    assert rules.OWN_LOSSES in found.environment["settings"]


WRITTEN_WRONG = [
    (name, wrong) for name in sorted(own_files(STRANGERS)) if framework_of(name) == "torch" for wrong in WRONG
]


@pytest.mark.parametrize(("name", "wrong"), drawn("DLBENCH_FAULTS", 3, WRITTEN_WRONG))
def test_a_wrong_writing_in_one_image_is_refused_or_named(
    cell: Cell, right: Callable[[str], Any], name: str, wrong: str
) -> None:
    old, new = WRONG[wrong]
    text = own_files(STRANGERS)[name]
    assert text.count(old) == 1
    found = cell("torch", text.replace(old, new))
    failed = [check for check in found.checks if not check["passed"]]
    assert found.error or failed or apart(found, right(name)), found.checks
    if wrong == "half the batch":
        # The file computes what it says, so only the other image shows it.
        assert (found.error, failed) == ("", [])
        assert "in float64 its loss of step 1 is" in apart(found, right(name))


def test_two_frameworks_of_one_network_are_held_against_one_another(cell: Cell, right: Callable[[str], Any]) -> None:
    torch, jax = right("vit_torch.py"), right("vit_jax.py")
    assert apart(torch, jax) == ""
    # Another epsilon in one of them.
    other = cell("jax", own_files(STRANGERS)["vit_jax.py"].replace("epsilon=1e-5", "epsilon=1e-6"))
    assert "in float64 its loss of step 1 is" in apart(torch, other)
    # Without read() and load() they begin otherwise, and are not ranked.
    alone = cell(
        "jax", own_files(STRANGERS)["vit_jax.py"].replace("def load(", "def load_(").replace("def read(", "def read_(")
    )
    assert "give both files read() and load()" in apart(torch, alone)

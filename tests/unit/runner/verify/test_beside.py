"""An installation beside the pinned image of its run: what is slow, what its release explains, and what is said without the image."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from bench import rules
from runner.catalog.images import Image, load_catalog
from runner.engines import choose
from runner.engines.base import EngineError, Launch, ReadyImage, Settings, Slot
from runner.engines.process import interpreters as engine
from runner.engines.process.host import HostEngine, HostImage
from runner.engines.process.venv import VenvEngine
from runner.errors import ExitCode, UserError
from runner.paths import PROJECT
from runner.results.store import RunStore
from runner.verify import output, verification_run
from runner.verify.pinned import EXPLAINED
from runner.verify.references.measured import reference_of
from runner.verify.verification import CellFinding, Verification, assess
from tests.fixtures import synthetic

PINNED = "torch-2.13.0-cpu"
AGAINST: Mapping[str, Any] = {"options": {"against": "nearest"}, "skips": []}

# (release, times as long as the pinned image, repeats) -> the folder of a run
Run = Callable[..., Path]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    made = synthetic.cell_row

    def write(release: str, ratio: float, repeats: int = 5, name: str = "run", **more: Any) -> Path:
        host = f"host-torch-{release}"
        monkeypatch.setattr(synthetic, "IMAGES", {PINNED: ("torch", "2.13.0+cpu"), host: ("torch", release)})
        level = {(PINNED, "cnn-cifar10"): 0.1312, (host, "cnn-cifar10"): 0.1312 * ratio}
        monkeypatch.setattr(synthetic, "LEVELS", level)

        def row(entry: synthetic.Row, *rest: Any) -> synthetic.Row:
            return made(entry, *rest) | {"engine": "host" if entry["image"] == host else "venv"}

        monkeypatch.setattr(synthetic, "cell_row", row)
        return synthetic.make_run(tmp_path / name, repeats=repeats, manifest={**AGAINST, **more})

    return write


def only(found: Verification) -> CellFinding:
    """The finding of the installation: the pinned image's cell is judged nowhere."""
    (finding,) = found.findings
    return finding


@pytest.mark.parametrize(
    ("release", "ratio", "kind", "said"),
    [
        ("1.13.1", 2.9, "slow", "its release, PyTorch 1.13.1, does not explain that"),
        ("1.13.1", 1.17, "ok", "its release, PyTorch 1.13.1, may explain that"),
        ("2.13.1", 1.3, "slow", "times as long as the pinned PyTorch 2.13.0 on this machine, at this moment ("),
        ("2.13.0", 1.0, "ok", "times as long as the pinned PyTorch 2.13.0 on this machine, at this moment ("),
    ],
)
def test_a_gap_is_slow_beyond_what_its_release_explains(
    run: Run, release: str, ratio: float, kind: str, said: str
) -> None:
    found = assess([run(release, ratio)], [])
    finding = only(found)
    assert (finding.kind, found.exit_code) == (kind, ExitCode.FOUND if kind == "slow" else ExitCode.OK)
    assert said in finding.reason
    beside = finding.beside
    assert beside is not None
    assert (beside.image, beside.ratio) == (PINNED, pytest.approx(ratio, rel=0.03))
    assert output.cells_of(finding)[2].endswith(f"{PINNED} beside it")


def test_of_a_few_repeats_near_the_limit_nothing_is_said_and_both_sides_are_repeated(run: Run) -> None:
    limit = EXPLAINED
    found = assess([run("1.13.1", 1.03 * limit, repeats=2)], [])
    finding = only(found)
    assert (finding.kind, found.exit_code) == ("open", ExitCode.OPEN)
    assert finding.beside is not None
    wanted = verification_run.repeats_wanted(found, 9)
    assert wanted == {finding.cell_id: 9, finding.beside.cell_id: 9}


def test_a_reference_of_the_same_sick_installation_does_not_clear_it(run: Run) -> None:
    lab = reference_of([run("1.13.1", 2.9, name="monday")], "lab", "0.1.0").reference
    finding = only(assess([run("1.13.1", 2.9, name="tuesday")], [lab]))
    assert finding.kind == "slow"
    assert "beside its reference: " in finding.reason
    healthy = only(assess([run("1.13.1", 1.0, name="wednesday")], [lab]))
    assert healthy.kind in ("ok", "fast")


def test_another_release_excuses_a_gap_to_a_reference_up_to_what_releases_were_seen_to_make(run: Run) -> None:
    """On another machine of the same processor the reference alone decides."""
    nothing_beside = {"options": {}}
    lab = reference_of([run("2.13.0", 1.0, name="lab", **nothing_beside)], "lab", "0.1.0").reference

    def of_installation(ratio: float, name: str) -> CellFinding:
        found = assess([run("1.13.1", ratio, name=name, **nothing_beside)], [lab])
        return next(one for one in found.findings if one.facts.engine == "host")

    within = of_installation(1.25, "within")
    assert within.kind == "not-comparable"
    assert "may be a difference: framework_version 1.13.1" in within.reason
    assert within.reason.endswith("`runner verify --python` measures a pinned image beside it, which decides")
    beyond = of_installation(2.9, "beyond")
    assert beyond.kind == "slow"
    assert "these differ, and may explain up to 1.5" in beyond.reason


def test_without_the_image_it_says_what_that_takes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synthetic, "FAILED", (PINNED, "cnn-cifar10"))
    found = assess([run("1.13.1", 2.9)], [])
    finding = only(found)
    assert (finding.kind, found.exit_code) == ("no-reference", ExitCode.OPEN)
    assert f"the pinned {PINNED} beside it has no step time: " in finding.reason
    assert "GB from the package index and about" in finding.reason


def test_an_image_that_the_disk_cannot_hold_is_named(run: Run) -> None:
    folder = run("1.13.1", 2.9)
    skip = synthetic.skipped(PINNED, "cnn-cifar10") | {"image": PINNED, "reason": "the disk cannot hold it"}
    store = RunStore(folder)
    store.write_manifest(store.manifest() | {"skips": [skip]})
    synthetic.forget(folder, PINNED, "cnn-cifar10")
    assert only(assess([folder], [])).reason.endswith(
        f"nothing was measured beside it: {PINNED}: the disk cannot hold it"
    )


def test_a_run_that_was_to_measure_nothing_beside_is_judged_as_before(run: Run) -> None:
    found = assess([run("1.13.1", 2.9, options={})], [])
    assert [finding.kind for finding in found.findings] == ["no-reference"] * 2
    assert all(finding.beside is None for finding in found.findings)


# --- The engine -------------------------------------------------------------------------------------------------------------------


def installed(release: str, framework: str = "torch", accelerator: Any = "cpu") -> HostImage:
    return HostImage.model_construct(
        name=f"host-{framework}-{release}", folder=PROJECT, frameworks=(framework,), framework_version=release,
        python="3.11", accelerator=accelerator, base="host", precisions=("fp32",), locked=date(2026, 11, 20),
        download_gb=0.0, installed_sha256="0" * 64,
    )  # fmt: skip


def test_the_nearest_release_of_the_same_kind_of_device_is_taken() -> None:
    catalog = load_catalog()

    def name(image: HostImage) -> str | None:
        found = engine.nearest(image, catalog.values())
        return found and found.name

    assert name(installed("1.13.1")) == PINNED
    assert name(installed("2.6.1", accelerator="cuda")) == "torch-2.6.0-cu124"
    assert name(installed("no version")) == PINNED
    assert name(installed("1.0", framework="nothing")) is None
    # As far from both: the newer one.
    ends = [
        catalog[each].model_copy(update={"accelerator": "cpu"}) for each in ("torch-2.4.1-cu121", "torch-2.6.0-cu124")
    ]
    found = engine.nearest(installed("2.5.0"), ends)
    assert found is not None
    assert found.name == "torch-2.6.0-cu124"


class Host(HostEngine):
    """An interpreter with torch and Keras on it."""

    def __init__(self) -> None:
        super().__init__()

    def unavailable(self) -> str | None:
        return None

    def images(self, gpus: bool) -> dict[str, HostImage]:
        return {image.name: image for image in (installed("2.13.0"), installed("3.15.1", "keras_torch"))}


class Sandbox(VenvEngine):
    def unfit(self, image: Image) -> str | None:
        return None


def test_the_pinned_image_serves_what_the_interpreter_has_and_each_image_has_its_engine() -> None:
    both = engine.BesideEngine(Host(), engine.NEAREST, (Sandbox,))
    images = both.images(gpus=False)
    assert images[PINNED].frameworks == ("torch", "keras_torch")
    assert {name: both.name_of(name) for name in images} == {
        "host-torch-2.13.0": "host",
        "host-keras_torch-3.15.1": "host",
        PINNED: "venv",
    }
    assert sum(both.parts(images["host-torch-2.13.0"]).values()) == 0


def test_an_engine_that_cannot_be_used_is_passed_over() -> None:
    def broken() -> Sandbox:
        raise EngineError("it does not answer")

    both = engine.BesideEngine(Host(), PINNED, (broken, Sandbox))
    both.images(gpus=False)
    assert both.name_of(PINNED) == "venv"


def test_the_installation_has_the_variables_of_the_shell_and_the_pinned_image_has_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A person's own programs have them."""
    started: list[tuple[list[str], dict[str, str]]] = []

    def start(launch: Launch, extra: dict[str, str], **more: object) -> None:
        started.append((list(launch.arguments), extra))

    monkeypatch.setattr(engine, "start_process", start)
    monkeypatch.setattr("runner.engines.process.venv.start_process", start)
    for name in rules.steering(os.environ):
        monkeypatch.delenv(name)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    both = engine.BesideEngine(Host(), engine.NEAREST, (Sandbox,))
    slot = Slot("cpu", (), (0, 1), None)
    for image in both.images(gpus=False).values():
        both.start(Launch(ReadyImage(image, "", ("python",)), ["run"], slot, "run", Path("cache")))
    (own, variables), _, (pinned, without) = started
    assert own == ["run", "--threads", "1"]
    assert variables == {"ATEN_CPU_CAPABILITY": "default", "OMP_NUM_THREADS": "1"}
    assert pinned == ["run"]
    assert "ATEN_CPU_CAPABILITY" not in without


@pytest.mark.parametrize(
    ("against", "said"), [("torch-2.13", "did you mean"), ("jax-0.10.2-cpu", "none of the frameworks")]
)
def test_another_image_must_exist_and_serve_the_framework(against: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        engine.BesideEngine(Host(), against, (Sandbox,)).images(gpus=False)


def test_only_the_engine_host_is_held_against_an_image(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostEngine, "unavailable", lambda self: None)
    assert isinstance(choose("host", Settings(against=engine.NEAREST))[0], engine.BesideEngine)
    assert isinstance(choose("host", Settings())[0], HostEngine)
    assert isinstance(choose("venv", Settings(against=engine.NEAREST))[0], VenvEngine)

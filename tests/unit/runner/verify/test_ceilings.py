"""The probe: what it measures, and what becomes of one that prints nonsense, floods, hangs or cannot import its framework."""

from __future__ import annotations

import ast
import json
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from runner.catalog.images import PROJECT
from runner.engines.base import ReadyImage, Slot
from runner.engines.process.host import HostEngine, HostImage
from runner.engines.process.process import LocalRunning
from runner.verify.probes import ceilings
from runner.verify.probes.ceilings import PROBE, Ceilings, CeilingsError, best, measure, parse
from tests.unit.runner.verify.test_causes import ceilings as some

SOURCE = (PROJECT / "bench" / "ceilings.py").read_text()

# A probe that knows no framework, so that it runs where none is installed.
WITHOUT = SOURCE.replace("own = framework_rates(name, device, precision)", "own = None")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))


def probe(tmp_path: Path, script: str = "") -> Ceilings:
    """Measure in this interpreter, as the engine `host` would; a script is run in the probe's place."""
    image = HostImage.model_construct(name="host", folder=PROJECT, installed_sha256="0" * 64)
    command = (sys.executable, "-m", "bench")
    if script:
        path = tmp_path / "probe.py"
        path.write_text(f"import sys; assert sys.argv.pop(1) == {PROBE!r}\n{script}")
        command = (sys.executable, str(path), "bench")
    prepared = ReadyImage(image, "sha256:0", command)
    slot = Slot("cpu", (), tuple(sorted(os.sched_getaffinity(0))), None)
    return measure(HostEngine(), prepared, "torch", "fp32", slot, "test")


def test_the_probe_is_syntax_of_python_3_6() -> None:
    ast.parse(SOURCE, feature_version=(3, 6))


def test_the_rates_of_this_machine_are_those_of_a_computer(tmp_path: Path) -> None:
    assert "own = None" in WITHOUT
    found = probe(tmp_path, WITHOUT)
    assert found.framework is None
    assert found.cpus == os.cpu_count()
    assert 1e8 < best(found.numpy.matmul_flops) < 1e15
    assert 1e8 < best(found.numpy.copy_bytes) < 1e13
    assert 1e6 < best(found.numpy.core_operations) < 1e12
    assert parse(found.model_dump_json()) == found


@pytest.mark.skipif(
    find_spec("torch") is not None, reason="this interpreter has PyTorch, and the test is about one without"
)
def test_a_framework_that_is_not_there_is_told_in_its_own_words(tmp_path: Path) -> None:
    with pytest.raises(CeilingsError, match="No module named 'torch'"):
        probe(tmp_path)


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("print('no json')", "invalid JSON"),
        ("print('{}')", "it is missing"),
        ("import sys; sys.exit(3)", "exit code 3"),
        ("import os\nwhile True: os.write(1, b'x' * 65536)", "exit code"),
        ("import time; time.sleep(300)", "exit code"),
    ],
)
def test_a_probe_that_goes_wrong_is_an_error_and_not_a_number(
    script: str, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceilings, "_LIMIT_SECONDS", 1.0 if "sleep" in script else 10.0)
    with pytest.raises(CeilingsError, match=told):
        probe(tmp_path, script)


@pytest.mark.parametrize("wrong", [0, -1.0, 1e30, None, "fast"])
def test_rates_that_no_machine_has_are_refused(wrong: object) -> None:
    stored = json.loads(some().model_dump_json())
    stored["numpy"]["copy_bytes"] = [1.0, 1.0, wrong]
    with pytest.raises(CeilingsError, match="copy_bytes"):
        parse(json.dumps(stored))


def test_a_probe_that_is_interrupted_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[LocalRunning] = []

    def interrupted(running: LocalRunning) -> Iterator[bytes]:
        started.append(running)
        if len(started) == 1:
            raise KeyboardInterrupt
        yield from events(running)

    events = LocalRunning.events
    monkeypatch.setattr(LocalRunning, "events", interrupted)
    with pytest.raises(KeyboardInterrupt):
        probe(tmp_path, "import time; time.sleep(60)")
    assert started[0].pid() is None, "the probe goes on"

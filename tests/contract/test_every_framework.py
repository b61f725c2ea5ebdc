"""Every framework of the catalog computes what the specification says, in the environment of its own image's lock.

Parity is checked here for each workload of the frameworks that most people use, and of every other framework on the CNN, or the GRU where
the CNN takes it long: in the framework's own mode. In the other modes of the first these two networks are checked. The
networks on MNIST are checked once for each framework. The learning curves take a framework one to five minutes each: one goes through the
first 50 steps of each always.
DLBENCH_CURVES=all checks all of it. Of mixed precision float16, which has a loss scale besides, is always checked in four
frameworks, on one workload.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import contract, identity, rules
from bench.curve import has_curve
from runner.catalog.frameworks import Framework, load_frameworks
from runner.catalog.images import PROJECT, load_catalog
from runner.catalog.names import FIRST_FRAMEWORKS, ROSETTA
from runner.catalog.workloads import adapters, load_workloads
from runner.engines.process.venv import VenvEngine
from tests.fixtures.cpus import take_own_cpus

pytestmark = pytest.mark.slow

BENCH = PROJECT / "bench"

LEAST_COMPARED = {"train": 14, "infer": 1, "decode": 26, "operators": 30}
ALWAYS_CURVED = {("torch-2.13.0-cpu", "torch")}
# A step takes up to a second of CPU. A momentum of 0.9 forgets a step in ten, so 50 steps show what a wrong one adds up to.
SHORT_CURVE = {"cnn-cifar10", "gru-imdb"}
# What takes too long for every run, and why. It is checked by DLBENCH_CURVES=all.
UNROLLED = "tinygrad schedules 150 unrolled positions for some ten minutes"
EAGER = "the default mode is checked; running operation by operation takes it a minute or more a network"
COMPILED = "Theano compiles it for more than a minute; Lasagne's networks on MNIST are checked, and Keras 2 on CNTK"
SCHEDULED = "scheduling it takes more than a minute; the framework's networks on MNIST are checked"
BY_XLA = "XLA compiles it for more than half a minute; its gru-imdb is checked"
SLOW = {
    ("keras2_theano", "default", "cnn-cifar10"): COMPILED,
    ("keras_jax", "default", "cnn-cifar10"): BY_XLA,
    ("tensorflow", "xla", "cnn-cifar10"): BY_XLA,
    ("keras2_theano", "default", "gru-imdb"): COMPILED,
    ("keras2_theano", "default", "resnet50-features"): COMPILED,
    ("lasagne", "default", "cnn-cifar10"): COMPILED,
    ("lasagne", "default", "gru-imdb"): COMPILED,
    (
        "mindspore",
        "default",
        "gru-imdb",
    ): "compiling 150 positions takes more than a minute; its network on CIFAR-10 is checked",
    ("tinygrad", "default", "cnn-cifar10"): SCHEDULED,
    ("tinygrad", "default", "resnet50-features"): SCHEDULED,
    ("jax", "no-jit", "cnn-cifar10"): EAGER,
    ("jax", "no-jit", "gru-imdb"): EAGER,
    ("tensorflow", "eager", "gru-imdb"): EAGER,
    ("mindspore", "pynative", "gru-imdb"): EAGER,
    ("tinygrad", "no-jit", "cnn-cifar10"): EAGER,
    ("tinygrad", "default", "gru-imdb"): UNROLLED,
    ("tinygrad", "no-jit", "gru-imdb"): UNROLLED,
}
ONCE = ("mlp-mnist", "cnn-mnist")
# Of the deepest networks these are always checked, each in the framework's own mode; compiling them takes the others a minute or more.
DEEPEST = {
    "densenet121-chestxray": {"torch"},
    "resnet50-imagenet": {"torch"},
    "moe-bytes": {"torch"},
    "gpt2-124m": set(),
    "gpt2-decode": {"torch", "onnxruntime", "tensorflow", "keras_jax", "keras_tensorflow", "keras_torch"},
    "gpt-bytes": {"torch", "jax"},
    "llama-bytes": {"torch", "tensorflow"},
}
LIKE_IT = "gpt-bytes has the same layers"
EVERYTHING = os.environ.get("DLBENCH_CURVES") == "all"


def is_mode_of(framework: Framework, mode: str, workload: str) -> bool:
    where = "cpu", "fp32", workload
    return rules.mode_reason(framework.name, mode, framework.modes, framework.modes_except, where, 1) is None


CATALOG, FRAMEWORKS, WORKLOADS, ADAPTERS = load_catalog(), load_frameworks(), load_workloads(), adapters()
CASES = [
    pytest.param(image.name, framework, mode, workload.name, id=f"{image.name}-{framework}-{mode}-{workload.name}")
    for image in CATALOG.values()
    if image.accelerator == "cpu" and image.untested is None
    for framework in image.frameworks
    for mode in FRAMEWORKS[framework].modes
    for workload in WORKLOADS.values()
    if (framework, workload.module) in ADAPTERS and workload.computes is None  # else it is another's, checked there
    if is_mode_of(FRAMEWORKS[framework], mode, workload.name)
]


OF_CASES = {(case.values[1], case.values[3]) for case in CASES}

# mixed precision and half types: (image, framework, precision, workload)
ALWAYS_MIXED = {
    ("torch", "amp-fp16", "cnn-mnist"),
    ("keras_torch", "amp-fp16", "cnn-mnist"),
    ("jax", "amp-fp16", "mlp-mnist"),
}
ALWAYS_MIXED |= {("tensorflow", "amp-fp16", "mlp-mnist"), ("torch", "bf16", "gpt2-decode")}
MIXED = [
    pytest.param(image, framework, precision, workload, id=f"{image}-{framework}-{precision}-{workload}")
    for image, framework, mode, workload in (case.values for case in CASES)
    if mode == "default"
    for precision, unable in FRAMEWORKS[str(framework)].half.items()
    if precision in WORKLOADS[str(workload)].precisions
    and precision.removeprefix("amp-") in CATALOG[str(image)].precisions
    and not {"cpu", workload} & set(unable)
]

# the first image that has a framework
FIRST_IMAGES = {case.values[1]: case.values[0] for case in reversed(CASES)}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("image_name", "framework", "mode", "workload"), CASES)
def test_an_adapter_computes_what_the_specification_says(
    image_name: str, framework: str, mode: str, workload: str, tmp_path: Path
) -> None:
    if (framework, mode, workload) in SLOW and not EVERYTHING:
        pytest.skip(f"{SLOW[framework, mode, workload]}; DLBENCH_CURVES=all checks it")
    if framework not in {*FIRST_FRAMEWORKS, *DEEPEST.get(workload, ())} and not EVERYTHING:
        few = [name for name in ROSETTA if (framework, name) in OF_CASES and (framework, "default", name) not in SLOW]
        if few and (mode, workload) != ("default", few[0]):
            pytest.skip(f"of this framework {few[0]} is checked; DLBENCH_CURVES=all checks the rest")
    if mode == "channels-last" and not EVERYTHING:
        pytest.skip("it is the default's layout on a CPU; DLBENCH_CURVES=all checks it")
    if mode != "default" and workload not in ROSETTA and not EVERYTHING:
        pytest.skip(f"of another mode {' and '.join(ROSETTA)} are checked; DLBENCH_CURVES=all checks the rest")
    if workload in ONCE and (image_name, mode) != (FIRST_IMAGES[framework], "default") and not EVERYTHING:
        pytest.skip(f"{workload} is checked once for each framework; DLBENCH_CURVES=all checks it here too")
    if workload in DEEPEST and not (mode == "default" and framework in DEEPEST[workload]) and not EVERYTHING:
        instead = f"it is checked in {' and '.join(sorted(DEEPEST[workload]))}" if DEEPEST[workload] else LIKE_IT
        pytest.skip(f"{workload} takes a minute or more, and {instead}; DLBENCH_CURVES=all checks it here too")
    always = EVERYTHING or (image_name, framework) in ALWAYS_CURVED
    curve = has_curve(workload) and mode == "default" and always
    options = ["--framework", framework, "--mode", mode, *(["--curve"] if curve else [])]
    short = workload in SHORT_CURVE and curve and not EVERYTHING
    bench = [str(Path(__file__).with_name("short_curve.py"))] if short else ["-m", "bench"]
    verdict = checked(image_name, workload, options, tmp_path, bench)
    if curve:
        assert verdict["curve"]["passed"], verdict["curve"]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("image_name", "framework", "precision", "workload"), MIXED)
def test_an_adapter_computes_it_in_mixed_precision(
    image_name: str, framework: str, precision: str, workload: str, tmp_path: Path
) -> None:
    if (framework, precision, workload) not in ALWAYS_MIXED and not EVERYTHING:
        pytest.skip(
            "mixed precision is always checked in four frameworks; DLBENCH_CURVES=all checks it in all, on every workload"
        )
    checked(image_name, workload, ["--framework", framework, "--precision", precision], tmp_path)


def checked(
    image_name: str, workload: str, options: list[str], tmp_path: Path, bench: Sequence[str] = ("-m", "bench")
) -> dict[str, Any]:
    """The verdict of `bench check` in an image's environment, which must be that all is well."""
    image = CATALOG[image_name]
    engine = VenvEngine()
    if reason := engine.unfit(image):
        pytest.skip(f"no environment for {image_name}: {reason}")
    command = [*engine.prepare(image, print).command[:1], *bench, "check", workload, *options]
    # what is loaded is written down, by each process: R's Python is one of them
    path = os.pathsep.join([str(Path(__file__).with_name("loaded")), str(PROJECT)])
    environment = {**os.environ, "PYTHONPATH": path, "DLBENCH_CACHE": str(tmp_path), "DLBENCH_LOADED": str(tmp_path)}
    environment["PATH"] = f"{Path(command[0]).parent}{os.pathsep}{environment['PATH']}"
    ended = subprocess.run(
        command, capture_output=True, text=True, env=environment, check=False, preexec_fn=take_own_cpus
    )
    assert ended.stdout.count("\n") == 1, f"the adapter printed into the stream, or died: {ended.stderr[-2000:]}"
    verdict: dict[str, Any] = json.loads(ended.stdout)
    assert verdict["failed"] == []
    least = LEAST_COMPARED[WORKLOADS[workload].task]
    if WORKLOADS[workload].task == "train":
        # A small network has fewer: a gradient and a value for each parameter, logits, loss and prediction.
        least = min(least, 2 * len(contract.specification(workload).PARAMETERS) + 3)
    assert verdict["compared"] >= least
    assert ended.returncode == 0
    framework = options[options.index("--framework") + 1]
    if WORKLOADS[workload].task == "train":
        # Of a weight decay the last proof is one step.
        specified = contract.specification(workload)
        steps = 1 if specified.WEIGHT_DECAY is not None else len(specified.PARITY_RATES)
        assert verdict["updates"] == (None if workload in FRAMEWORKS[framework].uncounted else steps)
    files = loaded(tmp_path)
    assert "parity.py" in files
    assert any(name.startswith("frameworks/") for name in files)
    assert files <= set(identity.code_files(framework, workload))
    return verdict


def loaded(folder: Path) -> set[str]:
    """The bench's files that the processes imported, relative to it. A module that another language provides has no file."""
    names = {name for file in folder.glob("*.txt") for name in file.read_text().split()}
    paths = [PROJECT.joinpath(*name.split(".")) for name in names]
    files = [file for path in paths for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()]
    return {file.relative_to(BENCH).as_posix() for file in files}

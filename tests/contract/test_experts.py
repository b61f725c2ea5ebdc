"""The ranked adapter is its framework at its best: no variant that experts would try, and that passes the gates, is 5 % faster.

The list is in experts/, a module a framework. A variant that does not pass is a mistake in that list, or a right network that is refused.
A faster one becomes the adapter. Each case takes a minute or more, on a machine that holds still.
"""

from __future__ import annotations

import ast
import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench import rules
from runner.catalog.images import load_catalog
from runner.catalog.names import FIRST_FRAMEWORKS, ROSETTA
from tests.contract import speed_verdict

EXPERTS = Path(__file__).parent / "experts"
EVERYTHING = os.environ.get("DLBENCH_SPEED") == "all"
SECONDS = "4"  # of one process, beside what it takes to start and to check
# A step of a variant by one of the adapter: a slower variant is as it should be.
ALLOWED = speed_verdict.Bounds(0.95, math.inf)
# The declared modes that are no variant: they run by themselves what the default compiles, or are the default on a CPU. A CUDA graph and
# TensorFlow's channels first need a GPU: on one the kit measures them beside the default (docs/first-gpu.md).
SLOWER_MODES = {("tensorflow", "eager"), ("jax", "no-jit"), ("torch", "graph")}
SLOWER_MODES |= {("torch", "channels-last"), ("tensorflow", "channels-last"), ("tensorflow", "channels-first")}


def variants() -> Iterator[tuple[str, str, str]]:
    """(framework, workload, variant) of the decorators in experts/. To import a module would import its framework."""
    for path in sorted(EXPERTS.glob("*.py")):
        for function in ast.parse(path.read_text()).body:
            for decorator in function.decorator_list if isinstance(function, ast.FunctionDef) else ():
                assert isinstance(function, ast.FunctionDef)
                assert isinstance(decorator, ast.Call)
                framework, *workloads = map(ast.literal_eval, decorator.args)
                yield from ((framework, workload, function.name) for workload in workloads)


CASES = sorted(variants())
IMAGES = {
    framework: image.name
    for image in load_catalog().values()
    if image.accelerator == "cpu" and image.untested is None
    for framework in image.frameworks
}


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(not EVERYTHING, reason="a pair takes a minute or more each; DLBENCH_SPEED=all measures them")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("framework", "workload", "variant"), CASES)
def test_no_variant_that_passes_the_gates_is_faster_than_what_is_ranked(
    run_in: Callable[..., str], framework: str, workload: str, variant: str
) -> None:
    def one_process() -> float:
        found = json.loads(run_in(IMAGES[framework], "expert_pair.py", framework, workload, variant, SECONDS))
        assert found["failed"] == [], "a right variant is refused, or this one is wrong"
        return float(found["ratio"])

    verdict, ratios = speed_verdict.verdict_of(one_process, ALLOWED)
    assert verdict == "alike", f"{verdict}: {ratios}"


# A step without dropout by one with it: it does no more work.
NO_DEARER = speed_verdict.Bounds(0.0, 1.05)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.skipif(not EVERYTHING, reason="a pair takes a minute or more each; DLBENCH_SPEED=all measures them")
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("planted", ["", "half"])
@pytest.mark.parametrize("framework", FIRST_FRAMEWORKS)
def test_a_step_with_dropout_takes_no_less_time_than_one_without(
    run_in: Callable[..., str], framework: str, planted: str
) -> None:
    def one_process() -> float:
        found = run_in(IMAGES[framework], "dropout_pair.py", framework, "cnn-cifar10", SECONDS, planted)
        return float(json.loads(found)["ratio"])

    verdict, ratios = speed_verdict.verdict_of(one_process, NO_DEARER)
    assert verdict == ("slower" if planted else "alike"), f"{verdict}: {ratios}"


def test_the_frameworks_that_most_people_use_have_variants_of_both_networks_of_the_rosetta_stone() -> None:
    listed = {(framework, workload) for framework, workload, _ in CASES}
    assert {(framework, workload) for framework in FIRST_FRAMEWORKS for workload in ROSETTA} <= listed


LANGUAGE = ("gpt-bytes", "llama-bytes", "moe-bytes", "gpt2-decode")
# It runs eagerly: Keras compiles nothing on PyTorch, and an adapter of PyTorch's own is no variant of Keras.
NO_OTHER_WAY = {("keras_torch", "gpt2-decode")}


def test_the_language_models_have_variants_in_each_of_these_frameworks_and_the_main_networks_in_others() -> None:
    listed = {(framework, workload) for framework, workload, _ in CASES}
    first = {*FIRST_FRAMEWORKS, "keras_jax", "keras_tensorflow", "keras_torch"}
    assert {(framework, workload) for framework in first for workload in LANGUAGE} - NO_OTHER_WAY <= listed
    others = {(name, workload) for name in ("mxnet_gluon", "chainer", "paddle") for workload in ROSETTA}
    others |= {
        ("onnxruntime", "resnet50-features"),
        ("onnxruntime", "gpt2-decode"),
        ("onnxruntime_training", "gru-imdb"),
    }
    assert others <= listed


def test_every_mode_of_these_frameworks_that_compiles_is_a_variant() -> None:
    modes = {(name, mode) for name in FIRST_FRAMEWORKS for mode in rules.framework_declaration(name)["modes"]}
    tried = {
        ("torch", "compile"): "compiled",
        ("tensorflow", "xla"): "xla",
        ("torch", "channels-first"): "channels_first",
    }
    assert modes - SLOWER_MODES - {(name, "default") for name in FIRST_FRAMEWORKS} == set(tried)
    named = {(framework, variant) for framework, _, variant in CASES}
    assert {(framework, variant) for (framework, _), variant in tried.items()} <= named


def test_a_variant_that_is_a_tenth_faster_fails_and_a_slower_one_does_not() -> None:
    assert speed_verdict.judge([0.9, 0.91, 0.9, 0.89, 0.9], ALLOWED) == "faster"
    assert speed_verdict.judge([0.97, 0.98, 0.97], ALLOWED) == "alike"
    assert speed_verdict.judge([1.4, 1.5, 1.45], ALLOWED) == "alike"

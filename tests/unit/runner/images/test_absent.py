"""Steps compiled for GPUs that are not here: what the compiled program says, its judgement, its record and its page.

The programs in the folder `programs` are XLA's own: mlp-mnist of JAX 0.12.0.1 at fp32 for the H100, as it is, and with a mistake planted
in the adapter. Source positions and file names are cut out of them.
"""

from __future__ import annotations

import ast
import base64
import importlib
import json
import sys
import zlib
from collections.abc import Sequence
from datetime import date
from pathlib import Path

import pytest

from runner.catalog.frameworks import load_frameworks
from runner.catalog.images import CatalogError, Image, load_catalog
from runner.catalog.workloads import load_workloads
from runner.cli.images.try_ import offered_steps
from runner.engines import cell_cache, compilation
from runner.engines.base import EngineError, ReadyImage
from runner.engines.process.venv import VenvEngine
from runner.images import compiled
from runner.images.compile_program import Program, UnreadableProgramError, read_program
from runner.images.compiled import CompiledStep, column, faults, load_targets, page_text, steps_faults

PROGRAMS = Path(__file__).parent / "programs"


@pytest.fixture(scope="module")
def catalog() -> dict[str, Image]:
    return load_catalog()


def program_text(name: str) -> str:
    return (PROGRAMS / f"mlp-mnist.fp32.H100.{name}.hlo.txt").read_text(encoding="utf-8")


def test_a_program_says_its_launches_products_and_donation() -> None:
    program = read_program(program_text("as-it-is"))
    assert (program.launches, program.results, program.aliased, program.tf32) == (27, 14, 13, 0)
    assert program.products == {"f32": 5}
    assert faults("mlp-mnist", "fp32", program) == []


def test_a_step_that_donates_nothing_is_seen() -> None:
    (fault,) = faults("mlp-mnist", "fp32", read_program(program_text("no-donation")))
    assert fault.startswith("14 of its 14 results take memory of their own, and only the loss should")


def test_tf32_at_fp32_is_seen() -> None:
    program = read_program(program_text("tf32-at-fp32"))
    assert faults("mlp-mnist", "fp32", program) == [
        "5 of its 5 products of float32 may use TF32, which fp32 does not ask for"
    ]
    assert faults("mlp-mnist", "tf32", program) == []


def test_fp32_at_tf32_and_a_half_type_that_is_none_are_seen() -> None:
    program = read_program(program_text("as-it-is"))
    assert faults("mlp-mnist", "fp32", program, 17 * 10**9, 16 * 10**9) == ["it takes 17.0 GB, and the GPU has 16.0 GB"]
    assert faults("mlp-mnist", "tf32", program) == ["only 0 of its 5 products of float32 may use TF32"]
    assert faults("mlp-mnist", "amp-bf16", program) == ["none of its products takes factors of bf16"]


def test_factors_of_a_half_type_at_a_whole_precision_are_seen() -> None:
    rounded = read_program(program_text("as-it-is").replace("f32[", "bf16["))
    for precision in ("fp32", "tf32"):
        assert f"5 of its products take factors of bf16, which {precision} does not ask for" in faults(
            "mlp-mnist", precision, rounded
        )
    assert not any("does not ask for" in fault for fault in faults("mlp-mnist", "amp-bf16", rounded))
    singles = read_program(program_text("as-it-is"))
    assert "5 of its products take factors of f32, which fp64 does not ask for" in faults("ops", "fp64", singles)


@pytest.mark.parametrize(
    ("algorithm", "rounds"),
    [
        ("dot_bf16_bf16_f32", True),
        ("dot_bf16_bf16_f32_x3", True),
        ("dot_bf16_bf16_f32_x6", False),
        ("dot_f32_f32_f32", False),
    ],
)
def test_an_algorithm_that_rounds_factors_of_float32_is_seen(algorithm: str, rounds: bool) -> None:
    program = read_program(LOOP.replace("dot_tf32_tf32_f32", algorithm))
    assert program.tf32 == 2 + rounds


def test_an_optimiser_s_step_of_ops_that_keeps_an_argument_is_seen() -> None:
    assert steps_faults("adam step", Program(results=4, aliased=4)) == []
    assert steps_faults("adam step", Program(results=4, aliased=3)) == [
        "adam step does not donate all of its arguments"
    ]
    assert steps_faults("conv2d gradient", Program(results=4)) == []


LOOP = """\
HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[8,8]{1,0})->f32[8,8]{1,0}}

%fused (p: f32[8,8]) -> f32[8,8] {
  %p = f32[8,8]{1,0} parameter(0)
  ROOT %add = f32[8,8]{1,0} add(%p, %p)
}

%graph (q: f32[8,8]) -> (f32[8,8], /*index=1*/f32[8,8]) {
  %q = f32[8,8]{1,0} parameter(0)
  %cudnn-conv.1 = (bf16[8,4,4,8]{3,2,1,0}, u8[0]{0}) custom-call(%q, %q), window={size=3x3}, dim_labels=bf01_oi01->bf01, \
operand_precision={high,high}, custom_call_target="__cudnn$convForward"
  %f = f32[8,8]{1,0} fusion(%q), kind=kLoop, calls=%fused
  ROOT %t = (f32[8,8]{1,0}, /*index=1*/f32[8,8]{1,0}) tuple(%f, %f)
}

%turn (s: (s32[], f32[8,8])) -> (s32[], f32[8,8]) {
  %s = (s32[], f32[8,8]{1,0}) parameter(0)
  %x = f32[8,8]{1,0} get-tuple-element(%s), index=1
  %i = s32[] get-tuple-element(%s), index=0
  %cublas-gemm.1 = (f32[8,8]{1,0}, s8[16]{0}) custom-call(%x, %x), custom_call_target="__cublas$gemm", \
backend_config={"gemm_backend_config":{"precision_config":{"operand_precision":["DEFAULT","DEFAULT"],"algorithm":"ALG_UNSET"}}}
  %y = f32[8,8]{1,0} get-tuple-element(%cublas-gemm.1), index=0
  %z = f32[8,8]{1,0} fusion(%y), kind=kLoop, calls=%fused
  ROOT %r = (s32[], f32[8,8]{1,0}) tuple(%i, %z)
}

%goes_on (s: (s32[], f32[8,8])) -> pred[] {
  %s = (s32[], f32[8,8]{1,0}) parameter(0)
  ROOT %c = pred[] constant(true)
}

ENTRY %main (a: f32[8,8]) -> f32[8,8] {
  %a = f32[8,8]{1,0} parameter(0)
  %call = (f32[8,8]{1,0}, /*index=1*/f32[8,8]{1,0}) call(%a), to_apply=%graph
  %b = f32[8,8]{1,0} get-tuple-element(%call), index=0
  %zero = s32[] constant(0)
  %start = (s32[], f32[8,8]{1,0}) tuple(%zero, %b)
  %while = (s32[], f32[8,8]{1,0}) while(%start), condition=%goes_on, body=%turn, \
backend_config={"known_trip_count":{"n":"15"}}
  %choice = f32[8,8]{1,0} conditional(%zero, %a, %b), branch_computations={%fused, %goes_on}
  ROOT %dot = f32[8,8]{1,0} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}, algorithm=dot_tf32_tf32_f32
}
"""


def test_a_loop_counts_by_its_turns_a_call_by_its_content_and_a_branch_by_its_longer_way() -> None:
    program = read_program(LOOP)
    assert program.launches == 2 + 15 * 2 + 1 + 1
    assert (program.results, program.aliased) == (1, 0)
    assert program.products == {"f32": 3}
    assert program.tf32 == 3, "high and default allow it, and so does the algorithm by its name"
    assert program.layouts == {"NCHW": 1}


def test_a_loop_that_does_not_say_its_turns_is_not_counted_as_one() -> None:
    with pytest.raises(UnreadableProgramError, match="the loop while does not say how often it turns"):
        read_program(LOOP.replace("known_trip_count", "trips"))


def test_what_is_no_program_is_not_read_as_an_empty_one() -> None:
    for text in ("", "HloModule empty\n", LOOP.replace("ENTRY ", "")):
        with pytest.raises(UnreadableProgramError):
            read_program(text)


def test_the_targets_are_described_with_the_image_s_own_cudnn(catalog: dict[str, Image]) -> None:
    text = load_targets()["H100"].text(catalog["jax-0.12.0.1-cu132"])
    assert 'device_description_str: "NVIDIA H100 80GB HBM3"' in text
    assert "major: 9\n  minor: 26\n  patch: 0" in text
    assert "ACCELERATED_FEATURES" not in load_targets()["A100"].text(catalog["jax-0.12.0.1-cu132"])


def test_the_plan_says_what_is_compiled_for_which_gpu(catalog: dict[str, Image]) -> None:
    def steps(name: str) -> dict[tuple[str, str, str], tuple[int, list[str]]]:
        return offered_steps(catalog[name], load_workloads(), load_frameworks(), load_targets())

    newest = steps("jax-0.12.0.1-cu128")
    assert newest["jax", "cnn-cifar10", "fp32"] == (64, ["V100", "A100", "H100", "B200"])
    assert newest["jax", "cnn-cifar10", "tf32"][1] == ["A100", "H100", "B200"], "a V100 has no tf32"
    assert newest["jax", "ops", "fp8"][1] == ["H100", "B200"]
    assert ("keras_jax", "gru-imdb", "amp-fp16") not in newest, "its framework.json says why"
    assert all(workload != "densenet121-synthetic" for _, workload, _ in newest), "it computes another one's program"
    assert steps("jax-0.12.0.1-cu126")["jax", "cnn-cifar10", "fp32"][1] == ["V100", "A100", "H100"]
    assert steps("jax-0.12.0.1-cu132")["jax", "cnn-cifar10", "fp32"][1] == ["A100", "H100", "B200"]


def test_a_framework_that_takes_no_description_of_a_gpu_says_so() -> None:
    assert compilation.why_not("keras_jax") is None
    assert "takes no description of one" in (compilation.why_not("torch") or "")


STEP = ("jax", "mlp-mnist", "fp32")


@pytest.fixture
def image(catalog: dict[str, Image], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Image:
    monkeypatch.setattr(compiled, "RECORDS", tmp_path / "compiled")
    monkeypatch.setattr(cell_cache.paths, "cache_folder", lambda: tmp_path / "cache")
    return catalog["jax-0.12.0.1-cu128"]


def compiled_by(
    image: Image,
    script: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: float = 30,
    recorded: Sequence[CompiledStep] = (),
) -> list[CompiledStep]:
    """What becomes of a step where this Python stands for the image's interpreter, and `script` for the script that compiles."""
    path = folder / "script.py"
    path.write_text(script, encoding="utf-8")
    monkeypatch.setattr(compilation, "SCRIPT", path)
    prepared = ReadyImage(image, "sha256:0", (sys.executable, "-m", "bench"))
    targets = {name: load_targets()[name] for name in ("V100", "H100")}
    records = {step.target: step for step in recorded}
    return compilation.compile_step(VenvEngine(), prepared, STEP, 64, targets, limit, records)


def printing(lines: list[dict[str, object]]) -> str:
    return f"for line in {[json.dumps(line) for line in lines]!r}: print(line)"


def line(target: str, name: str) -> dict[str, object]:
    memory = {"arguments": 100, "results": 50, "aliased": 46, "temporary": 7, "code": 0}
    text = base64.b64encode(zlib.compress(program_text(name).encode())).decode()
    return {"program": "step", "target": target, "bytes": memory, "text": text, "seconds": 1.0}


def test_a_step_is_judged_for_each_target_and_its_record_is_read_back(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = printing([line("V100", "as-it-is"), line("H100", "no-donation")])
    steps = compiled_by(image, script, tmp_path, monkeypatch)
    assert [(step.target, step.outcome, step.launches, step.bytes) for step in steps] == [
        ("V100", "ok", 27, 111),
        ("H100", "wrong", 27, 111),
    ]
    compiled.write_compiled(image, steps, {"jax": {"V100": 2, "H100": 3}})
    record = compiled.read_compiled(image)
    assert record is not None
    assert sorted(record.steps, key=lambda step: step.key) == sorted(steps, key=lambda step: step.key)
    assert compiled.recorded(image).keys() == {(*STEP, "V100"), (*STEP, "H100")}
    text = page_text([image])
    assert "27 launches, 0 MB" in text
    assert "**wrong**: 14 of its 14 results take memory of their own" in text
    assert column(image, "jax") == "V100 1 of 2, H100 0 of 3"
    assert column(image, "keras_jax") == "-"


def test_a_target_that_does_not_compile_has_its_reason_and_the_other_is_there(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: dict[str, object] = {"program": "step", "target": "V100", "error": "XlaRuntimeError: no kernel image"}
    first, second = compiled_by(image, printing([failed, line("H100", "as-it-is")]), tmp_path, monkeypatch)
    assert (first.outcome, first.reason) == ("error", "step: XlaRuntimeError: no kernel image")
    assert second.outcome == "ok"


@pytest.mark.parametrize(
    ("script", "outcome", "reason"),
    [
        ("import sys; sys.exit('bench.errors.Unsupported: JAX 0 has none')", "unsupported", "JAX 0 has none"),
        ("raise SystemExit('Segmentation fault')", "error", "Segmentation fault"),
        ("", "error", "it printed nothing and ended with exit code 0"),
    ],
)
def test_a_process_that_compiles_nothing_says_why(
    script: str, outcome: str, reason: str, image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = compiled_by(image, script, tmp_path, monkeypatch)
    assert [(step.outcome, step.reason) for step in steps] == [(outcome, reason)] * 2


def test_an_unfinished_step_is_compiled_again(image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = compiled_by(image, "import time; time.sleep(60)", tmp_path, monkeypatch, limit=1)
    assert {step.outcome for step in steps} == {"unfinished"}
    compiled.write_compiled(image, steps)
    assert compiled.recorded(image) == {}
    ended = compiled_by(image, printing([line("V100", "as-it-is")]), tmp_path, monkeypatch)[:1]
    compiled.write_compiled(image, ended)
    compiled.write_compiled(image, steps)  # on a busy machine it may take too long once more
    assert compiled.recorded(image).keys() == {(*STEP, "V100")}


def test_a_script_that_prints_something_else_is_an_error_of_the_run(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EngineError, match="printed"):
        compiled_by(image, "print('hello')", tmp_path, monkeypatch)


def test_an_image_of_which_no_step_can_be_compiled_has_a_line_below_the_table(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "import sys; sys.exit('bench.errors.Unsupported: this XLA takes no description')"
    compiled.write_compiled(image, compiled_by(image, script, tmp_path, monkeypatch))
    text = page_text([image])
    assert f"- `{image.name}`: none of its 2 steps was compiled: this XLA takes no description" in text


def test_a_record_that_cannot_be_read_is_named(image: Image) -> None:
    path = compiled.record_path(image)
    path.parent.mkdir(parents=True)
    path.write_text("{}", encoding="utf-8")
    with pytest.raises(CatalogError, match=path.name):
        compiled.read_compiled(image)


def test_a_program_of_older_code_is_marked(image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (step, _) = compiled_by(image, printing([line("V100", "as-it-is")]), tmp_path, monkeypatch)
    compiled.write_compiled(image, [step.model_copy(update={"adapter_sha256": "0" * 64})])
    assert "**of older code**" in page_text([image])


def test_a_step_of_another_adapter_keeps_its_record_where_xla_would_get_the_same_program(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        line(target, "as-it-is") | {"programs_sha256": digit * 64} for target, digit in (("V100", "a"), ("H100", "b"))
    ]
    before = [
        step.model_copy(update={"adapter_sha256": "0" * 64, "date": date(2026, 1, 1)})
        for step in compiled_by(image, printing(lines), tmp_path, monkeypatch)
    ]
    same = {"program": "", "target": "V100", "programs_sha256": "a" * 64, "as_recorded": True}
    other = line("H100", "no-donation") | {"programs_sha256": "c" * 64}
    kept, new = compiled_by(image, printing([same, other]), tmp_path, monkeypatch, recorded=before)
    assert kept == before[0].model_copy(update={"adapter_sha256": new.adapter_sha256}), (
        "with the day it was compiled on"
    )
    assert (new.outcome, new.programs_sha256, new.date > before[1].date) == ("wrong", "c" * 64, True)
    compiled.write_compiled(image, [kept, new])
    assert "**of older code**" not in page_text([image])


def test_the_script_that_compiles_asks_the_bench_for_what_it_has() -> None:
    """Only an image of JAX can run it, so a name of the bench that changed would be missed until the next compilation."""
    tree = ast.parse(compilation.SCRIPT.read_text(encoding="utf-8"))
    froms = [node for node in tree.body if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bench")]
    modules = {
        alias.name: importlib.import_module(f"{node.module}.{alias.name}")
        for node in froms
        for alias in node.names
        if alias.name.islower()
    }
    asked = {
        (node.value.id, node.attr)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules
    }
    assert {"feeds", "data", "rules", "ops"} <= {module for module, _ in asked}
    assert [f"{module}.{name}" for module, name in sorted(asked) if not hasattr(modules[module], name)] == []

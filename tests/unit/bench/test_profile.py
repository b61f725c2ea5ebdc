"""The profile of a step: own times from spans, rows through the protocol and the store, and the table in the report."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import reports.page.render
from bench import profiling, protocol, timing
from bench.cell import RunningCell
from bench.profiling import Operation, Span
from reports.answers import findings
from reports.data import profiles, tables
from runner.admission.record import Recorder
from runner.catalog import frameworks
from runner.plan.plan import Cell as PlannedCell
from runner.results.store import RunStore
from runner.run.attempt import arguments
from runner.verify import output as verify_output
from runner.verify.verification import Verification, assess
from runner.verify.verification_run import document
from tests.fixtures import stored, synthetic
from tests.fixtures.pages import whole


def test_a_span_within_another_one_is_taken_off_its_time() -> None:
    first = [
        Span("call", "cpu", 0.0, 10.0),
        Span("matmul", "cpu", 1.0, 4.0),
        Span("pack", "cpu", 2.0, 1.0),
        Span("matmul", "cpu", 6.0, 2.0),
        Span("add", "cpu", 10.0, 3.0),  # begins where the call ends: not within it
    ]
    second = [Span("add", "cpu", 0.0, 5.0)]  # of another thread: within nothing of the first
    found = {each.name: (each.calls, each.seconds) for each in profiling.own_time([first, second])}
    assert found == {
        "call": (1, pytest.approx(4.0)),
        "matmul": (2, pytest.approx(5.0)),
        "pack": (1, pytest.approx(1.0)),
        "add": (2, pytest.approx(8.0)),
    }


def test_the_longest_are_told_and_the_others_together() -> None:
    many = [Operation("op%d" % n, "cuda", 2, float(n)) for n in range(100)] + [Operation("x" * 999, "cpu", 1, 1e3)]
    found = profiling.longest(many)
    assert len(found) == profiling.ROWS + 1
    assert found[0] == Operation("x" * profiling.NAME_CHARACTERS, "cpu", 1, 1e3)
    assert found[-1].name == "60 other operations"  # op0 took no time
    assert sum(each.seconds for each in found) == pytest.approx(sum(each.seconds for each in many))


class Told(list[dict[str, Any]]):
    zero = 0.0

    def emit(self, event: str, **fields: Any) -> None:
        fields |= {"event": event, "t": 0.0, "v": protocol.VERSION}
        protocol.check(fields)
        self.append(fields)


def cell(workload: str) -> tuple[RunningCell, Told]:
    told = Told()
    return RunningCell(SimpleNamespace(workload=workload, preset="quick", framework="torch", device="cpu"), told), told


def test_the_steps_after_the_measured_ones_are_profiled(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def operations(run: Any, device: str) -> list[Operation]:
        run()
        return [Operation("matmul", device, 2 * len(ran), 0.25)]

    monkeypatch.setattr(profiling.importlib, "import_module", lambda name: SimpleNamespace(operations=operations))
    profiled, told = cell("gru-imdb")
    profiled.loop = timing.Loop(lambda x, y: ran.append(x), iter([(n, n) for n in range(9)]), lambda: None, None)
    profiled.profile()
    assert ran == list(range(profiling.STEPS))
    assert profiled.loop.samples == []
    (row,) = [each for each in told if each["event"] == "profile"]
    assert (row["name"], row["on"], row["calls"], row["seconds"], row["steps"]) == ("matmul", "cpu", 10, 0.25, 5)


def test_a_workload_without_steps_says_that_it_has_no_profile() -> None:
    profiled, told = cell("ops")
    profiled.profile()
    (only,) = told
    assert only["event"] == "left-out"
    assert "ops has none" in only["reason"]


def share(told: list[dict[str, Any]]) -> dict[str, Any]:
    (only,) = [event for event in told if event["event"] in ("kernels", "left-out")]
    return only


def looped(kernels: Any, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[RunningCell, Told]:
    """A cell whose steps took 10 ms each, with the stand-in of a framework's profiler."""
    monkeypatch.setattr(profiling.importlib, "import_module", lambda name: SimpleNamespace(kernels=kernels))
    told = Told()
    chosen = {"workload": "gru-imdb", "preset": "quick", "framework": "torch", "device": "cuda", "devices": 1}
    made = RunningCell(SimpleNamespace(**chosen | options), told)
    made.loop = timing.Loop(lambda x, y: None, iter(lambda: (0, 0), None), lambda: None, None)
    made.loop.samples = [timing.Sample(0, "steady", 0.0, 0.1, 10), timing.Sample(1, "warm-up", 0.0, 90.0, 1)]
    return made, told


def test_the_share_of_kernels_is_of_a_step_that_no_profiler_slowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def kernels(run: Any) -> list[Span]:
        run()
        # 20 steps of 10 ms: a kernel of 2 ms in each, and beside every second one another that begins in its middle.
        return [Span("gemm", "cuda", 0.03 * n, 0.002) for n in range(20)] + [
            Span("add", "cuda", 0.06 * n + 0.001, 0.002) for n in range(10)
        ]

    made, told = looped(kernels, monkeypatch)
    made.share_of_kernels()
    event = share(told)
    assert (event["steps"], event["share"]) == (20, pytest.approx(0.25))
    assert [each["state"] for each in told if each["event"] == "phase"] == ["begin", "end"]


def test_kernels_that_fill_a_step_are_its_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made, told = looped(lambda run: [Span("gemm", "cuda", 0.0, 0.2)], monkeypatch)
    made.share_of_kernels()
    assert share(told)["share"] == 1.0


def test_kernels_that_took_longer_than_the_step_say_that_the_profiler_slowed_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made, told = looped(lambda run: [Span("gemm", "cuda", 0.0, 0.254)], monkeypatch)
    made.share_of_kernels()
    said = "torch's profiler slowed the kernels: they ran for 1.27 times the time of a step without it"
    assert share(told)["reason"] == said
    assert [each["event"] for each in told if each["event"] == "kernels"] == []


def failing(run: Any) -> list[Span]:
    raise RuntimeError("CUPTI_ERROR_NOT_INITIALIZED".ljust(20000))


@pytest.mark.parametrize(
    ("kernels", "options", "reason"),
    [
        (failing, {"device": "cpu"}, "kernels are a GPU's, and this cell ran on a CPU"),
        (failing, {"devices": 2}, "it is measured on one device only, and this cell has 2"),
        (failing, {"framework": "chainer"}, "chainer has no profiler here"),
        (failing, {}, "torch's profiler failed: CUPTI_ERROR_NOT_INITIALIZED"),
        (lambda run: [], {}, "torch's profiler saw no kernel"),
    ],
)
def test_a_share_that_is_not_known_is_left_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, kernels: Any, options: dict[str, Any], reason: str
) -> None:
    made, told = looped(kernels, monkeypatch, **options)
    made.share_of_kernels()
    assert share(told)["reason"].strip() == reason
    states = [each["state"] for each in told if each["event"] == "phase"]
    assert states in ([], ["begin", "end"]), "a phase that began has ended"


def test_a_cell_of_single_operations_has_no_step(monkeypatch: pytest.MonkeyPatch) -> None:
    made, told = looped(failing, monkeypatch, workload="ops")
    made.loop = None
    made.share_of_kernels()
    assert told == []


def test_copies_are_no_kernels() -> None:
    streams = [[Span(name, "cuda", 0.0, 1.0) for name in ("sgemm", "MemcpyH2D", "Memcpy DtoD", "Memset 4 bytes")], []]
    assert [span.name for span in profiling.without_copies(streams)] == ["sgemm"]


def test_of_pytorch_s_trace_only_kernels_count() -> None:
    """The optimiser's annotation spans the time between its kernels too."""
    events = [
        {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 2e6, "dur": 5e5, "pid": 0, "tid": 7},
        {"ph": "X", "cat": "Kernel", "name": "add", "ts": 3e6, "dur": 25e4, "pid": 0, "tid": 7},
        {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pageable -> Device)", "ts": 0, "dur": 9e6},
        {"ph": "X", "cat": "gpu_user_annotation", "name": "Optimizer.step#Adam.step", "ts": 0, "dur": 9e6},
        {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 0, "dur": 9e6},
        {"ph": "M", "name": "process_name", "args": {"name": "python"}},
    ]
    spans = profiling.kernels_of_trace({"traceEvents": events})
    assert spans == [Span("gemm", "cuda", 2.0, 0.5), Span("add", "cuda", 3.0, 0.25)]
    assert profiling.covered(spans) == pytest.approx(0.75)


def row(**more: Any) -> dict[str, Any]:
    return {"name": "aten::mm", "on": "cpu", "calls": 10, "seconds": 0.5, "steps": 5, "step_seconds": 0.2} | more


def test_a_cells_profile_is_bounded(tmp_path: Path) -> None:
    recorder = Recorder()
    line = json.dumps(row() | {"event": "profile", "t": 1.0, "v": protocol.VERSION}).encode() + b"\n"
    recorder.feed(line * 1000)
    assert recorder.problem is None
    assert len(recorder.rows["profile"]) == 200
    recorder.feed(line.replace(b'"steps": 5', b'"steps": 5000000000'))
    assert "profile.steps is above" in str(recorder.problem)
    recorder.close()


def test_only_frameworks_with_a_profiler_are_asked_for_one() -> None:
    can = frameworks.with_profiler()
    assert {"torch", "jax", "tensorflow", "keras_torch", "keras_jax", "keras_tensorflow"} <= can
    assert "chainer" not in can
    planned = PlannedCell(**dict.fromkeys(PlannedCell.__dataclass_fields__))  # type: ignore[arg-type]
    planned = replace(planned, workload="gru-imdb", framework="torch", devices=1, seed=1)
    assert "--profile" not in [str(word) for word in arguments(planned)]
    assert arguments(planned, profiled=True)[-1] == "--profile"


def test_a_cuda_graph_is_advised_where_the_framework_and_the_cell_take_one() -> None:
    key = SimpleNamespace(device_kind="cuda", precision="fp32", workload="gru-imdb", devices=1)
    cell: Any = SimpleNamespace(image="torch-2-cu128", framework="torch", mode="default", label="PyTorch", key=key)
    assert findings._replays([cell], [cell]) == " `--modes default,graph` also measures PyTorch as a CUDA graph."
    for change in (
        {"device_kind": "cpu"},
        {"precision": "amp-fp16"},
        {"workload": "resnet50-features"},
        {"devices": 2},
    ):
        other: Any = SimpleNamespace(**vars(cell) | {"key": SimpleNamespace(**vars(key) | change)})
        assert findings._replays([other], [other]) == ""
    jax: Any = SimpleNamespace(**vars(cell) | {"framework": "jax"})
    assert findings._replays([jax], [jax]) == ""
    graph: Any = SimpleNamespace(**vars(cell) | {"mode": "graph"})
    assert findings._replays([cell], [cell, graph]) == "", "it was measured"


@pytest.mark.parametrize(("share", "host_bound"), [(0.125, True), (0.5, False), (None, False)])
def test_a_host_bound_cell_is_called_that(tmp_path: Path, share: float | None, host_bound: bool) -> None:
    folder = synthetic.make_run(tmp_path / "run", repeats=1)
    store = RunStore(folder)
    entry = next(each for each in store.manifest()["plan"] if each["framework"] == "torch")
    ended = synthetic.ended(entry, 1, 20)
    ended["cells"][0]["kernel_share"] = share
    stored.write_repeat(store.folder, entry["id"], 1, ended)
    reports.page.render.render([folder], folder / "report.html")
    page = whole(folder / "report.html").replace("&#39;", "'")
    assert ("Host-bound: kernels ran in less than half of a step's time" in page) == host_bound
    assert ('<span class="sub warn">host-bound</span>' in page) == host_bound
    assert ("12.5\N{NO-BREAK SPACE}%" in page or "13\N{NO-BREAK SPACE}%" in page) == host_bound
    (finding,) = [f for f in assess([folder], []).findings if f.cell_id == entry["id"]]
    told = "\n".join(verify_output.details(Verification((finding,))))
    assert ("  host-bound: kernels ran in 12 % of a step's time" in told) == host_bound
    assert document(Verification((finding,)))["findings"][0]["kernel_share"] == share


def test_the_share_reaches_the_cell_s_row_and_no_share_above_one(tmp_path: Path) -> None:
    recorder = Recorder()
    line = json.dumps({"event": "kernels", "t": 1.0, "v": protocol.VERSION, "share": 0.25, "steps": 20}).encode()
    recorder.feed(line + b"\n")
    assert (recorder.problem, recorder.row["kernel_share"]) == (None, 0.25)
    recorder.feed(line.replace(b"0.25", b"1.25") + b"\n")
    assert "kernels.share" in str(recorder.problem)
    recorder.close()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = synthetic.make_run(tmp_path / "run")
    store = RunStore(folder)
    entry = next(each for each in store.manifest()["plan"] if each["framework"] == "torch")
    ended = synthetic.ended(entry, 1, 20)
    many = [row(name=f"small{n}", seconds=0.001, calls=5) for n in range(20)]
    ended["profile"] = [row(), row(name="<script>alert(1)</script>", seconds=0.25), *many]
    stored.write_repeat(store.folder, entry["id"], 1, ended)
    return folder


def test_the_report_shows_shares_and_escapes_names(run: Path) -> None:
    data = tables.load([run])
    found = [one for workload in data.workloads for g in workload.groups for one in profiles.shown(g, data.profiles)]
    (one,) = found
    assert one.profile.busy_seconds == pytest.approx(0.77 / 5)
    assert [each.name for each in one.operations[:2]] == ["aten::mm", "<script>alert(1)</script>"]
    assert one.operations[0].share == pytest.approx(0.5 / 0.77)
    assert one.operations[0].calls == 2
    assert len(one.operations) == profiles.SHOWN
    assert one.others == pytest.approx(0.007 / 0.77)
    reports.page.render.render([run], run / "report.html")
    page = whole(run / "report.html")
    assert "Where a step&#39;s time goes" in page or "Where a step's time goes" in page
    assert re.search(r"&lt;script&gt;alert\(1\)", page)
    assert "<script>alert(1)" not in page


def test_a_page_without_profiles_has_no_such_section(tmp_path: Path) -> None:
    folder = synthetic.make_run(tmp_path / "run")
    reports.page.render.render([folder], folder / "report.html")
    assert "time goes</h4>" not in whole(folder / "report.html")

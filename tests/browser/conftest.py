"""One Chromium for all tests of the report, and the pages that it opens, each rendered once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import reports.page.render
from bench import identity
from runner.cli.report import health_of
from runner.results.store import RunStore
from tests.browser.chromium import CHROMIUM, DRIVER, Browser
from tests.fixtures import large, stored, synthetic
from tests.fixtures.fleets import each_gpu_run

# The hooks by which a test is not run again with the same inputs.
from tests.fixtures.green import pytest_configure  # noqa: F401

SCRIPT = "<script>window.hacked=1</script><img src=http://127.0.0.1:9/x onerror=window.hacked=1>"
# The bar is set for 504 with three repeats, which take a minute to render: DLBENCH_REPORT_CELLS=504.
CELLS = int(os.environ.get("DLBENCH_REPORT_CELLS", "252"))


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    pytest.importorskip("selenium", reason="selenium is not installed: pip install -e '.[dev]'")
    if CHROMIUM is None or DRIVER is None:
        pytest.skip("no Chromium with its driver on this machine")
    found = Browser(tmp_path_factory.mktemp("profile"))
    yield found
    found.driver.quit()


@pytest.fixture(scope="session")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few cells; its folder lies beside the page."""
    folder = tmp_path_factory.mktemp("runs")
    run = synthetic.make_run(folder / "20261120-230512-abcd", repeats=2, reused=True)
    reports.page.render.render([run], folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="session")
def short_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report on some minutes of a run: three frameworks at one workload, of nine at five."""
    folder = tmp_path_factory.mktemp("short")
    run = synthetic.make_run(folder / "20261120-230512-short", repeats=1, manifest={"repeats": 3})
    synthetic.unrun(run, *((image, workload) for image, workload in synthetic.LEVELS if workload == "cnn-cifar10"))
    manifest = RunStore(run).manifest()
    others = ("mlp-mnist", "cnn-mnist", "resnet50-features", "gru-imdb", "cnn-cifar10")
    for at, (name, workload) in enumerate((f"chainer-7.{at}.0-cpu", one) for at in range(6) for one in others):
        fields = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10") | {"image": name, "workload": workload}
        manifest["plan"].append(fields | {"framework": "chainer", "id": synthetic.digest(f"{at}")[:16]})
    RunStore(run).write_manifest(manifest)
    reports.page.render.render([run], folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="session")
def rich_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of this checkout's code with versions, precisions and devices to compare, and what moved."""
    folder = tmp_path_factory.mktemp("rich")
    runs = []
    for draw, name in enumerate(("monday", "tuesday"), start=1):
        driver = {"driver_version": f"{draw}.0"}
        run = synthetic.make_run(folder / name, repeats=2, draw=draw, everywhere=driver, code=identity.code_sha256)
        for image, changes in (("torch-a", {"precision": "bf16"}), ("torch-b", {"cuda_version": "12.8"})):
            entry = synthetic.cell("torch-2.13.0-cpu", "cnn-cifar10")
            for repeat in (1, 2):
                rows = synthetic.ended(entry, repeat, 40, 0.7, draw)
                rows["cells"][0].update(changes, image="torch-2.13.0-cpu" if "precision" in changes else image)
                stored.write_repeat(run, synthetic.digest(image)[:16], repeat, rows)
        runs.append(run)
    reports.page.render.render(runs, folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="session")
def nodes_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over four nodes of four GPUs, of which one is slow, and in another one a GPU."""
    folder = tmp_path_factory.mktemp("nodes")
    names = ("gpu-node-01", "a-rack-with-a-long-name-02.example", f"{SCRIPT} \u202e", "gpu-node-04")
    numbers = {name: range(4 * at, 4 * at + 4) for at, name in enumerate(names)}
    levels = [(1.1 if at // 4 == 1 else 1.3 if at == 9 else 1.0) * (1 + 0.001 * (at % 4)) for at in range(16)]
    run = each_gpu_run(folder / "run", levels, repeats=2, nodes=numbers)
    reports.page.render.render([run], folder / "report.html", health_of([run]))
    return folder / "report.html"


@pytest.fixture(scope="session")
def hostile_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs whose every text is markup, control characters or too long."""
    folder = tmp_path_factory.mktemp("hostile")
    columns = ("image", "framework", "framework_version", "device_model", "mode", "data_source")
    changes = {column: f"{column} {SCRIPT} \u202eesrever\x1b[31m {'W' * 500}" for column in columns}
    changes |= {"log_tail": "L" * 1_000_000, "reason": f"{SCRIPT} {'R' * 1_000_000}"}
    # What a section or a plot shows only of cells that differ: versions, drivers, other runs.
    told = {name: f"{name} {SCRIPT} \u202e\x1b[31m {'V' * 1_000_000}" for name in ("driver_version", "cudnn_version")}
    runs = [
        synthetic.make_run(folder / name, repeats=2, draw=draw, changes=changes, everywhere=told if draw else None)
        for draw, name in enumerate(("run", "other"))
    ]
    reports.page.render.render(runs, folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="session")
def large_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A matrix of CELLS cells: 126 for each precision."""
    folder = tmp_path_factory.mktemp("large")
    precisions = max(1, min(len(large.PRECISIONS), CELLS // 126))
    run = large.make_matrix(folder / "run", 3 if precisions > 2 else 2, 20, precisions)
    reports.page.render.render([run], folder / "report.html")
    return folder / "report.html"

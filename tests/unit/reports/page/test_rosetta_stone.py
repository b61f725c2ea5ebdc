"""The same workload side by side: the right files, whole and escaped, and clear words for what is not there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench import identity, rules
from reports.page import rosetta_stone
from reports.page.render import render
from runner.cli.main import app
from tests.fixtures import synthetic
from tests.fixtures.commands import runner
from tests.fixtures.pages import whole


def test_every_framework_of_the_bench_has_both_workloads() -> None:
    declared = {path.parent.name for path in (Path(rules.BENCH) / "frameworks").glob("*/framework.json")}
    assert len(declared) > 15
    inference_only = {"onnxruntime"}
    for workload in ("cnn-cifar10", "gru-imdb"):
        assert set(rosetta_stone.frameworks(workload)) == declared - inference_only
    assert inference_only <= set(rosetta_stone.frameworks("resnet50-features"))


def test_the_networks_on_mnist_are_in_the_frameworks_that_they_come_from() -> None:
    both = set(rosetta_stone.frameworks("mlp-mnist")) & set(rosetta_stone.frameworks("cnn-mnist"))
    assert {"flux", "knet", "torch", "chainer", "tinygrad", "keras_jax"} <= both
    for framework in both:
        texts = [rosetta_stone.source(workload, framework).text for workload in ("mlp-mnist", "cnn-mnist")]
        assert texts[0] != texts[1], framework
        assert all("MNIST" in text for text in texts), framework


def test_a_file_that_only_passes_on_another_is_shown_as_that_one() -> None:
    assert rosetta_stone.source("cnn-cifar10", "keras_jax").path == "bench/frameworks/keras/cnn_cifar10.py"
    assert rosetta_stone.source("cnn-cifar10", "keras_jax").title == "Keras on JAX"
    assert rosetta_stone.source("gru-imdb", "chainer").path == "bench/frameworks/chainer/gru_imdb.py"
    assert rosetta_stone.source("gru-imdb", "r_keras").language == "r"


@pytest.mark.parametrize(
    ("workload", "framework", "words"),
    [
        ("cnn-cifar", "torch", "did you mean 'cnn-cifar10'"),
        ("cnn-cifar10", "pytorch", "did you mean 'torch'"),
        ("cnn-cifar10", "../torch", "did you mean 'torch'"),
        ("../cnn-cifar10", "torch", "there is no workload"),
    ],
)
def test_what_is_not_there_is_told_with_what_is(workload: str, framework: str, words: str) -> None:
    with pytest.raises(rosetta_stone.RosettaError, match=words):
        rosetta_stone.source(workload, framework)


def test_a_pipe_has_each_file_whole_and_no_line_of_it_is_broken() -> None:
    printed = CliRunner().invoke(app, ["rosetta", "cnn-cifar10", "torch", "jax"], env={"COLUMNS": "40"}).stdout
    for framework in ("torch", "jax"):
        file = rosetta_stone.source("cnn-cifar10", framework)
        assert f"==== {file.title} · {file.path} ====\n\n{file.text}\n" in printed
        assert all(f"{file.title} · used of {helper.path} ====\n\n{helper.text}" in printed for helper in file.helpers)


def test_the_page_holds_both_files_whole_and_asks_no_one_for_anything() -> None:
    page = rosetta_stone.page("gru-imdb", ["torch", "r_keras"])
    assert "default-src &#39;none&#39;" in page or "default-src 'none'" in page
    assert "http" not in page.replace("http-equiv", "")
    assert "nn" in page
    assert "<script" not in page
    # R's assignment arrow must be escaped, or it would open a tag
    assert "&lt;-" in page


def test_a_report_shows_code_only_where_it_is_the_code_that_ran(tmp_path: Path) -> None:
    here = {"torch": identity.code_sha256("torch", "cnn-cifar10")}
    for ran, shown in ((here["torch"], True), ("0" * 64, False), (None, False)):
        run = synthetic.make_run(tmp_path / str(ran), everywhere={"code_sha256": ran})
        render([run], tmp_path / "report.html")
        page = whole(tmp_path / "report.html")
        assert ("The code that ran" in page) == shown, ran
        assert "bench/frameworks/jax/" not in page  # its digest is another
    assert rosetta_stone.with_code("cnn-cifar10", ["torch", "no-such"]) == ["torch"]


def test_the_report_imports_of_the_runner_its_results_and_of_the_bench_its_facts() -> None:
    script = (
        "import sys, reports.page.rosetta_stone, reports.page.render, reports.answers.comparison; print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    ours = {name for name in loaded if name.split(".")[0] in ("bench", "runner")}
    bench = {"bench", "bench.collectives", "bench.identity", "bench.protocol", "bench.rules"}
    assert {name for name in ours - bench if not name.startswith("runner.results")} <= {
        "runner",
        "runner.errors",
        "runner.known_messages",
        *(
            f"runner.messages{name}"
            for name in ("", ".known", ".of_engines", ".of_gpus", ".of_machines", ".of_schedulers")
        ),
        "runner.paths",
        "runner.text",
        "runner.trees",
    }


def test_the_command_prints_and_writes(tmp_path: Path) -> None:
    command = ["rosetta", "cnn-cifar10", "torch", "chainer"]
    shown = runner(*command)
    assert shown.returncode == 0
    assert "bench/frameworks/torch/cnn_cifar10.py" in shown.stdout
    assert "MomentumSGD" in shown.stdout
    target = tmp_path / "stone.html"
    written = runner(*command, "--html", str(target))
    assert written.stdout.strip() == str(target)
    assert "Chainer" in target.read_text()
    wrong = runner(*command[:-1], "chainr")
    assert wrong.returncode == 2
    assert "did you mean 'chainer'" in wrong.stderr

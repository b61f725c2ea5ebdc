"""A person's own network on the host: its file is read and never run, and each mistake in it is named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from bench import rules
from runner.catalog.own_networks import OwnNetworkError, is_path, own_networks, read
from runner.run.options import Options
from tests.fixtures.commands import runner

FILE = """
import torch

FRAMEWORK = "torch"
ITEMS = 32
PRECISIONS = ("amp-bf16",)


def batch(random):
    return (random.uniform(0, 1, (ITEMS, 4)),)


class Network:
    def step(self, x):
        return 0.0
"""

MISTAKES = {
    "syntax": (FILE + "def (:\n", "line 16: `def (:`"),
    "no class": (FILE.replace("class Network", "class Net"), "it has no `class Network`"),
    "no batch": (FILE.replace("def batch", "def draw"), "it has no `def batch(random)`"),
    "items missing": (FILE.replace("ITEMS = 32\n", ""), "ITEMS: None; write how many items"),
    "items computed": (FILE.replace("ITEMS = 32", "ITEMS = 4 * n"), "ITEMS: None"),
    "items of no step": (FILE.replace("ITEMS = 32", "ITEMS = 0"), "ITEMS: 0"),
    "framework misspelt": (FILE.replace('"torch"', '"troch"'), "did you mean 'torch'?"),
    "framework without proof": (FILE.replace('"torch"', '"chainer"'), "FRAMEWORK: 'chainer' is none of jax"),
    "precision unknown": (FILE.replace("amp-bf16", "fp4"), "PRECISIONS: ('fp4',)"),
    "no step": (FILE.replace("def step", "def stepp"), "no `def step(self, *batch)` (did you mean 'stepp'?)"),
    "dropout unknown": (FILE + "DROPOUT = 'sometimes'\n", "DROPOUT: 'sometimes'; write True, False or 'always'"),
    "no text": (b"\xff\xfe\x00", "correct it"),
    "too large": (b"#" * (1 << 21), "more than 1 MiB"),
}


def written(tmp_path: Path, content: str | bytes = FILE, name: str = "my_net.py") -> Path:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_what_is_no_file_or_has_too_long_a_name_is_refused_before_anything_begins(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.py")
    with pytest.raises(OwnNetworkError, match=r"pipe\.py is no file; name the file of a network"):
        read(tmp_path / "pipe.py")
    with pytest.raises(OwnNetworkError, match="a name of more than 100 bytes; give the file a shorter one"):
        read(written(tmp_path, name=f"{'y' * 98}.py"))
    network = read(written(tmp_path, name=f"{'y' * 97}.py"))
    assert network.name.startswith(f"{'y' * 40}@")


def test_a_class_that_inherits_may_have_its_step_from_there(tmp_path: Path) -> None:
    text = FILE.replace("class Network:", "class Network(Base):").replace("def step", "def other")
    assert "class Network(Base)" in text
    assert read(written(tmp_path, text)).batch == 32


def test_a_file_is_a_workload_of_its_framework(tmp_path: Path) -> None:
    network = read(written(tmp_path))
    assert network.name.startswith("my-net@")
    assert rules.is_own(network.name)
    assert (network.batch, list(network.files), network.precisions) == (32, ["torch"], ("fp32", "amp-bf16"))


def test_names_may_be_assigned_together(tmp_path: Path) -> None:
    text = FILE.replace('FRAMEWORK = "torch"\nITEMS = 32', 'FRAMEWORK, ITEMS = "torch", 64')
    assert read(written(tmp_path, text)).batch == 64


def test_its_name_hangs_on_its_content_and_not_on_its_place(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    first, moved = read(written(tmp_path)), read(written(tmp_path / "elsewhere"))
    edited = read(written(tmp_path, FILE + "# another\n"))
    assert first.name == moved.name != edited.name


def test_the_copy_that_a_run_keeps_is_the_same_network(tmp_path: Path) -> None:
    network = read(written(tmp_path))
    copy = tmp_path / "networks" / network.name
    copy.mkdir(parents=True)
    for name, content in network.files.values():
        (copy / name).write_bytes(content)
    assert read(tmp_path / "networks" / network.name).name == network.name


def test_a_folder_holds_a_file_for_each_framework(tmp_path: Path) -> None:
    folder = tmp_path / "net"
    folder.mkdir()
    written(folder, FILE, "torch.py")
    written(folder, FILE.replace('FRAMEWORK = "torch"\n', ""), "jax.py")
    network = read(folder)
    assert (sorted(network.files), network.name.partition("@")[0]) == (["jax", "torch"], "net")
    written(folder, FILE.replace("ITEMS = 32", "ITEMS = 16"), "torch.py")
    with pytest.raises(OwnNetworkError, match="one network has one batch"):
        read(folder)


def test_the_host_runs_none_of_it(tmp_path: Path) -> None:
    read(written(tmp_path, FILE + f"open({str(tmp_path / 'ran')!r}, 'w')\nraise SystemExit(3)\n"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("what", sorted(MISTAKES))
def test_a_mistake_is_named_with_its_file(tmp_path: Path, what: str) -> None:
    content, quoted = MISTAKES[what]
    with pytest.raises(OwnNetworkError) as raised:
        read(written(tmp_path, content))
    assert quoted in str(raised.value)
    assert "my_net.py" in str(raised.value)


@pytest.mark.parametrize("name", ["missing.py", "empty"])
def test_a_path_that_is_no_network_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(OwnNetworkError, match=name):
        read(tmp_path / name)


def test_names_and_paths_stand_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path)
    monkeypatch.chdir(tmp_path)
    words = ("./my_net.py", "cnn-cifar10")
    assert [is_path(word) for word in words] == [True, False]
    assert list(own_networks(words)) == ["./my_net.py"]
    stored = json.loads(Options(workloads=words).model_dump_json())
    assert stored["workloads"] == [str(tmp_path / "my_net.py"), "cnn-cifar10"]


def test_a_network_that_no_image_runs_has_its_own_reason_first_and_a_line_for_each_reason(tmp_path: Path) -> None:
    words = ("--workloads", str(written(tmp_path)), "--precision", "tf32", "--gpus", "none", "--engine", "venv")
    ended = runner("matrix", *words, "--out", str(tmp_path / "results"))
    assert ended.returncode == 4, ended.stderr
    head, first, *others = ended.stderr.splitlines()
    assert head == "runner: none of these cells can run here:"
    assert "is not specified at tf32 (torch-2.13.0-cpu)" in first
    # The catalog has 45 images, and each had a line.
    assert 1 <= len(others) <= 5
    assert "has a file for torch and for no other framework (" in "\n".join(others)

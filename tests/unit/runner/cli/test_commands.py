"""What the command `runner` answers when nothing is measured: plans, lists, refusals, help."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from runner.catalog.images import PROJECT, load_catalog
from runner.catalog.workloads import adapters, load_workloads
from runner.cli import shared
from runner.cli.images.push import end_of
from runner.cli.main import app
from runner.cli.shared import chosen_runs
from runner.engines.process.interpreters import Interpreter, find_interpreter
from runner.engines.process.venv import VenvEngine
from runner.errors import CannotBeginError
from runner.images.recipe import recipe
from runner.machine import detect, lease
from runner.plan.durations import TOO_LARGE
from runner.plan.plan import Combination, Plan, Skip
from runner.run import begin
from runner.run.options import Options, UsageError
from runner.run.prospect import Prospect
from tests.fixtures.commands import runner
from tests.fixtures.synthetic import make_run


def test_a_dry_run_starts_nothing_and_says_what_runs_what_is_left_out_and_what_it_costs(tmp_path: Path) -> None:
    arguments = ["matrix", "--dry-run", "--gpus", "none", "--engine", "venv", "--out", str(tmp_path / "results")]
    shown = runner(*arguments, env=os.environ | {"COLUMNS": "200"})
    assert shown.returncode == 0
    assert "torch-2.13.0-cpu" in shown.stdout
    assert "their CPU twins stand in" in " ".join(shown.stdout.split())
    assert "GB" in shown.stdout
    told = json.loads(runner(*arguments, "--format", "json").stdout)
    own = [image for image in load_catalog().values() if image.accelerator == "cpu" and image.untested is None]
    lacking = {image.name: words for image in own if (words := VenvEngine().unfit(image))}
    # A machine with little room says so of the images that come last.
    lacking |= {one["image"]: one["reason"] for one in told["skipped"] if one["reason"].startswith("the disk cannot ")}
    computed = [
        (image.name, framework, workload.name)
        for image in own
        if image.name not in lacking
        for framework in image.frameworks
        for workload in load_workloads().values()
        if (framework, workload.module) in adapters() and workload.gpu_only is None and not workload.on_request
    ]
    assert sorted((cell["image"], cell["framework"], cell["workload"]) for cell in told["cells"]) == sorted(computed)
    assert all(skip["reason"] for skip in told["skipped"])
    for name, words in lacking.items():
        assert [skip for skip in told["skipped"] if skip["image"] == name and words in skip["reason"]], name
    assert [skip for skip in told["skipped"] if "; its CPU twin torch-2.13.0-cpu stands in" in skip["reason"]]
    seconds = sum(cell["expected_seconds"] for cell in told["cells"])
    assert told["expected_seconds"] == pytest.approx(told["repeats"] * seconds), "cells of a CPU are in line"
    assert seconds > 0
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--preset", "quik"], "'quik' is not one of 'quick', 'standard', 'full'"),
        (["--workloads", "cnn-cifar"], "did you mean 'cnn-cifar10'?"),
        (["--images", "torch-9-*"], "no image is called 'torch-9-*'"),
        (["--frameworks", "pytorhc"], "short: pytorch for torch, tf for tensorflow"),
        (["--frameworks", "torhc"], "did you mean 'torch'?"),
        (["--images", "torch"], "did you mean 'torch-*'?"),
        (["--workloads", "gpt2"], "did you mean gpt2-124m or gpt2-decode or gpt2-decode-16?"),
        (["--images", "pytorch"], "did you mean 'torch-*'?"),
        (["--gpus", "none", "--scaling", "strong"], "--scaling strong is for cells with several devices"),
        (["--gpus", "none", "--share"], "--share: no GPU can be used here"),
        (["--gpus", "none", "--cool-down"], "--cool-down: no GPU can be used here"),
        (["--each-gpu", "--devices", "1,2"], "--each-gpu runs each cell on one GPU"),
        (["--nope"], "runner: No such option: --nope"),
        (["--precision", "fp4"], "there is no 'fp4'"),
        (["--engine", "lxc"], "there is no engine 'lxc'"),
        (["--resume", "nowhere"], "is not a run"),
        (["--gpus", "77"], "77"),
        (["--devices", "²"], "'²' is not a number of devices"),
        (["--seed", "9999999999"], "--seed: '9999999999' is not a whole number from "),
        (["--lock-clocks", "abc"], "--lock-clocks: 'abc' is not a whole number from 100 to 10000; give one"),
        (["--lock-clocks", "5"], "--lock-clocks: '5' is not a whole number from 100 to 10000; give one"),
        (["--timeout", "nan"], "--timeout: 'nan' is not a number from 1 to 1000000000; give one"),
        (["--python", sys.executable], "say --engine host as well"),
        (
            ["--gpus", "none", "--lock-clocks", "1500"],
            "--lock-clocks: no GPU can be used here (GPUs were excluded by --gpus none)",
        ),
        (["--gpus", "none", "--each-gpu"], "--each-gpu: no GPU can be used here (GPUs were excluded by --gpus none)"),
        (["--gpus", "none", "--each-gpu", "--dry-run"], "--each-gpu: no GPU can be used here"),
        (["--resume", "nowhere", "--dry-run"], "it is not a run in"),
    ],
)
def test_what_cannot_be_done_is_told_in_a_sentence_with_its_exit_code(
    tmp_path: Path, options: list[str], words: str
) -> None:
    ended = CliRunner().invoke(app, ["matrix", "--engine", "venv", "--out", str(tmp_path), *options])
    assert isinstance(ended.exception, SystemExit), ended.exception
    assert ended.exit_code == (4 if words == "77" else 2), ended.stderr
    assert words in ended.stderr
    assert not list(tmp_path.iterdir())


def test_a_framework_and_a_workload_have_short_names(tmp_path: Path) -> None:
    words = ["--frameworks", "PyTorch,tf", "--workloads", "cifar10", "--gpus", "none", "--engine", "venv"]
    told = runner("matrix", "--dry-run", "--format", "json", "--out", str(tmp_path), *words)
    cells = json.loads(told.stdout)["cells"]
    assert {(cell["framework"], cell["workload"]) for cell in cells} == {
        ("torch", "cnn-cifar10"),
        ("tensorflow", "cnn-cifar10"),
    }


def test_an_option_has_the_name_that_its_like_has_in_another_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list's name is a plural everywhere, runs are `--run` or `--runs`, and a form is a `--format`."""
    # What other programs take may change between the two.
    monkeypatch.setattr(detect.Disturbances, "notes", lambda *_: ())
    make_run(tmp_path / "a", repeats=2, windows=12)
    make_run(tmp_path / "b", repeats=2, windows=12, draw=1)
    plan = ("matrix", "--dry-run", "--gpus", "none", "--engine", "venv", "--workloads", "cifar10", "--format", "json")
    for one, other in (
        ((*plan, "--precision", "bf16"), (*plan, "--precisions", "bf16")),
        (("compare", "torch", "jax", "--runs", "a,b"), ("compare", "torch", "jax", "--run", "a,b")),
        (("verify", "--run", "a"), ("verify", "--runs", "a")),
        (("report", "a", "--text"), ("report", "a", "--format", "text")),
    ):
        ended, alike = (CliRunner().invoke(app, [*words, "--out", str(tmp_path)]) for words in (one, other))
        assert ended.stdout
        assert (ended.exit_code, ended.stdout) == (alike.exit_code, alike.stdout)


def test_the_version_is_told_and_every_error_begins_with_the_name_of_the_command() -> None:
    assert runner("--version").stdout.startswith("runner ")
    for words in (["--nope"], ["nosuch"], ["compare", "a"], ["images", "nosuch"], ["report", "--format", "pdf"]):
        ended = runner(*words)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith("runner: ")
        assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [[], ["report"], ["images"], ["images", "list"], ["nodes"]])
def test_h_shows_the_help_of_every_command(command: list[str]) -> None:
    short, long = (CliRunner().invoke(app, [*command, name]) for name in ("-h", "--help"))
    assert (short.exit_code, short.stdout) == (0, long.stdout)
    assert "-h, --help" in short.stdout


@pytest.mark.parametrize(
    "options",
    [
        ["matrix", "--dry-run", "--minutes", "1e308"],
        ["matrix", "--dry-run", "--minutes", "9" * 400],
        ["matrix", "--dry-run", "--devices", "9" * 400],
        ["matrix", "--dry-run", "--gpus", "9" * 400],
        ["verify", "--each-gpu", "--time", "9" * 400],
        ["images", "build", "--jobs", "x" * 100_000],
    ],
)
def test_a_number_that_is_no_sensible_one_is_refused_in_a_short_sentence(options: list[str]) -> None:
    refused = CliRunner().invoke(app, options)
    # Here is no GPU at all.
    assert refused.exit_code == (4 if "--gpus" in options else 2)
    assert len(refused.stderr) < 2000
    assert "9" * 40 not in refused.stderr


# The interrupt comes when a module is first imported: while that is loaded, or in code that swallows what it raises, as imports do.
_INTERRUPTED = """
import builtins, os, signal, sys
from runner import __main__
load, wanted = builtins.__import__, sys.argv.pop(1)
def interrupted(name, *more):
    if name == wanted:
        builtins.__import__ = load
        try:
            exec(compile("os.kill(os.getpid(), signal.SIGINT)", "<frozen importlib._bootstrap>", "exec"))
        except KeyboardInterrupt:
            pass
    return load(name, *more)
builtins.__import__ = interrupted
__main__.main()
"""


@pytest.mark.parametrize(
    ("module", "command"),
    [
        ("typer", ["--version"]),
        ("runner.paths", ["--version"]),
        ("runner.catalog.images", ["images", "list"]),
        ("rich.table", ["images", "list"]),
        ("runner.run.prospect", ["matrix", "--dry-run", "--gpus", "none"]),
        ("runner.admission.renew", ["report", "--text", "nowhere"]),
    ],
)
def test_ctrl_c_while_a_command_loads_its_modules_ends_it_with_130_and_a_short_sentence(
    module: str, command: list[str]
) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, module, *command], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "runner: interrupted\n")


def test_ctrl_c_in_a_command_that_keeps_nothing_is_the_same_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(shared, "stored_runs", interrupted)
    ended = CliRunner().invoke(app, ["report", "--text"])
    assert (ended.exit_code, ended.stdout, ended.stderr) == (130, "", "runner: interrupted\n")


def begun_with(tmp_path: Path, **options: str) -> Path:
    """A run in whose run.json these options stand."""
    out = tmp_path / "results"
    told = json.loads(Options(out=out).model_dump_json()) | options
    return make_run(out / "run", repeats=1, manifest={"options": told})


def test_a_run_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    for name in ("20251231-1", "20260101-1", "20260102-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run.json").touch()
    with pytest.raises(UsageError, match="these begin with 2026: 20260102-1, 20260101-1$"):
        begin.resume("2026", Options(out=tmp_path))
    with pytest.raises(UsageError, match="the newest are: 20260102-1, 20260101-1, 20251231-1$"):
        begin.resume("nowhere", Options(out=tmp_path))


def test_resume_starts_no_program_that_only_the_run_s_own_file_names(tmp_path: Path) -> None:
    program, ran = tmp_path / "python", tmp_path / "ran"
    program.write_text(f"#!/bin/sh\ntouch {ran}\n")
    program.chmod(0o755)
    run = begun_with(tmp_path, engine="host", python=str(program))
    with pytest.raises(UsageError, match=f"say --engine host --python {program} as well"):
        begin.resume("run", Options(out=run.parent))
    assert not ran.exists()
    # The user's own word starts it: it is no Python, so the run cannot go on.
    with pytest.raises(Exception, match="python"):
        begin.resume("run", Options(engine="host", python=program, out=run.parent))
    assert ran.exists()


def test_a_run_whose_images_the_disk_cannot_hold_any_more_says_so(tmp_path: Path) -> None:
    run = begun_with(tmp_path)
    plan = json.loads((run / "run.json").read_text())["plan"]
    reason = f"{TOO_LARGE} beside the images that come first: it takes about 3.0 GB; free some"
    names = Combination.__dataclass_fields__
    skips = [Skip(**{key: value for key, value in cell.items() if key in names}, reason=reason) for cell in plan]

    def look(*_: object) -> Any:
        return SimpleNamespace(plan=Plan((), tuple(skips)))

    image = plan[0]["image"]
    with pytest.raises(
        CannotBeginError, match=f"{image}: the disk cannot hold it .* it takes about 3.0 GB; free some$"
    ):
        begin.resume("run", Options(out=run.parent), look)


def test_what_says_what_to_measure_is_refused_beside_stored_runs(tmp_path: Path) -> None:
    run = make_run(tmp_path / "results" / "run", repeats=1)
    for words in (["--workloads", "mlp-mnist"], ["--image", "torch-2.13.0-cpu"], ["--python", sys.executable]):
        ended = runner("verify", "--run", str(run), *words)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert ended.stderr.startswith(f"runner: {words[0]} says what to measure, and --run measures nothing")


def test_nodes_are_not_waited_for_where_another_runner_is_on_the_run(tmp_path: Path) -> None:
    run = begun_with(tmp_path, nodes="slurm:gpu")

    def look(*_: object) -> Prospect:
        raise AssertionError("it asks Slurm for nodes")

    with lease.alone(run), pytest.raises(lease.LeaseError, match="another runner is working on"):
        begin.resume("run", Options(out=run.parent), look)
    with pytest.raises(AssertionError, match="it asks Slurm"):
        begin.resume("run", Options(out=run.parent), look)


def test_the_catalog_is_listed_for_people_and_for_scripts() -> None:
    listed = runner("images", "list", env=os.environ | {"COLUMNS": "250"}).stdout
    assert "torch-2.13.0-cpu" in listed
    assert "7.5-12.0 " in listed
    assert "no code for 10.0, 10.3, 11.0" in listed
    rows = json.loads(runner("images", "list", "--format", "json").stdout)["images"]
    assert {row["name"] for row in rows} >= {"torch-2.13.0-cpu", "jax-0.10.2-cpu", "tensorflow-2.21.0-cpu"}


def test_a_run_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    make_run(tmp_path / "a", repeats=2)
    make_run(tmp_path / "b", repeats=2)
    out = chosen_runs([str(tmp_path / "a"), "b", "a", "./a/"], tmp_path)
    assert [folder.resolve().name for folder in out] == ["a", "b"]


def test_help_starts_in_at_most_ten_times_an_empty_interpreter(tmp_path: Path) -> None:
    compiled = {"PYTHONPYCACHEPREFIX": str(tmp_path)}  # as on a machine where it has run before
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"} | compiled

    def seconds(*command: str) -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, *command], cwd=PROJECT, env=environment, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - begin

    # in turns, so that both see the machine's quiet moments
    pairs = [(seconds("-c", "pass"), seconds("-m", "runner", "--help")) for _ in range(20)]
    empty, shown = (min(times) for times in zip(*pairs, strict=True))
    assert shown <= 10 * empty, f"{shown * 1e3:.0f} ms against {empty * 1e3:.0f} ms: {shown / empty:.1f} times"


def test_help_loads_nothing_heavy() -> None:
    script = "import sys; import runner.cli.main; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    ended = subprocess.run([sys.executable, "-c", script], cwd=PROJECT, capture_output=True, text=True, check=True)
    assert not {"pandas", "numpy", "pyarrow", "docker", "pydantic", "jinja2", "pynvml", "requests"} & set(
        ended.stdout.split()
    )


def test_a_folder_of_runs_names_all_of_them(tmp_path: Path) -> None:
    """A node each, as a Slurm array or cron leaves them; a run that is named is that run alone."""
    made = [tmp_path / "n1" / "a", tmp_path / "n1" / "b", tmp_path / "n2" / "a"]
    for folder in made:
        make_run(folder)
    (tmp_path / "n3" / "begun").mkdir(parents=True)
    assert chosen_runs([str(tmp_path)], tmp_path) == made
    assert chosen_runs([str(tmp_path / "n1")], tmp_path) == made[:2]
    assert chosen_runs([str(made[0])], tmp_path) == made[:1]


def test_prune_removes_old_environments_and_sifs_where_no_engine_answers(tmp_path: Path) -> None:
    image = next(each for each in load_catalog().values() if isinstance(find_interpreter(each.python), Interpreter))
    old = tmp_path / "dlbench" / "venvs" / f"{image.name}-0123456789ab"
    old.mkdir(parents=True)
    sifs = old.parents[1] / "sifs"
    sifs.mkdir(mode=0o700)
    end = f"{'0' * 64}.sif"
    names = f"{image.name}@{recipe(image).input_tag}", f"{image.name}@0", "none-1-cpu@0"
    current, other, gone = (sifs / f"{name}+{end}" for name in names)
    for path in (current, other, gone, sifs / "own-file"):
        path.touch()
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none"}
    told = runner("images", "prune", "--dry-run", env=environment)
    lines = [
        f"{old} {image.name} of another lock or Python, 0.0 GB",
        f"{other} {image.name} of other inputs, 0.0 GB",
        f"{gone} an image that the catalog does not have, 0.0 GB",
    ]
    assert told.returncode == 0
    assert sorted(told.stdout.splitlines()) == sorted(lines)
    assert told.stderr.startswith("images were not looked for: ")
    assert told.stderr.endswith("\nout of date: 1 environment, 2 SIFs; --dry-run removes nothing\n")
    assert old.is_dir()
    assert other.exists()
    done = runner("images", "prune", image.name, env=environment)
    assert done.stdout.splitlines() == lines[:2], "with a name, only of that image"
    assert done.stderr.endswith("\nremoved: 1 environment, 1 SIF\n")
    assert not old.exists()
    assert {path.name for path in sifs.iterdir()} == {current.name, gone.name, "own-file"}
    again = runner("images", "prune", image.name, env=environment)
    assert again.stderr.endswith("\nno environment and no SIF is out of date, so nothing was removed\n")


@pytest.mark.parametrize(
    ("removed", "dry_run", "words"),
    [
        ({"environment": [], "image": []}, False, "no environment and no image is out of date, so nothing was removed"),
        (
            {"environment": [True] * 2, "image": [True]},
            True,
            "out of date: 2 environments, 1 image; --dry-run removes nothing",
        ),
        (
            {"environment": [True], "image": [False, True]},
            False,
            "removed: 1 environment, 1 image; out of date and kept: 1 image",
        ),
        ({"environment": [False]}, False, "removed: nothing; out of date and kept: 1 environment"),
    ],
)
def test_prune_says_how_many_of_what_were_out_of_date(
    removed: dict[str, list[bool]], dry_run: bool, words: str
) -> None:
    assert end_of(removed, dry_run) == words


@pytest.mark.parametrize(
    ("option", "value"),
    [("nodes", "ssh:hosts.txt"), ("base_image", "stranger/base:1"), ("images_from", "/stranger/images")],
)
def test_resume_starts_nothing_that_only_the_run_s_own_file_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, value: str
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    run = begun_with(tmp_path, **{option: value})

    def look(*_: object) -> Prospect:
        raise AssertionError("it looks ahead")

    flag = f"--{option.replace('_', '-')} {value}"
    with pytest.raises(
        UsageError, match=f"names what is started .{flag}.; where you know that it may be, say {flag} as"
    ):
        begin.resume("run", Options(out=run.parent), look)
    with pytest.raises(AssertionError, match="it looks ahead"):
        begin.resume("run", Options.model_validate({"out": run.parent, option: value}), look)
    # A run that was begun here is known, with what it was begun with and nothing else.
    options = Options.model_validate({"out": run.parent, option: value})
    begin.remember("run", options)
    with pytest.raises(AssertionError, match="it looks ahead"):
        begin.resume("run", Options(out=run.parent), look)
    begun_with(tmp_path, **{option: f"{value}x"})
    with pytest.raises(UsageError, match="names what is started"):
        begin.resume("run", Options(out=run.parent), look)


def test_the_newest_run_is_the_one_that_was_made_last_whatever_its_folder_is_called(tmp_path: Path) -> None:
    for name, day in (("zz-baseline", 1), ("newest", 2)):
        run = make_run(tmp_path / f"run-{day}", windows=3, manifest={"created": f"2026-11-0{day}T00:00:00+00:00"})
        run.rename(tmp_path / name)
    assert [folder.name for folder in chosen_runs(None, tmp_path)] == ["newest"]
    result = CliRunner().invoke(app, ["compare", "zz-baseline", "newest", "--out", str(tmp_path)])
    assert result.output.startswith("run-2 against run-1: "), "the names of folders lead to the runs' own ids"


def test_a_run_of_a_clock_that_was_never_set_is_named(tmp_path: Path) -> None:
    make_run(tmp_path / "first", windows=3)
    make_run(tmp_path / "second", windows=3, manifest={"created": "1970-01-01T00:00:12+00:00"})
    result = CliRunner().invoke(app, ["history", "--out", str(tmp_path)])
    assert "second was made on 1970-01-01, by a clock that was never set" in result.output


def test_a_gpu_with_and_without_its_makers_name_is_one(tmp_path: Path) -> None:
    """Drivers since 470 have another name for the same GPU."""
    make_run(tmp_path / "first", windows=3, repeats=2, everywhere={"device_model": "A100-SXM4-40GB"})
    make_run(tmp_path / "second", windows=3, repeats=2, everywhere={"device_model": "NVIDIA A100-SXM4-40GB"})
    result = CliRunner().invoke(app, ["compare", "first", "second", "--out", str(tmp_path), "--format", "json"])
    told = json.loads(result.stdout)
    rows = json.dumps(told["rows"])
    assert "NVIDIA A100-SXM4-40GB" in rows
    assert '"A100-SXM4-40GB' not in rows
    assert "A100" not in json.dumps(told["unpaired"])

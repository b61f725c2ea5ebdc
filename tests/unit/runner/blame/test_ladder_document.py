"""`runner blame` says the same in text and as JSON: the named step, what stays open, and the images that it could not measure."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typer.testing import CliRunner

from runner.blame.ladder import Ladder
from runner.cli import blame
from runner.cli.blame import BlameDocument, document, judged
from runner.cli.main import app
from runner.errors import ExitCode, UserError
from runner.results.store import RunStore
from runner.run.options import Options
from tests.fixtures import synthetic
from tests.fixtures.json_documents import valid

IMAGES = ("jax-1-cpu", "jax-2-cpu", "jax-3-cpu")
LADDER = Ladder(
    Path("ladder"), cast(Any, tuple(SimpleNamespace(name=name) for name in IMAGES)), ("numpy 1 → 2", "jax 1 → 2")
)


def stored(folder: Path, monkeypatch: pytest.MonkeyPatch, levels: dict[str, float]) -> RunStore:
    """A run of one cell an image with these seconds a step."""
    monkeypatch.setattr(synthetic, "IMAGES", dict.fromkeys(levels, ("jax", "0.10.2")))
    monkeypatch.setattr(synthetic, "LEVELS", {(image, "gru-imdb"): seconds for image, seconds in levels.items()})
    return RunStore(synthetic.make_run(folder, repeats=5, manifest={"skips": []}))


def said(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    levels: dict[str, float],
    again: dict[str, float] | None = None,
) -> tuple[BlameDocument, str]:
    """The object and the text of a run of one cell an image with these seconds a step, and of a second run."""

    run = stored(folder, monkeypatch, levels)
    seconds = [stored(folder.with_name("again"), monkeypatch, again)] if again else []
    answers = [(one, blame._sentence(one, LADDER, 0.05)) for one in judged(run, LADDER, 0.05, seconds)]
    for one, sentence in answers:
        blame._print(one, LADDER, sentence)
    text = capsys.readouterr().out
    printed = json.dumps({"schema": 1, **document(run, LADDER, 0.05, answers, seconds)})
    return cast(BlameDocument, valid("blame", printed)), text


def test_a_persons_own_network_is_a_workload_and_further_runs_take_its_copy(tmp_path: Path) -> None:
    blame._refuse_mistakes(Options(workloads=("./net.py", "mlp-mnist")), ("torch",))
    with pytest.raises(UserError, match="there is no 'net'"):
        blame._refuse_mistakes(Options(workloads=("./net.py", "net")), ("torch",))
    run = RunStore(tmp_path)
    assert run.word("net@0123456789ab") == str(tmp_path / "networks" / "net@0123456789ab")
    assert run.word("mlp-mnist") == "mlp-mnist"


def test_the_step_that_holds_the_change_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    levels = dict(zip(IMAGES, (0.1, 0.1, 0.15), strict=True))
    found, text = said(tmp_path / "run", monkeypatch, capsys, levels, {image: levels[image] for image in IMAGES[1:]})
    (one,) = found["judged"]
    assert (one["answer"], one["culprit"], one["not_measured"]) == ("named", 1, {})
    assert one["share"] == pytest.approx(1, abs=0.1)
    step = one["steps"][1]
    assert (step["before"], step["after"], step["changes"], step["verdict"]) == (*IMAGES[1:], ["jax 1 → 2"], "slower")
    assert cast(float, step["ratio_low"]) < step["ratio"] == pytest.approx(1.5, rel=0.05)
    assert one["reason"] in text
    assert one["reason"].endswith("of the change: jax 1 → 2")


@pytest.mark.parametrize(
    ("again", "words"),
    [
        (
            None,
            "once more: `runner matrix --catalog ladder --images jax-2-cpu,jax-3-cpu --frameworks jax --workloads gru-imdb",
        ),
        ((0.1, 0.1), "stands out in the first run, and the second one does not show it"),
        ((0.15, 0.1), "the second one does not show it"),
    ],
)
def test_no_package_is_named_unless_a_second_run_shows_the_step_too(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    again: tuple[float, float] | None,
    words: str,
) -> None:
    levels = dict(zip(IMAGES, (0.1, 0.1, 0.15), strict=True))
    second = dict(zip(IMAGES[1:], again, strict=True)) if again else None
    found, _ = said(tmp_path / "run", monkeypatch, capsys, levels, second)
    (one,) = found["judged"]
    assert (one["answer"], one["culprit"]) == ("open", None)
    assert words in one["reason"]


def test_images_that_take_the_same_time_have_no_step_to_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found, text = said(tmp_path / "run", monkeypatch, capsys, dict.fromkeys(IMAGES, 0.1))
    (one,) = found["judged"]
    assert (one["answer"], one["culprit"], one["share"]) == ("same", None, None)
    assert one["reason"].startswith("no step is to be named: the two images take the same time within 5")
    assert one["reason"] in text


@pytest.mark.parametrize("lacks", [1, 2])
def test_an_image_that_was_not_measured_is_named_and_two_steps_become_one_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], lacks: int
) -> None:
    levels = {image: 0.1 + 0.05 * at for at, image in enumerate(IMAGES) if at != lacks}
    found, text = said(tmp_path / "run", monkeypatch, capsys, levels)
    (one,) = found["judged"]
    assert one["not_measured"] == {IMAGES[lacks]: "it is not in the run"}
    assert f"{IMAGES[lacks]} was not measured: it is not in the run" in text
    if lacks == 1:
        assert [step["changes"] for step in one["steps"]] == [list(LADDER.steps)]
        assert one["reason"].startswith("no step can be named: numpy 1 → 2; jax 1 → 2 stands out in this run")
    else:
        assert (one["answer"], one["steps"], one["change"]) == ("open", [], None)
        assert "no step can be named without both ends" in text


@pytest.mark.parametrize(
    ("level", "answer", "code"), [(0.15, "named", 0), (0.1, "open", 3)], ids=["it shows the step too", "it does not"]
)
def test_the_command_measures_a_step_that_stands_out_a_second_time_by_itself(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    level: float,
    answer: str,
    code: int,
) -> None:
    run = stored(tmp_path / "run", monkeypatch, dict(zip(IMAGES, (0.1, 0.1, 0.15), strict=True)))
    asked: list[Options] = []

    def start(options: Options, argv: object) -> tuple[object, RunStore]:
        asked.append(options)
        return None, stored(tmp_path / "again", monkeypatch, dict(zip(options.images, (0.1, level), strict=True)))

    monkeypatch.setattr(blame.begin, "start", start)
    monkeypatch.setattr(blame, "measure", lambda *_, **__: 0)
    monkeypatch.setattr(blame, "renewed", lambda _: None)
    options = Options(workloads=("gru-imdb", "cnn-cifar10"), images=IMAGES, repeats=7)
    seconds, failed = blame._measured_again(options, run, LADDER, 0.05, None)
    (second,) = asked
    assert (failed, second.images, second.workloads, second.repeats) == (0, IMAGES[1:], ("gru-imdb",), 7)
    assert second.seed != options.seed, "the repeats have another order"
    assert blame._answer(run, LADDER, 0.05, True, seconds) == code
    found = cast(BlameDocument, valid("blame", capsys.readouterr().out))
    assert found["again"] == [seconds[0].run_id]
    assert [one["answer"] for one in found["judged"]] == [answer]


def test_nothing_is_measured_again_where_no_step_stands_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = stored(tmp_path / "run", monkeypatch, dict.fromkeys(IMAGES, 0.1))
    monkeypatch.setattr(blame, "renewed", lambda _: None)
    assert blame._measured_again(Options(workloads=("gru-imdb",)), run, LADDER, 0.05, None) == ([], 0)


class Cut:
    """What a run of `blame` is cut by: the first of its images, or the second run of the step that stands out."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, cut: str) -> None:
        self.cut, self.runs = (
            cut,
            {"run": stored(folder / "run", monkeypatch, dict(zip(IMAGES, (0.1, 0.1, 0.15), strict=True)))},
        )
        self.runs["again"] = stored(folder / "again", monkeypatch, dict(zip(IMAGES[1:], (0.1, 0.15), strict=True)))
        self.begun: list[str] = []
        self.left = set(self.runs)
        monkeypatch.setattr(blame.begin, "start", self.start)
        monkeypatch.setattr(blame.begin, "resume", lambda name, asked: (self.prospect(name, asked), self.runs[name]))
        monkeypatch.setattr(blame, "measure", self.measure)
        monkeypatch.setattr(blame, "renewed", lambda _: None)
        monkeypatch.setattr(blame, "chosen_runs", lambda names, _: [self.runs[name].folder for name in names])
        monkeypatch.setattr(blame, "make", lambda *_: LADDER)
        monkeypatch.setattr(blame, "named_image", lambda name: SimpleNamespace(name=name, frameworks=("jax",)))

    def prospect(self, name: str, asked: Options) -> object:
        return SimpleNamespace(options=asked, jobs_left=lambda run: [name] if name in self.left else [])

    def start(self, asked: Options, _: object) -> tuple[object, RunStore]:
        name = "again" if self.begun else "run"
        self.begun.append(name)
        return self.prospect(name, asked), self.runs[name]

    def measure(self, _: object, run: RunStore, *__: object, **___: object) -> int:
        if self.cut == run.folder.name:
            return ExitCode.FOUND
        self.left.remove(run.folder.name)
        return ExitCode.OK


@pytest.mark.parametrize("cut", ["run", "again"])
def test_a_command_that_was_cut_short_names_the_words_that_end_it_with_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: str
) -> None:
    here = Cut(tmp_path, monkeypatch, cut)
    words = ["blame", IMAGES[0], IMAGES[2], "--workloads", "gru-imdb"]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == ExitCode.FOUND, first.output
    (said,) = (line for line in first.stderr.splitlines() if line.startswith("the same command with "))
    more = said.removeprefix("the same command with ").partition(" measures")[0].partition(" judges")[0]
    here.cut = ""
    ended = CliRunner().invoke(app, [*words, *more.split()])
    assert ended.exit_code == ExitCode.OK, ended.output
    assert "jax 1 → 2" in ended.stdout

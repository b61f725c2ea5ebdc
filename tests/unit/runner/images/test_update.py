"""`runner images update` and `runner images lock`, with real resolutions of a package index on loopback."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pytest
import typer
import yaml
from typer.testing import CliRunner

from runner.catalog.architectures import why_not
from runner.catalog.images import CatalogError, Image, load_catalog, load_image, read_pins
from runner.cli.images import lock as commands
from runner.cli.main import app
from runner.errors import UserError
from runner.images import lock_facts, locking, update
from runner.paths import PROJECT
from tests.stand_ins import package_index
from tests.stand_ins.package_index import Release

DAY = date(2026, 11, 20)
NEW, NEIGHBOUR = "torch-2.15.0-cu132", "torch-2.14.1-cu130"

# What torch leaves free of NVIDIA's packages, as the comments in the catalog say.
FREE = {"2.14.1": ("nvidia-nvjitlink",), "2.15.0": ("nvidia-nvjitlink", "nvidia-cuda-cccl")}
# Newer than what any image pins: where it is free, a package floats to it.
FLOATING = [Release("nvidia-nvjitlink", "13.5.37"), Release("nvidia-cuda-cccl", "13.3.5.0.6")]

CPU_TOML = """\
frameworks = ["tinygrad"]
framework_version = "1.0"
python = "3.11"
accelerator = "cpu"
base = "python:3.11-slim-bookworm"
precisions = ["fp32"]
locked = 2026-02-01
download_gb = 0.5
notes = "tinygrad 1.0 is small."
"""


def pinned(name: str) -> dict[str, str]:
    return {pin.name: pin.version for pin in read_pins(load_catalog()[name].lock_path)}


def torch_releases() -> list[Release]:
    """The wheels that both images of the catalog lock, with torch's requirements."""
    releases = {(item.name, item.version): item for item in FLOATING}
    for image in (NEIGHBOUR, NEW):
        pins = pinned(image)
        version = pins.pop("torch")
        others = [name for name in pins if name not in ("numpy", "pillow")]
        requires = tuple(name if name in FREE[version] else f"{name}=={pins[name]}" for name in others)
        releases["torch", version] = Release("torch", version, requires, ">=3.10")
        releases |= {(name, pin): Release(name, pin) for name, pin in pins.items()}
    return list(releases.values())


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No package source of this machine is asked."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))


@pytest.fixture
def cpu(site: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A catalog of one small image. The index has a newer release of each package, and of numpy one that is newer than the lock."""
    folder = tmp_path / "images" / "tinygrad-1.0-cpu"
    folder.mkdir(parents=True)
    (folder / "image.toml").write_text(CPU_TOML)
    (folder / "requirements.in").write_text(
        "# tinygrad 1.0, and what it takes\ntinygrad==1.0\nnumpy==2.0\nprotobuf==3.0\n"
    )
    releases = [
        Release("tinygrad", "1.0"),
        Release("tinygrad", "1.1", ("numpy",), ">=3.9", date(2026, 3, 1)),
        Release("tinygrad", "1.2", ("numpy",), ">=3.12", date(2026, 3, 2)),
        Release("tinygrad", "1.3", ("numpy",), ">=3.9", date(2026, 5, 1)),
        Release("numpy", "2.0"),
        Release("numpy", "2.1", day=date(2026, 3, 1)),
        Release("protobuf", "3.0"),
        Release("protobuf", "4.0"),
    ]
    with package_index.serve(releases) as url:
        monkeypatch.setenv("PIP_INDEX_URL", url)
        image = load_catalog(folder.parent, locks=False)[folder.name]
        locking.make_lock(image, date(2026, 2, 1), lambda _: None)
        yield folder.parent


def only(root: Path, name: str = "tinygrad-1.0-cpu") -> Image:
    return load_catalog(root)[name]


def quiet(_: str) -> None:
    pass


def test_the_newest_release_is_the_one_that_the_images_python_takes_on_that_day(cpu: Path) -> None:
    newer = update.find_newer(only(cpu), date(2026, 4, 1), quiet)
    assert newer is not None
    # 1.2 takes Python 3.12, and 1.3 came later.
    assert newer.framework_version == "1.1"
    assert update.find_newer(only(cpu), date(2026, 2, 1), quiet) is None


def test_where_no_index_answers_nothing_is_said_of_newer_releases(
    cpu: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    monkeypatch.setattr(commands, "chosen", lambda names: [only(cpu)])
    with pytest.raises(
        UserError, match=r"newer releases of no image could be looked up .*set PIP_INDEX_URL"
    ) as refused:
        commands.update(dry_run=True, date="2026-02-02")
    assert refused.value.exit_code == 4
    said = capsys.readouterr().err
    assert "tinygrad-1.0-cpu: its requirements cannot be resolved" in said
    assert "no newer release was found" not in said
    assert tempfile.gettempdir() not in said.replace(str(cpu), "")


def test_a_lock_that_no_index_answers_for_could_not_be_begun(cpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    result = CliRunner().invoke(app, ["images", "lock", str(only(cpu).folder), "--date", "2026-02-02"])
    assert "cannot be resolved" in result.stderr
    assert result.exit_code == 4


def test_a_pin_that_was_the_newest_is_followed_and_one_that_was_held_back_stays(cpu: Path) -> None:
    newer = update.find_newer(only(cpu), date(2026, 4, 1), quiet)
    assert newer is not None
    new = update.make_folder(newer, date(2026, 4, 1), quiet)
    assert new is not None
    assert new.name == "tinygrad-1.1-cpu"
    lines = (new.folder / "requirements.in").read_text().splitlines()
    assert lines == ["# tinygrad 1.1, and what it takes", "tinygrad==1.1", "numpy==2.1", "protobuf==3.0"]
    assert {pin.name: pin.version for pin in read_pins(new.lock_path)} == {
        "tinygrad": "1.1",
        "numpy": "2.1",
        "protobuf": "3.0",
    }
    assert (new.framework_version, new.locked, new.notes) == ("1.1", date(2026, 4, 1), "tinygrad 1.1 is small.")
    # A second call finds the folder there, and leaves it.
    assert update.make_folder(newer, date(2026, 4, 1), quiet) is None
    assert [image.name for image in update.newest_images(load_catalog(cpu).values())] == ["tinygrad-1.1-cpu"]


def test_a_release_that_cannot_be_resolved_leaves_no_folder(cpu: Path) -> None:
    image = only(cpu)
    newer = update.find_newer(image, date(2026, 4, 1), quiet)
    assert newer is not None
    (image.folder / "requirements.in").write_text("tinygrad==1.0\nnumpy==2.0\nno-such-package==1\n")
    with pytest.raises(locking.LockError, match="cannot be resolved"):
        update.make_folder(newer, date(2026, 4, 1), quiet)
    assert [path.name for path in cpu.iterdir()] == ["tinygrad-1.0-cpu"]


def test_a_framework_with_its_last_release_is_not_looked_for(cpu: Path) -> None:
    image = only(cpu)
    assert update.newest_images([image]) == [image]
    assert update.newest_images([image.model_copy(update={"last_release": True})]) == []


def test_a_wheel_without_the_label_of_the_pin_is_no_newer_release(cpu: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    image = only(cpu)
    (image.folder / "requirements.in").write_text("tinygrad==1.0+cpu\n")
    for printed, expected in (("tinygrad==1.1\n", None), ("tinygrad==1.1+cpu\n", "1.1")):
        monkeypatch.setattr(update, "resolve", lambda *_, printed=printed: printed)
        newer = update.find_newer(image, DAY, quiet)
        assert (newer.framework_version if newer else None) == expected


def test_the_lock_of_an_image_whose_framework_has_no_newer_release_can_be_brought_up_to_date(cpu: Path) -> None:
    assert update.renew(only(cpu), date(2026, 4, 1), quiet)
    image = only(cpu)
    assert {pin.name: pin.version for pin in read_pins(image.lock_path)} == {
        "tinygrad": "1.0",
        "numpy": "2.1",
        "protobuf": "3.0",
    }
    assert (image.framework_version, image.locked) == ("1.0", date(2026, 4, 1))
    assert not update.renew(image, date(2026, 4, 1), quiet)


CUDA_TOML = """\
frameworks = ["jax"]
framework_version = "1.0"
python = "3.12"
accelerator = "cuda"
min_compute_capability = "7.5"
max_compute_capability = "12.0"
base = "python:3.12-slim-bookworm"
precisions = ["fp32"]
"""
CUDA_REQUIREMENTS = """\
jax[cuda13]==1.0
# all of CUDA 13.2
cuda-toolkit[cudart]==13.2.2
nvidia-cudnn-cu13==9.1
nvidia-nvjitlink==13.2.86
"""


@pytest.fixture
def cuda(site: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A catalog of one image with CUDA 13.2, locked without a word on CUDA in image.toml. The index has CUDA 13.5 too."""
    folder = tmp_path / "images" / "jax-1.0-cu132"
    folder.mkdir(parents=True)
    (folder / "image.toml").write_text(CUDA_TOML)
    (folder / "requirements.in").write_text(CUDA_REQUIREMENTS)
    later = date(2026, 3, 1)
    releases = [
        Release("jax", "1.0", ("nvidia-cudnn-cu13>=9; extra == 'cuda13'", "nvidia-nvjitlink; extra == 'cuda13'")),
        Release(
            "jax",
            "1.1",
            ("nvidia-cudnn-cu13>=9; extra == 'cuda13'", "nvidia-nvjitlink; extra == 'cuda13'"),
            day=date(2026, 5, 1),
        ),
        Release("cuda-toolkit", "13.2.2", ("nvidia-cuda-runtime==13.2.*; extra == 'cudart'",)),
        Release("cuda-toolkit", "13.5.1", ("nvidia-cuda-runtime==13.5.*; extra == 'cudart'",), day=later),
        Release("nvidia-cuda-runtime", "13.2.86"),
        Release("nvidia-cuda-runtime", "13.5.37", day=later),
        Release("nvidia-nvjitlink", "13.2.86"),
        Release("nvidia-nvjitlink", "13.5.37", day=later),
        Release("nvidia-cudnn-cu13", "9.1"),
        Release("nvidia-cudnn-cu13", "9.2", day=later),
    ]
    with package_index.serve(releases) as url:
        monkeypatch.setenv("PIP_INDEX_URL", url)
        locking.make_lock(load_catalog(folder.parent, locks=False)[folder.name], date(2026, 2, 1), quiet)
        yield folder.parent


def test_a_lock_writes_the_cuda_that_its_wheels_hold(cuda: Path) -> None:
    image = only(cuda, "jax-1.0-cu132")
    assert (image.cuda, image.cudnn, image.nccl, image.min_driver) == ("13.2.2", "9.1", None, "580.65.06")
    assert (image.locked, image.download_gb) == (date(2026, 2, 1), 0.01)
    # The seal says what each of NVIDIA's wheels weighs, and keeps it when only the digests are written again.
    wheels = (
        Release("nvidia-cuda-runtime", "13.2.86"),
        Release("nvidia-cudnn-cu13", "9.1"),
        Release("nvidia-nvjitlink", "13.2.86"),
    )
    sizes = {f"{wheel.name}=={wheel.version}": len(wheel.content) for wheel in wheels}
    assert lock_facts.wheel_bytes(image) == sizes
    locking.write_seal(image)
    assert lock_facts.wheel_bytes(image) == sizes


MARKED = """\
tinygrad==1.0; platform_machine != "aarch64"
# of 1.0 for arm
tinygrad-arm==1.0; platform_machine == "aarch64"
numpy==2.0
protobuf
"""


@pytest.mark.slow
def test_an_architecture_that_requirements_name_has_a_lock_of_its_own(
    cpu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, day = cpu / "tinygrad-1.0-cpu", date(2026, 2, 1)
    (folder / "requirements.in").write_text(MARKED)
    x86, arm = "cp311-cp311-manylinux_2_17_x86_64", "cp311-cp311-manylinux_2_17_aarch64"
    releases = [
        *(Release("tinygrad", version, tag=x86, day=first) for version, first in (("1.0", day), ("1.1", DAY))),
        *(Release("tinygrad-arm", version, tag=arm, day=first) for version, first in (("1.0", day), ("1.1", DAY))),
        Release("numpy", "2.0"),
        # Both architectures get the release that x86-64 has a wheel of, too.
        Release("protobuf", "3.0"),
        Release("protobuf", "4.0", tag=arm),
    ]
    # The index here gives no parts of wheels.
    monkeypatch.setattr(locking, "_is_for", lambda *_: True)
    with package_index.serve(releases) as url:
        monkeypatch.setenv("PIP_INDEX_URL", url)
        locking.make_lock(only(cpu), date(2026, 2, 2), quiet)
        image = only(cpu)
        there = image.on("aarch64")
        assert {pin.name: pin.version for pin in read_pins(there.lock_path)} == {
            "tinygrad-arm": "1.0",
            "numpy": "2.0",
            "protobuf": "3.0",
        }
        assert {pin.name for pin in read_pins(image.lock_path)} == {"tinygrad", "numpy", "protobuf"}
        assert (why_not(image, "arm64"), why_not(image, "x86_64")) == (None, None)
        assert "aarch64" not in image.seal_path.read_text()
        assert "aarch64-manylinux_2_34" in there.lock_path.read_text().splitlines()[0]

        newer = update.find_newer(image, DAY, quiet)
        assert newer is not None
        new = update.make_folder(newer, DAY, quiet)
        assert new is not None
        assert (new.folder / "requirements.in").read_text() == MARKED.replace("1.0", "1.1")
        assert "tinygrad-arm==1.1" in new.on("aarch64").lock_path.read_text()

        # A lock of the architecture that cannot be made leaves both as they were.
        (folder / "requirements.in").write_text(MARKED.replace("tinygrad-arm==1.0", "tinygrad-arm==9"))
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        with pytest.raises(locking.LockError, match="cannot be resolved as of 2026-02-03"):
            locking.make_lock(image, date(2026, 2, 3), quiet)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

        # Without the marker the lock of the architecture goes as well.
        (folder / "requirements.in").write_text("tinygrad==1.0\nnumpy==2.0\nprotobuf==3.0\n")
        locking.make_lock(image, date(2026, 2, 2), quiet)
    assert sorted(path.name for path in folder.glob("requirements.*")) == [
        *("requirements.in", "requirements.lock", "requirements.seal")
    ]


@pytest.mark.slow
def test_a_newer_release_stays_on_the_neighbours_cuda_and_one_can_ask_for_another(cuda: Path) -> None:
    image, day = only(cuda, "jax-1.0-cu132"), date(2026, 6, 1)
    newer = update.find_newer(image, day, quiet)
    assert newer is not None
    new = update.make_folder(newer, day, quiet)
    assert new is not None
    assert (new.name, new.cuda, new.cudnn) == ("jax-1.1-cu132", "13.2.2", "9.1")

    day = date(2026, 4, 1)
    assert update.find_newer(image, day, quiet, "13.2") is None
    assert update.find_newer(image, day, quiet, "12.8") is None  # other packages
    newer = update.find_newer(image, day, quiet, "13.5")
    assert newer is not None
    new = update.make_folder(newer, day, quiet)
    assert new is not None
    assert (new.name, new.cuda, new.cudnn) == ("jax-1.0-cu135", "13.5.1", "9.2")
    asked = (new.folder / "requirements.in").read_text()
    assert asked == CUDA_REQUIREMENTS.replace("13.2.2", "13.5.1").replace("13.2.86", "13.5.37").replace(
        "9.1", "9.2"
    ).replace("CUDA 13.2", "CUDA 13.5")


def test_a_lock_writes_what_it_holds_into_image_toml(cpu: Path) -> None:
    folder = cpu / "tinygrad-1.0-cpu"
    text = CPU_TOML.replace("locked = 2026-02-01\ndownload_gb = 0.5\n", "")
    (folder / "image.toml").write_text(text)
    locking.make_lock(load_catalog(cpu, locks=False)[folder.name], date(2026, 2, 2), quiet)
    fields = tomllib.loads((folder / "image.toml").read_text())
    assert (fields["locked"], fields["download_gb"]) == (date(2026, 2, 2), 0.01)
    assert "\ndownload_gb 0.01\n" in (folder / "requirements.seal").read_text()


def test_a_folder_outside_the_catalog_gets_its_lock_by_the_command_that_its_absence_names(cpu: Path) -> None:
    folder = cpu / "tinygrad-1.0-cpu"
    (folder / "requirements.lock").unlink()
    with pytest.raises(CatalogError, match=f"`runner images lock {folder}` makes it"):
        load_image(folder)
    ended = CliRunner().invoke(app, ["images", "lock", str(folder), "--date", "2026-02-03"])
    assert ended.output.splitlines()[-1] == str(folder / "requirements.lock")
    assert load_image(folder).locked == date(2026, 2, 3)


def without_hashes(text: str) -> str:
    """A file that follows from the catalog, without what follows from the hashes and sizes of the wheels, which stand-ins do not have.

    Nor do they have wheels for another architecture.
    """
    text = re.sub(r"<!-- (architectures|gigabytes|shared): .*?<!-- end of \1 -->", "", text, flags=re.S)
    text = re.sub(r'"arm64": \{[^}]*\},\n', "", text)
    text = re.sub(r"\bnvidia-[0-9a-f]{12}-on-", "nvidia-digest-on-", text)
    text = re.sub(r"( --hash=sha256:[0-9a-f]{64})+", " --hash=digest", text)
    return re.sub(r"[0-9a-f]{64}", "digest", text)


@pytest.mark.slow
def test_a_catalog_set_back_by_a_version_gets_what_a_person_wrote(site: None, tmp_path: Path) -> None:
    """The whole command, in a copy of the project without the newest image of PyTorch."""
    for part in ("runner", "bench", "reports", "images", "docs"):
        shutil.copytree(PROJECT / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("compose.gpu.yml", "Dockerfile.base"):
        shutil.copy(PROJECT / file, tmp_path / file)
    shutil.rmtree(tmp_path / "images" / NEW)
    (tmp_path / "docs" / "tried" / f"{NEW}.json").unlink()

    def runner(*arguments: str, code: int = 0) -> str:
        command = [sys.executable, "-m", "runner", "images", *arguments]
        ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ended.returncode == code, (ended.stdout, ended.stderr)
        return ended.stdout

    runner("files")
    with package_index.serve(torch_releases()) as url, pytest.MonkeyPatch.context() as environment:
        environment.setenv("PIP_INDEX_URL", url)
        assert runner("update", "torch-*-cu*", "--dry-run", "--date", str(DAY)) == f"{NEIGHBOUR}: 2.15.0\n"
        assert not (tmp_path / "images" / NEW).exists()
        said = runner("update", "torch-*-cu*", "--date", str(DAY))
    assert f"## {NEW}\n" in said
    assert f"`runner images try {NEW}`" in said
    assert "0 problems" in runner("check")

    before, after = PROJECT / "images" / NEW, tmp_path / "images" / NEW
    fields, made = (tomllib.loads((folder / "image.toml").read_text()) for folder in (before, after))
    # The person's own words, and the size, which is that of wheels without content here.
    assert {name for name in fields | made if fields.get(name) != made.get(name)} == {"notes", "download_gb"}
    asked = [
        [line for line in (folder / "requirements.in").read_text().splitlines() if not line.startswith("#")]
        for folder in (before, after)
    ]
    assert asked[0] == asked[1]
    assert {pin.name: pin.version for pin in read_pins(after / "requirements.lock")} == pinned(NEW)
    for file in ("compose.gpu.yml", "images/docker-bake.json", "docs/images.md", "docs/workloads.md"):
        theirs, ours = (without_hashes((root / file).read_text()) for root in (PROJECT, tmp_path))
        assert ours == theirs, file
    page = (tmp_path / "docs" / "gpu-images.md").read_text().splitlines()
    head, row = (
        [cell.strip() for cell in line.split("|")] for line in page if line.startswith(("| image |", f"| `{NEW}` |"))
    )
    assert row[head.index("tried on")] == "never", "a machine made the lock, and nobody tried it"


def test_a_part_of_the_images_that_failed_has_an_exit_code_that_no_traceback_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def find_newer(image: Image, *_: object) -> None:
        if image.name.startswith("jax"):
            raise locking.LockError("the index does not answer")

    images = [load_catalog()[name] for name in ("jax-0.10.2-cpu", "torch-2.13.0-cpu")]
    monkeypatch.setattr(commands, "chosen", lambda names: images)
    for find, code in ((find_newer, 3), (lambda *_: None, 0)):
        monkeypatch.setattr(update, "find_newer", find)
        with pytest.raises(typer.Exit) as ended:
            commands.update(date="2026-02-02")
        assert ended.value.exit_code == code


# -- the workflow ------------------------------------------------------------------------------------------------------

# A stand-in for GitHub's program: it writes down what it is asked, and knows the open pull request, which is closed where GH_CLOSED is set.
GH = """\
#!/bin/bash
if [ "$1 $2" = "pr list" ]; then
  [[ "$*" == *"--state open"* ]] || exit 1
  if [ -z "$GH_CLOSED" ] && grep -q '^pr create' "$GH_LOG"; then echo 7; fi
fi
echo "$@" >> "$GH_LOG"
"""


def workflow_steps() -> list[dict[str, object]]:
    text = (PROJECT / ".github" / "workflows" / "update.yml").read_text()
    return list(yaml.safe_load(text)["jobs"]["update"]["steps"])


def bash(script: object, folder: Path, **environment: str) -> None:
    """Run a step as GitHub does."""
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", str(script)]
    subprocess.run(command, cwd=folder, env=os.environ | environment, check=True, capture_output=True)


def test_the_workflow_opens_a_pull_request_once_and_then_brings_it_up_to_date(tmp_path: Path) -> None:
    remote, clone, log = tmp_path / "remote.git", tmp_path / "clone", tmp_path / "gh.log"
    (tmp_path / "gh").write_text(GH)
    (tmp_path / "gh").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "RUNNER_TEMP": str(tmp_path), "GH_LOG": str(log)}
    git = "git -c user.name=t -c user.email=t@example.org"
    first = f"mkdir images docs && echo 1 > images/a && echo 1 > docs/a && echo 1 > compose.gpu.yml && git add . && {git} commit -qm 1"
    bash(f"git init -q -b main clone && cd clone && {first}", tmp_path)
    bash(f"git clone -q --bare clone remote.git && git -C clone remote add origin {remote}", tmp_path)
    step = workflow_steps()[-1]["run"]

    bash(step, clone, **environment)
    assert not log.exists()  # nothing is newer: no branch, no pull request
    for text, closed in (("2", ""), ("3", ""), ("4", "yes")):
        (tmp_path / "body.md").write_text(f"## torch-{text}\n")
        (clone / "images" / "a").write_text(text)
        bash(step, clone, **environment, GH_CLOSED=closed)
        pushed = subprocess.check_output(["git", "-C", str(remote), "show", "update-images:images/a"], text=True)
        assert pushed == text
        assert (tmp_path / "body.md").read_text().startswith(f"## torch-{text}\nGitHub starts no workflow")
        bash("git switch -q main && git branch -qD update-images", clone)
    asked = [" ".join(line.split()[:3]) for line in log.read_text().splitlines()]
    assert asked == [
        *("auth setup-git", "pr list --head", "pr create --head"),
        *("auth setup-git", "pr list --head", "pr edit 7"),
        # It was closed: there is a new one.
        *("auth setup-git", "pr list --head", "pr create --head"),
    ]


# 1 is also a traceback's.
@pytest.mark.parametrize(("code", "ends"), [(0, 0), (3, 0), (1, 1), (2, 1)])
def test_a_release_that_cannot_be_proposed_keeps_no_other_from_it_and_a_mistake_ends_the_job(
    tmp_path: Path, code: int, ends: int
) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    runner = tmp_path / ".venv" / "bin" / "runner"
    runner.write_text(f"#!/bin/sh\necho '## torch-2'\nexit {code}\n")
    runner.chmod(0o755)
    step = next(step["run"] for step in workflow_steps() if "runner images update" in str(step.get("run")))
    command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", str(step)]
    ended = subprocess.run(command, cwd=tmp_path, env=os.environ | {"RUNNER_TEMP": str(tmp_path)}, check=False)
    assert ended.returncode == ends
    assert (tmp_path / "body.md").read_text() == "## torch-2\n"


def test_only_the_step_that_pushes_has_the_token() -> None:
    *others, last = workflow_steps()
    assert "GH_TOKEN" in str(last)
    assert "secrets" not in str(others)

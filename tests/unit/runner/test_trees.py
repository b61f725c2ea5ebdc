"""Trees that a stranger wrote: however they are made, they are seen, lose their rights and are removed, and nothing is raised."""

from __future__ import annotations

import os
import resource
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from runner import trees
from runner.engines import cell_cache
from runner.engines.process import process
from tests.fixtures.trees import deep


@pytest.fixture(autouse=True)
def few_descriptors(tmp_path: Path) -> Iterator[None]:
    """A tree that is deep costs no descriptor a folder. pytest cannot remove one."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(list(Path("/proc/self/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)
    trees.remove(tmp_path)


def test_names_count_as_they_lie_on_the_disk(tmp_path: Path) -> None:
    (tmp_path / "many").mkdir()
    for number in range(10):
        (tmp_path / "many" / str(number)).touch()
    with open(tmp_path / "sparse", "wb") as file:
        file.truncate(1 << 40)
    found = trees.size(tmp_path)
    assert 12 * 4096 <= found.on_disk < 1 << 20
    assert found.said == 1 << 40


@pytest.mark.parametrize("depth", [1_100, 4_000])
def test_a_tree_of_any_depth_is_seen_disarmed_and_removed(tmp_path: Path, depth: int) -> None:
    tree = tmp_path / "tree"
    program = deep(tree, depth)
    assert trees.size(tree)[1:] == (7, depth + 1, True)
    assert trees.disarm(tree)
    assert stat.S_IMODE(os.fstat(program).st_mode) == 0o755
    assert trees.remove(tree) is None
    assert not tree.exists()
    os.close(program)


def test_what_a_link_points_to_is_not_touched(tmp_path: Path) -> None:
    outside, tree = tmp_path / "outside", tmp_path / "tree"
    outside.mkdir()
    (outside / "program").write_bytes(bytes(5000))
    (outside / "program").chmod(0o4755)
    tree.mkdir()
    (tree / "folder").symlink_to(outside)
    (tree / "file").symlink_to(outside / "program")
    (tmp_path / "link").symlink_to(outside)
    assert trees.size(tree).names == 2
    assert trees.disarm(tree)
    assert trees.remove(tree) is None
    assert trees.remove(tmp_path / "link") is None
    assert not tree.exists()
    assert not (tmp_path / "link").is_symlink()
    assert stat.S_IMODE((outside / "program").stat().st_mode) == 0o4755


def test_names_of_any_bytes_are_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for name in (b"\xff\xfe", b"a\nb", b"\x1b[2J", "²".encode(), b" ", b"-rf", b"x" * 255):
        (tree / os.fsdecode(name) / "below").mkdir(parents=True)
    os.mkfifo(tree / "pipe")
    assert len(list(trees.below(tree))) == 15
    assert trees.remove(tree) is None
    assert not tree.exists()


def test_a_user_s_own_folders_without_rights_are_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "closed" / "below").mkdir(parents=True)
    (tree / "closed" / "below" / "file").write_text("x")
    for folder in (tree / "closed" / "below", tree / "closed", tree):
        os.chown(folder, 65534, 65534) if os.geteuid() == 0 else None
        folder.chmod(0)
    tmp_path.chmod(0o777)
    pid = os.fork()
    if not pid:
        code = 1
        try:
            if os.geteuid() == 0:
                os.chdir(tmp_path)
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            code = 0 if trees.remove(Path("tree")) is None and not os.path.lexists("tree") else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_more_names_than_the_limit_are_counted_as_at_least_so_many_and_removed_in_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    for number in range(300):
        (tree / f"f{number}").touch()
    assert trees.size(tree, names=100) == (100 * 4096, 0, 100, False)
    assert not trees.size(tree, seconds=0.0).whole
    assert cell_cache.jit_cache_size(tmp_path) == 0
    monkeypatch.setattr(trees, "MOST_NAMES", 100)
    monkeypatch.setattr(trees._Walk.__init__, "__defaults__", (100, 60.0, False))
    assert not trees.disarm(tree)
    assert trees.remove(tree) is None
    assert not tree.exists()


def test_a_tree_that_cannot_be_removed_is_told_once_with_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file\n").touch()

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", refused)
        for _ in range(2):
            said = trees.remove(tree)
            assert said == f"'{tree}' could not be removed (Operation not permitted); remove it by hand"
    assert capfd.readouterr().err == f"{said}\n"
    assert trees.remove(tree) is None


def test_what_is_not_there_has_no_size_and_is_removed_already(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    assert trees.size(missing) == (0, 0, 0, True)
    assert trees.disarm(missing)
    assert trees.remove(missing) is None
    (tmp_path / "file").touch()
    assert trees.remove(tmp_path / "file") is None


def test_a_cache_that_is_too_large_to_take_every_right_from_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees._Walk.__init__, "__defaults__", (3, 60.0, False))
    for name in "abcdef":
        (tmp_path / "cache" / name).mkdir(parents=True)
    cell_cache.disarm(tmp_path / "cache")
    assert not (tmp_path / "cache").exists()


def test_a_deep_scratch_of_a_dead_runner_is_swept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    left = tmp_path / "dlbench" / "scratch" / "another-boot_1_2_3_x"
    os.close(deep(left, 1_500))
    begin = time.monotonic()
    assert process.sweep_scratch() == 1
    assert not left.exists()
    assert time.monotonic() - begin < 20


def test_no_mount_is_entered_and_those_of_a_cell_are_taken_away(tmp_path: Path) -> None:
    """A part of the same disk, whose device number is that of all around it."""
    scratch, other = tmp_path / "scratch", tmp_path / "other"
    for folder in (scratch / "a b", other):
        folder.mkdir(parents=True)
    (other / "file").write_bytes(bytes(9000))
    (other / "file").chmod(0o4755)
    command = ["mount", "--bind", str(other), str(scratch / "a b")]
    if (mounted := subprocess.run(command, capture_output=True, text=True)).returncode:
        pytest.skip(f"left out, because nothing can be mounted here: {mounted.stderr.strip()}")
    (tmp_path / "link").symlink_to(scratch)
    trees.detach(tmp_path / "link")
    assert trees.size(scratch).said == 0
    assert trees.disarm(scratch)
    assert trees.remove(scratch)
    assert (other / "file").stat().st_mode & stat.S_ISUID
    trees.detach(scratch)
    assert trees.remove(scratch) is None
    assert (other / "file").exists()

"""A person's own network from the command line, in an interpreter of theirs: bad files beside a good one, verify, and several nodes."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from runner.kit.results_folder import packed
from runner.paths import PROJECT
from tests.unit.bench.test_own_network import BAD, TOY, planted

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("own networks"), pytest.mark.timeout(600)]

BEGIN = "        self.taken += 1\n"
# No program of a test may take all of a machine: a leak ends here.
MOST_BYTES = 4 << 30
# Steps of microseconds would be mostly what else runs on the machine.
STEADY = planted(BEGIN, BEGIN + "        import time; time.sleep(0.002)\n")
# What is wrong with a file -> (its text, what the row of its cell says).
FILES = {
    "raises": (planted(*BAD["raises"]), "line 24: `raise ValueError('no luck')`: ValueError: no luck"),
    "never-steps": (planted("    def step(", "    step = None\n\n    def steps("), "'NoneType' object is not callable"),
    "returns-nan": (planted(*BAD["not finite"]), "step() returned a loss of nan: training diverged"),
    "leaks": (
        planted(BEGIN, BEGIN + "        self.kept = getattr(self, 'kept', []) + [np.empty(1 << 28, 'uint8')]\n"),
        "line 24: `self.kept =",
    ),
    "prints": (
        planted(BEGIN, BEGIN + "        print('{' * (1 << 20))\n        raise OSError('printed')\n"),
        "OSError: printed",
    ),
    "sleeps": (
        planted(BEGIN, BEGIN + "        import time; time.sleep(600)\n"),
        "had not ended after 20 s and was stopped in sleeps.py, line 24",
    ),
    "changes-shape": (planted(*BAD["a shape that changes"]), '`hidden = np.tanh(x @ p["w"])`: ValueError'),
    "lies-on-items": (planted(*BAD["other rows"]), "batch() has 9 rows and ITEMS says 8"),
    "lacks-import": (planted(*BAD["lacks an import"]), "this image lacks what the file imports"),
    "ends": (planted(*BAD["ends the process"]), "`raise SystemExit(0)`: SystemExit: 0"),
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with the toy framework, whose cells take a second or two."""
    copy = tmp_path_factory.mktemp("project")
    for name in ("bench", "runner", "reports", "images"):
        shutil.copytree(PROJECT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(TOY, copy / "bench" / "frameworks" / "toy")
    (copy / "docs").mkdir()
    for name in ("LICENSE", "docs/gpu-kit.md"):  # a kit has them
        shutil.copyfile(PROJECT / name, copy / name)
    table = copy / "bench" / "rules.py"
    table.write_text(table.read_text().replace('"quick": (10, 30, 0.01)', '"quick": (1, 4, 1e-9)'))
    return copy


def runner(project: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command in a folder of a person, with an empty home."""
    own = {"PYTHONPATH": str(project), "HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    own |= {"XDG_DATA_HOME": str(folder / "data"), "DLBENCH_LEASES": str(folder / "leases")}
    command = [sys.executable, "-P", "-m", "runner", *words]
    return subprocess.run(
        command,
        cwd=folder,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, MOST_BYTES)),
    )


def test_ten_bad_files_are_ten_sentences_and_the_good_one_is_measured(project: Path, tmp_path: Path) -> None:
    for name, (text, _) in FILES.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "good.py").write_text(STEADY)
    named = ",".join(f"./{path.name}" for path in sorted(tmp_path.glob("*.py")))
    words = (
        "--gpus",
        "none",
        "--engine",
        "host",
        "--workloads",
        named,
        "--repeats",
        "1",
        "--timeout",
        "20",
        "--format",
        "json",
    )
    ended = runner(project, tmp_path, "matrix", *words)
    assert "Traceback" not in ended.stderr, ended.stderr[-3000:]
    assert ended.returncode == 1, ended.stderr[-3000:]
    cells = {str(cell["workload"]).partition("@")[0]: cell for cell in json.loads(ended.stdout)["results"]}
    assert cells.pop("good")["status"] == "ok"
    said = {name: str(cell["reason"]) for name, cell in cells.items() if cell["status"] == "failed"}
    assert {name: FILES[name][1] in said.get(name, "") for name in FILES} == dict.fromkeys(FILES, True), said


def test_verify_judges_an_interpreter_by_a_network_of_ones_own(project: Path, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(STEADY)
    words = (
        "--gpus",
        "none",
        "--workloads",
        "./net.py",
        "--python",
        sys.executable,
        "--repeats",
        "2",
        "--most-repeats",
        "2",
    )
    ended = runner(project, tmp_path, "verify", *words, "--format", "json")
    assert ended.returncode == 3, ended.stderr[-3000:]
    (finding,) = json.loads(ended.stdout)["findings"]
    assert finding["facts"]["workload"].startswith("net@")
    assert (finding["verdict"], finding["parity_passed"], finding["facts"]["framework"]) == (
        "no-reference",
        True,
        "toy",
    )
    (run,) = (tmp_path / "results").glob("2*")
    # Beside other tests its steps of two milliseconds scatter.
    saved = runner(project, tmp_path, "reference", "save", run.name, "--name", "mine", "--noisy")
    assert saved.returncode == 0, saved.stderr
    again = runner(project, tmp_path, "verify", *words, "--format", "json")
    (finding,) = json.loads(again.stdout)["findings"]
    assert finding["reference_name"] == "mine", again.stderr


def test_two_nodes_measure_a_network_that_only_the_driver_has(project: Path, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(STEADY)
    words = ("--gpus", "none", "--engine", "host", "--workloads", "./net.py", "--repeats", "2", "--nodes", "local:2")
    ended = runner(project, tmp_path, "matrix", *words, "--format", "json")
    assert ended.returncode == 0, ended.stderr[-3000:]
    results = json.loads(ended.stdout)["results"]
    assert [(one["status"], one["parity_passed"]) for one in results] == [("ok", True)] * 2


def test_a_kit_measures_it_on_a_machine_without_the_runner(project: Path, tmp_path: Path) -> None:
    (tmp_path / "good.py").write_text(STEADY)
    refused = runner(project, tmp_path, "gpu-kit", "kit", "--workloads", "gru-imdb")
    assert refused.returncode == 2
    assert "every kit has the catalog's networks; name a file" in refused.stderr
    made = runner(project, tmp_path, "gpu-kit", "kit", "--workloads", "./good.py")
    assert made.returncode == 0, made.stderr
    words = ["kit/kit.py", "--device", "cpu", "--out", "results", "--workloads", "good", "--repeats", "2"]
    measured = subprocess.run([sys.executable, "-I", *words], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert measured.returncode == 0, measured.stderr
    archive = tmp_path / "results" / "gpu-kit-results.tar.gz"
    imported = runner(project, tmp_path, "import", str(archive), "--results", "imported")
    assert imported.returncode == 0, imported.stderr
    (run,) = (tmp_path / "imported").iterdir()
    (cell,) = json.loads((run / "run.json").read_text())["plan"]
    name = cell["workload"]
    assert (name.partition("@")[0], cell["repeats"], len(list((run / "repeats").iterdir()))) == ("good", 2, 2)
    assert "2 × cell ok; 0 steps were not done" in imported.stderr
    assert (run / "networks" / name / "good.py").read_text() == STEADY

    # Another program under the name of this one is seen where the archive is read.
    with tarfile.open(archive) as files:
        parts = {each.name: files.extractfile(each).read() for each in files if each.name != "manifest.json"}
    facts = json.loads(parts["facts.json"])
    facts["networks"][name]["good.py"] = STEADY.replace("0.002", "0.001")
    forged = tmp_path / "forged.tar.gz"
    forged.write_bytes(packed({**parts, "facts.json": json.dumps(facts).encode()}))
    answer = runner(project, tmp_path, "import", str(forged), "--results", "forged")
    assert answer.returncode == 2
    assert f"{name}: its files are those of good@" in answer.stderr

"""The examples that ask `runner verify --level` before a node gets work: run, with the real command line and stand-in checks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from runner.paths import PROJECT

EXAMPLES = PROJECT / "docs" / "examples"
POD = yaml.safe_load((EXAMPLES / "verify-before-training.yaml").read_text())["spec"]

# The command line is the runner's own, so that an option that it lacks fails here.
STAND_IN = """
import sys
from runner.cli.main import main
from runner.doctor import preflight
from runner.doctor.scene import Check
preflight.preflight = lambda *_: [Check("driver", {status!r}, "it answers")]
sys.argv[0] = "runner"
main()
"""
STATUSES = {0: "ok", 1: "fail", 3: "open", 4: "lacking"}
WORDS = {0: "pass: ", 1: "FAIL: ", 3: "open: ", 4: "could not begin: "}
# A program of this name that is broken ends with 1, as a node does that fails.
BROKEN = 99


def ended(command: list[str], code: int, folder: Path) -> subprocess.CompletedProcess[str]:
    """An example on a node where the verification ends with this code."""
    (folder / "stand_in.py").write_text(STAND_IN.format(status=STATUSES.get(code)))
    programs = folder / "bin"
    programs.mkdir()
    lines = {
        "runner": f'PYTHONPATH="{PROJECT}" exec "{sys.executable}" "{folder}/stand_in.py" "$@"'
        if code in STATUSES
        else "echo ModuleNotFoundError >&2; exit 1",
        "scontrol": f'printf "%s\\n" "$@" > "{folder}/scontrol"',
    }
    for name, line in lines.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    variables = {"PATH": f"{programs}:{os.environ['PATH']}", "SLURMD_NODENAME": "gpu-17"}
    # As a stranger has it: nothing of this user's.
    variables |= {"HOME": str(folder / "home"), "XDG_CACHE_HOME": str(folder / "home" / ".cache")}
    (folder / "home").mkdir()
    variables["DLBENCH_RUNNER"] = str(programs / "runner")
    variables["DLBENCH_PROM"] = str(folder / "dlbench.prom")
    return subprocess.run(
        command, env=os.environ | variables, cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("code", STATUSES)
def test_the_node_problem_detector_gets_its_codes_and_one_line(code: int, tmp_path: Path) -> None:
    result = ended([str(EXAMPLES / "npd-verify.sh")], code, tmp_path)
    assert (result.returncode, len(result.stdout.splitlines())) == ({0: 0, 1: 1, 3: 2, 4: 1}[code], 1)
    assert result.stdout.startswith(WORDS[code])
    assert f'dlbench_verify_exit_code{{level="2"}} {code}\n' in (tmp_path / "dlbench.prom").read_text()
    (rule,) = json.loads((EXAMPLES / "npd-verify.json").read_text())["rules"]
    assert Path(rule["path"]).name == "npd-verify.sh"


def test_a_runner_that_is_broken_says_nothing_of_the_node(tmp_path: Path) -> None:
    codes = {}
    for name in ("npd-verify.sh", "slurm-health.sh", "slurm-prolog.sh"):
        (tmp_path / name).mkdir()
        codes[name] = ended([str(EXAMPLES / name)], BROKEN, tmp_path / name).returncode
    assert codes == {"npd-verify.sh": 2, "slurm-health.sh": 0, "slurm-prolog.sh": 0}
    assert not (tmp_path / "slurm-health.sh" / "scontrol").exists()


@pytest.mark.parametrize("code", STATUSES)
def test_slurm_drains_a_node_that_fails_or_lacks_what_the_checks_need_and_no_other(code: int, tmp_path: Path) -> None:
    assert ended([str(EXAMPLES / "slurm-health.sh")], code, tmp_path).returncode == 0
    asked = tmp_path / "scontrol"
    if code in (1, 4):
        words = asked.read_text().splitlines()
        assert words[:4] == [
            "update",
            "NodeName=gpu-17",
            "State=DRAIN",
            f"Reason=dlbench: {WORDS[code]}1 check of 1: driver",
        ]
    else:
        assert not asked.exists()


@pytest.mark.parametrize("code", STATUSES)
def test_a_prolog_fails_where_the_node_does_or_could_not_begin_and_not_where_it_is_open(
    code: int, tmp_path: Path
) -> None:
    result = ended([str(EXAMPLES / "slurm-prolog.sh")], code, tmp_path)
    assert (result.returncode, WORDS[code] in result.stderr) == (int(code in (1, 4)), code in (1, 4))


@pytest.mark.parametrize("code", STATUSES)
def test_an_init_container_ends_with_the_code_that_the_job_asks_for(code: int, tmp_path: Path) -> None:
    (container,) = POD["template"]["spec"]["initContainers"]
    words = [str(tmp_path / "results") if word == "/verify/results" else word for word in container["command"]]
    assert ended(words, code, tmp_path).returncode == code
    (rule,) = POD["podFailurePolicy"]["rules"]
    assert (rule["onExitCodes"]["containerName"], rule["onExitCodes"]["values"]) == (container["name"], [1, 2, 4])
    mounts = {mount["name"] for mount in container["volumeMounts"]}
    assert mounts == {volume["name"] for volume in POD["template"]["spec"]["volumes"]}


@pytest.mark.parametrize("code", [0, 1, 3, 4, 130])
@pytest.mark.parametrize("name", ["slurm-matrix.sbatch", "slurm-verify.sbatch"])
def test_a_batch_script_ends_as_its_runner_does(name: str, code: int, tmp_path: Path) -> None:
    """Slurm calls a job that ends with another code than 0 failed."""
    program = tmp_path / "runner"
    program.write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/called"\nexit {code}\n')
    program.chmod(0o755)
    variables = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "FLEET": "/fleet", "SLURMD_NODENAME": "gpu-17"}
    variables |= {"DLBENCH_RUNNER": str(program), "LEAST_GPUS": "8"}
    result = subprocess.run(
        ["bash", str(EXAMPLES / name)], env=variables, cwd=tmp_path, capture_output=True, check=False
    )
    assert result.returncode == code
    assert " --least-gpus 8" in (tmp_path / "called").read_text()


@pytest.mark.parametrize("name", ["npd-verify.sh", "slurm-health.sh", "slurm-prolog.sh"])
def test_a_node_with_fewer_gpus_than_it_should_have_is_told_by_the_real_checks(name: str, tmp_path: Path) -> None:
    """Here is no driver: the checks of this machine, as they are."""
    (tmp_path / "bin").mkdir()
    for program, line in {
        "runner": f'PYTHONPATH="{PROJECT}" exec "{sys.executable}" -m runner "$@"',
        "scontrol": f'printf "%s\\n" "$@" > "{tmp_path}/scontrol"',
    }.items():
        (tmp_path / "bin" / program).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / "bin" / program).chmod(0o755)
    variables = {
        "PATH": f"{tmp_path}/bin:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "SLURMD_NODENAME": "gpu-17",
        "DLBENCH_RUNNER": str(tmp_path / "bin" / "runner"),
        "DLBENCH_LEAST_GPUS": "8",
        "DLBENCH_LEVEL": "1",
    }
    (tmp_path / "empty").mkdir()
    result = subprocess.run(
        [str(EXAMPLES / name)], env=variables, cwd=tmp_path / "empty", capture_output=True, text=True, check=False
    )
    said = result.stdout + result.stderr
    if name == "slurm-health.sh":
        assert (result.returncode, "State=DRAIN" in (tmp_path / "scontrol").read_text()) == (0, True), said
    else:
        assert result.returncode == 1, said


PYXIS = EXAMPLES / "slurm-pyxis.sbatch"
# The container is left out: its options are passed over, and the command runs in this checkout.
SRUN = 'echo "$@" > "{folder}/srun"\nwhile case $1 in --*) true ;; *) false ;; esac; do shift; done\n{line}'


@pytest.mark.parametrize(
    ("line", "given", "code", "said"),
    [
        ("exit 0", {"IMAGE": "/a.sqsh", "FRAMEWORK": "torch"}, 0, ""),
        ("exit 137", {"IMAGE": "/a.sqsh", "FRAMEWORK": "torch"}, 137, ""),
        ("exit 0", {"FRAMEWORK": "torch"}, 1, "IMAGE: set it to a file that enroot imported"),
        ("exit 0", {"IMAGE": "/a.sqsh"}, 1, "FRAMEWORK: set it to the framework of the image"),
        ('exec "$@"', {"IMAGE": "/a.sqsh", "FRAMEWORK": "torch"}, 1, "torch"),
        ('exec "$@"', {"IMAGE": "/a.sqsh", "FRAMEWORK": "nosuch"}, 2, "nosuch"),
    ],
)
def test_a_check_in_an_image_of_enroot_ends_as_its_step_does(
    line: str, given: dict[str, str], code: int, said: str, tmp_path: Path
) -> None:
    """This Python has the bench and no framework, as an image that is not the one that was meant."""
    for name, text in {
        "srun": SRUN.format(folder=tmp_path, line=line),
        "python": f'cd "{PROJECT}" && exec "{sys.executable}" "$@"',
    }.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    variables = {"PATH": f"{tmp_path}:/usr/bin:/bin", "HOME": str(tmp_path), "DLBENCH_CACHE": str(tmp_path), **given}
    result = subprocess.run(
        ["bash", str(PYXIS)], env=variables, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert result.returncode == code, result.stderr
    assert said in result.stderr
    if len(given) == 2:
        assert "--container-image=/a.sqsh" in (tmp_path / "srun").read_text()

"""The containers of the Kubernetes examples, run as a kubelet runs them: command, user, mounts, variables and rights of the file.

No cluster is here: an engine of Docker has the same kernel features. Requests of CPUs and memory are the scheduler's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.paths import PROJECT
from tests.unit.runner.cli.test_node_examples import STAND_IN, STATUSES, WORDS

pytestmark = [pytest.mark.engine, pytest.mark.slow]

MANIFESTS = ("verify-node.yaml", "verify-before-training.yaml")
# spec.nodeName, which the kubelet fills in.
NODE = "gpu-17"
Contained = Callable[..., subprocess.CompletedProcess[str]]


def flags_of(manifest: str, volumes: Path) -> tuple[list[str], list[str]]:
    """The flags of `docker run` that say what the manifest says of its first container, and its command."""
    pod: dict[str, Any] = yaml.safe_load((PROJECT / "docs" / "examples" / manifest).read_text())["spec"]["template"][
        "spec"
    ]
    container = (pod.get("initContainers") or pod["containers"])[0]
    rights = {**pod["securityContext"], **container["securityContext"]}
    assert rights["seccompProfile"] == {"type": "RuntimeDefault"}, "the profile that Docker takes by itself"
    flags = ["--user", f"{rights['runAsUser']}:0", *(f"--cap-drop={name}" for name in rights["capabilities"]["drop"])]
    flags += ["--read-only"] * rights["readOnlyRootFilesystem"]
    flags += ["--security-opt=no-new-privileges"] * (not rights["allowPrivilegeEscalation"])
    empty = {volume["name"] for volume in pod["volumes"] if "emptyDir" in volume}
    for mount in container["volumeMounts"]:
        (volumes / mount["name"]).mkdir(parents=True)
        # An emptyDir is open to all users.
        (volumes / mount["name"]).chmod(0o777 if mount["name"] in empty else 0o755)
        flags += ["-v", f"{volumes / mount['name']}:{mount['mountPath']}" + ":ro" * mount.get("readOnly", False)]
    for entry in container["env"]:
        flags += ["-e", f"{entry['name']}={entry.get('value', NODE)}"]
    return flags, container["command"]


@pytest.fixture
def contained(base_image: str, tmp_path: Path) -> Contained:
    """Run a manifest's container. The Python of the base image has this checkout and its packages, and `runner` on its PATH."""
    question = "import sys, sysconfig; print(sysconfig.get_path('purelib'), *sys.version_info[:2])"
    asked = ["docker", "run", "--rm", base_image, "python3", "-c", question]
    theirs, *version = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split()
    if version != [str(part) for part in sys.version_info[:2]]:
        pytest.skip(
            f"left out, because the base image has Python {'.'.join(version)}, and these packages are for another one"
        )

    def contained(manifest: str, script: str = "from runner.cli.main import main; main()") -> Any:
        flags, command = flags_of(manifest, tmp_path / "volumes")
        (tmp_path / "start.py").write_text(script)
        (tmp_path / "runner").write_text('#!/bin/sh\nexec python3 /start/start.py "$@"\n')
        (tmp_path / "runner").chmod(0o755)
        (tmp_path / "here.pth").write_text("/checkout\n/packages\n")
        mounts = {
            tmp_path: "/start",
            PROJECT: "/checkout",
            sysconfig.get_path("purelib"): "/packages",
            tmp_path / "here.pth": f"{theirs}/here.pth",
            tmp_path / "runner": "/usr/local/bin/runner",
        }
        flags += [f"--volume={here}:{there}:ro" for here, there in mounts.items()]
        words = ["docker", "run", "--rm", "--network", "none", *flags, base_image, *command]
        return subprocess.run(words, capture_output=True, text=True, timeout=200, check=False)

    for folder in (tmp_path, *tmp_path.parents[:2]):
        os.chmod(folder, 0o755)  # noqa: PTH101 - pytest's folders are shut, and the container has another user
    return contained


@pytest.mark.parametrize("manifest", MANIFESTS)
def test_a_node_without_its_gpus_ends_the_container_of_a_manifest_with_4(
    contained: Contained, tmp_path: Path, manifest: str
) -> None:
    """The base image holds no framework, either, and the checks before a training ask for that first."""
    ended = contained(manifest)
    assert ended.returncode == 4, ended.stderr
    said = {MANIFESTS[0]: "--least-gpus 8: 0 GPUs can be used here", MANIFESTS[1]: "could not begin: 1 check of "}
    assert said[manifest] in ended.stdout + ended.stderr
    assert not [*(tmp_path / "volumes").glob("*/*")], "what could not begin leaves nothing"


@pytest.mark.parametrize("code", STATUSES)
def test_a_container_before_a_training_ends_with_the_code_of_its_node(contained: Contained, code: int) -> None:
    ended = contained("verify-before-training.yaml", STAND_IN.format(status=STATUSES[code]))
    assert ended.returncode == code, ended.stderr
    assert ended.stdout.splitlines()[-1].startswith(WORDS[code])

"""The configuration of an image without the times of its build, and what differs between two layers."""

from __future__ import annotations

import json
import re
from typing import Any

from runner.images.transfer import undated
from runner.paths import PROJECT

BUILT: dict[str, Any] = {
    "Architecture": "amd64",
    "Os": "linux",
    "Created": "2026-11-23T09:00:00Z",
    "Config": {
        "Env": ["A=1"],
        "Labels": {"b": "c"},
        "Image": "sha256:step",
        "Hostname": "0123",
        "Domainname": "",
        "Cmd": None,
    },
    "RootFS": {"Type": "layers", "Layers": ["sha256:one", "sha256:two"]},
}
# The last step first, as an engine says it.
STEPS = [
    {"Created": 3, "CreatedBy": "LABEL", "Size": 0},
    {"Created": 2, "CreatedBy": "RUN", "Size": 7, "Comment": "of the builder"},
    {"Created": 1, "CreatedBy": "FROM", "Size": 9},
]


def test_two_builds_that_differ_in_times_and_containers_have_one_configuration() -> None:
    later = BUILT | {
        "Created": "2028-01-01T00:00:00Z",
        "Config": BUILT["Config"] | {"Image": "sha256:x", "Hostname": "4567"},
    }
    # A build with a proxy says so in every step that has no argument.
    steps = [step | {"Created": 99, "CreatedBy": f"|0 {step['CreatedBy']}"} for step in STEPS]
    first = undated.configuration(BUILT, STEPS, "2026-11-20T00:00:00Z")
    assert undated.configuration(later, steps, "2026-11-20T00:00:00Z") == first
    assert json.loads(first) == {
        "architecture": "amd64",
        "os": "linux",
        "created": "2026-11-20T00:00:00Z",
        "config": {"Env": ["A=1"], "Labels": {"b": "c"}},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:one", "sha256:two"]},
        "history": [
            {"created": undated.EPOCH, "created_by": "FROM"},
            {"created": undated.EPOCH, "created_by": "RUN"},
            {"created": undated.EPOCH, "created_by": "LABEL", "empty_layer": True},
        ],
    }
    other = BUILT | {"Config": BUILT["Config"] | {"Env": ["A=2"]}}
    assert undated.configuration(other, STEPS, "2026-11-20T00:00:00Z") != first


def test_the_history_of_a_build_with_a_site_s_settings_is_that_of_one_without() -> None:
    site = {"PIP_EXTRA_INDEX_URL": "https://a.site https://b.site", "PIP_INDEX_URL": "https://mirror.site"}
    said = " ".join(f"{name}={value}" for name, value in site.items())
    command = "/bin/sh -c pip install"
    arguments = [{"CreatedBy": f"/bin/sh -c #(nop)  ARG {name}", "Size": 0} for name in site]
    for before, after in (
        (f"|2 {said}", ""),
        (f"|3 IMAGE=x {said}", "|1 IMAGE=x "),
        (f"|4 A=1 {said} Z=2", "|2 A=1 Z=2 "),
    ):
        steps = [{"CreatedBy": f"{before} {command}", "Size": 7}, *arguments, {"CreatedBy": "FROM", "Size": 9}]
        plain = [{"CreatedBy": f"{after}{command}", "Size": 7}, {"CreatedBy": "FROM", "Size": 9}]
        assert undated.configuration(BUILT, steps, undated.EPOCH, site) == undated.configuration(
            BUILT, plain, undated.EPOCH
        )


def test_a_history_that_does_not_say_which_step_made_which_layer_is_dropped() -> None:
    steps = [step | {"Size": 0} for step in STEPS]
    assert "history" not in json.loads(undated.configuration(BUILT, steps, undated.EPOCH))


def test_the_first_file_that_differs_is_named_with_what_differs() -> None:
    file = ("0", 3, 0o644, (0, 0), "digest", 315532800)
    for number, (what, value) in enumerate(
        [("kind", "5"), ("size", 4), ("mode", 0o755), ("owner", (1, 0)), ("content", "other"), ("time", 5)]
    ):
        other = (*file[:number], value, *file[number + 1 :])
        sentence = undated._first_file({"opt/a": file, "opt/b": file}, {"opt/a": other, "opt/b": other})
        assert sentence == f"/opt/a differs in its {what} ({file[number]}, {value})"
    assert undated._first_file({"opt/a": file, "opt/b": file}, {"opt/a": file}) == "/opt/b is in one of them only"


def test_the_dockerfiles_give_files_the_time_that_the_configuration_has() -> None:
    for path in (PROJECT / "Dockerfile.base", *sorted((PROJECT / "images").glob("Dockerfile*"))):
        times = set(re.findall(r"@(\d+)|EPOCH=(\d+)", path.read_text()))
        assert {one or other for one, other in times} <= {"315532800"}, path

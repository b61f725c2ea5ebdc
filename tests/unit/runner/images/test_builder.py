"""What a build depends on and what it sends to the engine, without an engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import tarfile
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from socketserver import ThreadingMixIn, UnixStreamServer
from typing import Any

import pytest

from bench import identity
from runner.catalog.images import PROJECT, Image, load_catalog
from runner.engines.process.venv import OLD_PIP
from runner.errors import EngineError, EngineGoneError
from runner.images import builder, installing
from runner.images import recipe as recipes
from runner.images.docker_client import DockerError, Listing


@pytest.fixture
def image() -> Image:
    return load_catalog()["torch-2.13.0-cpu"]


@pytest.fixture(autouse=True)
def no_site_base(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(recipes.BASE_IMAGE_VARIABLE, raising=False)


def test_where_the_sources_lie_is_a_label_and_no_input(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(recipes.SOURCE_VARIABLE, raising=False)
    tag = recipes.recipe(image).tag
    assert recipes.source_label() == {}
    monkeypatch.setenv(recipes.SOURCE_VARIABLE, "https://github.com/Team/Project")
    assert recipes.source_label() == {"org.opencontainers.image.source": "https://github.com/Team/Project"}
    assert recipes.recipe(image).tag == tag
    for wrong in ("Team/Project", "https://a b", "https://a\nRUN true", 'https://a" x="'):
        monkeypatch.setenv(recipes.SOURCE_VARIABLE, wrong)
        with pytest.raises(EngineError, match="DLBENCH_SOURCE=.* is no address of a repository; give one as https://"):
            recipes.source_label()


def test_the_image_s_own_base_is_used_unless_the_site_has_another(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert recipes.recipe(image).base == image.base
    monkeypatch.setenv(recipes.BASE_IMAGE_VARIABLE, "registry.example:5000/python:{python}-slim")
    assert recipes.recipe(image).base == "registry.example:5000/python:3.11-slim"
    assert recipes.recipe(image, "mine:{python}").base == "mine:3.11"


def test_a_stand_in_for_any_python_is_none_for_a_base_that_brings_cuda() -> None:
    image = load_catalog()["mxnet-1.9.1-cu112"]
    assert recipes.recipe(image, "site:{python}").base == image.base
    assert recipes.recipe(image, "site:{cuda}-{python}").base == "site:11.2.2-3.8"
    # A mirror of Docker Hub serves every base, by its digest where that is known.
    assert recipes.recipe(image, "mirror.site/hub/{base}").base == f"mirror.site/hub/{image.base}"
    pinned = load_catalog()["torch-2.13.0-cpu"].model_copy(update={"base_digest": f"sha256:{'1' * 64}"})
    assert recipes.recipe(pinned, "mirror.site/hub/{base}").base == f"mirror.site/hub/library/{pinned.base_reference}"
    assert recipes.recipe(image, "mirror/cuda:11.2.2-cudnn8").base == "mirror/cuda:11.2.2-cudnn8"


def test_a_base_with_a_digest_is_named_by_it(image: Image) -> None:
    digest = "sha256:" + "a" * 64
    assert recipes.recipe(image.model_copy(update={"base_digest": digest})).base == f"{image.base}@{digest}"


def test_every_input_changes_the_tag(image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = recipes.recipe(image)
    assert recipes.recipe(image).tag == first.tag
    tags = {first.tag, recipes.recipe(image, "mine").tag}
    (tmp_path / "requirements.lock").write_text("other")
    tags.add(recipes.recipe(image.model_copy(update={"folder": tmp_path})).tag)
    for changed in ("Dockerfile.base", "images/Dockerfile", "images/links.sh", "bench/run.py"):
        project = tmp_path / changed.replace("/", "-")
        for name in ("Dockerfile.base", "images/Dockerfile", "images/links.sh", "bench/run.py"):
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            (project / name).write_text("changed" if name == changed else "same")
        monkeypatch.setattr(recipes, "PROJECT", project)
        tags.add(recipes.recipe(image).tag)
    assert len(tags) == 7
    assert all(tag.startswith("dlbench/torch-2.13.0-cpu:") for tag in tags)


def test_labels_are_texts_and_none_is_empty(image: Image) -> None:
    labels = recipes.recipe(image).labels("sha256:base")
    assert all(isinstance(value, str) and value for value in labels.values())


def test_the_context_is_the_same_bytes_whenever_its_files_were_written(tmp_path: Path) -> None:
    contexts = []
    for mtime in (0, 10**9):
        path = tmp_path / f"{mtime}.py"
        path.write_text("x = 1\n")
        path.chmod(0o600 if mtime else 0o755)
        contexts.append(builder._archive([(path, "bench/x.py")]).getvalue())
    assert contexts[0] == contexts[1]


def test_an_image_is_current_where_its_tag_is_there_and_its_base_is_the_one_that_has_the_name_now(image: Image) -> None:
    recipe = recipes.recipe(image, "docker.io/library/python:3.11")

    def listing(base_id: str, *more: dict[str, Any]) -> Listing:
        made = {"Id": "sha256:made", "RepoTags": [recipe.tag, recipe.latest], "Labels": {"dlbench.base_id": base_id}}
        return Listing([made, *more])

    base = {"Id": "sha256:base", "RepoTags": ["python:3.11"], "Labels": None}
    assert builder.built(Listing([base]), recipe) is None
    assert builder.built(listing("sha256:base", base), recipe) == "sha256:made"
    assert builder.built(listing("sha256:older", base), recipe) is None
    # A base that is gone is not another one.
    assert builder.built(listing("sha256:older"), recipe) == "sha256:made"
    assert Listing([{"Id": "sha256:x", "RepoTags": ["site:latest"]}]).id_of("site") == "sha256:x"
    assert Listing([{"Id": "sha256:x", "RepoTags": ["host:5000/site:1"]}]).id_of("host:5000/site") is None


def test_a_label_is_the_same_text_after_a_dockerfile_s_quotes() -> None:
    assert (
        builder.label_step({"a": 'say "$x"', "b": "two\n  lines \\"}) == 'LABEL a="say \\"\\$x\\"" b="two lines \\\\"\n'
    )


def test_what_the_image_gets_of_the_bench_is_what_its_digest_counts(image: Image, tmp_path: Path) -> None:
    files = recipes.bench_files(image)
    assert {"timing.py", "frameworks/torch/framework.py", "workloads/gru-imdb.json"} < set(files)
    assert not [name for name in files if name.startswith("frameworks/jax/")]
    with tarfile.open(fileobj=builder._archive((builder.PROJECT / "bench" / name, name) for name in files)) as archive:
        archive.extractall(tmp_path, filter="data")
    assert identity.source_digest(str(tmp_path)) == recipes.recipe(image).bench_sha256


def test_an_edit_of_one_framework_changes_the_tags_of_its_own_images_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("images", "Dockerfile.base"):
        (tmp_path / name).symlink_to(PROJECT / name)
    shutil.copytree(PROJECT / "bench", tmp_path / "bench", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(recipes, "PROJECT", tmp_path)
    catalog = load_catalog()

    def changed(edited: str) -> list[str]:
        before = {name: recipes.recipe(image).input_tag for name, image in catalog.items()}
        with open(tmp_path / "bench" / edited, "a") as file:
            file.write("# a comment\n")
        return [name for name, image in catalog.items() if recipes.recipe(image).input_tag != before[name]]

    assert changed("frameworks/flux/mlp_mnist.jl") == ["flux-0.16.9-cpu"]
    assert changed("timing.py") == list(catalog)
    users = {"keras_jax", "keras_tensorflow", "keras_torch", "r_keras", "tensorflow"}
    of_keras = [name for name, image in catalog.items() if not users.isdisjoint(image.frameworks)]
    assert changed("frameworks/keras/gru_imdb.py") == of_keras
    assert 0 < len(of_keras) < len(catalog)


class DyingEngine(BaseHTTPRequestHandler):
    """A Docker Engine that has every base image and is killed while it builds."""

    protocol_version = "HTTP/1.1"

    def _answer(self, status: int, body: Mapping[str, object]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self) -> None:
        if "/version" in self.path:
            self._answer(200, {"ApiVersion": "1.41"})
        elif "python%3A" in self.path or "python:" in self.path:
            self._answer(200, {"Id": "sha256:" + "b" * 64, "Config": {}})
        else:
            self._answer(404, {"message": "No such image"})

    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        line = b'{"stream": "Step 1/7 : ARG BASE"}\r\n'
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def log_message(self, *_: object) -> None: ...


class Listening(ThreadingMixIn, UnixStreamServer):
    daemon_threads = True

    def get_request(self) -> tuple[socket.socket, tuple[str, int]]:
        return super().get_request()[0], ("local", 0)


def test_an_engine_that_is_killed_while_it_builds_is_told_as_that(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Listening(str(tmp_path / "engine.sock"), DyingEngine) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path / 'engine.sock'}")
        with pytest.raises(EngineGoneError, match="building torch-2.13.0-cpu: no container engine answers at unix://"):
            builder.build(image, logs=tmp_path / "logs")
        server.shutdown()


def test_old_pythons_get_the_same_pip_by_its_hash_in_containers_and_in_environments() -> None:
    assert f'echo "{OLD_PIP}"' in (PROJECT / "Dockerfile.base").read_text()
    assert re.fullmatch(r"pip==\S+ --hash=sha256:[0-9a-f]{64}", OLD_PIP)


def test_a_base_image_that_cannot_be_had_is_a_short_sentence_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    said = 'Get "https://registry.example/v2/": dial tcp: lookup registry.example on 192.0.2.1:53: no such host ' * 3

    def refuse(*_: object) -> None:
        raise DockerError(said, said)

    monkeypatch.setattr(builder.docker_client, "find_image", lambda *_: None)
    monkeypatch.setattr(builder.registry, "has_published", lambda *_: False)
    monkeypatch.setattr(builder.docker_client, "registry_digest", refuse)
    image = load_catalog()["torch-2.13.0-cpu"]
    reason = builder.missing_base(None, recipes.recipe(image, None))  # type: ignore[arg-type]
    assert reason is not None
    assert "dial tcp" not in reason
    assert f"`.ci/site-base {image.python}`, and name it by --base-image" in reason
    assert len(reason) <= 200


@pytest.fixture
def no_pip_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """A site that says nothing to pip."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv(builder.BUILD_NETWORK_VARIABLE, raising=False)


@pytest.fixture
def no_pip_conf(no_pip_settings: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """And has no pip.conf: pip takes a second to say that."""
    monkeypatch.setattr(installing, "pip_settings", lambda python: {})


def test_a_build_gets_the_package_index_of_the_environment_that_it_can_reach(
    no_pip_conf: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert builder.pip_settings() == {}
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:3141/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "file:///srv/wheels  https://mirror.site/simple https://second.site")
    monkeypatch.setenv("PIP_TRUSTED_HOST", "mirror.site")
    reached = {
        "PIP_EXTRA_INDEX_URL": "https://mirror.site/simple https://second.site",
        "PIP_TRUSTED_HOST": "mirror.site",
    }
    assert builder.pip_settings() == reached
    monkeypatch.setenv(builder.BUILD_NETWORK_VARIABLE, "host")
    assert builder.pip_settings() == {"PIP_INDEX_URL": "http://127.0.0.1:3141/simple"} | reached


@pytest.mark.parametrize("user", ["me:s3cret", "s3cret"])
def test_a_password_in_the_index_s_address_ends_the_build_and_is_not_shown(
    no_pip_conf: None, monkeypatch: pytest.MonkeyPatch, user: str
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"https://{user}@mirror.site/simple")
    with pytest.raises(
        builder.BuildError, match="PIP_INDEX_URL or index-url in pip.conf holds a user or a password"
    ) as error:
        builder.pip_settings()
    assert "s3cret" not in str(error.value)
    monkeypatch.setenv("PIP_INDEX_URL", "")
    assert builder.pip_settings() == {}


def test_pip_conf_says_what_the_environment_does_not(
    no_pip_settings: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "pip.conf"
    path.write_text("[global]\nindex-url = https://conf.site/simple\n[install]\ntrusted-host =\n  a.site\n  b.site\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(path))
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    assert builder.pip_settings() == {"PIP_INDEX_URL": "https://conf.site/simple", "PIP_TRUSTED_HOST": "a.site b.site"}


@pytest.mark.parametrize("dockerfile", ["Dockerfile.base", "images/Dockerfile", "images/Dockerfile.nvidia"])
def test_a_site_s_settings_are_arguments_of_the_last_stage(dockerfile: str) -> None:
    text = (PROJECT / dockerfile).read_text()
    assert builder._steps(PROJECT / dockerfile, {}, {"a": "b"}) == text + 'LABEL a="b"\n'
    with_index = builder._steps(PROJECT / dockerfile, {"PIP_INDEX_URL": "https://mirror.site"}, {"a": "b"})
    assert with_index.count("ARG PIP_INDEX_URL\n") == 1
    assert with_index.replace("ARG PIP_INDEX_URL\n", "") == text + 'LABEL a="b"\n'
    assert "\nFROM ${BASE}\nARG PIP_INDEX_URL\n" in with_index[text.rindex("\nFROM ") :]
    assert "mirror.site" not in with_index

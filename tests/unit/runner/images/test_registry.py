"""What is asked of a registry: the images that it lacks, the published ones, and what its errors mean."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from requests.exceptions import ReadTimeout, RequestException
from typer.testing import CliRunner
from urllib3 import HTTPConnectionPool
from urllib3.exceptions import ReadTimeoutError

from runner.catalog.images import PROJECT, Image, load_catalog
from runner.cli.images import build
from runner.cli.main import app
from runner.errors import EngineError
from runner.images import docker_client, recipe
from runner.images.docker_client import DeniedError, DockerError, NotThereError
from runner.images.recipe import Recipe
from runner.images.transfer import registry

HOST = "registry.example/team/project"
DIGEST = "sha256:" + "d" * 64


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(registry, "cache_folder", lambda: tmp_path / "cache")


@pytest.fixture
def image() -> Image:
    return load_catalog()["torch-2.13.0-cpu"]


def published(image: Image, tag: str) -> Recipe:
    pin = f"{HOST}/{image.name}:{tag}@{DIGEST}"
    return recipe.recipe(image.model_copy(update={"published": pin}))


# -- CI's plan ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the project that recipes are made of, whose bench may be edited."""
    for name in ("images", "Dockerfile.base"):
        (tmp_path / name).symlink_to(PROJECT / name)
    shutil.copytree(PROJECT / "bench", tmp_path / "bench", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(recipe, "PROJECT", tmp_path)
    monkeypatch.delenv(recipe.BASE_IMAGE_VARIABLE, raising=False)
    return tmp_path


@pytest.fixture
def stored(project: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The names that a registry has: at first those of every image of the catalog, as the project is."""
    names = {f"{HOST}/{image.name}:{recipe.recipe(image).input_tag}" for image in load_catalog().values()}

    def registry_digest(client: object, reference: str) -> str:
        if reference not in names:
            raise NotThereError("no", "no")
        return DIGEST

    monkeypatch.setattr(build.docker_client, "connect", lambda: None)
    monkeypatch.setattr(registry.docker_client, "registry_digest", registry_digest)
    return names


def planned(*names: str) -> list[str]:
    ended = CliRunner().invoke(app, ["images", "ci-matrix", *names, "--missing-from", HOST])
    assert ended.exit_code == 0, ended.output
    return [row["image"] for row in json.loads(ended.stdout)["include"]]


def comment(path: Path) -> None:
    with open(path, "a") as file:
        file.write("# a comment\n")


def test_an_edit_of_one_adapter_plans_its_image_and_an_edit_of_another_framework_plans_no_other(
    project: Path, stored: set[str]
) -> None:
    assert planned() == []
    comment(project / "bench" / "frameworks" / "tinygrad" / "gru_imdb.py")
    assert planned() == ["tinygrad-0.14.0-cpu"]
    assert planned("torch-*", "jax-*", "chainer-*") == []


def test_an_image_of_a_cancelled_run_is_planned_until_it_is_in_the_registry(project: Path, stored: set[str]) -> None:
    image = load_catalog()["tinygrad-0.14.0-cpu"]
    comment(project / "bench" / "frameworks" / "tinygrad" / "gru_imdb.py")
    assert planned() == [image.name]
    # Its run was cancelled. The next commit changes something else.
    comment(project / "bench" / "frameworks" / "chainer" / "gru_imdb.py")
    assert image.name in planned()
    stored.add(f"{HOST}/{image.name}:{recipe.recipe(image).input_tag}")
    assert image.name not in planned()


def test_a_registry_is_asked_for_many_images_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.docker_client, "registry_digest", lambda *_: time.sleep(0.1))
    recipes = [recipe.recipe(image) for image in load_catalog().values()]
    begin = time.monotonic()
    assert registry.missing(None, recipes, HOST) == []  # type: ignore[arg-type]
    assert time.monotonic() - begin < len(recipes) * 0.1 / 4


def test_a_registry_that_does_not_answer_ends_the_plan_and_is_not_taken_for_an_empty_one(
    stored: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> str:
        raise DockerError("the digest could not be read: the registry does not answer (timeout)", "timeout")

    monkeypatch.setattr(registry.docker_client, "registry_digest", refuse)
    ended = CliRunner().invoke(app, ["images", "ci-matrix", "--missing-from", HOST])
    assert (ended.exit_code, ended.stdout) == (4, "")
    assert "the registry does not answer" in ended.stderr


# -- tags and pins -----------------------------------------------------------------------------------------------------


def test_the_first_half_of_the_tag_is_of_what_lies_below_the_bench(image: Image, project: Path) -> None:
    before = recipe.recipe(image)
    comment(project / "bench" / "timing.py")
    after = recipe.recipe(image)
    assert after.layers == before.layers == after.input_tag.partition("-")[0]
    assert after.input_tag != before.input_tag
    assert recipe.recipe(image, "another:base").layers != before.layers


@pytest.mark.parametrize(
    ("field", "value", "same_layers"),
    [
        ("min_driver", "580.1", True),
        ("cuda", "13.0.1", False),
        ("notes", "Another sentence.", True),
        ("download_gb", 9.0, None),
    ],
)
def test_the_tag_changes_with_what_the_labels_and_build_arguments_say(
    field: str, value: object, same_layers: bool | None
) -> None:
    image = load_catalog()["torch-2.9.1-cu128"]
    before, after = (recipe.recipe(one) for one in (image, image.model_copy(update={field: value})))
    assert (after.input_tag == before.input_tag) is (same_layers is None)
    assert (after.layers == before.layers) is (same_layers is not False)


def test_a_stale_pin_costs_no_download(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.docker_client, "pull_image", None)  # a call would be an error
    said: list[str] = []
    stale = published(image, "0" * 12 + "-" + "1" * 12)
    assert registry.pull(None, stale, said.append) is None  # type: ignore[arg-type]
    assert not registry.has_published(None, stale)  # type: ignore[arg-type]
    assert said == [f"{HOST}/{image.name}:{'0' * 12}-{'1' * 12} was built from other inputs; building {image.name}"]


def test_layers_of_a_published_image_are_the_cache_where_only_the_bench_differs(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled: list[str] = []
    monkeypatch.setattr(registry.docker_client, "pull_image", lambda client, reference: pulled.append(reference))
    monkeypatch.setattr(registry.docker_client, "find_image", lambda *_: None)
    here: list[object] = []
    client: Any = SimpleNamespace(images=SimpleNamespace(list=lambda filters: here))
    layers = recipe.recipe(image).layers
    same, other = published(image, f"{layers}-{'1' * 12}"), published(image, "0" * 12 + "-" + "1" * 12)
    assert registry.cache_registry(client, other) is None
    assert registry.cache_registry(client, same) == HOST
    assert registry.cache(client, same, HOST) == [f"{HOST}/{image.name}@{DIGEST}"] == pulled
    # Its latest is whatever it says it is.
    assert registry.cache(client, same, "elsewhere.example") is None
    assert registry.cache(client, other, HOST) is None
    assert pulled == [f"{HOST}/{image.name}@{DIGEST}"]
    # Here are images with these layers already.
    here.append(object())
    assert registry.cache_registry(client, same) is None


def test_the_layers_that_images_share_are_pulled_by_the_digest_that_was_pinned_and_never_by_a_tag(
    image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A registry gives any image under a tag, with the label of the base image that is asked for."""
    monkeypatch.setattr(registry, "LAYERS", tmp_path / "layers.toml")
    asked: list[str] = []
    stranger = SimpleNamespace(labels={"dlbench.base_id": "sha256:base"}, tag=lambda *_: True)
    monkeypatch.setattr(
        registry.docker_client, "pull_image", lambda client, reference: asked.append(reference) or stranger
    )
    client: Any = None
    tag = recipe.recipe(image).base_tag
    name = tag.partition("/")[2]
    assert not registry.pull_common(client, tag, "sha256:base", HOST)
    assert asked == []
    monkeypatch.setattr(registry.docker_client, "registry_digest", lambda client, reference: DIGEST)
    wanted = recipe.recipe(image)
    assert name in registry.pin_layers(client, [wanted], HOST)
    assert len(registry.layer_digests()) == 1 + len(wanted.nvidia_tags)
    assert registry.pull_common(client, tag, "sha256:base", HOST)
    assert asked == [f"{HOST}/{name.partition(':')[0]}@{DIGEST}"]
    assert not registry.pull_common(client, tag, "sha256:another base", HOST)


def test_a_digest_that_is_none_is_named_with_its_file_and_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "LAYERS", tmp_path / "layers.toml")
    for text, said in (('"base:1" = "latest"\n', "base:1: 'latest' is no digest"), ("base", "layers.toml: ")):
        registry.LAYERS.write_text(text)
        with pytest.raises(registry.RegistryError, match="layers.toml: .*; `runner images pin --registry") as refused:
            registry.layer_digests()
        assert said in str(refused.value)


def test_an_image_that_is_not_what_its_pin_says_is_not_used(image: Image, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = published(image, recipe.recipe(image).input_tag)
    labels = wanted.labels("") | {"dlbench.bench_sha256": "0"}
    monkeypatch.setattr(registry.docker_client, "pull_image", lambda *_: SimpleNamespace(labels=labels))
    said: list[str] = []
    assert registry.pull(None, wanted, said.append) is None  # type: ignore[arg-type]
    assert "was built from another bench, which its tag does not say" in said[-1]


# -- prune -------------------------------------------------------------------------------------------------------------

TAG = "0123456789ab-0123456789ab"


def test_prune_says_in_words_what_an_older_image_was_built_from(image: Image) -> None:
    wanted = recipe.recipe(image)
    older = ("dockerfiles_sha256", "bench_sha256", "cuda", "framework_version", "base")
    labels = wanted.labels("") | {f"dlbench.{name}": "older" for name in older}
    here = SimpleNamespace(id="id", labels=labels, tags=[wanted.latest], attrs={})
    client: Any = SimpleNamespace(images=SimpleNamespace(list=lambda **_: [here]))
    said = f"{image.name}, built from another image.toml and another bench and other Dockerfiles"
    assert dict(registry.stale(client, {image.name: lambda: wanted})) == {"id": said}


@pytest.mark.parametrize(
    ("tags", "digests", "removed"),
    [
        (["dlbench/torch:latest", f"dlbench/torch:{TAG}", "dlbench/steps:torch"], [], "all"),
        ([], [], "all"),
        ([f"dlbench/torch:{TAG}"], [f"{HOST}/torch@{DIGEST}"], "all"),
        ([], [f"{HOST}/torch@{DIGEST}"], "all"),
        (["user.example/app:1"], [], "not listed"),
        ([], [f"user.example/app@{DIGEST}"], "not listed"),
        (["dlbench/torch:mine"], [], "not listed"),
        (["dlbench/base:mine", "dlbench/torch-of-mine:1"], [], "not listed"),
        ([f"dlbench/torch:{TAG}", f"{HOST}/torch:latest", f"{HOST}/torch:{TAG}"], [f"{HOST}/torch@{DIGEST}"], "all"),
        (["user.example/torch:mine"], [], "not listed"),
        ([f"dlbench/torch:{TAG}", "user.example/app:1"], [], [f"dlbench/torch:{TAG}"]),
    ],
)
def test_prune_removes_only_names_that_a_build_gives_and_images_that_have_no_other(
    tags: list[str], digests: list[str], removed: str | list[str]
) -> None:
    here = SimpleNamespace(id="id", labels={"dlbench.image": "torch"}, tags=tags, attrs={"RepoDigests": digests})
    taken: list[str] = []

    def listing(filters: dict[str, Any] | None = None, name: str | None = None) -> list[Any]:
        return [here] if filters == {"label": "dlbench.image"} else []

    images = SimpleNamespace(list=listing, get=lambda _: here, remove=taken.append)
    client: Any = SimpleNamespace(images=images, api=SimpleNamespace(images=lambda **_: []))
    listed = list(registry.unknown(client, []))
    assert bool(listed) is (removed != "not listed")
    if listed:
        assert registry.remove(client, "id") is None
        assert taken == ([*tags, *digests, "id"] if removed == "all" else removed)
        assert ("stays as user.example/app:1" in listed[0][1]) is (removed != "all")


# -- errors ------------------------------------------------------------------------------------------------------------


def pull_answer(error: str) -> Callable[[], object]:
    api = SimpleNamespace(_auth_configs={}, pull=lambda *_, **__: iter([{"status": "Pulling"}, {"error": error}]))
    client: Any = SimpleNamespace(api=api)
    return lambda: docker_client.pull_image(client, f"{HOST}/torch@{DIGEST}")


# As dockerd 20.10, 26 and containerd write them.
@pytest.mark.parametrize(
    ("words", "meaning", "kind"),
    [
        ("write /var/lib/docker/tmp/GetImageBlob1: no space left on device", "the engine's disk is full", DockerError),
        (f"filesystem layer verification failed for digest {DIGEST}", "damaged or tampered with", DockerError),
        (f"manifest verification failed for digest {DIGEST}", "damaged or tampered with", DockerError),
        ("unexpected commit digest sha256:1, expected sha256:2: failed precondition", "tampered with", DockerError),
        ("unauthorized: authentication required", "`docker login` names another one", DeniedError),
        ("pull access denied for x, repository does not exist", "the registry refuses this user", DeniedError),
        (
            "manifest for x not found: manifest unknown: manifest unknown",
            "the registry does not have it",
            NotThereError,
        ),
        ("Get https://x/v2/: dial tcp: lookup x: no such host", "the registry does not answer", DockerError),
        ("something that nobody knows", "could not be pulled: something that nobody knows", DockerError),
    ],
)
def test_each_error_of_a_registry_has_its_own_sentence(words: str, meaning: str, kind: type[DockerError]) -> None:
    with pytest.raises(DockerError, match="could not be pulled") as raised:
        pull_answer(words)()
    assert type(raised.value) is kind
    assert meaning in str(raised.value)
    assert str(raised.value).count(words) == 1


# tests/engine/test_registry_answers.py asks a real engine the others.
@pytest.mark.parametrize(
    ("words", "means", "fix"),
    [
        ("Get https://registry-1.docker.io/v2/: Proxy Authentication Required", "the engine's proxy refuses", "HTTPS_PROXY"),
        ("proxyconnect tcp: dial tcp 10.0.0.1:3128: connect: connection refused", "the engine's proxy refuses", "HTTPS_PROXY"),
        ("x509: certificate signed by unknown authority", "its certificate is not trusted here", "certs.d"),
        ("toomanyrequests: You have reached your pull rate limit", "no more images for now", "`docker login`"),
        ("unauthorized: authentication required", "the registry refuses this user", "`docker login`"),
        ('Get "http://x/v2/": context deadline exceeded', "the registry does not answer", "needs a proxy"),
        ("Error parsing HTTP response: invalid character '<': \"<h1>408 Request Time-out</h1>\"", "packets are lost", "MTU"),
        ("dial tcp 1.2.3.4:443: i/o timeout", "the registry does not answer", "needs a proxy"),
        ("expected HTTP 206 from byte range request", "the connection to the registry broke off", "a firewall or proxy cuts it"),
        ("no matching manifest for linux/arm64/v8 in the manifest list entries", "no build for this kind of processor", "`uname -m`"),
        (
            "image with reference x was found but does not match the specified platform: wanted linux/arm64, actual: linux/amd64",
            "no build for this kind of processor", "`uname -m`",
        ),
        ("http: server gave HTTP response to HTTPS client", "answers without encryption", "insecure-registries"),
    ],
)  # fmt: skip
def test_a_proxy_a_certificate_and_a_limit_are_not_a_registry_that_refuses_or_is_silent(
    words: str, means: str, fix: str
) -> None:
    refusal = docker_client._of_a_registry("it could not be pulled", words)
    assert means in refusal.said
    assert fix in refusal.fix
    assert str(refusal).endswith(refusal.fix)


@pytest.mark.parametrize(
    ("error", "engine", "said"),
    [
        (ReadTimeout("Read timed out. (read timeout=60)"), True, "the registry does not answer (timeout"),
        (ReadTimeoutError(HTTPConnectionPool("x"), "/", "Read timed out."), True, "the registry does not answer"),
        (ReadTimeout("Read timed out. (read timeout=60)"), False, "no container engine answers at"),
        (RequestException("Connection aborted"), True, "no container engine answers at"),
    ],
)
@pytest.mark.parametrize("asked", ["digest", "pull", "the middle of a pull"])
def test_a_registry_that_does_not_answer_is_not_called_an_engine_that_does_not(
    error: Exception, engine: bool, said: str, asked: str
) -> None:
    def fails(*_: object, **__: object) -> Any:
        raise error

    def messages(*_: object, **__: object) -> Iterator[dict[str, str]]:
        yield {"status": "Pulling"}
        raise error

    api = SimpleNamespace(pull=messages if asked == "the middle of a pull" else fails)
    images = SimpleNamespace(get_registry_data=fails)
    client: Any = SimpleNamespace(api=api, images=images, ping=(lambda: True) if engine else fails)
    call = docker_client.registry_digest if asked == "digest" else docker_client.pull_image
    with pytest.raises(EngineError) as raised:
        call(client, f"{HOST}/torch@{DIGEST}")
    assert said in str(raised.value)
    assert isinstance(raised.value, DockerError) is said.startswith("the registry")


def test_a_push_that_is_refused_is_an_error_although_the_engine_answers_200(image: Image) -> None:
    pushed = iter([{"status": "Preparing"}, {"error": "denied: requested access to the resource is denied"}])
    built = SimpleNamespace(tag=lambda *_: True, attrs={"Architecture": "amd64"})
    images = SimpleNamespace(get=lambda _: built, push=lambda *_, **__: pushed)
    client: Any = SimpleNamespace(images=images, api=SimpleNamespace(_auth_configs={}))
    with pytest.raises(registry.RegistryError, match="could not be pushed: the registry refuses this user"):
        registry.push(client, recipe.recipe(image), HOST)


@pytest.mark.parametrize(
    ("options", "tags"),
    [
        ({}, ["base", "latest", "inputs"]),
        ({"digest": DIGEST}, ["base", "latest", "inputs"]),
        ({"finish": False}, ["base", "latest"]),
    ],
)
def test_only_a_finished_image_gets_the_tag_of_its_inputs(
    image: Image, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], tags: list[str]
) -> None:
    pushed: list[str] = []
    wanted = recipe.recipe(image)
    kinds = {"latest": "latest", wanted.input_tag: "inputs"}
    monkeypatch.setattr(registry.docker_client, "find_image", lambda *_: None)
    monkeypatch.setattr(registry, "_push", lambda *words: pushed.append(kinds.get(words[3], "base")) or DIGEST)
    assert registry.push(None, wanted, HOST, **options).endswith(f"@{DIGEST}")  # type: ignore[arg-type]
    assert pushed == tags
    pushed.clear()
    with pytest.raises(registry.RegistryError, match="it gets no tag of its inputs"):
        registry.push(None, wanted, HOST, digest="sha256:" + "0" * 64)  # type: ignore[arg-type]
    assert pushed == ["base", "latest"]


def test_an_index_is_of_both_images_and_another_architecture_has_tags_of_its_own(
    image: Image, monkeypatch: pytest.MonkeyPatch
) -> None:
    pushed: list[str] = []
    indexes: list[tuple[str, list[str]]] = []
    wanted = recipe.recipe(image)
    monkeypatch.setattr(registry, "_push", lambda *words: pushed.append(words[3]) or DIGEST)
    monkeypatch.setattr(registry, "_push_index", lambda name, both: indexes.append((name, both)) or "sha256:index")
    other = "sha256:" + "a" * 64
    monkeypatch.setattr(
        registry.docker_client,
        "registry_digest",
        lambda _, name: other if name.endswith(f":{wanted.input_tag}-arm64") else "",
    )
    monkeypatch.setattr(
        registry.docker_client, "find_image", lambda *_: SimpleNamespace(attrs={"Architecture": "amd64"})
    )
    repository = f"{HOST}/{image.name}"
    client: Any = None
    assert registry.push(client, wanted, HOST, index="arm64") == f"{repository}:{wanted.input_tag}@sha256:index"
    both = [f"{repository}@{DIGEST}", f"{repository}@{other}"]
    assert indexes == [(f"{repository}:latest", both), (f"{repository}:{wanted.input_tag}", both)]
    # The tag of the inputs is never one architecture's alone.
    assert wanted.input_tag not in pushed
    pushed.clear()
    monkeypatch.setattr(
        registry.docker_client, "find_image", lambda *_: SimpleNamespace(attrs={"Architecture": "arm64"})
    )
    assert registry.push(client, wanted, HOST, finish=False) == f"{repository}:{wanted.input_tag}-arm64@{DIGEST}"
    assert all(tag.endswith("-arm64") for tag in pushed)
    with pytest.raises(registry.RegistryError, match="is built for arm64; push it, and the index on x86_64"):
        registry.push(client, wanted, HOST, index="arm64")


@pytest.mark.parametrize("name", ["amd64", "x86_64", "riscv64", ""])
def test_an_index_of_no_other_architecture_is_refused_before_anything_is_pushed(name: str) -> None:
    result = CliRunner().invoke(app, ["images", "push", HOST, "torch-2.13.0-cpu", "--index", name])
    assert result.exit_code == 2
    assert f"--index: {name!r} is not another architecture than this image's; write arm64" in result.output


def test_of_many_steps_prune_looks_only_at_the_old_ones_that_no_image_needs() -> None:
    now = time.time()
    listed = [
        {"Id": "young", "Created": now, "Labels": None},
        {"Id": "of-an-image", "Created": now - 7200, "Labels": {"dlbench.image": "torch-2.13.0-cpu"}},
        {"Id": "old", "Created": now - 7200, "Labels": {"dlbench.common": "x"}},
    ]
    seen: list[str] = []

    def get(image_id: str) -> SimpleNamespace:
        seen.append(image_id)
        return SimpleNamespace(id=image_id, labels={}, tags=[], attrs={})

    client: Any = SimpleNamespace(
        api=SimpleNamespace(images=lambda **_: listed), images=SimpleNamespace(list=lambda **_: [], get=get)
    )
    assert list(registry.unknown(client, [])) == [("old", "a step of a build")]
    assert seen == ["old"]

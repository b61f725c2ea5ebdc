"""The site's settings of pip reach uv: each as uv's own argument or variable, and none that would install something else."""

from __future__ import annotations

from pathlib import Path

import pytest

from runner.images import installing


@pytest.mark.parametrize(
    ("configured", "expected"),
    [
        ({}, []),
        ({"PIP_INDEX_URL": "https://site/simple"}, ["--default-index", "https://site/simple"]),
        (
            {"PIP_EXTRA_INDEX_URL": "https://a/simple\nfile:///b/simple"},
            ["--extra-index-url", "https://a/simple", "--extra-index-url", "file:///b/simple"],
        ),
        ({"PIP_FIND_LINKS": "https://site/wheels"}, ["--find-links", "https://site/wheels"]),
        ({"PIP_TRUSTED_HOST": "a b"}, ["--allow-insecure-host", "a", "--allow-insecure-host", "b"]),
        ({"PIP_NO_INDEX": "true"}, ["--no-index"]),
        ({"PIP_NO_INDEX": "0"}, []),
        ({"PIP_NO_CACHE_DIR": "yes"}, ["--no-cache"]),
        ({"PIP_KEYRING_PROVIDER": "subprocess"}, ["--keyring-provider", "subprocess"]),
        ({"PIP_USE_FEATURE": "fast-deps truststore"}, ["--system-certs"]),
        # An empty setting is none.
        ({"PIP_INDEX_URL": ""}, []),
        # The lock says what is installed, and the environment where.
        ({"PIP_TARGET": "/mine", "PIP_PREFIX": "/mine", "PIP_CONSTRAINT": "/gone.txt", "PIP_PRE": "1"}, []),
    ],
)
def test_each_setting_of_pip_is_an_argument_of_uv(configured: dict[str, str], expected: list[str]) -> None:
    assert installing.uv_arguments(installing.pip_options(configured, {})) == expected


def test_a_folder_of_wheels_that_is_not_there_is_passed_over_as_pip_does(tmp_path: Path) -> None:
    links = f"{tmp_path} {tmp_path / 'gone'} file://{tmp_path / 'gone'} file://{tmp_path}"
    assert installing.uv_arguments({"find-links": links}) == ["--find-links", str(tmp_path)] * 2


def test_a_variable_of_the_user_goes_before_a_file_of_the_site() -> None:
    options = installing.pip_options(
        {"PIP_INDEX_URL": "https://site", "PIP_CERT": "/site"}, {"PIP_INDEX_URL": "https://mine"}
    )
    assert options == {"index-url": "https://mine", "cert": "/site"}


def test_certificates_proxies_and_times_are_variables_of_uv() -> None:
    options = {
        "cert": "/ca.pem",
        "client-cert": "/me.pem",
        "proxy": "http://proxy:3128",
        "timeout": "180",
        "retries": "9",
    }
    environment = installing.uv_variables(
        options, {"PATH": "/bin", "https_proxy": "http://other", "SSL_CERT_FILE": "/else"}
    )
    proxies = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
    assert environment == {
        "PATH": "/bin",
        "SSL_CERT_FILE": "/ca.pem",
        "SSL_CLIENT_CERT": "/me.pem",
        "UV_HTTP_TIMEOUT": "180",
        "UV_HTTP_RETRIES": "9",
        **dict.fromkeys(proxies, "http://proxy:3128"),
    }


def test_what_pip_takes_its_authorities_from_otherwise_holds_for_uv() -> None:
    assert installing.uv_variables({}, {"REQUESTS_CA_BUNDLE": "/ca.pem"})["SSL_CERT_FILE"] == "/ca.pem"
    assert installing.uv_variables({}, {"SSL_CERT_FILE": "/own.pem"})["SSL_CERT_FILE"] == "/own.pem"


def test_the_cache_lies_where_the_site_has_pips() -> None:
    assert installing.uv_variables({"cache-dir": "/large"}, {})["UV_CACHE_DIR"] == "/large/uv"
    assert installing.uv_variables({"cache-dir": "/large"}, {"UV_CACHE_DIR": "/own"})["UV_CACHE_DIR"] == "/own"


def test_of_uvs_own_variables_only_those_hold_that_say_from_where_and_how_to_fetch() -> None:
    hold = dict.fromkeys(
        ("UV_OFFLINE", "UV_INDEX", "UV_DEFAULT_INDEX", "UV_FIND_LINKS", "UV_INDEX_SITE_PASSWORD", "UV_CACHE_DIR"), "x"
    )
    others = dict.fromkeys(
        ("UV_TARGET", "UV_LINK_MODE", "UV_CONSTRAINT", "UV_NO_VERIFY_HASHES", "UV_COMPILE_BYTECODE"), "x"
    )
    assert installing.uv_variables({}, hold | others) == hold

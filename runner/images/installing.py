"""How packages are installed: as the site's settings of pip say, by uv, which reads none of them. And a checkout's own .venv.

`python -m runner.images.installing requirements-host.lock` makes it. In the standard library only: it installs what the runner needs.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from runner.errors import naming

# The settings of the user's and the site's pip.conf, as pip itself reads them, and the pip that a Python brings.

_PIP_LINE = re.compile(r"^(?:global|install)\.([a-z-]+)=(['\"].*)$", flags=re.M)

# Settings that would install elsewhere than in an environment, or something else than its lock.
MISPLACING = ("target", "prefix", "root", "requirement", "constraint", "user", "editable")

_BUNDLED = """
import ensurepip, glob, os
folder = getattr(ensurepip, "_WHEEL_PKG_DIR", None) or os.path.join(os.path.dirname(ensurepip.__file__), "_bundled")
print("\\n".join(glob.glob(os.path.join(glob.escape(folder), "*.whl"))))
"""


def bundled_wheels(python: str) -> list[str]:
    """The paths of the wheels of pip and setuptools that an interpreter brings; [] where they lie elsewhere.

    They are what ensurepip installs, which takes four seconds of CPU time for it.
    """
    printed = subprocess.run([python, "-I", "-c", _BUNDLED], capture_output=True, text=True, check=False).stdout
    wheels = [line for line in printed.split("\n") if line]
    return wheels if any(Path(wheel).name.startswith("pip-") for wheel in wheels) else []


def pip_settings(python: str) -> dict[str, str]:
    """The value of each setting by its name, of `global` and then of `install`, as this interpreter's pip has it; nothing without pip."""
    command = [python, "-m", "pip", "--disable-pip-version-check", "config", "list"]
    try:
        printed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return {option: str(ast.literal_eval(value)) for option, value in _PIP_LINE.findall(printed)}


def pip_variables(python: str) -> dict[str, str]:
    """The same as variables of the environment, for a pip that reads no file; without the settings of MISPLACING."""
    return {
        "PIP_" + option.upper().replace("-", "_"): " ".join(value.split())
        for option, value in pip_settings(python).items()
        if option not in MISPLACING
    }


# The same settings as uv takes them.
#
# uv's own variables are handed on where they say from where and how to fetch. A setting of pip goes before them. Those that would install
# elsewhere, or something else than the lock, are not handed on.

# Files are copied: a cell that writes into its environment must not change uv's cache, of which others are made. Every index is asked, as
# by pip, since the digests of the lock say which file is right.
UV_FLAGS = ("--no-config", "--link-mode", "copy", "--no-deps", "--index-strategy", "unsafe-best-match")

# The options of pip that uv has under another name or the same, once for each word of the value.
_UV_OPTIONS = {
    "index-url": "--default-index",
    "extra-index-url": "--extra-index-url",
    "find-links": "--find-links",
    "trusted-host": "--allow-insecure-host",
}
# Those that are variables of uv.
_UV_VARIABLES = {"client-cert": "SSL_CLIENT_CERT", "timeout": "UV_HTTP_TIMEOUT", "retries": "UV_HTTP_RETRIES"}
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY")
_TRUE = ("y", "yes", "t", "true", "on", "1")

# uv's own variables that are handed on.
_OF_UV = re.compile(
    r"UV_(CACHE_DIR|NO_CACHE|OFFLINE|INDEX|DEFAULT_INDEX|INDEX_URL|EXTRA_INDEX_URL|FIND_LINKS|INDEX_\w+_(USERNAME|PASSWORD)|KEYRING_PROVIDER"
    r"|INSECURE_HOST|SYSTEM_CERTS|NATIVE_TLS|HTTP_TIMEOUT|HTTP_RETRIES|CONCURRENT_\w+)"
)


def pip_options(configured: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """pip's options by name: a variable of the environment goes before a file. configured: PIP_* -> value, of the files."""
    named = {**configured, **{name: value for name, value in environment.items() if name.startswith("PIP_")}}
    return {name[4:].lower().replace("_", "-"): value for name, value in named.items() if value}


def uv_arguments(options: Mapping[str, str]) -> list[str]:
    """The arguments of `uv pip install` for these options of pip."""
    found = [
        part
        for option, own in _UV_OPTIONS.items()
        for each in _words_of_option(options, option)
        for part in (own, each)
    ]
    if options.get("no-index", "").lower() in _TRUE:
        found.append("--no-index")
    if options.get("no-cache-dir", "").lower() in _TRUE:
        found.append("--no-cache")
    if options.get("keyring-provider") in ("subprocess", "disabled"):
        found += ["--keyring-provider", options["keyring-provider"]]
    # pip takes the authorities of the machine where it is asked to.
    if "truststore" in options.get("use-feature", ""):
        found.append("--system-certs")
    return found


def _words_of_option(options: Mapping[str, str], option: str) -> Iterator[str]:
    for word in options.get(option, "").split():
        local = (
            word.removeprefix("file://")
            if option == "find-links" and (word[:7] == "file://" or "://" not in word)
            else None
        )
        # pip passes over a folder that is not there, and uv ends.
        if local is None or Path(local).expanduser().exists():
            yield word if local is None else str(Path(local).expanduser())


def uv_variables(options: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of uv, of the environment that pip would have."""
    own = {name: value for name, value in environment.items() if not name.startswith("UV_") or _OF_UV.fullmatch(name)}
    # Both go before what else says which authorities to trust.
    certificate = options.get("cert") or environment.get("REQUESTS_CA_BUNDLE") or environment.get("CURL_CA_BUNDLE")
    if certificate:
        own["SSL_CERT_FILE"] = certificate
    if proxy := options.get("proxy"):
        own |= dict.fromkeys((*_PROXIES, *map(str.lower, _PROXIES)), proxy)
    own |= {name: options[option] for option, name in _UV_VARIABLES.items() if option in options}
    if "cache-dir" in options and "UV_CACHE_DIR" not in own:
        # A site that moves pip's cache to a large disk moves this one, too.
        own["UV_CACHE_DIR"] = str(Path(options["cache-dir"]) / "uv")
    return own


# A checkout's .venv. uv installs, and its own pin in the lock says which uv. If it cannot, pip does. One import of the runner then writes
# the bytecode that its commands use.

VENV = Path(".venv")
_PYTHON = str(VENV / "bin" / "python")
_PIP = (_PYTHON, "-m", "pip", "--quiet", "--disable-pip-version-check", "install")

# Each module of the runner and of the reports, so that what they import of others is compiled. A missing extra is no fault.
_IMPORTS = """
import contextlib, importlib, pkgutil, reports, runner
for package in (runner, reports):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        with contextlib.suppress(Exception):
            if not module.name.endswith("__main__"):
                importlib.import_module(module.name)
"""


def pin(lock: str, name: str) -> str:
    """The lines of a lock that pin a package, with their digests."""
    found = re.search(rf"^{name}==(?:.*\\\n)*.*\n", lock, re.MULTILINE)
    if found is None:
        raise SystemExit(f"the lock has no {name}")
    return found[0]


def main(name: str) -> None:
    """Install the lock of this name, of the folder that this is started in, and the checkout itself."""
    lock = Path(name).read_text(encoding="utf-8")
    print(
        f"making .venv: uv installs the {len(re.findall('^[a-z].*==', lock, re.MULTILINE))} packages of {name}",
        flush=True,
    )
    if not (Path(_PYTHON).is_file() and _succeeds([_PYTHON, "-m", "pip", "--version"], quiet=True)):
        _make_venv()
    own = VENV / "uv.lock"
    with naming(own):
        own.write_text(pin(lock, "uv"), encoding="utf-8")
    _must([*_PIP, "--no-deps", "--no-compile", "--require-hashes", "-r", str(own)])
    options = pip_options(pip_variables(_PYTHON), os.environ)
    by_uv = [str(VENV / "bin" / "uv"), "pip", "install", "--quiet", "--python", _PYTHON, *UV_FLAGS]
    by_uv += uv_arguments(options)
    environment = uv_variables(options, os.environ)
    for words in (["--require-hashes", "-r", name], ["--no-build-isolation", "-e", "."]):
        if not _succeeds([*by_uv, *words], environment):
            print("uv could not install it, so pip tries it", flush=True)
            _must([*_PIP, "--no-deps", *words])
    _succeeds(
        [_PYTHON, "-c", _IMPORTS],
        {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"},
        quiet=True,
    )


def _make_venv() -> None:
    """Make .venv with the pip that this Python brings. Started from its wheel it installs itself in a third of ensurepip's time."""
    _must([sys.executable, "-m", "venv", "--clear", "--without-pip", str(VENV)])
    wheels = bundled_wheels(sys.executable)
    pip = next((wheel for wheel in wheels if Path(wheel).name.startswith("pip-")), None)
    install = ["install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-compile", *wheels]
    if pip is None or not _succeeds([_PYTHON, f"{pip}/pip", *install], quiet=True):
        _must([_PYTHON, "-m", "ensurepip", "--upgrade", "--default-pip"])


def _succeeds(command: Sequence[str], environment: Mapping[str, str] | None = None, quiet: bool = False) -> bool:
    output = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, env=environment, stdout=output, stderr=output, check=False).returncode == 0


def _must(command: Sequence[str]) -> None:
    if not _succeeds(command):
        raise SystemExit(f"`{' '.join(command)}` failed; its words stand above")


if __name__ == "__main__":
    main(sys.argv[1])

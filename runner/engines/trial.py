"""Try an image on this machine's CPU: make it ready, import its frameworks, hold its adapters against the reference.

The output of the image's processes is untrusted: it is bounded, and read as one JSON line of a known form.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date
from pathlib import Path
from typing import Literal

from packaging.utils import canonicalize_name
from packaging.version import Version
from pydantic import Field, FiniteFloat

from bench import rules
from runner import errors, trees
from runner.catalog.images import ComputeCapability, Image, is_within, version_contradiction
from runner.engines import cell_cache, probe
from runner.engines.base import Engine, EngineError, Launch, ReadyImage, Slot
from runner.engines.process import venv
from runner.engines.process.interpreters import Interpreter, find_interpreter
from runner.images.tried import WITHOUT_DRIVER, AdapterCheck, Outcome, Tried, adapter_sha256
from runner.results.validate import Strict
from runner.text import visible

IMPORT_SECONDS = 300
# A verdict and a list of frameworks are below 100 KB.
_MOST_BYTES = 1024 * 1024
_LONGEST = 300

# NVIDIA's libraries, and the plugins that need them: half to nine tenths of a lock's bytes.
_GPU_ONLY = re.compile(r"nvidia-|cuda-|jax-cuda")
# The line of a Python traceback that begins the message, which may go on.
_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Unsupported)(: |$)")
# The import that failed, of a library of the driver that is not installed. CNTK's loader tries another name then, and fails with that one.
_NO_DRIVER = re.compile(
    r"^(ImportError|OSError): (libcuda|libnvidia-ml)\.so(\.1)?: cannot open shared object file.*", re.M
)
_PIN = re.compile(r"^(?=\S)", re.M)


class _Version(Strict):
    framework: str
    version: str = Field(max_length=100)
    # The versions of the framework and of CUDA, by the framework: package or library -> version; and its build's GPUs.
    versions: dict[str, str | None] = Field(default={})
    code_for: list[ComputeCapability] | None = Field(None, max_length=100)

    def contradictions(self, image: Image) -> list[str]:
        """The framework's answers that contradict the image's lock or image.toml: each of its cells would fail by it."""
        versions = {name: version for name, version in self.versions.items() if version}
        said = {"framework": self.framework, "framework_version": self.version, "versions": versions}
        wrong = [sentence for sentence in [version_contradiction(image, said)] if sentence]
        if self.code_for and image.accelerator == "cuda":
            ordered = sorted(self.code_for, key=Version)
            least, most = image.min_compute_capability, image.max_compute_capability
            # Code for 8.6 runs on 8.9.
            for field, declared, own, parts in (
                ("min_compute_capability", least, ordered[0], 2),
                ("max_compute_capability", most, ordered[-1], 1),
            ):
                if declared and not is_within(own, declared, parts):
                    wrong.append(f"it says {field} {own}, and image.toml says {declared}")
        return wrong


class _Verdict(Strict):
    """The output of `python -m bench check`."""

    failed: list[str]
    worst: FiniteFloat = Field(ge=0)
    compared: int = Field(gt=0)


def split_lock(text: str) -> tuple[str, str, list[str]]:
    """A lock in two, without and with what is for GPUs only, and the latter's pins such as "nvidia-nccl-cu12==2.27.7"."""
    parts = ["", ""]
    left_out = []
    for pin in _PIN.split(text):
        of_gpu = _GPU_ONLY.match(canonicalize_name(pin.split("==")[0])) is not None
        parts[of_gpu] += pin
        if of_gpu:
            left_out.append(pin.split()[0])
    return parts[0], parts[1], left_out


class TrialEngine(venv.VenvEngine):
    """The engine `venv`, whose cells find the libraries in `driver` first: stand-ins for those of a driver that is not here."""

    def __init__(self, driver: Path | None = None) -> None:
        super().__init__()
        self._driver = driver

    @property
    def libraries(self) -> tuple[str, ...]:
        """The names of the stand-ins."""
        return tuple(sorted(path.name for path in self._driver.glob("*.so*"))) if self._driver else ()

    def variables(self) -> dict[str, str]:
        return super().variables() | ({"LD_LIBRARY_PATH": str(self._driver.resolve())} if self._driver else {})


def environment(image: Image, engine: TrialEngine, say: Callable[[str], None]) -> tuple[ReadyImage, list[str]]:
    """An environment of the image, and the pins that it lacks: NVIDIA's, where the frameworks are imported without them.

    It is made unless it is there. Raises EngineError.
    """
    interpreter = find_interpreter(image.python)
    if isinstance(interpreter, str):
        raise EngineError(interpreter)
    if sentence := venv.missing_programs(image):
        raise EngineError(sentence)
    folder = venv.trial_folder(venv.environment_folder(image, interpreter))
    prepared = ReadyImage(image, f"sha256:{image.lock_sha256}", (str(folder / "bin" / "python"), "-m", "bench"))
    marker = folder / venv.COMPLETE_TRIAL
    try:
        with venv.alone(folder, say):
            if marker.is_file():
                return prepared, marker.read_text().split()
            try:
                left_out = _install(image, engine, prepared, interpreter, folder, say)
                with errors.naming(marker):
                    marker.write_text("\n".join(left_out))
            except BaseException:
                # Nobody would take it up: the next try begins anew.
                trees.remove(folder)
                raise
    except OSError as error:
        raise EngineError(f"{image.name}: {folder} could not be made ({errors.system_fault(error)})") from error
    return prepared, left_out


def _install(
    image: Image,
    engine: TrialEngine,
    prepared: ReadyImage,
    interpreter: Interpreter,
    folder: Path,
    say: Callable[[str], None],
) -> list[str]:
    """Make the environment; the pins that it lacks. Raises EngineError and OSError."""
    without, only, left_out = split_lock(image.lock_path.read_text(encoding="utf-8"))
    new = venv.NewEnvironment(image, interpreter, folder, say)
    lock = folder / "part.lock"
    with errors.naming(lock):
        lock.write_text(without, encoding="utf-8")
    new.install(lock)
    new.build_sources()
    if left_out and imports(engine, prepared, image.frameworks, whole=False)[1]:
        say(f"{image.name}: a framework is not imported without NVIDIA's wheels, so they are installed")
        with errors.naming(lock):
            lock.write_text(only, encoding="utf-8")
        new.install(lock)
        left_out = []
    if not left_out:
        new.finish()
    return left_out


def remove(prepared: ReadyImage) -> None:
    """Remove an environment that `environment` made."""
    folder = Path(prepared.command[0]).parent.parent
    # First: half an environment must not pass for a whole one.
    (folder / venv.COMPLETE_TRIAL).unlink(missing_ok=True)
    trees.remove(folder)


def imports(
    engine: Engine, prepared: ReadyImage, frameworks: Iterable[str], whole: bool = True
) -> tuple[dict[str, str], dict[str, str]]:
    """(framework -> its version, framework -> why it is not imported, or what it says otherwise than image.toml).

    Without NVIDIA's wheels the lock is not `whole`, and their versions are not compared.
    """
    versions, failed = {}, {}
    for framework in frameworks:
        if "entrypoint" in rules.framework_declaration(framework):
            # It is of another language. Its checks import it.
            versions[framework] = prepared.image.framework_version
            continue
        printed, log, code = _output(engine, prepared, ["frameworks", "--framework", framework], IMPORT_SECONDS)
        try:
            said = _Version.model_validate(json.loads(printed or b"")[0])
        except (ValueError, IndexError, KeyError, TypeError, RecursionError):
            no_driver = _NO_DRIVER.search(log) if prepared.image.accelerator == "cuda" else None
            failed[framework] = _plain(WITHOUT_DRIVER + no_driver[0]) if no_driver else _last_line(log)
            continue
        if code:
            failed[framework] = f"it was imported, and its process ended with exit code {code}"
        elif said.framework != framework:
            failed[framework] = _plain(f"it calls itself {said.framework}")
        elif wrong := said.contradictions(prepared.image) if whole else []:
            failed[framework] = _plain("; ".join(wrong))
        else:
            versions[framework] = _plain(said.version)
    return versions, failed


def attempt(
    engine: Engine,
    name: Literal["venv", "docker"],
    prepared: ReadyImage,
    left_out: Sequence[str],
    checks: Collection[tuple[str, str, str]],
    limit: float,
    say: Callable[[str], None],
    checked: Callable[[Tried], None],
) -> Tried:
    """Import the frameworks and run the checks (framework, workload, precision), each for at most `limit` seconds.

    `checked` gets what was tried so far, after each check.
    """
    image = prepared.image
    versions, failed = imports(engine, prepared, image.frameworks, whole=not left_out)
    tried = Tried(
        image=image.name,
        lock_sha256=image.lock_sha256,
        date=date.today(),
        python=image.python,
        engine=name,
        driver=engine.libraries if isinstance(engine, TrialEngine) else (),
        left_out=tuple(left_out),
        imported=versions,
        failed=failed,
    )
    for framework, workload, precision in checks:
        if framework in versions:
            check = check_adapter(engine, prepared, framework, workload, precision, limit)
            say(f"{image.name} {framework} {workload} {precision}: {check.outcome} {check.reason or check.worst}")
            tried = tried.model_copy(update={"checks": (*tried.checks, check)})
            checked(tried)
    return tried


def check_adapter(
    engine: Engine,
    prepared: ReadyImage,
    framework: str,
    workload: str,
    precision: str,
    limit: float,
    slot: Slot | None = None,
) -> AdapterCheck:
    """Hold one adapter against the reference, on a slot of the machine or on all of its CPUs. Raises EngineError."""
    device = slot.device_kind if slot else "cpu"
    arguments = ["check", workload, "--framework", framework, "--device", device, "--precision", precision]
    adapter = adapter_sha256(framework, workload)
    printed, log, code = _output(engine, prepared, arguments, limit, slot)
    outcome: Outcome = "ok"
    worst, compared, reason = None, None, ""
    if printed is None:
        outcome, reason = "unfinished", f"it did not end within {limit:g} seconds"
    else:
        try:
            verdict = _Verdict.model_validate(json.loads(printed))
            worst, compared = verdict.worst, verdict.compared
        except (ValueError, RecursionError):
            reason = _last_line(log)
            # The adapter says that this version of the framework cannot do it.
            outcome = "unsupported" if reason.startswith(probe.UNSUPPORTED) else "error"
            reason = reason.removeprefix(probe.UNSUPPORTED)
        else:
            if verdict.failed or verdict.worst > 1:
                outcome, reason = "wrong", _plain("; ".join(verdict.failed[:3])) or "an error is above its bound"
            elif code:
                outcome, reason = "error", f"its verdict is good, and its process ended with exit code {code}"
    return AdapterCheck(
        framework=framework,
        workload=workload,
        precision=precision,
        outcome=outcome,
        date=date.today(),
        worst=worst,
        compared=compared,
        adapter_sha256=adapter,
        reason=reason,
    )


def _output(
    engine: Engine, prepared: ReadyImage, arguments: Sequence[str], limit: float, slot: Slot | None = None
) -> tuple[bytes | None, str, int]:
    """(the last line of standard output, None where it took too long; the end of standard error; the exit code)."""
    slot = slot or Slot("cpu", (), tuple(sorted(os.sched_getaffinity(0))), None)
    cache = cell_cache.folder_of(engine.name, prepared.image.name, prepared.digest)
    running = engine.start(Launch(prepared, arguments, slot, "images-try", cache))
    try:
        said = probe.printed(running, limit, _MOST_BYTES)
    finally:
        cell_cache.disarm(cache)
    line = None if said.late else (said.output.splitlines() or [b""])[-1]
    return line, said.ended.log_tail, said.ended.code


def _last_line(log: str) -> str:
    """The last line that names an error; else the last one that is not empty."""
    lines = [visible(line.rstrip()) for line in log.splitlines() if line.strip()]
    named = [line for line in lines if _ERROR.match(line)]
    return _plain((named or lines or ["it printed nothing"])[-1])


def _plain(text: str) -> str:
    """A text of an image as one line that is safe to show, as long as a record takes it."""
    return " ".join(visible(text).split())[:_LONGEST]

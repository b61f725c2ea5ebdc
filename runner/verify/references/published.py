"""The numbers that the founding documents published, each with its source and date.

published.csv holds a row a number. An empty field is a fact that the source does not state; it is read as None and never filled in.
These numbers have no interval and come from old software. They are shown beside a measurement and calibrate the model of
runner/verify/references/published.py; they give no verdict.
"""

from __future__ import annotations

import csv
import functools
import re
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import numpy as np
from pydantic import BeforeValidator, Field, ValidationError

from runner.errors import UserError
from runner.results.plausible.counts import MULTIPLY_ADDS
from runner.results.validate import Frozen
from runner.text import in_a_line
from runner.verify.probes.ceilings import Ceilings, best
from runner.verify.references.saved import MAX_BYTES, Reference, SavedError, read

# Files of an index, or saved references, by their address. Each is bounded in size; a proxy or a web page in the way is named.

_SECONDS = 30


class DownloadError(UserError):
    """An address that cannot be read; the message says why."""


def download(address: str, most: int) -> bytes:
    """The content of an address, at most so many bytes. Raises DownloadError."""
    try:
        with urllib.request.build_opener().open(address, timeout=_SECONDS) as answer:
            content: bytes = answer.read(most + 1)
    except (OSError, ValueError) as error:
        said = error.reason if isinstance(error, urllib.error.URLError) else getattr(error, "strerror", None) or error
        raise DownloadError(f"cannot be read{_through(address)} ({in_a_line(str(said), 300)})") from None
    if len(content) > most:
        raise DownloadError(f"has more than {most} bytes")
    if content[:200].lstrip()[:1] == b"<":
        raise DownloadError(
            "is a web page: a network that asks for a login first answers so, and so does another address"
        )
    return content


def _through(address: str) -> str:
    """Which proxy is asked, since an error is the proxy's then as well."""
    parts = urlsplit(address)
    proxy = urllib.request.getproxies().get(parts.scheme)
    if not proxy or urllib.request.proxy_bypass(parts.netloc):
        return ""
    # Without the name and the password that it may hold.
    place = proxy.rpartition("@")[2].rpartition("//")[2]
    return f" through the proxy {in_a_line(place, 100)} that {parts.scheme.upper()}_PROXY names"


def fetched(address: str) -> Reference:
    """A saved reference by its address, with every hash checked. Raises SavedError."""
    try:
        content = download(address, MAX_BYTES)
    except DownloadError as error:
        raise SavedError(
            f"{address} {error}; name the address of a file that `runner reference export` wrote"
        ) from None
    with tempfile.NamedTemporaryFile(suffix=".reference.parquet") as file:
        file.write(content)
        file.flush()
        try:
            return read(Path(file.name))
        except SavedError as error:
            raise SavedError(str(error).replace(file.name, address)) from None


PUBLISHED = Path(__file__).with_name("published.csv")

Text = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f]+$")]


def _gap(value: object) -> object:
    return None if value == "" else value


Gap = BeforeValidator(_gap)
MaybeText = Annotated[Text | None, Gap]


class PublishedError(UserError):
    """A reference that cannot be used; the message names file, place and fix."""


class Published(Frozen):
    """One published number. A field that is None is a gap of its source."""

    source: Text
    date: Annotated[str, Field(pattern=r"^\d{4}-\d{2}(-\d{2})?$")]
    workload: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    framework: Text
    api: MaybeText
    language: Annotated[Literal["python", "julia", "r"] | None, Gap]
    gpu: MaybeText
    gpu_count: Annotated[int | None, Field(ge=0, le=10_000), Gap]  # 0: a CPU
    cuda: MaybeText
    cudnn: MaybeText
    precision: Annotated[Literal["fp64", "fp32", "tf32", "bf16", "fp16"] | None, Gap]
    data: Annotated[Literal["real", "synthetic"] | None, Gap]
    metric: Text
    value: Annotated[float, Field(allow_inf_nan=False)]
    unit: Text
    note: MaybeText

    @property
    def label(self) -> str:
        """The source's name for it, else framework and interface."""
        if label := re.search(r'label="([^"]+)"', self.note or ""):
            return label[1]
        return self.framework if self.api in (None, "native") else f"{self.framework} ({self.api})"

    @property
    def seconds(self) -> float | None:
        """The value in seconds, where it is a time."""
        return {"s": 1.0, "min": 60.0, "ms": 1e-3}[self.unit] * self.value if self.unit in ("s", "min", "ms") else None


@functools.cache
def load_published(path: Path = PUBLISHED) -> tuple[Published, ...]:
    """Every published row, in the file's order. Raises PublishedError."""
    rows = []
    try:
        with open(path, newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, strict=True)
            if reader.fieldnames != list(Published.model_fields):
                raise PublishedError(f"{path}: the header is not {','.join(Published.model_fields)}; restore the file")
            for row in reader:
                rows.append(Published.model_validate(row))  # noqa: PERF401 - the line's number is needed where one fails
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"][:1]) or "the row"
        raise PublishedError(f"{path}:{reader.line_num}: {field}: {first['msg']}; fix the row") from None
    except (OSError, csv.Error, UnicodeDecodeError) as error:
        raise PublishedError(f"{path} cannot be read ({error}); restore the file") from None
    return tuple(rows)


# Items of a whole published training run: epochs x whole batches x batch size (the workload's specification). On n
# GPUs the batch is n times as large and the items are as many. Knet and Flux took fewer on a CPU than on a GPU: 10 steps of the perceptron
# instead of 200, one epoch of the convolutions instead of ten. The X-rays' time from files holds a validation pass an epoch as well.
ITEMS = {
    "cnn-cifar10": 10 * 781 * 64,
    "gru-imdb": 3 * 390 * 64,
    "mlp-mnist": 200 * 60_000,
    "cnn-mnist": 10 * 60 * 1000,
    "densenet121-chestxray": 5 * 1364 * 64,
    "densenet121-synthetic": 5 * 1364 * 64,
}
ITEMS_ON_A_CPU = {"mlp-mnist": 10 * 60_000, "cnn-mnist": 60 * 1000}
CPU = "none (CPU)"  # what the rows call it

# workload -> (workload, metric, data) of the rows that give its whole training, where they are not (itself, "train_time", whatever it is)
_ROWS = {
    "densenet121-chestxray": ("densenet121-chestxray", "train_plus_val_time", "real"),
    "densenet121-synthetic": ("densenet121-chestxray", "train_time", "synthetic"),
}


def training_times(
    rows: Iterable[Published], workload: str, gpus: Sequence[str] | None = None, counts: Sequence[int] = (1,)
) -> list[Published]:
    """The rows that give the seconds of a workload's whole training, on GPUs in fp32: of the models `gpus`, of so many as `counts` says.

    A CPU is a model as well (CPU), and is left out unless it is wanted: its rows are fp64 and of shorter runs.
    """
    named, metric, data = _ROWS.get(workload, (workload, "train_time", None))
    return [
        row
        for row in rows
        if (row.workload, row.metric) == (named, metric)
        and data in (None, row.data)
        and ((row.gpu_count in counts and row.precision == "fp32") or (row.gpu == CPU and gpus is not None))
        and row.seconds is not None
        and row.gpu is not None
        and (gpus is None or row.gpu in gpus)
    ]


def items_per_second(row: Published, workload: str | None = None) -> float | None:
    """A whole training's items over its seconds: first step and shuffling are inside. `workload`: ours, where two share the row's."""
    items = (ITEMS_ON_A_CPU if row.gpu == CPU else ITEMS).get(workload or row.workload)
    return items / row.seconds if row.seconds and items else None


def devices_of(rows: Iterable[Published], workload: str) -> list[str]:
    """The models, "unstated GPU" and the CPU among them, that a workload's training times are of, in the file's order."""
    devices = [row.gpu for row in training_times(rows, workload)]
    devices += [row.gpu for row in training_times(rows, workload, [CPU]) if items_per_second(row) is not None]
    return list(dict.fromkeys(device for device in devices if device is not None))


# The time that a step should take where there is no reference: a model over the ceilings that were measured before the cells.
#
# step = (flops / matmul rate + bytes / copy rate + launches x launch time) x inefficiency
#
# The model is coarse. The published rows show how coarse: on the datasheets of K80, M60, P40, P100, V100 and Titan V the same model gives
# a time for each published training, and the published time over the modelled time is the inefficiency. Programs reach only a part of the
# ceilings. That part differs by framework and by workload, so each workload has its own range of inefficiencies. The lower end of a
# modelled step is the time at the ceilings: they are measured here, and no datasheet's.


@dataclass(frozen=True)
class Work:
    """The work of one training step of a workload, from its specification."""

    flops: float  # multiply and add counted as two; backward twice the forward
    bytes: float  # parameters, gradients and optimiser state; activations forward and back, float32
    launches: float  # kernels that follow one another, each waiting for the last: fused layers count as one
    steps: int  # of the published training


_BATCH = 64
_FLOAT = 4

# cnn-cifar10: 3 441 592 parameters with gradient and momentum, each read and written; activations of
# the six layers (50+50 maps of 32x32, 50+100+100 of 16x16 and below) written once and read twice.
_CNN = Work(
    flops=3 * 2 * MULTIPLY_ADDS["cnn-cifar10"] * _BATCH,
    bytes=_FLOAT * (3 * 2 * 3_441_592 + 3 * _BATCH * (2 * 50 * 32 * 32 + (50 + 200) * 16 * 16 + 100 * 8 * 8 + 522)),
    launches=60,
    steps=7810,
)

# gru-imdb: 3 818 302 parameters with gradient and Adam's two moments (the embedding's too); activations of 150 positions. The positions
# follow one another, forward and back: about three kernels each.
_GRU = Work(
    flops=3 * 2 * MULTIPLY_ADDS["gru-imdb"] * _BATCH,
    bytes=_FLOAT * (4 * 2 * 3_818_302 + 3 * _BATCH * 150 * (125 + 4 * 100)),
    launches=150 * 2 * 3,
    steps=1170,
)

WORK = {"cnn-cifar10": _CNN, "gru-imdb": _GRU}

# Datasheet peaks at boost clock, of one GPU: float32 flop/s and bytes/s (NVIDIA's product briefs of the boards).
DATASHEETS = {
    "K80": (4.37e12, 240e9),
    "M60": (4.8e12, 160e9),
    "P40": (11.76e12, 346e9),
    "P100": (9.3e12, 732e9),
    "V100": (14.0e12, 900e9),
    "Titan V": (13.8e12, 653e9),
}

# Seconds from one small kernel to the next that waits for it. No datasheet has it: this is an assumption for the published rows,
# and its error is part of the inefficiency that they give.
_LAUNCH_SECONDS = 10e-6

# The range of inefficiencies holds this share of the published rows.
_SHARE = 0.9


@dataclass(frozen=True)
class Inefficiency:
    """How many times as long as the model published trainings took."""

    low: float
    middle: float
    high: float
    rows: int
    gpus: tuple[str, ...]


@dataclass(frozen=True)
class ModelledStep:
    """The step time that the model gives, as a band, in seconds."""

    low: float
    middle: float
    high: float
    model: str  # the model in words, with its known error

    def place_of(self, seconds: float) -> str:
        """The place of a measured step time."""
        if seconds > self.high:
            return "slower than the model's band"
        return "faster than the model's band" if seconds < self.low else "inside the model's band"


def ideal_seconds(work: Work, flops: float, bytes_: float, launch_seconds: float) -> float:
    """A step at the ceilings themselves: flop/s, bytes/s, seconds a launch."""
    return work.flops / flops + work.bytes / bytes_ + work.launches * launch_seconds


@functools.cache
def inefficiency(workload: str) -> Inefficiency:
    """The range that holds nine tenths of the published trainings of a workload, on the GPUs of DATASHEETS."""
    rows = training_times(load_published(), workload, list(DATASHEETS))
    work = WORK[workload]
    factors = [
        (row.seconds or 0.0) / work.steps / ideal_seconds(work, *DATASHEETS[row.gpu or ""], _LAUNCH_SECONDS)
        for row in rows
    ]
    low, middle, high = np.quantile(factors, [(1 - _SHARE) / 2, 0.5, (1 + _SHARE) / 2])
    gpus = tuple(name for name in DATASHEETS if any(row.gpu == name for row in rows))
    return Inefficiency(float(low), float(middle), float(high), len(rows), gpus)


def modelled_step(workload: str, device_kind: str, ceilings: Ceilings | None) -> ModelledStep | None:
    """The model's band for a step on these ceilings. None: WORK lacks the workload, or the device's ceilings are not known."""
    work = WORK.get(workload)
    if work is None or ceilings is None or (device_kind == "cuda" and ceilings.framework is None):
        return None
    own = ceilings.framework
    # On a CPU NumPy's product stands in for a framework whose calls the probe does not know; its call costs next to nothing.
    product = best(own.matmul_flops if own else ceilings.numpy.matmul_flops)
    copy = best(ceilings.numpy.copy_bytes if device_kind == "cpu" or own is None else own.copy_bytes)
    launch = 1 / best(own.launches) if own else 0.0
    ideal = ideal_seconds(work, product, copy, launch)
    error = inefficiency(workload)
    text = (
        f"a model, not a measurement: operations over {product / 1e9:.0f} GFLOP/s, bytes over {copy / 1e9:.1f} GB/s and launches of "
        f"{launch * 1e6:.1f} µs, as measured here; of {error.rows} published trainings ({', '.join(error.gpus)}) nine tenths took "
        f"{error.low:.1f} to {error.high:.1f} times as long as the model says"
    )
    if device_kind == "cpu":
        text += "; its error on CPUs is not known from published numbers"
    return ModelledStep(ideal, ideal * error.middle, ideal * error.high, text)

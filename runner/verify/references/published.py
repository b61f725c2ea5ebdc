"""The numbers that the founding documents published, each with its source and date.

published.csv holds a row a number. An empty field is a fact that the source does not state; it is read as None and never filled in.
These numbers have no interval and come from old software. They are shown beside a measurement and calibrate the model of
runner/verify/step_model.py; they give no verdict.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from runner.errors import UserError

PUBLISHED = Path(__file__).with_name("published.csv")

Text = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^[^\x00-\x1f\x7f]+$")]


def _gap(value: object) -> object:
    return None if value == "" else value


Gap = BeforeValidator(_gap)
MaybeText = Annotated[Text | None, Gap]


class PublishedError(UserError):
    """A reference that cannot be used; the message names file, place and fix."""


class Published(BaseModel):
    """One published number. A field that is None is a gap of its source."""

    model_config = ConfigDict(frozen=True, extra="forbid")

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

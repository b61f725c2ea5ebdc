"""The signs of frameworks and of workloads: a colour and a shape each, the same in every picture and table of every page."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence

from reports.data.model import MeasuredCell
from reports.page.drawing import SHAPES

# Okabe and Ito's colours (Color Universal Design, 2008), each darkened or lightened to a contrast of 3:1 with the page.
PALETTE = {
    "vermilion": ("#d0500a", "#f0824a"),
    "amber": ("#a87400", "#e6a520"),
    "blue": ("#0072b2", "#4fa8e0"),
    "green": ("#00835e", "#2fc295"),
    "purple": ("#b0568a", "#dd8fbd"),
    "sky": ("#2a86b8", "#7cc8f0"),
    "olive": ("#77750a", "#cfcb4a"),
    "grey": ("#6b7280", "#9aa3b0"),
}
# Each framework keeps its place here for good: a colour that follows from the list of all names would change with every new name.
# The first seven often stand in one report, and have a colour each.
_PLACES = (
    *("torch", "tensorflow", "jax", "mxnet_gluon", "chainer", "paddle", "keras_tensorflow"),
    *(
        "caffe2",
        "cntk",
        "flux",
        "keras2_cntk",
        "keras2_theano",
        "keras_jax",
        "keras_torch",
        "knet",
        "lasagne",
        "mindspore",
    ),
    *("mxnet_module", "onnxruntime", "onnxruntime_training", "r_keras", "tensorflow_v1", "tinygrad"),
)
SYMBOLS = tuple(SHAPES)
_COLOURS = [name for name in PALETTE if name != "grey"]
_PAIRS = len(_COLOURS) * len(SYMBOLS)  # the pairs of colour and symbol: 7 and 8 share no divisor, so 56 places differ


def _place(framework: str) -> int:
    """A framework's place. It has the same signs on every page; where it is not in the list its name alone chooses a place that is free."""
    if framework in _PLACES:
        return _PLACES.index(framework)
    return len(_PLACES) + zlib.crc32(framework.encode()) % (_PAIRS - len(_PLACES))


def colours(frameworks: Iterable[str]) -> dict[str, str]:
    """Framework -> colour name."""
    return {name: _COLOURS[_place(name) % len(_COLOURS)] for name in frameworks}


def symbols(cells: Sequence[MeasuredCell]) -> dict[str, str]:
    """Framework -> marker: colour is never the only sign."""
    return {cell.framework: SYMBOLS[_place(cell.framework) % len(SYMBOLS)] for cell in cells}


def nth(at: int) -> tuple[str, str]:
    """(shape, class of the colour) of the `at`-th of some lines that are no frameworks."""
    return SYMBOLS[at % len(SYMBOLS)], f"c-{_COLOURS[(at + 2) % len(_COLOURS)]}"


def of(cell: MeasuredCell) -> tuple[str, str]:
    """(shape, class of the colour) of a cell's framework."""
    place = _place(cell.framework)
    return SYMBOLS[place % len(SYMBOLS)], f"c-{_COLOURS[place % len(_COLOURS)]}"

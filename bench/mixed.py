"""Mixed precision (Micikevicius et al. 2018), the same in every framework.

Parameters, optimiser, loss and softmax are float32. Products, convolutions and the recurrent cell take their factors in the half type,
sum in float32 and give the half type. At amp-fp16 the loss is multiplied by a scale before its gradient is taken, and the gradients are
divided by it: INITIAL_SCALE at first, doubled after GROWTH_STEPS good steps, halved where a gradient overflows. Then the step is skipped.
A skipped step does not train, so bench.timing counts its time and not the step, and the cell emits how many were skipped. In the parity
check a skipped step is an error.
"""

from bench import rules

# precision -> the half type, by the name that every framework has for it
_NAMES = {"fp16": "float16", "bf16": "bfloat16"}
HALF = {precision: _NAMES[half] for precision, half in rules.MIXED.items()}

INITIAL_SCALE = 2.0**15
GROWTH_STEPS = 2000


def half(precision):
    """The half type of a mixed precision, or None."""
    return HALF.get(precision)


def whole(precision):
    """The half type of a precision in which a network's parameters are that type's, too; or None."""
    return _NAMES.get(precision)

"""Mixed precision (Micikevicius et al. 2018), the same in every framework.

Parameters, optimiser, loss and softmax are float32. Products, convolutions and the recurrent cell take their factors in the half type,
sum in float32 and give the half type. At amp-fp16 the loss is multiplied by a scale before its gradient is taken, and the gradients are
divided by it: INITIAL_SCALE at first, doubled after GROWTH_STEPS good steps, halved where a gradient overflows. That step is skipped: it is
no step of training, so bench.timing counts its time and not the step, and the cell tells how many there were. In the parity check
one is an error.
"""

# precision -> the half type, by the name that every framework has for it
HALF = {"amp-fp16": "float16", "amp-bf16": "bfloat16"}

INITIAL_SCALE = 2.0**15
GROWTH_STEPS = 2000


def half(precision):
    """The half type of a precision, or None."""
    return HALF.get(precision)

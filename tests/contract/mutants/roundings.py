"""Mistakes in the digits of one gradient of the CIFAR-10 network, where dropout is on."""

# Why a rounding in the network below the last hidden layer is not seen.
SUMMED = "The products are summed in float32, so the gradients have all digits; the masks hide their values. It gains no time."

LAYERS = ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2")
# the end of a class's name -> (the type, the bits of its exponent and of its mantissa)
TYPES = {"InHalf": ("bfloat16", 8, 7), "InFloat16": ("float16", 5, 10), "Cut": ("TensorFloat-32", 8, 10)}


def plant(planted, with_rounding, layers=LAYERS):
    """Plant a class for each layer and type; with_rounding: the adapter class that rounds the gradient of LAYER's weights to TYPE."""
    for layer in layers:
        for end, bits in TYPES.items():
            name, words = (
                layer.capitalize() + end,
                {"__module__": with_rounding.__module__, "LAYER": layer, "TYPE": bits},
            )
            sentence = "The gradient of the weights of %s has the digits of %s where dropout is on."
            words["__doc__"] = sentence % (layer, bits[0])
            planted.mistake("precision", slow=True)(type(name, (with_rounding,), words))

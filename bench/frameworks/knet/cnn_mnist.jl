# The MNIST convolution network in Knet: parameters, and a plain Julia function of them that AutoGrad records; Adam, batches in file order.
#
# Idiomatic here: arrays are W, H, C, N. A network is a function, without layers to declare. conv4 flips its kernels unless mode is 1.
# No gradient for the network's input: the images are no Param. pool rounds down: it leaves out an odd last row and column.

function digits_scores(layers, x)
    c1, c2, d = layers
    # Stride and padding are explicit: defaults differ among frameworks.
    convolved(layer, x) = conv4(layer.w, x; padding = 0, mode = 1) .+ layer.b
    halved(x) = pool(x; window = 2, stride = 2)
    # ReLU after the pooling: the same values, a quarter of the work.
    x = relu.(halved(convolved(c1, x)))
    x = relu.(halved(convolved(c2, x)))
    # mat flattens: W is fastest, then H, then C, the specification's order.
    d.w * mat(x) .+ d.b
end

# Kernels are the specification's (out, in, kh, kw) with reversed axes. Dense weights have them in their adjoint. Biases lose their axes of
# size 1.
function digits_named(arrays)
    w1, b1, w2, b2, w, b = arrays
    Named["conv1.w" => w1, "conv1.b" => vec(b1), "conv2.w" => w2, "conv2.b" => vec(b2), "dense.w" => w', "dense.b" => b]
end

function cnn_mnist(setup)
    convolution(inputs, outputs) = (w = parameter(2, 2, inputs, outputs), b = parameter(1, 1, outputs, 1))
    layers = [convolution(1, 16), convolution(16, 8), (w = parameter(10, 288), b = parameter(10))]
    # Adam's constants are explicit: defaults differ among frameworks. Knet adds epsilon as in the paper's algorithm 1.
    # The optimiser keeps its moments through all epochs.
    optimiser() = Adam(lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, gclip = 0)
    parameters = [p for layer in layers for p in (layer.w, layer.b)]
    trained(setup, parameters, x -> digits_scores(layers, x), optimiser, digits_named, from_numpy; resident = true)
end

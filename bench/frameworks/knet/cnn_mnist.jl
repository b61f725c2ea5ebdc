# The MNIST convolution network in Knet: parameters, and a plain Julia function of them that AutoGrad records; Adam, batches in file order.
#
# Idiomatic here: arrays are W, H, C, N; a network is a function, with no layers to declare. conv4 turns kernels round unless mode is 1.
# A12: the images are no Param, so no gradient is taken by them. pool rounds down, so that an odd last row and column are left out.

function digits_scores(layers, x)
    c1, c2, d = layers
    convolved(layer, x) = conv4(layer.w, x; padding = 0, mode = 1) .+ layer.b  # A15
    halved(x) = pool(x; window = 2, stride = 2)  # A14
    x = relu.(halved(convolved(c1, x)))  # A11: ReLU after the pool is the same function on a quarter of the data
    x = relu.(halved(convolved(c2, x)))
    d.w * mat(x) .+ d.b  # mat joins W, H and C, W fastest: the specification's order
end

# Kernels are the specification's (out, in, kh, kw) turned round as they are; dense weights by their adjoint; biases lose their ones.
function digits_named(arrays)
    w1, b1, w2, b2, w, b = arrays
    Named["conv1.w" => w1, "conv1.b" => vec(b1), "conv2.w" => w2, "conv2.b" => vec(b2), "dense.w" => w', "dense.b" => b]
end

function cnn_mnist(setup)
    convolution(inputs, outputs) = (w = parameter(2, 2, inputs, outputs), b = parameter(1, 1, outputs, 1))
    layers = [convolution(1, 16), convolution(16, 8), (w = parameter(10, 288), b = parameter(10))]
    # C9: every constant set; epsilon is added where the paper's algorithm 1 does. E10: it keeps its moments through all epochs
    optimiser() = Adam(lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, gclip = 0)
    parameters = [p for layer in layers for p in (layer.w, layer.b)]
    trained(setup, parameters, x -> digits_scores(layers, x), optimiser, digits_named, from_numpy; resident = true)
end

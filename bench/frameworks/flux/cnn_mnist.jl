# The MNIST convolution network in Flux: a Chain of layers, Zygote's gradient of it, Adam of Optimisers, batches in file order.
#
# Idiomatic here: arrays are W, H, C, N. A layer may have its activation. Flux's Conv flips its kernels (it convolves). CrossCor does not,
# and is the specification's operation. MaxPool rounds down: it leaves out an odd last row and column.

digits_network() = Chain(
    conv1 = CrossCor((2, 2), 1 => 16),
    # The stride is explicit: defaults differ among frameworks.
    pool1 = MaxPool((2, 2); stride = 2),
    # ReLU after the pooling: the same values, a quarter of the work.
    relu1 = x -> relu.(x),
    conv2 = CrossCor((2, 2), 16 => 8),
    pool2 = MaxPool((2, 2); stride = 2),
    relu2 = x -> relu.(x),
    # W is fastest, then H, then C: the specification's order.
    flat = Flux.flatten,
    dense = Dense(288 => 10),
)

# Kernels (kw, kh, in, out) are the specification's with reversed axes. Dense keeps (out, in), so its adjoint has the reversed axes.
function digits_arrays(m)
    conv1, conv2, dense = m.layers.conv1, m.layers.conv2, m.layers.dense
    Named[
        "conv1.w" => conv1.weight,
        "conv1.b" => conv1.bias,
        "conv2.w" => conv2.weight,
        "conv2.b" => conv2.bias,
        "dense.w" => dense.weight',
        "dense.b" => dense.bias,
    ]
end

# Adam's constants are explicit: defaults differ among frameworks. Optimisers adds epsilon as in the paper's algorithm 1.
cnn_mnist(setup) = trained(setup, digits_network(), Adam(0.001, (0.9, 0.999), 1e-8), digits_arrays, from_numpy, 0:9; resident = true)

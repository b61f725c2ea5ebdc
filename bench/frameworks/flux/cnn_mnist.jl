# The MNIST convolution network in Flux: a Chain of layers, Zygote's gradient of it, Adam of Optimisers, batches in file order.
#
# Idiomatic here: arrays are W, H, C, N; a layer is called with its activation. Flux's Conv turns kernels round (it convolves); CrossCor does
# not, and is what the specification means. MaxPool rounds down, so that an odd last row and column are left out.

digits_network() = Chain(
    conv1 = CrossCor((2, 2), 1 => 16),
    pool1 = MaxPool((2, 2); stride = 2),  # A14
    relu1 = x -> relu.(x),  # A11: after the pool it is the same function on a quarter of the data
    conv2 = CrossCor((2, 2), 16 => 8),
    pool2 = MaxPool((2, 2); stride = 2),
    relu2 = x -> relu.(x),
    flat = Flux.flatten,  # W fastest, then H, then C: the specification's order
    dense = Dense(288 => 10),
)

# Kernels (kw, kh, in, out) are the specification's turned round as they are; of Dense it is the adjoint.
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

# C9: every constant set; Optimisers adds epsilon where the paper's algorithm 1 does.
cnn_mnist(setup) = trained(setup, digits_network(), Adam(0.001, (0.9, 0.999), 1e-8), digits_arrays, from_numpy, 0:9; resident = true)

# The CIFAR-10 network in Knet: parameters, and a plain Julia function of them that AutoGrad records.
#
# Idiomatic here: arrays are W, H, C, N; a network is a function, with no layers to declare. conv4 turns kernels round unless mode is 1.
# A12: the images are no Param, so no gradient is taken by them.

const LAYERS = ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2")

# A17: every layer has its bias. Kernels are (kw, kh, in, out), dense weights (out, in).
function cnn_parameters()
    convolution(inputs, outputs) = (w = parameter(3, 3, inputs, outputs), b = parameter(1, 1, outputs, 1))
    dense(inputs, outputs) = (w = parameter(outputs, inputs), b = parameter(outputs))
    [convolution(3, 50), convolution(50, 50), convolution(50, 100), convolution(100, 100), dense(6400, 512), dense(512, 10)]
end

# A15: padding said; A18: no option clips or scales
convolve(layer, x) = conv4(layer.w, x; padding = 1, mode = 1) .+ layer.b
half(x) = pool(x; window = 2, stride = 2)  # A14

# A5: dropout acts inside of @diff and nowhere else; A6: its number is the probability to drop
function cnn_scores(layers, dropping, x)
    c1, c2, c3, c4, d1, d2 = layers
    drop(x, p) = dropping ? dropout(x, p) : x
    x = relu.(convolve(c1, x))
    x = relu.(half(convolve(c2, x)))  # A11: ReLU after the pool is the same function on a quarter of the data
    x = drop(x, 0.25)
    x = relu.(convolve(c3, x))
    x = relu.(half(convolve(c4, x)))
    x = drop(x, 0.25)
    x = relu.(d1.w * mat(x) .+ d1.b)  # mat joins W, H and C, W fastest: the specification's order
    x = drop(x, 0.5)
    d2.w * x .+ d2.b
end

# Kernels are the specification's (out, in, kh, kw) turned round as they are; dense weights by their adjoint; biases lose their ones.
function cnn_named(arrays)
    turned(layer, w) = startswith(layer, "dense") ? w' : w
    Named[
        (layer * ".w" => turned(layer, w) for (layer, w) in zip(LAYERS, arrays[1:2:end]))...,
        (layer * ".b" => vec(b) for (layer, b) in zip(LAYERS, arrays[2:2:end]))...,
    ]
end

function cnn_cifar10(setup)
    layers = cnn_parameters()
    dropping = pyconvert(Bool, setup.training)
    # A10: Momentum is v <- 0.9 v - lr g, w <- w + v: the specification's, with v scaled by the constant rate
    optimiser() = Momentum(lr = 0.01, gamma = 0.9, gclip = 0)
    parameters = [p for layer in layers for p in (layer.w, layer.b)]
    trained(setup, parameters, x -> cnn_scores(layers, dropping, x), optimiser, cnn_named, from_numpy)
end

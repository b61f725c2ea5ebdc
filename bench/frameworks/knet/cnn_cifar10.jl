# The CIFAR-10 network in Knet: parameters, and a plain Julia function of them that AutoGrad records.
#
# Idiomatic here: arrays are W, H, C, N. A network is a function, without layers to declare. conv4 flips its kernels unless mode is 1.
# No gradient for the network's input: the images are no Param.

const LAYERS = ("conv1", "conv2", "conv3", "conv4", "dense1", "dense2")

# Every layer has a bias. Kernels are (kw, kh, in, out), dense weights (out, in).
function cnn_parameters()
    convolution(inputs, outputs) = (w = parameter(3, 3, inputs, outputs), b = parameter(1, 1, outputs, 1))
    dense(inputs, outputs) = (w = parameter(outputs, inputs), b = parameter(outputs))
    [convolution(3, 50), convolution(50, 50), convolution(50, 100), convolution(100, 100), dense(6400, 512), dense(512, 10)]
end

# Stride and padding are explicit: defaults differ among frameworks.
convolve(layer, x) = conv4(layer.w, x; padding = 1, mode = 1) .+ layer.b
half(x) = pool(x; window = 2, stride = 2)

# Dropout only in training: it acts inside @diff only. Its number is the probability to drop a value.
function cnn_scores(layers, dropping, x)
    c1, c2, c3, c4, d1, d2 = layers
    drop(x, p) = dropping ? dropout(x, p) : x
    x = relu.(convolve(c1, x))
    # ReLU after the pooling: the same values, a quarter of the work.
    x = relu.(half(convolve(c2, x)))
    x = drop(x, 0.25)
    x = relu.(convolve(c3, x))
    x = relu.(half(convolve(c4, x)))
    x = drop(x, 0.25)
    # mat flattens: W is fastest, then H, then C, the specification's order.
    x = relu.(d1.w * mat(x) .+ d1.b)
    x = drop(x, 0.5)
    d2.w * x .+ d2.b
end

# Kernels are the specification's (out, in, kh, kw) with reversed axes. Dense weights have them in their adjoint. Biases lose their axes of
# size 1.
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
    # Momentum: v = 0.9 v + g; w = w - rate v, without dampening or Nesterov. Knet stores -rate v in place of v. No gradient is clipped.
    optimiser() = Momentum(lr = 0.01, gamma = 0.9, gclip = 0)
    parameters = [p for layer in layers for p in (layer.w, layer.b)]
    trained(setup, parameters, x -> cnn_scores(layers, dropping, x), optimiser, cnn_named, from_numpy)
end

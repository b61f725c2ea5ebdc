# The MNIST perceptron in Knet: parameters, and a plain Julia function of them that AutoGrad records; Adam, the whole set as one batch.
#
# Idiomatic here: arrays are W, H, C, N. A network is a function, without layers to declare. mat flattens: W is fastest, then H, then C, the
# specification's order.

function mlp_scores(layers, x)
    d1, d2 = layers
    d2.w * relu.(d1.w * mat(x) .+ d1.b) .+ d2.b
end

# Weights are (out, in): their adjoint has the specification's axes reversed.
function mlp_named(arrays)
    w1, b1, w2, b2 = arrays
    Named["dense1.w" => w1', "dense1.b" => b1, "dense2.w" => w2', "dense2.b" => b2]
end

function mlp_mnist(setup)
    layers = [(w = parameter(32, 784), b = parameter(32)), (w = parameter(10, 32), b = parameter(10))]
    # Adam's constants are explicit: defaults differ among frameworks. Knet adds epsilon as in the paper's algorithm 1.
    optimiser() = Adam(lr = 0.001, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, gclip = 0)
    parameters = [p for layer in layers for p in (layer.w, layer.b)]
    trained(setup, parameters, x -> mlp_scores(layers, x), optimiser, mlp_named, from_numpy; resident = true)
end

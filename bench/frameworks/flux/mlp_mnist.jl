# The MNIST perceptron in Flux: a Chain of two Dense layers, Zygote's gradient of it, Adam of Optimisers, the whole set as one batch.
#
# Idiomatic here: arrays are W, H, C, N. flatten keeps W fastest, the specification's order. Dense keeps (out, in).

mlp_network() = Chain(
    flat = Flux.flatten,
    dense1 = Dense(784 => 32, relu),
    dense2 = Dense(32 => 10),
)

# A gradient has the model's structure. Dense keeps (out, in), so its adjoint has the specification's axes reversed.
function mlp_arrays(m)
    layers = ["dense1" => m.layers.dense1, "dense2" => m.layers.dense2]
    Named[
        (name * ".w" => layer.weight' for (name, layer) in layers)...,
        (name * ".b" => layer.bias for (name, layer) in layers)...,
    ]
end

# Adam's constants are explicit: defaults differ among frameworks. Optimisers adds epsilon as in the paper's algorithm 1.
mlp_mnist(setup) = trained(setup, mlp_network(), Adam(0.001, (0.9, 0.999), 1e-8), mlp_arrays, from_numpy, 0:9; resident = true)

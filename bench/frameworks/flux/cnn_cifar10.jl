# The CIFAR-10 network in Flux: a Chain of layers, Zygote's gradient of it, Momentum of Optimisers.
#
# Idiomatic here: arrays are W, H, C, N, which is the same memory as N, C, H, W elsewhere. A layer has its activation. Flux's Conv flips its
# kernels (it convolves). CrossCor does not, and is the specification's operation. Zygote also computes the gradient for the network's
# input, unlike other frameworks: the first layer's rule computes it together with the kernel's.

cnn_network() = Chain(
    # Stride and padding are explicit: defaults differ among frameworks.
    conv1 = CrossCor((3, 3), 3 => 50, relu; pad = 1),
    conv2 = CrossCor((3, 3), 50 => 50; pad = 1),
    pool2 = MaxPool((2, 2); stride = 2),
    # ReLU after the pooling: the same values, a quarter of the work.
    relu2 = x -> relu.(x),
    drop2 = Dropout(0.25),
    conv3 = CrossCor((3, 3), 50 => 100, relu; pad = 1),
    conv4 = CrossCor((3, 3), 100 => 100; pad = 1),
    pool4 = MaxPool((2, 2); stride = 2),
    relu4 = x -> relu.(x),
    drop4 = Dropout(0.25),
    # W is fastest, then H, then C: the specification's order.
    flat = Flux.flatten,
    dense1 = Dense(6400 => 512, relu),
    drop1 = Dropout(0.5),
    dense2 = Dense(512 => 10),
)

# A gradient has the model's structure. Kernels (kw, kh, in, out) are the specification's (out, in, kh, kw) with reversed axes.
# Dense keeps (out, in), so its adjoint has the reversed axes.
function cnn_arrays(m)
    layers(names...) = [name => getproperty(m.layers, Symbol(name)) for name in names]
    convolutions, dense = layers("conv1", "conv2", "conv3", "conv4"), layers("dense1", "dense2")
    Named[
        (name * ".w" => layer.weight for (name, layer) in convolutions)...,
        (name * ".w" => layer.weight' for (name, layer) in dense)...,
        (name * ".b" => layer.bias for (name, layer) in (convolutions..., dense...))...,
    ]
end

# Momentum: v = 0.9 v + g; w = w - rate v, without dampening or Nesterov. Optimisers stores rate v in place of v.
cnn_cifar10(setup) = trained(setup, cnn_network(), Momentum(0.01, 0.9), cnn_arrays, from_numpy, 0:9)

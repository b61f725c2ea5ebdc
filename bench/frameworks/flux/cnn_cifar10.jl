# The CIFAR-10 network in Flux: a Chain of layers, Zygote's gradient of it, Momentum of Optimisers.
#
# Idiomatic here: arrays are W, H, C, N, so that an image's rows lie together as they do in N, C, H, W elsewhere; a layer is called with
# its activation. Flux's Conv turns kernels round (it convolves); CrossCor does not, and is what the specification means.
# Not followed: A12. Zygote takes the gradient by the images too, which the first layer's rule computes with the kernel's.

cnn_network() = Chain(
    conv1 = CrossCor((3, 3), 3 => 50, relu; pad = 1),  # A15
    conv2 = CrossCor((3, 3), 50 => 50; pad = 1),
    pool2 = MaxPool((2, 2); stride = 2),  # A14
    relu2 = x -> relu.(x),  # A11: after the pool it is the same function on a quarter of the data
    drop2 = Dropout(0.25),
    conv3 = CrossCor((3, 3), 50 => 100, relu; pad = 1),
    conv4 = CrossCor((3, 3), 100 => 100; pad = 1),
    pool4 = MaxPool((2, 2); stride = 2),
    relu4 = x -> relu.(x),
    drop4 = Dropout(0.25),
    flat = Flux.flatten,  # W fastest, then H, then C: the specification's order
    dense1 = Dense(6400 => 512, relu),
    drop1 = Dropout(0.5),
    dense2 = Dense(512 => 10),
)

# A gradient has the model's shape. Kernels (kw, kh, in, out) are the specification's (out, in, kh, kw) turned round as they are;
# Dense keeps (out, in), so its adjoint is what is turned round.
function cnn_arrays(m)
    layers(names...) = [name => getproperty(m.layers, Symbol(name)) for name in names]
    convolutions, dense = layers("conv1", "conv2", "conv3", "conv4"), layers("dense1", "dense2")
    Named[
        (name * ".w" => layer.weight for (name, layer) in convolutions)...,
        (name * ".w" => layer.weight' for (name, layer) in dense)...,
        (name * ".b" => layer.bias for (name, layer) in (convolutions..., dense...))...,
    ]
end

# A10: Momentum is v <- 0.9 v + lr g, w <- w - v: the specification's, with v scaled by the constant rate.
cnn_cifar10(setup) = trained(setup, cnn_network(), Momentum(0.01, 0.9), cnn_arrays, from_numpy, 0:9)

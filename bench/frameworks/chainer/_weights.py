"""A Chain's parameters and the running statistics of its normalisations, by path: features/norm0/gamma, features/norm0/avg_mean."""

import chainer


def fill(network, values):
    """Load arrays into the Chain, on the CPU. The normalisations' counters of mini-batches (N) keep their values."""
    network = network.to_cpu()
    chainer.serializers.NpzDeserializer(values, ignore_names=lambda name: name.endswith("/N")).load(network)
    return network


def tensors(network):
    """path -> array, on the network's device."""
    arrays = {name.lstrip("/"): parameter.array for name, parameter in network.namedparams()}
    for path, link in network.namedlinks():
        for name in getattr(link, "_persistent", ()):
            arrays["%s/%s" % (path.lstrip("/"), name)] = getattr(link, name)
    return arrays

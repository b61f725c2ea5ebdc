"""A Chain's parameters and the running statistics of its normalisations, by path: features/norm0/gamma, features/norm0/avg_mean."""

import chainer


def fill(network, values):
    """The Chain with these arrays in it, on the CPU. Its counters of mini-batches (N) are left alone."""
    network = network.to_cpu()
    chainer.serializers.NpzDeserializer(values, ignore_names=lambda name: name.endswith("/N")).load(network)
    return network


def tensors(network):
    """path -> array, where it lies."""
    found = {name.lstrip("/"): parameter.array for name, parameter in network.namedparams()}
    for path, link in network.namedlinks():
        for name in getattr(link, "_persistent", ()):
            found["%s/%s" % (path.lstrip("/"), name)] = getattr(link, name)
    return found

"""The reference of the network that has dropout, computed with masks."""

import collections

import numpy as np

from bench import arithmetic, canonical
from bench.workloads import cnn_cifar10


def case(items: int) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, np.random.RandomState]:
    random = np.random.RandomState(5)
    drawn = canonical.draw_parameters(cnn_cifar10, random, True)
    parameters = collections.OrderedDict((name, value.astype(np.float64)) for name, value in drawn.items())
    x, y = random.uniform(0.0, 1.0, (items, 3, 32, 32)), random.randint(0, 10, items)
    return parameters, x, y, random


def test_a_mask_leaves_out_its_share_and_keeps_the_mean() -> None:
    masks = cnn_cifar10.draw_masks(np.random.RandomState(1), 16)
    for mask, share, shape in zip(masks, cnn_cifar10.DROPOUT_SHARES, cnn_cifar10.DROPOUT_SHAPES, strict=True):
        assert mask.shape == (16, *shape)
        assert set(np.unique(mask)) == {0.0, 1.0 / (1.0 - share)}
        assert abs((mask == 0.0).mean() - share) < 4 * np.sqrt(share * (1 - share) / mask.size)


def test_masks_of_ones_are_no_dropout() -> None:
    parameters, x, y, _ = case(2)
    ones = [np.ones((2, *shape)) for shape in cnn_cifar10.DROPOUT_SHAPES]
    without = cnn_cifar10.loss_and_gradients(parameters, x, y, arithmetic.Exact())
    with_ones = cnn_cifar10.loss_and_gradients(parameters, x, y, arithmetic.Exact(), masks=ones)
    assert without[1] == with_ones[1]
    assert all((without[2][name] == with_ones[2][name]).all() for name in parameters)


def test_the_gradients_under_dropout_are_the_slopes_of_the_loss() -> None:
    parameters, x, y, random = case(2)
    masks = cnn_cifar10.draw_masks(random, 2)
    gradients = cnn_cifar10.loss_and_gradients(parameters, x, y, arithmetic.Exact(), masks=masks)[2]
    for name in ("conv1.b", "conv2.w", "conv4.b", "dense1.w", "dense2.w"):
        along = random.standard_normal(parameters[name].shape)
        losses = []
        for sign in (1, -1):
            moved = {**parameters, name: parameters[name] + sign * 1e-8 * along}
            losses.append(cnn_cifar10.loss_and_gradients(moved, x, y, arithmetic.Exact(), masks=masks)[1])
        slope = (losses[0] - losses[1]) / 2e-8
        assert abs(slope - (gradients[name] * along).sum()) < 1e-4 * max(1e-3, abs(slope)), name

"""What can be learnt from the generated data, and what cannot."""

import numpy as np

from bench.data import cifar10, imdb, mnist


def ridge_accuracy(train, train_y, test, test_y, penalty):
    """Accuracy of one-against-all least squares, solved exactly."""
    centre, scale = train.mean(axis=0), train.std() + 1e-9
    a, b = (train - centre) / scale, (test - centre) / scale
    target = np.eye(train_y.max() + 1)[train_y]
    weights = a.T @ np.linalg.solve(a @ a.T + penalty * np.eye(len(a)), target - target.mean(axis=0))
    return float(((b @ weights + target.mean(axis=0)).argmax(axis=1) == test_y).mean())


def drawn_images(items, seed):
    x, y = cifar10.draw(np.random.RandomState(seed), items)
    return x.reshape(items, -1) / 255.0, y


def test_a_linear_model_of_the_pixels_stays_at_chance():
    train, test = drawn_images(1500, 1), drawn_images(1000, 2)
    assert max(ridge_accuracy(*train, *test, penalty) for penalty in (1.0, 1e3, 1e5)) < 0.15


def test_the_linear_model_above_would_find_the_classes_if_the_negatives_were_not_there():
    def one_sided(pair):
        x, y = pair
        keep = np.arange(len(x)) < len(x) // 2
        return x[keep], y[keep]

    draw = np.random.RandomState(1)
    half = [(cifar10._gratings(draw, y).reshape(len(y), -1) / 255.0, y) for y in draw.randint(0, 10, (2, 1500))]
    assert max(ridge_accuracy(*one_sided(half[0]), *half[1], penalty) for penalty in (1e3, 1e5)) > 0.2


def test_one_convolution_and_a_rectifier_make_the_classes_linear():
    filters = np.random.RandomState(0).standard_normal((48, 9))

    def features(pair):
        grey = pair[0].reshape(-1, 3, 32, 32).mean(axis=1)
        patches = np.lib.stride_tricks.sliding_window_view(grey, (3, 3), axis=(1, 2)).reshape(len(grey), -1, 9)
        return np.maximum(patches @ filters.T - 0.3, 0).mean(axis=1), pair[1]

    assert ridge_accuracy(*features(drawn_images(1500, 1)), *features(drawn_images(500, 2)), 0.1) > 0.7


def drawn_digits(items, seed):
    x, y = mnist.draw(np.random.RandomState(seed), items)
    return x.reshape(items, -1) / 255.0, y


def test_a_linear_model_of_the_digits_pixels_stays_at_chance_and_32_rectified_sums_do_not():
    train, test = drawn_digits(1500, 1), drawn_digits(1000, 2)
    assert max(ridge_accuracy(*train, *test, penalty) for penalty in (1.0, 1e3, 1e5)) < 0.15
    sums = np.random.RandomState(0).standard_normal((784, 32))

    def rectified(pair):
        return np.maximum((pair[0] - 0.5) @ sums, 0), pair[1]

    assert ridge_accuracy(*rectified(train), *rectified(test), 0.1) > 0.5


def drawn_reviews(items, seed):
    words, end, labels = imdb.draw(np.random.RandomState(seed), items)
    return [part.tolist() for part in np.split(words, end[:-1])], labels


def test_counting_words_tells_nothing_of_a_review_and_their_order_does():
    opinions = np.arange(imdb.FIRST, imdb.FIRST + 2 * imdb.EACH)

    def counts(reviews):
        rows = imdb._reviews("", reviews) - imdb.SHIFT
        return (rows[:, :, None] == opinions).sum(axis=1).astype(float)

    (train, train_y), (test, test_y) = drawn_reviews(3000, 1), drawn_reviews(2000, 2)
    accuracy = [ridge_accuracy(counts(train), train_y, counts(test), test_y, penalty) for penalty in (1.0, 1e3)]
    assert max(accuracy) < 0.55

    def ends_well(review):
        last = [word for word in review if word in opinions][-1:]
        return last and (last[0] - imdb.FIRST) % 2

    assert np.mean([ends_well(review) == label for review, label in zip(test, test_y, strict=True)]) > 0.85


def test_stand_in_reviews_look_like_reviews():
    words, end, labels = imdb.draw(np.random.RandomState(1), 4000)
    lengths = np.diff(np.concatenate([[0], end]))
    assert 220 < lengths.mean() < 260, "real ones: 238"
    assert lengths.min() >= 11
    assert lengths.max() <= 2494
    assert words.min() == 1
    assert 30000 < words.max() <= imdb.WORDS
    frequent = np.bincount(words)[1:]
    assert frequent[0] == frequent.max()
    assert 0.45 < labels.mean() < 0.55

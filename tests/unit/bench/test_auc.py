"""The area under the ROC curve: that of scikit-learn on whatever it defines, and missing where there is nothing to tell apart."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from bench.auc import auc, of_classes


@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=2, max_size=40))
@settings(max_examples=150)
def test_it_is_scikit_learn_s_also_on_ties(pairs: list[tuple[bool, int]]) -> None:
    labels, scores = (np.array(column, dtype=float) for column in zip(*pairs, strict=True))
    if labels.min() == labels.max():
        assert auc(labels, scores) is None
    else:
        assert auc(labels, scores) == pytest.approx(roc_auc_score(labels, scores), abs=1e-12)


def test_it_is_scikit_learn_s_on_as_many_images_as_the_real_test_has() -> None:
    random = np.random.RandomState(0)
    labels = (random.uniform(size=(17198, 14)) < np.linspace(0.002, 0.2, 14)).astype(np.float32)
    scores = (random.standard_normal((17198, 14)) + labels).astype(np.float32)
    scores[:, 3] = np.round(scores[:, 3])  # many ties
    found, mean = of_classes(labels, scores)
    expected = [roc_auc_score(labels[:, k], scores[:, k]) for k in range(14)]
    np.testing.assert_allclose(np.array(found, dtype=float), expected, rtol=0, atol=1e-12)
    assert mean == pytest.approx(np.mean(expected), abs=1e-12)


def test_scores_that_are_all_alike_tell_nothing_apart() -> None:
    assert auc(np.array([0, 1, 1, 0]), np.full(4, 0.3)) == 0.5


def test_a_class_with_one_kind_of_label_is_missing_and_not_averaged_in() -> None:
    labels = np.array([[1, 0, 1], [0, 0, 1], [1, 0, 1]])
    scores = np.array([[0.9, 0.1, 0.5], [0.2, 0.2, 0.5], [0.1, 0.3, 0.5]])
    assert of_classes(labels, scores) == ([0.5, None, None], 0.5)


def test_where_every_class_is_missing_there_is_no_mean() -> None:
    assert of_classes(np.zeros((3, 2)), np.zeros((3, 2))) == ([None, None], None)


def test_a_score_that_is_not_finite_makes_its_class_missing() -> None:
    labels = np.array([[1, 1], [0, 0]])
    assert of_classes(labels, np.array([[np.nan, 2.0], [0.0, 1.0]])) == ([None, 1.0], 1.0)

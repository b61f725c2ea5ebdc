"""The area under the ROC curve of each class, and its mean: what a multi-label network is judged by."""

import numpy as np


def auc(labels, scores):
    """The probability that a positive's score is above a negative's, a tie counting half (Mann-Whitney); None without one of each.

    labels: (N,) 0 or 1; scores: (N,) finite. By ranks: a rank is a multiple of a half, so float64 sums them exactly.
    """
    positive = np.asarray(labels) > 0.5
    many = int(positive.sum())
    if many in (0, len(positive)):
        return None
    _, place, counts = np.unique(np.asarray(scores, dtype=np.float64), return_inverse=True, return_counts=True)
    ranks = np.cumsum(counts) - (counts - 1) / 2.0  # equal scores share the middle of their ranks
    above = ranks[place.ravel()][positive].sum() - many * (many + 1) / 2.0
    return float(above / (many * (len(positive) - many)))


def of_classes(labels, scores):
    """([AUC or None of each column], their mean over those that have one, or None). labels, scores: (N, classes)."""
    values = [
        auc(labels[:, k], scores[:, k]) if np.isfinite(scores[:, k]).all() else None for k in range(labels.shape[1])
    ]
    defined = [value for value in values if value is not None]
    return values, float(np.mean(defined)) if defined else None

"""Whether a metric can judge predictions by labels, as far as shapes tell: known before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from ...ir.core.wording import counted
from .metrics import BY_NUMBER, TOP


def flattened(predicted: Sequence[int], label: Sequence[int]) -> bool:
    """Whether predictions are a row for each token, and labels a number for each: these are taken as one row then."""
    return len(predicted) == 2 and len(label) > 1 and prod(label) == predicted[0]


def misfit(metric: str, predicted: Sequence[int], label: Sequence[int]) -> str:
    """Why MindSpore's metric of this name cannot judge predictions of one shape by labels of the other; nothing where
    it can. Both are of one micro-batch; in shapes that are open (-1) only the number of classes is looked at."""
    if metric in BY_NUMBER:
        fits = prod(predicted) == prod(label)
        return "" if fits or -1 in (*predicted, *label) else f"it takes one of shape {list(predicted)}"
    if len(predicted) < 2 or (metric in TOP and len(predicted) > 2):
        return "it takes predictions with a row of classes for each sample"
    classes = predicted[1]
    if 0 <= classes < TOP.get(metric, 0):
        has = counted(classes, "class", "classes")
        return f"it looks for the label among the {TOP[metric]} best, and the network has {has}"
    one_each = [predicted[0], *predicted[2:]]
    if -1 in (*predicted, *label) or flattened(predicted, label) or list(label) in (one_each, list(predicted)):
        return ""
    return f"it takes one of shape {one_each}, or of {list(predicted)} (one-hot)"

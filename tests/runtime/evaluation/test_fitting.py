"""What is said of shapes beforehand is what MindSpore's metrics do with them."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.runtime.evaluation.fitting import flattened, misfit
from boost_compile.runtime.evaluation.metrics import LOSS, METRICS, TOP

PREDICTED = [(6,), (6, 4), (6, 7), (6, 5, 3), (6, 3, 3), (12, 4)]
LABELS = [(6,), (6, 1), (6, 4), (6, 2), (6, 3), (6, 5, 3), (6, 5), (6, 7), (6, 3, 3)]


@pytest.mark.parametrize("metric", [name for name in METRICS if name != LOSS])
def test_a_metric_takes_what_is_said_to_fit(metric: str) -> None:
    from mindspore.train import get_metric_fn

    answers = set()
    for predicted in PREDICTED:
        for shape in LABELS:
            label = np.zeros(shape, np.int32)
            if shape == predicted and len(shape) > 1:
                label[:, 0] = 1  # one-hot
            if flattened(predicted, shape):
                label = label.reshape(-1)
            reason = misfit(metric, predicted, shape)
            answers.add(not reason)
            if metric in TOP and len(predicted) > 2:
                assert reason, "MindSpore gives a number for these, which means nothing"
                continue
            judge = get_metric_fn(metric)
            try:
                judge.update(np.ones(predicted, np.float32), label)
            except (ValueError, IndexError):
                assert reason, (predicted, shape)
            else:
                assert not reason, (predicted, shape, reason)
    assert answers == {True, False}


def test_of_open_shapes_the_classes_are_looked_at() -> None:
    assert misfit("accuracy", (-1, 4), (-1,)) == ""
    assert misfit("mae", (-1, 4), (-1, 4)) == ""
    assert misfit("top_5_accuracy", (-1, 4), (-1,)).endswith("the 5 best, and the network has 4 classes")
    assert misfit("top_5_accuracy", (-1, 1), (-1,)).endswith("the network has 1 class")
    assert misfit("top_5_accuracy", (-1, -1), (-1,)) == ""

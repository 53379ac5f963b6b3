"""The metrics that evaluation knows. Imports nothing."""

from __future__ import annotations

LOSS = "loss"
METRICS = ("accuracy", LOSS, "mae", "mse", "precision", "recall", "F1", "top_1_accuracy", "top_5_accuracy")
"""The metrics of ``mindspore.train`` that take predictions and labels, and the training's own loss."""
BY_CLASS = ("precision", "recall", "F1")
"""Those that give one number a class: their mean is told."""
BY_NUMBER = ("mae", "mse")
"""Those that compare numbers; the others compare classes."""
TOP = {"top_1_accuracy": 1, "top_5_accuracy": 5}
"""Among how many of the best classes the label is looked for."""

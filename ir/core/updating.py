"""The optimizers of MindSpore, as passes take them: each as a graph that updates weights from given gradients. What
exports one stands far above passes, so it is handed in from there: ``boost_compile`` does it, and nothing is loaded
before an optimizer is asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from .spec import Spec

Export = Callable[[Spec, Sequence[Any], Collection[str], float | None], Any]
"""The program of an optimizer for some weights (their ``StateVariable``): one graph, whose inputs are their gradients
in this order. Its state is the weights and what the optimizer keeps, under names that are not taken. The number is its
learning rate where the options say none."""

_export: Export | None = None


def export_with(export: Export) -> None:
    """From now on this makes the optimizers that :func:`exported` is asked for."""
    global _export
    _export = export


def exported(optimizer: Spec, weights: Sequence[Any], taken: Collection[str], rate: float | None) -> Any:
    """OptionError for an optimizer or an option that MindSpore does not have."""
    assert _export is not None, "boost_compile hands it in"
    return _export(optimizer, weights, taken, rate)

"""The end of ``mindspore.train.Model.train``, of which Model tells its network nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from mindspore.train import Callback, Model, RunContext


class AtEnd(Callback):  # type: ignore[misc]
    """Calls a function when the training ends, after the callbacks of the user."""

    def __init__(self, function: Callable[[], None]):
        super().__init__()
        self._function = function

    def on_train_end(self, run_context: RunContext) -> None:
        self._function()


def at_end_of_training(function: Callable[[], None]) -> bool:
    """Calls ``function`` when the ``Model.train`` (or ``fit``) ends that the caller runs in; False where it runs in
    none.

    Whoever trains gives the callbacks, and a network cannot add any; so the running loop is looked for among the
    callers, and its list of callbacks gets one more.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        if isinstance(frame.f_locals.get("self"), Model):
            callbacks = getattr(frame.f_locals.get("list_callback"), "_callbacks", None)
            if isinstance(callbacks, list):
                callbacks.append(AtEnd(function))
                return True
        frame = frame.f_back
    return False

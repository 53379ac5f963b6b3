"""Arguments that Python hands over, looked at before anything runs. The commands check their own options."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral, Real
from typing import Any

from ...ir.core.errors import RuntimeFailure, nearest
from .callback import Callback

LARGEST_SEED = 2**63 - 1


def whole_number(value: Any, what: str, least: int = 1, most: int | None = None) -> int:
    """``value`` as an int; RuntimeFailure for anything but a whole number between ``least`` and ``most``."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        number = int(value)
        if least <= number and (most is None or number <= most):
            return number
    limits = f"of at least {least}" if most is None else f"from {least} to {most}"
    raise RuntimeFailure(f"{what} {value!r}: give a whole number {limits}.")


def positive_number(value: Any, what: str) -> float:
    """``value`` as a float; RuntimeFailure for anything but a number above 0."""
    if isinstance(value, Real) and not isinstance(value, bool) and float(value) > 0:
        return float(value)
    raise RuntimeFailure(f"{what} {value!r}: give a number above 0.")


def checked_callbacks(callbacks: Any) -> Sequence[Callback]:
    """RuntimeFailure for what is no sequence of callbacks."""
    if isinstance(callbacks, Callback) or not isinstance(callbacks, Sequence) or isinstance(callbacks, str):
        raise RuntimeFailure(
            f"callbacks are a list, and not this {type(callbacks).__name__}.", python="Write callbacks=[…]."
        )
    for callback in callbacks:
        if not isinstance(callback, Callback):
            raise RuntimeFailure(
                f"{type(callback).__name__} is no boost_compile callback (derive from boost_compile.Callback). "
                f"Callbacks of MindSpore run in mindspore.train.Model(session.cell).train(…)."
            )
    return callbacks


def check_evaluate(evaluate: Any) -> None:
    """RuntimeFailure for what cannot be called after an epoch."""
    if evaluate is not None and not callable(evaluate):
        raise RuntimeFailure(
            f"evaluate {evaluate!r} is no function.",
            python="Give one that takes the session, such as lambda session: session.evaluate(data, ['accuracy']).",
        )


def names_of_states(names: Any, known: Iterable[str]) -> list[str]:
    """``names`` as a list; RuntimeFailure for one that is no state, or for what are no names."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise RuntimeFailure(
            f"the names of states are a list, and {names!r} is none.", python="Write session.state([name, …])."
        )
    found, states = list(names), list(known)
    for name in found:
        if name not in states:
            raise RuntimeFailure(f"no state is called {name!r}{nearest(str(name), states)}.")
    return found

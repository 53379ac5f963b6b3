"""Programs made ones that a device has kernels for. A pass does that, which the runtime does not know, so it is handed
in from above: ``boost_compile`` does it, and nothing is loaded before a session needs it."""

from __future__ import annotations

from collections.abc import Callable

from .program import Program

Legalize = Callable[[Program, str], Program]

_legalize: Legalize | None = None


def legalize_with(legalize: Legalize) -> None:
    """From now on this makes what :func:`legalized` is asked for."""
    global _legalize
    _legalize = legalize


def legalized(program: Program, target: str) -> Program:
    """Error where a primitive has no kernel and nothing replaces it."""
    assert _legalize is not None, "boost_compile hands it in"
    return _legalize(program, target)

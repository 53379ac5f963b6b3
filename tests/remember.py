"""What was computed once in this process is not computed again.

Many tests compare with the same native training, and many programs are the same whatever way they were written.
MindSpore makes the same of the same on CPU (tests/test_native.py shows it), so results are kept by content of the
arguments. Only results: no cell, no session and no compiled graph; and their arrays cannot be written to.
"""

from __future__ import annotations

import functools
import inspect
import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any, ParamSpec, TypeVar

import numpy as np

P = ParamSpec("P")
T = TypeVar("T")

LARGEST = 16 * 2**20
"""Bytes of arrays in a result that is kept: those of deep networks are needed once."""


def remembered(described: Callable[..., Any]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorates a function whose arguments `described` puts into something that can be pickled and that says all about
    them; where it is None, or cannot be pickled, the function is called."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        known: dict[bytes, T] = {}
        signature = inspect.signature(function)

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            key = _key(described(*bound.args, **bound.kwargs))
            if key is not None and key in known:
                return known[key]
            result = function(*args, **kwargs)
            arrays = list(_arrays(result))
            for array in arrays:
                array.flags.writeable = False
            if key is not None and sum(array.nbytes for array in arrays) <= LARGEST:
                known[key] = result
            return result

        return wrapper

    return decorate


def forgetful(function: Callable[P, T]) -> Callable[P, T]:
    """The function itself, without what it remembers."""
    return inspect.unwrap(function)


def _key(description: Any) -> bytes | None:
    if description is None:
        return None
    try:
        return pickle.dumps(description)
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


def _arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _arrays(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _arrays(each)
    elif is_dataclass(value):
        for field in fields(value):
            yield from _arrays(getattr(value, field.name))

"""How programs are saved. What knows every form on disk stands far above programs, so it is handed in from there:
``boost_compile`` does it, and nothing is loaded before something is to be saved."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike
from typing import Any

from .errors import OptionError

_save: Callable[[Any, str], None] | None = None


def save_with(save: Callable[[Any, str], None]) -> None:
    """From now on programs are saved by ``save(program, path)``."""
    global _save
    _save = save


def save(program: object, path: str) -> None:
    if not isinstance(path, (str, PathLike)):
        raise OptionError(f"a program is written to a path, and not to a {type(path).__name__}")
    assert _save is not None, "boost_compile hands it in"
    _save(program, path)

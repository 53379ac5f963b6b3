"""What boost-run asks after each epoch: ``--eval FILE.py:FUNCTION``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...ir.errors import RuntimeFailure

if TYPE_CHECKING:
    from ...runtime.fit import Evaluate


def place_of(text: str) -> tuple[str, str]:
    """The path and the name in ``FILE.py:FUNCTION``."""
    path, colon, name = text.rpartition(":")
    if not colon or not path.endswith(".py"):
        raise RuntimeFailure(f"--eval {text}: write FILE.py:FUNCTION")
    return path, name


def function_at(place: str) -> Evaluate:
    """The function that ``FILE.py:FUNCTION`` names. Its exceptions, and those of running the file, are Errors."""
    from runpy import run_path

    path, name = place_of(place)
    try:
        found = run_path(path).get(name)
    except Exception as error:  # the user's file, so the user's error
        raise RuntimeFailure(f"--eval {place}: running {path} failed: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise RuntimeFailure(f"--eval {place}: {path} defines no function '{name}'")

    def evaluator(session: Any) -> Any:
        try:
            return found(session)
        except Exception as error:
            raise RuntimeFailure(f"--eval {place}: {name} failed: {type(error).__name__}: {error}") from error

    return evaluator

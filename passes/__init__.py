"""Passes: rewrites of a program, and what runs them. Loaded on first use, so that importing this costs nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..ir.gradient_path import STAGES
    from ..ir.report import Miss, PassResult
    from .base import Pass
    from .manager import InternalError, NoMatchWarning, compile_program
    from .options import option
    from .pipeline import parse_pipeline, print_pipeline
    from .registry import REGISTRY, register

_HOMES = {
    "Miss": "..ir.report",
    "PassResult": "..ir.report",
    "STAGES": "..ir.gradient_path",
    "Pass": ".base",
    "InternalError": ".manager",
    "NoMatchWarning": ".manager",
    "compile_program": ".manager",
    "option": ".options",
    "parse_pipeline": ".pipeline",
    "print_pipeline": ".pipeline",
    "REGISTRY": ".registry",
    "register": ".registry",
}

__all__ = [
    "REGISTRY",
    "STAGES",
    "InternalError",
    "Miss",
    "NoMatchWarning",
    "Pass",
    "PassResult",
    "compile_program",
    "option",
    "parse_pipeline",
    "print_pipeline",
    "register",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return __all__

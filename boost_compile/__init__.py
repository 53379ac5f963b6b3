"""boost-compile: a graph-rewrite compiler for training graphs.

The public API. Importing it loads neither MindSpore nor numpy: what a name needs is imported on its first use.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import os

    from . import passes
    from .ir.errors import Error
    from .ir.program import Program
    from .passes.base import Pass
    from .passes.boost_document import from_boost_config
    from .runtime.differentiation.differentiate import differentiate
    from .runtime.session import Session
    from .tools.budget import plan_memory
    from .tools.verification.report import Verification

_HOMES = {
    "Error": ".ir.errors",
    "Program": ".ir.program",
    "Session": ".runtime.session",
    "differentiate": ".runtime.differentiation.differentiate",
    "from_boost_config": ".passes.boost_document",
    "passes": ".passes",
    "plan_memory": ".tools.budget",
}

__all__ = [
    "Error",
    "Program",
    "Session",
    "compile",
    "differentiate",
    "from_boost_config",
    "load",
    "passes",
    "plan_memory",
    "verify",
]


def load(path: str | os.PathLike[str], dimensions: Mapping[str, int] | None = None) -> Program:
    """Reads a MindIR, a forward model in ONNX, or a program that was saved, and finds the roles of a training graph's
    state (weight, slot, …). ``dimensions``: sizes of what an ONNX model leaves open, by name.

    A file that is damaged is an :class:`Error` that says so. ``differentiate`` makes a training graph of a forward one.
    """
    from .ir.storage import load
    from .ir.training import assign_roles

    return assign_roles(load(path, dimensions))


def compile(program: Program, passes: str | Sequence[Pass], *, allow_no_match: bool = False) -> Program:
    """A new program, rewritten by a pipeline (``"gradient-accumulation{steps=4}"``) or by a list of passes.

    The argument is left as it is; ``reports`` of the result says what each pass did. A pass that matches nothing is an
    :class:`Error`; with ``allow_no_match``, or where it is optional (``"less-bn?"``, as in all that
    ``from_boost_config`` makes), a warning.
    """
    from .passes.manager import compile_program

    return compile_program(program, passes, allow_no_match=allow_no_match)


def verify(
    original: Program,
    program: Program,
    *,
    data: str | Sequence[Any] | None = None,
    cycles: int = 2,
    seed: int = 0,
    device: str = "CPU",
    bisect: bool = True,
) -> Verification:
    """Runs ``program`` beside the ``original`` that it was compiled from and checks what its passes promise.

    ``data``: an .npz file or a list of micro-batches; random ones without it. The report says for each property what
    was measured and what is allowed, and which pass is guilty; ``verified`` sums it up.
    """
    from .tools.verification.verifier import verify

    return verify(original, program, data=data, cycles=cycles, seed=seed, device=device, bisect=bisect)


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    module = import_module(home, __name__)
    return module if name == "passes" else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

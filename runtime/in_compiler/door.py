"""The door is opened and closed: the bridge is registered with MindSpore, and what it compiles is watched."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir.core.errors import OptionError, RuntimeFailure
from ..engine.environment import prepare_environment
from ..training.result import StepResult
from .build import bridge
from .enabled import Enabled, active
from .parameters import parameters_of
from .step import Compile
from .watch import watch

PASS = "boost-compile"
"""The name of the bridge's pass."""
_REGISTERED: list[str] = []
"""The bridge that MindSpore has loaded in this process."""


def enable(
    passes: Compile,
    text: str,
    cell: Any,
    match: str,
    name: str,
    on_update: Callable[[StepResult], object] | None,
) -> Enabled:
    """``passes`` rewrite a program, and ``text`` shows them; the rest is as ``boost_compile.enable`` says."""
    if not isinstance(name, str) or not isinstance(match, str):
        raise OptionError("name and match are texts.")
    library = str(bridge())
    prepare_environment(())
    if cell is not None and not parameters_of(cell):
        raise RuntimeFailure(f"this {type(cell).__name__} holds no Parameter.", python="Give a Cell or an optimizer.")
    if not _REGISTERED:
        _register(library)
    watch()
    enabled = Enabled(passes, text, cell, match, name, on_update)
    active().append(enabled)
    return enabled


def disable() -> None:
    """Ends all that :func:`enable` began: what MindSpore compiles from now on stays as it is. What it has compiled
    stays rewritten, which a warning says."""
    for enabled in list(active()):
        enabled.disable()


def _register(library: str) -> None:
    from mindspore import graph

    if not graph.register_custom_pass(PASS, library, "all", graph.CustomPassType.FULL_GRAPH):
        raise RuntimeFailure(f"MindSpore does not load the bridge {library}: remove that file, and try again.")
    _REGISTERED.append(library)

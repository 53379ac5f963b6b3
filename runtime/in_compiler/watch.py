"""What MindSpore compiles and runs, watched where its Python calls its compiler.

MindSpore runs a graph that it has compiled without asking passes again, so the hook alone never hears of a step that
was compiled before ``bc.enable``. Here such a step is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Any

from ...ir.core.errors import Error, RuntimeFailure
from ...ir.core.wording import sentence
from ..engine.device import first_paragraph
from ..engine.one_thread import is_inside
from .enabled import Enabled, TakenStep, active, asks_for, finish, who_asks
from .parameters import parameters_of
from .step import ONE_GRAPH, read_step
from .update import Update

EXPORT = "export"
"""How the phases begin in which MindSpore compiles a graph to write it."""
PHASE = "boost_compile_phase"
"""What MindSpore calls the graph that an executor compiled last."""


@dataclass(eq=False)
class Compilation:
    """One graph of MindSpore. ``heard``: who was asked about it."""

    exports: bool = False
    ends: bool = False
    """Whether somebody calls :meth:`finish` when MindSpore has compiled it."""
    came: bool = False
    """Whether the bridge was handed it."""
    heard: list[Enabled] = field(default_factory=list)
    taken: tuple[Enabled, TakenStep] | None = None
    left: Callable[[], Update] | None = None
    """What makes the update that is left to the host, until it is made."""
    update: Update | None = None

    def take(self, enabled: Enabled, step: TakenStep, left: Callable[[], Update] | None) -> None:
        self.taken, self.left = (enabled, step), left
        if not self.ends:
            self.finish()

    def finish(self) -> None:
        """Before each run: what fails here fails again in the next call, and the step does not run."""
        if self.left is not None:
            self.update, self.left = self.left(), None
        if self.taken is not None and self.taken[1] not in self.taken[0].steps:
            self.taken[0].steps.append(self.taken[1])


_RUNNING: list[Compilation] = []
"""The compilations that have begun, the innermost last."""
_KNOWN: dict[str, Compilation] = {}
"""By phase, as MindSpore calls a compiled graph."""


def current() -> Compilation:
    """The compilation that asks; one of its own where it did not begin here."""
    return _RUNNING[-1] if _RUNNING else Compilation()


@cache
def watch() -> None:
    """Begins to watch, once in a process."""
    from mindspore.experimental.optim.optimizer import Optimizer as Experimental
    from mindspore.nn import Optimizer, cell

    of_cells = type(cell._cell_graph_executor)
    of_functions = sys.modules[of_cells.__module__]._JitExecutor  # whatever the module is called in this release
    of_cells.compile = _watched_compile(of_cells.compile, lambda _, cell: cell)
    of_functions.compile = _watched_compile(of_functions.compile, lambda executor, _: [executor.fn, executor.obj])
    of_cells.__call__ = _watched_run(of_cells.__call__, lambda _, cell: getattr(cell, "current_phase", ""))
    of_functions.__call__ = _watched_run(of_functions.__call__, lambda executor, *_: getattr(executor, PHASE, ""))
    for kind in (Optimizer, Experimental):
        kind.__call__ = _guarded_update(kind.__call__)


def _watched_compile(build: Callable[..., Any], owner: Callable[..., Any]) -> Callable[..., Any]:
    """``owner``: whose Parameters the graph may have, by the executor and its first argument."""

    @wraps(build)
    def watched(executor: Any, what: Any, *args: Any, **options: Any) -> Any:
        compilation = Compilation(exports=str(options.get("phase", "")).startswith(EXPORT), ends=True)
        _RUNNING.append(compilation)
        try:
            made = build(executor, what, *args, **options)
        except Exception as error:
            if compilation.taken is None or isinstance(error, Error):
                raise
            said = first_paragraph(str(error))
            raise RuntimeFailure(
                sentence(f"MindSpore cannot compile {compilation.taken[1]} as it was rewritten: {said}"),
                python="bc.capture and bc.Session train such a program.",
            ) from error
        finally:
            _RUNNING.pop()
        phase = made[0] if isinstance(made, tuple) else made
        setattr(executor, PHASE, phase)
        if compilation.came or compilation.exports:
            _KNOWN[phase] = compilation
        elif active() and not is_inside():
            _refuse_old(executor, phase, owner(executor, what))
        if phase in _KNOWN:
            _KNOWN[phase].finish()
        return made

    return watched


def _refuse_old(executor: Any, phase: str, owner: Any) -> None:
    """RuntimeFailure for a training step that was asked for after MindSpore had compiled it."""
    known = _KNOWN.setdefault(phase, Compilation())
    new = [enabled for enabled in active() if enabled not in known.heard]
    if not new or known.exports:
        return
    known.heard += new
    if known.taken is not None:
        weights = known.taken[1].weights
        asked = [enabled for enabled in new if asks_for(enabled, weights)]
    else:
        data = executor._graph_executor.get_func_graph_proto(phase, "mind_ir", False)
        parameters = {p.name: p for p in parameters_of(owner)}
        weights, asked = who_asks(read_step(data, parameters), parameters, new)
    if asked:
        known.heard = [enabled for enabled in known.heard if enabled not in asked]
        raise RuntimeFailure(
            f"MindSpore had compiled the step that trains '{next(iter(weights))}' before bc.enable, and runs it as it "
            "was.",
            python="Call bc.enable before the first step, or make the cell or the function of the step anew.",
        )


def _watched_run(run: Callable[..., Any], phase_of: Callable[..., str]) -> Callable[..., Any]:
    @wraps(run)
    def watched(executor: Any, *args: Any, **options: Any) -> Any:
        result = run(executor, *args, **options)
        known = _KNOWN.get(phase_of(executor, *args[:1])) if _KNOWN else None
        if known is not None and known.taken is not None:
            finish(*known.taken, known.update, result)
        return result

    return watched


def _guarded_update(call: Callable[..., Any]) -> Callable[..., Any]:
    """An optimizer that Python calls updates outside of every graph that holds gradients."""

    @wraps(call)
    def guarded(optimizer: Any, *args: Any, **options: Any) -> Any:
        for enabled in active():
            if not is_inside() and asks_for(enabled, {p.name: p for p in parameters_of(optimizer)}):
                raise RuntimeFailure(
                    f"{type(optimizer).__name__} was called outside of a compiled step, which bc.enable does not see.",
                    python=ONE_GRAPH,
                )
        return call(optimizer, *args, **options)

    return guarded

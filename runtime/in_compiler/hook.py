"""What the bridge calls for every graph that MindSpore compiles."""

from __future__ import annotations

from functools import partial
from typing import Any

from ...ir.core.errors import Error
from ..engine.one_thread import is_inside
from .enabled import TakenStep, active, make_state, step_of, who_asks
from .step import read_step, rewrite_step
from .update import Update
from .watch import current


def is_listening() -> bool:
    """Whether anybody wants to see this graph; a session's own are nobody's, nor those that are exported."""
    return bool(active()) and not is_inside() and not current().exports


def rewrite(data: bytes, parameters: dict[str, Any]) -> tuple[bytes, list[str], dict[str, Any]] | None:
    """What replaces a graph: the rewritten one, whose last inputs are states, their names, and the Parameters among
    them that are new. None where it stays as it is. ``data``: the graph; ``parameters``: those of the script."""
    compilation = current()
    compilation.came = True
    compilation.heard += active()
    program = read_step(data, parameters)
    weights, asked = who_asks(program, parameters, active())
    if not asked:
        return None
    if len(asked) > 1:
        raise Error(
            f"{len(asked)} calls of bc.enable ask for the step that trains '{next(iter(weights))}'.",
            python="Say which one takes it by cell= or match=, or give one pipeline with all passes.",
        )
    (enabled,) = asked
    made = rewrite_step(program, enabled.compile, compilation.ends)
    new = {name: variable for name, variable in made.state.items() if name not in program.state}
    step = step_of(enabled, weights)
    if step is None:
        state = make_state(enabled, new)
        step = TakenStep(weights, made.program, state, dict(zip(new, state, strict=True)), made.graph.outputs)
    added = {name: step.state[step.inside[name]] for name in new}
    compilation.take(enabled, step, partial(Update, made.program, parameters | added) if made.apart else None)
    return made.to_bytes(), list(made.graph.states), added

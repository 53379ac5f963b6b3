"""The stated program: the original with what its passes say that they do, and no pass makes any of it.

The formulas of :mod:`boost_compile.ir.proof.formulas` state other optimizers, adapters, heads, schedules and removed
BatchNorms as graphs, which MindSpore runs. Half precision and other batch sizes are no formula: there the pass makes
the network, and float32 or MindSpore's autodiff judges it. So it is where a formula finds no place in an original.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...ir.analysis.training.network import network_parts
from ...ir.core.errors import Error
from ...ir.core.graph import Node
from ...ir.core.op import CALL
from ...ir.core.program import Program
from ...ir.proof import formulas
from ...ir.proof.formulas import freeze
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.graft import inline
from ...ir.rewrite.settle_results import settle_results
from ...passes.framework.base import Pass
from ...passes.framework.manager import NoMatchWarning, compile_program
from ...passes.legalize import Legalize
from ...passes.step.own_check import find_own_check
from ..judged import with_reports
from .promises import LEGALIZE, MIXED, STATED, Promises


@dataclass(frozen=True)
class Stated:
    """``program``: one graph. ``made``: the passes that made a part of it, and ``why`` where a formula would have.
    ``still``: the weights that are not trained any more; ``gone``: states that went with a pass."""

    program: Program
    made: tuple[str, ...] = ()
    why: str = ""
    still: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()


def state(
    original: Program, program: Program, promises: Promises, *, leave_out: str = "", opened: bool = False
) -> Stated:
    """What ``program`` is to train as, but for a pass named in ``leave_out``. ``opened``: as :func:`always_updating`
    has the original."""
    base, network = runnable(original, promises, program.target), [p for p in promises.network if p.name != leave_out]
    base = always_updating(base) if opened else base
    weights = [name for name, v in base.state.items() if v.role == "weight"]
    if not network:
        return Stated(base)
    recorded = with_reports(program)
    recorded = replace(recorded, reports=[report for report in recorded.reports if report.name != leave_out])
    making = [p for p in network if p.name not in STATED]
    try:
        base = formulas.restated(base, recorded)
        still, why = freeze.for_good(recorded, weights), ""
    except Error as reason:  # no formula is for this original or optimizer
        if not opened and always_updating(base) is not base:
            return state(original, program, promises, leave_out=leave_out, opened=True)
        making, still, why = network, frozenset[str](), str(reason)
    gone = frozenset(formulas.gone(original, recorded))
    made = [p.name for p in making]
    return Stated(_compiled(base, [_by_itself(p) for p in making]), tuple(made), why, still, gone)


def always_updating(program: Program) -> Program:
    """An original as it is where its own check for overflows lets it update: what it may leave out stands in its graph,
    and not in a branch, where no gradient can be had. The original itself where it has no such check."""
    copy = program.copy()
    ((_, graph),) = copy.graphs.items()
    settle_results(graph, network_parts(graph))
    fx = Effects(graph)
    own = find_own_check(graph, fx.list)
    if own is None:
        return program
    for call in [e.node for e in fx.list if e.node.op is CALL]:
        switch = call.operand(0)
        if isinstance(switch, Node) and (skipping := dict(own.conditions).get(switch.operand(0))) is not None:
            inline(fx, call, switch.operand(2 if skipping else 1))
    fx.commit()
    return copy


def runnable(original: Program, promises: Promises, target: str) -> Program:
    """The original in primitives that can be run here."""
    return _compiled(original, promises.having(LEGALIZE) if Legalize.needed_for(original, target) else [])


def _by_itself(p: Pass) -> Pass:
    """The pass without what it would bring along, which is judged too."""
    if p.name == MIXED and p.options()["level"] != "O0":
        return type(p)(**{**p.options(), "loss_scale": False})
    return p


def _compiled(program: Program, passes: Sequence[Pass]) -> Program:
    if not passes:
        return program
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoMatchWarning)  # told when the program was made
        return compile_program(program, passes, allow_no_match=True, reproducer_directory=None)

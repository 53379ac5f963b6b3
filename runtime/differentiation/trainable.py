"""Which state of a forward graph is trained: a rule, and what the user says."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from ...ir.analysis.effects.state_access import states_behind
from ...ir.analysis.functions.calls import bindings
from ...ir.core.errors import OptionError, nearest
from ...ir.core.graph import Graph
from ...ir.core.predicates import written_operands
from ...ir.core.primitives import Family, facts
from ...ir.core.program import Program
from ...ir.core.report import PassResult
from ...ir.core.walk import through
from ...ir.core.wording import agreed, counted


def statistics(graph: Graph) -> set[str]:
    """Names of the state that the forward part writes, or would write in training mode."""
    bound = bindings(graph)
    return {
        state.name
        for part in graph.all_graphs()
        for node in part
        if facts(node.op).family is not Family.LOOKUP  # Embedding shortens rows of the table that it trains
        for i in {*written_operands(node), *facts(node.op).statistics}
        if i < node.num_operands
        for state in states_behind(through(node.operand(i), ("Load",)), bound)  # inference mode reads statistics too
    }


def trained_names(
    program: Program, graph: Graph, train: Sequence[str], freeze: Sequence[str], report: PassResult
) -> list[str]:
    """The state to train, in the order of the program: floating-point numbers that the graph reads and does not write;
    of them what a glob of ``train`` matches (all without one), less what one of ``freeze`` does.

    OptionError where a glob matches nothing that can be trained, or nothing is left.
    """
    kept = statistics(graph)
    able = [n for n, v in program.state.items() if v.dtype.is_float and n not in kept and n in graph.states]
    for option, globs in (("train", train), ("freeze", freeze)):
        for glob in globs:
            if not any(fnmatchcase(name, glob) for name in able):
                raise OptionError(f"{option}: '{glob}' matches no state that can be trained{nearest(glob, able)}")
    chosen = [n for n in able if not train or any(fnmatchcase(n, g) for g in train)]
    chosen = [n for n in chosen if not any(fnmatchcase(n, g) for g in freeze)]
    if not chosen:
        raise OptionError(f"program '{program.name}' has no state to train: none is left, or the graph reads none")
    report.matched, report.changed = len(program.state), len(chosen)
    frozen = set(able).difference(chosen)
    for name in program.state:
        if name in frozen:
            report.miss(name, "frozen, as asked")
        elif name not in able and name not in kept:
            report.miss(name, "not trained: its type is no floating-point number, or the graph does not read it")
    report.statistics["statistics"] = len(kept)
    report.summary = (
        f"{len(chosen)} of {counted(len(program.state), 'state')} {agreed(len(chosen), 'is', 'are')} trained, "
        f"{len(kept)} {agreed(len(kept), 'is a statistic', 'are statistics')}"
    )
    return chosen

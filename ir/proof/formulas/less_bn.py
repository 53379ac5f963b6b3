"""Fewer BatchNorms: the network without those whose scale the program has no more.

Where such a BatchNorm stood its input goes on, and backward the gradient of its output. Its own gradients are 0, so a
norm or a test of all gradients is one without them. Its state is no part of the claim.
"""

from __future__ import annotations

from collections.abc import Iterator

from ...analysis.effects.state_access import state_behind
from ...core.graph import Constant, Graph, Node, State, Value
from ...core.primitives import Family, facts
from ...core.program import Program
from ...core.walk import through
from .statement import Stated

PASS = "less-bn"
_SCALE = {Family.BATCH_NORM: 1, Family.BATCH_NORM_GRADIENT: 2}
"""Which operand is the scale."""


def asked(program: Program) -> bool:
    return any(r.name == PASS and r.changed for r in program.reports)


def gone(original: Program, program: Program) -> set[str]:
    """The states that go with the BatchNorms: what they learn, and the slots of it."""
    if not asked(program):
        return set()
    found: set[str] = set()
    for graph in original.graphs.values():
        for node in _norms(graph, program):
            if facts(node.op).family is Family.BATCH_NORM:
                found |= {v.name for i in range(1, 5) if (v := _state(node.operand(i))) is not None}
    return {n for n, v in original.state.items() if (n in found or v.weight in found) and n not in program.state}


def without(original: Program, program: Program) -> Program:
    """The original without these BatchNorms; they stand there still, and nothing takes their results."""
    if not asked(program):
        return original
    copy = original.copy()
    for graph in copy.graphs.values():
        for node in list(_norms(graph, program)):
            scale = node.operand(_SCALE[facts(node.op).family])
            for user, at in list(_elements(node)):
                if at == 0:
                    user.replace_uses(node.operand(0))
                elif facts(node.op).family is Family.BATCH_NORM_GRADIENT:
                    with graph.inserting_before(user):
                        user.replace_uses(graph.create("ZerosLike", [scale]))
    return copy


def state(original: Program, program: Program) -> list[Stated]:
    names = tuple(sorted(n for n in gone(original, program) if original.state[n].role == "weight"))
    return [Stated(PASS, {}, "the network has no BatchNorm with these weights", names)] if names else []


def _norms(graph: Graph, program: Program) -> Iterator[Node]:
    """The BatchNorms, and the gradients of such, whose scale is no state of the program."""
    for node in graph:
        at = _SCALE.get(facts(node.op).family)
        scale = _state(node.operand(at)) if at is not None and at < node.num_operands else None
        if scale is not None and scale.name not in program.state:
            yield node


def _state(value: Value) -> State | None:
    """The state behind a value that was loaded or cast."""
    return state_behind(through(value, ("Load", "Cast", "Depend")))


def _elements(node: Node) -> Iterator[tuple[Node, int]]:
    for user, i in node.use_sites():
        if user.op.name == "Depend" and i == 0:
            yield from _elements(user)
        elif user.op.name == "TupleGetItem":
            at = user.operand(1)
            if isinstance(at, Constant) and isinstance(at.value, int):
                yield user, at.value

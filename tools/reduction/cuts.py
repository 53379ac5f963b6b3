"""Cuts of a program, piece by piece, so that the rest is a program again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Hashable, Iterator
from dataclasses import replace

from ...ir.analysis.compare.difference import layer
from ...ir.builders.branch import zeros
from ...ir.core.errors import VerifyError
from ...ir.core.graph import Graph, Node, Value
from ...ir.core.program import Program
from ...ir.core.types import is_monad
from ...ir.core.walk import result_value
from ...ir.rewrite.effects.editing import Effects
from ...passes.dead_code_elimination import DeadCodeElimination

Piece = Hashable
"""Names a piece in every copy of the program: by graph, function and position."""
Cut = tuple[Callable[[Program], list[Piece]], Callable[[Program, Collection[Piece]], None]]
"""The pieces that a program has, and what leaves the given ones out of (a copy of) it. What that raises means that it
cannot be done."""

_NEAR = 100
"""Among so many values before a node one is sought that can stand for it."""


def bodies(program: Program) -> Iterator[tuple[tuple[str, str], Graph]]:
    """Main graphs and functions with their names."""
    for name, graph in program.graphs.items():
        for body in graph.all_graphs():
            yield (name, "" if body is graph else body.name), body


def tidy(program: Program) -> None:
    """Leaves out what nothing needs any more: nodes, functions, states, constants' bytes."""
    DeadCodeElimination().run(program)


# -- graphs ------------------------------------------------------------------------------------------------------------


def graph_names(program: Program) -> list[Piece]:
    return list(program.graphs) if len(program.graphs) > 1 else []


def drop_graphs(program: Program, names: Collection[Piece]) -> None:
    """And what the schedule says of them."""
    schedule = program.schedule
    cycle = tuple(e for e in schedule.cycle if e.graph not in names)
    flush = None if schedule.flush in names else schedule.flush
    program.schedule = replace(schedule, cycle=cycle, flush=flush)
    for name in names:
        del program.graphs[str(name)]


# -- outputs -----------------------------------------------------------------------------------------------------------


def outputs(program: Program) -> list[Piece]:
    found: list[Piece] = []
    for name, graph in program.graphs.items():
        result = result_value(graph)
        if isinstance(result, Node) and result.op.name == "MakeTuple":
            found += [(name, i) for i in range(result.num_operands)]
    return found


def drop_outputs(program: Program, pieces: Collection[Piece]) -> None:
    for name, graph in program.graphs.items():
        result = result_value(graph)
        if not (isinstance(result, Node) and result.op.name == "MakeTuple"):
            continue
        kept = [i for i in range(result.num_operands) if (name, i) not in pieces]
        if len(kept) == result.num_operands or not kept:
            continue
        named = len(graph.outputs) == result.num_operands
        values = [result.operand(i) for i in kept]
        packed = values[0] if len(values) == 1 else graph.create("MakeTuple", values)
        graph.outputs = tuple(graph.outputs[i] for i in kept) if named else graph.outputs
        Effects(graph).commit(packed)


# -- effects -----------------------------------------------------------------------------------------------------------


def effects(program: Program) -> list[Piece]:
    """Updates of state, prints, calls that do such things; not mere reads."""
    return [(*names, i) for names, body in bodies(program) for i in range(len(Effects(body).writes()))]


def drop_effects(program: Program, pieces: Collection[Piece]) -> None:
    for names, body in bodies(program):
        fx = Effects(body)
        doomed = [e for i, e in enumerate(fx.writes()) if (*names, i) in pieces]
        if doomed:
            fx.drop(doomed)
            for effect in doomed:
                if effect.node.uses:
                    effect.node.replace_uses(_bypass(body, effect.node))
            fx.commit()


# -- nodes -------------------------------------------------------------------------------------------------------------


def scopes(program: Program) -> list[Piece]:
    """Layers of the network, as far as nodes say."""
    return list(dict.fromkeys(layer(node) for _, body in bodies(program) for node in body if node.scope))


def drop_scopes(program: Program, pieces: Collection[Piece]) -> None:
    _drop(program, lambda names, i, node: bool(node.scope) and layer(node) in pieces, _bypass)


def nodes(program: Program) -> list[Piece]:
    """All nodes, those next to the result first: what they need goes with them."""
    found: list[Piece] = [(*names, i) for names, body in bodies(program) for i in range(len(body))]
    return found[::-1]


def drop_nodes(program: Program, pieces: Collection[Piece]) -> None:
    """With zeros in their place, so that what they need goes too."""
    _drop(program, lambda names, i, node: (*names, i) in pieces, _constant)


def bypass_nodes(program: Program, pieces: Collection[Piece]) -> None:
    """With what they are computed from in their place."""
    _drop(program, lambda names, i, node: (*names, i) in pieces, _bypass)


def _drop(
    program: Program,
    doomed: Callable[[tuple[str, str], int, Node], bool],
    substitute: Callable[[Graph, Node], Value],
) -> None:
    for names, body in bodies(program):
        for i, node in enumerate(list(body)):
            if node.uses and doomed(names, i, node):
                try:
                    node.replace_uses(substitute(body, node))
                except VerifyError:
                    continue  # there is nothing to put in its place


def _bypass(body: Graph, node: Node) -> Value:
    """The nearest value of the node's type that it is computed from, a node if possible; else zeros."""
    near: dict[Value, None] = dict.fromkeys(node.operands)
    found = [value for value in near if value.type == node.type]
    queue = deque(near)
    while queue and len(near) < _NEAR and not any(isinstance(v, Node) for v in found):
        value = queue.popleft()
        if isinstance(value, Node):
            if value.type == node.type:
                found.append(value)
            fresh = [v for v in value.operands if v not in near]
            near.update(dict.fromkeys(fresh))
            queue.extend(fresh)
    return next((v for v in found if isinstance(v, Node)), found[0] if found else None) or _constant(body, node)


def _constant(body: Graph, node: Node) -> Value:
    if is_monad(node.type):
        for operand in node.operands:
            if operand.type == node.type:
                return operand
    with body.inserting_before(node):
        return zeros(body, node.type, node.scope)


# -- inputs ------------------------------------------------------------------------------------------------------------


def inputs(program: Program) -> list[Piece]:
    return [(name, v.name) for name, graph in program.graphs.items() for v in graph.inputs if not v.uses]


def drop_inputs(program: Program, pieces: Collection[Piece]) -> None:
    for name, graph in program.graphs.items():
        graph.inputs[:] = [v for v in graph.inputs if (name, v.name) not in pieces]


# -- state -------------------------------------------------------------------------------------------------------------


def unused_state(program: Program) -> list[Piece]:
    used = program.used_state()
    return [name for name in program.state if name not in used]


def drop_unused_state(program: Program, names: Collection[Piece]) -> None:
    """State that served a weight that goes serves none then."""
    program.drop_state(map(str, names))
    for variable in program.state.values():
        if variable.weight not in program.state:
            variable.weight = ""


CUTS: dict[str, Cut] = {
    "graphs": (graph_names, drop_graphs),
    "outputs": (outputs, drop_outputs),
    "effects": (effects, drop_effects),
    "scopes": (scopes, drop_scopes),
    "nodes": (nodes, drop_nodes),
    "nodes on the way": (nodes, bypass_nodes),
    "inputs": (inputs, drop_inputs),
    "state": (unused_state, drop_unused_state),
}
"""From coarse to fine."""

"""On CPU: a Switch at the end of a graph that states alone decide is decided by the session.

A self-contained file counts its micro-batches in a state, and a Switch updates where the last one of a cycle is there.
The session reads the count, as it does for a program of several graphs, and runs what stands in front of the Switch and
each of its two ways as graphs of their own. So no graph has control flow, which costs each kernel 1.2 µs or more, and
the lowerings for an update at the end of a cycle apply to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from ...ir.analysis.effects.effect_list import EffectList, list_effects
from ...ir.analysis.functions.calls import forget_unreached, switch_behind
from ...ir.core.attributes import TensorValue
from ...ir.core.graph import Constant, Graph, Input, Node, State, Value
from ...ir.core.op import CALL
from ...ir.core.predicates import is_random
from ...ir.core.primitives import CPU
from ...ir.core.types import TupleType, is_monad
from ...ir.core.walk import result_value, walk
from ...ir.rewrite.cpu.host_clearing import sharing_memory
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.graft import inline
from .conditional import bound
from .context import Context
from .host_part import COMPUTED, HostPart, is_number
from .measures import is_constant


class Piece(NamedTuple):
    """``takes``: the places of its inputs among those of the whole. Where nothing is to be run, ``graph`` is None and
    ``constants`` are its results."""

    graph: Graph | None
    takes: tuple[int, ...] = ()
    constants: tuple[Constant, ...] = ()


class Way(NamedTuple):
    """``results``: the place of each result of the whole among those of the piece before the Switch and its own."""

    piece: Piece
    results: tuple[int, ...]


@dataclass(frozen=True)
class Division:
    """``before`` runs first. ``condition`` then tells from the states whether the first or the second way runs."""

    before: Piece
    condition: HostPart
    ways: tuple[Way, Way]

    @property
    def graphs(self) -> list[Graph]:
        pieces = (self.before, *(way.piece for way in self.ways))
        return [piece.graph for piece in pieces if piece.graph is not None]


def divide(graph: Graph, context: Context) -> Division | None:
    """The pieces of a graph; None where it ends in no Switch that states decide. ``graph`` itself is not changed."""
    if context.target != CPU or not graph.functions or any(map(is_random, _inner_nodes(graph))):
        return None
    listed = list_effects(graph)
    writes = listed.writes()
    call = writes[-1].node if writes else None
    switch = switch_behind(call.operand(0)) if call is not None and call.op is CALL else None
    if call is None or switch is None or call.num_operands != 1 or not _is_last(call, listed):
        return None
    branches = [bound(switch.operand(i)) for i in (1, 2)]
    condition = _condition(graph, switch.operand(0), call, listed)
    if condition is None or any(branch is None or not _stands_alone(branch[1]) for branch in branches):
        return None
    found = [_results(graph, call, switch.operand(0), holds) for holds in (True, False)]
    pieces = [_way(graph, call, branch) for branch in (1, 2)]
    written = next(effect.writes for effect in listed.effects if effect.node is call)
    if any(_are_lost(values, piece, written) for values, piece in zip(found, pieces, strict=True)):
        return None
    kept = list(dict.fromkeys(v for values in found for v in values or () if isinstance(v, Value)))
    places = [[len(kept) + v if isinstance(v, int) else kept.index(v) for v in values or ()] for values in found]
    ways = [Way(piece, tuple(mine)) for piece, mine in zip(pieces, places, strict=True)]
    only = len(writes) == 1 and not kept
    return Division(Piece(None) if only else _before(graph, call, kept), condition, (ways[0], ways[1]))


def _inner_nodes(graph: Graph) -> Iterator[Node]:
    """The nodes of functions. What they draw is drawn by the name of the graph."""
    return chain.from_iterable(graph.functions.values())


def _are_lost(results: Sequence[Value | int] | None, piece: Piece, written: Collection[Value]) -> bool:
    """Whether the results of a way are unknown, or may have changed when its piece has run: they are memory of states
    that it writes."""
    if results is None:
        return True
    shared = sharing_memory([v for v in results if isinstance(v, Value)])
    return piece.graph is not None and not set(written).isdisjoint(shared)


def _is_last(call: Node, listed: EffectList) -> bool:
    """Whether nothing reads what the call writes."""
    effects = listed.effects
    at = next(i for i, effect in enumerate(effects) if effect.node is call)
    return all(effects[at].writes.isdisjoint(effect.reads) for effect in effects[at + 1 :])


def _condition(graph: Graph, condition: Value, call: Node, listed: EffectList) -> HostPart | None:
    """What computes a condition from states as they are when all but the call has run; None where that is not it."""
    place = {effect.node: i for i, effect in enumerate(listed.effects)}
    wrote = {s: i for i, e in enumerate(listed.effects) if e.node is not call for s in e.writes}
    anything = max((i for i, e in enumerate(listed.effects) if e.everything and e.node is not call), default=-1)

    def is_known(value: Value) -> bool:
        if not isinstance(value, Node) or not is_number(value):
            return is_constant(value)
        if value.op.name != "Load":
            return value.op.name in COMPUTED
        state = value.operand(0)
        return isinstance(state, State) and max(wrote.get(state, -1), anything) < place.get(value, -1)

    def sources(value: Value) -> Sequence[Value]:
        return value.operands if isinstance(value, Node) and value.op.name in COMPUTED else ()

    behind = set(walk([condition], sources))
    if not isinstance(condition, Node) or not all(map(is_known, behind)):
        return None
    host = Graph(graph.name)
    host.result = host.constant(True)
    fx = Effects(host)
    new: dict[Value, Value] = {}
    for node in graph:
        if node in behind and node.op.name == "Load":
            state = node.operand(0)
            new[node] = fx.load(host.state(state.name, state.type), scope=node.scope)
        elif node in behind:
            operands = [new[v] if v in new else host.constant(v.value) for v in node.operands]  # type: ignore[attr-defined]
            new[node] = host.create(node.op, operands, node.type, scope=node.scope)
    fx.commit(host.create("MakeTuple", [new[condition]]))
    return HostPart(host, (), [(0, True)])


def _stands_alone(arguments: Sequence[Value]) -> bool:
    """Whether a function takes nothing that the graph computes."""
    return all(isinstance(v, (State, Input, Constant)) or is_monad(v.type) for v in arguments)


def _results(graph: Graph, call: Node, condition: Value, holds: bool) -> list[Value | int] | None:
    """For each result the value of the graph, or the place among the results of the call; None where one is computed
    from what the call returns."""
    whole = result_value(graph)
    if whole is call:
        return [*range(len(call.type.elements) if isinstance(call.type, TupleType) else 1)]
    several = isinstance(whole, Node) and whole.op.name == "MakeTuple"
    found: list[Value | int] = []
    for value in whole.operands if isinstance(whole, Node) and several else [whole]:
        while isinstance(value, Node) and value.op.name == "Select" and value.operand(0) is condition:
            value = value.operand(1 if holds else 2)
        place = _place(value, call)
        if place is None and call in walk([value], _operands):
            return None
        found.append(value if place is None else place)
    return found


def _place(value: Value, call: Node) -> int | None:
    if value is call and not isinstance(call.type, TupleType):
        return 0
    if not (isinstance(value, Node) and value.op.name == "TupleGetItem" and value.operand(0) is call):
        return None
    place = value.operand(1).literal
    assert isinstance(place, int)
    return place


def _operands(value: Value) -> Sequence[Value]:
    return value.operands if isinstance(value, Node) else ()


def _before(graph: Graph, call: Node, kept: Sequence[Value]) -> Piece:
    """What runs in front of the Switch, and returns values of the graph."""

    def edit(fx: Effects, twin: dict[Value, Value]) -> Value:
        fx.drop([effect for effect in fx.list if effect.node is twin[call]])
        values = [twin.get(v, v) for v in kept]
        if not values:
            return fx.graph.constant(True)
        return values[0] if len(values) == 1 else fx.graph.create("MakeTuple", values)

    return _piece(graph, graph.name, edit)


def _way(graph: Graph, call: Node, branch: int) -> Piece:
    """One way of the Switch, which returns what its function does."""
    switch = switch_behind(call.operand(0))
    assert switch is not None
    function, _ = bound(switch.operand(branch))  # type: ignore[misc]
    result = result_value(function)
    several = isinstance(result, Node) and result.op.name == "MakeTuple"
    values = result.operands if isinstance(result, Node) and several else (result,)
    constants = tuple(v for v in values if isinstance(v, Constant) and isinstance(v.value, TensorValue))
    if not list_effects(function).effects and len(constants) == len(values):
        return Piece(None, constants=constants)

    def edit(fx: Effects, twin: dict[Value, Value]) -> Value:
        mine = twin[call]
        assert isinstance(mine, Node)
        fx.drop([effect for effect in fx.list if effect.node is not mine])
        copy = switch_behind(mine.operand(0))
        assert copy is not None
        inner, arguments = bound(copy.operand(branch))  # type: ignore[misc]
        returned = result_value(inner)
        given = dict[Value, Value](zip(inner.inputs, arguments, strict=True))
        inline(fx, mine, copy.operand(branch))
        return given.get(returned, returned)

    return _piece(graph, f"{graph.name}.{function.name}", edit)


def _piece(graph: Graph, name: str, edit: Callable[[Effects, dict[Value, Value]], Value]) -> Piece:
    """A copy of a graph of which ``edit`` leaves a part, and says what it returns."""
    copy, twin = graph.clone(name)
    fx = Effects(copy)
    copy.outputs = ()
    fx.commit(edit(fx, twin))
    forget_unreached(copy)
    copy.forget_unused_states()
    takes = tuple(i for i, value in enumerate(copy.inputs) if value.uses)
    copy.inputs = [copy.inputs[i] for i in takes]
    return Piece(copy, takes)

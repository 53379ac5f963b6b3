"""On CPU: small states that are updated in the same way are updated at once, in an arena.

A kernel takes 3 µs or more, however small its operands. Here the states stand side by side in memory
(:mod:`.arenas`), their gradients are joined, and one kernel updates all of them, with the bits of each by itself. What
scales the gradients one by one scales them once. The update runs when the last gradient is there.

Accumulators are added to in the same way, and read as one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import NamedTuple

from ...ir.analysis.effects.tokens import orders_only
from ...ir.builders.packing import join, part_of, places, without_idle_reshape
from ...ir.builders.reduce import LONGEST_ROW
from ...ir.core.attributes import TensorValue
from ...ir.core.data import ZeroData
from ...ir.core.graph import Constant, Graph, Node, State, Value, tensor_type
from ...ir.core.predicates import written_operands
from ...ir.core.primitives import Family, named
from ...ir.core.types import DType, TensorType, TupleType, Type
from ...ir.core.walk import unpacked
from ...ir.core.wording import counted
from ...ir.rewrite.effects.editing import Effects
from .arenas import ALIGNED, Arena
from .context import Context
from .update_groups import FEWEST, UpdateGroup, can_be_placed, kinds_of_updates, update_groups

_EXACT = named(Family.SUM, Family.DIFFERENCE, Family.PRODUCT, Family.QUOTIENT) | {"MulNoNan"}
"""Primitives of which each element is rounded once, whatever stands beside it."""
_LONGEST = 4
"""How many of these, one behind the other, are computed in a row: unscaling, a mean, a clip, what an overflow skips."""


def applies(graph: Graph, context: Context) -> bool:
    return bool(kinds_of_updates(graph, context))


def run(graph: Graph, context: Context) -> str:
    Effects(graph).commit()  # so that what runs behind an update is what must
    groups = update_groups(graph, context)
    fx = Effects(graph)
    joined = [part for group in groups for part in _by_arena(group, context) if _join(fx, part, context)]
    if not joined:
        return ""
    _load_at_once(fx, context)
    fx.commit()
    graph.forget_unused_states()
    updates = sum(len(group.nodes) for group in joined)
    return f"{counted(updates, 'small update')} made as {len(joined)}"


def _by_arena(group: UpdateGroup, context: Context) -> list[UpdateGroup]:
    """The updates of a group whose states are in one arena apart from the others, and those in none, if not too few."""
    parts: dict[Arena | None, list[Node]] = {}
    states = next(group.states())
    for node, state in zip(group.nodes, states, strict=True):
        parts.setdefault(context.arenas.holding.get(state.name), []).append(node)
    worth = [nodes for arena, nodes in parts.items() if arena is not None or len(nodes) >= FEWEST]
    return [replace(group, nodes=tuple(nodes)) for nodes in worth]


class _Layout(NamedTuple):
    """Where each update of a group has its elements, and how many there are with the room between them."""

    nodes: tuple[Node, ...]
    begins: tuple[int, ...]
    size: int


def _join(fx: Effects, group: UpdateGroup, context: Context) -> bool:
    """One update in the place of those of a group, where its states can be in arenas of one layout."""
    graph, arenas = fx.graph, context.arenas
    layout = _layout(group, context)
    lanes = {lane: [node.operand(lane) for node in layout.nodes] for lane in group.lanes}
    states = {lane: [v.name for v in values] for lane, values in lanes.items() if isinstance(values[0], State)}
    if not all(arenas.fits(names, layout.begins, layout.size) for names in states.values()):
        return False
    first = layout.nodes[0]
    operands, names = list(first.operands), dict[str, str]()
    for lane, values in lanes.items():
        if lane in states:
            arena = arenas.of(states[lane], layout.begins, layout.size)
            operands[lane] = graph.state(arena.name, TensorType(DType.FLOAT32, (layout.size,)))
            names[states[lane][0]] = arena.name
        else:
            operands[lane] = _behind(graph, _joined(graph, values, layout), group)
    written = written_operands(first)
    shape = tensor_type(first.operand(written[0])).shape

    def grown(type_: Type) -> Type:
        if isinstance(type_, TupleType):
            return TupleType(tuple(map(grown, type_.elements)), type_.is_list, type_.dynamic)
        if not (isinstance(type_, TensorType) and type_.shape == shape):
            return type_
        return TensorType(type_.dtype, (layout.size,), names.get(type_.ref, type_.ref))

    node = graph.create(first.op, operands, grown(first.type), scope=first.scope, sources=layout.nodes)
    own = set(group.nodes)
    last = max(i for i, effect in enumerate(fx.list) if effect.node in own)
    place = sum(effect.node not in own for effect in fx.list[:last])
    fx.drop([effect for effect in fx.list if effect.node in own])
    fx.adopt(node)
    fx.list.insert(place, fx.list.pop())
    return True


def _layout(group: UpdateGroup, context: Context) -> _Layout:
    """That of the arena that holds the states; else that of a tensor of which all gradients are parts; else they follow
    each other as the updates do."""
    nodes = group.nodes
    for states in group.states():
        arena = context.arenas.holding.get(states[0].name)
        if arena is not None:
            of = {node: arena.begins.get(state.name, 0) for node, state in zip(nodes, states, strict=True)}
            nodes = tuple(sorted(nodes, key=of.__getitem__))
            return _Layout(nodes, tuple(of[node] for node in nodes), arena.size)
    lane = next((lane for lane in group.lanes if not isinstance(nodes[0].operand(lane), State)), None)
    found = [] if lane is None else [part_of(node.operand(lane)) for node in nodes]
    parts = [part for part in found if part is not None]
    if parts and len(parts) == len(found):
        at = {node: begin for node, (_, begin) in zip(nodes, parts, strict=True)}
        nodes = tuple(sorted(nodes, key=at.__getitem__))
    weights = [tensor_type(node.operand(group.lanes[0])) for node in nodes]
    begins, end = places((type_.size for type_ in weights), ALIGNED)
    return _Layout(nodes, begins, _size(parts, begins, end))


def _size(parts: Sequence[tuple[Value, int]], begins: Sequence[int], end: int) -> int:
    """The elements of an arena whose last member ends at ``end``. What gradients are ``parts`` of is taken as it is,
    with some room at its end, unless that room has parts of others."""
    if not parts or sorted(parts, key=itemgetter(1)) != [(parts[0][0], begin) for begin in begins]:
        return end
    whole, _ = parts[0]
    size = tensor_type(whole).size
    alone = sum(user.op.name == "Slice" for user in whole.uses) == len(parts)
    return size if alone and end <= size <= end + LONGEST_ROW else end


def _joined(graph: Graph, values: Sequence[Value], layout: _Layout, longest: int = _LONGEST) -> Value:
    """The values in one row, each where the layout says. What is computed of each in the same way is computed once."""
    whole = _whole(graph, values, layout)
    if whole is not None:
        return whole
    first = values[0]
    if longest and isinstance(first, Node) and all(_is_alike(value, first) for value in values):
        nodes = [value for value in values if isinstance(value, Node)]
        operands = [
            v if _is_common(nodes, i) else _joined(graph, [node.operand(i) for node in nodes], layout, longest - 1)
            for i, v in enumerate(first.operands)
        ]
        type_ = TensorType(DType.FLOAT32, (layout.size,))
        return graph.create(first.op, operands, type_, scope=first.scope, sources=nodes)
    terms = list(values)
    if rest := layout.size - places((tensor_type(value).size for value in values), ALIGNED)[1]:
        zeros = TensorType(DType.FLOAT32, (rest,))
        terms.append(graph.constant(TensorValue(zeros, ZeroData(zeros.nbytes))))
    row = join(graph, terms, scope="", multiple=ALIGNED)
    for term in unpacked([row.operand(0)]):
        without_idle_reshape(graph, term)
    return row


def _whole(graph: Graph, values: Sequence[Value], layout: _Layout) -> Value | None:
    """What the values are parts of, or a part of that, where they stand there as the layout says."""
    parts = [part_of(value) for value in values]
    if parts[0] is None:
        return None
    whole, start = parts[0]
    if parts != [(whole, start + begin) for begin in layout.begins]:
        return None
    size = tensor_type(whole).size
    if start == 0 and size == layout.size:
        return whole
    if start + layout.size > size:
        return None
    bounds = [graph.constant((start,)), graph.constant((layout.size,))]
    return graph.create("Slice", [whole, *bounds], TensorType(DType.FLOAT32, (layout.size,)), scope="")


def _is_alike(value: Value, first: Node) -> bool:
    """Whether a value, which nobody else takes, is computed element by element by the same primitive as the first, of
    two operands: of tensors of its shape, or of the same numbers."""
    if not isinstance(value, Node) or value.op is not first.op or value.num_operands != 2:
        return False
    if value.op.name not in _EXACT or _uses(value) != 1:
        return False
    shape = tensor_type(value).shape
    for mine, its in zip(value.operands, first.operands, strict=True):
        type_ = mine.type
        if not isinstance(type_, TensorType) or type_.dtype is not DType.FLOAT32:
            return False
        if type_.shape != shape and (mine is not its or type_.size != 1):
            return False
    return True


def _is_common(nodes: Sequence[Node], i: int) -> bool:
    """Whether an operand is a number that all take."""
    number = nodes[0].operand(i)
    return tensor_type(number).size == 1 and all(node.operand(i) is number for node in nodes)


def _uses(value: Value) -> int:
    return sum(not orders_only(*use) for use in value.use_sites())


def _behind(graph: Graph, value: Value, group: UpdateGroup) -> Value:
    """A value that waits for those who read the states of the group: they know nothing of the arena."""
    before: set[Value] = set()
    stack = [value]
    while stack:
        here = stack.pop()
        if here not in before:
            before.add(here)
            stack += here.operands if isinstance(here, Node) else ()
    late = [reader for reader in group.readers if reader not in before and reader.graph is graph]
    return graph.create("Depend", [value, graph.create("MakeTuple", late)]) if late else value


def _load_at_once(fx: Effects, context: Context) -> None:
    """Loads of accumulators that a graph only reads, and joins in a row, become one Load of an arena. The room between
    accumulators is cleared with them, so it holds zeros, as the row does, or what an overflow left in this cycle.
    Between weights an update may leave anything."""
    graph = fx.graph
    written = {state for effect in fx.list for state in effect.writes}
    for node in [node for node in graph if node.op.name == "Concat"]:
        loads = _row_of_loads(node)
        states = [load.operand(0) for load in loads]
        if len(loads) < FEWEST or not all(_may_be_read(state, written, context) for state in states):
            continue
        names, size = [state.name for state in states], tensor_type(node).size
        begins, end = places((tensor_type(state).size for state in states), ALIGNED)
        if begins == (*loads.values(),) and size >= end and context.arenas.fits(names, begins, size):
            arena = context.arenas.of(names, begins, size)
            state = graph.state(arena.name, TensorType(DType.FLOAT32, (size,)))
            node.replace_uses(fx.load(state, scope=node.scope))
            graph.erase(node)


def _may_be_read(state: Value, written: Collection[Value], context: Context) -> bool:
    if not isinstance(state, State) or state in written or not can_be_placed(state, context):
        return False
    return context.program.state[state.name].role == "accumulator"


def _row_of_loads(node: Node) -> dict[Node, int]:
    """The Loads that a Concat joins in a row, with zeros between them, and where each begins; none where it joins
    anything else, or one twice."""
    terms, axis = node.operand(0), node.operand(1)
    if not (isinstance(terms, Node) and terms.op.name == "MakeTuple" and axis.literal == 0):
        return {}
    loads: dict[Node, int] = {}
    end = 0
    for term in terms.operands:
        type_ = tensor_type(term)
        value = term.operand(0) if isinstance(term, Node) and term.op.name == "Reshape" else term
        if isinstance(value, Node) and value.op.name == "Load" and value not in loads and len(type_.shape) == 1:
            loads[value] = end
        elif not (isinstance(term, Constant) and isinstance(term.value, TensorValue) and term.value.data.is_zero()):
            return {}
        end += type_.size
    return loads

"""Updates of a graph that one update of an arena can take the place of: the same primitive with the same numbers, on
small states of which each element is updated by itself.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...ir.analysis.effects.effect_list import EffectList, list_effects
from ...ir.analysis.effects.state_access import state_behind
from ...ir.analysis.effects.tokens import orders_only
from ...ir.builders.reduce import BIG
from ...ir.core.attributes import bits
from ...ir.core.graph import Constant, Graph, Node, State, Value, tensor_type
from ...ir.core.op import CALL
from ...ir.core.predicates import is_random, written_operands
from ...ir.core.primitives import BINDING, CPU, VIEWS, facts
from ...ir.core.types import DType, TensorType, is_monad
from ...ir.core.walk import walk
from ...ir.rewrite.cpu.host_clearing import sharing_memory
from .arenas import ALIGNED
from .context import Context

FEWEST = 5
"""Updates that are worth being joined: each value of another shape than a row takes a kernel, and joining them one."""
MOST = 8
"""Groups of a graph that are joined, the largest: each is held against the whole graph."""
SMALL = 4 * BIG
"""Elements up to which copying a gradient takes less time than an update of its own."""

_ROUNDS_ALIKE = frozenset({"ApplyMomentum", "SGD", "AssignAdd", "AssignSub"})
"""Primitives whose kernels round each element in the same way. The others take 16 elements at once and what is left by
other instructions, which may round otherwise: Adam, for one."""


@dataclass(frozen=True, slots=True, eq=False)
class UpdateGroup:
    """``nodes`` update their states in this order. ``lanes``: the operands that each of them has for itself, states or
    values of the shape of its weight. ``readers``: who reads the states before."""

    nodes: tuple[Node, ...]
    lanes: tuple[int, ...]
    readers: tuple[Node, ...]

    def states(self) -> Iterator[tuple[State, ...]]:
        """The states of each lane that has some, in the order of the nodes."""
        for lane in self.lanes:
            found = tuple(v for node in self.nodes if isinstance(v := node.operand(lane), State))
            if found:
                yield found


def update_groups(graph: Graph, context: Context) -> list[UpdateGroup]:
    """The groups of a graph, the largest first. Linear in nodes."""
    listed = list_effects(graph)
    acts = {effect.node for effect in listed.effects}
    candidates = {node: lanes for node, lanes in _candidates(graph, context).items() if node in acts}
    if len(candidates) < FEWEST or any(effect.everything or effect.io for effect in listed.effects):
        return []
    apart = _touched_otherwise(graph, listed, candidates)
    found: dict[Hashable, list[Node]] = {}
    for node, lanes in candidates.items():
        if apart.isdisjoint(_states(node, lanes)):
            found.setdefault(_kind(node, lanes), []).append(node)
    behind = _behind(candidates)
    largest = sorted((nodes for nodes in found.values() if len(nodes) >= FEWEST), key=len, reverse=True)[:MOST]
    groups = [_group(nodes, candidates[nodes[0]], listed, behind) for nodes in largest]
    return [group for group in groups if group is not None]


def kinds_of_updates(graph: Graph, context: Context) -> dict[Value, Hashable]:
    """For each value that a small update has for itself what it has in common with others of its group; nothing where
    there are few. Asks no more than that, so that it costs little."""
    kinds: dict[Value, Hashable] = {}
    candidates = _candidates(graph, context)
    for node, lanes in candidates.items() if len(candidates) >= FEWEST else ():
        kind = _kind(node, lanes)
        kinds.update((v, kind) for i in lanes if not isinstance(v := node.operand(i), State))
    return kinds


def _candidates(graph: Graph, context: Context) -> dict[Node, tuple[int, ...]]:
    """The updates that may be part of a group, with their lanes. None of a graph with control flow: its functions may
    read states at any time."""
    if context.target != CPU or not context.places or graph.functions:
        return {}
    lanes = {node: found for node in graph if (found := _lanes(node, context))}
    return {node: found for node, found in lanes.items() if all(orders_only(*use) for use in node.use_sites())}


def can_be_placed(state: State, context: Context) -> bool:
    """Whether the memory of a state may be part of an arena."""
    type_, name = state.type, state.name
    if not isinstance(type_, TensorType) or type_.dtype is not DType.FLOAT32 or not type_.is_static:
        return False
    known = name in context.program.state and name not in context.shared
    return known and type_.size > 1 and context.is_common(name)


def _lanes(node: Node, context: Context) -> tuple[int, ...]:
    """The operands of an update that a group would join; none of any other node."""
    written = written_operands(node)
    if not written or not facts(node.op).elementwise or node.op.name == "Assign" or is_random(node):
        return ()
    weight = node.operand(written[0])
    if not isinstance(weight, State) or not can_be_placed(weight, context) or tensor_type(weight).size >= SMALL:
        return ()
    if tensor_type(weight).size % ALIGNED and node.op.name not in _ROUNDS_ALIKE:
        return ()
    shape, lanes = tensor_type(weight).shape, []
    for i, value in enumerate(node.operands):
        type_ = value.type
        if isinstance(type_, TensorType) and type_.shape == shape and type_.dtype is DType.FLOAT32:
            if isinstance(value, State) and not can_be_placed(value, context):
                return ()
            lanes.append(i)
        elif (isinstance(type_, TensorType) and type_.size != 1) or i in written:
            return ()
    return tuple(lanes) if all(isinstance(node.operand(i), State) for i in written) else ()


def _states(node: Node, lanes: Sequence[int]) -> list[State]:
    return [v for i in lanes if isinstance(v := node.operand(i), State)]


def _kind(node: Node, lanes: Sequence[int]) -> Hashable:
    """What all updates of a group have in common: their primitive, and all operands but lanes and tokens."""
    common: list[Hashable] = []
    for i, value in enumerate(node.operands):
        if i in lanes:
            common.append(isinstance(value, State))
        elif not is_monad(value.type):
            common.append((value.type, bits(value.value)) if isinstance(value, Constant) else value)
    return (node.op, lanes, tuple(common))


def _touched_otherwise(graph: Graph, listed: EffectList, candidates: Mapping[Node, Sequence[int]]) -> set[Value]:
    """The states that something beside one candidate updates, reads behind it, or passes on, or whose memory is a
    result of the graph."""
    returned = set(sharing_memory([graph.result]))
    apart: set[Value] = {state for value in returned if (state := state_behind(value)) is not None}
    updated: set[Value] = set()
    for effect in listed.effects:
        if effect.node in candidates:
            states = _states(effect.node, candidates[effect.node])
            apart |= updated.intersection(states)
            updated.update(states)
        else:
            apart |= effect.writes | (updated & effect.reads)
    for state in graph.states.values():
        if any(user.op is CALL or user.op.name in BINDING for user in state.uses):
            apart.add(state)
    return apart


def _behind(candidates: Collection[Node]) -> set[Node]:
    """What runs behind an update, for it takes or waits for it; the updates themselves left out, which merely follow
    each other."""
    starts = [user for node in candidates for user in node.uses if user not in candidates]
    return set(walk(starts, lambda node: [user for user in node.uses if user not in candidates]))


def _group(
    nodes: Sequence[Node], lanes: tuple[int, ...], listed: EffectList, behind: Collection[Node]
) -> UpdateGroup | None:
    """The group of these updates; None where they cannot be made at once, when all gradients are there."""
    own = set(nodes)
    states = {state for node in nodes for state in _states(node, lanes)}
    taken = [v for node in nodes for v in node.operands if isinstance(v, Node) and not is_monad(v.type)]
    readers = [reader for state in states for reader in _readers(state, own)]
    if not all(node not in behind for node in (*taken, *readers)):
        return None
    places = [i for i, effect in enumerate(listed.effects) if effect.node in own]
    between = listed.effects[places[0] : places[-1]]
    read = {v for node in nodes for v in node.operands if isinstance(v, State)} - states
    if any(not effect.writes.isdisjoint(read) for effect in between):
        return None  # a rate, say, that changes
    return UpdateGroup(tuple(nodes), lanes, tuple(sorted(set(readers), key=lambda node: node.name)))


def _readers(state: State, updates: Collection[Node]) -> Iterator[Node]:
    """Who computes from the memory of a state, but for its updates."""

    def views(value: Value) -> list[Node]:
        return [user for user, i in value.use_sites() if user.op.name in VIEWS and not orders_only(user, i)]

    for value in walk(list[Value]([state]), views):
        for user, i in value.use_sites():
            if user not in updates and user.op.name not in VIEWS and not orders_only(user, i):
                yield user

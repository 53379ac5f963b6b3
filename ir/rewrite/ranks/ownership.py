"""Weights that the ranks of a job deal out: the owner alone holds the slots of a weight and updates it, and sends the
new weight to all once a cycle.

A program says only which states are held so (the note :data:`OWNED`), and is right on one rank as it is.
:func:`keep_own` writes a graph out for one rank of a job: updates of weights that others own go, with everything that
only they need, and each weight is broadcast by its owner behind all updates. Numbers that an owner computes and all
need (:mod:`.owned_numbers`) are exchanged. The collectives of the graph are put in a row, because the graphs of the
ranks now differ, and all must come to the same one next.

Source: Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020 (stage 1); Xu et
al., Automatic Cross-Replica Sharding of Weight Update in Data-Parallel Training, 2020. Weights are dealt out whole, by
longest processing time first (Graham, Bounds on Multiprocessing Timing Anomalies, 1969).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

from ...analysis.effects.effect_list import list_effects
from ...analysis.effects.state_access import states_behind
from ...analysis.functions.calls import bindings
from ...analysis.training.network import network_parts
from ...builders.cast import cast
from ...core.errors import RuntimeFailure
from ...core.graph import Graph, Node, State, Value, tensor_type
from ...core.names import OWNED
from ...core.primitives import CPU
from ...core.program import Program
from ...core.types import DType, TensorType
from ..effects.editing import Effects
from ..removal import Plan, Removal
from .buckets import Item, plan_buckets
from .collectives import WORLD, broadcast, is_collective
from .owned_numbers import Number, exchange, merged_numbers, silence

SCOPE = "ownership"
BUCKET = 4 * 2**20
"""Weights of fewer bytes travel together, in buckets of at most that many."""
MESSAGE, MESSAGES = 2**19, 128
"""On CPU weights travel in messages of that many bytes, and larger ones where these were more than so many a cycle:
each connection of MindSpore's keeps a buffer for the largest message that it ever took, two for each other rank."""


def owned_states(program: Program) -> dict[str, list[str]]:
    """By weight, in the order of the program: the states that its owner alone holds."""
    found: dict[str, list[str]] = {}
    for name, variable in program.state.items():
        if variable.info.get(OWNED):
            found.setdefault(variable.weight, []).append(name)
    return found


def deal(sizes: Mapping[str, int], ranks: int) -> dict[str, int]:
    """The owner of each weight: the largest first, each to the rank that has the fewest bytes by then."""
    loads = [(0, rank) for rank in range(ranks)]
    owner = {}
    for name in sorted(sizes, key=lambda name: -sizes[name]):
        load, rank = heapq.heappop(loads)
        owner[name] = rank
        heapq.heappush(loads, (load + sizes[name], rank))
    return owner


def owners(program: Program, ranks: int) -> dict[str, int]:
    """The rank that owns each weight that is dealt out; every rank comes to the same answer by itself."""
    state = program.state
    return deal({w: sum(state[s].nbytes for s in states) for w, states in owned_states(program).items()}, ranks)


def dealt_states(program: Program, ranks: int) -> dict[str, int]:
    """The rank that holds each state that one rank of so many holds alone. None in a process by itself."""
    if ranks == 1:
        return {}
    owner = owners(program, ranks)
    return {state: owner[weight] for weight, states in owned_states(program).items() for state in states}


def bytes_of_ranks(program: Program, ranks: int) -> list[int]:
    """The bytes of owned states that each of so many ranks holds."""
    held = [0] * ranks
    owner = owners(program, ranks)
    for weight, states in owned_states(program).items():
        held[owner[weight]] += sum(program.state[s].nbytes for s in states)
    return held


# -- which updates can go --------------------------------------------------------------------------------------


class Updates:
    """The updates of a graph, and which of them a rank can leave to another."""

    def __init__(self, graph: Graph):
        self.graph = graph
        self.removal = Removal(graph, network_parts(graph))

    @cached_property
    def _late(self) -> dict[str, Node]:
        return _read_behind_update(self.graph)

    def plan(self, weights: Mapping[str, Sequence[str]]) -> Plan:
        """The removal of the updates of these weights, with the states that belong to each."""
        states = [s for owned in weights.values() for s in owned]
        there = [self.graph.states[s] for s in states if s in self.graph.states]
        return self.removal.plan([*weights, *states], there, (), kept=True)

    def obstacle(self, weight: str, states: Sequence[str]) -> str:
        """Why a rank cannot leave the update of ``weight`` and these states of it to another; "" if it can."""
        if weight in self._late:
            return f"{self._late[weight]!r} reads the weight again behind its update"
        plan = self.plan({weight: states})
        if plan.obstacle:
            return plan.obstacle
        numbers = merged_numbers(self.graph, weight, plan)
        return numbers if isinstance(numbers, str) else ""

    def numbers(self, weight: str, states: Sequence[str]) -> list[Number]:
        """The numbers that the owner of ``weight`` computes of these states, and others need."""
        found = merged_numbers(self.graph, weight, self.plan({weight: states}))
        return [] if isinstance(found, str) else found


def _read_behind_update(graph: Graph) -> dict[str, Node]:
    """By name of the state: a node that reads it behind a write of the same function, other than to order."""
    bound = bindings(graph)
    found: dict[str, Node] = {}
    for body in graph.all_graphs():
        written: set[State] = set()
        for effect in list_effects(body).effects:
            if effect.passive and effect.node.op.name == "Load":
                for state in (s for value in effect.reads for s in states_behind(value, bound)):
                    if state in written:
                        found.setdefault(state.name, effect.node)
            written.update(s for value in effect.writes for s in states_behind(value, bound))
    return found


# -- one rank's part -------------------------------------------------------------------------------------------


def keep_own(graph: Graph, program: Program, rank: int, ranks: int, group: str) -> tuple[int, int]:
    """Rewrites a graph of ``program`` in place for one rank of a job. Returns how many of the weights that ranks share
    out the rank updates in it, and how many there are."""
    owner = owners(program, ranks)
    owned = owned_states(program)
    used = {w: states for w, states in owned.items() if any(_is_used(graph, s) for s in states)}
    foreign = {w: states for w, states in used.items() if owner[w] != rank}
    before = Updates(graph)
    numbers = [number for w, states in used.items() for number in before.numbers(w, states)]
    summands = exchange(graph, numbers, group)
    updated = {s.name for e in list_effects(graph).writes() for s in e.writes if s.name in used}
    written = _send(graph, {w: owner[w] for w in used if w in updated}, group)
    _put_in_a_row(graph, written, {*foreign, *(s for states in foreign.values() for s in states)})
    for number, summand in summands.items():
        if number.weight in foreign:
            silence(summand)
    updates = Updates(graph)
    plan = updates.plan(foreign)
    if plan.obstacle:
        raise RuntimeFailure(
            f"graph '{graph.name}' updates weights in a way that ranks cannot share out ({plan.obstacle}): compile it "
            "again without shard-optimizer"
        )
    updates.removal.apply(plan, lambda: None)
    for name in (s for weight, states in owned.items() if owner[weight] != rank for s in states):
        if name in graph.states:  # a graph may name state that it does not use
            del graph.states[name]
    return len(used) - len(foreign), len(used)


def _is_used(graph: Graph, state: str) -> bool:
    return state in graph.states and bool(graph.states[state].uses)


def _send(graph: Graph, owner: Mapping[str, int], group: str) -> dict[Node, Node]:
    """Puts broadcasts of these weights behind all updates; returns for each the last effect that takes its result."""
    fx = Effects(graph)
    written: dict[Node, Node] = {}
    news: dict[str, Value] = {name: fx.load(graph.states[name], scope=SCOPE, initial=False) for name in owner}
    total = sum(tensor_type(value).nbytes for value in news.values())
    limit = max(MESSAGE, total // MESSAGES) if group == WORLD[CPU] else 0
    for rank in sorted(set(owner.values())):
        names = [name for name in owner if owner[name] == rank]
        values = {name: _wide(graph, news[name]) for name in names}
        types = {name: tensor_type(value) for name, value in values.items()}
        items = [Item(i, types[name].dtype, types[name].nbytes) for i, name in enumerate(names)]
        for bucket in plan_buckets(items, limit or BUCKET):
            chosen = {names[i]: values[names[i]] for i in bucket}
            messages = _messages(graph, _joined(graph, list(chosen.values())), limit)
            received = [broadcast(graph, message, group, rank, scope=SCOPE) for message in messages]
            sent = [node for part in received for node in part.operands if isinstance(node, Node)]
            written |= dict(zip(sent, sent, strict=True))
            for name, part in zip(chosen, _parts(graph, _joined(graph, received), list(chosen.values())), strict=True):
                new = cast(graph, part, tensor_type(news[name]).dtype, scope=SCOPE)
                written[sent[-1]] = fx.append("Assign", [graph.states[name], new], scope=SCOPE)
    fx.commit()
    return written


def _messages(graph: Graph, value: Value, limit: int) -> list[Value]:
    """``value`` in flat parts of at most ``limit`` bytes (0: any)."""
    type_ = tensor_type(value)
    if not limit or type_.nbytes <= limit:
        return [value]
    count = limit // type_.dtype.itemsize
    sizes = [min(count, type_.size - begin) for begin in range(0, type_.size, count)]
    return _cut(graph, _reshaped(graph, value, (type_.size,)), sizes)


def _wide(graph: Graph, value: Value) -> Value:
    """What every target sends: float32, which holds each number of 16 bits."""
    return cast(graph, value, DType.FLOAT32, scope=SCOPE)


def _joined(graph: Graph, values: Sequence[Value]) -> Value:
    if len(values) == 1:
        return values[0]
    flat = [_reshaped(graph, value, (tensor_type(value).size,)) for value in values]
    total = TensorType(tensor_type(values[0]).dtype, (sum(tensor_type(v).size for v in flat),))
    packed = graph.create("MakeTuple", flat, scope=SCOPE)
    return graph.create("Concat", [packed, graph.constant(0)], total, scope=SCOPE)


def _parts(graph: Graph, joined: Value, like: Sequence[Value]) -> list[Value]:
    """What :func:`_joined` has put together."""
    types = [tensor_type(value) for value in like]
    parts = [joined] if len(like) == 1 else _cut(graph, joined, [type_.size for type_ in types])
    return [_reshaped(graph, part, type_.shape) for part, type_ in zip(parts, types, strict=True)]


def _cut(graph: Graph, value: Value, sizes: Sequence[int]) -> list[Value]:
    """Slices of a vector that follow each other."""
    found: list[Value] = []
    begin = 0
    for size in sizes:
        type_ = TensorType(tensor_type(value).dtype, (size,))
        bounds = [graph.constant((begin,)), graph.constant((size,))]
        found.append(graph.create("Slice", [value, *bounds], type_, scope=SCOPE))
        begin += size
    return found


def _reshaped(graph: Graph, value: Value, shape: tuple[int, ...]) -> Value:
    type_ = TensorType(tensor_type(value).dtype, shape)
    if type_ == value.type:
        return value
    return graph.create("Reshape", [value, graph.constant(shape)], type_, scope=SCOPE)


def _put_in_a_row(graph: Graph, written: Mapping[Node, Node], foreign: Collection[str]) -> None:
    """Each collective waits for the one before it, and an effect that stays for the last: so all ranks come to the same
    ones in the same order, and none goes away on a rank that does not need its result. A broadcast waits until the
    result of the one before it is ``written``, so that one buffer serves all. ``foreign``: states that other ranks
    write."""
    # As they can run: a gradient that is ready early need not wait, and be kept, for one that is ready late.
    depth: dict[Value, int] = {}
    for node in graph:
        depth[node] = 1 + max((depth.get(v, 0) for v in node.operands), default=0)
    summed = [node for node in graph if is_collective(node) and node not in written]
    row = [*sorted(summed, key=lambda node: depth[node]), *written]
    for previous, node in pairwise(row):
        first = node.operand(0)
        taker = first if isinstance(first, Node) and first.op.name == "MakeTuple" else node
        _wait(taker, 0, written.get(previous, previous))
    if row and row[-1].op.name != "Broadcast":
        kept = (
            e.node
            for e in list_effects(graph).writes()
            if e.node.op.name in ("Assign", "AssignAdd") and not any(state.name in foreign for state in e.writes)
        )
        effect = next(kept, None)
        if effect is None:
            raise RuntimeFailure(
                f"graph '{graph.name}' has no effect that all ranks share, so they cannot share out its updates: "
                "compile it again without shard-optimizer"
            )
        _wait(effect, 1, row[-1])
    graph.sort()


def _wait(node: Node, i: int, other: Node) -> None:
    """Operand ``i`` of ``node`` is there when ``other`` has run."""
    assert node.graph is not None
    with node.graph.inserting_before(node):
        node.set_operand(i, node.graph.create("Depend", [node.operand(i), other], scope=SCOPE))

"""Weights that the ranks of a job deal out: the owner alone holds the slots of a weight and updates it, and sends the
new weight to all once a cycle.

A program says only what is held so (:mod:`.dealing`), and is right on one rank as it is. :func:`keep_own` writes a
graph out for one rank of a job: updates of weights that others own go, with everything that only they need, and weights
that are cut are updated in pieces (:mod:`.pieces`). Behind all updates the ranks bring each other the new weights: on
CPU each gives a row of all that it has (:mod:`.messages`); elsewhere owners broadcast, and pieces are gathered. Numbers
that an owner computes and all need (:mod:`.owned_numbers`) are exchanged. The collectives of the graph are put in a
row, because the graphs of the ranks now differ, and all must come to the same one next.

Source: Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models, 2020 (stage 1); Xu et
al., Automatic Cross-Replica Sharding of Weight Update in Data-Parallel Training, 2020.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, pairwise

from ...analysis.effects.effect_list import list_effects
from ...analysis.effects.state_access import states_behind
from ...analysis.functions.calls import bindings
from ...analysis.training.network import network_parts
from ...builders.cast import cast
from ...core.errors import RuntimeFailure
from ...core.graph import Graph, Node, State, Value, tensor_type
from ...core.primitives import CPU, Family, facts
from ...core.program import Program
from ...core.sites import site
from ...core.types import TensorType
from ...core.wording import counted
from ..effects.editing import Effects
from ..removal import Plan, Removal
from .buckets import Item, plan_buckets
from .collectives import WORLD, broadcast, is_collective
from .dealing import Deal, deal
from .messages import BUCKET, SCOPE, Row, gathered, in_rounds, joined, length_of, parts_of, reshaped, widened
from .owned_numbers import Number, exchange, merged_numbers, silence
from .pieces import Pieces

_PACKING = frozenset({Family.ORDER, Family.TUPLE, Family.RESHAPE, Family.SLICE, Family.JOIN})
"""What carries values to and from a bucket."""

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
            return f"{site(self._late[weight])} reads the weight again behind its update"
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


def keep_own(graph: Graph, program: Program, rank: int, ranks: int, target: str) -> str:
    """Rewrites a graph of ``program`` in place for one rank of a job on ``target``. Returns what was done."""
    dealt = deal(program, ranks)
    copies, pieces = _keep_pieces(graph, dealt, rank, target)
    owner = dealt.owner
    used = {w: dealt.states[w] for w in owner if any(_is_used(graph, s) for s in dealt.states[w])}
    foreign = {w: states for w, states in used.items() if owner[w] != rank}
    before = Updates(graph)
    numbers = [number for w, states in used.items() for number in before.numbers(w, states)]
    summands = exchange(graph, numbers, WORLD[target])
    updated = {s.name for e in list_effects(graph).writes() for s in e.writes if s.name in used}
    written = _exchange(graph, {w: owner[w] for w in used if w in updated}, copies, dealt, rank, target)
    _put_in_a_row(graph, written, {*foreign, *(s for states in foreign.values() for s in states)})
    for number, summand in summands.items():
        if number.weight in foreign:
            silence(summand)
    updates = Updates(graph)
    plan = updates.plan(foreign)
    if plan.obstacle:
        raise _not_shared_out(graph, plan.obstacle)
    updates.removal.apply(plan, lambda: None)
    for name in (s for weight, states in dealt.states.items() if owner.get(weight, rank) != rank for s in states):
        if name in graph.states:  # a graph may name state that it does not use
            del graph.states[name]
    cut = f", and a piece of {pieces} more" if pieces else ""
    return f"{len(used) - len(foreign)} of {counted(len(used), 'weight')} updated here{cut}, and sent to all"


def _not_shared_out(graph: Graph, reason: str) -> RuntimeFailure:
    return RuntimeFailure(
        f"graph '{graph.name}' updates weights in a way that ranks cannot share out ({reason}): compile it again "
        "without shard-optimizer"
    )


def _keep_pieces(graph: Graph, dealt: Deal, rank: int, target: str) -> tuple[dict[str, State], int]:
    """Updates of weights that are cut work on this rank's pieces. Returns the copies of these that the graph updates,
    by weight, and how many weights are cut in it."""
    if not dealt.cut:
        return {}, 0
    pieces = Pieces(graph)
    used = {w: dealt.states[w] for w in dealt.cut if any(_is_used(graph, s) for s in dealt.states[w])}
    regions = [
        pieces.region(w, [s for s in states if s not in dealt.sums], [s for s in states if s in dealt.sums])
        for w, states in used.items()
    ]
    obstacle = next((region.obstacle for region in regions if region.obstacle), "")
    if obstacle:
        raise _not_shared_out(graph, obstacle)
    copies = pieces.cut(regions, dealt, rank, target)
    for weight in dealt.cut:
        own = dealt.piece(weight, rank)
        for name in dealt.states[weight]:
            if name in graph.states:  # where nothing uses it, too
                state = graph.states[name]
                state.type = TensorType(tensor_type(state).dtype, (own.stop - own.start,))
    return copies, len(regions)


def _is_used(graph: Graph, state: str) -> bool:
    return state in graph.states and bool(graph.states[state].uses)


def _exchange(
    graph: Graph, owner: Mapping[str, int], copies: Mapping[str, State], dealt: Deal, rank: int, target: str
) -> dict[Node, Node]:
    """Brings all ranks the new weights, behind all updates: those of one ``owner``, and those of which each rank has
    one of ``copies`` of a piece. Returns for each collective the last effect that takes its result."""
    fx = Effects(graph)
    group = WORLD[target]
    if target == CPU:
        written = _give_rows(fx, owner, copies, dealt, rank, group)
    else:
        written = _send(fx, owner, group) | _gather(fx, copies, dealt, group)
    fx.commit()
    return written


def _give_rows(
    fx: Effects, owner: Mapping[str, int], copies: Mapping[str, State], dealt: Deal, rank: int, group: str
) -> dict[Node, Node]:
    """Each rank gives all that it has, its pieces first."""
    rows = [[(weight, dealt.piece(weight, r)) for weight in copies] for r in range(dealt.ranks)]
    for weight, r in owner.items():
        rows[r].append((weight, slice(0, dealt.elements[weight])))
    written: dict[Node, Node] = {}
    if not any(rows):
        return written
    # A rank that has nothing gives what it knows of another's.
    states = {w: copies.get(w) or fx.graph.states[w] for w, _ in rows[rank] or max(rows, key=length_of)[:1]}
    own = {w: widened(fx.graph, fx.load(state, scope=SCOPE, initial=False)) for w, state in states.items()}
    known = _known(rows, rank) - copies.keys()
    for collective, whole in in_rounds(fx.graph, rows, own, rank, group, known):
        written[collective] = collective
        for weight, new in whole.items():
            written[collective] = _assign(fx, weight, new)
    return written


def _known(rows: Sequence[Row], rank: int) -> set[str]:
    """The weights of this rank's row that it need not receive: each message that holds them brings others, too."""
    shared = max(length_of(row) for r, row in enumerate(rows) if r != rank)
    ends = accumulate(place.stop - place.start for _, place in rows[rank])
    return {weight for (weight, _), end in zip(rows[rank], ends, strict=True) if end <= shared}


def _send(fx: Effects, owner: Mapping[str, int], group: str) -> dict[Node, Node]:
    """Owners broadcast, those of less than a bucket together."""
    graph = fx.graph
    written: dict[Node, Node] = {}
    news = {name: widened(graph, fx.load(graph.states[name], scope=SCOPE, initial=False)) for name in owner}
    for rank in sorted(set(owner.values())):
        names = [name for name in owner if owner[name] == rank]
        items = [Item(i, tensor_type(news[w]).dtype, tensor_type(news[w]).nbytes) for i, w in enumerate(names)]
        for bucket in plan_buckets(items, BUCKET):
            chosen = {names[i]: news[names[i]] for i in bucket}
            sent = broadcast(graph, joined(graph, list(chosen.values())), group, rank, scope=SCOPE)
            (collective,) = (node for node in sent.operands if isinstance(node, Node))
            for name, part in zip(chosen, parts_of(graph, sent, list(chosen.values())), strict=True):
                written[collective] = _assign(fx, name, part)
    return written


def _gather(fx: Effects, copies: Mapping[str, State], dealt: Deal, group: str) -> dict[Node, Node]:
    """The pieces of each weight come from all ranks at once."""
    written: dict[Node, Node] = {}
    for weight, copy in copies.items():
        new = fx.load(copy, scope=SCOPE, initial=False)
        sent, whole = gathered(fx.graph, new, dealt.elements[weight], dealt.cut[weight], dealt.ranks, group)
        written[sent] = _assign(fx, weight, whole)
    return written


def _assign(fx: Effects, weight: str, new: Value) -> Node:
    """Writes what came from other ranks."""
    state = fx.graph.states[weight]
    type_ = tensor_type(state)
    shaped = cast(fx.graph, reshaped(fx.graph, new, type_.shape), type_.dtype, scope=SCOPE)
    return fx.append("Assign", [state, shaped], scope=SCOPE)


def _put_in_a_row(graph: Graph, written: Mapping[Node, Node], foreign: Collection[str]) -> None:
    """Each collective waits for the one before it, and an effect that stays for the last: so all ranks come to the same
    ones in the same order, and none goes away on a rank that does not need its result. One that brings new weights
    waits until the result of the one before it is ``written``, so that one buffer serves all. ``foreign``: states that
    other ranks write."""
    # As they can run: a gradient that is ready early need not wait, and be kept, for one that is ready late. Packing
    # into a bucket takes no time: where all are ready at once, they stay in order, which is that of the updates.
    depth: dict[Value, int] = {}
    for node in graph:
        above = max((depth.get(v, 0) for v in node.operands), default=0)
        depth[node] = above + (facts(node.op).family not in _PACKING)
    summed = [node for node in graph if is_collective(node) and node not in written]
    row = [*sorted(summed, key=lambda node: depth[node]), *written]
    for previous, node in pairwise(row):
        first = node.operand(0)
        taker = first if isinstance(first, Node) and first.op.name == "MakeTuple" else node
        _wait(taker, 0, written.get(previous, previous))
    if row and row[-1] not in written:
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

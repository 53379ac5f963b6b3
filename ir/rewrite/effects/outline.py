"""Making part of a graph conditional: effects, and what only they need, move into a function that a Switch calls.

MindIR functions have no free variables: what the moved nodes use from outside is passed in, state included, and the
effect token last.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import chain

from ...analysis.effects.state_access import Effect
from ...analysis.effects.tokens import orders_only, token_slots
from ...builders.branch import plain, zeros
from ...core.attributes import MonadValue, scalar_tensor
from ...core.errors import VerifyError
from ...core.graph import Constant, Graph, GraphRef, Input, Node, Origin, State, Value, source_names
from ...core.op import CALL
from ...core.predicates import is_random, written_operands
from ...core.primitives import VIEWS
from ...core.sites import site
from ...core.types import UMONAD, TensorType, is_monad
from ...core.walk import result_value, walk
from .editing import Effects


def skip_where(
    fx: Effects, condition: Value, effects: Sequence[Effect], *, stay: Collection[Value] = (), name: str, scope: str
) -> Node:
    """``effects`` of ``fx`` do not happen where ``condition``, a scalar bool tensor, holds; returns the call.

    Nodes that nothing else needs move along, but for what ``stay`` and random nodes need. What is used of the effects'
    results is read from the state that they wrote, else it is zero where the condition holds. ``fx`` must be committed
    afterwards. :class:`VerifyError` where other effects must happen between those that are to be one.
    """
    graph = fx.graph
    chosen = {e.node for e in effects}
    _reload_results(fx, chosen)
    others = [e.node for e in fx.list if not e.passive and e.node not in chosen]
    outside = _needed([condition, result_value(graph), *stay, *others], stop=chosen)
    inside = _needed(list(chosen))
    random = _needed([n for n in inside if is_random(n)])
    moved = {n for n in inside if n in chosen or not (n in outside or n in random)}
    results = [n for n in graph if n in chosen and n in outside and _value_uses(n, moved)]
    uses = [(node, use) for node in results for use in _value_uses(node, moved)]
    before, after = _around(fx, moved, inside)
    function = graph.add_function(name)
    arguments = _move(graph, function, moved)
    _order(function, [e for e in fx.list if e.node in moved], _packed(function, results, scope))
    skip = graph.add_function(f"skip_{name}")
    skip.result = zeros(skip, plain(function.result.type), scope)
    no = graph.create("Partial", [graph.reference(function), *arguments, fx.first_token()], scope=scope)
    yes = graph.create("Partial", [graph.reference(skip)], scope=scope)
    switch = graph.create("Switch", [condition, yes, no], scope=scope)
    call = graph.create(CALL, [switch], plain(function.result.type), scope=scope, name=name)
    position = {node: k for k, node in enumerate(results)}
    for node, (user, i) in uses:
        item = call
        if len(results) > 1:
            item = graph.create("TupleGetItem", [call, graph.constant(position[node])], scope=scope)
        user.set_operand(i, item)
    fx.list = before
    fx.adopt(call)
    fx.list.extend(after)
    return call


def _value_uses(node: Node, moved: Collection[Node] = ()) -> list[tuple[Node, int]]:
    """Uses of an effect's result outside of ``moved`` that take its value and do not merely wait for it."""
    return [(user, i) for user, i in node.use_sites() if user not in moved and not orders_only(user, i)]


def _reload_results(fx: Effects, chosen: set[Node]) -> None:
    """The result of an in-place write that something else uses is read from the state behind it instead: the write may
    not happen."""
    inside = _needed(list(chosen))
    effects: list[Effect] = []
    for e in list(fx.list):
        effects.append(e)
        if e.node not in chosen:
            continue
        at = written_operands(e.node)
        state = e.node.operand(at[0]) if at else None
        uses = [(user, i) for user, i in _value_uses(e.node) if user not in inside]
        if uses and isinstance(state, State) and isinstance(e.node.type, TensorType):
            loaded = fx.load(state, initial=False)
            effects.append(fx.list[-1])
            for user, i in uses:
                user.set_operand(i, loaded)
    fx.list = effects


def _around(fx: Effects, moved: set[Node], inside: set[Node]) -> tuple[list[Effect], list[Effect]]:
    """The other effects: those that come before all moved ones, and those that must come after: who touches what those
    write, overwrites what they read, or takes a value from after them.

    Memory that an effect names (a Load, a write whose result is the state) is read whenever someone takes it. So a
    write of it comes after as soon as one of these does.
    """
    before: list[Effect] = []
    after: list[Effect] = []
    touched: set[Value] = set()
    written: set[Value] = set()
    touched_after: dict[Value, Node] = {}
    written_after: dict[Value, Node] = {}
    named: dict[Value, list[Node]] = {}  # effects before that name the memory of what they touch
    late = set(moved)  # with the effects after, and what is computed from all these
    effects = {n for e in fx.list for n in (e.node, *(holder for holder, _ in token_slots(e.node)))}

    def late_reader(written: Value, but: Collection[Node] = ()) -> Node | None:
        own = () if isinstance(written, Node) else effects  # what these take of a state, the list says
        readers = (n for n in _takers(written) if n not in own)
        named_readers = (n for memory in named.get(written, ()) for n in _takers(memory))
        return next((n for n in chain(readers, named_readers) if n in late and n not in but), None)

    for e in fx.list:
        if e.node in moved:
            clash = next((written_after[s] for s in e.touched if s in written_after), None)
            clash = clash or next((touched_after[s] for s in e.writes if s in touched_after), None)
            clash = clash or next((n for s in e.writes if (n := late_reader(s, but=moved))), None)
            if clash is not None:
                raise VerifyError(
                    f"graph '{fx.graph.name}': {site(clash)} must happen after one update and before another "
                    f"({site(e.node)}), so the updates cannot be skipped together"
                )
        else:
            conflict = next((s for s in e.reads if s in written), None)
            conflict = conflict or next((s for s in e.writes if s in touched or late_reader(s)), None)
            if conflict is not None and e.node in inside:
                raise VerifyError(
                    f"graph '{fx.graph.name}': an update needs {site(e.node)}, which uses '{conflict.name}' after "
                    "another update has touched it, so the updates cannot be skipped together: take all gradients "
                    "before the first optimizer runs, or export a training cell for each optimizer"
                )
            if e.node in inside or not (conflict or e.node in late or (e.everything and touched)):
                before.append(e)
                for s in e.touched if e.node.op is not CALL else ():
                    named.setdefault(s, []).append(e.node)
                continue
            after.append(e)
            written_after.update((s, e.node) for s in e.writes)
            touched_after.update((s, e.node) for s in e.touched)
        written |= e.writes
        touched |= e.touched
        late.update(walk([e.node], lambda n: [u for u, i in n.use_sites() if u not in late and not orders_only(u, i)]))
    return before, after


def _takers(memory: Value) -> Iterator[Node]:
    """Who takes the memory that a value stands for, as it is or as a view."""
    for view in walk([memory], lambda value: [u for u in value.uses if u.op.name in VIEWS and u.op.name != "Load"]):
        yield from (user for user, i in view.use_sites() if not orders_only(user, i))


def _packed(function: Graph, results: Sequence[Node], scope: str) -> Value:
    if not results:
        return function.constant(scalar_tensor("float32", 0.0))
    return results[0] if len(results) == 1 else function.create("MakeTuple", results, scope=scope)


def _needed(roots: Sequence[Value], stop: Collection[Node] = ()) -> set[Node]:
    """Nodes that the roots take or wait for, themselves included; tokens are no need."""

    def following(node: Node) -> list[Node]:
        return [] if node in stop else [o for o in node._operands if isinstance(o, Node) and not is_monad(o.type)]

    return set(walk([v for v in roots if isinstance(v, Node)], following))


def _move(graph: Graph, function: Graph, moved: set[Node]) -> list[Value]:
    """Moves nodes into an empty function, in order; returns the values that it takes, as the function's inputs."""
    nodes = [n for n in graph if n in moved]
    operands = {n: n.operands for n in nodes}
    for node in nodes:
        # Outside only order is left: tokens that wait for it, which the next commit builds anew.
        for user, i in node.use_sites():
            if user not in moved:
                user.set_operand(i, graph.constant(True))
    graph.erase_all(nodes)
    arguments: list[Value] = []
    formals: dict[Value, Value] = {}

    def of(value: Value) -> Value:
        if isinstance(value, Node) and value in moved:
            return value
        found = formals.get(value)
        if found is None:
            if isinstance(value, Constant) and not isinstance(value.value, MonadValue):
                found = Constant(value.name, value.value, value.type)
            elif isinstance(value, GraphRef):
                found = function.reference(value.graph)
            elif is_monad(value.type):
                return token
            else:
                found = function.add_input(value.name, value.type)
                arguments.append(value)
            formals[value] = found
        return found

    token = Input("u", UMONAD)
    for node in nodes:
        function.insert(node)
        node.origin = Origin(source_names([node]), node.origin.passes if node.origin else ())
        node.set_operands([of(v) for v in operands[node]])
    function.inputs.append(token)
    return arguments


def _order(function: Graph, inner: Sequence[Effect], result: Value) -> None:
    """Chains the moved effects in the order that they had."""
    rank = {e.node: k for k, e in enumerate(inner)}
    # Tied to the result, or Effects would take them for dead.
    held = function.create("UpdateState", [function.inputs[-1], *(e.node for e in inner if not e.passive)])
    function.result = function.create("Depend", [result, held])
    fx = Effects(function)
    fx.list.sort(key=lambda e: rank[e.node])
    fx.commit()

"""The interface to effects. No pass edits tokens by hand.

MindIR orders effects by tokens: ``Load(state, u)`` reads, an in-place primitive takes the token as its last operand,
``UpdateState(u, x…)`` is the token after ``x``, ``Depend(result, u)`` ties the last one to the result. UpdateState
also lists plain values: the consumers of Loads, which must run before the state is overwritten.

A pass works on the *list* of effects: drop some, create and append others, then :meth:`Effects.commit` rebuilds a
minimal chain from what the effects read and write and removes what nothing needs any more. Minimal means: effects
that touch different state take the same token, so that the runtime may run them in any order or at once.

The chain has levels. An effect's level is one above every earlier effect that it conflicts with (write/write,
read/write) and no lower than those it takes values from. Level k's token is ``u_k = UpdateState(u_{k-1}, effects and
readers of level k-1)``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from .attributes import MonadValue
from .calls import called_functions, callees_first, targets
from .errors import VerifyError
from .graph import Graph
from .ops import OPS, has_token, is_effect, written_operands
from .types import IOMONAD, UMONAD, TensorType, TupleType, Type, holds_function, is_monad
from .values import CALL, RETURN, Constant, Input, Node, State, Value

VIEWS = frozenset({"Depend", "MakeTuple", "TupleGetItem", "Reshape", "ExpandDims", "Squeeze", "Flatten", "View"})
"""Ops whose result may share memory with an operand: who reads them reads the state behind."""
BINDING = frozenset({"Partial", "Switch"})


@dataclass(slots=True, eq=False)
class Effect:
    """One effect: what it reads and writes (state values, or a function's inputs that stand for state).

    ``everything``: it may touch any state (an unknown closure). ``passive``: it changes nothing and lives only while
    its value is used (Load, a call that only reads, a Depend in mid-graph). ``depth`` is its place in the original
    chain.
    """

    node: Node
    reads: frozenset[Value] = frozenset()
    writes: frozenset[Value] = frozenset()
    everything: bool = False
    io: bool = False
    depth: float = 0.0
    level: int = 0
    passive: bool = False

    @property
    def touched(self) -> frozenset[Value]:
        return self.reads | self.writes


@dataclass(slots=True)
class Summary:
    """What a function does, by position of its inputs."""

    reads: set[int] = field(default_factory=set)
    writes: set[int] = field(default_factory=set)
    everything: bool = False
    io: bool = False


def location(value: Value) -> Value | None:
    """The state that a value names (looking through Depend and in-place writes, whose result is the state); None if it
    names none."""
    where = place(value)
    return None if isinstance(where, Node) else where


def place(value: Value) -> Value | None:
    """What a value written in place names: a state, or the node that made the tensor (an activation, as in ``x +=
    y``)."""
    while isinstance(value, Node):
        if value.op.name == "Depend":
            value = value.operand(0)
        elif (
            isinstance(value.type, TensorType)
            and value.type.ref
            and is_effect(value)
            and (at := written_operands(value))
        ):
            value = value.operand(at[0])
        else:
            return value
    return value if isinstance(value, (State, Input)) and not is_monad(value.type) else None


def states_behind(value: Value, bound: Mapping[Input, Sequence[Value]]) -> list[State]:
    """The states that a location stands for, through function inputs (``bound``: :func:`.calls.bindings`)."""
    found: list[State] = []
    stack: list[Value] = [value]
    seen: set[Value] = set()
    while stack:
        here = location(stack.pop())
        if here is None or here in seen:
            continue
        seen.add(here)
        if isinstance(here, State):
            found.append(here)
        elif isinstance(here, Input):
            stack.extend(bound.get(here, ()))
    return found


def summarize(main: Graph) -> dict[str, Summary]:
    """What each function of ``main`` does to what it is given: the least fixed point, so recursion (loops) is exact."""
    known = {name: Summary() for name in main.functions}
    order = callees_first(main)
    changed = True
    while changed:
        changed = False
        for function in order:
            summary = _summary(function, known)
            if summary != known[function.name]:
                known[function.name] = summary
                changed = True
    return known


def _summary(function: Graph, known: dict[str, Summary]) -> Summary:
    summary = Summary()
    position: dict[Value, int] = {v: i for i, v in enumerate(function.inputs)}
    for node in function:
        effect = describe(node, known)
        if effect is None or node.op.name == "Depend":
            continue  # a Depend orders inside the function, it touches nothing
        summary.everything |= effect.everything
        summary.io |= effect.io
        summary.reads.update(position[v] for v in effect.reads if v in position)
        summary.writes.update(position[v] for v in effect.writes if v in position)
    return summary


def describe(node: Node, known: dict[str, Summary]) -> Effect | None:
    """What a node does to state; None for a pure node. ``known``: :func:`summarize` of the main graph."""
    name = node.op.name
    if name == "Load":
        where = place(node.operand(0))
        return Effect(node, reads=frozenset((where,) if where else ()), passive=True)
    if name == "UpdateState" or name == "Partial":
        return None
    if name == "Depend":
        # In mid-graph, a Depend on a token waits for all that came before it.
        return Effect(node, everything=True, passive=True) if is_monad(node.operand(1).type) else None
    if node.op is CALL:
        return _describe_call(node, known)
    if not is_effect(node):
        return None
    writes = [place(node.operand(i)) for i in written_operands(node)]
    reads = [location(node.operand(i)) for i in range(node.num_operands)]
    io = (has_token(node) and node.operand(node.num_operands - 1).type == IOMONAD) or bool(
        node.op.attributes.get("side_effect_io")
    )
    return Effect(
        node,
        reads=frozenset(v for v in reads if v is not None),
        writes=frozenset(v for v in writes if v is not None),
        io=io,
    )


def _describe_call(node: Node, known: dict[str, Summary]) -> Effect | None:
    reached = targets(node)
    if reached is None:
        # MindSpore passes a token to every call that may have effects; a closure called without one is pure.
        return Effect(node, everything=True) if has_token(node) else None
    reads: set[Value] = set()
    writes: set[Value] = set()
    everything = io = False
    for target in reached:
        summary = known[target.function.name]
        everything |= summary.everything
        io |= summary.io
        for positions, into in ((summary.reads, reads), (summary.writes, writes)):
            for i in positions:
                where = location(target.arguments[i]) if i < len(target.arguments) else None
                if where is not None:
                    into.add(where)
    if not (reads or writes or everything or io):
        return None
    passive = not (writes or everything or io)
    return Effect(node, frozenset(reads), frozenset(writes), everything, io, passive=passive)


def token_slots(node: Node) -> list[tuple[Node, int]]:
    """Where the tokens of an effect stand: (node, operand index); several for a call of a Switch of Partials."""
    if node.op.name == "Depend":
        return [(node, 1)]
    holders = [node] if node.op is not CALL else [t.binder for t in targets(node) or ()]
    slots: dict[tuple[Node, int], None] = {}
    for holder in holders:
        i = holder.num_operands - 1
        while i >= 0 and is_monad(holder.operand(i).type):
            slots[holder, i] = None
            i -= 1
    return list(slots)


def _aliases(value: Value) -> bool:
    """Whether the value's type says that it is the memory of a state, not a tensor of its own."""
    return isinstance(value.type, TensorType) and bool(value.type.ref)


def orders_only(user: Node, i: int) -> bool:
    """Whether a use of a value merely waits for it: in a token, in what a Depend waits for, or in a tuple of these."""
    name = user.op.name
    if name == "MakeTuple":
        return all(_waits(u, at) for u, at in user.use_sites())
    return _waits(user, i)


def _waits(user: Node, i: int) -> bool:
    return user.op.name == "UpdateState" or (user.op.name == "Depend" and i == 1)


def result_value(graph: Graph) -> Value:
    """What a graph computes: its result without the Depends that only keep effects alive."""
    value = graph.result
    while isinstance(value, Node) and value.op.name == "Depend":
        value = value.operand(0)
    return value


def live_nodes(roots: Iterable[Value]) -> set[Node]:
    """Nodes that the roots need, themselves included; one sweep."""
    live: set[Node] = set()
    stack = [v for v in roots if isinstance(v, Node)]
    live.update(stack)
    while stack:
        for operand in stack.pop()._operands:
            if isinstance(operand, Node) and operand not in live:
                live.add(operand)
                stack.append(operand)
    return live


class Effects:
    """The ordered list of effects of a graph, for editing. Nothing is final before :meth:`commit`.

    ``known``: :func:`summarize` of the main graph, for who works on all of its functions.
    """

    def __init__(self, graph: Graph, known: dict[str, Summary] | None = None):
        self.graph = graph
        self._known = summarize(graph.owner or graph) if known is None else known
        self._first: dict[bool, Value] = {}
        live = live_nodes([graph.result])
        depth: dict[Value, int] = {}
        order: dict[Node, int] = {}
        self._order = order
        self.list: list[Effect] = []
        tail = self._tail_depends()
        for i, node in enumerate(graph):
            if node not in live:
                continue
            order[node] = i
            depth[node] = max((depth.get(v, 0) for v in node._operands), default=0)
            if node.op.name == "UpdateState":
                depth[node] += 1
            elif node not in tail:
                effect = describe(node, self._known)
                if effect is not None:
                    effect.depth = depth[node]
                    self.list.append(effect)
        self.list.sort(key=lambda e: (e.depth, order[e.node]))

    def _tail_depends(self) -> set[Node]:
        tail = set()
        value = self.graph.result
        while isinstance(value, Node) and value.op.name == "Depend":
            tail.add(value)
            value = value.operand(0)
        return tail

    def writes(self) -> list[Effect]:
        """The effects that are not mere reads, in order."""
        return [e for e in self.list if not e.passive]

    def first_token(self, io: bool = False) -> Value:
        """The token that the graph starts from: its monad input in a function, else a constant."""
        first = self._first.get(io)
        if first is None:
            kind: Type = IOMONAD if io else UMONAD
            given = next((v for v in self.graph.inputs if v.type == kind), None)
            first = self._first[io] = given or self.graph.constant(MonadValue(str(kind)), "io" if io else "u")
        return first

    def drop(self, effects: Iterable[Effect]) -> None:
        """The effects no longer happen. Values that others compute from their results must be rewired by the caller."""
        gone = {e.node for e in effects}
        self.list = [e for e in self.list if e.node not in gone]
        for node in gone:
            self._detach(node)

    def _detach(self, node: Node) -> None:
        """Cuts the uses of an effect that only order: they have nothing left to wait for."""
        for user, i in node.use_sites():
            if user.op.name == "Depend" and i == 1:
                user.replace_uses(user.operand(0))
                if self.graph.result is user:
                    self.graph.result = user.operand(0)
            elif user.op.name == "MakeTuple" and orders_only(user, i):
                user.set_operand(i, self.graph.constant(True))

    def append(self, op: str, operands: list[Value], *, scope: str = "", sources: Iterable[Value] = ()) -> Node:
        """A new effect after all others (it is ordered against them only where they touch the same state)."""
        node = self.graph.create(op, [*operands, self.first_token()], scope=scope, sources=sources)
        self.adopt(node)
        return node

    def adopt(self, node: Node) -> None:
        """Takes a node that was created with a token operand (a call whose Partials hold one, say) in as the last
        effect."""
        if node.op is CALL and any(f.name not in self._known for f in called_functions(node)):
            self._known = summarize(self.graph.owner or self.graph)
        effect = describe(node, self._known)
        if effect is None:
            raise VerifyError(f"{node!r} has no effect")
        effect.depth = float("inf")
        self.list.append(effect)

    def load(self, state: Value, *, scope: str = "", initial: bool = True) -> Node:
        """A new read of a state: of its value before all writes of this graph, or after all so far."""
        node = self.graph.create("Load", [state, self.first_token()], scope=scope)
        effect = Effect(node, reads=frozenset((state,)), passive=True, depth=-1.0 if initial else float("inf"))
        self.list.append(effect)  # commit puts the initial ones first
        return node

    # -- commit ----------------------------------------------------------------------------------------------

    def commit(self, result: Value | None = None) -> int:
        """Rebuilds the chain and the result (``result``: what the graph is to compute from now on), removes dead nodes.

        Returns how many nodes went away (negative when the graph grew).
        """
        graph = self.graph
        before = len(graph)
        self.list.sort(key=lambda e: e.depth >= 0.0)
        value = result_value(graph) if result is None else result
        kept = [e for e in self.list if not e.passive]
        live = self._live_without_tokens(value, kept)
        gone = {e.node for e in self.list if e.passive and e.node not in live}
        effects = [e for e in self.list if e.node not in gone]
        present = {e.node for e in effects}
        for node in live:
            if node not in present and node.op.name != "Partial":
                stray = describe(node, self._known)
                if stray is not None and node.op.name != "Depend":
                    users = ", ".join("%" + u.name for u in node.users[:3])
                    raise VerifyError(
                        f"graph '{graph.name}': effect {node!r} was dropped, but its result is still used (by {users})"
                    )
        self._assign_levels(effects, live)
        end = self._chain(effects)
        for io in (False, True):
            token = end[io]
            if token is not None:
                value = graph.create("Depend", [value, token])
        graph.result = value
        keep = live_nodes([value])
        graph.erase_all(n for n in list(graph) if n not in keep)
        graph.sort()
        return before - len(graph)

    def _live_without_tokens(self, value: Value, kept: list[Effect]) -> set[Node]:
        live: set[Node] = set()
        stack = [v for v in (value, *(e.node for e in kept)) if isinstance(v, Node)]
        live.update(stack)
        while stack:
            for operand in stack.pop()._operands:
                if isinstance(operand, Node) and operand not in live and operand.op.name != "UpdateState":
                    live.add(operand)
                    stack.append(operand)
        return live

    def _readers(self, effect: Effect, live: set[Node]) -> list[Node]:
        """Live nodes that may read, through memory shared with it, the state that a Load names."""
        found: dict[Node, None] = {}
        stack: list[Value] = [effect.node]
        seen: set[Value] = set(stack)
        while stack:
            for user in stack.pop().uses:
                if user in live and user not in seen and user.op.name != "UpdateState":
                    seen.add(user)
                    name = user.op.name
                    if name in BINDING:
                        stack.append(user)  # the call reads, not the binding (which may hold the call's own token)
                        continue
                    found[user] = None
                    if name in VIEWS:
                        stack.append(user)
        return list(found)

    def _assign_levels(self, effects: list[Effect], live: set[Node]) -> None:
        """Gives every effect its level, and notes in ``self._fence`` which readers each level's token must wait for.

        Respects: conflicting effects in their original order; a write after all readers that stand before it.
        """
        of: dict[Node, Effect] = {e.node: e for e in effects}
        before: dict[Node, list[Node]] = {}
        readers: dict[Node, list[Node]] = {}
        last_write: dict[Value, Node] = {}
        reads_since: dict[Value, list[Effect]] = {}
        direct = self._direct_readers(of, live)
        last_barrier: Node | None = None
        last_io: Node | None = None
        so_far: list[Effect] = []
        for e in effects:
            needs: list[Node] = []
            waits: list[Node] = []
            if last_barrier is not None:
                needs.append(last_barrier)
            # MindSpore's runtime stalls where a loop's body runs beside the call that continues the loop: calls keep
            # their place.
            barrier = e.everything or e.node.op is CALL
            if barrier:
                needs.extend(p.node for p in so_far)
                for p in so_far:
                    if p.passive:
                        waits.extend(self._readers(p, live))
            for state in e.touched:
                writer = last_write.get(state)
                if writer is not None:
                    needs.append(writer)
            for state in e.writes:
                for r in reads_since.get(state, ()):
                    needs.append(r.node)
                    if r.passive:
                        found = self._readers(r, live)
                        waits.extend(n for n in found if not self._comes_later(n, e.node))
                        self._read_later(r, e.node, [n for n in found if self._comes_later(n, e.node)], live)
                waits.extend(direct.get(state, ()))
                version = last_write.get(state, state)
                if isinstance(version, Node) and (version is state or _aliases(version)):
                    waits.extend(self._users_of_memory(version, live))
                reads_since[state] = []
                last_write[state] = e.node
            for state in e.reads - e.writes:
                reads_since.setdefault(state, []).append(e)
            if e.io:
                if last_io is not None:
                    needs.append(last_io)
                last_io = e.node
            if barrier:
                last_barrier, so_far = e.node, []
            else:
                so_far.append(e)
            before[e.node] = needs
            readers[e.node] = waits
        self._walk(of, before, readers, effects, live)

    def _comes_later(self, reader: Node, write: Node) -> bool:
        """Whether the source graph runs ``reader`` after ``write``."""
        return self._order.get(reader, -1) > self._order.get(write, len(self._order))

    def _read_later(self, load: Effect, write: Node, readers: list[Node], live: set[Node]) -> None:
        """Makes readers of a Load that run after a write of the state wait for it: there they read the new value,
        and so must they here. Autodiff leaves such readers where forward overwrites a state that backward needs."""
        for reader in readers:
            if reader.op.name == "Depend" and reader.operand(1) is write:
                continue
            for i in range(reader.num_operands):
                value = reader.operand(i)
                if value is load.node:
                    with self.graph.inserting_before(reader):
                        waiting = self.graph.create("Depend", [value, write])
                    reader.set_operand(i, waiting)
                    live.add(waiting)

    @staticmethod
    def _users_of_memory(value: Node, live: set[Node]) -> list[Node]:
        """Who reads the tensor that a write of it is about to change: an activation, or the result of an earlier
        write."""
        found: list[Node] = []
        stack: list[Value] = [value]
        seen: set[Value] = set(stack)
        while stack:
            here = stack.pop()
            for user in here.uses:
                name = user.op.name
                if user not in live or user in seen or user.op is RETURN or name == "UpdateState" or name in BINDING:
                    continue
                if name == "Depend" and user.operand(0) is not here:
                    continue
                seen.add(user)
                if name in VIEWS:
                    stack.append(user)
                if name not in ("Depend", "MakeTuple", "TupleGetItem"):
                    found.append(user)
        return found

    def _direct_readers(self, of: dict[Node, Effect], live: set[Node]) -> dict[Value, list[Node]]:
        """Pure nodes that take a state without a Load (BatchNormGrad takes gamma so): they read it whenever they
        run."""
        found: dict[Value, list[Node]] = {}
        sources: list[Value] = [*self.graph.states.values(), *self.graph.inputs]
        for state in sources:
            for user in state.uses:
                name = user.op.name
                if (
                    user in live
                    and user not in of
                    and name not in BINDING
                    and name not in VIEWS
                    and user.op is not RETURN
                ):
                    found.setdefault(state, []).append(user)
        return found

    def _walk(
        self,
        of: dict[Node, Effect],
        before: dict[Node, list[Node]],
        readers: dict[Node, list[Node]],
        effects: list[Effect],
        live: set[Node],
    ) -> None:
        """Levels in dependence order: of effects as above, of pure nodes the highest among what they take values
        from."""
        level: dict[Node, int] = {}
        open_: set[Node] = set()
        self._fence: dict[int, dict[Node, None]] = {}
        roots = [e.node for e in effects] + [n for n in self.graph if n in live]
        for root in roots:
            if root in level:
                continue
            stack = [(root, "", iter(self._requirements(root, before, readers)))]
            open_.add(root)
            while stack:
                node, _, rest = stack[-1]
                for required, kind in rest:
                    if required in level or required not in live:
                        continue
                    if required in open_:
                        if kind != "reader":
                            self._give_way(stack, open_, required, node)
                        break
                    open_.add(required)
                    stack.append((required, kind, iter(self._requirements(required, before, readers))))
                    break
                else:
                    stack.pop()
                    open_.discard(node)
                    level[node] = self._level(node, of.get(node), before, readers, level)

    def _give_way(
        self, stack: list[tuple[Node, str, Iterator[tuple[Node, str]]]], open_: set[Node], required: Node, node: Node
    ) -> None:
        """On a cycle: a reader that itself needs the write reads a snapshot that the source graph took (MindSpore
        copies it); it need not wait. Any other cycle is an error."""
        at = len(stack) - 1
        while stack[at][0] is not required:
            if stack[at][1] == "reader":
                for abandoned, _, _ in stack[at:]:
                    open_.discard(abandoned)
                del stack[at:]
                return
            at -= 1
        raise VerifyError(f"graph '{self.graph.name}': {required!r} and {node!r} each must happen before the other")

    @staticmethod
    def _requirements(
        node: Node, before: dict[Node, list[Node]], readers: dict[Node, list[Node]]
    ) -> Iterator[tuple[Node, str]]:
        for operand in node._operands:
            if isinstance(operand, Node) and operand.op.name != "UpdateState":
                yield operand, "operand"
        for other in before.get(node, ()):
            yield other, "effect"
        for reader in readers.get(node, ()):
            if reader is not node:
                yield reader, "reader"

    def _level(
        self,
        node: Node,
        effect: Effect | None,
        before: dict[Node, list[Node]],
        readers: dict[Node, list[Node]],
        level: dict[Node, int],
    ) -> int:
        at = 0
        for operand in node._operands:
            if isinstance(operand, Node) and operand.op.name != "UpdateState":
                at = max(at, level.get(operand, 0))
        if effect is None:
            return at
        for other in before.get(node, ()):
            at = max(at, level[other] + 1)
        fences = [r for r in readers.get(node, ()) if r is not node and r in level]
        for reader in fences:
            at = max(at, level[reader] + 1)
        for waited in (*before.get(node, ()), *fences):
            # MindSpore inspects Loads among UpdateState's operands too, so they stay listed.
            self._fence.setdefault(level[waited] + 1, {})[waited] = None
        effect.level = at
        return at

    def _waits(self, nodes: Iterable[Node]) -> list[Value]:
        """The nodes as second operands of UpdateState, where MindSpore looks for effects; what follows there is mere
        order.

        They stand in one tuple, but for effects that we know nothing of: MindSpore drops some of those
        (InplaceSubExt) from a tuple. As in the exporter's chains, no closure stands among data: an element of a
        call's results stands for the call, and a closure itself comes from a call that is waited for already.
        """
        together: dict[Value, None] = {}
        alone: list[Value] = []
        for node in nodes:
            if isinstance(node.type, TupleType) and holds_function(node.type):
                data = [i for i, t in enumerate(node.type.elements) if not holds_function(t)]
                if data:
                    together[self._item(node, data[0])] = None
            elif holds_function(node.type):
                continue
            elif is_effect(node) and node.op is not CALL and node.op.name not in OPS:
                alone.append(node)
            else:
                together[node] = None
        if len(together) > 1:
            return [self.graph.create("MakeTuple", list(together)), *alone]
        return [*together, *alone]

    def _item(self, node: Node, index: int) -> Node:
        for user, i in node.use_sites():
            picked = user.operand(1) if user.op.name == "TupleGetItem" and i == 0 else None
            if isinstance(picked, Constant) and picked.value == index:
                return user
        return self.graph.create("TupleGetItem", [node, self.graph.constant(index)])

    def _chain(self, effects: list[Effect]) -> dict[bool, Value | None]:
        """Creates the tokens and hands them to the effects; returns the last token of each kind that must stay
        alive."""
        graph = self.graph
        end: dict[bool, Value | None] = {False: None, True: None}
        for io in (False, True):
            kind = IOMONAD if io else UMONAD
            slots: dict[int, list[tuple[Node, int]]] = {}
            attach: dict[int, dict[Node, None]] = {}
            alive = False
            for e in effects:
                mine = [(holder, i) for holder, i in token_slots(e.node) if holder.operand(i).type == kind]
                if not mine:
                    continue
                slots.setdefault(e.level, []).extend(mine)
                if not e.passive:
                    alive = True
                    attach.setdefault(e.level + 1, {})[e.node] = None
            if not io:
                for k, nodes in self._fence.items():
                    attach.setdefault(k, {}).update(nodes)
            token = self.first_token(io)
            for k in sorted(slots.keys() | attach.keys()) if slots else ():
                for one in self._waits(attach.get(k, ())):
                    token = graph.create("UpdateState", [token, one])
                for holder, i in slots.get(k, ()):
                    holder.set_operand(i, token)
            if alive:
                end[io] = token
        return end

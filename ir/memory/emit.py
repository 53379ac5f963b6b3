"""A pure function becomes a graph for MindSpore again: its values get places in memory, its effects their tokens.

A place is written by the effects that lead from what it holds at first to what it holds behind the step, each in the
memory of the one before it. Who reads a version gets it from there: by a Load, or as the result of the effect that left
it. Where a version is still read behind the write of the next one, it is copied first. The tokens
(:mod:`.token_chain`) are made once, in the end. The example of :mod:`.discharge`, turned round::

    %n = Neg(%w)                                 %old = Load(%w, %u)
    %both = AssignAdd(%w, %g)                    %n = Neg(%old)
    %next = TupleGetItem(%both, 1)          =>   %new = AssignAdd(%w, %g, %t)    // t waits for %n
    %sum = Add(%n, %next)                        %sum = Add(%n, %new)
    %all = MakeTuple(%sum, %next)                return Depend(%sum, %v)
    return %all
"""

from __future__ import annotations

from collections.abc import Callable

from ..analysis.effects.state_access import Summary, describe, summarize
from ..builders.cast import cast
from ..core.attributes import MonadValue
from ..core.graph import Constant, Graph, Input, Node, Value
from ..core.op import CALL
from ..core.predicates import may_act
from ..core.primitives import PRIMITIVES, VIEWS
from ..core.sites import site
from ..core.types import IOMONAD, UMONAD, TensorType, Type, is_monad
from ..core.walk import live_nodes
from .discharge import Body, Functional, Undischarged, Write, plain
from .token_chain import TokenChain

PURE = {name: known.pure for name, known in PRIMITIVES.items() if known.any_tensor and known.pure}
"""The primitive that computes what an in-place one on any tensor writes, from the same operands."""


def emit(functional: Functional, pure: Callable[[Node], bool] = lambda node: False) -> Graph:
    """The graph, which is what was pure before. ``pure``: of the operations in place on computed tensors, those that
    get a result of their own, or a copy to write into, even where no one reads the tensor afterwards.
    :class:`Undischarged` for what has no place in memory."""
    main = functional.graph
    tensors = _tensors(functional)
    for body in functional.bodies.values():
        _Emission(body, tensors, pure).run()
    known = summarize(main)
    for graph in main.all_graphs():
        _order(graph, known)
    return main


def _tensors(functional: Functional) -> set[Value]:
    """The inputs of functions that stand for tensors that the functions write, and not for states."""
    main, found = functional.graph, set[Value]()
    writes = [write for body in functional.bodies.values() for write in body.writes.values() if write.formals]
    while True:
        more = {
            main.functions[name].inputs[i]
            for write in writes
            for name, formals in write.formals.items()
            for at, i in zip(write.places, formals, strict=True)
            if i is not None and (isinstance(at, Node) or at in found)
        }
        if more <= found:
            return found
        found |= more


def _order(graph: Graph, known: dict[str, Summary]) -> None:
    """Makes the tokens of a graph whose effects happen in the order of its list."""
    place = {node: k for k, node in enumerate(graph)}
    effects = [effect for node in graph if may_act(node) and (effect := describe(node, known)) is not None]
    live = live_nodes([graph.result, *(e.node for e in effects if not e.passive)])
    gone = {node: None for node in graph if node not in live}

    def first(io: bool) -> Value:
        kind = IOMONAD if io else UMONAD
        given = next((v for v in graph.inputs if v.type == kind), None)
        return given or graph.constant(MonadValue(str(kind)), "io" if io else "u")

    chain = TokenChain(graph, [e for e in effects if e.node in live], gone, place, in_order=True)
    for token in chain.build(first):
        graph.result = graph.create("Depend", [graph.result, token], graph.result.type)
    graph.erase_all(gone)
    if not chain.in_order:
        graph.sort()


def pure_result(graph: Graph, write: Node, value: Value, type_: Type) -> Node:
    """The result of an in-place operation on a value, as another value. ``type_``: that of its result."""
    assert isinstance(type_, TensorType)
    own = TensorType(type_.dtype, type_.shape)
    operands = [value]
    with graph.inserting_before(write):
        for operand in write.operands[1:]:
            if is_monad(operand.type):
                continue
            if isinstance(operand.type, TensorType) and isinstance(operand, (Node, Input, Constant)):
                operand = cast(graph, operand, own.dtype, scope=write.scope)
            operands.append(operand)
        return graph.create(PURE[write.op.name], operands, own, scope=write.scope, sources=[write])


class _Emission:
    """One body, in its place."""

    def __init__(self, body: Body, tensors: set[Value], pure: Callable[[Node], bool]):
        self.body, self.graph, self.pure = body, body.graph, pure
        packed = self.graph.result
        assert isinstance(packed, Node)
        self.packed = packed
        self.nodes: list[Node] = [node for node in self.graph if node is not packed]
        self.first = self.graph._first
        self.place = {node: k for k, node in enumerate(self.nodes)}
        self.last: dict[Value, int] = {}
        """The place of the last node that takes a value."""
        for node, k in self.place.items():
            for value in node._operands:
                self.last[value] = k
        self.users = {node.operand(i): node.operand(i).users for node, w in body.writes.items() for i in w.taken}
        """Of what is overwritten: who takes it."""
        self.home: dict[Value, tuple[Value, Node | None]] = {v: (v, None) for v in body.memory if v not in tensors}
        """By version: its place, and the effect that left it there; None for what this holds at first."""
        self.next: dict[Value, Node] = {}
        """By version: the effect that overwrites it."""
        self.now: dict[Value, Value] = {v: v for v in body.memory}
        """The version that each place holds at the node in hand."""
        self.gone: list[Node] = []
        """The effects that became pure."""
        self.read: dict[Value, Value] = {}
        """By version: what its readers take."""

    def run(self) -> None:
        body, packed = self.body, self.packed
        returned, *rest = packed.operands
        for at, value in zip(body.places, rest, strict=False):
            if at in self.home:
                self._find_home(at, value)
        for node in self.nodes:
            write = body.writes.get(node)
            if (
                write is None
                and self.home.keys().isdisjoint(node._operands)
                and self.read.keys().isdisjoint(node._operands)
            ):
                continue  # as nearly all
            taken = () if write is None else write.taken
            direct = body.direct.get(node, ())
            acts = may_act(node) and not (write is not None and self._becomes_pure(node, write))
            for i, value in enumerate(node.operands):
                if i in taken:
                    continue
                if value in self.home:
                    at, maker = self.home[value]
                    named = i in direct and self.now[at] is value and (maker is None or acts)
                    node.set_operand(i, at if named else self._reading(value))
                elif value in self.read:
                    node.set_operand(i, self.read[value])
            if write is not None:
                self._effect(node, write)
        if returned in self.home:
            at, maker = self.home[returned]
            returned = at if maker is None and body.direct.get(packed) else self._reading(returned, returned=True)
        self.graph.result = self.read.get(returned, returned)
        for node, write in body.writes.items():
            self._restore(node, write)
        gone = [packed, *(user for node in self.gone for user in node.users), *self.gone]
        self.graph.erase_all(gone)

    def _find_home(self, at: Value, value: Value) -> None:
        """The effects that lead to what a place holds behind the step write it."""
        here, chain = value, list[tuple[Value, Node]]()
        while here is not at:
            maker = here.operand(0) if isinstance(here, Node) and here.op.name == "TupleGetItem" else None
            write = self.body.writes.get(maker) if isinstance(maker, Node) else None
            if write is None or not isinstance(maker, Node) or not isinstance(here, Node):
                raise Undischarged(
                    f"graph '{self.graph.name}' leaves in %{at.name} what no effect has written there (%{value.name})"
                )
            chain.append((here, maker))
            before = maker.operand(write.taken[_element(here) - 1])
            self.next[before] = maker
            here = before
        for version, maker in chain:
            self.home[version] = at, maker

    def _reading(self, version: Value, *, returned: bool = False) -> Value:
        """What the readers of a version take."""
        if version in self.read:
            return self.read[version]
        graph = self.graph
        at, maker = self.home[version]
        found: Value
        if maker is not None and self._is_itself(maker, version):
            found = maker
        else:
            with graph.inserting_before(self.first if maker is None else maker.next):
                unit = graph.constant(MonadValue("umonad"), "u")
                found = graph.create("Load", [at, unit], plain(at.type), scope="" if maker is None else maker.scope)
        over = self.next.get(version)
        if over is not None and not returned and self.last.get(version, -1) > self.place[over]:
            with graph.inserting_before(over):
                found = graph.create("TensorMove", [found], scope=over.scope, sources=[over])
        self.read[version] = found
        return found

    def _is_itself(self, maker: Node, version: Value) -> bool:
        """Whether a version is what the effect that made it returns."""
        result = self.body.writes[maker].result
        itself = maker.op is not CALL and isinstance(result, TensorType) and bool(result.ref)
        return itself and isinstance(version, Node) and _element(version) == 1

    # -- effects -----------------------------------------------------------------------------------------------

    def _effect(self, node: Node, write: Write) -> None:
        left = {_element(user): user for user in node.users if user.op.name == "TupleGetItem"} if write.taken else {}
        for k, i in enumerate(write.taken, start=1):
            value, version = node.operand(i), left.get(k)
            if version is not None and version in self.home:
                at = self.home[version][0]
                node.set_operand(i, at)
                self.now[at] = version
            elif node.op is CALL:
                if version is not None and any(user is not self.packed for user in version.uses):
                    raise Undischarged(
                        f"graph '{self.graph.name}': a function that {site(node)} calls writes %{value.name} in place, "
                        f"and {site(version.users[0])} reads it afterwards: return the tensor from the function and "
                        "use that"
                    )
            else:
                self._tensor(node, i, value, version, left.get(0))

    def _tensor(self, node: Node, i: int, value: Value, version: Value | None, result: Value | None) -> None:
        """A write of what is no state: in its memory, if no one else reads that behind it."""
        graph = self.graph
        tensor = self._reading(value) if value in self.home else self.read.get(value, value)
        if node in self.gone:
            made = pure_result(graph, node, tensor, self.body.writes[node].result)
            self.read.update({item: made for item in (version, result) if item is not None})
            return
        if not self._own(value, node) or (self.pure(node) and len(self.users[value]) > 1):
            with graph.inserting_before(node):
                tensor = graph.create("TensorMove", [tensor], scope=node.scope, sources=[node])
        node.set_operand(i, tensor)
        if version is None:
            return
        if self._is_itself(node, version):
            self.read[version] = node
        else:
            with graph.inserting_before(node.next):
                unit = graph.constant(MonadValue("umonad"), "u")
                self.read[version] = graph.create("Load", [tensor, unit], plain(tensor.type), scope=node.scope)

    def _becomes_pure(self, node: Node, write: Write) -> bool:
        """Whether a write of a computed tensor becomes an operation with a result."""
        if node.op.name not in PURE or len(write.taken) != 1:
            return False
        own = self._own(node.operand(write.taken[0]), node) and not self.pure(node)
        if own or any(user in self.home for user in node.users):
            return False
        self.gone.append(node)
        return True

    def _own(self, value: Value, write: Node) -> bool:
        """Whether no one may see that ``write`` overwrites a tensor."""
        if not isinstance(value, Node) or value in self.home or (value.op.name in VIEWS and value not in self.read):
            return False
        at, end = self.place[write], len(self.place)
        others = [user for user in self.users[value] if user is not write]
        return not any(user.op.name in VIEWS or self.place.get(user, end) > at for user in others)

    def _restore(self, node: Node, write: Write) -> None:
        """An effect gives what it gave in memory again, and its versions go."""
        node.type = write.result
        if not write.taken:
            return
        if node.op is CALL:
            node.set_operands(node.operands[: -len(write.taken)])
        for user in node.users:
            if user.op.name == "TupleGetItem" and user in self.place and _element(user) == 0:
                user.replace_uses(node)
                if self.graph.result is user:
                    self.graph.result = node


def _element(item: Value) -> int:
    assert isinstance(item, Node)
    k = item.operand(1).literal
    assert isinstance(k, int)
    return k

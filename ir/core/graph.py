"""Values, nodes and the graphs they stand in: one datatype, for a node knows its graph and a graph its nodes.

A graph is one function in A-normal form. A value has one definition and knows its users; a node *is* its result. Uses
are kept per user as one operand index or, where a user takes the value several times, a set of them: setting one
operand is O(1) even on a node with 64,000 operands. Nodes stand in a list in which operands come before their users.
The graph changes only through the operations here and on :class:`Node`; they keep the use-lists right.

Iterating (``for node in graph``) is safe under mutation in this sense: the node in hand may be erased or moved;
nodes inserted directly after it are not visited; nodes inserted anywhere later are.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from .attributes import Attribute, TensorValue, bits, type_of
from .display import Displayed
from .errors import VerifyError
from .inference import infer
from .naming import printable
from .op import NO_ATTRIBUTES, RETURN, Op
from .primitives import make_op
from .types import UMONAD, UNKNOWN, FunctionType, TensorType, Type, readable
from .wording import counted

if TYPE_CHECKING:
    import networkx


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a rewritten node: names of source nodes, and the passes that touched it, oldest first."""

    sources: tuple[str, ...] = ()
    passes: tuple[str, ...] = ()


_MADE_BY: dict[str, Origin] = {}
"""The origin of what a pass made from no node: one for all."""


def source_names(sources: Iterable[Value]) -> tuple[str, ...]:
    """The source nodes behind values, each once."""
    names: list[str] = []
    for source in sources:
        origin = source.origin if isinstance(source, Node) else None
        names.extend(origin.sources if origin and origin.sources else (source.name,))
    return tuple(names if len(names) < 2 else dict.fromkeys(names))


class Value:
    """Base of everything that can be an operand."""

    __slots__ = ("name", "type", "uses")

    def __init__(self, name: str, type: Type):
        self.name = name
        self.type = type
        self.uses: dict[Node, int | set[int]] = {}

    @property
    def users(self) -> list[Node]:
        """Each node that takes this value, once, in the order in which it came to use it."""
        return list(self.uses)

    @property
    def literal(self) -> Attribute | None:
        """The value of a constant; None of anything else."""
        return None

    @property
    def is_zero(self) -> bool:
        """Whether it is a constant tensor of nothing but zero bytes (-0.0 has another)."""
        literal = self.literal
        return isinstance(literal, TensorValue) and literal.data.is_zero()

    def use_sites(self) -> Iterator[tuple[Node, int]]:
        """(user, operand index) of each use; a snapshot, so uses may be changed while iterating."""
        for user, at in list(self.uses.items()):
            if isinstance(at, int):
                yield user, at
            else:
                for i in sorted(at):
                    yield user, i

    def replace_uses(self, new: Value) -> int:
        """Every use of this value becomes a use of ``new``; linear in the uses. Returns how many there were."""
        count = 0
        for user, i in self.use_sites():
            user.set_operand(i, new)
            count += 1
        return count

    def _add_use(self, user: Node, i: int) -> None:
        at = self.uses.get(user)
        if at is None:
            self.uses[user] = i
        elif isinstance(at, int):
            self.uses[user] = {at, i}
        else:
            at.add(i)

    def _drop_use(self, user: Node, i: int) -> None:
        at = self.uses[user]
        if isinstance(at, int):
            del self.uses[user]
        else:
            at.discard(i)
            if len(at) == 1:
                self.uses[user] = at.pop()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} %{self.name}: {self.type}>"


class Input(Value):
    """A graph input (or a function's parameter)."""

    __slots__ = ()


class State(Value):
    """A reference to the state variable of the same name; in-place operations write it through this value."""

    __slots__ = ()


class Constant(Value):
    """A constant: scalars, tuples, tensors, the first effect token."""

    __slots__ = ("value",)

    def __init__(self, name: str, value: Attribute, type: Type | None = None):
        super().__init__(name, type_of(value) if type is None else type)
        self.value = value

    @property
    def literal(self) -> Attribute:
        return self.value


class GraphRef(Value):
    """A reference to a function of the same program; ``graph`` is the function."""

    __slots__ = ("graph",)

    def __init__(self, graph: Graph, type: Type):
        super().__init__(graph.name, type)
        self.graph = graph


class Node(Value):
    """The application of a primitive (or a call) to operands, and its result.

    ``scope`` is where in the user's network it stands (MindIR ``domain``). ``marks`` (MindIR ``node_attr``) and
    ``primal`` (``primal_attr``: links between forward and backward nodes) are the file's notes about the node.
    Build nodes with :meth:`Graph.create`.
    """

    __slots__ = ("_next", "_operands", "_prev", "graph", "marks", "op", "origin", "primal", "scope")

    def __init__(
        self,
        name: str,
        type: Type,
        op: Op,
        scope: str = "",
        marks: Mapping[str, Attribute] = NO_ATTRIBUTES,
        primal: Mapping[str, Attribute] = NO_ATTRIBUTES,
        origin: Origin | None = None,
    ):
        # Not through super(): a graph of 100,000 nodes makes as many of these.
        self.name = name
        self.type = type
        self.uses = {}
        self.op = op
        self.scope = scope
        self.marks = marks
        self.primal = primal
        self.origin = origin
        self.graph: Graph | None = None
        self._operands: list[Value] = []
        self._prev: Node | None = None
        self._next: Node | None = None

    @property
    def home(self) -> Graph:
        """The graph in which the node stands; VerifyError for one that stands in none."""
        if self.graph is None:
            raise VerifyError(f"{self!r} stands in no graph")
        return self.graph

    @property
    def operands(self) -> tuple[Value, ...]:
        """A snapshot; linear in the width. In loops over wide nodes hold on to it, or use :meth:`operand`."""
        return tuple(self._operands)

    @property
    def num_operands(self) -> int:
        return len(self._operands)

    def operand(self, i: int) -> Value:
        """VerifyError where there is none: a file can hold any node without its operands."""
        try:
            return self._operands[i]
        except IndexError:
            raise VerifyError(
                f"node '%{self.name}' ({self.op.name}) has {counted(len(self._operands), 'operand')}, and needs "
                f"{i + 1}: the file is damaged, or not from MindSpore"
            ) from None

    @property
    def attributes(self) -> Mapping[str, Attribute]:
        return self.op.attributes

    def set_attribute(self, name: str, value: Attribute) -> None:
        """Changes one attribute of this node alone (its primitive is shared, so it gets another one)."""
        self.op = Op(self.op.name, {**self.op.attributes, name: value}, self.op.instance, self.op.kind)

    def set_operand(self, i: int, new: Value) -> None:
        """O(1)."""
        old = self._operands[i]
        if old is not new:
            old._drop_use(self, i)
            self._operands[i] = new
            new._add_use(self, i)

    def set_operands(self, new: Sequence[Value]) -> None:
        """Replaces the whole operand list; linear in the old and new width."""
        for i, old in enumerate(self._operands):
            old._drop_use(self, i)
        self._take(list(new))

    def _take(self, operands: list[Value]) -> None:
        """Makes the list, which is the node's own from now on, the operands of a node that takes nothing."""
        self._operands = operands
        for i, value in enumerate(operands):
            uses = value.uses
            if self in uses:
                value._add_use(self, i)
            else:
                uses[self] = i

    @property
    def next(self) -> Node | None:
        return self._next

    def twin(self) -> Node:
        """A node like this one, with its notes, that takes nothing and stands nowhere yet."""
        return Node(self.name, self.type, self.op, self.scope, self.marks, self.primal, self.origin)

    def __repr__(self) -> str:
        shown = ", ".join(f"%{v.name}" for v in self._operands[:8])
        more = ", …" if len(self._operands) > 8 else ""
        return f"<%{self.name} = {self.op.name}({shown}{more}): {self.type}>"


Use = tuple[Node, int]
"""A use of a value: who takes it, as which operand."""


def rewire(uses: Iterable[Use], new: Value) -> None:
    """Each of these uses becomes one of ``new``. They are listed before ``new`` is made of what they took."""
    for user, i in uses:
        user.set_operand(i, new)


_SHOWN = 4
"""How many inputs and outputs ``repr`` names."""


class Graph(Displayed):
    """A main graph with its functions, or a function (whose ``functions`` is its owner's mapping).

    ``outputs`` names what the result holds, in order: ``("loss",)``, or ``("loss", "overflow", "loss_scale")`` for a
    result tuple. ``attributes`` and ``info`` are the file's notes about the graph.
    """

    def __init__(self, name: str, owner: Graph | None = None):
        self.name = name
        self.inputs: list[Input] = []
        self.states: dict[str, State] = {}
        self.owner = owner
        self.functions: dict[str, Graph] = {} if owner is None else owner.functions
        self.attributes: dict[str, Attribute] = {}
        self.info: dict[str, Attribute] = {}
        self.outputs: tuple[str, ...] = ()
        self.editor = ""
        """Name of the pass at work: stamped into the origin of every node made."""
        self._refs: dict[str, GraphRef] = {}
        self._constants: dict[object, Constant] = {}
        self._first: Node | None = None
        self._last: Node | None = None
        self._count = 0
        self._return = Node("return", UMONAD, RETURN)
        self._return.graph = self
        self._before: Node | None = None
        self._serial = 0

    def __repr__(self) -> str:
        takes = ", ".join(f"{v.name}: {readable(v.type)}" for v in self.inputs[:_SHOWN])
        takes += f", … {len(self.inputs) - _SHOWN} more" if len(self.inputs) > _SHOWN else ""
        gives = ", ".join(self.outputs[:_SHOWN]) or "result"
        gives += f": {readable(self.result.type)}" if self.has_result else ": not set"
        main = self.owner is None
        functions = f", its {counted(len(self.functions), 'function')} included" if main and self.functions else ""
        nodes = counted(self.total_nodes() if main else len(self), "node")
        kind = "Graph" if main else "Function"
        return printable(f"{kind} '{self.name}': {nodes}{functions}; ({takes}) -> {gives}")

    # -- reading ---------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Node]:
        node = self._first
        while node is not None:
            following = node._next
            yield node
            node = following

    def __reversed__(self) -> Iterator[Node]:
        node = self._last
        while node is not None:
            following = node._prev
            yield node
            node = following

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return True  # also without nodes: "graph.owner or graph" asks whether there is one

    @property
    def result(self) -> Value:
        """The value that the graph returns."""
        if not self._return._operands:
            raise VerifyError(f"graph '{self.name}' has no result yet")
        return self._return._operands[0]

    @result.setter
    def result(self, value: Value) -> None:
        if self._return._operands:
            self._return.set_operand(0, value)
        else:
            self._return.set_operands([value])

    @property
    def has_result(self) -> bool:
        return bool(self._return._operands)

    def is_return(self, node: Node) -> bool:
        """Whether ``node``, met as a user of some value, is the graph's return and no node of the list."""
        return node is self._return

    def all_graphs(self) -> list[Graph]:
        """This graph and its functions."""
        return [self, *self.functions.values()] if self.owner is None else [self]

    def all_nodes(self) -> Iterator[Node]:
        """The nodes of this graph and of its functions."""
        return chain.from_iterable(self.all_graphs())

    def total_nodes(self) -> int:
        """How many nodes the graph and its functions have."""
        return sum(map(len, self.all_graphs()))

    def to_networkx(self) -> networkx.MultiDiGraph:
        """Nodes and operands as a networkx graph, for analyses that are plain graph theory (not for hot paths)."""
        import networkx as nx

        g: networkx.MultiDiGraph = nx.MultiDiGraph(name=self.name)
        for node in self:
            g.add_node(node)
            for i, operand in enumerate(node._operands):
                g.add_edge(operand, node, index=i)
        return g

    # -- building --------------------------------------------------------------------------------------------

    def add_input(self, name: str, type: Type) -> Input:
        value = Input(name, type)
        self.inputs.append(value)
        return value

    def state(self, name: str, type: Type | None = None) -> State:
        """The value that refers to state ``name``; made on first use, when ``type`` must be given."""
        value = self.states.get(name)
        if value is None:
            if type is None:
                raise VerifyError(f"graph '{self.name}' does not use state '{name}'")
            value = self.states[name] = State(name, type)
        return value

    def constant(self, value: Attribute, name: str = "") -> Constant:
        """A constant with these bits; the same object for the same bits."""
        key = bits(value)
        found = self._constants.get(key)
        if found is None:
            found = self._constants[key] = Constant(name or self.fresh_name("const"), value)
        return found

    def adopt(self, constant: Constant) -> Constant:
        """Offers a constant that exists already to :meth:`constant`, unless its bytes are too many to hash now."""
        value = constant.value
        if not isinstance(value, TensorValue) or value.data.nbytes <= 256:
            self._constants.setdefault(bits(value), constant)
        return constant

    def reference(self, function: Graph) -> GraphRef:
        """The value that refers to a function of this graph."""
        ref = self._refs.get(function.name)
        if ref is None or ref.graph is not function:
            ref = self._refs[function.name] = GraphRef(function, FunctionType((function.name,)))
        return ref

    def add_function(self, name: str) -> Graph:
        """A new empty function; its name is made unique."""
        unique, n = name, 1
        while unique in self.functions or unique == (self.owner or self).name:
            unique, n = f"{name}_{n}", n + 1
        function = self.functions[unique] = Graph(unique, self.owner or self)
        function.editor = self.editor
        return function

    def fresh_name(self, hint: str) -> str:
        """A name that no node made by this graph's editors has; printers and writers settle clashes with the file's."""
        self._serial += 1
        return f"{hint}.{self._serial}"

    def create(
        self,
        op: Op | str,
        operands: Sequence[Value],
        type: Type | None = None,
        *,
        attributes: Mapping[str, Attribute] = NO_ATTRIBUTES,
        scope: str = "",
        name: str = "",
        sources: Iterable[Value] = (),
    ) -> Node:
        """A new node at the insertion point (the end of the list unless inside :meth:`inserting_before`).

        ``op`` is a primitive's name (its kind and type rule come from the op table) or an :class:`Op`; the type is
        inferred by the rules of :mod:`.inference` unless given. ``sources`` are the values it was derived from.
        """
        if isinstance(op, str):
            op = make_op(op, attributes)
        if type is None:
            type = infer(op, operands)
            if type is UNKNOWN:
                raise VerifyError(
                    f"{op.name} of {', '.join(f'%{v.name}' for v in operands[:4])}: their type is not known; "
                    "export the model again, or give the type"
                )
        if not name:
            name = self.fresh_name(op.name)
        node, editor = Node(name, type, op, scope), self.editor
        if sources and (names := source_names(sources)):
            node.origin = Origin(names, (editor,) if editor else ())
        elif editor:
            node.origin = _MADE_BY.get(editor) or _MADE_BY.setdefault(editor, Origin((), (editor,)))
        self.insert(node, self._before)
        node._take(list(operands))
        return node

    def inserting_before(self, node: Node | None) -> InsertionPoint:
        """Inside ``with``, new nodes go directly before ``node`` (None: to the end)."""
        if node is not None and node.graph is not self:
            raise VerifyError(f"insertion point {node!r} is not a node of graph '{self.name}'")
        return InsertionPoint(self, None if node is self._return else node)

    def inserting_after(self, value: Value | None) -> InsertionPoint:
        """Inside ``with``, new nodes go directly after ``value`` (to the front if it is no node), in the order of
        creation."""
        return self.inserting_before(value._next if isinstance(value, Node) else self._first)

    # -- changing --------------------------------------------------------------------------------------------

    def insert(self, node: Node, before: Node | None = None) -> Node:
        """Links a free node into the list, before another (None: at the end)."""
        if node.graph is not None:
            raise VerifyError(f"{node!r} already stands in graph '{node.graph.name}'")
        node.graph = self
        self._count += 1
        previous = self._last if before is None else before._prev
        node._prev, node._next = previous, before
        if previous is None:
            self._first = node
        else:
            previous._next = node
        if before is None:
            self._last = node
        else:
            before._prev = node
        return node

    def erase(self, node: Node) -> None:
        """Removes an unused node; refuses, changing nothing, while something uses it."""
        if node.graph is not self or node is self._return:
            raise VerifyError(f"{node!r} is not a node of graph '{self.name}'")
        if node.uses:
            raise VerifyError(f"cannot erase {node!r}: used by {', '.join('%' + u.name for u in node.users[:4])}")
        self._unlink(node)
        node.set_operands(())

    def substitute(self, node: Node, value: Value) -> None:
        """Who uses a node uses ``value`` from now on, and the node goes."""
        node.replace_uses(value)
        self.erase(node)

    def erase_all(self, nodes: Iterable[Node]) -> int:
        """Removes nodes that only each other use (a dead region, cycles included). Checks first, then changes."""
        doomed = dict.fromkeys(nodes)
        for node in doomed:
            for user in node.uses:
                if user not in doomed:
                    raise VerifyError(f"cannot erase {node!r}: used by %{user.name}, which stays")
        for node in doomed:
            for operand in node._operands:
                if operand not in doomed:
                    operand.uses.pop(node, None)  # all at once: it may take the value several times
            self._unlink(node)
            node._operands = []
        for node in doomed:
            node.uses = {}
        return len(doomed)

    def forget_unused_states(self) -> list[str]:
        """Drops references to state that no node uses; their names."""
        unused = [name for name, state in self.states.items() if not state.uses]
        for name in unused:
            del self.states[name]
        return unused

    def replace(self, mapping: Mapping[Value, Value]) -> int:
        """Replaces all uses of each key by its value, all at once (a value may itself be a key: its own uses are those
        from before); linear in the uses. Returns their number."""
        sites = [(user, i, new) for old, new in mapping.items() if old is not new for user, i in old.use_sites()]
        for user, i, new in sites:
            user.set_operand(i, new)
        return len(sites)

    def reorder(self, order: Iterable[Node]) -> None:
        """Relinks the list in the given order, which must hold each node once. The caller answers for its validity."""
        nodes = list(order)
        if len(nodes) != self._count or len({n for n in nodes if n.graph is self}) != self._count:
            raise VerifyError(
                f"reorder of graph '{self.name}': {counted(len(nodes), 'node')} given, not each of its "
                f"{self._count} once"
            )
        self._relink(nodes)

    def _relink(self, nodes: Sequence[Node]) -> None:
        for previous, node in pairwise(nodes):
            previous._next = node
            node._prev = previous
        self._first = nodes[0] if nodes else None
        self._last = nodes[-1] if nodes else None
        if nodes:
            nodes[0]._prev = nodes[-1]._next = None

    def sort(self) -> None:
        """Restores a valid order after operands were rewired: stable, linear. Of a cycle, an error names a node."""
        # Only nodes come after others. Of the rest these are nearly all, and a node that takes no other is met quickly.
        done: set[Value] = {*self.inputs, *self.states.values(), *self._constants.values(), *self._refs.values()}
        open_: set[Node] = set()
        order: list[Node] = []
        moved = False
        for root in self:
            if root in done:
                continue
            for operand in () if done.issuperset(root._operands) else root._operands:
                if operand not in done:
                    if isinstance(operand, Node) and operand.graph is self:
                        break
                    done.add(operand)
            else:  # it stands right already, as nearly all do
                done.add(root)
                order.append(root)
                continue
            moved = True
            stack: list[tuple[Node, int]] = [(root, 0)]
            open_.add(root)
            while stack:
                node, i = stack.pop()
                operands = node._operands
                width = len(operands)
                while i < width:
                    operand = operands[i]
                    i += 1
                    if operand not in done and isinstance(operand, Node) and operand.graph is self:
                        if operand in open_:
                            raise VerifyError(f"graph '{self.name}': {operand!r} depends on itself")
                        stack.append((node, i))
                        stack.append((operand, 0))
                        open_.add(operand)
                        break
                else:
                    done.add(node)
                    open_.discard(node)
                    order.append(node)
        if moved:
            self._relink(order)

    def clone(self, name: str | None = None, only: Collection[Node] | None = None) -> tuple[Graph, dict[Value, Value]]:
        """A copy with copies of its functions, and the map from old values to new. Data and ops are shared. ``only``:
        the nodes of this graph that are copied, into a graph without a result. What they take of the others is copied
        as nodes that take nothing and stand nowhere: the caller replaces them."""
        copy = Graph(self.name if name is None else name)
        mapping: dict[Value, Value] = {}
        if self.owner is not None:
            raise VerifyError("clone the owner of a function, not the function")
        for fname in self.functions:
            copy.functions[fname] = Graph(fname, copy)
        self._copy_body(copy, mapping, only)
        for fname, function in self.functions.items():
            function._copy_body(copy.functions[fname], mapping)
        return copy, mapping

    def _copy_body(self, copy: Graph, mapping: dict[Value, Value], only: Collection[Node] | None = None) -> None:
        copy.attributes = dict(self.attributes)
        copy.info = dict(self.info)
        copy.outputs = self.outputs
        copy.editor = self.editor
        copy._serial = self._serial
        for formal in self.inputs:
            mapping[formal] = copy.add_input(formal.name, formal.type)
        for state in self.states.values():
            mapping[state] = copy.state(state.name, state.type)

        def of(value: Value) -> Value:
            found = mapping.get(value)
            if found is None:
                if isinstance(value, Constant):
                    found = Constant(value.name, value.value, value.type)
                elif isinstance(value, GraphRef):
                    found = copy.reference(copy.functions[value.graph.name])
                elif only is not None and isinstance(value, Node) and value.graph is self:
                    found = value.twin()
                else:
                    raise VerifyError(f"graph '{self.name}' uses {value!r}, which it does not define")
                mapping[value] = found
            return found

        for key, constant in self._constants.items():
            copy._constants[key] = of(constant)  # type: ignore[assignment]
        nodes = list(self) if only is None else [node for node in self if node in only]
        twins = [node.twin() for node in nodes]
        for twin in twins:
            twin.graph = copy
        copy._relink(twins)
        copy._count = len(twins)
        mapping.update(zip(nodes, twins, strict=True))
        for node, twin in zip(nodes, twins, strict=True):
            try:
                operands = [mapping[value] for value in node._operands]
            except KeyError:  # a constant or a function that is met for the first time
                operands = [of(value) for value in node._operands]
            twin._take(operands)
        if self.has_result and only is None:
            copy.result = of(self.result)

    def _unlink(self, node: Node) -> None:
        if node._prev is None:
            self._first = node._next
        else:
            node._prev._next = node._next
        if node._next is None:
            self._last = node._prev
        else:
            node._next._prev = node._prev
        node._prev = node._next = None
        node.graph = None
        self._count -= 1


class InsertionPoint:
    """Where nodes are created inside ``with``: a third of what a generator with ``contextmanager`` costs, which counts
    where a pass opens one a node."""

    __slots__ = ("_before", "_graph", "_outer")

    def __init__(self, graph: Graph, before: Node | None):
        self._graph, self._before = graph, before

    def __enter__(self) -> None:
        self._outer, self._graph._before = self._graph._before, self._before

    def __exit__(self, *_: object) -> None:
        self._graph._before = self._outer


def tensor_type(value: Value) -> TensorType:
    """The tensor type of a value; an error that names the value otherwise."""
    if not isinstance(value.type, TensorType):
        raise VerifyError(f"{value!r} is not a tensor")
    return value.type

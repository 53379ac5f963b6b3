"""In-place operations on computed tensors (``g *= scale``, ``m += x``): what they compute, and graphs without them.

MindSpore keeps ``x += y`` as a write into the memory of x. That is exact in the forward part, whose backward part was
derived from it, and hides from passes what happens to a gradient. In the update side it becomes the same operation
with a result of its own, and whoever reads the tensor afterwards takes that (:func:`without_writes`). So nothing else
needs to know that two values of the update side are one memory. For example, of ``new``::

    %g = MatMul(%x, %y)
    %half = InplaceMuls(%g, 0.5, %u1)                          // %half = Muls(%g, 0.5)
    %u2 = UpdateState(%u1, %half)
    %new = ApplyMomentum(%w, %m, %rate, %g, 0.9, %u2)          // takes %half

A constant is worse off: MindSpore 2.10 writes into the constant itself, so the next step, and whoever shares the
constant, starts from what the last one left. Such a write gets a copy of its own (:func:`copy_constants`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from ..analysis.effects.effect_list import EffectList, list_effects
from ..analysis.effects.state_access import describe, place, states_behind, summarize
from ..analysis.effects.tokens import orders_only
from ..analysis.functions.calls import bindings, targets
from ..analysis.training.network import network_parts
from ..builders.cast import cast
from ..core.errors import PassError
from ..core.graph import Constant, Graph, Input, Node, State, Value
from ..core.op import CALL, RETURN
from ..core.predicates import is_effect, may_act, written_operands
from ..core.primitives import BINDING, CPU, PASSING, PRIMITIVES, facts
from ..core.sites import site
from ..core.types import TensorType, is_monad
from ..core.walk import walk
from .effects.editing import Effects

Chains = dict[Value, list[Node]]
"""By what a computed tensor is, a node or a function's input: the operations that write it."""

PURE = {name: known.pure for name, known in PRIMITIVES.items() if known.any_tensor and known.pure}
"""The primitive that computes what an in-place one writes, from the same operands."""


def written_constants(graph: Graph) -> list[tuple[Node, int]]:
    """The effects of a graph that write into a constant, and the operand that is one."""
    return [
        (node, i)
        for node in graph
        if not node.op.deals_in_tokens and may_act(node) and is_effect(node) and node.op is not CALL
        for i in written_operands(node)
        if isinstance(node.operand(i), Constant)
    ]


def copy_constants(graph: Graph) -> int:
    """Gives writes into a constant, and who reads it afterwards, a copy, in this graph alone; returns how many."""
    found = written_constants(graph)
    if not found:
        return 0
    copies: dict[Value, Node] = {}
    order = {e.node: k for k, e in enumerate(Effects(graph).list)}
    for node, i in sorted(found, key=lambda use: order.get(use[0], -1)):
        constant = node.operand(i)
        if constant not in copies:
            with graph.inserting_before(node):
                copies[constant] = graph.create("TensorMove", [constant], scope=node.scope, sources=[node])
            for user, at in constant.use_sites():
                if user.op.name == "Load" and order.get(user, -1) > order.get(node, -1):
                    user.set_operand(at, copies[constant])
        node.set_operand(i, copies[constant])
    Effects(graph).commit()
    return len(found)


def replaceable_writes(main: Graph, target: str) -> list[Node]:
    """The operations of a graph and its functions that :func:`without_writes` replaces."""
    return [w for readings in _found(main, target) for writes in readings.chains.values() for w in writes]


def without_writes(main: Graph, target: str) -> int:
    """Gives in-place operations on computed tensors a result of their own, in a graph and its functions; returns how
    many. What has no counterpart in :data:`PURE` writes into a copy, which no one else has. What the network writes
    stays where nobody reads the tensor afterwards but by the operation's result. PassError where nothing says whether
    the update side reads a tensor before it is written or afterwards, and where it writes through a view."""
    found = _found(main, target)
    _refuse_read_by_callers(main, {root for of in found for root in of.chains if isinstance(root, Input)})
    return sum(map(_replace, found))


def forward_without_writes(graph: Graph, forward: Collection[Node]) -> int:
    """The same for those of ``forward`` on tensors that nobody takes but by a Load; returns how many."""
    chains = {
        root: writes
        for root, writes in _chains(graph, {}).items()
        if all(w in forward and w.op.name in PURE for w in writes) and _read_by_loads(root)
    }
    for root in chains:
        if isinstance(root.type, TensorType):
            root.type = TensorType(root.type.dtype, root.type.shape)
    return _replace(_Readings(list_effects(graph), chains, set(graph))) if chains else 0


def _found(main: Graph, target: str) -> list[_Readings]:
    """What is to be replaced, by graph and function."""
    bodies = [body for body in main.all_graphs() if any(_may_write_tensor(node) for node in body)]
    if not bodies:
        return []
    network, bound, known = network_parts(main).keys(), bindings(main), summarize(main)
    found = []
    for body in bodies:
        if chains := _chains(body, bound):
            for root, writes in [*chains.items()]:
                if views := [n for n in (root, *writes) if _is_view(n, target)]:
                    if any(write not in network for write in writes):
                        raise PassError(
                            f"graph '{body.name}': {site(writes[-1])} writes a tensor in place through a view of it "
                            f"({site(views[0])}): assign the result of the operation (g = g * factor) and use that"
                        )
                    del chains[root]
            readings = _Readings(list_effects(body, known), chains, network)
            readings.chains = {root: writes for root, writes in chains.items() if _matters(readings, root)}
            found += [readings] if readings.chains else []
    return found


def _is_view(value: Value, target: str) -> bool:
    """Whether a value is the memory of another one. On a CPU only what takes a token is."""
    if not isinstance(value, Node) or value.op.deals_in_tokens or value.op.name in PASSING:
        return False
    return facts(value.op).view and (target != CPU or is_effect(value))


def _matters(readings: _Readings, root: Value) -> bool:
    """Whether others see that a tensor is written, or passes would."""
    writes = readings.chains[root]
    if any(version != made for _, _, made, version in readings.of(root)):
        return True
    return any(w not in readings.network and (w.op.name in PURE or _shared(w)) for w in writes)


def _may_write_tensor(node: Node) -> bool:
    if node.op.deals_in_tokens or node.op is CALL or not is_effect(node):
        return False
    return any(not isinstance(node.operand(i), State) for i in written_operands(node))


def _chains(graph: Graph, bound: Mapping[Input, Sequence[Value]]) -> Chains:
    """Without tensors that stand for a state."""
    chains: Chains = {}
    kept: set[Value] = set()
    for node in graph:
        if not _may_write_tensor(node):
            continue
        written = written_operands(node)
        for i in written:
            root = place(node.operand(i))
            if root is None or isinstance(root, State) or (isinstance(root, Input) and states_behind(root, bound)):
                continue
            chains.setdefault(root, []).append(node)
            unknown = (
                root.op.name == "Load" if isinstance(root, Node) else graph.owner is not None and root not in bound
            )
            if len(written) > 1 or unknown:
                kept.add(root)
    return {root: writes for root, writes in chains.items() if root not in kept}


def _target(write: Node) -> Value:
    return write.operand(written_operands(write)[0])


def _shared(write: Node) -> bool:
    """Whether anyone else takes the tensor that an operation writes."""
    value = _target(write)
    others = ((user, i) for user, i in value.use_sites() if user is not write)
    return isinstance(value, Input) or any(not orders_only(user, i) for user, i in others)


def _read_by_loads(root: Value) -> bool:
    """Whether all who take a written tensor say when: by a Load with a token, or as an effect."""
    return all(user.op.name == "Load" or is_effect(user) or orders_only(user, i) for user, i in root.use_sites())


def _replace(readings: _Readings) -> int:
    graph, chains = readings.graph, readings.chains
    fx = Effects(graph, listed=readings.listed)
    taken = {root: list(readings.of(root)) for root in chains}
    gone, copied = set[Node](), set[Node]()
    for root, writes in chains.items():
        versions: list[Value] = [root]
        for write in writes:
            if write.op.name in PURE:
                gone.add(write)
                versions.append(_pure(graph, write, versions[-1]))
            else:
                write.set_operand(written_operands(write)[0], versions[-1])
                versions.append(write)
        for user, i, _, version in taken[root]:
            user.set_operand(i, versions[version])
        for write in writes:
            if write not in gone and _shared(write):
                with graph.inserting_before(write):
                    copy = graph.create("TensorMove", [_target(write)], scope=write.scope, sources=[write])
                write.set_operand(written_operands(write)[0], copy)
                copied.add(write)
    fx.drop([e for e in fx.list if e.node in gone])
    fx.list = [describe(e.node, readings.listed.known) or e if e.node in copied else e for e in fx.list]
    fx.commit()
    return len(gone) + len(copied)


class _Readings:
    """Who reads the tensors of ``chains``, and which version. An effect reads at its place in the list, anything else
    behind the writes that it waits for; the ``network`` ran before all that it does not wait for."""

    def __init__(self, listed: EffectList, chains: Chains, network: Collection[Node]):
        self.graph, self.listed, self.chains, self.network = listed.graph, listed, chains, network
        self.order = {e.node: k for k, e in enumerate(listed.effects)}
        for writes in chains.values():
            writes.sort(key=self._place)
        self.bits = {write: 1 << k for k, write in enumerate(w for writes in chains.values() for w in writes)}
        self.behind: dict[Value, int] = {}
        """The writes that a node waits for."""
        for node in self.graph:
            waits = self.bits.get(node, 0)
            for operand in node._operands:
                waits |= self.behind.get(operand, 0)
            if waits:
                self.behind[node] = waits
        self.ahead: dict[Node, int] = {}
        """The place of the first write that waits for a node."""
        for write in sorted(self.bits, key=self._place):
            for node in walk(
                [write], lambda n: [v for v in n._operands if isinstance(v, Node) and v not in self.ahead]
            ):
                self.ahead[node] = self._place(write)

    def _place(self, write: Node) -> int:
        return self.order.get(write, -1)

    def of(self, root: Value) -> Iterator[tuple[Node, int, int, int]]:
        """The uses of a tensor, under each of its names, that take its value, with the version that the name was made
        as and the one that is read."""
        writes = self.chains[root]
        names: list[tuple[Value, int]] = [(root, 0)]
        names += [(write, k + 1) for k, write in enumerate(writes) if write.op is not CALL]
        while names:
            name, made = names.pop()
            tied = isinstance(name, Node) and name.op.name == "Depend"
            for user, i in name.use_sites():
                if user in self.bits and i in written_operands(user):
                    continue  # a write takes the version before it
                if orders_only(user, i):
                    continue
                version = self._version(user, writes, made)
                if user.op.name in ("Load", "Depend"):
                    names.append((user, version))
                if user.op.name != "Load" and (version != made or not tied):
                    yield user, i, made, version

    def _version(self, user: Node, writes: Sequence[Node], made: int) -> int:
        """``made``: the version that the name stands for, which is the least that can be read."""
        found = {max(made, self._at(reader, writes, made)) for reader in self._readers(user)}
        if len(found) > 1:
            raise self._unknown(user, writes[-1])
        return found.pop() if found else made

    def _readers(self, user: Node) -> Iterator[Node]:
        """Who reads what ``user`` takes: itself, but for tuples, closures and Depends, whose users do."""

        def takers(node: Node) -> list[Node]:
            return [taker for taker, i in node.use_sites() if not orders_only(taker, i)] if passes(node) else []

        def passes(node: Node) -> bool:
            return node not in self.order and (node.op.name in PASSING or node.op.name in BINDING)

        return (node for node in walk([user], takers) if not passes(node))

    def _at(self, reader: Node, writes: Sequence[Node], made: int) -> int:
        if reader.op is RETURN:
            return len(writes)
        if (at := self.order.get(reader)) is not None:
            return sum(self._place(write) < at for write in writes)
        waits = self.behind.get(reader, 0)
        done = max((k + 1 for k, write in enumerate(writes) if waits & self.bits[write]), default=0)
        if made <= done < len(writes) and reader not in self.network:
            following = writes[done]
            if reader not in self.ahead or self.ahead[reader] > self._place(following):
                raise self._unknown(reader, following)
        return done

    def _unknown(self, reader: Node, write: Node) -> PassError:
        return PassError(
            f"graph '{self.graph.name}': {site(write)} writes a tensor in place that {site(reader)} reads, and nothing "
            "in the graph says which comes first: assign the result of the operation (g = g * factor) and use that"
        )


def _refuse_read_by_callers(main: Graph, written: set[Input]) -> None:
    """A function's result of its own does not reach a caller, who may thus not read the tensor afterwards."""
    handed = [
        (formal, where, call)
        for call in main.all_nodes()
        if written and call.op is CALL
        for target in targets(call) or ()
        for formal, actual in zip(target.function.inputs, target.arguments, strict=False)
        if (where := place(actual)) is not None
    ]
    while more := {where for formal, where, _ in handed if formal in written and isinstance(where, Input)} - written:
        written |= more
    for where, call in {(where, call): None for formal, where, call in handed if formal in written}:
        body = call.home
        for user, _, _, version in _Readings(list_effects(body), {where: [call]}, set(body)).of(where):
            if version and user is not call:
                raise PassError(
                    f"graph '{body.name}': a function that {site(call)} calls writes %{where.name} in place, and "
                    f"{site(user)} reads it afterwards: return the tensor from the function and use that"
                )


def _pure(graph: Graph, write: Node, value: Value) -> Node:
    """The result of an in-place operation, as a value."""
    type_ = write.type
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

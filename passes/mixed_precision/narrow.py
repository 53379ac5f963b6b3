"""Makes the labelled nodes of a graph compute in half precision, and puts a cast wherever a value crosses the border.

A value is cast once to each type that its users take, directly behind the node that makes it: forward and backward
share the cast of a weight, and there is never a cast of a cast. A constant is stored in half precision.

The backward part casts again, behind its gradient, where that keeps less memory: a half value that float32 takes is
kept in half precision (widening it is exact), and what is in memory anyway, an input or a kept float32 value, is not
kept in half precision too. The bits are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.network import BACKWARD, FORWARD
from ...ir.builders.cast import cast
from ...ir.core.attributes import TensorValue, scalar_tensor
from ...ir.core.data import numbers, rounded
from ...ir.core.graph import Constant, Graph, Input, Node, State, Value, rewire
from ...ir.core.predicates import written_operands
from ...ir.core.primitives import VIEWS, Family, facts, named
from ...ir.core.primitives.calls import CODES, names_type
from ...ir.core.types import DType, TensorType, TupleType, Type
from ...ir.core.walk import carried_operands, through, walk
from ..step.again import SCOPE as SCOPE_AGAIN
from ..step.again import mark_again, waiting
from ..step.put_off import put_off
from .lists import FLOAT_OPERANDS, FLOAT_RESULTS
from .widen import is_half

SCOPE = "mixed-precision"
_SEEN = VIEWS - named(Family.TUPLE)
"""Primitives whose result is the memory of their first operand."""
_SEEN_CAST = _SEEN | {"Cast"}


def is_single(type_: Type) -> bool:
    """Whether it is the type of a float32 tensor."""
    return isinstance(type_, TensorType) and type_.dtype is DType.FLOAT32


def narrowable(node: Node) -> list[int]:
    """The operands that a node in half precision takes in half precision: its tensors of float32."""
    kept = FLOAT_OPERANDS.get(node.op.name, ())
    return [i for i, v in enumerate(node.operands) if i not in kept and is_single(v.type)]


def halved(name: str, type_: Type, dtype: DType) -> Type:
    """The result type of a primitive in half precision, of its result type in float32."""
    if isinstance(type_, TupleType):
        kept = FLOAT_RESULTS.get(name, ())
        elements = (t if i in kept else halved("", t, dtype) for i, t in enumerate(type_.elements))
        return replace(type_, elements=tuple(elements))
    if isinstance(type_, TensorType) and type_.dtype is DType.FLOAT32:
        return replace(type_, dtype=dtype)
    return type_


def makes_float(node: Node) -> bool:
    """Whether a node makes float32 of integers or bools: it may as well make half precision."""
    return node.op.name == "Cast" and is_single(node.type) and not is_single(node.operand(0).type)


def overflows(value: Value, dtype: DType) -> bool:
    """Whether a constant of float32, or a Python float, holds a finite number that is infinite in half precision."""
    literal = value.literal
    if not isinstance(literal, (TensorValue, float)) or dtype is DType.BFLOAT16:
        return False
    import numpy as np

    with np.errstate(over="ignore"):
        array = np.asarray(literal) if isinstance(literal, float) else numbers(literal.type, literal.data)
        return bool(np.any(np.isfinite(array) & ~np.isfinite(array.astype(np.float16))))


class Narrowing:
    """The rewriting of one graph. ``half``: the nodes to compute in ``dtype``; ``network``: forward and backward.
    ``rounds``: values are kept rounded for the backward part. ``late``: the backward part also casts again for what
    takes no gradient itself, behind the gradient that this meets; ``rounds`` implies it."""

    def __init__(
        self, graph: Graph, half: Collection[Node], network: Mapping[Node, str], dtype: DType, *,
        rounds: bool = False, late: bool = False,
    ):  # fmt: skip
        self.graph, self.half, self.network, self.dtype, self.rounds = graph, half, network, dtype, rounds
        self._casts: dict[tuple[Value, DType], Value] = {}
        self._again: dict[tuple[Value, DType], Value] = {}
        self._rounded: dict[Node, Node] = {}
        self._kept: dict[Node, bool] = {}
        self._late: Mapping[Node, Node] = put_off(graph, network) if rounds or late else {}
        self._done: set[Node] = set()
        self.casts = 0
        self.rounded = 0
        """How many values are kept rounded for the backward part."""

    @property
    def again(self) -> int:
        """How many of the casts the backward part does again."""
        return len(self._again)

    def run(self) -> None:
        """Linear in nodes and operands. The caller rebuilds the order of effects."""
        for node in list(self.graph):
            family = facts(node.op).family
            if family is Family.TUPLE:
                self._tuple(node)
            elif node.op.name == "Load" or (node.op.name == "Depend" and node in self.network):
                self._follow(node, node.operand(0).type)
            elif node.op.name == "UpdateState":
                continue
            elif node in self.half:
                self._narrow(node)
            else:
                self._keep(node)
            if self.rounds and node in self._late:
                self._wait(node)
            self._done.add(node)
        self.graph.result = self._as(self.graph.result, DType.FLOAT32)

    def _narrow(self, node: Node) -> None:
        self._take(node, narrowable(node), self.dtype)
        if self.rounds:
            self._take_rounded(node)
        for i in written_operands(node):
            _alias(node.operand(i), node)
        self._take(node, [i for i in FLOAT_OPERANDS.get(node.op.name, ()) if i < node.num_operands], DType.FLOAT32)
        for i, value in enumerate(node.operands):
            if names_type(node.op.name, i) and value.literal == CODES[DType.FLOAT32]:
                node.set_operand(i, self.graph.constant(CODES[self.dtype]))
        node.type = halved(node.op.name, node.type, self.dtype)
        if node.attributes.get("is_grad"):
            self._seed(node)

    def _seed(self, node: Node) -> None:
        """A loss that is its own gradient's primitive is multiplied by a seed of one in half precision, as MindSpore
        exports it. The product also rounds what a CPU, which has only a float32 kernel for it, would else hand on."""
        taken = list(node.use_sites())
        with self.graph.inserting_after(node):
            seed = self.graph.constant(scalar_tensor(self.dtype, 1.0))
            product = self.graph.create("Mul", [node, seed], node.type, scope=node.scope, sources=[node])
        product.primal = node.primal
        rewire(taken, product)

    def _keep(self, node: Node) -> None:
        waits = node.op.name == "Depend"
        self._take(node, [i for i in range(node.num_operands) if not (waits and i == 1)], DType.FLOAT32)

    def _take(self, node: Node, operands: Sequence[int], dtype: DType) -> None:
        """Gives a node these operands in that type."""
        gradient = self._gradient(node)
        for i in operands:
            value = node.operand(i)
            if gradient is not None and self._is_kept_otherwise(value, dtype):
                node.set_operand(i, self._cast_again(value, dtype, gradient, node))
            else:
                node.set_operand(i, self._as(value, dtype))

    def _take_rounded(self, node: Node) -> None:
        """Makes a backward node take forward values rounded, each behind its own gradient."""
        if (gradient := self._gradient(node)) is None:
            return
        for i, value in enumerate(node.operands):
            if is_half(value.type) and self._is_forward(through(value, _SEEN_CAST)):
                with self.graph.inserting_before(node):
                    node.set_operand(i, waiting(self.graph, self._stored(value), gradient))

    def _wait(self, node: Node) -> None:
        """Makes a node that is put off wait for its gradient, unless what it takes does so already."""
        takes = [i for i, v in enumerate(node.operands) if isinstance(v, Node) and not orders_only(node, i)]
        gradient = self._gradient(node)
        if gradient is None or any(self._waits(node.operand(i)) for i in takes):
            return
        for i in takes[:1]:
            with self.graph.inserting_before(node):
                node.set_operand(i, waiting(self.graph, node.operand(i), gradient))

    def _waits(self, value: Value) -> bool:
        behind = through(value, ("Cast",))
        return behind in self._late or (isinstance(behind, Node) and behind.op.name == "Depend")

    def _stored(self, value: Value) -> Value:
        """A half value as a CPU must compute it for half of its bytes to be kept: by a Cast of float32. MindSpore casts
        what a kernel without half precision computes in front of each use, and behind Depends, and keeps it in float32
        until then. The Depend keeps the two casts apart, which would be taken out together. What is seen in several
        shapes is kept once."""
        if not self.rounds or not isinstance(value, Node) or value.op.name == "Cast":
            return value
        shapes: list[Node] = []
        while value not in self._rounded and (source := _in_another_shape(value)) is not None:
            shapes.append(value)
            value = source
        stored = self._rounded[value] if value in self._rounded else self._round(value)
        for shape in reversed(shapes):
            with self.graph.inserting_after(shape):
                operands = [stored, *shape.operands[1:]]
                stored = self.graph.create(shape.op, operands, shape.type, scope=shape.scope, sources=[shape])
            self._rounded[shape] = stored
        return stored

    def _round(self, value: Node) -> Node:
        self.casts += 2
        self.rounded += 1
        with self.graph.inserting_after(value):
            wide = cast(self.graph, value, DType.FLOAT32, scope=SCOPE)
            stored = cast(self.graph, waiting(self.graph, wide, value), self.dtype, scope=SCOPE)
        assert isinstance(stored, Node)
        self._rounded[value] = stored
        return stored

    def _gradient(self, node: Node) -> Node | None:
        """A backward value that a backward node takes."""
        if self.network.get(node) != BACKWARD:
            return None
        if node in self._late:
            return self._late[node] if self._late[node] in self._done else None
        return next((v for v in carried_operands(node) if isinstance(v, Node) and self._is_gradient(v)), None)

    def _is_gradient(self, value: Node) -> bool:
        """A cast counts as what was cast. What is put off is none, since it needs no other."""
        known = value if value in self.network else through(value, ("Cast",))
        if not isinstance(value.type, TensorType) or not isinstance(known, Node) or known in self._late:
            return False
        return self.network.get(known) == BACKWARD

    def _is_kept_otherwise(self, value: Value, dtype: DType) -> bool:
        """Whether the backward part can cast a forward value itself, so that its cast need not be kept."""
        narrows = dtype is not DType.FLOAT32
        if not (is_single(value.type) if narrows else is_half(value.type)):
            return False
        source = through(value, _SEEN)
        if isinstance(source, Input):
            return narrows and self.graph.owner is None
        if not isinstance(source, Node) or not self._is_forward(source):
            return False
        return not narrows or self._is_kept(source)

    def _is_forward(self, value: Value) -> bool:
        """Whether the forward part computes a value."""
        source = through(value, _SEEN)
        return isinstance(source, Node) and self.network.get(source) == FORWARD and source.op.name != "Load"

    def _is_kept(self, source: Node) -> bool:
        """Whether the backward part takes a forward value in float32."""
        if source not in self._kept:
            users = walk([source], lambda node: node.users if node is source or node.op.name in _SEEN else ())
            self._kept[source] = any(
                self.network.get(user) == BACKWARD and user not in self.half and user.op.name not in _SEEN
                for user in users
            )
        return self._kept[source]

    def _cast_again(self, value: Value, dtype: DType, gradient: Node, taker: Node) -> Value:
        """A cast in front of the first node of the backward part that takes it, behind the gradient that it takes."""
        if (value, dtype) not in self._again:
            self.casts += 1
            with self.graph.inserting_before(taker):
                scope = SCOPE_AGAIN + (getattr(value, "scope", "") or SCOPE)
                stored = self._stored(value) if is_half(value.type) else value
                again = cast(self.graph, waiting(self.graph, stored, gradient), dtype, scope=scope)
            assert isinstance(again, Node)
            mark_again(again, None)
            self._again[value, dtype] = again
        return self._again[value, dtype]

    def _tuple(self, node: Node) -> None:
        """A tuple is of its users' type, an element of the type that it has in its tuple."""
        if node.op.name == "MakeTuple":
            takers = [(user, i) for user, i in node.use_sites() if not orders_only(user, i)]
            halves = [(user, i) for user, i in takers if user in self.half]
            if halves and len(halves) < len(takers):
                with self.graph.inserting_after(node):
                    own = self.graph.create("MakeTuple", node.operands, node.type, scope=node.scope, sources=[node])
                own.primal = node.primal
                rewire(halves, own)
                self._tuple(own)
                halves = []
            if takers:
                dtype = self.dtype if halves else DType.FLOAT32
                for i, value in enumerate(node.operands):
                    node.set_operand(i, self._as(value, dtype))
            if isinstance(node.type, TupleType) and len(node.type.elements) == node.num_operands:
                elements = tuple(
                    v.type if is_half(v.type) or is_half(old) else old
                    for v, old in zip(node.operands, node.type.elements, strict=True)
                )
                node.type = replace(node.type, elements=elements)
        elif node.op.name == "TupleGetItem":
            source, at = node.operand(0).type, node.operand(1).literal
            if isinstance(source, TupleType) and isinstance(at, int) and -len(source.elements) <= at:
                self._follow(node, source.elements[at])

    def _follow(self, node: Node, type_: Type) -> None:
        if is_half(type_) and isinstance(node.type, TensorType) and isinstance(type_, TensorType):
            node.type = replace(node.type, dtype=type_.dtype)

    def _as(self, value: Value, dtype: DType) -> Value:
        """The value in that type: itself, where it is no float or has it."""
        if not isinstance(value.type, TensorType) or isinstance(value, State) or value.type.dtype is dtype:
            return value
        if not is_single(value.type) and not is_half(value.type):
            return value
        if (value, dtype) not in self._casts:
            self._casts[value, dtype] = self._cast(value, dtype)
        return self._casts[value, dtype]

    def _cast(self, value: Value, dtype: DType) -> Value:
        if isinstance(value, Constant) and isinstance(value.value, TensorValue):
            return self.graph.constant(
                TensorValue(replace(value.value.type, dtype=dtype), rounded(value.value.type, value.value.data, dtype))
            )
        self.casts += 1
        with self.graph.inserting_after(value):
            new = cast(self.graph, value, dtype, scope=getattr(value, "scope", "") or SCOPE)
        assert isinstance(new, Node)
        maker = value if isinstance(value, Node) and value in self.network else self._taker(value)
        new.primal = maker.primal if maker is not None else new.primal
        return new

    def _taker(self, value: Value) -> Node | None:
        """A node of the network that takes an input or a state's value, to whose part its cast belongs."""
        return next((user for user in value.users if user in self.half), None)


def _in_another_shape(value: Node) -> Node | None:
    """What a value is another shape of: a node that computes it. None where it is none, or a cast is behind it."""
    source = value.operand(0) if facts(value.op).family is Family.RESHAPE else None
    return source if isinstance(source, Node) and source.op.name != "Cast" else None


def _alias(written: Value, node: Node) -> None:
    """What a node writes in place has its mark of an alias, and what it was cast from has none."""
    if isinstance(written, Node) and written.op.name == "Cast" and isinstance(node.type, TensorType):
        source = written.operand(0)
        if isinstance(source.type, TensorType) and isinstance(written.type, TensorType):
            written.type = replace(written.type, ref=source.type.ref)
            source.type = replace(source.type, ref="")

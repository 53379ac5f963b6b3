"""Which axes of every value of a graph hold the batch, starting from its inputs.

The rules of :mod:`.rules` lead from what holds the batch to all that shares the axis with it, forward and backward: so
zeros, ones and constants of the batch's extent that meet it hold it too. Linear in the uses of what holds the batch.
What cannot be followed is noted, with the reason, and the rest followed all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property

from ...core.attributes import TensorValue
from ...core.data import to_numpy
from ...core.graph import Constant, Graph, Input, Node, State, Use, Value
from ...core.op import CALL, MAKE_TUPLE
from ...core.primitives import BINDING
from ...core.wording import counted
from ..functions.closures import Closures, Path, element
from .rules import RESULT, Place, carry, rule_of
from .spans import Axes, Span, Stuck, joined

_UNTOUCHED = BINDING | {"UpdateState", "Print", "Return"}


class BatchAxes:
    """``held``: the axes of a value, or of an element of a tuple, that hold the batch; ``constants``: those that a
    constant must have at this use; ``stuck``: the nodes that the batch cannot be followed through, with the reason.
    ``inputs``: by name, the axis that is the batch, of ``size`` elements (-1: any). ``nodes``: those that are
    followed, all without it."""

    def __init__(self, graph: Graph, inputs: Mapping[str, int], size: int, nodes: Collection[Node] | None = None):
        self.graph, self.size, self.nodes = graph, size, nodes
        self.closures = Closures(graph)
        self.held: dict[tuple[Value, Path], Axes] = {}
        self.constants: dict[Use, Axes] = {}
        self.stuck: dict[Node, str] = {}
        self._returned = {f.result: calls for f, calls in self.closures.callers.items() if f.has_result}
        self._work: list[tuple[Value, Path]] = [(v, ()) for v in graph.inputs if v.name in inputs]
        self.held.update(((v, ()), {inputs[v.name]: Span()}) for v, _ in self._work)
        while self._work:
            value, path = self._work.pop()
            self._spread(value, path, self.held[value, path])
        for node in self.holding:
            if isinstance(node, Node) and rule_of(node).startswith("=") and not self._grows(node):
                self.stuck.setdefault(node, "it has nothing that could grow with the batch")

    def _grows(self, node: Node) -> bool:
        """Whether an operand holds the batch where the result does: an axis of 1 may be a batch of 1, or repeated."""
        return any(self.holds(node, i) for i in range(node.num_operands))

    def of(self, node: Node, i: int, path: Path = ()) -> Axes:
        """The axes of an operand that hold the batch."""
        value = node.operand(i)
        return self.constants.get((node, i), {}) if isinstance(value, Constant) else self.held.get((value, path), {})

    def holds(self, node: Node, i: int) -> bool:
        """Whether an operand, or an element of it, holds the batch."""
        return bool(self.of(node, i)) or node.operand(i) in self.holding

    @cached_property
    def holding(self) -> set[Value]:
        """The values that hold the batch, or an element of which does."""
        return {value for value, _ in self.held}

    def _spread(self, value: Value, path: Path, axes: Axes) -> None:
        if isinstance(value, Node):
            self._pass(value, (RESULT, path), axes)
        elif isinstance(value, Input):
            for node, i in self.closures.bound.get(value, ()):
                self._put(node.operand(i), path, axes, (node, i))
        for call in self._returned.get(value, ()):
            self._put(call, path, axes, (call, RESULT))
        for user, i in value.use_sites():
            for formal in self.closures.formals.get((user, i), ()):
                self._put(formal, path, axes, (user, i))
            self._pass(user, (i, path), axes)

    def _pass(self, node: Node, place: Place, axes: Axes) -> None:
        """From one operand, or the result, of a node to the others."""
        if node.op.name in _UNTOUCHED or (self.nodes is not None and node not in self.nodes):
            return
        if node.op is CALL and place[0] == RESULT:
            for function in self.closures.targets[node]:
                self._put(function.result, place[1], axes, (node, RESULT))
        if node.op is CALL:
            if node in self.closures.open:
                self.stuck[node] = "it calls a function that cannot be told from the graph"
            return
        try:
            others = self._packing(node, place, axes)
            others = carry(node, place, axes) if others is None else others
        except Stuck as reason:
            self.stuck.setdefault(node, str(reason))
            return
        for (i, path), more in others.items():
            if more and (i, path) != place:
                self._put(node if i == RESULT else node.operand(i), path, more, (node, i))

    @staticmethod
    def _packing(node: Node, place: Place, axes: Axes) -> Mapping[Place, Axes] | None:
        """Through what packs, unpacks and passes values on."""
        (i, path), name = place, node.op.name
        if name in ("Depend", "Load"):
            return {(RESULT if i == 0 else 0, path): axes} if i < 1 else {}
        if name in MAKE_TUPLE:
            return {(RESULT, (i, *path)): axes} if i != RESULT else {(path[0], path[1:]): axes}
        if name in ("TupleGetItem", "list_getitem"):
            k = element(node)
            if i == RESULT and k is not None:
                return {(0, (k, *path)): axes}
            return {(RESULT, path[1:]): axes} if path and path[0] == k else {}
        return None

    def _put(self, value: Value, path: Path, axes: Axes, use: Use) -> None:
        """Notes that a value holds the batch where ``use`` takes it; the node there is stuck if it cannot."""
        try:
            if isinstance(value, Constant):
                self.constants[use] = joined(self.constants.get(use, {}), self._grown(use[1], value, axes))
                return
            have = self.held.get((value, path), {})
            new = joined(have, axes)
            if new == have:
                return
            if isinstance(value, State) or (isinstance(value, Input) and value in self.graph.inputs):
                kind = "state" if isinstance(value, State) else "input"
                raise Stuck(f"{kind} '{value.name}' ({value.type}) has the batch's extent but does not grow with it")
            self.held[value, path] = new
            self._work.append((value, path))
        except Stuck as reason:
            self.stuck.setdefault(use[0], str(reason))

    def _grown(self, i: int, constant: Constant, axes: Axes) -> Axes:
        value = constant.value
        if not isinstance(value, TensorValue):
            raise Stuck(f"its operand {i} is the constant {str(value)[:40]}")
        array = to_numpy(value.type, value.data)
        for axis, span in axes.items():
            if value.type.shape[axis] != span.extent(self.size):
                raise Stuck(f"its constant operand {i} ({value.type}) does not have the batch's extent on axis {axis}")
            if not (array == array.take([0], axis=axis)).all():
                raise Stuck(
                    f"its constant operand {i} ({value.type}) was made for {counted(self.size, 'sample')}: its "
                    "values differ along the batch"
                )
        return axes

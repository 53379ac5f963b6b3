"""How many uses of each component matter: those of which something is made, in the end an effect or a result.

What only some of these want multiplied cannot be multiplied where it is made. A zero needs no factor, so what is zero
whatever its operands are is no use of them. For example::

    state %w: float32[2]
    graph @step(%x: float32[2]) {
      %y = Neg(%x) : float32[2]                                          // 2
      %used = Exp(%y) : float32[2]                                       // 1
      %unused = Log(%y) : float32[2]                                     // 0
      %zero = ZerosLike(%y) : float32[2]                                 // 1
      %sum = Add(%used, %y) : float32[2]                                 // 1
      %more = Add(%sum, %zero) : float32[2]                              // 1
      return %more
    }
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ...core.graph import Graph, GraphRef, Node, Use, Value
from ...core.op import RETURN
from ...core.predicates import is_effect, is_float_tensor
from ...core.walk import walk
from ..functions.closures import Closures, Path, element
from .components import Zeros, leaves
from .linear_operands import sees_shape_only


@dataclass(frozen=True)
class UseCounts:
    """``counts``: by value and place in it. ``taken``: the elements of a function's result that some call takes.
    ``live``: the nodes that the result needs, effects and order included, in all functions."""

    counts: dict[Value, dict[Path, int]]
    taken: dict[Graph, dict[Path, None]]
    live: set[Node]


def count_uses(main: Graph, closures: Closures, zeros: Zeros, wanted: Collection[Use]) -> UseCounts:
    """Counts until functions need no more than was known when they were counted. ``wanted``: uses that matter in any
    case. Linear in nodes for each level of nested functions."""
    counting = _Counting(main, closures, zeros, wanted)
    while counting.sweep():
        pass
    return UseCounts(counting.counts, counting.taken, counting.live)


def _live(main: Graph) -> set[Node]:
    def needed(node: Node) -> list[Node]:
        values = (v.graph._return if isinstance(v, GraphRef) else v for v in node._operands)
        return [v for v in values if isinstance(v, Node)]

    return set(walk([main._return], needed))


class _Counting:
    def __init__(self, main: Graph, closures: Closures, zeros: Zeros, wanted: Collection[Use]):
        self.main = main
        self.closures = closures
        self.zeros = zeros
        self.wanted = wanted
        self.live = _live(main) | {user for user, _ in wanted}
        self.counts: dict[Value, dict[Path, int]] = {}
        self.taken: dict[Graph, dict[Path, None]] = {}

    def sweep(self) -> bool:
        """Counts all uses, and says whether functions turn out to need more than was known when they were counted."""
        before = self._needed_inputs(), self.taken
        for body in self.main.all_graphs():
            for node in reversed(body):
                self.counts[node] = self._count(node)
            if body is not self.main:
                for formal in body.inputs:
                    self.counts[formal] = self._count(formal)
        self.taken = {}
        for function, calls in self.closures.callers.items():
            for call in calls:
                if call in self.live:
                    news = (path for path, n in self.counts[call].items() if n)
                    self.taken.setdefault(function, {}).update(dict.fromkeys(news))
        return before != (self._needed_inputs(), self.taken)

    def _needed_inputs(self) -> set[Value]:
        formals = (formal for body in self.main.all_graphs() for formal in body.inputs)
        return {formal for formal in formals if any(self.counts.get(formal, {}).values())}

    def _count(self, value: Value) -> dict[Path, int]:
        counts = dict.fromkeys(leaves(value.type), 0)
        if not counts:
            return counts
        for user, i in value.use_sites():
            name = user.op.name
            if user not in self.live or self.zeros.is_zero(user) or sees_shape_only(user, i):
                continue
            if name == "UpdateState" or (name == "Depend" and i == 1):
                continue
            if name == "TupleGetItem" and (k := element(user)) is not None:
                for path, n in self.counts[user].items():
                    if n and (whole := (k, *path)) in counts:
                        counts[whole] += 1
                continue
            for path in counts:
                counts[path] += self._matters(user, i, path)
        return counts

    def _matters(self, user: Node, i: int, path: Path) -> bool:
        """Whether anything is made of what ``user`` makes of an element of its operand."""
        if (user, i) in self.wanted:
            return True
        if user.op.name == "MakeTuple":
            return bool(self.counts[user].get((i, *path)))
        if user.op.name == "Depend":
            return bool(self.counts[user].get(path))
        if user.op is RETURN and user.graph is not None:
            return user.graph is self.main or path in self.taken.get(user.graph, ())
        formals = self.closures.formals.get((user, i))
        if formals is not None and user not in self.closures.open:
            return any(self.counts.get(formal, {}).get(path) for formal in formals)
        return not is_float_tensor(user) or is_effect(user) or bool(self.counts[user].get(()))

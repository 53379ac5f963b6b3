"""Who uses a gradient, and for what: to take it on to the update, to measure it, or to ask whether it is finite.

For example, of the gradient ``%g``::

    state %w: float32[2]
    graph @step(%x: float32[2]) {
      %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
      %y = Mul(%w0, %x) : float32[2] primal {unique_id = "2"}
      %loss = ReduceSum(%y, (), false, false) : float32[] primal {unique_id = "3"}
      %g = Mul(%x, %x) : float32[2] primal {forward_unique_id = "2"}
      %norm = L2Loss(%g) : float32[]                                     // measures it
      %inside = Cast(%g, 43) : float32[2]                                // asks: only %flag takes it
      %flag = IsFinite(%inside) : bool[2]
      %scaled = Mul(%g, %norm) : float32[2]                              // takes it on
      %new = AssignSub(%w, %scaled, umonad) : float32[2]
      %t = UpdateState(umonad, %new, %flag)
      %result = Depend(%loss, %t)
      return %result
    }
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ...core.graph import GraphRef, Input, Node, Use, Value
from ...core.op import CALL
from ...core.predicates import is_effect, written_operands
from ...core.primitives import Family, named
from ..effects.state_access import states_behind
from ..effects.tokens import orders_only
from .gradient_sources import JUDGING
from .network import BACKWARD, FORWARD

FINITE, SIZE = "finite", "size"
"""Questions that users ask of a gradient without taking it on."""

_FINITE = named(Family.FINITE, Family.OVERFLOWED, Family.STATUS, Family.LOGICAL)


class GradientUsers:
    """``parts``: forward and backward nodes; ``bound``: see :func:`.calls.bindings`. Each node is judged once."""

    def __init__(self, parts: Mapping[Node, str], bound: Mapping[Input, Sequence[Value]]):
        self._parts = parts
        self._bound = bound
        self._asking: dict[Node, str | None] = {}

    def of(self, value: Value) -> tuple[list[Use], list[Use]]:
        """Who takes a gradient on, and who measures its size: its users on the update side that do not merely wait for
        it or ask whether it is finite."""
        takers: list[Use] = []
        measures: list[Use] = []
        for user, i in value.use_sites():
            if self._parts.get(user) in (FORWARD, BACKWARD) or user.op.name == "ZerosLike" or orders_only(user, i):
                continue
            asked = self._asked(user, i)
            if asked != FINITE:
                (takers if asked is None else measures).append((user, i))
        return takers, measures

    def updated_by(self, node: Node, i: int) -> set[str]:
        """The states that updates write from operand ``i`` of ``node``, also in a function that it is passed to."""
        names: set[str] = set()
        stack: list[Use] = [(node, i)]
        seen: set[Node] = set()
        while stack:
            here, at = stack.pop()
            if here in seen or (here.op.name != "MakeTuple" and orders_only(here, at)):
                continue
            seen.add(here)
            function = here.operand(0) if here.num_operands else None
            if isinstance(function, GraphRef):  # the function of a call or a Partial
                stack.extend(function.graph.inputs[at - 1].use_sites())
            elif is_effect(here):
                for k in written_operands(here):
                    names.update(state.name for state in states_behind(here.operand(k), self._bound))
            else:
                stack.extend(here.use_sites())
        return names

    def _asked(self, user: Node, i: int) -> str | None:
        """The question of one use, :data:`FINITE` or :data:`SIZE`; None where it takes the gradient on."""
        function = user.operand(0) if user.op is CALL or user.op.name == "Partial" else None
        if not isinstance(function, GraphRef):
            return self._asks(user)
        formal = function.graph.inputs[i - 1]
        inside = {self._asks(u) for u, at in formal.use_sites() if not orders_only(u, at)}
        return _together(inside)

    def _asks(self, node: Node) -> str | None:
        """The question that a user asks of a gradient, if all that it computes ends in a question."""
        stack: list[tuple[Node, bool]] = [(node, False)]
        while stack:
            here, seen = stack.pop()
            if here in self._asking:
                continue
            if here.op.name in JUDGING:
                self._asking[here] = FINITE if here.op.name in _FINITE else SIZE
                continue
            if is_effect(here) or here.graph is None or here.op.name in ("Partial", "Switch"):
                self._asking[here] = None
                continue
            users = [u for u, at in here.use_sites() if not orders_only(u, at)]
            if any(here.graph.is_return(u) for u in users):
                self._asking[here] = None
            elif seen:
                self._asking[here] = _together({self._asking.get(u) for u in users})
            else:
                stack.append((here, True))
                stack.extend((u, False) for u in users if u not in self._asking)
        return self._asking[node]


def _together(answers: Iterable[str | None]) -> str | None:
    """The question of several uses together: the size if any asks for it, nothing if any takes the gradient on."""
    asked = set(answers)
    if not asked or None in asked:
        return None
    return SIZE if SIZE in asked else FINITE

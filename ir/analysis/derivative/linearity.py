"""Where to multiply the backward part of a training graph so that every gradient comes out multiplied by the same
factor: at the *seeds*, as near to the loss as the graph shows to be right.

Exported graphs have no explicit derivative of the loss (it was 1, and folded). So the demand for a multiplied value
is walked from the gradients up to where they begin, one primitive at a time:

* a value is multiplied if all its uses are to be; what only some uses want is multiplied on the way to those;
* a demand passes a primitive by its rule (:mod:`.linear_operands`): all terms of a sum are demanded, one factor of a
  product (the one that carries the derivative, see :mod:`.derivative`);
* where nothing above carries the derivative any more, or it cannot be seen, the value is a seed;
* what carries the derivative into a primitive that is not linear in it is an error: gradients behind it would not be
  those of a multiplied loss.

A function has no factor to multiply with; where it would need one, the results of its calls are multiplied instead.

:mod:`.derivative` chooses operands, :mod:`.demand` walks. For example, with the gradient ``%g`` wanted multiplied::

    state %w: float32[2]
    graph @step(%x: float32[2]) {
      %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
      %y = Mul(%w0, %x) : float32[2] primal {unique_id = "2"}
      %z = Exp(%y) : float32[2] primal {unique_id = "4"}
      %loss = ReduceSum(%z, (), false, false) : float32[] primal {unique_id = "3"}
      %ones = Fill(43, (2,), float32[]<1.0>) : float32[2] primal {forward_unique_id = "3"}   // the seed
      %dz = Mul(%ones, %z) : float32[2] primal {forward_unique_id = "4"}                     // passed, by its operand 0
      %g = Mul(%dz, %x) : float32[2] primal {forward_unique_id = "2"}                        // passed, by its operand 0
      %new = AssignSub(%w, %g, umonad) : float32[2]
      %t = UpdateState(umonad, %new)
      %result = Depend(%loss, %t)
      return %result
    }
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...core.errors import AnatomyError
from ...core.graph import Graph, Node, Use, Value
from ...core.names import BACKWARD_ID
from ...core.predicates import is_float_tensor
from ...core.primitives import Family, named
from ...core.walk import carried_operands, walk
from ..functions.closures import Closures
from .components import Zeros
from .demand import Demand
from .derivative import BACKWARD, Derivative, Terms

_SUMS = named(Family.SUM, Family.DIFFERENCE, Family.CAST, Family.COPY)


@dataclass(frozen=True)
class LinearCall:
    """The elements ``items`` of a call's result are multiplied by s if the ``operands`` all are."""

    operands: frozenset[int]
    items: frozenset[int]


@dataclass
class Seed:
    """``uses``, as (user, operand index), are to take ``value`` multiplied by the factor."""

    value: Value
    uses: list[Use] = field(default_factory=list)


def find_seeds(
    graph: Graph,
    parts: Mapping[Node, str],
    wanted: Sequence[Use],
    *,
    assume_linear: Collection[str] = (),
) -> list[Seed]:
    """The seeds whose multiplication multiplies exactly the ``wanted`` uses, given as (user, operand index).

    ``parts`` are the forward and backward nodes (:func:`.training.network_parts`). Primitives in ``assume_linear`` are
    taken as linear in the first operand that carries the derivative. :class:`AnatomyError` where the backward part is
    not linear or cannot be followed. The graph is not changed. Linear in nodes for each level of nested functions.
    """
    demand = demand_of(graph, parts, wanted, assume_linear=assume_linear)
    return [Seed(value, uses) for value, uses in demand.places().items()]


def late_seeds(graph: Graph, parts: Mapping[Node, str], seeds: Sequence[Seed], loss: Iterable[Value]) -> list[Seed]:
    """The seeds to which the derivative has come a way without the factor: the cell took a gradient and went on
    computing with it (an implicit gradient), so that it is forward, and the ``loss`` does not depend on it (as on that
    of a gradient penalty). Linear in nodes."""
    needed = set(walk(loss, carried_operands))
    derived: set[Value] = set()
    for node in graph:
        if parts.get(node) == BACKWARD or node in needed:
            continue
        tensors = [v for v in carried_operands(node) if is_float_tensor(v)]
        sums = node.op.name in _SUMS and bool(tensors) and derived.issuperset(tensors)
        if sums or BACKWARD_ID in node.primal:
            derived.add(node)
    return [
        seed
        for seed in seeds
        if seed.value in derived or any(v in derived for user, _ in seed.uses for v in user.operands)
    ]


def demand_of(
    graph: Graph, parts: Mapping[Node, str], wanted: Sequence[Use], *, assume_linear: Collection[str] = ()
) -> Demand:
    """All that must be multiplied so that the ``wanted`` uses are: see :func:`find_seeds`."""
    derivative = Derivative(graph, parts, Closures(graph))
    return Demand(derivative, Zeros(graph), Terms(derivative, frozenset(assume_linear)), wanted)


def linear_calls(graph: Graph, parts: Mapping[Node, str], calls: Iterable[Node]) -> dict[Node, LinearCall]:
    """Calls of functions that a loop made: the derivative comes back through a loop by one. Those that are linear, each
    asked of by itself."""
    found = {}
    for call in calls:
        if call.graph is not graph:
            continue
        items = [user for user in call.users if user.op.name == "TupleGetItem" and is_float_tensor(user)]
        wanted = [use for item in items for use in item.use_sites()]
        try:
            demand = demand_of(graph, parts, wanted)
        except AnatomyError:
            continue
        behind = set(walk([call], lambda v: [u for u in v.operands if isinstance(u, Node)]))
        if any(user not in behind for uses in demand.places().values() for user, _ in uses):
            continue  # something that does not go through the call would have to be multiplied too
        operands = frozenset(i for user, i, _ in demand.uses if user is call)
        indices = frozenset(path[0] for value, path in demand.multiplied if value is call and path)
        if operands and indices:
            found[call] = LinearCall(operands, indices)
    return found

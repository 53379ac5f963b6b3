"""Which gradient updates which weight, derived from terms alone.

What an optimizer's primitive leaves in its operands is a term of the operands that it takes. The table of primitives
says which of them is the gradient, and the written operand says whose it is. Part of what is taken there may be no
gradient: a weight decay is added to it. Over the reals that is a sum of products, and those that hold something that
left the backward part are the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from ..core.graph import Node, tensor_type
from ..core.predicates import written_operands
from ..core.primitives import facts
from ..core.types import TensorType
from .reals import Reals
from .terms import Terms


@dataclass(frozen=True, slots=True)
class Update:
    """The update of one weight by a primitive of ``node``: ``taken`` is the term of its gradient operand, the sum of
    ``gradient`` and ``rest`` (None: nothing is added to the gradient). ``operands`` are all that it takes."""

    weight: str
    node: Node
    operands: tuple[int, ...]
    taken: int
    gradient: int
    rest: int | None

    @property
    def type(self) -> TensorType:
        """Of the gradient operand."""
        at = facts(self.node.op).gradient
        assert at is not None
        return tensor_type(self.node.operand(at))


class Moved:
    """The terms that are computed from gradients as they leave the backward part."""

    def __init__(self, terms: Terms, seams: Collection[int]):
        self.terms = terms
        self.seams = frozenset(seams)
        self._is = bytearray()

    def __contains__(self, t: int) -> bool:
        arguments, known = self.terms.arguments, self._is
        for new in range(len(known), t + 1):
            known.append(new in self.seams or any(known[a] for a in arguments[new]))
        return bool(known[t])


def updates(
    terms: Terms, states: Iterable[int], weights: Collection[str], moved: Moved, reals: Reals
) -> dict[str, Update]:
    """The update of each of the weights in what a step leaves in its states, by name. A weight that several primitives
    update one after the other is left out, and one that no optimizer's primitive updates."""
    found: dict[str, Update] = {}
    several: set[str] = set()
    for t in terms.below(states):
        head, node = terms.heads[t], terms.nodes[t]
        if head[0] != "written" or head[2] is None or node is None or head[-2] != 0 or t not in moved:
            continue
        at, weight = facts(node.op).gradient, _target(terms, t, node)
        if at is None or weight not in weights:
            continue
        assert weight is not None
        taken = terms.arguments[t][at]
        polynomial = reals.polynomial(taken)
        gradient = {m: c for m, c in polynomial.items() if any(a in moved for a, _ in m)}
        rest = {m: c for m, c in polynomial.items() if m not in gradient}
        if not gradient:
            continue
        if weight in found:
            several.add(weight)
        shape = terms.shapes[taken]
        split = (reals.term(gradient, shape), reals.term(rest, shape)) if rest else (taken, None)
        found[weight] = Update(weight, node, terms.arguments[t], taken, *split)
    return {name: update for name, update in found.items() if name not in several}


def rewritten(
    terms: Terms, roots: Iterable[int], change: Callable[[Node, str, tuple[int, ...]], tuple[int, ...]]
) -> Mapping[int, int]:
    """The terms below the roots, with other operands for the primitives of updates: ``change`` gets a node, the weight
    that it writes, and its operands."""
    new: dict[int, int] = {}
    for t in terms.below(roots):
        head, node = terms.heads[t], terms.nodes[t]
        arguments = tuple(new[a] for a in terms.arguments[t])
        if node is not None and head[0] in ("written", "op") and facts(node.op).gradient is not None:
            weight = _target(terms, t, node)
            if weight is not None:
                arguments = change(node, weight, arguments)
        new[t] = t if arguments == terms.arguments[t] else terms.make(head, arguments, terms.shapes[t], node)
    return new


def _target(terms: Terms, t: int, node: Node) -> str | None:
    """The state that the primitive of a term writes first, whatever it held before."""
    writes = written_operands(node)
    if not writes:
        return None
    t = terms.arguments[t][writes[0]]
    while terms.heads[t][0] in ("written", "ite"):
        arguments, before = terms.arguments[t], terms.nodes[t]
        if terms.heads[t][0] == "ite":
            t = arguments[2]
        elif before is None or not (into := written_operands(before)):
            return None
        else:
            t = arguments[into[0]]
    return str(terms.heads[t][1]) if terms.heads[t][0] == "state" else None

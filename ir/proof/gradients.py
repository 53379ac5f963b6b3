"""Which gradient updates which weight, derived from terms alone.

What an optimizer's primitive leaves in its operands is a term of the operands that it takes. The table of primitives
says which of them is the gradient, and the written operand says whose it is. Part of what is taken there may be no
gradient: a weight decay is added to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from ..core.graph import Node, tensor_type
from ..core.primitives import PRIMITIVES, Facts, Family, facts
from ..core.types import TensorType
from ..symbolic.terms import Terms, written_state

_SUMS = (Family.SUM, Family.DIFFERENCE)
_PASSING = (Family.CAST, Family.RESHAPE, Family.COPY)
_PRODUCTS = (Family.PRODUCT, Family.QUOTIENT)


@dataclass(frozen=True, slots=True)
class Update:
    """The update of one weight by the primitive of ``node``: it takes the sum of gradients (``seams``, as they leave
    the backward part) and of ``rest``, if there is one, of type ``type``. ``behind``: all gradients that this is
    computed from.

    Where many primitives update the weight, they take one value of the backward part: it is the gradient, and leaves
    that part at ``at``. ``node`` is then the last of them if that is an optimizer's."""

    weight: str
    node: Node | None
    seams: tuple[int, ...]
    rest: bool
    type: TensorType
    behind: frozenset[int]
    at: str = ""

    @property
    def facts(self) -> Facts:
        return Facts() if self.node is None else facts(self.node.op)


class Moved:
    """The terms that are computed from gradients behind the backward part."""

    def __init__(self, terms: Terms):
        self.terms = terms
        self._is = bytearray()

    def __contains__(self, t: int) -> bool:
        heads, arguments, known = self.terms.heads, self.terms.arguments, self._is
        for new in range(len(known), t + 1):
            known.append(heads[new][0] == "mean" or any(known[a] for a in arguments[new]))
        return bool(known[t])

    def leaving(self, root: int) -> set[int]:
        """The gradients that a term is computed from."""
        found, seen, stack = set[int](), {root}, [root]
        while stack:
            t = stack.pop()
            if self.terms.heads[t][0] == "mean":
                found.add(self.terms.arguments[t][0])
                continue
            new = [a for a in self.terms.arguments[t] if a not in seen and a in self]
            seen.update(new)
            stack += new
        return found

    def summands(self, root: int) -> Iterator[tuple[int, bool]]:
        """What a term is the sum of, and what that is the product of, each with whether it is a factor."""
        stack = [(root, False)]
        while stack:
            t, factor = stack.pop()
            kind, name, arguments = self.terms.heads[t][0], self.terms.name(t), self.terms.arguments[t]
            family = PRIMITIVES[name].family if kind == "op" and name in PRIMITIVES else None
            if t not in self or kind not in ("op", "tuple"):
                yield t, factor
            elif kind == "tuple" or name in ("AddN", "AccumulateNV2") or family in _SUMS:
                stack += [(a, factor) for a in arguments[:2] if family in _SUMS] or [(a, factor) for a in arguments]
            elif family in _PASSING or name == "Neg":
                stack.append((arguments[0], factor))
            elif family in _PRODUCTS:
                stack += [(a, True) for a in arguments]
            else:
                yield t, factor


def updates(terms: Terms, states: Mapping[str, int], weights: Collection[str], moved: Moved) -> dict[str, Update]:
    """The update of each of the weights in what a step leaves in its states, by name. A weight that several primitives
    update one after the other is left out, and one that no optimizer's primitive updates."""
    found: dict[str, Update] = {}
    several: set[str] = set()
    for t in terms.below(states.values()):
        head, node = terms.heads[t], terms.nodes[t]
        if head[0] != "written" or node is None or head[-2] != 0 or t not in moved:
            continue
        at, weight = facts(node.op).gradient, written_state(terms, t, node)
        if at is None or weight not in weights or _updating(terms, taken := terms.arguments[t][at], "op"):
            continue
        summands = list(moved.summands(taken))
        seams = tuple(terms.arguments[s][0] for s, _ in summands if terms.heads[s][0] == "mean")
        centred = any(terms.name(s) == "ReduceMean" for s, _ in summands)
        if taken not in moved or centred:
            continue
        assert weight is not None
        if weight in found:
            several.add(weight)
        rest = any(s not in moved and not factor for s, factor in summands)
        behind = frozenset(moved.leaving(taken))
        found[weight] = Update(weight, node, seams, rest, tensor_type(node.operand(at)), behind)
    return {name: update for name, update in found.items() if name not in several}


def by_many(
    terms: Terms, states: Mapping[str, int], weights: Collection[str], known: Mapping[str, Update], moved: Moved,
    seams: Mapping[int, Node],
) -> dict[str, Update]:  # fmt: skip
    """The updates of weights that no optimizer's primitive updates from a gradient of the backward part, or one that
    takes what another primitive of the optimizer made of it (LARS)."""
    taken = {s for update in known.values() for s in update.behind}
    found: dict[str, Update] = {}
    for name in weights:
        own = moved.leaving(states[name])
        if name in known or len(own) != 1 or own & taken:
            continue
        (gradient,) = own
        node = seams[gradient]
        if isinstance(node.type, TensorType):
            last = _updating(terms, t := states[name], "written")
            last = last if last is not None and written_state(terms, t, last) == name else None
            found[name] = Update(name, last, (gradient,), False, node.type, frozenset(own), node.name)
    return found


def _updating(terms: Terms, t: int, kind: str) -> Node | None:
    """The primitive of an optimizer that made a term of this kind."""
    node = terms.nodes[t]
    return node if terms.heads[t][0] == kind and node is not None and facts(node.op).gradient is not None else None

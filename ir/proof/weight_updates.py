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
from ..core.primitives import Facts, facts
from ..core.types import TensorType
from ..symbolic.terms import Terms, written_state
from .polynomial import Polynomial
from .rank_sums import Ranks
from .reals import Reals

MEANS = ("mean", "all")
"""Kinds of terms that stand for the mean of a gradient, over micro-batches and over ranks too."""


@dataclass(frozen=True, slots=True)
class Update:
    """The update of one weight by a primitive of ``node``: ``taken`` is the term of its gradient operand, the sum of
    ``gradient`` and ``rest`` (None: nothing is added to the gradient), of type ``type``. ``operands`` are all that it
    takes.

    Where many primitives update the weight, they take one value of the backward part: it is the gradient, and leaves
    that part at ``at``. ``node`` is then the last of them if that is an optimizer's."""

    weight: str
    node: Node | None
    operands: tuple[int, ...]
    taken: int
    gradient: int
    rest: int | None
    type: TensorType
    at: str = ""

    @property
    def facts(self) -> Facts:
        return Facts() if self.node is None else facts(self.node.op)


def standing(seams: Iterable[int], ranks: Ranks | None) -> dict[int, int]:
    """What stands for gradients, and for which: they themselves, and their means over ranks. The mean of what is
    rearranged is rearranged, and has the gradient no more in it."""
    seams = list(seams)
    return {t: t for t in seams} | ({ranks.mean(t): t for t in seams} if ranks is not None else {})


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
        if head[0] != "written" or node is None or head[-2] != 0 or t not in moved:
            continue
        at, weight = facts(node.op).gradient, written_state(terms, t, node)
        if at is None or weight not in weights or _is_made(terms, terms.arguments[t][at]):
            continue
        assert weight is not None
        taken = terms.arguments[t][at]
        polynomial = reals.polynomial(taken)
        gradient = {m: c for m, c in polynomial.items() if any(a in moved for a, _ in m)}
        rest = {m: c for m, c in polynomial.items() if m not in gradient}
        if not gradient or _is_centred(terms, gradient):
            continue
        if weight in found:
            several.add(weight)
        shape = terms.shapes[taken]
        own = taken if not rest else reals.term(gradient, shape)
        added = reals.term(rest, shape) if rest else None
        type_ = tensor_type(node.operand(at))
        found[weight] = Update(weight, node, terms.arguments[t], taken, own, added, type_)
    return {name: update for name, update in found.items() if name not in several}


def by_many(
    terms: Terms, states: Mapping[str, int], weights: Iterable[str], known: Mapping[str, Update],
    seams: Mapping[int, Node],
) -> dict[str, Update]:  # fmt: skip
    """The updates of weights that no optimizer's primitive updates from a gradient of the backward part, or one that
    takes what another primitive of the optimizer made of it (LARS). ``seams``: the nodes where gradients leave, by what
    stands for each."""
    taken = {s for update in known.values() for s in _leaving(terms, update.taken, seams)}
    found: dict[str, Update] = {}
    for name in weights:
        own = _leaving(terms, states[name], seams)
        if name in known or len(own) != 1 or own & taken:
            continue
        (gradient,) = own
        last, operands = _last(terms, states[name], name)
        node = seams[gradient if gradient in seams else terms.arguments[gradient][0]]
        if isinstance(node.type, TensorType):
            found[name] = Update(name, last, operands, gradient, gradient, None, node.type, node.name)
    return found


def _last(terms: Terms, t: int, weight: str) -> tuple[Node | None, tuple[int, ...]]:
    """The primitive of an optimizer that leaves a term in the weight, and what it takes."""
    node = terms.nodes[t]
    writes = terms.heads[t][0] == "written" and node is not None and facts(node.op).gradient is not None
    return (node, terms.arguments[t]) if writes and node and written_state(terms, t, node) == weight else (None, ())


def _leaving(terms: Terms, root: int, seams: Collection[int]) -> set[int]:
    """The gradients, or their means, that a term is computed from behind the backward part."""
    found, seen, stack = set[int](), {root}, [root]
    while stack:
        t = stack.pop()
        if t in seams or (terms.heads[t][0] in MEANS and terms.arguments[t][0] in seams):
            found.add(t)
            continue
        new = [a for a in terms.arguments[t] if a not in seen]
        seen.update(new)
        stack += new
    return found


def rewritten(
    terms: Terms, roots: Iterable[int], replaced: Mapping[int, int],
    change: Callable[[Node, str, tuple[int, ...]], tuple[int, ...]],
) -> Mapping[int, int]:  # fmt: skip
    """The terms below the roots, with other terms in the place of those that are ``replaced``, and other operands for
    the primitives of updates: ``change`` gets a node, the weight that it writes, and its operands."""
    new: dict[int, int] = dict(replaced)
    for t in terms.below(roots):
        if t in replaced:
            continue
        head, node = terms.heads[t], terms.nodes[t]
        arguments = tuple(new[a] for a in terms.arguments[t])
        if node is not None and head[0] in ("written", "op") and facts(node.op).gradient is not None:
            weight = written_state(terms, t, node)
            if weight is not None:
                arguments = change(node, weight, arguments)
        new[t] = t if arguments == terms.arguments[t] else terms.make(head, arguments, terms.shapes[t], node)
    return new


def _is_made(terms: Terms, t: int) -> bool:
    """Whether another primitive of the optimizer made a term of a gradient."""
    node = terms.nodes[t]
    return terms.heads[t][0] == "op" and node is not None and facts(node.op).gradient is not None


def _is_centred(terms: Terms, gradient: Polynomial) -> bool:
    """Whether a gradient has lost its mean, which is the last that happens to it before the update."""
    return len(gradient) > 1 and any(terms.name(a) == "ReduceMean" for m in gradient for a, _ in m)

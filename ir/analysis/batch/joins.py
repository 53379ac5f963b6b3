"""How the loss joins its samples: what makes N micro-batches one big batch.

A loss that is a sum over the samples adds up, one that is divided by a number that all batches share is a mean, and one
that is divided by what the batch counts weighs by that count (:mod:`.kinds`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...core.graph import Constant, Node, State, Value
from ...core.names import BACKWARD_ID, FORWARD_ID
from ...core.op import CALL
from ...core.predicates import is_pure, written_operands
from ...core.primitives import Family, named
from ...core.sites import site
from ...core.walk import carried_operands, walk
from ..effects.tokens import orders_only
from ..training.anatomy import TrainingAnatomy
from ..training.cells import Cells, cell_of, within
from ..training.network import BACKWARD, FORWARD
from .axes import BatchAxes
from .kinds import CONSTANT, DIVIDES, MEAN, MULTIPLIES, SUM, Divisor, Fact, Kind, Kinds, mixed, number_of, numbers
from .rules import shape_of


class Beside(NamedTuple):
    """What stands beside a count: a loss is divided by ``max(count + offset, least)``."""

    offset: float = 0.0
    least: float = 0.0

    def divisor(self, count: float) -> float:
        return max(count + self.offset, self.least)


NOTHING = Beside()


@dataclass(frozen=True)
class Joining:
    """``sizes``: of which micro-batches a cycle is the step on the joined batch: ``any sizes``, ``equal sizes only``,
    ``never``. ``reduction``: how gradients join for that (where never: ``mean``), by ``divisor``. ``why``: where never,
    and the ``node``. ``assumed``: what the file does not say. ``beside``: the
    numbers beside the count of the divisor."""

    sizes: str
    reduction: str
    divisor: Divisor | None = None
    node: Value | None = None
    why: str = ""
    assumed: tuple[str, ...] = ()
    beside: Beside = NOTHING

    @property
    def weight(self) -> str | None:
        """The name of the value whose sum, or number of elements, weighs a micro-batch."""
        if self.divisor is None or self.divisor.base is None:
            return None
        return ELEMENTS + self.divisor.base.name if self.divisor.rows else self.divisor.base.name

    @property
    def how(self) -> str:
        return {
            "sum": "the loss adds its samples up",
            "mean": "the loss is a mean over samples",
            "weighted": f"the loss is divided by {self.divisor}",
        }[self.reduction]

    def __str__(self) -> str:
        return f"not the big batch: {self.why}" if self.sizes == NEVER else f"the big batch, {self.sizes}: {self.how}"


ELEMENTS = "elements:"
"""What stands before the name of a value whose elements are counted, and not summed."""
ANY, EQUAL, NEVER = "any sizes", "equal sizes only", "never"
_SAME = named(Family.COPY, Family.CAST, Family.RESHAPE)
_NEGLIGIBLE = 1e-6
"""What is added to a count of one or more moves a gradient by this share at most: less than float32 sums differ by."""


def joining(found: TrainingAnatomy) -> Joining:
    """How the loss of a training graph joins its samples. Nothing changes."""
    return _Joins(found).verdict()


class _Joins:
    def __init__(self, found: TrainingAnatomy):
        self.found, self.graph = found, found.graph
        shapes = {v.name: shape_of(v.type) for v in self.graph.inputs}
        size = next((shape[0] for shape in shapes.values() if shape), 0)
        followed = self._followed()
        axes = BatchAxes(self.graph, {n: 0 for n, s in shapes.items() if s and s[0] == size}, size, followed)
        trained = {info.name for info in found.weights if info.gradient}
        network = (n for n in self.graph.all_nodes() if found.part(n) in (FORWARD, BACKWARD))
        moved = {v.name for n in network for i in written_operands(n) if isinstance(v := n.operand(i), State)}
        self.derived = {cell_of(n) for n in self.graph if FORWARD_ID in n.primal and found.part(n) == FORWARD}
        self.kinds = Kinds(axes, [n for part in self.graph.all_graphs() for n in part if n in followed], trained, moved)
        self.assumed = self.kinds.assumed
        for name, shape in shapes.items():
            if shape and shape[0] != size:
                self.assumed[f"input '{name}', which is not {size} long, is the same for all micro-batches"] = None
        for (node, i), (_, what) in self.kinds.doubts.items():
            reads = "is a plain number" if what.startswith("multiplies") else "is the number of samples"
            self.assumed[f"the constant {dict(numbers(node))[i]:g} of {site(node)}, which {what}, {reads}"] = None

    def _followed(self) -> set[Node]:
        """The forward nodes, and what the training cell computes besides of them and of inputs: a count by which it
        divides gradients, say."""
        parts = self.found.parts
        followed = {n for n in self.graph.all_nodes() if parts.get(n) == FORWARD}
        for node in self.graph:
            nodes = [v for v in carried_operands(node) if isinstance(v, Node)]
            own = parts.get(node) not in (FORWARD, BACKWARD) and node.op is not CALL
            if own and is_pure(node) and followed.issuperset(nodes):
                followed.add(node)
        return followed

    def verdict(self) -> Joining:
        roots = self._roots()
        if not roots:
            return self._never(None, "which value is differentiated cannot be told")
        by: set[Divisor] = set()
        for f in [*map(self.kinds.fact, roots), *self._own_backward(roots)]:
            if f.kind is Kind.MIXED:
                return self._never(f.node, f"{site(f.node)}: {f.why}" if isinstance(f.node, Node) else f.why)
            if f.kind is Kind.ROWS:
                by.add(SUM)  # the derivative of all its elements
            if f.kind is Kind.FIXED and f.trained:
                by.add(CONSTANT)
            by |= f.by
        terms = by - {CONSTANT}
        if not terms:
            return self._made(ANY, "mean", None)
        if len(terms) > 1:
            told = ", ".join(sorted(map(str, terms)))
            return self._never(roots[0], f"terms of the loss are divided by different numbers: {told}")
        (divisor,) = terms
        handed = self._handed()
        if len(handed) > 1 or (handed and (divisor.kind != "sum" or CONSTANT in by)):
            return self._never(roots[0], "gradients are multiplied or divided by what the batch counts, one by one")
        if handed:
            (divisor,) = handed
        if divisor.kind == "sum" and CONSTANT in by:
            why = "the loss adds its samples up, and a term beside them would count once a micro-batch"
            return self._never(roots[0], why)
        if divisor.kind != "count":
            return self._made(ANY if divisor.kind == "sum" else EQUAL, divisor.kind, None)
        beside = self._unlike(divisor)
        if isinstance(beside, str):
            return self._never(divisor.value, beside)
        if any(beside) and CONSTANT in by:
            return self._never(divisor.value, "a term beside the loss would not be divided by its count alone")
        return replace(self._made(ANY, "weighted", divisor), beside=beside)

    def _made(self, sizes: str, reduction: str, divisor: Divisor | None) -> Joining:
        return Joining(sizes, reduction, divisor, None, "", tuple(self.assumed))

    def _never(self, node: Value | None, why: str) -> Joining:
        return Joining(NEVER, "mean", None, node, why, tuple(self.assumed))

    def _roots(self) -> list[Value]:
        """What is differentiated: the loss, and forward values that the backward part has derivatives of and that the
        loss does not depend on."""
        differentiated = {n.primal[BACKWARD_ID] for n in self.graph.all_nodes() if BACKWARD_ID in n.primal}
        loss = self.found.loss
        roots: list[Value] = [loss] if loss is not None and not isinstance(loss, State) else []
        below = set(walk(roots, carried_operands))
        others = [
            n for n in self.graph
            if n not in below and self.found.part(n) == FORWARD and n.primal.get(FORWARD_ID) in differentiated
            and self.kinds.fact(n).trained
        ]  # fmt: skip
        taken = set(walk([v for n in others for v in carried_operands(n)], carried_operands))
        return roots + [n for n in others if n not in taken]

    def _own_backward(self, roots: list[Value]) -> Iterator[Fact]:
        """Where samples meet in a cell with a ``bprop`` of its own: no node of it has a number by which MindSpore would
        derive it, and its derivative is what the ``bprop`` says."""
        for node in walk(roots, carried_operands):
            if not isinstance(node, Node) or node.graph is not self.graph or self.found.part(node) != FORWARD:
                continue
            f, made_here = self.kinds.fact(node), node.origin is not None and node.origin.passes
            if FORWARD_ID in node.primal or made_here or cell_of(node) in self.derived or not f.trained:
                continue
            taken = [self.kinds.fact(v) for v in carried_operands(node)]
            if f.kind is Kind.ROWS:
                self.assumed[f"samples stay apart in the bprop of {cell_of(node) or site(node)}"] = None
            elif f.kind is Kind.SUMS and any(g.kind is Kind.ROWS and g.trained for g in taken):
                yield mixed(node, "the bprop of its cell says how samples join, and the loss need not")

    def _handed(self) -> set[Divisor]:
        """What the training cell divides gradients by before it hands them to its optimizer, of the batch or a number
        that may be the batch's; empty where it is nothing, for no gradient."""
        cells, met = Cells(self.found.parts), list[Divisor]()
        for info in self.found.weights:
            optimizers = [cell for u in info.updates if (cell := cells.optimizer(u)) is not None]
            for gradient in info.gradient:
                value: Value = gradient
                own: list[Divisor] = []
                while optimizers and (use := self._only_user(value)) is not None:
                    user, i = use
                    scales = user.op.name in DIVIDES | MULTIPLIES
                    if any(within(cell_of(user), c) for c in optimizers) or not (scales or user.op.name in _SAME):
                        break
                    own += self._of_batch(user, user.operand(1 - i)) if scales else []
                    value = user
                met.extend(own or [SUM])
        return set() if set(met) == {SUM} else set(met)

    def _only_user(self, value: Value) -> tuple[Node, int] | None:
        network = (FORWARD, BACKWARD)
        uses = [u for u in value.use_sites() if not orders_only(*u) and self.found.part(u[0]) not in network]
        return uses[0] if len(uses) == 1 and uses[0][0].num_operands <= 2 else None

    def _of_batch(self, node: Node, other: Value) -> list[Divisor]:
        number, size = number_of(other) if isinstance(other, Constant) else None, self.kinds.axes.size
        divides = node.op.name in DIVIDES
        if number is not None and size > 1 and divides and number % size == 0:
            self.assumed[f"{site(node)} divides by the number of samples (its constant is {number:g})"] = None
            return [MEAN]
        count = self.kinds.count(self.kinds.fact(other), other)
        return [] if count is None else [Divisor("count", other, count.base, times=not divides)]

    def _unlike(self, divisor: Divisor) -> str | Beside:
        """Why the divisor of a loss is not one that a count weighs by; else what stands beside that, but for a factor
        that all micro-batches share."""
        value, inverse = divisor.value, divisor.times
        if value is not None and not self._reaches_derivative(value):
            return f"{site(value)} divides what is returned, but no derivative"
        added, least, factor = 0.0, 0.0, 1.0
        beside: list[tuple[Node, str, float]] = []
        for node, inside in self._from_count(divisor)[::-1]:
            name, given = node.op.name, {i: n for i, n in numbers(node) if node.operand(i) not in inside}
            number = next(iter(given.values()), float("nan"))
            if not inside:
                return f"the loss is divided by {divisor}, whose way to the loss cannot be told"
            if name == "Reciprocal" or (name in DIVIDES and inside == [node.operand(1)]):
                inverse, factor = not inverse, float("nan")
            elif name in DIVIDES | MULTIPLIES and len(inside) == 1:
                factor = (factor / number if name in DIVIDES else factor * number) if number > 0 else float("nan")
            elif name in named(Family.SUM) and given.keys() in ({0}, {1}):
                beside.append((node, "adds", number))
                added, least = added + number / factor, least + number / factor if least else 0.0
            elif (name == "Maximum" and given) or (name in named(Family.CLAMP) and given.keys() == {1}):
                beside.append((node, "holds", number))
                least = least if number / factor <= least else number / factor
            elif name not in _SAME | {"Select"}:
                return f"the loss is divided by {site(node)}, which is no count itself"
        if inverse:
            return f"the loss is multiplied by {divisor}"
        if all(abs(n) <= (_NEGLIGIBLE if how == "adds" else 1) for _, how, n in beside):
            for node, how, n in beside:
                moved = f"moves gradients by {n:g} of themselves at most" if how == "adds" else "is not above a count"
                self.assumed[f"the {n:g} of {site(node)}, beside a count of whole numbers, {moved}"] = None
            return NOTHING
        node, how, n = beside[-1]
        of_means = divisor.base is not None and self.kinds.fact(divisor.base).by == {MEAN}
        if added >= 0 and least < float("inf") and not of_means:  # a nan is neither
            return Beside(added, least if least > added else 0.0)
        return f"{site(node)} {how} {n:g} {'to' if how == 'adds' else 'against'} what is no count itself"

    def _from_count(self, divisor: Divisor) -> list[tuple[Node, list[Value]]]:
        """The nodes by which a divisor is made of its count, the last one first, each with what it takes of that."""
        value, found = divisor.value, list[tuple[Node, list[Value]]]()
        while isinstance(value, Node) and value is not divisor.base:
            inside = [v for v in value.operands if self.kinds.fact(v).kind in (Kind.COUNT, Kind.SUMS)]
            found.append((value, inside))
            value = inside[-1] if inside else None
        return found

    def _reaches_derivative(self, value: Value) -> bool:
        """Whether something behind the forward part takes a value, or what is made of it without a weight."""

        def made(v: Value) -> list[Value]:
            return [u for u in v.uses if self.found.part(u) == FORWARD and not self.kinds.fact(u).trained]

        return any(self.found.part(user) != FORWARD for v in walk([value], made) for user in v.uses)

"""How the loss joins its samples: what makes N micro-batches one big batch.

An interpretation from the inputs to the loss, over one lattice: a value is *fixed* (the batch does not reach it), made
*by sample*, a *sum* of terms that are additive over the samples, each over a divisor of its own, a *count* (a function
of one sum that no weight moves), or *mixed*: samples met in it. Which axes hold samples :mod:`.sweep` knows. A loss
that is a sum adds up, one that is divided by a number that all batches share is a mean, and one that is divided by what
the batch counts weighs by that count. Linear in nodes for each round; there is one more for each level of loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from ...core.graph import Constant, Input, Node, State, Value
from ...core.names import BACKWARD_ID, FORWARD_ID
from ...core.op import CALL, MAKE_TUPLE
from ...core.predicates import is_pure, rests, written_operands
from ...core.primitives import BINDING, Family, named
from ...core.sites import site
from ...core.types import TensorType, TupleType
from ...core.walk import carried_operands, walk
from ..derivative.linear_operands import SHAPE_ONLY, linear_in
from ..effects.tokens import orders_only
from ..training.anatomy import TrainingAnatomy
from ..training.cells import Cells, cell_of, within
from ..training.network import BACKWARD, FORWARD
from .constants import integers
from .products import reduced_axes
from .rules import ELEMENTWISE, grow, propagate
from .scalars import DIVIDES, MEANS, batch_scalars, number_of, numbers
from .spans import NONE, Axes, Span, Stuck
from .sweep import LOST, Analysis, Label, element, holds, shape_of


class Kind(Enum):
    FIXED, ROWS, SUMS, COUNT, MIXED = "fixed", "by sample", "sums", "count", "mixed"


@dataclass(frozen=True)
class Divisor:
    """What a sum over the samples is divided by: nothing (``sum``), a number that all batches share (``mean``), or what
    the batch counts: ``value``, a function of the sum ``base``. ``rows``: the number of elements of ``base`` instead.
    ``constant`` stands for a term that no sample reaches. ``times``: multiplied, and not divided."""

    kind: str
    value: Value | None = None
    base: Value | None = None
    rows: bool = False
    times: bool = False

    def __str__(self) -> str:
        if self.kind != "count" or self.base is None:
            return {"sum": "nothing", "mean": "the number of samples"}.get(self.kind, self.kind)
        return f"the number of elements of {site(self.base)}" if self.rows else f"the count {site(self.base)}"


SUM, MEAN, CONSTANT = Divisor("sum"), Divisor("mean"), Divisor("constant")


@dataclass(frozen=True)
class Fact:
    """``trained``: it varies with a trained weight. ``by``: of sums, the divisors of their terms. ``base``: of a count,
    the sum that it is a function of; ``mean``: which is one over the number of samples. ``node``, ``why``: of what is
    mixed, where samples met."""

    kind: Kind
    trained: bool = False
    by: frozenset[Divisor] = frozenset()
    base: Value | None = None
    mean: bool = False
    node: Value | None = None
    why: str = ""


Facts: TypeAlias = "Fact | tuple[Facts, ...]"
"""Of a tuple, those of its elements."""
FIXED = Fact(Kind.FIXED)


@dataclass(frozen=True)
class Joining:
    """``sizes``: of which micro-batches a cycle is the step on the joined batch: ``any sizes``, ``equal sizes only``,
    ``never``. ``reduction``: how gradients join for that (where never: ``mean``), by ``divisor``. ``why``: where never,
    and the ``node``. ``assumed``: what the file does not say."""

    sizes: str
    reduction: str
    divisor: Divisor | None = None
    node: Value | None = None
    why: str = ""
    assumed: tuple[str, ...] = ()

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
_MEANS, _TOTALS = MEANS, named(Family.TOTAL)
_ADDING = _TOTALS | named(Family.MATMUL) | {
    "L2Loss", "Einsum", "UnsortedSegmentSum", "ScatterNd", "Conv2DBackpropFilter", "Conv3DBackpropFilter",
    "BiasAddGrad",
}  # fmt: skip
"""Primitives that add up over axes that their result has no more."""
_ALONG: Mapping[str, int] = {
    "Softmax": 1, "LogSoftmax": 1, "LogSoftmaxExt": 1, "CumSum": 1, "CumsumExt": 1, "CumProd": 1, "Cummax": 1,
    "Cummin": 1, "SoftmaxBackward": 2, "SoftmaxGrad": 2, "LogSoftmaxGrad": 2, "L2Normalize": 1, "L2NormalizeGrad": 3,
}  # fmt: skip
"""Primitives that leave the shape as it is and join what stands along an axis: the operand that names it, where no
attribute does."""
_TRIANGLES = frozenset({"Triu", "Tril", "TrilExt"})
_SCALED = named(Family.PRODUCT)
_BATCH_NORMS = named(Family.BATCH_NORM, in_place=True) | named(Family.BATCH_NORM_GRADIENT, in_place=True)
_SAME = named(Family.COPY, Family.CAST, Family.RESHAPE)
_ROUNDS = 64


def joining(found: TrainingAnatomy) -> Joining:
    """How the loss of a training graph joins its samples. Nothing changes."""
    return _Joins(found).verdict()


class _Joins:
    def __init__(self, found: TrainingAnatomy):
        self.found = found
        self.graph = found.graph
        self.assumed: dict[str, None] = {}
        self.followed = self._followed()
        size, inputs = self._inputs()
        analysis = Analysis(self.graph, inputs, size, (self._propagate, grow))
        self.batch = analysis.run()
        self.closures = analysis.closures
        known = batch_scalars(self.graph, self.batch, found.parts, "batch").counts if size > 0 else {}
        self.shared = {site_: n for site_, n in known.items() if found.part(site_[0]) == FORWARD}
        self.trained = {info.name for info in found.weights if info.gradient}
        network = (n for n in self.graph.all_nodes() if found.part(n) in (FORWARD, BACKWARD))
        self.moved = {v.name for n in network for i in written_operands(n) if isinstance(v := n.operand(i), State)}
        self.derived = {cell_of(n) for n in self.graph if FORWARD_ID in n.primal and found.part(n) == FORWARD}
        self.facts: dict[Value, Facts] = {}
        self._settle()

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

    def _inputs(self) -> tuple[int, dict[str, int]]:
        """The size of the batch, -1 where it is open, and the inputs that hold it on axis 0: micro-batches are joined
        there, those that are as long as the first."""
        shapes = {v.name: shape_of(v.type) for v in self.graph.inputs}
        size = next((shape[0] for shape in shapes.values() if shape), 0)
        for name, shape in shapes.items():
            if shape and shape[0] != size:
                self.assumed[f"input '{name}', which is not {size} long, is the same for all micro-batches"] = None
        return size, {name: 0 for name, shape in shapes.items() if shape and shape[0] == size}

    def _propagate(self, a: Analysis, node: Node) -> Label:
        """The rules of the batch for forward nodes. What selects samples keeps them apart."""
        if node not in self.followed:
            return NONE
        if node.op.name == "MaskedSelect":
            return {0: Span()} if any(a.of(node, i) for i in (0, 1)) else NONE
        if node.op.name == "NLLLoss":
            axes = a.of(node, 0)
            return (axes if node.op.attributes.get("reduction") == "none" else NONE, NONE)
        return propagate(a, node)

    # -- the interpretation ----------------------------------------------------------------------------------

    def _settle(self) -> None:
        nodes = [n for part in self.graph.all_graphs() for n in part if n in self.followed]
        for _ in range(_ROUNDS):
            before = dict(self.facts)
            for formal, sites in self.closures.bound.items():
                self.facts[formal] = _joined([self._row(n.operand(i), n, i) for n, i in sites])
            for node in nodes:
                self.facts[node] = self._transfer(node)
            if self.facts == before or not self.graph.functions:
                return

    def fact(self, value: Value) -> Facts:
        if isinstance(value, State):
            if value.name in self.moved:
                return Fact(Kind.MIXED, node=value, why=f"it takes state '{value.name}', which each micro-batch moves")
            return Fact(Kind.FIXED, value.name in self.trained)
        if isinstance(value, Input) and value in self.graph.inputs:
            return Fact(Kind.COUNT, base=value) if not shape_of(value.type) else FIXED
        return self.facts.get(value, FIXED)

    def _of(self, value: Value, node: Node, i: int) -> Fact:
        """What a node takes: of a tuple, all its elements joined."""
        made = _joined([self.fact(value)])
        if made.kind is Kind.FIXED and self._holds(value, node, i):
            return Fact(Kind.ROWS, made.trained)
        return made

    def _holds(self, value: Value, node: Node, i: int) -> bool:
        if isinstance(value, Constant):
            return bool(self.batch.constants.get((node, i)))
        return holds(self.batch.labels.get(value, NONE) or NONE)

    def _transfer(self, node: Node) -> Facts:
        name = node.op.name
        if name in ("UpdateState", "Print") or name in BINDING:
            return FIXED
        if name in ("Depend", "Load", "StopGradient"):
            made = self._row(node.operand(0), node)
            return replace(_joined([made]), trained=False) if name == "StopGradient" else made
        if name in MAKE_TUPLE:
            return tuple(self._row(v, node, i) for i, v in enumerate(node.operands))
        if name in ("TupleGetItem", "list_getitem"):
            whole, index = self.fact(node.operand(0)), node.operand(1).literal
            if isinstance(whole, tuple) and isinstance(index, int) and index < len(whole):
                return whole[index]
            return whole
        if node.op is CALL:
            return self._called(node)
        taken = list(self._taken(node))
        if name in SHAPE_ONLY:
            return self._row(node, node) if holds(self._label(node)) else FIXED
        reached = [f for _, f, _ in taken if f.kind is not Kind.FIXED]
        trained = any(f.trained for _, f, _ in taken) and _is_float(node)
        if not reached:
            return Fact(Kind.FIXED, trained)
        if name in _BATCH_NORMS and not (name in named(Family.BATCH_NORM, in_place=True) and rests(node)):
            return _mixed(node, "it normalises by mean and variance of the batch")
        mixed = next((f for f in reached if f.kind is Kind.MIXED), None)
        if mixed is not None:
            return mixed
        if name == "NLLLoss":
            return self._nll(node, trained)
        if node in self.batch.stuck:
            return _mixed(node, self.batch.stuck[node])
        if self.batch.labels.get(node, NONE) is LOST:
            return _mixed(node, "the batch cannot be followed through it")
        label = self._label(node)
        if _pairs(label):
            return _mixed(node, "it pairs samples of the batch")
        if (why := self._crosses(node)) is not None:
            return _mixed(node, why)
        if all(f.kind is Kind.ROWS or _is_given(f) for f in reached) and any(f.kind is Kind.ROWS for f in reached):
            for f in reached:
                self._assume(f)
            made = self._by_sample(node, label, trained)
            return self._derived(node, made) if trained else made
        return self._summed(node, taken, trained, holds(label))

    def _derived(self, node: Node, made: Facts) -> Facts:
        """What a node gives, if its derivative is that of what it computes: of a cell that has a ``bprop``, no node has
        a number by which MindSpore would derive it."""
        made_here = node.graph is not self.graph or (node.origin is not None and node.origin.passes)
        if FORWARD_ID in node.primal or made_here or cell_of(node) in self.derived:
            return made
        if _joined([made]).kind in (Kind.ROWS, Kind.MIXED):
            self.assumed[f"samples stay apart in the bprop of {cell_of(node) or site(node)}"] = None
            return made
        return _mixed(node, "the bprop of its cell says how samples join, and the loss need not")

    def _row(self, value: Value, node: Node, i: int = 0) -> Facts:
        made = self.fact(value)
        if isinstance(made, Fact) and made.kind is Kind.FIXED and self._holds(value, node, i):
            return Fact(Kind.ROWS, made.trained)
        return made

    def _taken(self, node: Node) -> Iterator[tuple[int, Fact, Value]]:
        for i, v in enumerate(node.operands):
            if isinstance(v, Node) and v.op.name in MAKE_TUPLE:
                yield from ((i, self._of(e, v, k), e) for k, e in enumerate(v.operands))
            else:
                yield i, self._of(v, node, i), v

    def _label(self, node: Node) -> Label:
        return self.batch.labels.get(node, NONE) or NONE

    def _called(self, call: Node) -> Facts:
        """What the functions give that a call may reach, unless samples decide which."""
        chosen = call.operand(0)
        if isinstance(chosen, Node) and chosen.op.name == "Switch":
            asked = self._of(chosen.operand(0), chosen, 0)
            if asked.kind is not Kind.FIXED:
                return asked if asked.kind is Kind.MIXED else _mixed(call, "a branch is chosen by samples of the batch")
        results = [self._row(f.result, call) for f in self.closures.targets.get(call, {}) if f.has_result]
        if call in self.closures.open or not results:
            return _mixed(call, "it calls a function that cannot be told from the graph")
        packed = [r for r in results if isinstance(r, tuple)]
        if len(packed) == len(results) and len({len(r) for r in packed}) == 1:
            return tuple(_joined(list(e)) for e in zip(*packed, strict=True))
        return _joined(results)

    def _crosses(self, node: Node) -> str | None:
        """Why a node that keeps the shape joins samples all the same."""
        name = node.op.name
        held = {k for axes in _axes(self.batch.labels.get(node.operand(0), NONE)) for k in axes}
        rank = len(shape_of(node.operand(0).type))
        if not held or not rank:
            return None
        if name in _TRIANGLES:
            return "it cuts a triangle from the axis of the batch" if held & {rank - 1, rank - 2} else None
        if name not in _ALONG:
            return None
        axis = node.op.attributes.get("axis", node.op.attributes.get("dim"))
        try:
            given = (
                axis
                if isinstance(axis, (tuple, list))
                else (axis,)
                if isinstance(axis, int)
                else integers(node, _ALONG[name])
            )
            along = {k % rank for k in given if isinstance(k, int)}
        except (Stuck, IndexError):
            return "the axis that it works along cannot be told"
        return "it works along the axis of the batch" if along & held else None

    def _by_sample(self, node: Node, label: Label, trained: bool) -> Facts:
        if isinstance(node.type, TupleType):
            kinds = [holds(element(label, k)) for k in range(len(node.type.elements))]
            return tuple(Fact(Kind.ROWS, trained) if kept else self._reduced(node, trained) for kept in kinds)
        if not holds(label):
            return self._reduced(node, trained)
        if self._is_shared_divisor(node):
            return Fact(Kind.SUMS, trained, frozenset((MEAN,)))
        return Fact(Kind.ROWS, trained)

    def _is_shared_divisor(self, node: Node) -> bool:
        """Whether a node divides by a number that may be the number of samples."""
        for (user, i), count in self.shared.items():
            if user is node and (count > 0) == (node.op.name in DIVIDES and i > 0):
                number = dict(numbers(node))[i]
                self.assumed[f"{site(node)} divides by the number of samples (its constant is {number:g})"] = None
                return True
        return False

    def _reduced(self, node: Node, trained: bool) -> Fact:
        """A value of all samples together."""
        name, over = node.op.name, node.operand(0)
        how = "sum" if name in _ADDING else "mean" if name in _MEANS else _of_kernel(node)
        if how == "sum":
            return Fact(Kind.SUMS, trained, frozenset((SUM,)))
        if how == "mean":
            return Fact(Kind.SUMS, trained, frozenset((self._number(node, over),)))
        return _mixed(node, "it takes the samples of the batch together")

    def _number(self, node: Node, over: Value) -> Divisor:
        """What a mean divides by: a number in the file, or one of the batch where that is open."""
        if not any(d < 0 for d in shape_of(over.type)):
            return MEAN
        held = self.batch.labels.get(over, NONE) or NONE
        shape = shape_of(over.type)
        axes = reduced_axes(node)[0] if node.op.name in _MEANS else set(range(len(shape)))
        others = [d for k, d in enumerate(shape) if k in axes and k not in held]
        first = next(v for v in self.graph.inputs if v in self.batch.labels)
        picked = any(isinstance(v, Node) and v.op.name == "MaskedSelect" for v in walk([over], _elementwise_sources))
        if not picked and min((*others, *shape_of(first.type)[1:]), default=1) > 0:
            return Divisor("count", base=first, rows=True)  # elements are in proportion to samples
        return Divisor("count", base=over, rows=True)

    def _nll(self, node: Node, trained: bool) -> Facts:
        how = node.op.attributes.get("reduction")
        if any(self._of(node.operand(i), node, i).kind not in (Kind.FIXED, Kind.ROWS) for i in range(3)):
            return (_mixed(node, "its operands are sums over the batch"),) * 2
        total = Fact(Kind.SUMS, False, frozenset((SUM,)))
        if how == "none":
            return (Fact(Kind.ROWS, trained), total)
        if how == "sum":
            return (Fact(Kind.SUMS, trained, frozenset((SUM,))), total)
        weight = next((u for u in node.uses if isinstance(u, Node) and _element_of(u) == 1), None)
        if weight is None:
            return (_mixed(node, "the sum of its weights is not at hand"), total)
        return (Fact(Kind.SUMS, trained, frozenset((Divisor("count", weight, weight),))), total)

    # -- sums ------------------------------------------------------------------------------------------------

    def _count(self, f: Fact, value: Value) -> Fact | None:
        """The count that a value is, if it is one."""
        if f.kind is Kind.COUNT:
            return f
        held = holds(self.batch.labels.get(value, NONE) or NONE)
        if f.kind is Kind.SUMS and not f.trained and not held and f.by in ({SUM}, {MEAN}):
            return Fact(Kind.COUNT, base=value, mean=f.by == {MEAN})
        return None

    def _summed(self, node: Node, taken: list[tuple[int, Fact, Value]], trained: bool, held: bool) -> Fact:
        name = node.op.name
        counts = {i: c for i, f, v in taken if (c := self._count(f, v)) is not None}
        reached = [(i, f, v) for i, f, v in taken if f.kind is not Kind.FIXED]
        if len(reached) == 1 and reached[0][0] in counts and name not in (_MEANS | _TOTALS):
            i, f, _ = reached[0]
            if f.kind is Kind.SUMS and self._is_linear(node, i, taken):
                return f
            others_trained = any(g.trained for _, g, _ in taken)
            if others_trained:
                given = _is_given(counts[i])
                self._assume(counts[i])
                return Fact(Kind.FIXED, True) if given else _mixed(node, "it scales a term by what the batch counts")
            return counts[i]
        if counts and len(counts) == len(reached) and not trained:
            bases = {c.base for c in counts.values()}
            own = self._quotient(node, taken, counts)
            if own is not None and name in DIVIDES and len(bases) == 2:
                return own
            if len(bases) == 1:
                return replace(next(iter(counts.values())), mean=any(c.mean for c in counts.values()))
        divided = self._quotient(node, taken, counts)
        if divided is not None:
            return divided
        guarded = self._guarded(node, taken)
        if guarded is not None:
            return guarded
        return self._linear(node, taken, trained, held)

    def _is_linear(self, node: Node, i: int, taken: list[tuple[int, Fact, Value]]) -> bool:
        """Whether a node multiplies, moves or converts operand ``i``, and adds nothing to it."""
        for positions in linear_in(node) or ():
            if i in positions:
                return all(k == i or _is_zero(v) for k, _, v in taken if k in positions)
        return False

    def _quotient(self, node: Node, taken: list[tuple[int, Fact, Value]], counts: Mapping[int, Fact]) -> Fact | None:
        """A sum, or what goes into one, over a count or times one; None where the node is nothing of the kind."""
        name = node.op.name
        if name not in DIVIDES | _SCALED or len(taken) < 2:
            return None
        (_, f, v), (_, g, w) = taken[:2]
        times = name in _SCALED
        if times and 0 in counts and 1 not in counts:
            f, w, count = g, v, counts[0]
        elif 1 in counts:
            count = counts[1]
        else:
            return None
        sums = f.by if f.kind is Kind.SUMS else frozenset()
        given = count.base if _is_given(count) else None
        if given is not None and (times or sums != {SUM}):
            self._assume(count)
            return f
        if given is not None:
            self.assumed[f"input '{given.name}' counts what its micro-batch holds: the sum is divided by it"] = None
        additive = f.kind is Kind.ROWS or sums == {SUM}
        alike = count.mean and sums == {MEAN} and w is count.base and not times
        if alike or (additive and not count.mean):
            return Fact(Kind.SUMS, f.trained, frozenset((Divisor("count", w, count.base, times=times),)))
        return _mixed(node, "it divides or multiplies sums over the batch that are scaled in different ways")

    def _guarded(self, node: Node, taken: list[tuple[int, Fact, Value]]) -> Fact | None:
        """A quotient, and zero where nothing counts."""
        if node.op.name != "Select" or len(taken) != 3:
            return None
        (_, asked, cond), (_, f, v), (_, g, w) = taken
        if asked.kind is not Kind.COUNT or not isinstance(cond, Node) or not any(map(_is_zero, cond.operands)):
            return None
        if cond.op.name in ("Greater", "NotEqual"):
            kept, other = f, w
        elif cond.op.name in ("Equal", "LessEqual"):
            kept, other = g, v
        else:
            return None
        if kept.kind is not Kind.SUMS or not _is_zero(other):
            return None
        return kept if all(d.kind == "count" and d.base is asked.base for d in kept.by) else None

    def _linear(self, node: Node, taken: list[tuple[int, Fact, Value]], trained: bool, held: bool) -> Fact:
        """A node that is linear in sums gives sums."""
        name = node.op.name
        lost = _mixed(node, "it is not linear in a sum over the batch")
        sums = {i for i, f, _ in taken if f.kind in (Kind.SUMS, Kind.COUNT)}
        alternatives = [set(p) for p in linear_in(node) or () if sums <= set(p)]
        if not alternatives:
            return lost
        terms = alternatives[0]
        by: set[Divisor] = set()
        for i, f, v in taken:
            if i in terms:
                if f.kind is Kind.SUMS and (self._holds(v, node, i) or not held):
                    by |= f.by
                elif f.kind is Kind.FIXED:
                    if f.trained and not _is_zero(v):
                        by.add(SUM if held else CONSTANT)
                elif f.kind is Kind.ROWS and held:
                    by.add(SUM)
                elif not f.trained:
                    continue  # a number beside the loss, which no gradient sees
                else:
                    return lost
            elif f.kind is Kind.ROWS and held and all(self._holds(w, node, k) for k, g, w in taken if k in sums):
                continue  # each sample's share times what is the sample's own
            elif f.kind is not Kind.FIXED:
                return lost
        over = any(self._holds(v, node, i) for i, f, v in taken if i in sums) and not held
        if over and name in _MEANS:
            if by != {SUM}:
                return _mixed(node, "it is a mean of what is divided by a count of the batch already")
            by = {self._number(node, node.operand(0))}
        elif over and name not in _ADDING:
            return lost
        if by == {SUM} and self._is_shared_divisor(node):
            by = {MEAN}
        return Fact(Kind.SUMS, trained, frozenset(by))

    def _assume(self, f: Fact) -> None:
        if _is_given(f) and f.base is not None:
            self.assumed[f"input '{f.base.name}' is the same for all micro-batches"] = None

    # -- the verdict -----------------------------------------------------------------------------------------

    def verdict(self) -> Joining:
        roots = self._roots()
        if not roots:
            return self._never(None, "which value is differentiated cannot be told")
        by: set[Divisor] = set()
        for f in [_joined([self.fact(root)]) for root in roots]:
            if f.kind is Kind.MIXED:
                return self._never(f.node, f"{site(f.node)}: {f.why}" if isinstance(f.node, Node) else f.why)
            if f.kind is Kind.ROWS:
                by.add(SUM)  # the derivative of all its elements
            if f.kind is Kind.FIXED and f.trained:
                by.add(CONSTANT)
            by |= f.by
        if by == {CONSTANT} or not by:
            return self._made(ANY, "mean", None)
        terms = by - {CONSTANT}
        if len(terms) > 1:
            numbers_ = ", ".join(sorted(map(str, terms)))
            return self._never(roots[0], f"terms of the loss are divided by different numbers: {numbers_}")
        (divisor,) = terms
        handed = self._handed() if terms else set()
        if len(handed) > 1 or (handed and (divisor.kind != "sum" or CONSTANT in by)):
            return self._never(roots[0], "gradients are multiplied or divided by what the batch counts, one by one")
        if handed:
            (divisor,) = handed
        if divisor.kind == "sum":
            if CONSTANT in by:
                why = "the loss adds its samples up, and a term beside them would count once a micro-batch"
                return self._never(roots[0], why)
            return self._made(ANY, "sum", None)
        if divisor.kind == "mean":
            return self._made(EQUAL, "mean", None)
        why = self._unlike(divisor)
        return self._never(divisor.value, why) if why else self._made(ANY, "weighted", divisor)

    def _handed(self) -> set[Divisor]:
        """What the training cell divides gradients by before it hands them to its optimizer, of the batch or a number
        that may be the batch's; empty where it is nothing, for no gradient."""
        cells, met = Cells(self.found.parts), list[Divisor]()
        for info in self.found.weights:
            optimizers = [cell for u in info.updates if (cell := cells.optimizer(u)) is not None]
            for gradient in info.gradient:
                value: Value = gradient
                own: list[Divisor] = []
                while (use := self._only_user(value)) is not None:
                    user, i = use
                    if user.op.name not in DIVIDES | _SCALED | _SAME or not optimizers:
                        break
                    if any(within(cell_of(user), cell) for cell in optimizers):
                        break
                    other = user.operand(1 - i) if user.op.name in DIVIDES | _SCALED else None
                    own += [] if other is None else self._of_batch(user, other, divides=user.op.name in DIVIDES)
                    value = user
                met.extend(own or [SUM])
        return set() if set(met) == {SUM} else set(met)

    def _only_user(self, value: Value) -> tuple[Node, int] | None:
        uses = [
            (u, i)
            for u, i in value.use_sites()
            if not orders_only(u, i) and self.found.part(u) not in (FORWARD, BACKWARD)
        ]
        return uses[0] if len(uses) == 1 and uses[0][0].num_operands <= 2 else None

    def _of_batch(self, node: Node, other: Value, *, divides: bool) -> list[Divisor]:
        number = number_of(other) if isinstance(other, Constant) else None
        if number is not None and self.batch.size > 1 and divides and number % self.batch.size == 0:
            self.assumed[f"{site(node)} divides by the number of samples (its constant is {number:g})"] = None
            return [MEAN]
        count = self._count(_joined([self.fact(other)]), other)
        return [] if count is None else [Divisor("count", other, count.base, times=not divides)]

    def _made(self, sizes: str, reduction: str, divisor: Divisor | None) -> Joining:
        return Joining(sizes, reduction, divisor, None, "", tuple(self.assumed))

    def _never(self, node: Value | None, why: str) -> Joining:
        return Joining(NEVER, "mean", None, node, why, tuple(self.assumed))

    def _unlike(self, divisor: Divisor) -> str:
        """Why the divisor of a loss is none that a count weighs by; "" where it is. Notes where it is held above a
        number, or a number is added."""
        value, inverse = divisor.value, divisor.times
        if value is not None and not self._reaches_derivative(value):
            return f"{site(value)} divides what is returned, but no derivative"
        while value is not None and value is not divisor.base:
            name = value.op.name if isinstance(value, Node) else ""
            assert isinstance(value, Node)
            inside = [v for v in value.operands if _joined([self.fact(v)]).kind in (Kind.COUNT, Kind.SUMS)]
            if name == "Reciprocal" or (name in DIVIDES and inside == [value.operand(1)]):
                inverse = not inverse
            elif name in named(Family.CLAMP, Family.SUM) | {"Maximum", "Select"}:
                self._note_constant(value)
            elif name not in _SAME:
                return f"the loss is divided by {site(value)}, which is no count itself"
            value = inside[-1] if inside else None
        if value is None and not divisor.rows:
            return f"the loss is divided by {divisor}, whose way to the loss cannot be told"
        return f"the loss is multiplied by {divisor}" if inverse else ""

    def _reaches_derivative(self, value: Value) -> bool:
        """Whether something behind the forward part takes a value, or what is made of it without a weight."""

        def made(v: Value) -> list[Value]:
            return [u for u in v.uses if self.found.part(u) == FORWARD and not _joined([self.fact(u)]).trained]

        return any(self.found.part(user) != FORWARD for v in walk([value], made) for user in v.uses)

    def _note_constant(self, node: Node) -> None:
        """A count with a bound, or with a number added: exact but for the number's share of a micro-batch's count."""
        beside = ", ".join(f"{number:g}" for _, number in numbers(node) if number)
        self.assumed[
            f"the loss is divided by {site(node)}, the count with {beside or 'a bound'}: that number weighs nothing "
            "beside the count of a micro-batch that counts anything"
        ] = None

    def _roots(self) -> list[Value]:
        """What is differentiated: the loss, and forward values that the backward part has derivatives of and that the
        loss does not depend on."""
        numbers = {n.primal[BACKWARD_ID] for n in self.graph.all_nodes() if BACKWARD_ID in n.primal}
        loss = self.found.loss
        roots: list[Value] = [loss] if loss is not None and not isinstance(loss, State) else []
        below = set(walk(roots, carried_operands))
        others = [
            n for n in self.graph
            if n not in below and self.found.part(n) == FORWARD and n.primal.get(FORWARD_ID) in numbers
            and _joined([self.fact(n)]).trained
        ]  # fmt: skip
        taken = set(walk([v for n in others for v in carried_operands(n)], carried_operands))
        return roots + [n for n in others if n not in taken]


def _joined(facts: Sequence[Facts]) -> Fact:
    """What may be any of these."""
    flat: list[Fact] = []
    stack = list(facts)
    while stack:
        f = stack.pop(0)
        if isinstance(f, tuple):
            stack = [*f, *stack]
        else:
            flat.append(f)
    mixed = next((f for f in flat if f.kind is Kind.MIXED), None)
    if mixed is not None:
        return mixed
    trained = any(f.trained for f in flat)
    reached = [f for f in flat if f.kind is not Kind.FIXED]
    if not reached:
        return Fact(Kind.FIXED, trained)
    first = reached[0]
    if all(f.kind is first.kind for f in reached):
        if first.kind is Kind.SUMS:
            return Fact(Kind.SUMS, trained, frozenset().union(*(f.by for f in reached)))
        if first.kind is Kind.ROWS or all(f.base is first.base for f in reached):
            return replace(first, trained=trained)
    node = next((f.base for f in reached if f.base is not None), None)
    return Fact(Kind.MIXED, node=node, why="values by sample and sums over them come together in a tuple or a branch")


def _mixed(node: Value, why: str) -> Fact:
    return Fact(Kind.MIXED, node=node, why=why)


def _axes(label: Label) -> Iterator[Axes]:
    if isinstance(label, tuple):
        for part in label:
            yield from _axes(part)
    elif label:
        yield label


def _pairs(label: Label) -> bool:
    return any(len(axes) > 1 for axes in _axes(label))


def _is_float(node: Node) -> bool:
    types = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
    return any(not isinstance(t, TensorType) or t.dtype.is_float for t in types)


def _is_given(f: Fact) -> bool:
    return f.kind is Kind.COUNT and isinstance(f.base, Input)


def _is_zero(value: Value) -> bool:
    if isinstance(value, Constant):
        return number_of(value) == 0
    return isinstance(value, Node) and value.op.name in ("ZerosLike", "ZerosLikeExt", "Zeros")


def _of_kernel(node: Node) -> str:
    """How a kernel that is a loss reduces its result to a number."""
    if node.op.name == "SparseSoftmaxCrossEntropyWithLogits":
        return "mean"
    if node.op.name not in ELEMENTWISE:
        return ""
    how = node.op.attributes.get("reduction")
    if isinstance(how, str):
        return how
    last = node.operand(node.num_operands - 1).literal
    return {0: "sum", 1: "mean"}.get(last, "") if isinstance(last, int) and not isinstance(last, bool) else ""


def _element_of(node: Node) -> int | None:
    at = node.operand(1).literal if node.op.name == "TupleGetItem" else None
    return at if isinstance(at, int) else None


def _elementwise_sources(value: Value) -> list[Value]:
    """The operands that a value has its rows from."""
    if not isinstance(value, Node) or value.op.name not in ELEMENTWISE | named(Family.RESHAPE):
        return []
    return list(value.operands)

"""What every value is made of as far as the samples of a batch go: one lattice, for whoever asks about the batch.

A value is *fixed* (the batch does not reach it), made *by sample*, a *sum* of terms that are additive over the samples,
each over a divisor of its own, a *count* (a function of one sum that no weight moves), or *mixed*: samples met in it.
Which axes hold samples :mod:`.axes` knows. Linear in nodes for each round; there is one more for each level of loops.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import prod
from typing import TypeAlias

from ...core.attributes import Number, TensorValue
from ...core.data import to_numpy
from ...core.graph import Constant, Input, Node, State, Use, Value
from ...core.op import CALL, MAKE_TUPLE
from ...core.predicates import rests
from ...core.primitives import BINDING, Family, named
from ...core.sites import site
from ...core.types import DType, TensorType, TupleType
from ...core.walk import walk
from ..derivative.linear_operands import SHAPE_ONLY, ZEROS, linear_in
from .axes import BatchAxes
from .rules import integers, rule_of, shape_of
from .spans import Stuck


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
    """``trained``: it varies with a trained weight. ``by``: of sums, the divisors of their terms, and ``elements``, how
    many were added up. ``scaled``: of what is by sample, numbers on its way that may be the number of samples.
    ``base``: of a count, the sum that it is a function of; ``mean``: which is one over the number of samples. ``node``,
    ``why``: of what is mixed, where samples met."""

    kind: Kind
    trained: bool = False
    by: frozenset[Divisor] = frozenset()
    elements: int = 0
    scaled: frozenset[tuple[Use, int]] = frozenset()
    base: Value | None = None
    mean: bool = False
    node: Value | None = None
    why: str = ""


Facts: TypeAlias = "Fact | tuple[Facts, ...]"
"""Of a tuple, those of its elements."""
Taken: TypeAlias = list[tuple[int, Fact, Value]]
FIXED = Fact(Kind.FIXED)
DIVIDES, MULTIPLIES = named(Family.QUOTIENT) | {"DivNoNan"}, named(Family.PRODUCT)
_BATCH_NORMS = named(Family.BATCH_NORM, in_place=True)
_ROUNDS = 64


class Kinds:
    """``nodes``: those that are followed, in order. ``trained``: the states that an update moves; ``moved``: those that
    each micro-batch moves. ``doubts``: where a number may be the number of samples or not, the multiple of it that it
    would be (negative: one over that), and what it does. ``assumed``: what the file does not say."""

    def __init__(
        self, axes: BatchAxes, nodes: Sequence[Node], trained: Collection[str] = (), moved: Collection[str] = ()
    ):
        self.axes, self.trained, self.moved = axes, trained, moved
        self.assumed: dict[str, None] = {}
        self.doubts: dict[Use, tuple[int, str]] = {}
        self.facts: dict[Value, Facts] = {}
        for _ in range(_ROUNDS):
            before = dict(self.facts)
            for formal, sites in axes.closures.bound.items():
                self.facts[formal] = joined([self._taken(n, i) for n, i in sites])
            for node in nodes:
                self.facts[node] = self._transfer(node)
            if self.facts == before or not axes.graph.functions:
                return

    def fact(self, value: Value) -> Fact:
        return joined([self._known(value)])

    def _known(self, value: Value) -> Facts:
        if isinstance(value, State):
            if value.name in self.moved:
                return mixed(value, f"it takes state '{value.name}', which each micro-batch moves")
            return Fact(Kind.FIXED, value.name in self.trained)
        if isinstance(value, Input) and value in self.axes.graph.inputs and not shape_of(value.type):
            return Fact(Kind.COUNT, base=value)
        return self.facts.get(value, FIXED)

    def _taken(self, node: Node, i: int) -> Facts:
        """What a node takes as operand ``i``."""
        made = self._known(node.operand(i))
        if isinstance(made, Fact) and made.kind is Kind.FIXED and self.axes.holds(node, i):
            return Fact(Kind.ROWS, made.trained)
        return made

    def _operands(self, node: Node) -> Taken:
        """Of a tuple that is made here, its elements."""
        taken: Taken = []
        for i, v in enumerate(node.operands):
            if isinstance(v, Node) and v.op.name in MAKE_TUPLE:
                taken += [(i, joined([self._taken(v, k)]), e) for k, e in enumerate(v.operands)]
            else:
                taken.append((i, joined([self._taken(node, i)]), v))
        return taken

    def _transfer(self, node: Node) -> Facts:
        name = node.op.name
        if name in ("UpdateState", "Print") or name in BINDING:
            return FIXED
        if node in self.axes.stuck:
            already = (f for _, f, _ in self._operands(node) if f.kind is Kind.MIXED)
            return next(already, mixed(node, self.axes.stuck[node]))
        if name in ("Depend", "Load"):
            return self._taken(node, 0)
        if name == "StopGradient":
            return replace(joined([self._taken(node, 0)]), trained=False)
        if name in MAKE_TUPLE:
            return tuple(self._taken(node, i) for i in range(node.num_operands))
        if name in ("TupleGetItem", "list_getitem"):
            whole, index = self._known(node.operand(0)), node.operand(1).literal
            return whole[index] if isinstance(whole, tuple) and isinstance(index, int) and index < len(whole) else whole
        if node.op is CALL:
            return self._called(node)
        held = node in self.axes.holding
        if name in SHAPE_ONLY:
            return Fact(Kind.ROWS) if held else FIXED
        taken = self._operands(node)
        reached = [f for _, f, _ in taken if f.kind is not Kind.FIXED]
        types = node.type.elements if isinstance(node.type, TupleType) else (node.type,)
        is_float = any(not isinstance(t, TensorType) or t.dtype.is_float for t in types)
        trained = is_float and any(f.trained for _, f, _ in taken)
        if not reached:
            return Fact(Kind.FIXED, trained)
        if name in _BATCH_NORMS and not rests(node):
            return mixed(node, "it normalises by mean and variance of the batch")
        met = next((f for f in reached if f.kind is Kind.MIXED), None)
        if met is not None:
            return met
        if why := self._crosses(node):
            return mixed(node, why)
        if any(f.kind is Kind.ROWS for f in reached) and all(f.kind is Kind.ROWS or is_given(f) for f in reached):
            for f in reached:
                self.assume_shared(f)
            return self._by_sample(node, taken, trained)
        return self._summed(node, taken, trained, held)

    def _called(self, call: Node) -> Facts:
        """What the functions give that a call may reach, unless samples decide which."""
        chosen = call.operand(0)
        if isinstance(chosen, Node) and chosen.op.name == "Switch":
            asked = joined([self._taken(chosen, 0)])
            if asked.kind is not Kind.FIXED:
                return asked if asked.kind is Kind.MIXED else mixed(call, "a branch is chosen by samples of the batch")
        closures = self.axes.closures
        results = [self._known(f.result) for f in closures.targets.get(call, {}) if f.has_result]
        if call in closures.open or not results:
            return mixed(call, "it calls a function that cannot be told from the graph")
        packed = [r for r in results if isinstance(r, tuple)]
        if len(packed) == len(results) and len({len(r) for r in packed}) == 1:
            return tuple(joined(list(e)) for e in zip(*packed, strict=True))
        made = joined(results)
        return Fact(Kind.ROWS, made.trained) if made.kind is Kind.FIXED and call in self.axes.holding else made

    def _crosses(self, node: Node) -> str:
        """Why samples meet in a node, though its result has their axis: "" where they do not."""
        held = self.axes.held
        if any(len(axes) > 1 for (value, _), axes in self._elements(node)):
            return "it pairs samples of the batch"
        word, *named_by = rule_of(node).split() or [""]
        along = {k for i in range(node.num_operands) for k in held.get((node.operand(i), ()), ())}
        if word != "=" or not named_by or not along:
            return ""
        rank = len(shape_of(node.operand(0).type))
        if named_by[0] == "last":
            return "it cuts a triangle from the axis of the batch" if along & {rank - 1, rank - 2} else ""
        axis = node.op.attributes.get("axis", node.op.attributes.get("dim"))
        try:
            given = integers(node, int(named_by[0])) if axis is None else axis
            axes = {k % rank for k in (given if isinstance(given, (tuple, list)) else (given,)) if isinstance(k, int)}
        except (Stuck, IndexError):
            return "the axis that it works along cannot be told"
        return "it works along the axis of the batch" if along & axes else ""

    def _elements(self, node: Node) -> Iterator[tuple[tuple[Value, tuple[int, ...]], Mapping[int, object]]]:
        count = len(node.type.elements) if isinstance(node.type, TupleType) else 0
        for path in ((), *((k,) for k in range(count))):
            yield (node, path), self.axes.held.get((node, path), {})

    # -- what is by sample -----------------------------------------------------------------------------------

    def _by_sample(self, node: Node, taken: Taken, trained: bool) -> Facts:
        linear = {i for positions in linear_in(node) or () for i in positions}
        scaled = frozenset(s for i, f, _ in taken if i in linear for s in f.scaled)
        scaled |= {((node, i), n) for i, n in self._shared_numbers(node, divides=True)}
        if isinstance(node.type, TupleType):
            kept = [bool(self.axes.held.get((node, (k,)))) for k in range(len(node.type.elements))]
            if node.op.name == "NLLLoss":
                return self._nll(node, trained, kept[0])
            return tuple(Fact(Kind.ROWS, trained) if k else self._reduced(node, trained, scaled) for k in kept)
        if node in self.axes.holding:
            return Fact(Kind.ROWS, trained, scaled=scaled)
        return self._reduced(node, trained, scaled)

    def _reduced(self, node: Node, trained: bool, scaled: Collection[tuple[Use, int]] = ()) -> Fact:
        """A value of all samples together."""
        how, first = how_joined(node), node.operand(0)
        if how == "mean":
            return Fact(Kind.SUMS, trained, frozenset((self._number(node, first),)))
        if how != "+":
            return mixed(node, "it takes the samples of the batch together")
        elements = max(
            (prod(shape_of(v.type)) for i, v in enumerate(node.operands) if self.axes.of(node, i)), default=0
        )
        by = SUM
        for use, count in scaled:
            if elements % abs(count) == 0:
                self._doubt(use, count, "divides a sum over the batch, or what goes into one")
                by = MEAN
        return Fact(Kind.SUMS, trained, frozenset((by,)), elements)

    def _number(self, node: Node, over: Value) -> Divisor:
        """What a mean divides by: a number in the file, or one of the batch where that is open."""
        if not any(d < 0 for d in shape_of(over.type)):
            return MEAN

        def sources(v: Value) -> list[Value]:
            keeps = isinstance(v, Node) and (rule_of(v).startswith("=") or v.op.name in named(Family.RESHAPE))
            return list(v.operands) if isinstance(v, Node) and keeps else []

        first = next(v for v in self.axes.graph.inputs if v in self.axes.holding)
        picked = any(isinstance(v, Node) and v.op.name == "MaskedSelect" for v in walk([over], sources))
        others = [d for k, d in enumerate(shape_of(over.type)) if k not in self.axes.held.get((over, ()), {})]
        if not picked and min((*others, *shape_of(first.type)[1:]), default=1) > 0:
            return Divisor("count", base=first, rows=True)  # elements are in proportion to samples
        return Divisor("count", base=over, rows=True)

    def _nll(self, node: Node, trained: bool, rows: bool) -> Facts:
        """The loss, and the sum of the weights by which ``mean`` divides it."""
        total, how = Fact(Kind.SUMS, False, frozenset((SUM,))), node.op.attributes.get("reduction")
        if rows or how in ("none", "sum"):
            return (Fact(Kind.ROWS, trained) if rows else Fact(Kind.SUMS, trained, frozenset((SUM,))), total)
        weight = next((u for u in node.uses if u.op.name == "TupleGetItem" and u.operand(1).literal == 1), None)
        if weight is None:
            return (mixed(node, "the sum of its weights is not at hand"), total)
        return (Fact(Kind.SUMS, trained, frozenset((Divisor("count", weight, weight),))), total)

    def _shared_numbers(self, node: Node, *, divides: bool) -> Iterator[tuple[int, int]]:
        """The numbers by which a node divides (or multiplies) that may be the number of samples, or a multiple."""
        if node.op.name in DIVIDES | MULTIPLIES:
            for i, value in numbers(node):
                count = multiple_of(value, self.axes.size)
                if count and divides == ((count > 0) == (node.op.name in DIVIDES and i > 0)):
                    yield i, count

    def _doubt(self, use: Use, count: int, what: str) -> None:
        self.doubts[use] = (count, what)

    # -- sums ------------------------------------------------------------------------------------------------

    def count(self, f: Fact, value: Value) -> Fact | None:
        """The count that a value is, if it is one."""
        if f.kind is Kind.COUNT:
            return f
        if f.kind is Kind.SUMS and not f.trained and value not in self.axes.holding and f.by in ({SUM}, {MEAN}):
            return Fact(Kind.COUNT, base=value, mean=f.by == {MEAN})
        return None

    def _summed(self, node: Node, taken: Taken, trained: bool, held: bool) -> Fact:
        counts = {i: c for i, f, v in taken if (c := self.count(f, v)) is not None}
        reached = [(i, f, v) for i, f, v in taken if f.kind is not Kind.FIXED]
        if len(reached) == 1 and reached[0][0] in counts and not how_joined(node):
            i, f, _ = reached[0]
            if f.kind is Kind.SUMS and self._only_scales(node, i, taken):
                return self._scaled_sum(node, f)
            if any(g.trained for _, g, _ in taken):
                self.assume_shared(counts[i])
                return Fact(Kind.FIXED, True) if is_given(counts[i]) else mixed(node, "it scales a term by what the batch counts")  # fmt: skip # noqa: E501
            return counts[i]
        bases = {c.base for c in counts.values()}
        if len(bases) == 1 and len(counts) == len(reached) and not trained:
            return replace(next(iter(counts.values())), mean=any(c.mean for c in counts.values()))
        for rule in (self._quotient, self._guarded):
            if (made := rule(node, taken, counts)) is not None:
                return made
        return self._linear(node, taken, trained, held)

    @staticmethod
    def _only_scales(node: Node, i: int, taken: Taken) -> bool:
        """Whether a node multiplies, moves or converts operand ``i``, and adds nothing to it."""
        for positions in linear_in(node) or ():
            if i in positions:
                return all(k == i or is_zero(v) for k, _, v in taken if k in positions)
        return False

    def _scaled_sum(self, node: Node, f: Fact) -> Fact:
        """Sums that a number scales which may be the number of samples."""
        for i, n in self._shared_numbers(node, divides=True):
            if f.by == {SUM} and f.elements % abs(n) == 0:
                self._doubt((node, i), n, "divides a sum over the batch, or what goes into one")
                return replace(f, by=frozenset((MEAN,)))
        for i, n in self._shared_numbers(node, divides=False):
            if f.by == {MEAN}:
                self._doubt((node, i), n, "multiplies a mean over the batch")
        return f

    def _quotient(self, node: Node, taken: Taken, counts: Mapping[int, Fact]) -> Fact | None:
        """A sum, or what goes into one, over a count or times one; None where the node is nothing of the kind."""
        name = node.op.name
        if name not in DIVIDES | MULTIPLIES or len(taken) < 2:
            return None
        (_, f, v), (_, g, w) = taken[:2]
        times = name in MULTIPLIES
        if times and 0 in counts and 1 not in counts:
            f, w, count = g, v, counts[0]
        elif 1 in counts:
            count = counts[1]
        else:
            return None
        sums = f.by if f.kind is Kind.SUMS else frozenset()
        if is_given(count) and (times or sums != {SUM}):
            self.assume_shared(count)
            return f
        if is_given(count) and count.base is not None:
            self.assumed[f"{site(count.base)} counts what its micro-batch holds: the sum is divided by it"] = None
        additive = f.kind is Kind.ROWS or sums == {SUM}
        alike = count.mean and sums == {MEAN} and w is count.base and not times
        if alike or (additive and not count.mean):
            return Fact(Kind.SUMS, f.trained, frozenset((Divisor("count", w, count.base, times=times),)))
        return mixed(node, "it divides or multiplies sums over the batch that are scaled in different ways")

    @staticmethod
    def _guarded(node: Node, taken: Taken, counts: Mapping[int, Fact]) -> Fact | None:
        """A quotient, and zero where nothing counts."""
        if node.op.name != "Select" or len(taken) != 3:
            return None
        (_, asked, cond), (_, f, v), (_, g, w) = taken
        if asked.kind is not Kind.COUNT or not isinstance(cond, Node) or not any(map(is_zero, cond.operands)):
            return None
        swapped = cond.op.name in ("Equal", "LessEqual")
        kept, other = (g, v) if swapped else (f, w)
        if not (swapped or cond.op.name in ("Greater", "NotEqual")) or kept.kind is not Kind.SUMS or not is_zero(other):
            return None
        return kept if all(d.kind == "count" and d.base is asked.base for d in kept.by) else None

    def _linear(self, node: Node, taken: Taken, trained: bool, held: bool) -> Fact:
        """A node that is linear in sums gives sums."""
        lost = mixed(node, "it is not linear in a sum over the batch")
        holding = self.axes.holding
        sums = {i for i, f, _ in taken if f.kind in (Kind.SUMS, Kind.COUNT)}
        terms = next((set(p) for p in linear_in(node) or () if sums <= set(p)), None)
        if terms is None:
            return lost
        by: set[Divisor] = set()
        beside = any(f.trained for i, f, _ in taken if i in terms)
        for i, f, v in taken:
            if i not in terms:
                each_own = f.kind is Kind.ROWS and held and all(w in holding for k, _, w in taken if k in sums)
                if f.kind is not Kind.FIXED and not each_own:
                    return lost  # else each sample's share times what is the sample's own
            elif beside and not f.trained and f.kind in (Kind.SUMS, Kind.COUNT):
                continue  # a number beside the loss, which no gradient sees
            elif f.kind is Kind.SUMS and (v in holding or not held):
                by |= f.by
            elif f.kind is Kind.FIXED:
                by |= {SUM if held else CONSTANT} if f.trained and not is_zero(v) else set()
            elif f.kind is Kind.ROWS and held:
                by.add(SUM)
            elif f.trained:
                return lost
        if trained and not by:
            return lost
        over, how = any(v in holding for i, _, v in taken if i in sums) and not held, how_joined(node)
        if over and how == "mean":
            if by != {SUM}:
                return mixed(node, "it is a mean of what is divided by a count of the batch already")
            by = {self._number(node, node.operand(0))}
        elif over and how != "+":
            return lost
        elements = max(f.elements for _, f, _ in taken)
        return self._scaled_sum(node, Fact(Kind.SUMS, trained, frozenset(by), elements))

    def assume_shared(self, f: Fact) -> None:
        if is_given(f) and f.base is not None:
            self.assumed[f"{site(f.base)} is the same for all micro-batches"] = None


def joined(facts: Sequence[Facts]) -> Fact:
    """What may be any of these."""
    flat: list[Fact] = []
    stack = list(facts)[::-1]
    while stack:
        f = stack.pop()
        if isinstance(f, tuple):
            stack += f[::-1]
        else:
            flat.append(f)
    met = next((f for f in flat if f.kind is Kind.MIXED), None)
    if met is not None:
        return met
    trained = any(f.trained for f in flat)
    reached = [f for f in flat if f.kind is not Kind.FIXED]
    if not reached:
        return Fact(Kind.FIXED, trained)
    first = reached[0]
    if all(f.kind is first.kind for f in reached):
        if first.kind is Kind.SUMS:
            return replace(first, trained=trained, by=frozenset().union(*(f.by for f in reached)))
        if first.kind is Kind.ROWS or all(f.base is first.base for f in reached):
            return replace(first, trained=trained, scaled=frozenset().union(*(f.scaled for f in reached)))
    node = next((f.base for f in reached if f.base is not None), None)
    return Fact(Kind.MIXED, node=node, why="values by sample and sums over them come together in a tuple or a branch")


def mixed(node: Value, why: str) -> Fact:
    return Fact(Kind.MIXED, node=node, why=why)


def is_given(f: Fact) -> bool:
    """Whether it is a number that the training is handed beside the samples."""
    return f.kind is Kind.COUNT and isinstance(f.base, Input)


def how_joined(node: Node) -> str:
    """``+`` or ``mean`` of a node that takes an axis together so, "" of any other: of a loss, as its kernel is told."""
    rule = rule_of(node)
    if rule != "=":
        return rule.split()[-1] if rule.endswith(("+", "mean")) else ""
    how = node.op.attributes.get("reduction", node.operand(node.num_operands - 1).literal)
    whole = not shape_of(node.type) and any(shape_of(v.type) for v in node.operands)
    return {"sum": "+", "mean": "mean", 0: "+", 1: "mean"}.get(how, "") if whole and isinstance(how, (str, int)) else ""


def is_zero(value: Value) -> bool:
    if isinstance(value, Constant):
        return number_of(value) == 0
    return isinstance(value, Node) and value.op.name in ZEROS


def numbers(node: Node) -> Iterator[tuple[int, float]]:
    """(operand, number) of each constant operand that is one number, or a tensor of one number everywhere."""
    for i, operand in enumerate(node.operands):
        if isinstance(operand, Constant) and (value := number_of(operand)) is not None:
            yield i, value


def number_of(constant: Constant) -> float | None:
    value = constant.value
    if isinstance(value, Number):
        return float(value.value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, TensorValue) or value.type.dtype in (DType.BOOL, DType.STRING, DType.BFLOAT16):
        return None
    if not value.type.size or "complex" in value.type.dtype.value:
        return None
    array = to_numpy(value.type, value.data).reshape(-1)
    return float(array[0]) if (array == array[0]).all() else None


def multiple_of(value: float, size: int) -> int:
    """The multiple of the batch that a number is (negative: that it is one over); 0 if it is none."""
    import numpy as np

    magnitude = abs(value)
    if size < 1 or not 0 < magnitude < float("inf"):
        return 0
    if magnitude >= size:
        return int(magnitude) if magnitude % size == 0 else 0
    count = round(1 / magnitude) if magnitude > 1e-12 else 0
    return -count if count and count % size == 0 and np.float32(1 / count) == np.float32(magnitude) else 0

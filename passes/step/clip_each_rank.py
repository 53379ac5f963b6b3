"""Clipping what each rank has for itself, before its gradients are summed with those of others.

MindSpore's tutorial clips between ``grad`` and ``grad_reducer``: the mean that the update sees is one of clipped
gradients. Here the clip stands in front of what ``data-parallel`` reduces, and measures a rank's own mean: its sum,
divided by what the rank itself has counted and by the loss scale.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from ...ir.analysis.training.anatomy import anatomy
from ...ir.analysis.training.divisor import find_divisor
from ...ir.analysis.training.gradient_path import gradient_paths
from ...ir.analysis.training.stages import RANK_CLIP
from ...ir.builders.cast import cast
from ...ir.builders.reduce import square_sum
from ...ir.core.attributes import scalar_tensor
from ...ir.core.errors import PassError
from ...ir.core.graph import Graph, Node, Value, rewire, tensor_type
from ...ir.core.names import STAGE
from ...ir.core.walk import carried_operands, through, walk
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.stages import mark
from .clipping import SCOPE, between, factor, norm, times, widened
from .crossings import Start, leaving_backward, sums
from .exported_reductions import is_inverse
from .names import TALLY
from .normalisation import division_of

_STEPS = ("Cast", "Mul", "Minimum", "Maximum")
"""The primitives of a clip."""
OWN_COUNT = "own_count"
"""Mark of what a rank counts for itself alone: no merging makes it one with a tally, which is summed over ranks."""


@dataclass(slots=True)
class Own:
    """A rank's own gradient of one or more weights: its summands, and whether their users divide by what was
    counted."""

    weights: tuple[str, ...]
    starts: list[Start]
    divided: bool


def own_gradients(graph: Graph) -> list[Own]:
    """The gradients of a graph as they are before any reduction: sums of a cycle, or what the backward part leaves."""
    starts = sums(graph)
    if not starts:
        of_graph = anatomy(graph)
        constant = next((w.name for w in of_graph.weights if any(not v.is_zero for v in w.fixed)), None)
        if constant is not None:
            raise PassError(
                f"the gradient of weight '{constant}' is a constant of the graph, which no rank has for itself: leave "
                "out each_rank"
            )
        starts = leaving_backward(of_graph, ", in front of which nothing can be clipped: leave out each_rank")
        for start in starts:
            start.divided = any(_divides(user) for user, _ in start.uses)
    found: dict[tuple[str, ...], Own] = {}
    for start in starts:
        found.setdefault(start.weights, Own(start.weights, [], start.divided)).starts.append(start)
    for path in gradient_paths(graph):
        reduced = False
        for point in path.points:
            if point.stage in ("clip", "weight-decay"):
                break
            reduced |= point.stage == "all-reduce"
            means = reduced and all(isinstance(v, Node) and is_inverse(v) for v in point.values)
            if point.stage == "unscale" and not means and not any(_divides(v) for v in point.values):
                raise PassError(
                    f"the file unscales the gradient of weight '{path.weight}' itself (%{point.values[0].name}), so "
                    "what a rank has before the sum over ranks is scaled: leave out each_rank, or let loss-scale scale"
                )
    return list(found.values())


def _divides(value: Value) -> bool:
    """Whether a value, but for casts, is a quotient by the divisor."""
    value = through(value, ("Cast",))
    return division_of(value) is value


def clip_each_rank(graph: Graph, by: str, limit: float, measured: bool) -> Value | None:
    """Clips in ``graph``; returns the norm of all gradients together where it is taken (``measured``: in any case)."""
    gradients = own_gradients(graph)
    fx = Effects(graph)
    divisor = find_divisor(graph)
    own_divisor = own_count(fx, divisor, SCOPE) if divisor is not None and any(g.divided for g in gradients) else None
    squares = [] if by == "value" and not measured else [_square(graph, g, own_divisor) for g in gradients]
    length = norm(graph, squares) if measured or by == "global-norm" else None
    bound = graph.constant(scalar_tensor("float32", limit))
    for k, gradient in enumerate(gradients):
        if by == "value":
            high = _element_limit(graph, gradient, bound, own_divisor)
            make = partial(between, graph, high=high)
        else:
            own = length if by == "global-norm" and length is not None else norm(graph, [squares[k]])
            make = partial(times, graph, by=factor(graph, own, limit))
        for start in gradient.starts:
            clipped = make(start.value)
            assert isinstance(clipped, Node)
            mark(clipped, {STAGE: RANK_CLIP})
            rewire(start.uses, clipped)
    fx.commit()
    return length


def own_count(fx: Effects, divisor: Node, scope: str) -> Value:
    """The divisor as this rank counts it: a copy of what it is computed from, without the marks by which data-parallel
    sums counts over ranks."""
    graph = fx.graph
    copies: dict[Value, Value] = {}

    def copy(value: Value) -> Value:
        if not isinstance(value, Node) or not _counts(value):
            return value
        if value not in copies:
            if value.op.name == "Load":
                copied = fx.load(value.operand(0), scope=scope)
            else:
                with graph.inserting_after(value):
                    operands = [copy(operand) for operand in value.operands]
                    copied = graph.create(value.op, operands, value.type, scope=scope)
            mark(copied, {OWN_COUNT: True})
            copies[value] = copied
        return copies[value]

    return copy(divisor)


def _counts(value: Value) -> bool:
    """Whether a tally stands in what a scalar is computed from."""

    def taken(here: Value) -> list[Value]:
        return [] if isinstance(here, Node) and here.op.name == "Load" else carried_operands(here)

    return any(isinstance(here, Node) and TALLY in here.marks for here in walk([value], taken))


def _square(graph: Graph, gradient: Own, divisor: Value | None) -> Value:
    first, *others = (start.value for start in gradient.starts)
    total: Value = first
    for other in others:
        total = graph.create("Add", [total, other], scope=SCOPE)
    total = widened(graph, total)
    if divisor is not None and gradient.divided:
        by = cast(graph, divisor, tensor_type(total).dtype, scope=SCOPE)
        total = graph.create("RealDiv", [total, by], scope=SCOPE)
    # Two weights with one gradient (the biases of a recurrent cell) count each, as natively.
    times_counted = graph.constant(scalar_tensor("float32", float(len(gradient.weights))))
    summed = square_sum(graph, total, scope=SCOPE)
    return summed if len(gradient.weights) == 1 else graph.create("Mul", [summed, times_counted], scope=SCOPE)


def _element_limit(graph: Graph, gradient: Own, limit: Value, divisor: Value | None) -> Value:
    """The limit of the elements as they are before they are divided."""
    if len(gradient.starts) > 1:
        raise PassError(
            f"the gradient of weight '{gradient.weights[0]}' has several summands, whose sum has the elements to "
            "limit: use by=global-norm or by=tensor-norm, or leave out each_rank"
        )
    return graph.create("Mul", [limit, divisor], scope=SCOPE) if divisor is not None and gradient.divided else limit


def clipped_by_rank(gradient: Value) -> Node | None:
    """Each rank's own gradient after its clip, if it clips it."""

    def passed_on(here: Value) -> list[Value]:
        return [user for user, i in here.use_sites() if i == 0 and user.scope == SCOPE and user.op.name in _STEPS]

    found = (user for here in walk([gradient], passed_on) for user in here.uses if user.marks.get(STAGE) == RANK_CLIP)
    return next(found, None)

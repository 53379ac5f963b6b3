"""Clipping what each rank has for itself, before its gradients are summed with those of others.

MindSpore's tutorial clips between ``grad`` and ``grad_reducer``: the mean that the update sees is one of clipped
gradients. Here the clip stands in front of what ``data-parallel`` reduces, and measures a rank's own mean: its sum,
divided by what the rank itself has counted and by the loss scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ...ir.analysis.training.anatomy import anatomy
from ...ir.analysis.training.divisor import find_divisor
from ...ir.analysis.training.gradient_path import gradient_paths, weights_of
from ...ir.analysis.training.network import BACKWARD, FORWARD
from ...ir.analysis.training.stages import RANK_CLIP
from ...ir.builders.cast import cast
from ...ir.builders.reduce import reduce_sum
from ...ir.core.attributes import scalar_tensor
from ...ir.core.errors import PassError
from ...ir.core.graph import Graph, Node, Use, Value, tensor_type
from ...ir.core.names import STAGE
from ...ir.core.types import DType
from ...ir.core.walk import carried_operands, walk
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.stages import mark
from .crossings import takes_value
from .exported_reductions import is_inverse
from .names import TALLY
from .normalisation import division_of

SCOPE = "clip-gradients"
OWN_COUNT = "own_count"
"""Mark of what a rank counts for itself alone: no merging makes it one with a tally, which is summed over ranks."""


@dataclass(slots=True)
class Own:
    """A rank's own gradient of one or more weights: the summands of it, and who takes each of them."""

    weights: tuple[str, ...]
    values: list[Value]
    uses: list[list[Use]]
    divided: bool
    """Whether the users divide by what was counted."""


def own_gradients(graph: Graph) -> list[Own]:
    """The gradients of a graph as they are before any reduction: sums of a cycle, or what the backward part leaves."""
    found: dict[tuple[str, ...], Own] = {}
    for weights, value, uses, divided in _marked(graph) or _leaving_backward(graph):
        own = found.setdefault(weights, Own(weights, [], [], divided))
        own.values.append(value)
        own.uses.append(uses)
    divisor = find_divisor(graph)
    for path in gradient_paths(graph):
        reduced = False
        for point in path.points:
            if point.stage in ("clip", "weight-decay"):
                break
            reduced |= point.stage == "all-reduce"
            means = reduced and all(isinstance(v, Node) and is_inverse(v) for v in point.values)
            if point.stage == "unscale" and not means and not any(_divided_by(v, divisor) for v in point.values):
                raise PassError(
                    f"the file unscales the gradient of weight '{path.weight}' itself (%{point.values[0].name}), so "
                    "what a rank has before the sum over ranks is scaled: leave out each_rank, or let loss-scale scale"
                )
    return list(found.values())


def _marked(graph: Graph) -> list[tuple[tuple[str, ...], Value, list[Use], bool]]:
    found: list[tuple[tuple[str, ...], Value, list[Use], bool]] = []
    for node in graph:
        names = weights_of(node)
        if not names:
            continue
        division = division_of(node)
        if division is not None:
            found.append((names, division.operand(0), [(division, 0)], True))
        else:
            uses = [(user, i) for user, i in node.use_sites() if takes_value(user, i)]
            found.append((names, node, uses, False))
    return found


def _leaving_backward(graph: Graph) -> list[tuple[tuple[str, ...], Value, list[Use], bool]]:
    known = anatomy(graph)
    names: dict[Node, list[str]] = {}
    for info in known.weights:
        for gradient in info.gradient:
            if gradient.graph is not graph:
                raise PassError(
                    f"the gradient {gradient!r} of weight '{info.name}' is computed inside a function, in front of "
                    "which nothing can be clipped: leave out each_rank"
                )
            names.setdefault(gradient, []).append(info.name)
    divisor = find_divisor(graph)
    found: list[tuple[tuple[str, ...], Value, list[Use], bool]] = []
    for gradient, weights in names.items():
        uses = [
            (user, i)
            for user, i in gradient.use_sites()
            if known.part(user) not in (FORWARD, BACKWARD) and takes_value(user, i)
        ]
        divided = divisor is not None and any(_divided_by(user, divisor) for user, _ in uses)
        found.append((tuple(weights), gradient, uses, divided))
    return found


def _divided_by(value: Value, divisor: Node | None) -> bool:
    while isinstance(value, Node) and value.op.name == "Cast":
        value = value.operand(0)
    return isinstance(value, Node) and divisor is not None and division_of(value) is value


def clip_each_rank(graph: Graph, by: str, limit: float, measured: bool) -> Value | None:
    """Clips in ``graph``; returns the norm of all gradients together where it is taken (``measured``: in any case)."""
    gradients = own_gradients(graph)
    fx = Effects(graph)
    divisor = find_divisor(graph)
    own_divisor = own_count(fx, divisor, SCOPE) if divisor is not None and any(g.divided for g in gradients) else None
    bound: Value = graph.constant(scalar_tensor("float32", limit))
    squares = [] if by == "value" and not measured else [_square(graph, g, own_divisor) for g in gradients]
    norm = _norm(graph, squares) if measured or by == "global-norm" else None
    for k, gradient in enumerate(gradients):
        if by == "value":
            _clip_elements(graph, gradient, bound, own_divisor)
            continue
        length = norm if by == "global-norm" and norm is not None else _norm(graph, [squares[k]])
        factor = graph.create("RealDiv", [bound, graph.create("Maximum", [length, bound], scope=SCOPE)], scope=SCOPE)
        _replace(graph, gradient, lambda x, f=factor: _times(graph, x, f))  # type: ignore[misc]
    fx.commit()
    return norm


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


def _mean(graph: Graph, value: Value, gradient: Own, divisor: Value | None) -> Value:
    wide = tensor_type(value).dtype.widened
    value = cast(graph, value, wide, scope=SCOPE)
    if divisor is None or not gradient.divided:
        return value
    return graph.create("RealDiv", [value, cast(graph, divisor, wide, scope=SCOPE)], scope=SCOPE)


def _square(graph: Graph, gradient: Own, divisor: Value | None) -> Value:
    total, *others = gradient.values
    for other in others:
        total = graph.create("Add", [total, other], scope=SCOPE)
    square = graph.create("Square", [_mean(graph, total, gradient, divisor)], scope=SCOPE)
    # Two weights with one gradient (the biases of a recurrent cell) count each, as natively.
    summed = cast(graph, reduce_sum(graph, square, scope=SCOPE), DType.FLOAT32, scope=SCOPE)
    times = graph.constant(scalar_tensor("float32", float(len(gradient.weights))))
    return summed if len(gradient.weights) == 1 else graph.create("Mul", [summed, times], scope=SCOPE)


def _norm(graph: Graph, squares: list[Value]) -> Value:
    total = squares[0]
    if len(squares) > 1:
        total = graph.create("AddN", [graph.create("MakeTuple", squares, scope=SCOPE)], scope=SCOPE)
    return graph.create("Sqrt", [total], scope=SCOPE)


def _times(graph: Graph, value: Value, factor: Value) -> Value:
    dtype = tensor_type(value).dtype
    wide = dtype.widened
    operands = [cast(graph, value, wide, scope=SCOPE), cast(graph, factor, wide, scope=SCOPE)]
    return cast(graph, graph.create("Mul", operands, scope=SCOPE, sources=[value]), dtype, scope=SCOPE)


def _clip_elements(graph: Graph, gradient: Own, limit: Value, divisor: Value | None) -> None:
    if len(gradient.values) > 1:
        raise PassError(
            f"the gradient of weight '{gradient.weights[0]}' has several summands, whose sum has the elements to "
            "limit: use by=global-norm or by=tensor-norm, or leave out each_rank"
        )
    bound = limit
    if divisor is not None and gradient.divided:
        bound = graph.create("Mul", [limit, divisor], scope=SCOPE)

    def limited(value: Value) -> Value:
        dtype = tensor_type(value).dtype
        x = cast(graph, value, dtype.widened, scope=SCOPE)
        high = cast(graph, bound, dtype.widened, scope=SCOPE)
        low = graph.create("Neg", [high], scope=SCOPE)
        x = graph.create(
            "Maximum", [graph.create("Minimum", [x, high], scope=SCOPE), low], scope=SCOPE, sources=[value]
        )
        return cast(graph, x, dtype, scope=SCOPE)

    _replace(graph, gradient, limited)


def _replace(graph: Graph, gradient: Own, make: Callable[[Value], Value]) -> None:
    for value, uses in zip(gradient.values, gradient.uses, strict=True):
        new = make(value)
        assert isinstance(new, Node)
        mark(new, {STAGE: RANK_CLIP})
        for user, i in uses:
            user.set_operand(i, new)


def clipped_by_rank(gradient: Value) -> Node | None:
    """Each rank's own gradient after its clip, if it clips it."""
    stack: list[Value] = [gradient]
    while stack:
        for user, i in stack.pop().use_sites():
            if user.marks.get(STAGE) == RANK_CLIP:
                return user
            if i == 0 and user.scope == SCOPE and user.op.name in ("Cast", "Mul", "Minimum", "Maximum"):
                stack.append(user)
    return None

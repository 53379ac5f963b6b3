"""Putting something on the path of a gradient (:mod:`ir.analysis.training.gradient_path` finds the paths)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ..analysis.training.results import TESTING
from ..analysis.training.stages import CENTRALIZE, GradientPath, Point
from ..core.attributes import Attribute
from ..core.errors import AnatomyError
from ..core.graph import Graph, Node, Value, rewire
from ..core.names import GRADIENT, PART, STAGE
from ..core.op import NO_ATTRIBUTES

_LINEAR = ("", "weight-decay", CENTRALIZE)
"""Stages behind which a gradient may be unscaled as well as in front of them."""


def mark(node: Node, marks: Mapping[str, Attribute]) -> None:
    """Adds marks to a node."""
    node.marks = {**(node.marks or NO_ATTRIBUTES), **marks}


def mark_gradient(value: Value, weights: Sequence[str], part: int | None = None) -> None:
    """Says that the gradient of ``weights`` starts at this node, or one summand of it, number ``part``."""
    assert isinstance(value, Node)
    of: Attribute = weights[0] if len(weights) == 1 else tuple(weights)
    mark(value, {GRADIENT: of} if part is None else {GRADIENT: of, PART: part})


def summed(point: Point, *, scope: str = "") -> Value:
    """The gradient at a point as one value: a new sum where it has several summands."""
    value, *others = point.values
    for other in others:
        assert point.graph is not None
        value = point.graph.create("Add", [value, other], scope=scope, sources=[value, other])
    return value


def unscale_first(paths: Iterable[GradientPath]) -> bool:
    """Unscales gradients in front of their weight decay where an optimizer adds the decay, scaled too, and unscales the
    sum: ``(g + s d) / s`` is ``g / s + d``. Says whether anything was changed: then the paths are to be found anew."""
    changed: set[Value] = set()
    for path in paths:
        stages = [point.stage for point in path.points]
        decay = stages.index("weight-decay") if "weight-decay" in stages else len(stages)
        unscale = next((k for k, stage in enumerate(stages) if k > decay and stage not in _LINEAR), decay)
        if unscale == decay or stages[unscale] != "unscale":
            continue
        total, product = path.points[decay].values[0], path.points[unscale].values[0]
        if isinstance(total, Node) and isinstance(product, Node) and product not in changed:
            _distribute(total, product, path.points[unscale - 1].values, path.points[decay - 1].values)
            changed.add(product)
    return bool(changed)


def _distribute(total: Node, product: Node, scaled: Sequence[Value], gradients: Sequence[Value]) -> None:
    """Multiplies each summand of ``total`` by the factor of ``product``, which goes; ``scaled``: its other one."""
    graph = total.home
    at = next(i for i, operand in enumerate(product.operands[:2]) if operand in scaled)
    inner = total.operand(0)
    summing = inner if isinstance(inner, Node) and inner.op.name == "MakeTuple" else total
    unscaled: list[Value] = []
    for i, summand in enumerate(summing.operands):
        operands = list(product.operands)
        operands[at] = summand
        with graph.inserting_before(summing):
            new = graph.create(product.op.name, operands, scope=product.scope, sources=[product, summand])
        if summand in gradients:
            mark(new, {STAGE: "unscale"})
            unscaled.append(new)
        summing.set_operand(i, new)
    # What tests whether the gradient is finite stays in front of what will bound it.
    tests = [(user, i) for user, i in product.use_sites() if user.op.name in TESTING]
    if tests and unscaled:
        rewire(tests, summed(Point("", tuple(unscaled), tests), scope=product.scope))
    product.replace_uses(product.operand(at))
    graph.erase(product)
    graph.sort()  # the factor may have stood behind the sum


def put(path: GradientPath, stage: str, make: Callable[[Graph, Value], Value]) -> Graph:
    """Replaces each value at ``stage`` by what ``make`` creates from it, for all who take it on to an update; the last
    node is marked. Whatever else the cell computes from it (a norm that it returns) stays. Only for what is linear in
    the gradient where that has several summands. Returns the graph changed."""
    point = path.at(stage)
    owner = point.graph
    if owner is None:
        raise AnatomyError(f"the gradient of weight '{path.weight}' is used by nothing")
    takers, measures = ([use for use in uses if point.follows(use[0])] for uses in (point.takers, point.measures))
    made: list[Value] = []
    for value in point.values:
        new = make(owner, value)
        if isinstance(new, Node) and new is not value:
            mark(new, {STAGE: stage})
        rewire([(user, i) for user, i in (*takers, *measures) if user.operand(i) is value], new)
        made.append(new)
    after = Point(stage, tuple(made), takers, measures, point.follows)
    others = [use for use in (*point.takers, *point.measures) if use not in (*takers, *measures)]
    point.takers, point.measures = [(n, 0) for n in made if isinstance(n, Node)], others
    path.points.insert(path.points.index(point) + 1, after)
    return owner


def merge(path: GradientPath, stage: str, totals: dict[tuple[Value, ...], Value], *, scope: str) -> None:
    """Makes the gradient at ``stage`` one value where it is several summands: their sum. Who adds them up gets zeros in
    place of all but the first. ``totals`` are sums that exist, of weights with the same gradient (the two biases of a
    recurrent cell), which may meet in the same place."""
    point = path.at(stage)
    owner = point.graph
    if len(point.values) == 1 or owner is None:
        return
    first = point.values[0]
    total = totals.get(point.values)
    if total is None:
        total = totals[point.values] = summed(point, scope=scope)
    for user, i in point.takers:
        value = user.operand(i)
        if value in point.values:
            user.set_operand(i, total if value is first else owner.create("ZerosLike", [value], scope=scope))
    point.values = (total,)
    point.takers = [(user, i) for user, i in point.takers if user.operand(i) is total]

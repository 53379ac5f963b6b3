"""The path of each gradient from the backward part to its update, stage by stage: where a pass puts something on it.

A gradient passes the stages in :data:`STAGES` in this order, whoever made them: the exporter (unscaling, clipping and
weight decay that the training cell does itself), or passes, which mark the nodes that they put there. A pass asks for
the value that has come through all stages up to its own, makes a new value of it, and puts that in its place. So the
order in which passes run does not matter, and each works on the graph of a whole step as on graphs that
gradient accumulation has cut.

The path ends where a gradient is used in more than one way (Adam's moments): there the update begins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from .attributes import Attribute
from .calls import bindings
from .errors import AnatomyError
from .graph import Graph
from .ops import is_effect
from .program import Program
from .training import BACKWARD, FORWARD, JUDGING, anatomy
from .types import TensorType, is_monad
from .values import CALL, NO_ATTRIBUTES, GraphRef, Input, Node, State, Value

STAGES = ("accumulate", "all-reduce", "unscale", "finite-check", "clip", "weight-decay", "centralize", "update")
"""What happens to a gradient on its way to the weight, in the order in which it must happen."""

GRADIENT, PART, STAGE = "gradient", "gradient_part", "stage"
"""Marks of nodes: the weight whose gradient starts at this node (and which summand of it it is), and the stage that
this node is."""

_PASSING = frozenset({"Cast", "Depend", "TensorMove", "Identity"})
_SCALING = frozenset({"Mul", "RealDiv", "Div", "Muls", "Divs"})
_CLIPPING = frozenset({"ClipByValue", "Minimum", "Maximum", "Select", "ClampTensor", "ClampScalar"})
_ADDING = frozenset({"Add", "AddN", "AddExt"})

Use = tuple[Node, int]


@dataclass(slots=True)
class Point:
    """The gradient after a stage: the values whose sum it is (one, but for weights used in several places), and who
    takes them on. ``stage`` is "" for the raw gradient and what merely passes it on."""

    stage: str
    values: tuple[Value, ...]
    takers: list[Use] = field(default_factory=list)

    @property
    def graph(self) -> Graph | None:
        """The graph in which new nodes that use the values stand."""
        return self.takers[0][0].graph if self.takers else None


@dataclass(slots=True)
class GradientPath:
    """The points of one gradient, in order; the first is where it leaves the backward part or the accumulators."""

    weight: str
    points: list[Point]

    def at(self, stage: str, graph: Graph | None = None) -> Point:
        """The last point in all stages up to and including ``stage``; ``graph``: the last one in that graph."""
        limit = STAGES.index(stage)
        best = self.points[0]
        for point in self.points:
            inside = graph is None or point.graph is graph
            if inside and point.stage and STAGES.index(point.stage) <= limit:
                best = point
        return best

    def has(self, stage: str) -> bool:
        return any(p.stage == stage for p in self.points)

    def put(self, stage: str, make: Callable[[Graph, Value], Value], graph: Graph | None = None) -> Graph:
        """Replaces each value at ``stage`` by what ``make`` creates from it, for all who take it on; the last node is
        marked. Only for what is linear in the gradient where that has several summands. Returns the graph changed."""
        point = self.at(stage, graph)
        owner = point.graph
        if owner is None:
            raise AnatomyError(f"the gradient of weight '{self.weight}' is used by nothing")
        made: list[Value] = []
        for value in point.values:
            new = make(owner, value)
            if isinstance(new, Node) and new is not value:
                mark(new, {STAGE: stage})
            for user, i in point.takers:
                if user.operand(i) is value:
                    user.set_operand(i, new)
            made.append(new)
        after = Point(stage, tuple(made), point.takers)
        point.takers = [(n, 0) for n in made if isinstance(n, Node)]
        self.points.insert(self.points.index(point) + 1, after)
        return owner

    def merge(self, stage: str, graph: Graph | None = None) -> None:
        """Makes the gradient at ``stage`` one value where it is several summands: their sum, which the taker then
        adds up with zeros in place of the others."""
        point = self.at(stage, graph)
        owner = point.graph
        if len(point.values) == 1 or owner is None:
            return
        first, *others = point.values
        total: Value = first
        for other in others:
            total = owner.create("Add", [total, other], sources=[first, other])
        for user, i in point.takers:
            value = user.operand(i)
            new = total if value is first else owner.create("ZerosLike", [value])
            user.set_operand(i, new)
        self.points.insert(self.points.index(point) + 1, Point(point.stage, (total,), point.takers))


def mark(node: Node, marks: Mapping[str, Attribute]) -> None:
    """Adds marks to a node."""
    node.marks = {**(node.marks or NO_ATTRIBUTES), **marks}


def updating_graphs(program: Program) -> list[Graph]:
    """The graphs of a program that update weights: its one step graph, or those fed from accumulators."""
    if len(program.graphs) == 1 and program.micro_batches() <= 1:
        return list(program.graphs.values())
    return [g for g in program.graphs.values() if any(GRADIENT in n.marks for n in g)]


def gradient_paths(graph: Graph) -> list[GradientPath]:
    """The path of every gradient that updates a weight in ``graph`` (see :func:`updating_graphs`), in the order of the
    weights. Weights that a tied copy shares its gradient with are not named twice. Linear in nodes."""
    parts: Mapping[Node, str] = {}
    starts = _marked(graph)
    if not starts:
        found = anatomy(graph)
        parts = found.parts
        starts = {}
        for info in found.weights:
            if info.gradient and info.gradient not in starts.values():
                starts[info.name] = info.gradient
    walk = _Walk(graph, parts)
    return [GradientPath(weight, walk.points(weight, values)) for weight, values in starts.items()]


def _marked(graph: Graph) -> dict[str, tuple[Node, ...]]:
    found: dict[str, list[Node]] = {}
    for node in graph:
        weight = node.marks.get(GRADIENT)
        if weight is not None:
            found.setdefault(str(weight), []).append(node)
    return {w: tuple(sorted(nodes, key=_part)) for w, nodes in found.items()}


def _part(node: Node) -> int:
    return int(node.marks.get(PART, 0))


class _Walk:
    def __init__(self, graph: Graph, parts: Mapping[Node, str]):
        self.graph = graph
        self.parts = parts
        self.bound = bindings(graph)
        self._judging: dict[Node, bool] = {}
        self._judged: dict[Node, bool] = {}

    def points(self, weight: str, values: Sequence[Value]) -> list[Point]:
        first = values[0]
        stage = "accumulate" if isinstance(first, Node) and GRADIENT in first.marks else ""
        points = [Point(stage, tuple(values))]
        while True:
            here = points[-1]
            here.takers = [use for value in dict.fromkeys(here.values) for use in self.takers(value)]
            following = self._following(weight, here)
            if following is None:
                return points
            points.append(following)

    def takers(self, value: Value) -> list[Use]:
        """Who takes a gradient on: its users on the update side that do not merely wait for it or judge it."""
        found: list[Use] = []
        for user, i in value.use_sites():
            if self.parts.get(user) in (FORWARD, BACKWARD) or user.op.name == "UpdateState":
                continue
            if user.op.name == "Depend" and i == 1:
                continue
            if user.op.name == "ZerosLike" or self._orders_only(user) or self._judges(user):
                continue
            found.append((user, i))
        return found

    def _orders_only(self, node: Node) -> bool:
        return node.op.name == "MakeTuple" and all(
            u.op.name == "UpdateState" or (u.op.name == "Depend" and i == 1) for u, i in node.use_sites()
        )

    def _judges(self, node: Node) -> bool:
        """Whether a user of a gradient only asks something of it (is it finite, how long is it): whatever it computes
        ends in such a question."""
        stack: list[tuple[Node, bool]] = [(node, False)]
        while stack:
            here, seen = stack.pop()
            if here in self._judging:
                continue
            if here.op.name in JUDGING:
                self._judging[here] = True
                continue
            if is_effect(here) or here.graph is None or here.op.name in ("Partial", "Switch"):
                self._judging[here] = False
                continue
            users = [u for u in here.uses if u.op.name != "UpdateState"]
            if any(here.graph.is_return(u) for u in users) or not users:
                self._judging[here] = False
            elif seen:
                self._judging[here] = all(self._judging.get(u, False) for u in users)
            else:
                stack.append((here, True))
                stack.extend((u, False) for u in users if u not in self._judging)
        return self._judging[node]

    def _following(self, weight: str, here: Point) -> Point | None:
        """The next point: all summands go the same way, and only that way."""
        takers = list(dict.fromkeys(user for user, _ in here.takers))
        if len(takers) > 1 and len(takers) == len(here.values):
            return self._side_by_side(weight, here)
        if len(takers) != 1:
            return None
        (taker,) = takers
        if taker.op.name == "MakeTuple":
            consumers = [u for u in taker.uses if u.op.name != "UpdateState"]
            if len(consumers) != 1 or consumers[0].op.name not in _ADDING:
                return None
            taker = consumers[0]
        elif taker.op.name == "Partial" or taker.op is CALL:
            return self._into_function(here, taker)
        stage = self._stage(taker, here.values, weight)
        return None if stage is None else Point(stage, (taker,))

    def _side_by_side(self, weight: str, here: Point) -> Point | None:
        """Each summand has a stage of its own, of one kind."""
        following: list[Value] = []
        stages: set[str | None] = set()
        for value in here.values:
            users = [u for u, _ in here.takers if any(o is value for o in u.operands[:3])]
            if len(users) != 1:
                return None
            stages.add(self._stage(users[0], (value,), weight))
            following.append(users[0])
        stage = stages.pop()
        return None if stages or stage is None else Point(stage, tuple(following))

    def _into_function(self, here: Point, taker: Node) -> Point | None:
        """The function's inputs that the values become, if it is called from this place only."""
        inputs: list[Value] = []
        for value in here.values:
            formal = [i for i in self._formals(taker, value) if i.uses]
            if len(formal) != 1 or len(self.bound.get(formal[0], ())) != 1:
                return None
            inputs.append(formal[0])
        return Point("", tuple(inputs))

    @staticmethod
    def _formals(taker: Node, value: Value) -> list[Input]:
        function = taker.operand(0)
        if not isinstance(function, GraphRef):
            return []
        return [function.graph.inputs[i - 1] for user, i in value.use_sites() if user is taker]

    def _stage(self, node: Node, values: Sequence[Value], weight: str) -> str | None:
        """The stage that ``node`` is for the gradient ``values``; None where the update begins; "" passes it on."""
        marked = node.marks.get(STAGE)
        if marked is not None:
            return str(marked)
        name = node.op.name
        if name in _PASSING:
            return ""
        if name == "AllReduce":
            return "all-reduce"
        if name == "Centralization" or (name == "Sub" and self._removes_mean(node, values)):
            return "centralize"
        if name in _CLIPPING:
            return "clip"
        if name in _SCALING:
            others = [o for o in node.operands[:2] if o not in values]
            if len(others) != 1 or (name in ("RealDiv", "Div") and node.operand(0) not in values):
                return None
            t = others[0].type
            if isinstance(t, TensorType) and t.size != 1:
                return None
            return "clip" if self._is_judged(others[0]) else "unscale"
        if name in _ADDING:
            summands = list(node.operands)
            if len(summands) == 1 and isinstance(summands[0], Node) and summands[0].op.name == "MakeTuple":
                summands = list(summands[0].operands)
            others = [s for s in summands if s not in values]
            if not others:
                return ""
            return "weight-decay" if any(self._comes_from(o, weight) for o in others) else None
        return None

    @staticmethod
    def _removes_mean(node: Node, values: Sequence[Value]) -> bool:
        mean = node.operand(1)
        return (
            isinstance(mean, Node)
            and mean.op.name == "ReduceMean"
            and mean.operand(0) in values
            and node.operand(0) in values
        )

    def _is_judged(self, value: Value) -> bool:
        """Whether a factor is computed from what some gradients were found to be (a norm), not from state alone."""
        stack: list[tuple[Value, bool]] = [(value, False)]
        while stack:
            here, seen = stack.pop()
            if not isinstance(here, Node) or here in self._judged:
                continue
            operands = [o for o in here.operands if isinstance(o, Node) and not is_monad(o.type)]
            if here.op.name in JUDGING:
                self._judged[here] = True
            elif seen or here.op.name == "Load" or self.parts.get(here) in (FORWARD, BACKWARD):
                self._judged[here] = any(self._judged.get(o, False) for o in operands)
            else:
                stack.append((here, True))
                stack.extend((o, False) for o in operands)
        return isinstance(value, Node) and self._judged[value]

    def _comes_from(self, value: Value, weight: str) -> bool:
        """Whether a summand is the weight times something."""
        stack: list[Value] = [value]
        seen: set[Value] = set()
        while stack:
            here = stack.pop()
            if here in seen:
                continue
            seen.add(here)
            if isinstance(here, State):
                if here.name == weight:
                    return True
            elif isinstance(here, Input):
                stack.extend(self.bound.get(here, ()))
            elif isinstance(here, Node) and (here.op.name in _SCALING | _PASSING or here.op.name == "Load"):
                stack.extend(o for o in here.operands[:2] if not is_monad(o.type))
        return False


def in_order(points: Iterable[Point]) -> bool:
    """Whether the stages of a path stand in their canonical order."""
    order = [STAGES.index(p.stage) for p in points if p.stage]
    return order == sorted(order)

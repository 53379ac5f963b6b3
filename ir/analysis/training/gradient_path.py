"""The path of each gradient from the backward part to its update, stage by stage: where a pass puts something on it.

A gradient passes the stages in :data:`STAGES` in this order, whoever made them: the exporter (unscaling, clipping and
weight decay that the training cell does itself), or passes, which mark the nodes that they put there. A pass asks for
the value that has come through all stages up to its own, makes a new value of it, and puts that in its place. So the
order in which passes run does not matter, and each works on the graph of a whole step as on graphs that
gradient accumulation has cut.

The path ends where a gradient is used in more than one way (Adam's moments): there the update begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ...core.attributes import Attribute, TensorValue
from ...core.errors import AnatomyError
from ...core.graph import Constant, Graph, GraphRef, Input, Node, State, Value
from ...core.names import GRADIENT, PART, STAGE
from ...core.op import CALL, NO_ATTRIBUTES
from ...core.predicates import is_effect, written_operands
from ...core.program import Program
from ...core.types import TensorType, is_monad
from ..effects.state_access import states_behind
from ..effects.tokens import orders_only
from ..functions.calls import bindings
from .anatomy import JUDGING, TrainingAnatomy, anatomy
from .network import BACKWARD, FORWARD

RANK_CLIP = "rank-clip"
"""The stage at which each rank clips what it has for itself (``clip-gradients{each_rank=true}``)."""
STAGES = (
    *("accumulate", RANK_CLIP, "all-reduce", "unscale", "finite-check", "clip", "weight-decay", "centralize"),
    "update",
)
"""What happens to a gradient on its way to the weight, in the order in which it must happen."""


_PASSING = frozenset({"Cast", "Depend", "TensorMove", "Identity"})
_SCALING = frozenset({"Mul", "RealDiv", "Div", "Muls", "Divs"})
_CLIPPING = frozenset({"ClipByValue", "Minimum", "Maximum", "Select", "ClampTensor", "ClampScalar"})
_ADDING = frozenset({"Add", "AddN", "AddExt"})
_MOVING = frozenset({"Add", "AddExt", "Sub", "SubExt", "AssignAdd", "AssignSub", "InplaceAddExt", "InplaceSubExt"})

_FINITE = frozenset({"IsFinite", "IsNan", "IsInf", "FloatStatus", "AllFinite", "ReduceAll", "ReduceAny"})

FINITE, SIZE = "finite", "size"
"""What the users of a gradient that do not take it on ask of it."""

Use = tuple[Node, int]


@dataclass(slots=True)
class Point:
    """The gradient after a stage: the values whose sum it is (one, but for weights used in several places), who takes
    them on, and who ``measures`` them (a norm for a later stage). ``stage`` is "" for the raw gradient and what merely
    passes it on."""

    stage: str
    values: tuple[Value, ...]
    takers: list[Use] = field(default_factory=list)
    measures: list[Use] = field(default_factory=list)

    @property
    def graph(self) -> Graph | None:
        """The graph in which new nodes that use the values stand."""
        return self.takers[0][0].graph if self.takers else None

    def total(self, *, scope: str = "") -> Value:
        """The gradient as one value: a new sum where it has several summands."""
        total, *others = self.values
        for other in others:
            assert self.graph is not None
            total = self.graph.create("Add", [total, other], scope=scope, sources=[total, other])
        return total


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

    @property
    def is_sum(self) -> bool:
        """Whether the values of the gradient are summands: they meet in a sum before the update begins. Else they are
        used for different updates."""
        return len(self.points[-1].values) == 1

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
            for user, i in (*point.takers, *point.measures):
                if user.operand(i) is value:
                    user.set_operand(i, new)
            made.append(new)
        after = Point(stage, tuple(made), point.takers, point.measures)
        point.takers, point.measures = [(n, 0) for n in made if isinstance(n, Node)], []
        self.points.insert(self.points.index(point) + 1, after)
        return owner

    def merge(self, stage: str, totals: dict[tuple[Value, ...], Value]) -> None:
        """Makes the gradient at ``stage`` one value where it is several summands: their sum. Who adds them up gets
        zeros in place of all but the first. ``totals`` are sums that exist, of weights with the same gradient (the two
        biases of a recurrent cell), which may meet in the same place."""
        point = self.at(stage)
        owner = point.graph
        if len(point.values) == 1 or owner is None:
            return
        first = point.values[0]
        total = totals.get(point.values)
        if total is None:
            total = totals[point.values] = point.total()
        for user, i in point.takers:
            value = user.operand(i)
            if value in point.values:
                user.set_operand(i, total if value is first else owner.create("ZerosLike", [value]))
        point.values = (total,)
        point.takers = [(user, i) for user, i in point.takers if user.operand(i) is total]


def mark(node: Node, marks: Mapping[str, Attribute]) -> None:
    """Adds marks to a node."""
    node.marks = {**(node.marks or NO_ATTRIBUTES), **marks}


def has_stage(program: Program, stage: str) -> bool:
    """Whether a pass has put ``stage`` on the path of a gradient."""
    return any(node.marks.get(STAGE) == stage for graph in program.graphs.values() for node in graph)


def is_fed(graph: Graph) -> bool:
    """Whether gradients come to a graph from accumulators, and not from its backward part."""
    return any(GRADIENT in node.marks for node in graph)


def weights_of(node: Node) -> tuple[str, ...]:
    """The weights whose gradient, or a summand of it, starts at a node; none where it is not marked."""
    weights = node.marks.get(GRADIENT, ())
    return (weights,) if isinstance(weights, str) else tuple(weights)


def updating_graphs(program: Program) -> list[Graph]:
    """The graphs of a program that update weights: those fed from accumulators, or its step graph with its variants."""
    fed = [graph for graph in program.graphs.values() if is_fed(graph)]
    return fed or (list(program.graphs.values()) if program.micro_batches() <= 1 else [])


def gradient_paths(graph: Graph, found: TrainingAnatomy | None = None) -> list[GradientPath]:
    """The path of every gradient that updates a weight in ``graph`` (see :func:`updating_graphs`), in the order of the
    weights, those whose gradient is a constant other than zero too. ``found``: its anatomy, if at hand. Linear in
    nodes."""
    parts: Mapping[Node, str] = {}
    starts: dict[str, tuple[Value, ...]] = {**_marked(graph)}
    if not starts:
        found = anatomy(graph) if found is None else found
        parts = found.parts
        for info in found.weights:
            if info.gradient or (len(info.fixed) == 1 and not _is_zero(info.fixed[0])):
                starts[info.name] = info.gradient or info.fixed
    alike = Counter(frozenset(values) for values in starts.values())
    walk = _Walk(graph, parts)
    paths = [
        GradientPath(weight, walk.points(weight, values, shared=alike[frozenset(values)] > 1))
        for weight, values in starts.items()
    ]
    return [path for path in paths if path.points[0].takers or not isinstance(path.points[0].values[0], Constant)]


def _is_zero(value: Value) -> bool:
    data = value.value if isinstance(value, Constant) else None
    return isinstance(data, TensorValue) and not any(data.data.view())


def _marked(graph: Graph) -> dict[str, tuple[Node, ...]]:
    found: dict[str, list[Node]] = {}
    for node in graph:
        for weight in weights_of(node):
            found.setdefault(weight, []).append(node)
    return {w: tuple(sorted(nodes, key=_part)) for w, nodes in found.items()}


def _part(node: Node) -> int:
    return int(node.marks.get(PART, 0))


class _Walk:
    def __init__(self, graph: Graph, parts: Mapping[Node, str]):
        self.graph = graph
        self.parts = parts
        self.bound = bindings(graph)
        self._asking: dict[Node, str | None] = {}
        self._judged: dict[Node, bool] = {}

    def points(self, weight: str, values: Sequence[Value], *, shared: bool) -> list[Point]:
        """``shared``: other weights have the same gradient."""
        first = values[0]
        stage = "accumulate" if isinstance(first, Node) and GRADIENT in first.marks else ""
        points = [Point(stage, tuple(values))]
        while True:
            here = points[-1]
            for value in dict.fromkeys(here.values):
                takers, measures = self.users(value)
                here.takers.extend(takers)
                here.measures.extend(measures)
            constant = isinstance(here.values[0], Constant)  # which may stand for other things elsewhere
            if shared or constant:
                own = [(user, i) for user, i in here.takers if weight in self._updated_by(user, i)]
                here.takers = own if own or constant else here.takers
                here.measures = [] if constant else here.measures
            following = self._following(weight, here)
            if following is None:
                return points
            if following.stage == "clip":
                _claim(points)
            points.append(following)

    def users(self, value: Value) -> tuple[list[Use], list[Use]]:
        """Who takes a gradient on, and who measures its size: its users on the update side that do not merely wait for
        it or ask whether it is finite."""
        takers: list[Use] = []
        measures: list[Use] = []
        for user, i in value.use_sites():
            if self.parts.get(user) in (FORWARD, BACKWARD) or user.op.name == "ZerosLike" or orders_only(user, i):
                continue
            asked = self._asked(user, i)
            if asked != FINITE:
                (takers if asked is None else measures).append((user, i))
        return takers, measures

    def _updated_by(self, node: Node, i: int) -> set[str]:
        """The states that updates write from what ``node`` makes of its operand ``i``, in its own graph or a function
        that it is passed to."""
        names: set[str] = set()
        stack: list[Use] = [(node, i)]
        seen: set[Node] = set()
        while stack:
            here, at = stack.pop()
            if here in seen or (here.op.name != "MakeTuple" and orders_only(here, at)):
                continue
            seen.add(here)
            function = here.operand(0) if here.num_operands else None
            if isinstance(function, GraphRef) and (here.op is CALL or here.op.name == "Partial"):
                stack.extend(function.graph.inputs[at - 1].use_sites())
            elif is_effect(here):
                for k in written_operands(here):
                    names.update(state.name for state in states_behind(here.operand(k), self.bound))
            else:
                stack.extend(here.use_sites())
        return names

    def _asked(self, user: Node, i: int) -> str | None:
        """What a use of a gradient asks of it, :data:`FINITE` or :data:`SIZE`; None where it takes the gradient on."""
        function = user.operand(0) if user.op is CALL or user.op.name == "Partial" else None
        if not isinstance(function, GraphRef):
            return self._asks(user)
        inside = {self._asks(u) for u in function.graph.inputs[i - 1].uses if u.op.name != "UpdateState"}
        return _together(inside)

    def _asks(self, node: Node) -> str | None:
        """What a user of a gradient asks of it, if whatever it computes ends in a question."""
        stack: list[tuple[Node, bool]] = [(node, False)]
        while stack:
            here, seen = stack.pop()
            if here in self._asking:
                continue
            if here.op.name in JUDGING:
                self._asking[here] = FINITE if here.op.name in _FINITE else SIZE
                continue
            if is_effect(here) or here.graph is None or here.op.name in ("Partial", "Switch"):
                self._asking[here] = None
                continue
            users = [u for u in here.uses if u.op.name != "UpdateState"]
            if any(here.graph.is_return(u) for u in users):
                self._asking[here] = None
            elif seen:
                self._asking[here] = _together({self._asking.get(u) for u in users})
            else:
                stack.append((here, True))
                stack.extend((u, False) for u in users if u not in self._asking)
        return self._asking[node]

    def _following(self, weight: str, here: Point) -> Point | None:
        """The next point: all summands go the same way, and only that way."""
        users = dict.fromkeys(user for user, _ in here.takers)
        takers = [user for user in users if not self._is_removed_mean(user, here.values)]
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
        if name in _SCALING and not self._is_step(node, weight):
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
            others = [s for s in summands if s not in values and not _is_zeros(s)]
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

    def _is_removed_mean(self, node: Node, values: Sequence[Value]) -> bool:
        """Whether ``node`` is the mean of a gradient that its only user takes away from it."""
        if node.op.name != "ReduceMean" or len(node.uses) != 1:
            return False
        (user,) = node.uses
        return user.op.name == "Sub" and self._removes_mean(user, values)

    def _is_step(self, node: Node, weight: str) -> bool:
        """Whether a scaled gradient is what the weight moves by: the factor is the learning rate."""
        users = [user for user, _ in self.users(node)[0]]
        return bool(users) and all(
            user.op.name in _MOVING and any(self._comes_from(o, weight, scaled=False) for o in user.operands[:2])
            for user in users
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

    def _comes_from(self, value: Value, weight: str, *, scaled: bool = True) -> bool:
        """Whether a value is the weight, times something if ``scaled``."""
        through = _SCALING | _PASSING if scaled else _PASSING
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
            elif isinstance(here, Node) and (here.op.name in through or here.op.name == "Load"):
                stack.extend(o for o in here.operands[:2] if not is_monad(o.type))
        return False


def _together(answers: Iterable[str | None]) -> str | None:
    """What several uses ask together: of the size if any does, nothing if any takes the gradient on."""
    asked = set(answers)
    if not asked or None in asked:
        return None
    return SIZE if SIZE in asked else FINITE


def _claim(points: Sequence[Point]) -> None:
    """A factor between the gradient whose norm is taken and the division by that norm is part of the clipping."""
    for point in reversed(points):
        if point.measures or point.stage not in ("", "unscale"):
            return
        if any(STAGE in v.marks for v in point.values if isinstance(v, Node)):
            return
        if point.stage and any(p.measures for p in points):
            point.stage = "clip"


def _is_zeros(value: Value) -> bool:
    return isinstance(value, Node) and value.op.name == "ZerosLike"


def in_order(points: Iterable[Point]) -> bool:
    """Whether the stages of a path stand in their canonical order."""
    order = [STAGES.index(p.stage) for p in points if p.stage]
    return order == sorted(order)

"""The path of each gradient from the backward part to its update, stage by stage: where a pass puts something on it.

A gradient passes the stages in :data:`.stages.STAGES` in this order, whoever made them: the exporter (unscaling,
clipping and weight decay that the training cell does itself), or passes, which mark the nodes that they put there. A
pass asks for the value that has come through all stages up to its own, makes a new value of it, and puts that in its
place (:mod:`ir.rewrite.stages`). So the order in which passes run does not matter, and each works on the graph of a
whole step as on graphs that gradient accumulation has cut.

The path ends where a gradient is used in more than one way (Adam's moments), or scaled for a slot (the 0.1 of
``m = 0.9 m + 0.1 g``): there the update begins. For example::

    state %w: float32[2]
    state %m: float32[2]
    graph @step(%x: float32[2]) {
      %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
      %y = Mul(%w0, %x) : float32[2] primal {unique_id = "2"}
      %loss = ReduceSum(%y, (), false, false) : float32[] primal {unique_id = "3"}
      %g = Mul(%x, %x) : float32[2] primal {forward_unique_id = "2"}     // the raw gradient
      %wide = Cast(%g, 43) : float32[2]                                  // passes it on
      %s = Mul(%wide, float32[]<0.5>) : float32[2]                       // unscale
      %norm = L2Loss(%s) : float32[]                                     // measures it
      %c = RealDiv(%s, %norm) : float32[2]                               // clip
      %decay = Mul(%w0, float32[]<0.1>) : float32[2]
      %pair = MakeTuple(%c, %decay)
      %d = AddN(%pair) : float32[2]                                      // weight-decay
      %new = ApplyMomentum(%w, %m, float32[]<0.1>, %d, float32[]<0.9>, umonad) : float32[2]
      %t = UpdateState(umonad, %new)
      %result = Depend(%loss, %t)
      return %result
    }
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from math import frexp, isclose

from ...core.attributes import scalar_of
from ...core.graph import Constant, Graph, GraphRef, Input, Node, State, Value
from ...core.names import GRADIENT, PART, STAGE
from ...core.op import CALL
from ...core.primitives import Family, named
from ...core.program import Program
from ...core.types import TensorType, is_monad
from ...core.walk import carried_operands, walk
from ..functions.calls import bindings
from .anatomy import TrainingAnatomy, anatomy
from .gradient_sources import JUDGING
from .gradient_users import GradientUsers
from .network import BACKWARD, FORWARD
from .stages import CENTRALIZE, GradientPath, Point
from .updating import updating_values

PASSING = named(Family.CAST, Family.COPY) | {"Depend"}
"""What passes a gradient on as it is."""
_DIVIDING = named(Family.QUOTIENT)
_MULTIPLYING = named(Family.PRODUCT)
_SCALING = _DIVIDING | _MULTIPLYING
_CLIPPING = named(Family.CLAMP, Family.CHOICE)
_ADDING = named(Family.SUM)
_MOVING = named(Family.SUM, Family.DIFFERENCE, in_place=True)

LEAST_SCALE = 16
"""The least factor of the loss that is taken for a loss scale: the derivative of a power multiplies by small numbers
too (a squared error by 2), and optimizers divide by them."""


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
    """The path of every gradient that updates a weight in ``graph`` (see :func:`updating_graphs`), constants other than
    zero too, in the order of the weights. ``found``: its anatomy, if at hand. Linear in nodes."""
    parts: Mapping[Node, str] = {}
    starts: dict[str, tuple[Value, ...]] = {**_marked(graph)}
    sparse: set[str] = set()
    if not starts:
        found = anatomy(graph) if found is None else found
        parts = found.parts
        sparse.update(info.name for info in found.weights if info.sparse)
        for info in found.weights:
            if info.gradient or (len(info.fixed) == 1 and not info.fixed[0].is_zero):
                starts[info.name] = info.gradient or info.fixed
    alike = Counter(frozenset(values) for values in starts.values())
    walk = _Walk(graph, parts, starts)
    paths = [
        GradientPath(weight, walk.points(weight, values, shared=alike[frozenset(values)] > 1), weight in sparse)
        for weight, values in starts.items()
    ]
    return [path for path in paths if path.points[0].takers or not isinstance(path.points[0].values[0], Constant)]


def _marked(graph: Graph) -> dict[str, tuple[Node, ...]]:
    found: dict[str, list[Node]] = {}
    for node in graph:
        for weight in weights_of(node):
            found.setdefault(weight, []).append(node)
    return {w: tuple(sorted(nodes, key=lambda n: int(n.marks.get(PART, 0)))) for w, nodes in found.items()}


class _Walk:
    def __init__(self, graph: Graph, parts: Mapping[Node, str], weights: Collection[str]):
        self.graph = graph
        self.parts = parts
        self.weights = weights
        self.bound = bindings(graph)
        self.users = GradientUsers(parts, self.bound)
        self._judged: dict[Node, bool] = {}
        self._bounded: dict[Node, bool] = {}

    def follows(self, node: Node) -> bool:
        """Whether an update follows from what ``node`` computes; of functions that is not asked."""
        return node.op is CALL or node.op.name in ("Partial", "MakeTuple") or node in self._updating

    @cached_property
    def _updating(self) -> set[Value]:
        return updating_values(self.graph, self.parts, self.bound, self.weights)

    def points(self, weight: str, values: Sequence[Value], *, shared: bool) -> list[Point]:
        """``shared``: other weights have the same gradient."""
        first = values[0]
        stage = "accumulate" if isinstance(first, Node) and GRADIENT in first.marks else ""
        points = [Point(stage, tuple(values))]
        while True:
            here = points[-1]
            here.follows = self.follows
            for value in dict.fromkeys(here.values):
                takers, measures = self.users.of(value)
                here.takers.extend(takers)
                here.measures.extend(measures)
            constant = isinstance(here.values[0], Constant)  # which may stand for other things elsewhere
            if shared or constant:
                own = [(user, i) for user, i in here.takers if weight in self.users.updated_by(user, i)]
                here.takers = own if own or constant else here.takers
                here.measures = [] if constant else here.measures
            following = self._following(weight, here)
            if following is None:
                return points
            if following.stage == "clip":
                _claim(points)
            points.append(following)

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
        if name in PASSING:
            return ""
        if name == "AllReduce":
            return "all-reduce"
        if name == "Centralization" or (name == "Sub" and self._removes_mean(node, values)):
            return CENTRALIZE
        if name in _CLIPPING:
            return "clip"
        if name in _SCALING and not self._is_step(node, weight):
            others = [o for o in node.operands[:2] if o not in values]
            if len(others) != 1 or (name in _DIVIDING and node.operand(0) not in values):
                return None
            t = others[0].type
            if isinstance(t, TensorType) and t.size != 1:
                return None
            if self._is_judged(others[0]):
                return "clip" if self._is_bounded(others[0]) or not self._is_step(node, weight, last=False) else None
            return None if self._is_for_slot(node, others[0], weight) else "unscale"
        if name in _ADDING:
            summands = list(node.operands)
            if len(summands) == 1 and isinstance(summands[0], Node) and summands[0].op.name == "MakeTuple":
                summands = list(summands[0].operands)
            zeros = {s for s in summands if isinstance(s, Node) and s.op.name == "ZerosLike"}
            others = [s for s in summands if s not in values and s not in zeros]
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

    def _is_step(self, node: Node, weight: str, *, last: bool = True) -> bool:
        """Whether a scaled gradient is what the weight moves by: the factor is the learning rate. Behind it may be what
        the optimizer judges (its norm); where it is not the ``last`` factor, others too."""
        value, users = node, [user for user, _ in self.users.of(node)[0]]
        while len(users) == 1 and users[0].op.name in _SCALING:
            factors = [o for o in users[0].operands[:2] if o is not value]
            if last and not all(map(self._is_judged, factors)):
                return False
            value, users = users[0], [user for user, _ in self.users.of(users[0])[0]]
        return bool(users) and all(
            user.op.name in _MOVING and any(self._comes_from(o, weight, scaled=False) for o in user.operands[:2])
            for user in users
        )

    def _is_for_slot(self, node: Node, factor: Value, weight: str) -> bool:
        """Whether an optimizer scales a gradient for what it keeps, by the 0.1 of ``m = 0.9 m + 0.1 g``: the product
        meets a slot, and the factor undoes nothing that the backward part was multiplied by."""
        return self._meets_slot(node, weight) and not self._undoes(node, factor)

    def _meets_slot(self, node: Node, weight: str) -> bool:
        users = [user for user, _ in self.users.of(node)[0]]
        while len(users) == 1 and users[0].op.name in PASSING:
            users = [user for user, _ in self.users.of(users[0])[0]]
        beside = [o for user in users if user.op.name in _MOVING | _ADDING for o in user.operands[:2] if o is not node]
        if not beside:
            return False
        written = {name for user, i in node.use_sites() for name in self.users.updated_by(user, i)} - {weight}
        return any(isinstance(s, State) and s.name in written for o in beside for s in self._origins(o))

    def _undoes(self, node: Node, factor: Value) -> bool:
        number = scalar_of(factor.literal)
        if number is None:
            return self._is_of_network(factor)
        scale = abs(number) if node.op.name in _DIVIDING else 1 / abs(number) if number else 0.0
        if scale < LEAST_SCALE:
            return False
        return frexp(scale)[0] == 0.5 or any(isclose(scale, known, rel_tol=1e-6) for known in self._multipliers)

    @cached_property
    def _multipliers(self) -> set[float]:
        """The numbers that the backward part multiplies by."""
        products = (n for n, part in self.parts.items() if part == BACKWARD and n.op.name in _MULTIPLYING)
        return {abs(number) for n in products for o in n.operands if (number := scalar_of(o.literal)) is not None}

    def _is_of_network(self, factor: Value) -> bool:
        """Whether a factor is computed from what the network takes, too (a loss scale). Where gradients come from
        accumulators, nobody sees the network."""

        def of_network(here: Value) -> bool:
            takers = [here] if isinstance(here, Node) else here.uses
            return any(self.parts.get(node) in (FORWARD, BACKWARD) for node in takers)

        return not self.parts or any(of_network(here) for here in walk([factor], carried_operands))

    def _is_judged(self, value: Value) -> bool:
        """Whether a factor is computed from what some gradients were found to be (a norm), not from state alone."""

        def below(here: Node) -> Sequence[Value]:
            stops = here.op.name == "Load" or self.parts.get(here) in (FORWARD, BACKWARD)
            return () if stops else [o for o in here.operands if not is_monad(o.type)]

        return _any_below(value, self._judged, JUDGING, below)

    def _is_bounded(self, factor: Value) -> bool:
        """Whether a factor has a limit, as that of a clip has; an optimizer that normalises divides by any norm."""

        def below(here: Node) -> Sequence[Value]:
            return () if here.op.name in JUDGING else carried_operands(here)

        return _any_below(factor, self._bounded, _CLIPPING, below)

    def _comes_from(self, value: Value, weight: str, *, scaled: bool = True) -> bool:
        """Whether a value is the weight, times something if ``scaled``."""
        return any(isinstance(here, State) and here.name == weight for here in self._origins(value, scaled=scaled))

    def _origins(self, value: Value, *, scaled: bool = True) -> Iterator[Value]:
        """What a value is a copy of, times something if ``scaled``."""
        passing = PASSING | {"Load"} | (_SCALING if scaled else frozenset())

        def following(here: Value) -> Sequence[Value]:
            if isinstance(here, Input):
                return self.bound.get(here, ())
            carries = isinstance(here, Node) and here.op.name in passing
            return carried_operands(here)[:2] if carries else ()

        return walk([value], following)


def _any_below(
    value: Value, known: dict[Node, bool], ops: Collection[str], below: Callable[[Node], Sequence[Value]]
) -> bool:
    """Whether one of ``ops`` made a value, or something ``below`` it. Each node is judged once, and ``known`` then."""
    stack: list[tuple[Value, bool]] = [(value, False)]
    while stack:
        here, seen = stack.pop()
        if not isinstance(here, Node) or here in known:
            continue
        operands = below(here)
        if here.op.name in ops:
            known[here] = True
        elif seen:
            known[here] = any(known.get(o, False) for o in operands if isinstance(o, Node))
        else:
            stack.append((here, True))
            stack.extend((o, False) for o in operands)
    return isinstance(value, Node) and known[value]


def _claim(points: Sequence[Point]) -> None:
    """A factor between the gradient whose norm is taken and the division by that norm is part of the clipping."""
    for point in reversed(points):
        if point.measures or point.stage not in ("", "unscale"):
            return
        if any(STAGE in v.marks for v in point.values if isinstance(v, Node)):
            return
        if point.stage and any(p.measures for p in points):
            point.stage = "clip"

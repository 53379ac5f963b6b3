"""The path of each gradient from the backward part to its update, stage by stage: where a pass puts something on it.

A gradient passes the stages in :data:`.stages.STAGES` in this order, whoever made them: the exporter (unscaling,
clipping and weight decay that the training cell does itself), or passes, which mark the nodes that they put there. A
pass asks for the value that has come through all stages up to its own, makes a new value of it, and puts that in its
place (:mod:`ir.rewrite.stages`). So the order in which passes run does not matter, and each works on the graph of a
whole step as on graphs that gradient accumulation has cut.

What the training cell computes is its own, and so is what it multiplies a gradient by: it unscales, or clips by a norm.
What it does besides (a mask, noise) is a treatment, and its end is what the optimizer is handed. What the optimizer's
cell computes belongs to the update (the 0.1 of ``m = 0.9 m + 0.1 g``), but for the division by what the training cell
has multiplied the derivative of the loss by (:mod:`.loss_multipliers`). :mod:`.cells` tells the cells. Where no cell is
told apart, a primitive that updates is the optimizer, and else all is the update's: paths note what was ``assumed``. A
graph behind accumulators has the cell and the multipliers in marks. The path ends where a gradient is used in more than
one way (Adam's moments): there the update begins. For example::

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
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from math import isclose

from ...core.attributes import Attribute, scalar_of
from ...core.graph import Constant, Graph, GraphRef, Input, Node, State, Use, Value
from ...core.names import GRADIENT, PART, STAGE
from ...core.op import CALL
from ...core.predicates import is_effect
from ...core.primitives import Family, facts, named
from ...core.program import Program
from ...core.sites import site
from ...core.types import TensorType
from ...core.walk import carried_operands, walk
from ..effects.tokens import orders_only
from ..functions.calls import bindings
from .anatomy import TrainingAnatomy, anatomy
from .cells import Cells, cell_of, within
from .gradient_users import GradientUsers
from .interpretation import Interpretation, interpret
from .loss_multipliers import Multiplier, is_among, loss_multipliers
from .network import BACKWARD, FORWARD
from .network import OPTIMIZER as UPDATE
from .stages import CENTRALIZE, TREATMENT, GradientPath, Point
from .update_side import nodes_of

OPTIMIZER, DOUBTFUL, MULTIPLIERS = "optimizer_cell", "doubtful_operators", "loss_multipliers"
"""Marks of a gradient behind accumulators: the cell of the optimizer that takes it, cells that tell nothing, and the
numbers and states by which the training cell multiplies the loss."""
PASSING = named(Family.CAST, Family.COPY) | {"Depend"}
"""What passes a gradient on as it is."""
_DIVIDING = named(Family.QUOTIENT)
_MULTIPLYING = named(Family.PRODUCT)
_SCALING = _DIVIDING | _MULTIPLYING
_CLIPPING = named(Family.CLAMP, Family.CHOICE)
_ADDING = named(Family.SUM)


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


def gradient_paths(
    graph: Graph, found: TrainingAnatomy | None = None, *, unscale: float | None = None
) -> list[GradientPath]:
    """The path of every gradient that updates a weight in ``graph`` (see :func:`updating_graphs`), constants other than
    zero too, in the order of the weights. ``found``: its anatomy, if at hand. ``unscale``: the user says that of the
    factors in the optimizer the division by this number unscales, and no other (1: none). Linear in nodes."""
    starts: dict[str, tuple[Value, ...]] = {**_marked(graph)}
    sparse: set[str] = set()
    if starts:
        walk = _Walk(graph, starts, None, unscale)
    else:
        found = anatomy(graph) if found is None else found
        sparse.update(info.name for info in found.weights if info.sparse)
        for info in found.weights:
            if info.gradient or (len(info.fixed) == 1 and not info.fixed[0].is_zero):
                starts[info.name] = info.gradient or info.fixed
        walk = _Walk(graph, starts, found, unscale)
    alike = Counter(frozenset(values) for values in starts.values())
    paths = [walk.path(w, sparse=w in sparse, shared=alike[frozenset(values)] > 1) for w, values in starts.items()]
    return [path for path in paths if path.points[0].takers or not isinstance(path.points[0].values[0], Constant)]


def told_by_marks(path: GradientPath) -> Mapping[str, Attribute]:
    """The marks that tell a graph behind accumulators what this graph tells of the optimizer."""
    marks: dict[str, Attribute] = {OPTIMIZER: path.optimizer} if path.optimizer else {}
    if path.doubtful:
        marks[DOUBTFUL] = path.doubtful
    return marks if path.multipliers is None else {**marks, MULTIPLIERS: path.multipliers}


def _marked(graph: Graph) -> dict[str, tuple[Node, ...]]:
    found: dict[str, list[Node]] = {}
    for node in graph:
        for weight in weights_of(node):
            found.setdefault(weight, []).append(node)
    return {w: tuple(sorted(nodes, key=lambda n: int(n.marks.get(PART, 0)))) for w, nodes in found.items()}


class _Walk:
    """``starts``: the gradients by weight; ``found``: the anatomy, None where marks tell."""

    def __init__(
        self,
        graph: Graph,
        starts: Mapping[str, Sequence[Value]],
        found: TrainingAnatomy | None,
        unscale: float | None,
    ):
        self.graph = graph
        self.starts = starts
        self.found = found
        self.unscale = unscale
        self.parts: Mapping[Node, str] = found.parts if found is not None else {}
        self.bound = bindings(graph)
        self.users = GradientUsers(self.parts, self.bound)
        self._cells = Cells(self.parts)
        self._assumed = self._doubt = ""
        self._undone: list[float | None] = []

    def follows(self, node: Node) -> bool:
        """Whether an update follows from what ``node`` computes; of functions that is not asked."""
        return node.op is CALL or node.op.name in ("Partial", "MakeTuple") or node in self._updating

    @cached_property
    def _updating(self) -> set[Value]:
        return self._done.followed(self.starts)

    @cached_property
    def _done(self) -> Interpretation:
        return interpret(self.graph, {}) if self.found is None else self.found.side.done

    @cached_property
    def _updates(self) -> dict[str, list[Node]]:
        """The nodes of the update side that write each weight."""
        versions = self._done.versions()
        return {weight: nodes_of(versions.get(weight, ())) for weight in self.starts}

    def _optimizer(self, weight: str) -> str:
        """The cell of the optimizer of a weight; "" where none is told apart, or several are."""
        if self.found is None:
            marks = [node.marks for node in self.starts[weight] if isinstance(node, Node)]
            return next((str(m[OPTIMIZER]) for m in marks if OPTIMIZER in m), "")
        cells = {cell for node in self._updates[weight] if (cell := self._cells.optimizer(node))}
        return cells.pop() if len(cells) == 1 else ""

    @cached_property
    def _doubtful(self) -> frozenset[str]:
        """The operators of the network's cells whose scope nodes of the update side carry too: what an operator of
        Python stands for (``*``) has the scope in which MindSpore expanded it first."""
        if self.found is None:
            return frozenset(str(c) for node in self.graph for c in _listed(node.marks.get(DOUBTFUL)))
        network = {_operator(node) for node, part in self.parts.items() if part in (FORWARD, BACKWARD)}
        return frozenset(_operator(n) for n in self.graph.all_nodes() if self.found.part(n) == UPDATE) & network

    @cached_property
    def multipliers(self) -> tuple[Multiplier, ...] | None:
        """What the derivative of the loss is multiplied by; None where that cannot be told."""
        if self.found is not None:
            return loss_multipliers(self.found)
        known = next((m for node in self.graph if (m := node.marks.get(MULTIPLIERS)) is not None), None)
        return None if known is None else tuple(m for m in _listed(known) if isinstance(m, (float, str)))

    def path(self, weight: str, *, sparse: bool, shared: bool) -> GradientPath:
        """``shared``: other weights have the same gradient."""
        self._cell, self._assumed, self._doubt = self._optimizer(weight), "", ""
        # MindSpore's optimizers treat gradients by primitives, which are told: an operator of Python is the cell's.
        self._primitive = all(facts(update.op).gradient is not None for update in self._updates[weight])
        points = self._points(weight, self.starts[weight], shared=shared)
        known = self.multipliers if "multipliers" in self.__dict__ else None
        doubtful = tuple(sorted(self._doubtful))
        return GradientPath(weight, points, sparse, self._cell, doubtful, known, self._assumed, self._doubt)

    def _points(self, weight: str, values: Sequence[Value], *, shared: bool) -> list[Point]:
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
            self._undone = [divisor_of(v) for p in points if p.stage == "unscale" for v in p.values]
            following = self._following(weight, here) or self._treated(weight, here)
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
            consumers = [u for u, i in taker.use_sites() if not orders_only(u, i)]
            if len(consumers) != 1 or consumers[0].op.name not in _ADDING:
                return None
            taker = consumers[0]
        elif taker.op.name == "Partial" or taker.op is CALL:
            return self._into_function(here, taker)
        stage = self._stage(taker, here.values, weight)
        return None if stage is None else Point(stage, (taker,))

    def _treated(self, weight: str, here: Point) -> Point | None:
        """What the optimizer is handed of a gradient that the training cell does something else with; None where it is
        handed the gradient itself, or several values."""
        if not self._cell or all(self._in_optimizer(use) for use in here.takers):
            return None
        numbers = all(map(_is_number, here.values))
        handed: dict[Value, None] = {}

        def onward(value: Value) -> Iterator[Value]:
            for user, i in self.users.of(value)[0]:
                if self._in_optimizer((user, i)):
                    if weight in self.users.updated_by(user, i):
                        handed[value] = None
                elif user.op is CALL or user.op.name == "Partial":
                    yield from (f for f in self._formals(user, value) if len(self.bound.get(f, ())) == 1)
                elif numbers or not _is_number(user):
                    yield user

        for _ in walk(here.values, onward):
            pass
        if len(handed) > 1 and (joined := self._joined(weight, here, handed)) is not None:
            handed = {joined: None}
        if len(handed) == 1 and handed.keys() != {*here.values}:
            return Point(TREATMENT, tuple(handed))
        if not handed or not handed.keys() <= {*here.values}:
            self._assumed = (
                "what its training cell does to the gradient before its optimizer takes it cannot be followed from "
                f"{', '.join(site(user) for user, _ in here.takers[:2])} on: taken for a part of the update"
            )
        return None

    def _joined(self, weight: str, here: Point, values: Collection[Value]) -> Value | None:
        """The first value by way of which alone ``values`` reach the update, where nothing tells whose the nodes
        between are. An optimizer is handed one value for a weight: what joins several is the training cell's."""

        def taken(value: Value) -> dict[Node, None]:
            users = (u for u, _ in self.users.of(value)[0] if u in self._updating or u.op.name == "MakeTuple")
            return {user: None for user in users if is_effect(user) or not _is_number(user)}

        def is_told(node: Node) -> bool:
            return is_effect(node) or node.op is CALL or node.op.name == "Partial" or within(cell_of(node), self._cell)

        starts = [*here.values, *values]
        region = dict.fromkeys(walk(starts, lambda v: [u for u in taken(v) if not is_told(u)]))
        before: Counter[Value] = Counter(user for value in region for user in taken(value))
        ready: list[Value] = [value for value in region if not before[value]]
        arrived: Counter[Value] = Counter()
        opened = 0
        while ready:
            value = ready.pop()
            opened -= before[value]
            if not opened and isinstance(value.type, TensorType) and value not in starts and not ready:
                return value
            opened += len(users := taken(value))
            arrived.update(users.keys())
            ready += [user for user in users if user in region and arrived[user] == before[user]]
        return None

    def _in_optimizer(self, use: Use) -> bool:
        """Whether the cell of the optimizer takes a value there, through a function or a tuple too."""
        user, i = use
        function = user.operand(0) if user.op is CALL or user.op.name == "Partial" else None
        if isinstance(function, GraphRef):
            inside = function.graph.inputs[i - 1].use_sites()
            return any(self._in_optimizer(u) for u in inside if not orders_only(*u))
        if user.op.name == "MakeTuple":
            return any(self._in_optimizer(u) for u in user.use_sites() if not orders_only(*u))
        outside = self._is_outside(user, user.operands[i : i + 1])
        return not (self._primitive if outside is None else outside)

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
            return "clip" if self._is_outside(node, values) is not False else None
        if name in _SCALING:
            others = [o for o in node.operands[:2] if o not in values]
            if len(others) != 1 or (name in _DIVIDING and node.operand(0) not in values):
                return None
            t = others[0].type
            if isinstance(t, TensorType) and t.size != 1:
                return None
            return self._of_factor(node, others[0], values, weight)
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

    def _is_outside(self, node: Node, values: Collection[Value]) -> bool | None:
        """Whether a node that takes a gradient's ``values`` is computed outside of the optimizer; None where nothing
        tells. The scope of a doubtful node tells nothing, but the optimizer takes no input of the graph, nothing of the
        forward part, and nothing goes back from it to the training cell."""
        cell = cell_of(node)
        if not self._cell or within(cell, self._cell) or _operator(node) not in self._doubtful:
            return not within(cell, self._cell) if self._cell else None

        def above(value: Value) -> Sequence[Value]:
            told = isinstance(value, Node) and (value.op.name == "Load" or _operator(value) not in self._doubtful)
            return () if told else carried_operands(value)

        for value in walk([o for o in carried_operands(node) if o not in values], above):
            if isinstance(value, Input) and value in self.graph.inputs:
                return True
            if isinstance(value, Node) and self.parts.get(value) != BACKWARD:
                if within(cell_of(value), self._cell):
                    return False
                if self.parts.get(value) == FORWARD and value.op.name != "Load":
                    return True
        below = walk(
            [node], lambda n: [u for u, i in n.use_sites() if _operator(n) in self._doubtful and not orders_only(u, i)]
        )
        outer = (n for n in below if n.op.name != "MakeTuple" and _operator(n) not in self._doubtful)
        return True if any(not within(cell_of(n), self._cell) for n in outer) else None

    def _of_factor(self, node: Node, factor: Value, values: Collection[Value], weight: str) -> str | None:
        """The stage of a gradient that is multiplied or divided by one number; None where that is of the update."""
        outside = self._is_outside(node, values)
        judged = factor in self._made
        if outside:
            return "clip" if judged else "unscale"
        if judged and outside is False:
            return None
        divisor = divisor_of(node)
        undone = any(isclose(divisor, d, rel_tol=1e-6) for d in self._undone if d is not None and divisor is not None)
        if self.unscale is not None and not judged:
            told = divisor is not None and self.unscale != 1 and isclose(divisor, self.unscale, rel_tol=1e-6)
            return "unscale" if told and not undone else None
        primitive = outside is None and self._primitive
        known = () if primitive or judged else self.multipliers
        multiplied = (
            False if known is None
            else is_among(known, divisor) if divisor is not None
            else self._holds(factor, known)
        )  # fmt: skip
        if multiplied and not undone:
            return "unscale"
        own = not primitive and (judged or divisor is None)  # a norm, or a state that the loss is not multiplied by
        if known is None or multiplied or (outside is None and not own):
            what = "a stage of the training cell" if primitive else "a part of the update"
            why = "which cell computes it" if outside is None else "what multiplies the loss"
            why = "which of several divisions by one number unscales" if multiplied else why
            if self._cell and outside is None and not primitive and not multiplied and not judged:
                self._doubt = (
                    f"{site(node)} may unscale the gradient in the training cell or be a part of the optimizer, for "
                    "its scope is where the operator was used first"
                )
            self._assumed = (
                f"{site(node)} is taken for {what}: the file does not tell {why}; unscale=NUMBER or none says"
            )
        return ("clip" if judged else "unscale") if primitive else None

    def _holds(self, factor: Value, known: Sequence[Multiplier]) -> bool:
        """Whether a factor is made of a state that multiplies the loss."""
        return any(isinstance(here, State) and here.name in known for here in self._origins(factor))

    @cached_property
    def _made(self) -> set[Value]:
        """All that is computed from gradients: so is a factor that is made of their norm."""
        formals: dict[Value, list[Value]] = {}
        for formal, given in self.bound.items():
            for value in given:
                formals.setdefault(value, []).append(formal)

        def onward(value: Value) -> Iterator[Value]:
            users = (user for user, i in value.use_sites() if not orders_only(user, i))
            yield from (user for user in users if self.parts.get(user) not in (FORWARD, BACKWARD))
            yield from formals.get(value, ())

        nodes = self.graph.all_nodes()
        starts: list[Value] = [n for n in nodes if self.parts.get(n) == BACKWARD or GRADIENT in n.marks]
        return set(walk(starts, onward))

    def _comes_from(self, value: Value, weight: str) -> bool:
        """Whether a value is the weight, times something."""
        return any(isinstance(here, State) and here.name == weight for here in self._origins(value))

    def _origins(self, value: Value) -> Iterator[Value]:
        """What a value is a copy of, times something."""
        passing = PASSING | _SCALING | {"Load", "Reciprocal"}

        def following(here: Value) -> Sequence[Value]:
            if isinstance(here, Input):
                return self.bound.get(here, ())
            carries = isinstance(here, Node) and here.op.name in passing
            return carried_operands(here)[:2] if carries else ()

        return walk([value], following)


def _listed(value: Attribute) -> Sequence[Attribute]:
    """The elements of an attribute that is a list; none of another."""
    return value if isinstance(value, (tuple, list)) else ()


def divisor_of(value: Value) -> float | None:
    """The constant that a node divides by; None where it divides by none."""
    if not isinstance(value, Node) or value.op.name not in _SCALING:
        return None
    number = next((n for o in value.operands[:2][::-1] if (n := scalar_of(o.literal))), None)
    return number if number is None or value.op.name in _DIVIDING else 1.0 / number


def _operator(node: Node) -> str:
    """A primitive of a cell."""
    return f"{cell_of(node)}/{node.op.name}"


def _is_number(value: Value) -> bool:
    """Whether a value is one number, in which the gradients of all weights may meet."""
    return isinstance(value.type, TensorType) and value.type.is_static and value.type.size == 1


def _claim(points: Sequence[Point]) -> None:
    """A factor between the gradient whose norm is taken and the division by that norm is part of the clipping."""
    for point in reversed(points):
        if point.measures or point.stage not in ("", "unscale"):
            return
        if any(STAGE in v.marks for v in point.values if isinstance(v, Node)):
            return
        if point.stage and any(p.measures for p in points):
            point.stage = "clip"

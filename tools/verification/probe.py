"""The original with its gradients laid open: what it computes comes out, what its optimizer is given goes in.

The whole graph stays as it is, effects too; only the uses of gradients on the update side are replaced by inputs. So
nothing of this is the accumulation that is to be judged: averages are taken outside, by the caller, and the update is
the original's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...ir.analysis.batch.joins import ELEMENTS
from ...ir.analysis.effects.state_access import states_behind
from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.functions.calls import bindings
from ...ir.analysis.training.anatomy import TrainingAnatomy
from ...ir.analysis.training.cells import Cells, cell_of, within
from ...ir.analysis.training.network import BACKWARD, FORWARD, network_parts
from ...ir.analysis.training.phases import phases
from ...ir.analysis.training.stages import GradientPath
from ...ir.core.errors import AnatomyError
from ...ir.core.graph import Graph, GraphRef, Input, Node, State, Value
from ...ir.core.op import CALL
from ...ir.core.predicates import written_operands
from ...ir.core.primitives import Family, named
from ...ir.core.program import Program
from ...ir.core.types import DType, TensorType
from ...ir.core.walk import carried_operands, walk
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.settle_gradients import settled_anatomy
from ...ir.rewrite.settle_results import settle_results
from ...passes.step.results import named_results
from ...passes.step.unscaling import TOLD, unscaled_paths

PREFIX = "gradient."
"""Of the names of inputs and results for gradients; a cut has its stage in front of it."""
HANDED = "handed"
"""The stage of gradients as the optimizer's cell takes them, but unscaled; as they are clipped, where none is told."""
RAW = ""
"""The stage of gradients as they leave the backward part."""
WEIGHT = "weight of the micro-batch"


@dataclass(frozen=True)
class Slot:
    """One gradient value of the original: the weights that it moves (several may have the same one, one may have
    several summands), and its type."""

    name: str
    weights: tuple[str, ...]
    type: TensorType


@dataclass(frozen=True)
class Cut:
    """A second place at which gradients are laid open: where a pass does something to them once a cycle, as they come
    through the ``stage`` of the training cell's own. They are like :attr:`Probe.gradients`."""

    stage: str
    gradients: tuple[Slot, ...]
    taken: Mapping[str, bool | None]
    """By weight: whether the cell of its optimizer takes this as it is; None where the file tells no such cell."""


@dataclass(frozen=True)
class Probe:
    """``program`` takes the original's inputs, then one for each of ``gradients``, then those of ``cuts``, in the order
    in which they stand; its outputs are the original's, then these. ``closed``: why a stage that was asked for is no
    cut; "" where all are. ``written`` is the state that forward and backward write, ``served`` maps slots to weights,
    and ``copies`` what the network reads and the update side writes from a weight. ``beside`` is state that the update
    side writes and no update of a weight follows from (a norm of the gradients that the cell keeps).
    ``unit`` is the rounding unit of the coarsest float type that backward computes in. ``turns``: how often the cell
    goes backward with updates in between. ``vanishing``: gradients up to this become zero where backward computes in
    float16, and not where they are scaled.
    """

    program: Program
    gradients: tuple[Slot, ...]
    weights: tuple[str, ...]
    written: frozenset[str]
    served: dict[str, str]
    copies: dict[str, str]
    beside: frozenset[str]
    unit: float
    turns: int
    vanishing: float
    cuts: tuple[Cut, ...] = ()
    closed: str = ""


def make_probe(original: Program, weight: str | None = None, stages: Sequence[str] = (), unscale: str = TOLD) -> Probe:
    """AnatomyError where the gradients of the original cannot be laid open. ``weight`` names the value that weighs a
    micro-batch, which becomes an output too. ``stages``: of these cuts, in their order; ``unscale``: what the user says
    of gradients there."""
    if len(original.graphs) != 1:
        raise AnatomyError("the original has several graphs: give the file that was compiled, not a program")
    program = original.copy()
    (graph,) = program.graphs.values()
    settle_results(graph, network_parts(graph))
    if stages:
        unscaled_paths(graph, unscale)
    found = settled_anatomy(graph)
    moved: dict[Node, list[str]] = {}
    for info in found.weights:
        for gradient in info.gradient:
            moved.setdefault(gradient, []).append(info.name)
    fx = Effects(graph)
    effects = (e for e in fx.list if found.part(e.node) in _NETWORK)
    written = {s.name for e in effects for s in e.writes if isinstance(s, State)}
    every = {s.name for e in fx.list for s in e.writes if isinstance(s, State)}
    live = found.side.done.followed(info.name for info in found.weights)
    updated = {value.name for value in live if isinstance(value, State)}
    beside = every - written - updated
    beside -= _of_updated(graph, fx, beside, updated).union(*(info.slots for info in found.weights))
    outputs = dict(named_results(graph))
    if weight is not None:
        outputs[WEIGHT] = _named(graph, weight, outputs)
    for gradient, weights in moved.items():
        if gradient.graph is not graph or not isinstance(gradient.type, TensorType):
            raise AnatomyError(f"the gradient of '{weights[0]}' is computed inside a function, from where none is had")
    wanted, closed = _cuts(graph, stages, unscale)
    taken = {stage: _taken(graph, found, at) for stage, at in wanted.items()}
    given: dict[Value, Value] = {}

    def lay_open(moved: Mapping[Node, Iterable[str]], prefix: str) -> tuple[Slot, ...]:
        slots = []
        for i, (gradient, weights) in enumerate(moved.items()):
            here = given.get(gradient, gradient)
            assert isinstance(here, Node)
            assert isinstance(here.type, TensorType)
            slot = Slot(f"{prefix}{i}", tuple(weights), here.type)
            # Updates stay behind what computes the gradient: that may read the weight in a closure, which no token
            # tells.
            with graph.inserting_after(here):
                given[gradient] = graph.create("Depend", [graph.add_input(slot.name, slot.type), here])
            for user, at in here.use_sites():
                if (
                    user is not given[gradient]
                    and found.part(user) not in _NETWORK
                    and not orders_only(user, at)
                    and not graph.is_return(user)
                ):
                    user.set_operand(at, given[gradient])
            outputs[slot.name] = here
            slots.append(slot)
        return tuple(slots)

    slots = lay_open(moved, PREFIX)
    cuts = tuple(Cut(stage, lay_open(at, f"{stage} {PREFIX}"), taken[stage]) for stage, at in wanted.items())
    unit = _rounding_unit(found)
    before = phases(graph, found.parts)
    turns = len({before[n] for n in graph if found.part(n) == BACKWARD}) or 1
    graph.outputs = tuple(outputs)
    fx.commit(graph.create("MakeTuple", list(outputs.values())))
    served = {slot: info.name for info in found.weights for slot in info.slots}
    return Probe(
        program,
        slots,
        tuple(w.name for w in found.weights),
        frozenset(written),
        served,
        {copy: info.name for info in found.weights for copy in info.copies},
        frozenset(beside),
        unit,
        turns,
        VANISHING if unit == _UNITS[DType.FLOAT16] else 0.0,
        cuts,
        closed,
    )


def _of_updated(graph: Graph, fx: Effects, states: Collection[str], updated: Collection[str]) -> set[str]:
    """Those of ``states`` that are written from what an update left in ``updated`` (an average of the new weights)."""
    place = {node: i for i, node in enumerate(graph)}
    since: dict[str, int] = {}
    for e in fx.list:
        for name in (s.name for s in e.writes if isinstance(s, State) and s.name in updated):
            since.setdefault(name, place[e.node])
    found: set[str] = set()
    for e in fx.list:
        own = {s.name for s in e.writes if isinstance(s, State)} & {*states}
        above: Iterator[Value] = walk([e.node], carried_operands) if own else iter(())
        takes = ((place[n], v.name) for n in above if isinstance(n, Node) for v in n.operands if isinstance(v, State))
        if any(at > since.get(name, at) for at, name in takes):
            found |= own
    return found


def _cuts(graph: Graph, stages: Sequence[str], unscale: str) -> tuple[dict[str, dict[Node, list[str]]], str]:
    """The values that come through each stage, with their weights; and why there are none."""
    cuts: dict[str, dict[Node, list[str]]] = {stage: {} for stage in stages}
    for path in unscaled_paths(graph, unscale) if stages else ():
        for stage in stages:
            for value in _handed(path) if stage == HANDED else path.at(stage).values:
                if not isinstance(value, Node) or value.graph is not graph or not isinstance(value.type, TensorType):
                    why = "is computed inside a function" if isinstance(value, Node) else "is no computed value"
                    return {}, f"the gradient of '{path.weight}' {why} when it is changed, from where none is had"
                cuts[stage].setdefault(value, []).append(path.weight)
    return cuts, ""


def _handed(path: GradientPath) -> tuple[Value, ...]:
    outside = [
        point
        for point in path.points
        if point.stage == "unscale"
        or not any(isinstance(v, Node) and within(cell_of(v), path.optimizer) for v in point.values)
    ]
    return outside[-1].values if path.optimizer else path.at("clip").values


def _taken(graph: Graph, found: TrainingAnatomy, at: Mapping[Node, Iterable[str]]) -> dict[str, bool | None]:
    """By weight, whether the cell of its optimizer takes a value as it is. Told by scopes alone."""
    bound, cells = bindings(graph), Cells(found.parts)
    optimizers: dict[str, set[str]] = {}
    for node in graph.all_nodes():
        if found.part(node) not in _NETWORK:
            for state in (s for i in written_operands(node) for s in states_behind(node.operand(i), bound)):
                if cell := cells.optimizer(node):
                    optimizers.setdefault(state.name, set()).add(cell)

    def onward(value: Value) -> Iterator[Value]:
        for user, i in value.use_sites():
            if orders_only(user, i) or found.part(user) in _NETWORK:
                continue
            function = user.operand(0) if user.op is CALL or user.op.name == "Partial" else None
            if isinstance(function, GraphRef):
                yield function.graph.inputs[i - 1]
            elif user.op.name in _PASSING or any(within(cell_of(user), cell) for cell in every):
                yield user

    every = set().union(*optimizers.values())
    taken: dict[str, bool | None] = {}
    for value, weights in at.items():
        reached: Iterator[Value] = walk([value], onward)
        met = {cell_of(v) for v in reached if isinstance(v, Node)}
        for weight in weights:
            own = optimizers.get(weight, set())
            taken[weight] = any(within(cell, outer) for cell in met for outer in own) if own else None
    return taken


_PASSING = named(Family.CAST, Family.COPY) | {"Depend", "MakeTuple", "TupleGetItem"}
_NETWORK = (FORWARD, BACKWARD)
VANISHING = 8 * 2.0**-25
"""Half the least positive number of float16 becomes zero; a gradient is a sum of several such numbers."""
_UNITS = {DType.FLOAT16: 2.0**-10, DType.BFLOAT16: 2.0**-7}


def _rounding_unit(found: TrainingAnatomy) -> float:
    backward = (n.type for n in found.graph if found.part(n) == BACKWARD)
    return max((_UNITS.get(t.dtype, 0.0) for t in backward if isinstance(t, TensorType)), default=0.0) or 2.0**-23


def weighing_inputs(graph: Graph, weight: str) -> list[str]:
    """The inputs that the value of that name, which weighs a micro-batch, is made of."""
    found = _named(graph, weight.removeprefix(ELEMENTS), dict(named_results(graph)))
    return [v.name for v in walk([found], carried_operands) if isinstance(v, Input)]


def _named(graph: Graph, name: str, results: Mapping[str, Value]) -> Value:
    _, elements, name = name.rpartition(ELEMENTS)
    nodes = (n for n in graph if name in (n.name, n.name.rpartition(":")[0]))
    found = next((v for v in graph.inputs if v.name == name), None) or next(nodes, None) or results.get(name)
    if found is None:
        raise AnatomyError(f"the original has no value named '{name}', which is to weigh a micro-batch")
    return graph.create("OnesLike", [found]) if elements else found

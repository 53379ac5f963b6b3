"""The learning rates of the graphs that update weights, in whatever form an export has them, and how they are set.

MindSpore keeps a rate in a state that the optimizer takes (``learning_rate``, or one for each group of parameters), in
a list of rates from which the step count takes one, or in a formula of the step count.
:mod:`ir.analysis.training.rates` says which it is.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...ir.analysis.effects.state_access import states_behind
from ...ir.analysis.functions.calls import bindings
from ...ir.analysis.training.anatomy import anatomy
from ...ir.analysis.training.rates import Updates, list_of
from ...ir.builders.nodes import Nodes
from ...ir.core.attributes import TensorValue
from ...ir.core.data import BytesData, numbers
from ...ir.core.errors import PassError
from ...ir.core.graph import Constant, Graph, Node, State, Use, Value, tensor_type
from ...ir.core.predicates import written_operands
from ...ir.core.primitives import facts
from ...ir.core.program import Program
from ...ir.core.sites import site
from ...ir.core.types import DType, TensorType
from ...ir.rewrite.effects.editing import Effects
from .names import TABLE
from .split import forget_unused
from .updates import count_updates, happened

NAME = "learning_rate"
"""How MindSpore's optimizers call the state of their rate: what a new one is called."""
OWN, UPDATES = "schedule.learning_rate", "schedule.updates"
SCOPE = "schedule"
DIVIDE_BY_RATE = frozenset({"ApplyFtrl"})
"""Optimizers that make NaN of a learning rate of zero."""


@dataclass(slots=True)
class Rate:
    """One learning rate of a program. ``numbers``: its value, or those of a list by the step count; None where the
    graph computes it. ``state``: that which holds it, if it is one number. ``sites``: who takes it, where it is not in
    such a state."""

    name: str
    numbers: tuple[float, ...] | None
    state: str | None = None
    weights: dict[str, None] = field(default_factory=dict)
    sites: dict[Use, None] = field(default_factory=dict)

    @property
    def largest(self) -> float | None:
        return max(self.numbers) if self.numbers else None


def find_rates(program: Program, graphs: Sequence[Graph]) -> list[Rate]:
    """The learning rates by which ``graphs`` update weights. PassError, naming weight and node, for an update whose
    rate nobody can tell, or that takes it where none can be put. Linear in nodes for each update."""
    found: dict[object, Rate] = {}
    for graph in graphs:
        asked = Updates(program, graph)
        unknown: dict[str, Node] = {}
        for node, weight in _weight_updates(program, graph):
            taken = asked.rates(node)
            sources = dict.fromkeys(_key(source) for source, _ in taken)
            if len(sources) > 1 and facts(node.op).rate is None:
                raise PassError(
                    f"graph '{graph.name}' moves weight '{weight}' by a product of {' and '.join(map(repr, sources))}"
                    f" ({site(node)}), and which of them is the learning rate is not told: export an optimizer with "
                    "one number for it"
                )
            if not taken:
                unknown[weight] = node
            for source, use in taken:
                rate = found.setdefault(_key(source), _rate(program, source))
                rate.weights[weight] = None
                if rate.state is None:
                    if use[0].graph is not graph:
                        raise PassError(
                            f"graph '{graph.name}' has the learning rate of weight '{weight}' ({site(source)}) in a "
                            "function, behind a condition: ask for all passes in one pipeline, or export the optimizer "
                            "with a number for it"
                        )
                    rate.sites[use] = None
        for weight in (name for name in unknown if not any(name in rate.weights for rate in found.values())):
            raise PassError(
                f"graph '{graph.name}' updates weight '{weight}' by {unknown[weight].op.name}, and nothing there is a "
                "learning rate that can be recognised: export an optimizer of mindspore.nn that takes one, or ask for "
                "replace-optimizer before"
            )
    if not found:
        for graph in graphs:
            anatomy(graph)  # says why no weight is known
        raise PassError("nothing updates a weight, so there is no learning rate")
    return list(found.values())


def _weight_updates(program: Program, graph: Graph) -> Iterator[tuple[Node, str]]:
    """The nodes that write trained weights, each with the weight."""
    bound = bindings(graph)
    for node in graph.all_nodes():
        for i in written_operands(node):
            for state in states_behind(node.operand(i), bound):
                variable = program.state[state.name]
                if variable.role == "weight" and variable.trainable is not False:
                    yield node, state.name


def _key(source: Value) -> object:
    """What tells rates apart, in all graphs of a program."""
    if isinstance(source, Constant):
        return source.value
    listed = list_of(source)
    return source.name if listed is None else listed.name


def _rate(program: Program, source: Value) -> Rate:
    state = source if isinstance(source, State) else list_of(source)
    if state is not None:
        variable = program.state[state.name]
        values = numbers(variable.type, variable.data).reshape(-1)
        return Rate(state.name, tuple(map(float, values)), state.name if state is source else None)
    value = source.literal
    if isinstance(value, TensorValue):
        return Rate("a constant", tuple(map(float, numbers(value.type, value.data).reshape(-1))))
    if isinstance(value, (int, float)):
        return Rate("a constant", (float(value),))
    return Rate(f"%{source.name}", None)


def set_rates(program: Program, graphs: Sequence[Graph], tables: Sequence[tuple[Rate, Sequence[float]]]) -> None:
    """From now on each rate is that of its table at the number of updates before this one; after the end it is the
    last. All tables are of one length.

    The state that holds a rate is written before it is read, so all that take it see the new one, also in functions.
    What a graph computes, and a rate that is a constant, gives way to such a state of the pass. A table is a ``fixed``
    state of float32 numbers: the graph reads one of them in each update.
    """
    used = program.used_state()
    places: list[_Place] = []
    for number, (rate, table) in enumerate(tables):
        ending = f".{number}" if number else ""
        data = BytesData(memoryview(array("f", table)).cast("B"))
        program.add_state(TABLE + ending, TensorType(DType.FLOAT32, (len(table),)), "fixed", data)
        state = rate.state
        if state is None:
            state = OWN + ending
            program.add_state(state, TensorType(DType.FLOAT32, ()), "hyperparameter", BytesData(data.view()[:4]))
        places.append(_Place(rate, state, TABLE + ending))
    counter = _counter(program, graphs)
    if counter is None:
        program.add_state(UPDATES, TensorType(DType.INT32, ()), "hyperparameter")
    for graph in graphs:
        _set(program, graph, places, counter)
        forget_unused(graph)
    program.drop_state(used)


@dataclass(frozen=True, slots=True)
class _Place:
    rate: Rate
    state: str
    table: str


def _set(program: Program, graph: Graph, places: Sequence[_Place], counter: str | None) -> None:
    taken_place = happened(program, graph, scope=SCOPE)
    fx, n = Effects(graph), Nodes(graph, SCOPE)
    step: Value
    if counter is None:
        step, _ = count_updates(fx, UPDATES, taken_place, scope=SCOPE)
    else:
        step = n.reshape(fx.load(graph.state(counter, program.state[counter].type), scope=SCOPE))
    length = min(program.state[place.table].type.size for place in places)
    at = n.op("Minimum", step, n.number(length - 1, tensor_type(step).dtype.value))
    for place in places:
        variable = program.state[place.state]
        state = graph.state(place.state, variable.type)
        table = fx.load(graph.state(place.table, program.state[place.table].type), scope=SCOPE)
        operands = [table, at, graph.constant(0), graph.constant(0)]
        value = n.cast(graph.create("Gather", operands, TensorType(DType.FLOAT32, ()), scope=SCOPE), variable.dtype)
        if taken_place is not None:
            value = n.op("Select", taken_place, value, n.reshape(fx.load(state, scope=SCOPE)))
        fx.append("Assign", [state, n.reshape(value, *variable.shape)], scope=SCOPE, sources=[state])
        fx.list.insert(0, fx.list.pop())  # all that reads the rate stands behind it
        sites = [(user, i) for user, i in place.rate.sites if user.graph is graph]
        if sites:
            rate = fx.load(state, scope=SCOPE, initial=False)
            fx.list.insert(1, fx.list.pop())
            for user, i in sites:
                old = tensor_type(user.operand(i))
                user.set_operand(i, n.cast(n.reshape(rate, *old.shape), old.dtype))
    fx.commit()


def _counter(program: Program, graphs: Sequence[Graph]) -> str | None:
    """The state that counts the updates already: each graph adds one to it where it updates weights."""
    common: set[str] | None = None
    for graph in graphs:
        bound = bindings(graph)
        bodies = {node.graph for node, _ in _weight_updates(program, graph)}
        found = {
            state.name
            for node in graph.all_nodes()
            if node.op.name == "AssignAdd" and node.graph in bodies and _is_one(node.operand(1))
            for state in states_behind(node.operand(0), bound)
            if program.state[state.name].role == "hyperparameter"
        }
        common = found if common is None else common & found
    return min(common) if common else None


def _is_one(value: Value) -> bool:
    """Whether a value is one integer, 1."""
    literal = value.literal
    if not isinstance(literal, TensorValue) or literal.type.size != 1 or not literal.type.dtype.value.startswith("int"):
        return False
    return int(numbers(literal.type, literal.data).reshape(-1)[0]) == 1

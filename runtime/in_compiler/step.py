"""One training step on its way through the compiler: read, rewritten by a pipeline, and written again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ...ir.analysis.training.anatomy import anatomy
from ...ir.analysis.training.results import names_of_results
from ...ir.core.data import Data, ZeroData
from ...ir.core.errors import Error, NotTraining
from ...ir.core.graph import Graph, Value
from ...ir.core.program import Program, StateVariable
from ...ir.core.types import TensorType, TupleType, Type
from ...ir.core.walk import result_value
from ...ir.formats.mindir.reader import read_bytes
from ...ir.formats.mindir.writer import stateless_bytes
from ...ir.formats.storage.self_contained import lower_to_single_graph
from ...ir.rewrite.cpu import broadcasting, transposing
from ...ir.rewrite.effects.editing import Effects
from ...ir.rewrite.roles import assign_roles
from ..lowering import alone, half_state, measures, ownership, predication, reciprocal, weighting, world
from ..lowering.context import Context
from ..lowering.lower import lower
from .order import order_as_run
from .update import accumulating_graph

Compile = Callable[[Program, str], Program]
"""Passes, run on a program for a target."""
ONE_GRAPH = (
    "A step must be one graph that holds forward, gradients and optimizer, compiled after bc.enable: run a Model or a "
    "training cell in graph mode (mindspore.set_context(mode=mindspore.GRAPH_MODE)), or put @mindspore.jit on the "
    "function that does all three."
)
LOWERINGS = (alone, world, reciprocal, weighting, predication, broadcasting, transposing, measures)
"""Those of a session that are not about its host, in its order, so that both compute the same bits."""
REPORTED = "report."
"""How states begin that hold what the update reports: the results that a pass adds to those of the step."""


@dataclass(frozen=True, slots=True)
class LiveData(Data):
    """The value of a Parameter, read from it when it is asked for."""

    parameter: Any
    length: int

    @property
    def nbytes(self) -> int:
        return self.length

    def view(self) -> memoryview:
        return memoryview(self.parameter.get_bytes())


@dataclass(frozen=True)
class Rewritten:
    """``program``: what the passes made. ``graph``: its whole cycle in one graph, or where the update is ``apart`` what
    each call runs. ``state``: that of the cycle. The results are those of the step as it was."""

    program: Program
    graph: Graph
    state: dict[str, StateVariable]
    apart: bool

    def to_bytes(self) -> bytes:
        return stateless_bytes(self.graph, self.state, self.program.metadata)


def read_step(data: bytes, parameters: Mapping[str, Any]) -> Program:
    """The graph that MindSpore hands out, as a program whose state has the values of these Parameters."""
    program = read_bytes(data, "the step")
    for name, variable in program.state.items():
        if name in parameters:
            variable.data = LiveData(parameters[name], variable.nbytes)
    order_as_run(program.graphs["step"])
    return program


def trained(program: Program, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The Parameters that a graph trains, by name: none where it trains nothing. AnatomyError where it updates
    something, and not from gradients that it holds."""
    (graph,) = program.graphs.values()
    try:
        found = anatomy(graph)
    except NotTraining:
        return {}
    return {weight.name: parameters[weight.name] for weight in found.weights}


def rewrite_step(program: Program, passes: Compile, watched: bool = False) -> Rewritten:
    """Error for what has no form inside of the compiler, where the step keeps its inputs, its results and its
    Parameters. ``watched``: the host sees each call of the step, and may run the update behind it."""
    target, rank, ranks = _place()
    (source,) = program.graphs.values()
    program = assign_roles(program)
    compiled = passes(program, target)
    _refuse_other_inputs(source, compiled)
    context = Context(compiled, target, rank, ranks)
    lowered = {name: lower(graph, context, LOWERINGS).graph for name, graph in compiled.graphs.items()}
    kept = names_of_results(source, len(source.outputs))
    first = accumulating_graph(compiled, context, kept) if watched else None
    if first is None:
        graph, state = _one_graph(replace(compiled, graphs=lowered), context)
    else:
        graph, state = lowered[first].clone()[0], dict(compiled.state)
    _refuse_other_state(program, state)
    graph = lower(graph, context, (half_state,)).graph
    _keep_results(source, graph, state)
    return Rewritten(compiled, graph, state, first is not None)


def _one_graph(program: Program, context: Context) -> tuple[Graph, dict[str, StateVariable]]:
    """The whole cycle as one graph. Error where its graphs share out the state over ranks, or have no such form."""
    divided = any(ownership.applies(graph, context) for graph in program.graphs.values())
    try:
        if divided:
            raise Error("the passes share out state over the ranks, and a script's Parameters are whole on each")
        return lower_to_single_graph(program)
    except Error as error:
        raise Error(
            f"this step cannot be rewritten inside of MindSpore's compiler: {error.message}",
            python="bc.capture and bc.Session train such a program.",
        ) from error


def _place() -> tuple[str, int, int]:
    """The target that MindSpore compiles for, and the rank of this process among how many."""
    import mindspore
    from mindspore.communication import GlobalComm, get_group_size, get_rank

    ranks = (get_rank(), get_group_size()) if GlobalComm.INITED else (0, 1)
    return (mindspore.get_context("device_target").lower(), *ranks)


def _refuse_other_inputs(source: Graph, compiled: Program) -> None:
    for graph in compiled.graphs.values():
        if graph.inputs and [v.type for v in graph.inputs] != [v.type for v in source.inputs]:
            raise Error(
                "the passes make a step of other inputs, but inside of MindSpore's compiler a step takes what the "
                "script hands it: leave that pass out, and give the script such data"
            )


def _refuse_other_state(program: Program, state: Mapping[str, StateVariable]) -> None:
    for name, variable in state.items():
        known = program.state.get(name)
        if known is not None and (known.dtype, known.shape) != (variable.dtype, variable.shape):
            raise Error(
                f"the passes make '{name}' {variable.type}, but the script's Parameter of that name is {known.type}",
                python="bc.capture and bc.Session train such a program.",
            )


def _keep_results(source: Graph, graph: Graph, state: dict[str, StateVariable]) -> None:
    """The step returns what it did; what passes add to that goes to states, which the script can read."""
    value, given = result_value(graph), result_value(source)
    if _as_value(value.type) == _as_value(given.type):
        return
    kept = names_of_results(source, len(source.outputs))
    names, parts = graph.outputs, _leaves(graph, value)
    if len(parts) != len(names) or not set(kept) <= set(names):
        raise Error(
            f"the step returns {given.type}, and the rewritten one {value.type}",
            python="bc.capture and bc.Session train such a program.",
        )
    items = dict(zip(names, parts, strict=True))
    effects = Effects(graph)
    for name, item in items.items():
        if name in kept or not isinstance(item.type, TensorType):
            continue
        held = f"{REPORTED}{name}"
        type_ = TensorType(item.type.dtype, item.type.shape)
        state[held] = StateVariable(held, type_, ZeroData(type_.nbytes), "monitor")
        effects.append("Assign", [graph.state(held, type_), item])
    effects.commit(_packed(graph, given.type, iter([items[name] for name in kept])))
    graph.outputs = tuple(kept)
    if _as_value(result_value(graph).type) != _as_value(given.type):
        raise Error(f"the step returns {given.type}, and the rewritten one {result_value(graph).type}")


def _leaves(graph: Graph, value: Value) -> list[Value]:
    """The elements of a result, those of tuples in it each for itself."""
    if not isinstance(value.type, TupleType):
        return [value]
    taken = [graph.create("TupleGetItem", [value, graph.constant(i)]) for i in range(len(value.type.elements))]
    return [leaf for item in taken for leaf in _leaves(graph, item)]


def _packed(graph: Graph, type_: Type, leaves: Iterator[Value]) -> Value:
    """The next leaves in tuples, as a value of this type has them."""
    if not isinstance(type_, TupleType):
        return next(leaves)
    packed = [_packed(graph, element, leaves) for element in type_.elements]
    return graph.create("MakeList" if type_.is_list else "MakeTuple", packed)


def _as_value(given: Type) -> Type:
    """A type, whether what has it is the memory of a state or not: a call copies what it returns."""
    if isinstance(given, TupleType):
        return replace(given, elements=tuple(map(_as_value, given.elements)))
    return replace(given, ref="") if isinstance(given, TensorType) else given

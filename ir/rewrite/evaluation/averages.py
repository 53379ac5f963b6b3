"""The averages that weight-average keeps, in the place of the weights themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ...builders.cast import cast
from ...core.errors import PassError
from ...core.graph import Graph, State, tensor_type
from ...core.names import average_of
from ...core.program import Program
from ...core.sites import site
from ...core.types import DType
from .network import Evaluation


def averages_of(program: Program) -> dict[str, str]:
    """The state that holds the average of each weight that has one; PassError where none has."""
    found = {name: average_of(name) for name in program.state if average_of(name) in program.state}
    if not found:
        raise PassError("the program keeps no averages of its weights: compile it with the pass 'weight-average'")
    return found


def averaged_values(program: Program, values: Mapping[str, Any]) -> dict[str, Any]:
    """The average of each weight that has one, of the state ``values``: by the weight's name, in its type (float32 for
    bfloat16)."""
    averaged = {}
    for weight, average in averages_of(program).items():
        if average not in values:
            raise PassError(f"the values lack '{average}', the average of a weight: they come from another program")
        dtype = program.state[weight].dtype
        averaged[weight] = values[average] if dtype is DType.BFLOAT16 else values[average].astype(dtype.value)
    return averaged


def with_averages(network: Evaluation, program: Program) -> Evaluation:
    """``network`` of ``program``, which reads averages where it has read weights."""
    averages = averages_of(program)
    graph = network.graph.clone()[0]
    for weight, average in averages.items():
        if weight in graph.states:
            _exchange(graph, graph.states.pop(weight), graph.state(average, program.state[average].type))
    state = {name: program.state[name] for name in graph.states}
    return replace(network, program=replace(network.program, graphs={graph.name: graph}, state=state))


def _exchange(graph: Graph, weight: State, average: State) -> None:
    if weight.type == average.type:
        weight.replace_uses(average)
        return
    for user, _ in weight.use_sites():
        if user.op.name != "Load":
            raise PassError(
                f"the weight '{weight.name}' is {weight.type}, and {site(user)} takes it as it is: its average is "
                f"{average.type}, so the network cannot run on averages"
            )
        with graph.inserting_before(user):
            loaded = graph.create("Load", [average, user.operand(1)], scope=user.scope)
            narrow = cast(graph, loaded, tensor_type(weight).dtype, scope=user.scope)
        user.replace_uses(narrow)
        graph.erase(user)

"""The weight of a micro-batch in the mean of its cycle: the sum of an input or of a value of the network, or the number
of its elements, as a term."""

from __future__ import annotations

from ..analysis.batch.joins import ELEMENTS
from ..analysis.training.results import names_of_results
from ..builders.reduce import scalar_sum
from ..core.graph import Graph, Value
from ..symbolic.execution import Execution, Outcome, Unproved

WEIGHT = "\0weight"
"""What stands for the weight where factors are states by name."""


def weight_of(graph: Graph, name: str, run: Outcome, execution: Execution) -> int:
    """The weight that an input, a result or a node of ``graph`` of that name gives a micro-batch; ``run``: of the
    graph."""
    terms = execution.terms
    _, elements, name = name.rpartition(ELEMENTS)
    at = next((i for i, v in enumerate(graph.inputs) if v.name == name), None)
    named = dict(zip(names_of_results(graph, len(run.result)), run.result, strict=False))
    nodes = {n.name: n for n in graph} | {n.name.rpartition(":")[0]: n for n in graph if ":" in n.name}
    met = next((t for t, node in enumerate(terms.nodes) if node is not None and node is nodes.get(name)), -1)
    term = named.get(name, met) if at is None else terms.make(("input", at))
    node = graph.inputs[at] if at is not None else terms.nodes[term] if term >= 0 else None
    type_ = None if node is None else node.type
    if type_ is None:
        raise Unproved(f"the original has no input, result or node '{name}' that may weigh a micro-batch")
    weight = Graph("weight")
    value: Value = weight.add_input("value", type_)
    value = weight.create("OnesLike", [value]) if elements else value
    weight.result = scalar_sum(weight, value, scope="")
    return execution.run(weight, {}, [term]).result[0]

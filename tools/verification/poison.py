"""The program with its gradients open to attack: each can be made not finite by itself, without touching the data.

Data that overflows mostly spoils all gradients at once, and a check that forgets one of them would pass.
"""

from __future__ import annotations

from ...ir.analysis.training.network import BACKWARD, network_parts
from ...ir.builders.cast import cast
from ...ir.core.attributes import scalar_tensor
from ...ir.core.graph import rewire, tensor_type
from ...ir.core.predicates import is_float_tensor
from ...ir.core.program import Program
from ...ir.core.types import tensor
from ...ir.rewrite.effects.editing import Effects
from ...passes.step.crossings import update_uses

SCOPE = "boost-verify"


def poisonable(program: Program) -> tuple[Program, int]:
    """A copy whose graphs take two more inputs: a number and a value, which is added to all elements of the gradient of
    that number (in the order of the graph) where it leaves the backward part. And how many there are. Graphs that take
    no micro-batch are those of the program itself."""
    copy = program.copy()
    most = 0
    for name, graph in copy.graphs.items():
        if not graph.inputs:
            copy.graphs[name] = program.graphs[name]
            continue
        parts = network_parts(graph)
        fx = Effects(graph)
        which = graph.add_input("verify.which", tensor("int32"))
        value = graph.add_input("verify.value", tensor("float32"))
        zero = graph.constant(scalar_tensor("float32", 0.0))
        number = 0
        for node in list(graph):
            if parts.get(node) != BACKWARD or not is_float_tensor(node):
                continue
            uses = [(user, i) for user, i in update_uses(node, parts) if not graph.is_return(user)]
            if not uses:
                continue
            chosen = graph.create("Equal", [which, graph.constant(scalar_tensor("int32", number))], scope=SCOPE)
            poison = cast(graph, graph.create("Select", [chosen, value, zero], scope=SCOPE), tensor_type(node).dtype)
            spoiled = graph.create("Add", [node, poison], scope=SCOPE)
            rewire(uses, spoiled)
            number += 1
        most = max(most, number)
        fx.commit()
    return copy, most

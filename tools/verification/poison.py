"""The program with its gradients open to attack: each can be made not finite by itself, without touching the data.

Data that overflows mostly spoils all gradients at once, and a check that forgets one of them would pass.
"""

from __future__ import annotations

from ...ir.analysis.effects.tokens import orders_only
from ...ir.analysis.training.network import BACKWARD, FORWARD, network_parts
from ...ir.builders.cast import cast
from ...ir.core.attributes import scalar_tensor
from ...ir.core.program import Program
from ...ir.core.types import TensorType, tensor
from ...ir.rewrite.effects.editing import Effects

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
            if parts.get(node) != BACKWARD or not isinstance(node.type, TensorType) or not node.type.dtype.is_float:
                continue
            uses = [
                (user, i)
                for user, i in node.use_sites()
                if parts.get(user) not in (FORWARD, BACKWARD) and not orders_only(user, i) and not graph.is_return(user)
            ]
            if not uses:
                continue
            chosen = graph.create("Equal", [which, graph.constant(scalar_tensor("int32", number))], scope=SCOPE)
            poison = cast(graph, graph.create("Select", [chosen, value, zero], scope=SCOPE), node.type.dtype)
            spoiled = graph.create("Add", [node, poison], scope=SCOPE)
            for user, i in uses:
                user.set_operand(i, spoiled)
            number += 1
        most = max(most, number)
        fx.commit()
    return copy, most

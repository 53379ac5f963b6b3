"""The trained weights by depth: layers, in the order in which the forward part uses them."""

from __future__ import annotations

from ..ir.errors import PassError
from ..ir.gradient_path import gradient_paths, updating_graphs
from ..ir.program import Program
from ..ir.training import FORWARD, network_parts
from ..ir.values import State


def layers_by_depth(program: Program) -> list[list[str]]:
    """Trained weights in the order in which the forward part first uses them, grouped: each matrix or filter begins a
    layer, so that a convolution and its BatchNorm stay together."""
    weights = {path.weight for graph in updating_graphs(program) for path in gradient_paths(graph)}
    feeding = next((g for g in program.graphs.values() if g.inputs), None)
    if feeding is None:
        raise PassError("no graph of the program takes inputs, so none has a forward part")
    order: dict[str, None] = {}
    parts = network_parts(feeding)
    for node in feeding:
        if parts.get(node) == FORWARD:
            for operand in node.operands:
                if isinstance(operand, State) and operand.name in weights:
                    order[operand.name] = None
    layers: list[list[str]] = []
    for name in order:
        if not layers or len(program.state[name].shape) > 1:
            layers.append([])
        layers[-1].append(name)
    return layers

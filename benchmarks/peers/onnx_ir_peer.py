"""onnx-ir on a graph: ``python onnx_ir_peer.py GRAPH SCRATCH``."""

from __future__ import annotations

from pathlib import Path

import onnx_ir as ir  # type: ignore[import-not-found,unused-ignore]
from graph import PeerGraph, Step, run  # type: ignore[import-not-found,unused-ignore]
from onnx_ir.passes.common import (  # type: ignore[import-not-found,unused-ignore]
    CommonSubexpressionEliminationPass,
    RemoveUnusedNodesPass,
)


def build(graph: PeerGraph) -> ir.Model:
    def value(name: str) -> ir.Value:
        return ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([8, 8]))

    values = [value(f"input{i}") for i in range(graph.inputs)]
    inputs = list(values)
    nodes = []
    for i, (op, scope, operands) in enumerate(graph.nodes):
        result = value(f"v{i}")
        scope_attribute = ir.AttrString("scope", scope)
        arguments = [values[o] for o in operands]
        nodes.append(ir.Node("training", op, arguments, [scope_attribute], outputs=[result], name=f"n{i}"))
        values.append(result)
    opsets = {"": 20, "training": 1}
    made = ir.Graph(inputs, [values[-1]], nodes=nodes, opset_imports=opsets, name="step")
    return ir.Model(made, ir_version=10)


def steps(graph: PeerGraph, scratch: str) -> list[Step]:
    file = str(Path(scratch) / "peer.onnx")
    ir.save(build(graph), file)
    model = ir.load(file)
    return [
        ("load", lambda: file, ir.load),
        ("copy", lambda: model, lambda m: m.clone()),
        ("dead-code-elimination", lambda: ir.load(file), RemoveUnusedNodesPass()),
        ("common-subexpression-elimination", lambda: ir.load(file), CommonSubexpressionEliminationPass()),
        ("save", lambda: model, lambda m: ir.save(m, str(Path(scratch) / "saved.onnx"))),
    ]


if __name__ == "__main__":
    run("onnx-ir", steps)

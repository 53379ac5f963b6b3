"""MindIR files through MindSpore's own schema: an independent judge of what our reader and writer do."""

from __future__ import annotations

import importlib.util
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any


@cache
def mind_ir() -> Any:
    """MindSpore's protobuf module, loaded by its path, without importing MindSpore."""
    package = importlib.util.find_spec("mindspore")
    assert package is not None
    assert package.origin is not None
    path = Path(package.origin).parent / "train" / "mind_ir_pb2.py"
    spec = importlib.util.spec_from_file_location("mind_ir_pb2", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parse(path: Path) -> Any:
    model = mind_ir().ModelProto()
    model.ParseFromString(path.read_bytes())
    return model


def _attributes(protos: Any) -> tuple[bytes, ...]:
    return tuple(a.SerializeToString(deterministic=True) for a in protos)


def content(path: Path) -> dict[str, Any]:
    """What a file says, apart from the order of its nodes and the numbering of its primitives."""
    model = parse(path)
    primitives: dict[str, Any] = {}
    for p in model.primitives:
        primitives["REF::" + p.name] = (p.op_type, p.instance_name, p.prim_type, _attributes(p.attribute))
    graphs = {}
    for i, graph in enumerate([model.graph, *model.functions]):

        def bare(name: str, prefix: str = graph.name + ":") -> str:
            return name.removeprefix(prefix)

        nodes = Counter(
            (
                primitives.get(n.op_type, n.op_type),
                tuple(bare(name) for name in n.input),
                tuple(bare(name) for name in n.output),
                bare(n.name),
                n.domain,
                _attributes(n.attribute),
                _attributes(n.node_attr),
                _attributes(n.primal_attr),
            )
            for n in graph.node
        )
        graphs[i] = {
            "name": graph.name,
            "nodes": nodes,
            "inputs": _attributes(graph.input),
            "outputs": _attributes(graph.output),
            "parameters": _attributes(graph.parameter),
            "attributes": _attributes(graph.attribute),
            "bprop": (graph.bprop_hash, graph.bprop_filepath),
        }
    for field in ("graph", "functions", "primitives"):
        model.ClearField(field)
    return {"header": model.SerializeToString(deterministic=True), "graphs": graphs, "ops": set(primitives.values())}


def differences(a: Path, b: Path) -> list[str]:
    """In which parts two files differ, in a line each."""
    one, other = content(a), content(b)
    found = [part for part in ("header", "ops") if one[part] != other[part]]
    if len(one["graphs"]) != len(other["graphs"]):
        return [*found, f"{len(one['graphs'])} and {len(other['graphs'])} graphs"]
    for i, graph in one["graphs"].items():
        for part, value in graph.items():
            if value != other["graphs"][i][part]:
                found.append(f"graph {i}: {part}")
    return found

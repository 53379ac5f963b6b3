"""torch.fx on a graph: ``python torch_fx_peer.py GRAPH SCRATCH``. It has no file format: loading is building."""

from __future__ import annotations

from collections.abc import Callable

from graph import PeerGraph, Step, run  # type: ignore[import-not-found,unused-ignore]
from torch import fx  # type: ignore[import-not-found,unused-ignore]
from torch._functorch.compile_utils import fx_graph_cse  # type: ignore[import-not-found,unused-ignore]


def _operation(name: str) -> Callable[..., object]:
    def operation(*operands: object) -> object:
        return operands

    operation.__name__ = operation.__qualname__ = name
    return operation


def build(graph: PeerGraph) -> fx.Graph:
    made = fx.Graph()
    operations: dict[str, Callable[..., object]] = {}
    values = [made.placeholder(f"input{i}") for i in range(graph.inputs)]
    for op, scope, operands in graph.nodes:
        function = operations.get(op)
        if function is None:
            function = operations[op] = _operation(op)
        node = made.call_function(function, tuple([values[o] for o in operands]))
        node.meta["scope"] = scope
        values.append(node)
    made.output(values[-1])
    return made


def copy(graph: fx.Graph) -> fx.Graph:
    made = fx.Graph()
    made.output(made.graph_copy(graph, {}))
    return made


def steps(source: PeerGraph, scratch: str) -> list[Step]:
    graph = build(source)
    return [
        ("build", lambda: source, build),
        ("copy", lambda: graph, copy),
        ("verify", lambda: graph, lambda g: g.lint()),
        ("dead-code-elimination", lambda: build(source), lambda g: g.eliminate_dead_code()),
        ("common-subexpression-elimination", lambda: graph, fx_graph_cse),
    ]


if __name__ == "__main__":
    run("torch", steps)

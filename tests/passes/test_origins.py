"""Every node that a pass makes says which pass that was, by its scope, and what it was made from, by its origin."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training.gradient_path import gradient_paths, updating_graphs
from boost_compile.ir.core.graph import Node
from boost_compile.ir.core.program import Program
from boost_compile.passes import compile_program
from boost_compile.passes.framework.registry import CLASSES

from tests.passes.graphs import source

HALF, DYNAMIC, MANY = "mlp_half_compute", "mlp_loss_scale_dynamic", "data_parallel.ir"
TWO = "gradient-accumulation{steps=2}"
FUSED = "gradient-accumulation{steps=2,split=fused}"
WEIGHTED = "gradient-accumulation{steps=2,split=fused,reduction=weighted,weight=inputs0}"
CASES = [
    ("data-parallel{fusion=0}", MANY),
    (f"{TWO},data-parallel{{fusion=0}}", MANY),
    (f"{FUSED},data-parallel{{fusion=0,mean=false}}", HALF),
    (f"{WEIGHTED},clip-gradients{{each_rank=true,report_norm=true}}", HALF),
    (f"{FUSED},clip-gradients{{report_norm=true}},overflow-check{{policy=skip-micro}},loss-scale", HALF),
    (f"{TWO},overflow-check{{policy=skip-micro}},loss-scale", HALF),
    ("clip-gradients{by=value,report_norm=true}", MANY),
    ("clip-gradients{by=tensor-norm}", MANY),
    ("overflow-check", DYNAMIC),
    ("overflow-check{detect=status}", HALF),
    ("group-loss-scale{groups=2}", HALF),
    ("loss-scale{mode=static}", HALF),
    ("parameter-groups{lr_factor=2.0}", HALF),
    ("parameter-groups{lr_factor=2.0}", "hand_momentum"),
    ("parameter-groups{weight_decay=0.5}", HALF),
    ("parameter-groups{weight_decay=0.5}", "mlp_adam_decay"),
    ("adasum{devices_per_group=2},overflow-check", HALF),
    ("adasum", DYNAMIC),
]
ORDERING = {"Depend", "UpdateState"}
START = {"Load", "TensorMove"}
"""A gradient that comes from an accumulator, or is a constant, is made from no node of the graph."""


@pytest.mark.parametrize(("pipeline", "name"), CASES)
def test_a_new_node_says_where_it_comes_from(pipeline: str, name: str) -> None:
    original = source(name)
    if "status" in pipeline:
        original.target = "ascend"
    program = compile_program(original, pipeline, reproducer_directory=None)
    known = {node.name for node in nodes(original)}
    for node in nodes(program):
        if node.origin is not None and node.name not in known and not is_plain(node):
            assert node.scope in CLASSES, repr(node)
            assert node.origin.passes, repr(node)
    if "adasum" in pipeline:
        return  # its Assign hides the update
    for graph in updating_graphs(program):
        for path in gradient_paths(graph):
            for value in (v for point in path.points for v in point.values):
                if isinstance(value, Node) and value.origin and value.op.name not in START:
                    assert value.origin.sources, repr(value)


def nodes(program: Program) -> list[Node]:
    return [node for graph in program.graphs.values() for body in graph.all_graphs() for node in body]


def is_plain(node: Node) -> bool:
    """Whether it only orders, or packs what is returned or ordered."""
    packs = node.op.name == "MakeTuple" and all(user.op.name in ORDERING for user in node.users)
    return packs or node.op.name in ORDERING

"""What a pass makes says so: in its scope, and in its origin."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.analysis.training.gradient_path import gradient_paths, updating_graphs
from boost_compile.ir.core.graph import Graph, Node, tensor_type
from boost_compile.ir.core.program import Program
from boost_compile.passes import compile_program
from boost_compile.passes.framework.registry import REGISTRY
from boost_compile.passes.step.accumulated import adding_nodes

from tests.passes.graphs import source

HALF, DYNAMIC, MANY = "mlp_half_compute", "mlp_loss_scale_dynamic", "data_parallel.ir"
TWO = "gradient-accumulation{steps=2}"
FUSED = "gradient-accumulation{steps=2,split=fused}"
BY_INPUT = "gradient-accumulation{steps=2,split=fused,reduction=weighted,weight=inputs0}"
WEIGHED = "gradient-accumulation{steps=2,reduction=weighted,weight=n}"
SEARCH = "dim-reduce{basis=BASIS,n_components=1}"
CASES = [
    ("mlp", SEARCH, {"dim-reduce"}),
    ("mlp", f"gradient-accumulation{{steps=2,split=fused}},{SEARCH}", {"dim-reduce", "gradient-accumulation"}),
    ("WEIGHTED", f"{WEIGHED},{SEARCH}", {"dim-reduce", "gradient-accumulation"}),
    ("mlp", "normalised-head", {"normalised-head"}),
    ("mlp_half_compute", "lower-gradient-centralization", {"gradient-centralization"}),
    ("mlp", "gradient-freeze", {"gradient-freeze"}),
    ("legalize/legalize.ir", "legalize{target=cpu}", {"legalize"}),
    ("patch_convolution.ir", "patch-convolution", {"patch-convolution"}),
    ("residual", "less-bn", set()),
    ("COUNTS", "data-parallel", {"data-parallel"}),
    ("RATED", "gradient-accumulation{steps=2,carry=last}", {"gradient-accumulation"}),
    ("FLAG", "data-parallel", {"data-parallel"}),
    ("data_parallel_export.ir", "data-parallel", {"data-parallel"}),
    ("data_parallel_export.ir", f"{TWO},data-parallel", {"gradient-accumulation", "data-parallel"}),
]


ON_THE_WAY = [
    (MANY, "data-parallel{fusion=0}", {"data-parallel"}),
    (MANY, f"{TWO},data-parallel{{fusion=0}}", {"gradient-accumulation", "data-parallel"}),
    (HALF, f"{FUSED},data-parallel{{fusion=0,mean=false}}", {"gradient-accumulation", "data-parallel"}),
    (
        HALF, f"{BY_INPUT},clip-gradients{{each_rank=true,report_norm=true}}",
        {"gradient-accumulation", "clip-gradients"},
    ),
    (
        HALF, f"{FUSED},clip-gradients{{report_norm=true}},overflow-check{{policy=skip-micro}},loss-scale",
        {"gradient-accumulation", "loss-scale", "overflow-check", "clip-gradients"},
    ),
    (
        HALF, f"{TWO},overflow-check{{policy=skip-micro}},loss-scale",
        {"gradient-accumulation", "loss-scale", "overflow-check"},
    ),
    *(
        ("step/clip_each_rank.ir", f"{FUSED},clip-gradients{{each_rank=true,by={by}}},loss-scale{{mode=static}}",
         {"gradient-accumulation", "clip-gradients", "loss-scale"})
        for by in ("global-norm", "tensor-norm", "value")
    ),
    ("WEIGHTED", WEIGHED.replace("=n", "=mask"), {"gradient-accumulation"}),
    (MANY, "clip-gradients{by=value,report_norm=true}", {"clip-gradients"}),
    (MANY, "clip-gradients{by=tensor-norm}", {"clip-gradients"}),
    (DYNAMIC, "overflow-check", {"legalize", "overflow-check"}),
    (f"{HALF}@ascend", "overflow-check{detect=status}", {"overflow-check"}),
    (HALF, "group-loss-scale{groups=2}", {"group-loss-scale", "overflow-check"}),
    (HALF, "loss-scale{mode=static}", {"loss-scale"}),
    (HALF, "parameter-groups{lr_factor=2.0}", {"parameter-groups"}),
    ("hand_momentum", "parameter-groups{lr_factor=2.0}", {"parameter-groups"}),
    (HALF, "parameter-groups{weight_decay=0.5}", {"parameter-groups"}),
    ("mlp_adam_decay", "parameter-groups{weight_decay=0.5}", {"parameter-groups"}),
]  # fmt: skip
"""Passes that work on the way of gradients to the weights."""
ADASUM = [
    (HALF, "adasum{devices_per_group=2},overflow-check", {"data-parallel", "overflow-check", "adasum"}),
    (DYNAMIC, "adasum", {"legalize", "adasum"}),
]


def nodes(of: Program) -> list[Node]:
    bodies: list[Graph] = [body for graph in of.graphs.values() for body in graph.all_graphs()]
    return [node for body in bodies for node in body]


def holds_together(node: Node) -> bool:
    """Whether it orders, or packs for that or for the return: made anew wherever an effect or a result changes."""
    ordering = {"UpdateState", "Depend"}
    packs = node.op.name == "MakeTuple" and all(user.op.name in ordering for user in node.users)
    return packs or node.op.name in ordering


@pytest.mark.parametrize(("name", "pipeline", "scopes"), [*CASES, *ON_THE_WAY, *ADASUM])
def test_new_nodes_stand_in_the_scope_of_the_pass(name: str, pipeline: str, scopes: set[str], tmp_path: Path) -> None:
    before = source(name)
    size = sum(v.type.size for v in before.state.values() if v.role == "weight")
    np.save(tmp_path / "basis.npy", np.eye(1, size, dtype=np.float32))
    found = compile_program(before, pipeline.replace("BASIS", f"{tmp_path}/basis.npy"), reproducer_directory=None)
    known = {(node.op.name, node.name) for node in nodes(before)}
    made = [node for node in nodes(found) if (node.op.name, node.name) not in known]
    own = [node for node in made if not holds_together(node)]
    own = [node for node in own if not node.scope.startswith("Default/optimizer")]  # of an update that is repeated
    assert {node.scope for node in own} == scopes
    assert all(node.origin and node.origin.passes for node in made)


CSE = "common-subexpression-elimination"
ORDERS = [
    ("mlp", f"{CSE},{SEARCH}", f"dim-reduce {CSE}"),
    ("WEIGHTED", f"{SEARCH},{WEIGHED}", "gradient-accumulation dim-reduce"),
    ("mlp", f"{CSE},normalised-head", f"normalised-head {CSE}"),
    (
        "mlp_half_compute",
        "lower-gradient-centralization,overflow-check,tag-gradient-centralization",
        "tag-gradient-centralization overflow-check lower-gradient-centralization",
    ),
    ("mlp", f"{CSE},gradient-freeze", f"gradient-freeze {CSE}"),
    ("legalize/legalize.ir", f"{CSE},legalize{{target=cpu}}", f"legalize {CSE}"),
    ("patch_convolution.ir", f"{CSE},patch-convolution", f"patch-convolution {CSE}"),
    ("residual", f"{CSE},less-bn", f"less-bn {CSE}"),
]


@pytest.mark.parametrize(("name", "pipeline", "order"), ORDERS)
def test_passes_run_in_their_order_and_are_what_their_page_says(
    name: str, pipeline: str, order: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs = Path(__file__).parents[2] / "docs"
    monkeypatch.syspath_prepend(str(docs))
    make, page = importlib.import_module("make_passes"), (docs / "passes.md").read_text(encoding="utf-8")
    before = source(name)
    size = sum(v.type.size for v in before.state.values() if v.role == "weight")
    np.save(tmp_path / "basis.npy", np.eye(1, size, dtype=np.float32))
    found = compile_program(before, pipeline.replace("BASIS", f"{tmp_path}/basis.npy"), reproducer_directory=None)
    assert [report.name for report in found.reports] == order.split()
    for report in found.reports:
        cls = REGISTRY[report.name]
        assert make.section(cls, "").rstrip() in page
        assert make.overview(cls) in page
        assert report.preserves == cls.preserves


@pytest.mark.parametrize(
    ("name", "pipeline", "graph", "replaced"),
    [
        ("legalize/legalize.ir", "legalize{target=cpu}", "float_status", "status"),
        ("legalize/legalize.ir", "legalize{target=cpu}", "all_finite", "overflow"),
        ("legalize/legalize.ir", "legalize{target=cpu}", "tuple_input", "overflow"),
        ("legalize/legalize.ir", "legalize{target=cpu}", "centralization", "centred"),
        ("patch_convolution.ir", "patch-convolution", "forward", "y"),
    ],
)
def test_a_replacement_names_what_it_replaced(name: str, pipeline: str, graph: str, replaced: str) -> None:
    before = source(name)
    found = compile_program(before, pipeline).graphs[graph]
    known = {node.name for node in before.graphs[graph]}
    made = [node for node in found if node.name not in known]
    assert made
    assert all(node.origin and replaced in node.origin.sources for node in made)


@pytest.mark.parametrize(("name", "pipeline", "scopes"), ON_THE_WAY)
def test_what_is_made_on_the_way_of_a_gradient_names_its_sources(name: str, pipeline: str, scopes: set[str]) -> None:
    """But for where it comes from: an accumulator, or a constant, which is no node."""
    program = compile_program(source(name), pipeline, reproducer_directory=None)
    ways = [path for graph in updating_graphs(program) for path in gradient_paths(graph)]
    on_the_way = [value for path in ways for point in path.points for value in point.values]
    added = [node for graph in program.graphs.values() for node in adding_nodes(graph)]
    gradients = [node for node in added if tensor_type(node).shape]  # and no counts
    for value in [*on_the_way, *gradients, *(node.operand(1) for node in gradients)]:
        if isinstance(value, Node) and value.origin and value.op.name not in ("Load", "TensorMove"):
            assert value.origin.sources, repr(value)

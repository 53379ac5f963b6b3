"""What a pass makes says so: in its scope, and in its origin."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.graph import Graph, Node
from boost_compile.ir.core.program import Program
from boost_compile.ir.rewrite.roles import assign_roles
from boost_compile.ir.text import parse_program
from boost_compile.passes import compile_program

from tests.graphs import program
from tests.material import material
from tests.passes.graphs import WEIGHTED

HERE = Path(__file__).parent
WEIGHED = "gradient-accumulation{steps=2,reduction=weighted,weight=n}"
SEARCH = "dim-reduce{basis=BASIS,n_components=1}"
CASES = [
    ("mlp", SEARCH, {"dim-reduce"}),
    ("mlp", f"gradient-accumulation{{steps=2,split=fused}},{SEARCH}", {"dim-reduce", "gradient-accumulation"}),
    ("weighted", f"{WEIGHED},{SEARCH}", {"dim-reduce", "gradient-accumulation"}),
    ("mlp", "normalised-head", {"normalised-head"}),
    ("mlp_half_compute", "lower-gradient-centralization", {"gradient-centralization"}),
    ("mlp", "gradient-freeze", {"gradient-freeze"}),
    ("legalize/legalize.ir", "legalize{target=cpu}", {"legalize"}),
    ("patch_convolution.ir", "patch-convolution", {"patch-convolution"}),
    ("residual", "less-bn", set()),
]


def read(name: str) -> Program:
    if name.endswith(".ir"):
        return assign_roles(parse_program((HERE / name).read_text()))
    return program(WEIGHTED) if name == "weighted" else material(name)


HOLD_TOGETHER = {"UpdateState", "Depend", "MakeTuple"}
"""Made anew wherever an effect or a result comes or goes."""


def nodes(of: Program) -> list[Node]:
    bodies: list[Graph] = [body for graph in of.graphs.values() for body in graph.all_graphs()]
    return [node for body in bodies for node in body]


@pytest.mark.parametrize(("name", "pipeline", "scopes"), CASES)
def test_new_nodes_stand_in_the_scope_of_the_pass(name: str, pipeline: str, scopes: set[str], tmp_path: Path) -> None:
    source = read(name)
    size = sum(v.type.size for v in source.state.values() if v.role == "weight")
    np.save(tmp_path / "basis.npy", np.eye(1, size, dtype=np.float32))
    found = compile_program(source, pipeline.replace("BASIS", f"{tmp_path}/basis.npy"), reproducer_directory=None)
    known = {(node.op.name, node.name) for node in nodes(source)}
    made = [node for node in nodes(found) if (node.op.name, node.name) not in known]
    own = [node for node in made if node.op.name not in HOLD_TOGETHER]
    own = [node for node in own if not node.scope.startswith("Default/optimizer")]  # of an update that is repeated
    assert {node.scope for node in own} == scopes
    assert all(node.origin and node.origin.passes for node in made)


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
    source = read(name)
    found = compile_program(source, pipeline).graphs[graph]
    known = {node.name for node in source.graphs[graph]}
    made = [node for node in found if node.name not in known]
    assert made
    assert all(node.origin and replaced in node.origin.sources for node in made)

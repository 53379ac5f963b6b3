"""The stages of a gradient stand in their order, whatever the passes are asked for."""

from __future__ import annotations

from itertools import product

import pytest
from boost_compile.ir.analysis.training.gradient_path import gradient_paths, updating_graphs
from boost_compile.passes import compile_program

from tests.passes.graphs import source

ACCUMULATION = [
    f"gradient-accumulation{{steps=2,split={split},reduction={reduction}}},"
    for split, reduction in product(("apply", "fused"), ("mean", "sum"))
]
CLIP = [
    f"clip-gradients{{by={by},limit=0.1,report_norm={report}}}"
    for by, report in product(("global-norm", "tensor-norm", "value"), ("true", "false"))
]


@pytest.mark.parametrize("clip", CLIP)
@pytest.mark.parametrize("accumulation", ["", *ACCUMULATION])
def test_gradients_are_clipped_before_they_are_centred(accumulation: str, clip: str) -> None:
    """Also where the sum of a cycle is neither divided nor scaled: there the norm measures an accumulator itself."""
    pipeline = f"{accumulation}overflow-check,lower-gradient-centralization,{clip}"
    program = compile_program(source("mlp"), pipeline, reproducer_directory=None)
    for graph in updating_graphs(program):
        paths = [[point.stage for point in path.points] for path in gradient_paths(graph)]
        centred = [stages for stages in paths if "centralize" in stages]
        assert all("clip" in stages for stages in paths)
        assert len(centred) == 2, "the weights of both layers"
        assert all(stages.index("clip") < stages.index("centralize") for stages in centred)

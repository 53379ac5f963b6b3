"""The words for what happens to a gradient: which point of a path a pass asks for."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training import gradient_path
from boost_compile.ir.analysis.training.gradient_path import gradient_paths
from boost_compile.ir.analysis.training.stages import Point, in_order

from tests.ir.worked import worked


@pytest.mark.parametrize(
    ("stage", "expected"),
    [("accumulate", "g"), ("all-reduce", "g"), ("unscale", "s"), ("finite-check", "s"), ("clip", "c"), ("update", "d")],
)
def test_a_pass_finds_what_came_through_the_stages_up_to_its_own(stage: str, expected: str) -> None:
    graph, nodes, _ = worked(gradient_path)
    (path,) = gradient_paths(graph)
    assert path.at(stage).values == (nodes[expected],)
    assert path.has(stage) == (stage in ("unscale", "clip"))


def test_stages_out_of_order() -> None:
    assert in_order([Point("unscale", ()), Point("", ()), Point("clip", ())])
    assert not in_order([Point("clip", ()), Point("unscale", ())])

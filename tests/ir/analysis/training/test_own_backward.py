"""Cells with a backward of their own, which autodiff does not mark."""

from __future__ import annotations

from boost_compile.ir.analysis.training import own_backward
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.analysis.training.network import BACKWARD, network_parts

from tests.ir.worked import worked


def test_what_such_a_cell_makes_of_a_derivative_is_backward() -> None:
    graph, nodes, comments = worked(own_backward)
    parts = network_parts(graph)
    told = {name for name, comment in comments.items() if comment.startswith("backward")}
    assert {n.name for n, part in parts.items() if part == BACKWARD} == {"d", *told}
    (info,) = anatomy(graph).weights
    assert (info.name, info.gradient) == ("s", (nodes["g"],))


def test_a_cell_that_autodiff_went_through_has_none() -> None:
    """It may hold the training cell's work on gradients beside its network."""
    graph, nodes, _ = worked(own_backward)
    nodes["d"].scope = "Gradients/Default/net-N/q-Q/Grad_SumExt/OnesLike-op0"
    assert not {nodes["dy"], nodes["g"]} & network_parts(graph).keys()


def test_a_cell_that_updates_has_none() -> None:
    graph, nodes, _ = worked(own_backward)
    nodes["new"].scope = "Default/net-N/q-Q/AssignSub-op0"
    assert not {nodes["dy"], nodes["g"]} & network_parts(graph).keys()

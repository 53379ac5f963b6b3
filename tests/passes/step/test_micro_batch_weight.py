"""What a micro-batch weighs in the mean of its cycle."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.builders.reduce import scalar_sum
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.core.graph import Graph
from boost_compile.passes import compile_program
from boost_compile.passes.step.micro_batch_weight import find_weight

from tests.execution import run_graph, train
from tests.graphs import graph, program
from tests.passes.graphs import WEIGHTED


def step() -> Graph:
    return graph(WEIGHTED)


@pytest.mark.parametrize(
    ("name", "found"),
    [("n", "n"), ("loss", "loss"), ("rows", "rows:7"), ("rows:7", "rows:7"), ("mask", "mask")],
)
def test_inputs_outputs_and_forward_nodes(name: str, found: str) -> None:
    assert find_weight(anatomy(step()), name).name == found


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("row", "has no input, output or forward node of that name.*'rows'.*Inputs are x, n, mask"),
        ("g", "has no input, output or forward node"),
        ("wave", "holds no numbers that can be summed"),
        ("pair", "holds no numbers that can be summed"),
        ("slope", "does not depend on the micro-batch, so it weighs nothing"),
    ],
)
def test_what_weighs_nothing(name: str, says: str) -> None:
    text = WEIGHTED.replace("-> (loss)", "-> (loss, slope)").replace("Depend(%loss", "Depend(%both")
    text = text.replace("  %r =", "  %pair = MakeTuple(%y, %x) @f\n  %both = MakeTuple(%loss, %g)\n  %r =")
    with pytest.raises(PassError, match=says):
        find_weight(anatomy(graph(text)), name)


def test_the_sum_of_the_elements() -> None:
    g = step()
    n, mask = (next(v for v in g.inputs if v.name == name) for name in ("n", "mask"))
    assert scalar_sum(g, n, scope="") is n
    total = scalar_sum(g, mask, scope="")
    assert str(total.type) == "float32[]"
    g.result = total
    state = {"w": np.ones(2, np.float32), "rate": np.float32(0)}
    assert run_graph(g, [np.ones(2, np.float32), np.float32(3), np.array([True, True])], state) == 2


def test_a_weighted_mean() -> None:
    """Weights 3 and 1: three quarters of the first gradient, a quarter of the second."""
    text = program(WEIGHTED)
    state = {"w": np.float32([5, 7]), "rate": np.float32(1)}
    given = [[np.float32([1, 2]), np.float32(n), np.array([True, True])] for n in (3, 1)]
    given[1][0] = np.float32([5, -2])
    of = compile_program(text, "gradient-accumulation{steps=2,reduction=weighted,weight=n}", reproducer_directory=None)
    gradients = [batch[0] * batch[0] for batch in given]
    np.testing.assert_allclose(train(of, state, given)[1]["w"], state["w"] - (3 * gradients[0] + gradients[1]) / 4)

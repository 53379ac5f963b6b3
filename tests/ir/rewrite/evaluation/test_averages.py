"""The averages of weights in the place of the weights: values by name, and the network that reads them."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.rewrite.evaluation import averaged_values, averages_of, evaluation, with_averages
from boost_compile.ir.text import parse_program

TEXT = """program @net {{
  target cpu
  schedule @net
}}
state %w: {type}[2]<3.0, 5.0> role=weight
state %average.w: float32[2]<7.0, 9.0> role=average weight=%w

graph @net(%x: {type}[2]) {{
  %w0 = Load(%w, umonad) : {type}[2]
  %y = Mul(%x, %w0) : {type}[2]
  %u = UpdateState(umonad, %w0)
  %r = Depend(%y, %u)
  return %r
}}
"""


@pytest.mark.parametrize("type_", ["float32", "float16"])
def test_the_network_reads_averages_in_the_type_of_the_weight(type_: str) -> None:
    program = parse_program(TEXT.format(type=type_))
    assert averages_of(program) == {"w": "average.w"}
    network = with_averages(evaluation(program), program)
    assert list(network.graph.states) == list(network.program.state) == ["average.w"]
    loads = [n for n in network.graph if n.op.name == "Load"]
    assert [str(n.type) for n in loads] == ["float32[2]"]
    product = next(n for n in network.graph if n.op.name == "Mul")
    assert str(product.operand(1).type) == f"{type_}[2]"


def test_values_take_the_type_of_the_weight() -> None:
    program = parse_program(TEXT.format(type="float16"))
    found = averaged_values(program, {"average.w": np.array([7, 9], np.float32), "other": np.zeros(1)})
    assert list(found) == ["w"]
    assert found["w"].dtype == np.float16
    np.testing.assert_array_equal(found["w"], [7, 9])
    with pytest.raises(PassError, match=r"lack 'average\.w'"):
        averaged_values(program, {})


def test_a_program_without_averages_says_which_pass_makes_them() -> None:
    program = parse_program(TEXT.format(type="float32").replace("average.w", "other"))
    with pytest.raises(PassError, match="'weight-average'"):
        averages_of(program)

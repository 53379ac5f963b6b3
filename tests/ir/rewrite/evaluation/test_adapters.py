"""Adapters added to the weights beside which they stand, and the network without them."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.rewrite.evaluation import adapters_of, evaluation, merged_values, without_adapters
from boost_compile.ir.text import parse_program

TEXT = """program @net {{
  target cpu
  schedule @net
}}
state %fc.weight: float32[3,2] role=weight
state %fc.lora_A.weight: float32[1,{inputs}] role=weight
state %fc.lora_B.weight: float32[{outputs},1] role=weight

graph @net(%x: float32[4,{inputs}]) {{
  %w = Load(%fc.weight, umonad) : float32[3,2]
  %a = Load(%fc.lora_A.weight, umonad) : float32[1,{inputs}]
  %b = Load(%fc.lora_B.weight, umonad) : float32[{outputs},1]
  %y = MatMul(%x, %w, false, {transposed}) : float32[4,{outputs}]
  %inner = MatMul(%x, %a, false, true) : float32[4,1]
  %outer = MatMul(%inner, %b, false, true) : float32[4,{outputs}]
  %sum = Add(%y, %outer) : float32[4,{outputs}] marks {{adapter = "fc.weight", adapter_alpha = 2.0, {first}}}
  %z = Neg(%sum) : float32[4,{outputs}]
  %u = UpdateState(umonad, %w, %a, %b)
  %r = Depend(%z, %u)
  return %r
}}
"""


@pytest.mark.parametrize("inputs_first", [False, True])
def test_the_product_is_added_to_the_weight_as_it_stands(inputs_first: bool) -> None:
    inputs, outputs = (3, 2) if inputs_first else (2, 3)
    first = f"adapter_inputs_first = {str(inputs_first).lower()}"
    words = {"inputs": inputs, "outputs": outputs, "transposed": str(not inputs_first).lower(), "first": first}
    program = parse_program(TEXT.format(**words))
    (adapter,) = adapters_of(program).values()
    assert (adapter.scale, adapter.inputs_first) == (2.0, inputs_first)
    rng = np.random.default_rng(0)
    values = {n: rng.integers(-9, 9, v.shape).astype(np.float32) for n, v in program.state.items()}
    merged = merged_values(program, {**values, "other": np.zeros(1)})
    assert sorted(merged) == ["fc.weight", "other"]
    assert merged["fc.weight"].dtype == np.float32
    a, b, w = values["fc.lora_A.weight"], values["fc.lora_B.weight"], values["fc.weight"]
    x = rng.integers(-9, 9, (4, inputs))
    matrix, of_merged = (w, merged["fc.weight"]) if inputs_first else (w.T, merged["fc.weight"].T)
    np.testing.assert_array_equal(x @ of_merged, x @ matrix + 2 * (x @ a.T) @ b.T)
    network = without_adapters(evaluation(program))
    assert list(network.graph.states) == list(network.program.state) == ["fc.weight"]
    assert [n.op.name for n in network.graph if n.op.name in ("Add", "MatMul", "Neg")] == ["MatMul", "Neg"]
    with pytest.raises(PassError, match=r"the values lack 'fc\.lora_B\.weight'"):
        merged_values(program, {n: v for n, v in values.items() if "_B" not in n})


def test_a_program_without_adapters_is_told_how_to_get_them() -> None:
    text = TEXT.partition("  %sum")[0] + "  return %y\n}}\n"
    program = parse_program(text.format(inputs=2, outputs=3, transposed="true"))
    with pytest.raises(PassError, match="compile it with the pass 'lora'"):
        adapters_of(program)

"""Which state of a forward graph is trained."""

from __future__ import annotations

import pytest
from boost_compile.ir.text import parse_program
from boost_compile.runtime.differentiation.trainable import statistics

NUMBERS = ("gamma", "beta", "mean", "variance")


@pytest.mark.parametrize("norm", ["InstanceNorm", "SyncBatchNorm", "BatchNorm"])
def test_a_normalisation_learns_its_statistics_and_trains_the_rest(norm: str) -> None:
    """MindSpore's signatures mark gamma and beta as written too; no kernel writes them."""
    states = "\n".join(f"state %{name}: float32[3] role=weight" for name in NUMBERS)
    program = parse_program(f"""
        {states}
        graph @g(%x: float32[2,3,4,4]) {{
          %n = {norm}(%x, %gamma, %beta, %mean, %variance, umonad) : (float32[2,3,4,4], float32[3], float32[3])
          %u = UpdateState(umonad, %n)
          %y = TupleGetItem(%n, 0)
          %r = Depend(%y, %u)
          return %r
        }}
    """)
    assert statistics(program.graphs["g"]) == {"mean", "variance"}

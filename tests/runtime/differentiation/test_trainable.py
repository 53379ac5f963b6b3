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


def test_the_table_of_an_embedding_is_trained() -> None:
    """Its kernel shortens long rows in place (``max_norm``), and the export has a token for that."""
    program = parse_program("""
        state %table: float32[5,3] role=weight
        graph @g(%x: int64[2]) {
          %e = Embedding(%x, %table, none, none, 2.0, false, umonad) {side_effect_mem = true} : float32[2,3]
          %u = UpdateState(umonad, %e)
          %r = Depend(%e, %u)
          return %r
        }
    """)
    assert statistics(program.graphs["g"]) == set()

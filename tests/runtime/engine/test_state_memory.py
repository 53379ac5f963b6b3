"""The memory of states: cleared by an engine itself, behind a graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.text import parse_program
from boost_compile.runtime.engine import state_memory
from boost_compile.runtime.engine.engine import Engine

import boost_compile as bc
from tests.networks import CASES

TAKEN = """
state %sum: float32[4] role=accumulator
graph @take(%x: float32[4]) -> (total) {
  %s = Load(%sum, umonad)
  %y = Add(%s, %x)
  %total = ReduceSum(%y, (0,), false, false) : float32[]
  %z = ZerosLike(%s)
  %u = UpdateState(umonad, %y, %total)
  %a = Assign(%sum, %z, %u)
  %w = UpdateState(%u, %a)
  %r = Depend(%total, %w)
  return %r
}
"""


def test_the_memory_of_a_state_may_move() -> None:
    import mindspore

    ran = Engine(parse_program(TAKEN), "CPU", None)

    def take(added: float) -> float:
        result = ran.run("take", (mindspore.Tensor(np.full(4, added, np.float32)),))[0]
        assert not ran.memory.read("sum").any()
        return float(result.asnumpy())

    assert take(1) == 4.0
    ran.memory.write({"sum": np.full(4, 3, np.float32)})
    assert take(1) == 16.0
    assert take(2) == 8.0
    ran.parameters["sum"].set_data(mindspore.Tensor(np.full(4, 7, np.float32)))
    assert take(1) == 32.0
    assert take(2) == 8.0
    assert ran.context.cleared == {"take": ["sum"]}


def test_a_session_clears_where_it_cannot_find_the_memory(
    exported: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It trains the same bit for bit, with a cycle that is cut short."""
    program = bc.compile(bc.load(exported("mlp")), "gradient-accumulation{steps=2,split=fused}")
    written = []
    for addresses in (True, False):
        monkeypatch.setattr(state_memory, "_tells_addresses", lambda addresses=addresses: addresses)
        session = bc.Session(program)
        assert session._engine.context.cleared.keys() == {"step", "apply"}
        for batch in CASES["mlp"].batches(5):
            session.step(*batch)
        session.flush()
        assert not any(value.any() for name, value in session.state().items() if name.startswith("accum."))
        path = tmp_path / f"{addresses}.safetensors"
        session.save(path)
        written.append(path.read_bytes())
    assert written[0] == written[1]

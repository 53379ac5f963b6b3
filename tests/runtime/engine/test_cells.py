"""The Cells of an engine: when MindSpore is asked to compile, and that the right graph runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from boost_compile.ir.text import parse_program
from boost_compile.runtime.engine.engine import Engine


def test_inputs_of_the_types_of_the_last_run_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    from mindspore import Tensor, nn

    program = parse_program(
        """state %sum: float32[]
        graph @twice(%x: float32[?]) {
          %y = Add(%x, %x)
          %added = AssignAdd(%sum, float32[]<1.0>, umonad) : float32[]
          %done = UpdateState(umonad, %added)
          %result = Depend(%y, %done)
          return %result
        }"""
    )
    engine = Engine(program, "CPU", None)
    asked: list[tuple[int, ...]] = []
    compile_ = nn.Cell.compile

    def counted(cell: Any, *inputs: Any) -> None:
        asked.append(inputs[0].shape)
        compile_(cell, *inputs)

    monkeypatch.setattr(nn.Cell, "compile", counted)

    def run(size: int) -> list[float]:
        values = np.arange(size, dtype=np.float32)
        return list(engine.run("twice", (Tensor(values),))[0].asnumpy())

    for size in (3, 3, 2, 2, 3):
        assert run(size) == [2.0 * k for k in range(size)]
    assert asked == [(3,), (2,), (3,)]
    engine._runners["twice"].set_train(False)  # another phase, which MindSpore has not compiled
    assert run(3) == [0.0, 2.0, 4.0]
    assert len(asked) == 4
    assert engine.memory.read("sum") == 6.0

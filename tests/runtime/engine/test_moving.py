"""Averages that the host moves have the bits of MindSpore's kernels."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.text import parse_program
from boost_compile.runtime.engine.engine import Engine
from boost_compile.runtime.engine.moving import BLOCK, SHARED, Moves

SPECIAL = np.array([0.0, -0.0, 1.5, 3e38, -3e38, np.inf, -np.inf, np.nan], np.float32)


@pytest.mark.parametrize("shape", [(), (3, 5), (2 * BLOCK + 7,), (SHARED + 7,)])
def test_bits(shape: tuple[int, ...]) -> None:
    import mindspore

    rng = np.random.default_rng(0)
    average, weight = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    if len(shape) == 1:
        pairs = np.stack(np.meshgrid(SPECIAL, SPECIAL)).reshape(2, -1)
        average[-pairs.shape[1] :], weight[-pairs.shape[1] :] = pairs
    kept, taken = np.float32(0.999), np.float32(1 - 0.999)
    old, new = mindspore.Tensor(average), mindspore.Tensor(weight)
    wanted = (old * mindspore.Tensor(kept) + new * mindspore.Tensor(taken)).asnumpy()
    memory = average.copy()
    with np.errstate(all="ignore"):
        Moves([(memory, weight)]).run(kept, taken)
    nan = np.isnan(wanted)
    assert np.array_equal(nan, np.isnan(memory))
    assert np.where(nan, 0, memory).tobytes() == np.where(nan, 0, wanted).tobytes()


HEAD = """
state %a: float32[2] role=weight
state %b: float32[2] role=weight
state %average.a: float32[2] role=average
state %average.b: float32[2] role=average
graph @step(%x: float32[2]) {
  %p = Assign(%a, %x, umonad)
  %before_a = UpdateState(umonad, %p)
"""
MOVE = """
  %new_W = Load(%W, %before_W)
  %old_W = Load(%average.W, %before_W)
  %kept_W = Mul(%old_W, float32[]<0.75>)
  %taken_W = Mul(%new_W, float32[]<0.25>)
  %mean_W = Add(%kept_W, %taken_W)
  %read_W = UpdateState(%before_W, %new_W, %old_W, %mean_W)
  %moved_W = Assign(%average.W, %mean_W, %read_W)
  %NEXT = UpdateState(%read_W, %moved_W)
"""
TAIL = """
  %total = ReduceSum(%x, (0,), false, false) : float32[]
  %r = Depend(%total, %last)
  return %r
}
"""
MOVES = [MOVE.replace("W", name).replace("NEXT", after) for name, after in (("a", "before_b"), ("b", "last"))]
AVERAGED = "".join([HEAD, *MOVES, TAIL])


@pytest.mark.parametrize("moved", ["a", "b", "average.a", "average.b"])
def test_the_memory_of_an_average_or_a_weight_may_move(moved: str) -> None:
    import mindspore

    ran = Engine(parse_program(AVERAGED), "CPU", None)
    part = ran._runners["step"].part
    wanted = {name: np.zeros(2, np.float32) for name in ran.parameters}
    for turn in range(3):
        if turn == 2:
            wanted[moved] = np.full(2, 7, np.float32)
            ran.parameters[moved].set_data(mindspore.Tensor(wanted[moved]))
        x = np.array([turn, 8], np.float32)
        ran.run("step", (mindspore.Tensor(x),))
        wanted["a"] = x
        for name in "ab":
            wanted[f"average.{name}"] = wanted[f"average.{name}"] * np.float32(0.75) + wanted[name] * np.float32(0.25)
        for name, value in wanted.items():
            np.testing.assert_array_equal(ran.memory.read(name), value, strict=True, err_msg=name)
    assert part is not None

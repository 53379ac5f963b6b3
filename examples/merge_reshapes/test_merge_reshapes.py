"""What the pass finds, what it leaves alone, and that the result trains the same."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.text import parse_program, print_program

import boost_compile as bc

STEP = """
state %w: float32[6]<1.0, 2.0, 3.0, 4.0, 5.0, 6.0> role=weight trainable=true

graph @step(%x: float32[2,3]) -> (loss) {
  %w.now = Load(%w, umonad) : float32[6]
  %cube = Reshape(%x, (3, 1, 2)) : float32[3,1,2]
  %flat = Reshape(%cube, (6,)) : float32[6]
  %product = Mul(%w.now, %flat) : float32[6]
  %loss = ReduceSum(%product, (), false, false) : float32[]
  %less = AssignSub(%w, %flat, umonad)
  %token = UpdateState(umonad, %less, %product)
  %result = Depend(%loss, %token) : float32[]
  return %result
}
"""


def ops(program: bc.Program) -> list[str]:
    return [node.op.name for graph in program.graphs.values() for node in graph]


def test_two_become_one() -> None:
    merged = bc.compile(parse_program(STEP), "merge-reshapes")
    assert ops(merged).count("Reshape") == 1
    assert "Reshape(%x, (6,))" in print_program(merged, annotations=False)
    assert merged.reports[0].summary == "1 reshapes merged"


def test_a_single_reshape_does_not_match() -> None:
    single = parse_program(STEP.replace("Reshape(%cube, (6,))", "Neg(%cube)").replace("float32[3,1,2]", "float32[6]"))
    with pytest.raises(PassError, match="matched nothing"):
        bc.compile(single, "merge-reshapes")


def test_the_miss_says_why() -> None:
    shared = parse_program(STEP.replace("%product)", "%product, %cube)"))
    compiled = bc.compile(shared, "merge-reshapes{single_use=true}")
    assert ops(compiled).count("Reshape") == 2
    (miss,) = compiled.reports[0].misses
    assert (miss.site, miss.reason) == ("%flat", "%cube (Reshape) has other uses")


def test_training_is_the_same() -> None:
    before = parse_program(STEP)
    sessions = [bc.Session(program) for program in (before, bc.compile(before, "merge-reshapes"))]
    for k in range(3):
        batch = np.arange(6, dtype=np.float32).reshape(2, 3) * k
        losses = [float(session.step(batch).loss) for session in sessions]
        assert losses[0] == losses[1]
    weights = [session.state()["w"] for session in sessions]
    np.testing.assert_array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], [1, 2, 3, 4, 5, 6])

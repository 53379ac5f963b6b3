"""Self-contained graphs run in pieces: what the session decides, what stays whole, and that nothing else changes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.text import parse_program
from boost_compile.ir.verify.verifier import verify
from boost_compile.runtime.engine import engine
from boost_compile.runtime.engine.divided import Divided
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.division import divide

import boost_compile as bc
from tests.networks import CASES

COUNTED = """
state %w: float32[2] role=counter
state %sum: float32[2] role=counter
state %count: float32[] role=counter
graph @step(%x: float32[2]) {
  const %one = float32[]<1.0>
  const %two = float32[]<2.0>
  const %u0 = umonad
  %old = Load(%w, %u0) : float32[2]
  %loss = ReduceSum(%x, (), false, false) : float32[]
  %early = Load(%count, %u0) : float32[]
  %added = AssignAdd(%sum, %x, %u0) : float32[2]@sum
  %u1 = UpdateState(%u0, %added) : umonad
  %counted = AssignAdd(%count, %one, %u1) : float32[]@count
  %u2 = UpdateState(%u1, %counted) : umonad
  %late = Load(%count, %u2) : float32[]
  %double = Mul(%x, %two) : float32[2]
  %full = GreaterEqual(CONDITION, %two) : bool[]
  %update = Partial(@update, ARGUMENT, %w, %count, %u2) : fn<@update>
  %skip = Partial(@skip) : fn<@skip>
  %way = Switch(%full, %update, %skip) : union<@update, @skip>
  %call = call(%way) : float32[]
  %u3 = UpdateState(%u2, %call) : umonad
  RESULT
  %result = Depend(%both, %u3) : DEPENDENT
  return %result

  func @update(%by: float32[2], %w: float32[2], %count: float32[], %u: umonad) {
    const %zero = float32[]<0.0>
    const %seven = float32[]<7.0>
    %moved = AssignAdd(%w, %by, %u) : float32[2]@w
    %v = UpdateState(%u, %moved) : umonad
    %cleared = Assign(%count, %zero, %v) : float32[]@count
    %t = UpdateState(%v, %cleared) : umonad
    %r = Depend(%seven, %t) : float32[]
    return %r
  }

  func @skip() {
    const %nothing = float32[]<0.0>
    return %nothing
  }
}
"""
CALLED = "%both = MakeTuple(%loss, %call) : (float32[], float32[])"


def _counted(condition: str = "%late", argument: str = "%x", result: str = CALLED) -> bc.Program:
    text = COUNTED.replace("CONDITION", condition).replace("ARGUMENT", argument).replace("RESULT", result)
    return parse_program(text.replace("DEPENDENT", result.partition(" : ")[2]))


def _divided(program: bc.Program, target: str = "cpu") -> bool:
    division = divide(program.graphs["step"], Context(program, target))
    for graph in () if division is None else division.graphs:
        verify(graph)
    return division is not None


def test_the_pieces_of_a_graph_that_counts() -> None:
    program = _counted()
    division = divide(program.graphs["step"], Context(program, "cpu"))
    assert division is not None
    before, update = division.graphs
    assert (before.name, sorted(before.states)) == ("step", ["count", "sum"])
    assert (update.name, sorted(update.states)) == ("step.update", ["count", "w"])
    assert not before.functions
    assert not update.functions
    assert [way.piece.takes for way in division.ways] == [(0,), ()]
    assert [way.results for way in division.ways] == [(0, 1), (0, 1)]
    session = bc.Session(program)
    both = [session, bc.Session(program, beside=session)]
    x = np.array([1, 2], np.float32)
    seen = [[float(v.asnumpy()) for v in both[i % 2]._engine.run("step", _tensors(x))] for i in range(4)]
    assert seen == [[3, 0], [3, 7], [3, 0], [3, 7]]
    assert {name: value.tolist() for name, value in session.state().items()} == {"w": [2, 4], "sum": [4, 8], "count": 0}


def _tensors(*arrays: np.ndarray) -> tuple[object, ...]:
    import mindspore

    return tuple(mindspore.Tensor(array) for array in arrays)


def test_what_the_session_cannot_decide_stays_whole() -> None:
    assert _divided(_counted())
    assert not _divided(_counted(), "gpu")
    assert not _divided(_counted(condition="%early"))  # the count as it is before it is written
    assert not _divided(_counted(condition="%loss"))
    assert not _divided(_counted(argument="%double"))


def test_a_count_in_half_precision_stays() -> None:
    """The host computes no numbers of this type."""
    text = COUNTED.replace("CONDITION", "%late").replace("ARGUMENT", "%x").replace("RESULT", CALLED)
    text = text.replace("DEPENDENT", CALLED.partition(" : ")[2])
    assert _divided(parse_program(text))
    assert not _divided(parse_program(text.replace("float32", "float16")))


def test_results_that_need_the_switch() -> None:
    assert _divided(_counted(result="%both = Select(%full, %call, %loss) : float32[]"))
    assert not _divided(_counted(result="%both = Add(%call, %loss) : float32[]"))
    assert not _divided(_counted(result="%both = MakeTuple(%loss, %old) : (float32[], float32[2])"))  # memory of w


@pytest.mark.parametrize("split", ["apply", "fused"])
def test_pieces_train_as_the_whole_graph_does(
    split: str, tmp_path: Path, exported: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES["mlp"]
    pipeline = f"gradient-accumulation{{steps=2,split={split}}},overflow-check,loss-scale,clip-gradients"
    path = tmp_path / "one.mindir"
    bc.compile(bc.load(str(exported("mlp"))), pipeline).save(str(path))
    pieces = bc.Session(str(path))
    assert isinstance(pieces._engine._runners["step"], Divided)
    monkeypatch.setattr(engine, "divide", lambda graph, context: None)
    whole = bc.Session(str(path))
    assert not isinstance(whole._engine._runners["step"], Divided)
    for i, (x, *labels) in enumerate(case.batches(7)):
        batch = (np.full_like(x, np.inf) if i == 3 else x, *labels)
        results = [session.step(*batch) for session in (pieces, whole)]
        raw = [{name: value.asnumpy().tobytes() for name, value in result.raw.items()} for result in results]
        assert raw[0] == raw[1]
    states = [{name: value.tobytes() for name, value in session.state().items()} for session in (pieces, whole)]
    assert states[0] == states[1]

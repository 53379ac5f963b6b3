"""Big gradients that their norm tests: the same answers and norms as by a test of each."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.text import parse_program
from boost_compile.runtime.lowering import norm_as_test
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower

import boost_compile as bc

TEXT = """
state %seen: float32[] role=counter
graph @step(%a: float32[256,256], %b: float32[65536], %scale: float32[]) -> (finite, total) {
  %r = RealDiv(float32[]<1.0>, %scale) scope("reciprocal")
  %ua = Mul(%a, %r)
  %ub = Mul(%b, %r)
  %ta = IsFinite(%ua)
  %fa = ReduceAll(%ta, (), false)
  %tb = IsFinite(%ub)
  %fb = ReduceAll(%tb, (), false)
  %finite = LogicalAnd(%fa, %fb)
  %rows = Reshape(%ua, (64, 1024)) : float32[64,1024]
  %sa = Square(%rows)
  %pa = ReduceSum(%sa, (1,), false, false)
  %qa = ReduceSum(%pa, (), false, false)
  %row = Reshape(%ub, (64, 1024)) : float32[64,1024]
  %sb = Square(%row)
  %pb = ReduceSum(%sb, (1,), false, false)
  %qb = ReduceSum(%pb, (), false, false)
  %all = MakeTuple(%qa, %qb)
  %total = AddN(%all) marks {squares = true}
  %count = AssignAdd(%seen, float32[]<1.0>, umonad)
  %u = UpdateState(umonad, %count)
  %both = MakeTuple(%finite, %total)
  %z = Depend(%both, %u)
  return %z
}
"""


def test_answers_and_sums_keep_their_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    program = parse_program(TEXT)
    assert "norm-as-test" in dict(lower(program.graphs["step"], Context(program, "cpu")).steps)
    ours = bc.Session(program)
    monkeypatch.setattr(norm_as_test, "applies", lambda graph, context: False)
    each = bc.Session(program)

    def measured(session: bc.Session, *inputs: np.ndarray) -> tuple[bool, bytes]:
        raw = session.step(*inputs).raw
        return bool(raw["finite"].asnumpy()), raw["total"].asnumpy().tobytes()

    a, b = np.random.default_rng(0).standard_normal((2, 65536)).astype(np.float32)
    a, scale = a.reshape(256, 256), np.float32(65536.0)
    # As they are; with squares that overflow before they are unscaled, and then too; with squares that underflow then.
    for factor, finite in ((1.0, True), (1e18, True), (1e30, True), (1e-12, True)):
        inputs = (a * np.float32(factor), b * np.float32(factor), scale)
        assert measured(ours, *inputs) == measured(each, *inputs)
        assert measured(ours, *inputs)[0] is finite
    for value in (np.inf, -np.inf, np.nan):
        for place in (0, 40_000, 65535):
            for bad in (a.copy(), b.copy()):
                bad.flat[place] = value
                inputs = (bad, b, scale) if bad.ndim == 2 else (a, bad, scale)
                assert not measured(ours, *inputs)[0], (value, place)


def test_few_elements_are_tested_by_themselves() -> None:
    """A Switch takes longer than a test of each: with few elements, or with many states, which it hands on."""
    many = "".join(f"state %s{k}: float32[] role=counter\n" for k in range(20))
    adds = "".join(f"  %a{k} = AssignAdd(%s{k}, float32[]<1.0>, umonad)\n" for k in range(20))
    crowded = many + TEXT.replace("  %u = UpdateState(umonad, %count)", adds + "  %u = UpdateState(umonad, %count)")
    program = parse_program(crowded)
    assert lower(program.graphs["step"], Context(program, "cpu"), [norm_as_test]).steps == ()
    small = TEXT.replace("256,256", "64,64").replace("65536]", "4096]").replace("64, 1024", "4, 1024")
    program = parse_program(small.replace("[64,1024]", "[4,1024]"))
    assert lower(program.graphs["step"], Context(program, "cpu"), [norm_as_test]).steps == ()

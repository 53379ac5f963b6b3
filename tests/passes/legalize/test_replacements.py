"""What replaces a primitive computes what it documents, by numpy; and what legalization reports and refuses."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.core.program import Program
from boost_compile.ir.rewrite.roles import assign_roles
from boost_compile.ir.text import parse_program
from boost_compile.passes import compile_program

from tests.execution import ORDERS, run_graph, train
from tests.graphs import program
from tests.material import batches, material, values
from tests.passes.graphs import HALF_LOSS

HERE = Path(__file__).parent
TEXT = (HERE / "legalize.ir").read_text()
BAD = (np.inf, -np.inf, np.nan)


def legal(source: Program, target: str = "cpu") -> Program:
    return compile_program(source, f"legalize{{target={target}}}", reproducer_directory=None)


def one(body: str, *inputs: str) -> Program:
    return legal(parse_program(f"graph @g({', '.join(inputs)}) {{\n{body}\n}}"))


@pytest.mark.parametrize("value", [1.0, *BAD])
def test_float_status(value: float) -> None:
    found = legal(parse_program(TEXT)).graphs["float_status"]
    given = [np.array([2, value], np.float32), np.array([5], np.float32)]
    np.testing.assert_array_equal(run_graph(found, given, {}), [5 if value == 1 else 6])


@pytest.mark.parametrize("place", [None, 0, 1, 3])
def test_all_finite(place: int | None) -> None:
    found = legal(parse_program(TEXT)).graphs["all_finite"]
    for bad in BAD:
        given = [np.ones(2, np.float32), np.ones(3, np.float16), np.int32(7), np.float32(1)]
        if place is not None:
            given[place] = np.full_like(given[place], bad)
        assert run_graph(found, given, {}) == (place is not None)


def test_all_finite_of_nested_tuples() -> None:
    body = "  %values = MakeTuple(%t, %a)\n  %overflow = AllFinite(%values, %b) : bool[]\n  return %overflow"
    found = one(body, "%t: (float32[2], (float32[], float32[3]))", "%a: float32[]", "%b: float32[]").graphs["g"]
    for bad in range(-1, 5):
        parts = [np.ones(s, np.float32) for s in ((2,), (), (3,), (), ())]
        if bad >= 0:
            parts[bad] = np.full_like(parts[bad], np.nan)
        a, b, c, d, e = parts
        assert run_graph(found, [(a, (b, c)), d, e], {}) == (bad >= 0)


def test_all_finite_of_a_tuple_of_any_length_is_refused() -> None:
    with pytest.raises(PassError, match="no fixed number of elements"):
        one("  %overflow = AllFinite(%t) : bool[]\n  return %overflow", "%t: (float32[2])*")


@pytest.mark.parametrize(
    ("operands", "axes"),
    [
        ("%x, [1, 2])", (1, 2)),
        ("%x, (1,))", (1,)),
        ("%x, 2)", (2,)),
        ("%x) {axis = (0, 2)}", (0, 2)),
        ("%x) {axis = 1}", (1,)),
        ("%x)", (0, 1, 2)),
    ],
)
def test_centralization(operands: str, axes: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal((4, 3, 2)).astype(np.float32)
    found = one(f"  %y = Centralization({operands} : float32[4,3,2]\n  return %y", "%x: float32[4,3,2]")
    wanted = x - x.mean(axes, keepdims=True)
    np.testing.assert_allclose(run_graph(found.graphs["g"], [x], {}), wanted, rtol=1e-5, atol=1e-6)


READ_TWICE = assign_roles(parse_program(TEXT))
IN_PLACE = """
state %w: float32[2] role=weight
state %b: float32[3] role=weight
graph @status(%x: float32[2], %y: float32[3]) -> (loss, output1, output2) {
  %w0 = Load(%w, umonad) @f
  %b0 = Load(%b, umonad) @f
  %wx = Mul(%w0, %x) @f
  %by = Mul(%b0, %y) @f
  %left = ReduceSum(%wx, (), false) : float32[] @f
  %right = ReduceSum(%by, (), false) : float32[] @f
  %loss = Mul(%left, %right) @f
  %buffer = NPUAllocFloatStatus() : float32[8]
  %cleared = Depend(%buffer, %loss)
  %clear = NPUClearFloatStatus(%cleared) : float32[8]
  %seed = Depend(float32[]<1024.0>, %clear)
  %dl = Mul(%seed, %right) @b
  %dr = Mul(%seed, %left) @b
  %gw = Mul(%dl, %x) @b
  %gb = Mul(%dr, %y) @b
  %both = MakeTuple(%gw, %gb)
  %waiting = Depend(%cleared, %both)
  %get = NPUGetFloatStatus(%waiting) : float32[8]
  %status = Depend(%cleared, %get)
  %sum = ReduceSum(%status, (), false) : float32[]
  %overflow = LessEqual(float32[]<1.0>, %sum) : bool[]
  %step = Select(%overflow, float32[]<0.0>, float32[]<0.1>) : float32[]
  %mw = Mul(%gw, %step)
  %mb = Mul(%gb, %step)
  %u1 = UpdateState(umonad, %w0, %b0, %wx, %by)
  %aw = AssignSub(%w, %mw, %u1)
  %ab = AssignSub(%b, %mb, %u1)
  %u2 = UpdateState(%u1, %aw, %ab)
  %all = MakeTuple(%loss, %overflow, %sum)
  %r = Depend(%all, %u2)
  return %r
}"""


READ_AT_ONCE = (
    IN_PLACE.replace("  %buffer = NPUAllocFloatStatus() : float32[8]\n", "")
    .replace("Depend(%buffer, %loss)", "Depend(int32[8]<zeros>, %loss)")
    .replace("NPUClearFloatStatus(%cleared) : float32[8]", "NPUClearFloatStatusV2(%cleared) : int32[8]")
    .replace("%get = NPUGetFloatStatus(%waiting) : float32[8]", "%status = NPUGetFloatStatusV2(%waiting) : int32[8]")
    .replace("  %status = Depend(%cleared, %get)\n", "")
    .replace("ReduceSum(%status, (), false) : float32[]", "ReduceSum(%status, (), false) : int32[]")
    .replace("LessEqual(float32[]<1.0>", "LessEqual(int32[]<1>")
)


PASSED_ON = READ_AT_ONCE.replace(
    "  %sum = ReduceSum(%status,", "  %held = Depend(%status, %gw)\n  %sum = ReduceSum(%held,"
)


@pytest.mark.parametrize(
    ("source", "unscaled"),
    [(READ_TWICE, 1 / 1024), *((program(text), 1.0) for text in (IN_PLACE, READ_AT_ONCE, PASSED_ON))],
    ids=["read twice", "in place", "read at once", "passed on"],
)
def test_the_overflow_status(source: Program, unscaled: float) -> None:
    """Both generations: overflow is whether a gradient is not finite; what adds the status up gets a number for it."""
    found = legal(source).graphs["status"]
    for order, bad in itertools.product(ORDERS, (0.0, *BAD)):
        x, y = np.array([1, 2], np.float32), np.array([3, 4, bad], np.float32)
        memory = {"w": np.ones(2, np.float32), "b": np.ones(3, np.float32)}
        loss, overflow, count = run_graph(found, [x, y], memory, order)
        assert overflow == (bad != 0)
        assert count == (8 if bad else 0)
        if not bad:
            assert loss == 21
            np.testing.assert_allclose(memory["w"], 1 - 0.1 * 1024 * unscaled * 7 * x, rtol=1e-6)
            np.testing.assert_allclose(memory["b"], 1 - 0.1 * 1024 * 3 * y, rtol=1e-6)
    assert not [node for node in found if node.op.name.startswith("NPU")]


def test_a_status_that_nobody_fills_is_zero() -> None:
    """Also where a function takes it."""
    found = legal(
        parse_program("""
graph @g(%x: float32[2]) {
  func @read(%y: float32[2]) {
    %buffer = NPUAllocFloatStatus() : float32[8]
    %sum = ReduceSum(%buffer, (), false) : float32[]
    return %sum
  }
  %buffer = NPUAllocFloatStatus() : float32[8]
  %later = Depend(%buffer, %x)
  %clear = NPUClearFloatStatus(%later) : float32[8]
  %sum = ReduceSum(%clear, (), false) : float32[]
  %waits = Depend(%sum, %clear)
  %more = call(@read, %x) : float32[]
  %all = Add(%waits, %more)
  return %all
}""")
    ).graphs["g"]
    assert run_graph(found, [np.ones(2, np.float32)], {}) == 0
    assert not [n for body in found.all_graphs() for n in body if n.op.name.startswith("NPU")]


def test_a_file_with_a_dynamic_loss_scale_skips_what_overflows() -> None:
    source = material("mlp_loss_scale_dynamic")
    found = legal(source)
    state, (good, bad) = values(source), batches(source, 2)
    bad[0] = np.full_like(bad[0], np.inf)
    kept = [n for n, v in source.state.items() if v.role in ("weight", "slot")]
    for order in ORDERS:
        (_, result), after = train(found, state, [bad], order)[0][0], train(found, state, [bad], order)[1]
        assert dict(zip(found.graphs["step"].outputs, result, strict=True))["overflow"]
        for n in kept:
            np.testing.assert_array_equal(after[n], state[n])
        assert after["scale_sense"] == state["scale_sense"] / 2
    assert found.graphs["step"].outputs == ("loss", "overflow", "loss_scale")
    assert not dict(zip(found.graphs["step"].outputs, train(found, state, [good])[0][0][1], strict=True))["overflow"]


OVERWRITES = """
graph @values(%x: float32[2]) {
  %sum = Neg(%x)
  %twice = InplaceMuls(%sum, 2.0, umonad) {side_effect_mem = true} : float32[2]@t
  %u = UpdateState(umonad, %twice)
  %more = InplaceAddExt(%twice, %x, 1, %u) {side_effect_mem = true} : float32[2]@t
  %end = UpdateState(%u, %more)
  %r = Depend(%x, %end)
  return %r
}
graph @constants(%x: float32[2]) {
  %mask = InplaceMul(float32[2]<1.0, 1.0>, %x, umonad) {side_effect_mem = true} : float32[2]@t primal {unique_id = "1"}
  %end = UpdateState(umonad, %mask)
  %r = Depend(%mask, %end)
  return %r
}"""


def test_what_was_replaced_is_reported() -> None:
    (report,) = legal(READ_TWICE).reports
    names = {"FloatStatus": 1, "AllFinite": 2, "Centralization": 1}
    status = {"NPUClearFloatStatusV2": 2, "NPUGetFloatStatusV2": 1}
    assert report.statistics == {**names, **status, "primitives taken on trust": 1}
    assert (report.matched, report.changed) == (7, 7)
    said = ", ".join(f"{name} x {n} replaced" for name, n in (names | status).items())
    assert report.summary == f"{said} for cpu"
    (report,) = legal(program(OVERWRITES)).reports
    assert (report.matched, report.changed) == (3, 3)
    assert report.summary == (
        "2 in-place operations given a result of their own, 1 constant copied before they are written for cpu"
    )
    (report,) = legal(material("mlp")).reports
    assert (report.matched, report.summary) == (0, "nothing to replace for cpu")
    assert legal(material("mlp"), "ascend").target == "ascend"


def test_it_comes_along_where_the_target_asks_for_it() -> None:
    for text in (TEXT, OVERWRITES[: OVERWRITES.index("graph @constants")], HALF_LOSS):
        target = "gpu" if text is HALF_LOSS else "cpu"
        found = compile_program(assign_roles(parse_program(text)), "dead-code-elimination", target=target)
        assert [r.name for r in found.reports] == ["legalize", "dead-code-elimination"]
    found = compile_program(material("mlp"), "dead-code-elimination", target="cpu")
    assert [r.name for r in found.reports] == ["dead-code-elimination"]


def test_what_cannot_be_replaced_is_refused() -> None:
    no_training = "  %get = NPUGetFloatStatusV2(%x) : int32[8]\n  return %get"
    with pytest.raises(PassError, match=r"(?s)asks for an overflow status.*before any pass that splits it"):
        one(no_training, "%x: int32[8]")
    body = "  %y = InstanceNormGrad(%x) : float32[2]\n  return %y"
    reason = r"no cpu kernel for InstanceNormGrad \(node %y, graph 'g'\).* compile for gpu"
    with pytest.raises(PassError, match=reason):
        one(body, "%x: float32[2]")
    with pytest.raises(PassError, match=reason):
        compile_program(parse_program(f"graph @g(%x: float32[2]) {{\n{body}\n}}"), "", target="cpu")


def test_a_status_in_a_function_that_is_not_given_the_gradients_is_refused() -> None:
    inside = IN_PLACE.replace(
        "-> (loss, output1, output2) {",
        """-> (loss, output1, output2) {
  func @asked(%given: float32[8]) {
    %get = NPUGetFloatStatus(%given) : float32[8]
    %read = Depend(%given, %get)
    return %read
  }""",
    ).replace("  %get = NPUGetFloatStatus(%waiting) : float32[8]\n", "")
    inside = inside.replace("%status = Depend(%cleared, %get)", "%status = call(@asked, %waiting) : float32[8]")
    with pytest.raises(PassError, match=r"the function is not given the gradient .* of weight '[wb]'"):
        legal(program(inside))


def test_a_gradient_that_the_status_does_not_wait_for_is_tested_too() -> None:
    """Only the gradient of %b overflows, and the source waits for that of %w alone."""
    found = legal(READ_TWICE).graphs["status"]
    memory = {"w": np.ones(2, np.float32), "b": np.zeros(3, np.float32)}
    given = [np.array([1, 2], np.float32), np.full(3, 1e36, np.float32)]
    assert run_graph(found, given, memory)[1]
    np.testing.assert_array_equal(memory["w"], [1, 1])

"""One broken graph for every rule of calls and effects."""

from __future__ import annotations

import pytest
from boost_compile.ir.text import parse_graph, parse_program
from boost_compile.ir.verify.verifier import loses_effects, verify

from tests.ir.broken import SWITCH, UPDATE, edited, only, problems

# -- calls -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@yes, %w, %x, umonad)", "@yes, %w, %x, %x, umonad)", "function 'yes' takes 3 arguments, 4 are given"),
        ("@yes, %w, %x, umonad)", "@yes, %w, %x)", "function 'yes' takes 3 arguments, the call reaches it with 2"),
        (
            "@yes, %w, %x, umonad)",
            "@yes, %w, %go, umonad)",
            "argument 1 of function 'yes', %x (float32[2]), is given %go (bool[])",
        ),
        ("@yes, %w, %x, umonad)", "@yes, %w, umonad, %x)", "stands after an effect token"),
        ("call(%s)", "call(%s, %x)", "function 'no' takes 0 arguments, 1 are given"),
        (
            "call(%s) : float32[2]",
            "call(%s) : float32[3]",
            "its type is float32[3], but function 'yes' returns float32[2]",
        ),
        ("Partial(@no)", "Partial(%x) : fn<@no>", "the first operand of Partial is no function"),
        ("call(%s)", "call()", "a call of nothing; the first operand is the function"),
    ],
)
def test_calls(old: str, new: str, message: str) -> None:
    assert message in problems(edited(SWITCH, old, new))


def test_direct_calls_and_bound_arguments_together() -> None:
    text = """graph @g(%x: float32[2], %n: int32[]) {{
  %p = Partial(@f, %x)
  %r = {}
  return %r
  func @f(%a: float32[2], %b: int32[]) {{
    return %b
  }}
}}"""
    verify(parse_graph(text.format("call(%p, %n) : int32[]")))
    verify(parse_graph(text.format("call(@f, %x, %n) : int32[]")))
    assert "argument 1 of function 'f', %b (int32[]), is given %x" in only(
        parse_graph(text.format("call(%p, %x) : int32[]"))
    )
    assert "argument 0 of function 'f'" in only(parse_graph(text.format("call(@f, %n, %n) : int32[]")))
    assert "the call reaches it with 1" in only(parse_graph(text.format("call(@f, %x) : int32[]")))


def test_recursion_needs_a_switch() -> None:
    text = """graph @g(%x: float32[2], %c: bool[]) {{
  %r = call(@f, %x, %c) : float32[2]
  return %r
  func @f(%x: float32[2], %c: bool[]) {{
    %y = Exp(%x)
    {}
    return %r
  }}
  func @h(%x: float32[2], %c: bool[]) {{
    %r = call(@f, %x, %c) : float32[2]
    return %r
  }}
}}"""
    direct = parse_graph(text.format("%r = call(@f, %y, %c) : float32[2]"))
    assert "function 'f', node %r: function 'f' calls itself without a Switch, so it never ends" in only(direct)
    mutual = parse_graph(text.format("%r = call(@h, %y, %c) : float32[2]"))
    assert "calls itself without a Switch" in only(mutual)
    switched = "%p = Partial(@h, %y, %c)\n%q = Partial(@f, %x, %c)\n%s = Switch(%c, %p, %q)\n%r = call(%s) : float32[2]"
    verify(parse_graph(text.format(switched)))


# -- effects ---------------------------------------------------------------------------------------------------


LOAD = "Load(%w, umonad)"
WRITE = "AssignAdd(%w, %x, umonad)"
TOKEN = "UpdateState(umonad, %a, %l)"
NOT_STATE = "(float32[2]), in place, which is not state"
LOST = "its effect would silently not happen: nothing ties it to the result"
PRINT = '%p = Print("x", iomonad) {side_effect_io = true} : int32[]'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (LOAD, "Load(%w)", "Load takes what it reads and a token; give it both"),
        (LOAD, "Load(%w, %x)", "Load takes what it reads and a token"),
        (TOKEN, "UpdateState(%a, umonad)", "the first operand of UpdateState is not a token"),
        (TOKEN, TOKEN + " : float32[2]", "its type is float32[2], but UpdateState"),
        (WRITE, "AssignAdd(%w, umonad, %x)", "operand 2, %x (float32[2]), stands after an effect token"),
        (WRITE, "AssignAdd(%w, %x)", "AssignAdd writes in place but has no token, so its moment is undefined"),
        (WRITE, "AssignAdd(%l, %x, umonad)", "AssignAdd writes operand 0, %l " + NOT_STATE),
        (WRITE, "AssignAdd(%x, %x, umonad)", "AssignAdd writes operand 0, %x " + NOT_STATE),
        (
            WRITE,
            "ApplyMomentum(%w, %l, 0.1, %x, 0.9, umonad) : float32[2]",
            "ApplyMomentum writes operand 1, %l " + NOT_STATE,
        ),
        (TOKEN, "UpdateState(umonad, %l)", "node %a: " + LOST),
        ("Depend(%y, %u)", "Exp(%y)", "node %a: " + LOST),
        (WRITE, WRITE + "\n  " + PRINT, "node %p: " + LOST),
    ],
)
def test_effects(old: str, new: str, message: str) -> None:
    subject = edited(UPDATE, old, new)
    report = problems(subject)
    assert message in report
    # These alone would be gone behind a pass that takes them for dead, or rebuilds the tokens.
    assert loses_effects(subject) == (LOST in report or "has no token" in report)


def test_the_result_of_a_write_stands_for_the_state() -> None:
    verify(
        edited(
            UPDATE,
            "  %u = UpdateState(umonad, %a, %l)\n",
            "  %t = UpdateState(umonad, %a, %l)\n  %b = Assign(%a, %x, %t)\n  %u = UpdateState(%t, %b)\n",
        )
    )


def test_writes_through_function_inputs_reach_state() -> None:
    report = problems(edited(SWITCH, "Partial(@yes, %w, %x, umonad)", "Partial(@yes, %x, %x, umonad)"))
    assert "node %r: input %w of the function is written in place (by %a)" in report
    assert "but is given %x (float32[2]), which is not state" in report
    nested = SWITCH.replace("%a = AssignAdd(%w, %x, %u)", "%a = call(@inner, %w, %x, %u) : float32[2]").replace(
        "  func @no()",
        "  func @inner(%v: float32[2], %x: float32[2], %u: umonad) {\n    %a = AssignAdd(%v, %x, %u)\n"
        "    %t = UpdateState(%u, %a)\n    %d = Depend(%x, %t)\n    return %d\n  }\n  func @no()",
    )
    verify(parse_program(nested))
    report = only(parse_program(nested.replace("Partial(@yes, %w, %x, umonad)", "Partial(@yes, %x, %x, umonad)")))
    assert "input %w of the function is written in place" in report


def test_a_lost_call_is_a_lost_effect_only_if_it_has_one() -> None:
    lost = SWITCH.replace("  %u = UpdateState(umonad, %r)\n  %d = Depend(%r, %u)\n  return %d\n", "  return %x\n", 1)
    assert "node %r: its effect would silently not happen" in only(parse_program(lost))
    assert loses_effects(parse_program(lost))
    assert not loses_effects(parse_program(SWITCH))
    pure = lost.replace(
        "    %a = AssignAdd(%w, %x, %u)\n    %v = UpdateState(%u, %a)\n    %d = Depend(%x, %v)\n    return %d\n",
        "    return %x\n",
    )
    verify(parse_program(pure))

"""What functions return and nobody needs goes: of all that one call may reach, or of none."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.rewrite.evaluation.pruning import prune
from boost_compile.ir.verify.verifier import verify

from tests.execution import run_graph
from tests.graphs import program

TRIPLE = "(float32[2], float32[2], float32[2])"
TEXT = f"""
graph @net(%x: float32[2], %c: bool[]) {{
  %a = Partial(@left, %x)
  %b = Partial(@right, %x)
  %s = Switch(%c, %a, %b) : union<@left, @right>
  %r = call(%s) : {TRIPLE}
  %v = TupleGetItem(%r, 0)
  %d = Depend(%v, %x)
  RETURN
  func @left(%p: float32[2]) {{
    %e = Exp(%p)
    %n = Neg(%p)
    %q = Square(%p)
    %t = MakeTuple(%e, %n, %q)
    return %t
  }}
  func @right(%p: float32[2]) {{
    %i = call(@inner, %p) : {TRIPLE}
    %w = Depend(%i, %p)
    return %w
  }}
  func @inner(%p: float32[2]) {{
    %e = Square(%p)
    %n = Exp(%p)
    %u = Neg(%n)
    %t = MakeTuple(%e, %n, %u)
    return %t
  }}
}}"""
CASES = {
    "one element": ("return %d", {"left": "et", "inner": "et"}),
    "two, the second by a call of one of them": (
        f"%k = call(@inner, %x) : {TRIPLE}\n  %m = TupleGetItem(%k, 2)\n  %z = Mul(%d, %m)\n  return %z",
        {"left": "eqt", "inner": "enut"},
    ),
    "the whole tuple": (
        f"%k = call(@inner, %x) : {TRIPLE}\n  %m = AddN(%k) : float32[2]\n  %z = Mul(%d, %m)\n  return %z",
        {"left": "enqt", "inner": "enut"},
    ),
    "the tuple as the result": ("%all = MakeTuple(%d, %r)\n  return %all", {"left": "enqt", "inner": "enut"}),
    "one element, and an order": (
        f"%k = call(@inner, %x) : {TRIPLE}\n  %m = Depend(%d, %k)\n  return %m", {"left": "et", "inner": "et"}
    ),
}  # fmt: skip


def same(found: object, wanted: object) -> None:
    if isinstance(wanted, tuple):
        assert isinstance(found, tuple)
        for a, b in zip(found, wanted, strict=True):
            same(a, b)
    else:
        np.testing.assert_array_equal(found, wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize(("result", "left"), CASES.values(), ids=CASES)
def test_only_what_the_result_needs_stays(result: str, left: dict[str, str]) -> None:
    source, pruned = (program(TEXT.replace("RETURN", result)).graphs["net"] for _ in range(2))
    prune(pruned)
    verify(pruned)
    assert {name: "".join(n.name for n in pruned.functions[name]) for name in left} == left
    for branch in (True, False):
        given = [np.float32([1, 2]), np.array(branch)]
        same(run_graph(pruned, given, {}), run_graph(source, given, {}))


def test_a_function_that_hands_on_a_tuple_that_it_was_given_keeps_all_of_the_others() -> None:
    text = TEXT.replace("RETURN", "return %d").replace("Partial(@right, %x)", "Partial(@right, %x, %given)")
    text = text.replace("  %a = Partial", "  %given = MakeTuple(%x, %x, %x)\n  %a = Partial", 1)
    text = text.replace("@right(%p: float32[2])", f"@right(%p: float32[2], %i: {TRIPLE})")
    text = text.replace(f"    %i = call(@inner, %p) : {TRIPLE}\n", "")
    i, j = text.index("  func @inner"), text.rindex("}")
    pruned = program(text[:i] + text[j:]).graphs["net"]
    prune(pruned)
    verify(pruned)
    assert "".join(n.name for n in pruned.functions["left"]) == "enqt"

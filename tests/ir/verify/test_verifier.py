"""Sound graphs, exported ones too, pass; what the report says; graphs of any width."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from boost_compile.ir.core.attributes import MonadValue
from boost_compile.ir.core.graph import Constant, Graph
from boost_compile.ir.core.types import tensor
from boost_compile.ir.formats.mindir.reader import read_mindir
from boost_compile.ir.text import parse_graph, parse_program
from boost_compile.ir.verify.verifier import verify

from tests.ir.broken import SWITCH, UPDATE, F, chain, edited, problems

# -- what is sound ---------------------------------------------------------------------------------------------


def test_sound_graphs_pass() -> None:
    verify(chain()[0])
    verify(parse_program(UPDATE))
    verify(parse_program(SWITCH))
    verify(parse_program(SWITCH).graphs["step"])
    verify(parse_program(SWITCH).graphs["step"].functions["yes"])


@pytest.mark.parametrize(
    "case", ["mlp", "mlp_loss_scale_dynamic", "mlp_rprop", "lenet_bn", "gpt_tied", "lstm", "loop", "branch", "printing"]
)
def test_exported_graphs_pass(case: str, exported: Callable[[str], Any]) -> None:
    verify(read_mindir(exported(case)))


def test_a_state_may_be_read_without_a_load() -> None:
    verify(edited(UPDATE, "Mul(%x, %l)", "Mul(%x, %w)"))


def test_a_batch_norm_that_is_not_training_writes_nothing() -> None:
    text = """
graph @g(%x: float32[1,2,3,3], %s: float32[2]) {{
  %y = BatchNorm(%x, %s, %s, %s, %s, {}, 1e-5, 0.9, "NCHW") {} exact : (float32[1,2,3,3], float32[2])
  return %y
}}"""
    verify(parse_graph(text.format("false", "{}")))
    report = problems(parse_graph(text.format("true", "{side_effect_mem = true}")))
    assert "BatchNorm writes operand 3, %s (float32[2]), in place, which is not state" in report
    assert "BatchNorm writes operand 4" in report


# -- the report ------------------------------------------------------------------------------------------------


def test_a_problem_names_its_place_and_shows_it() -> None:
    g, _a, _b, c = chain()
    c.type = tensor("float32", 3)
    assert problems(g) == (
        "graph 'g' is not valid: 1 problem\n"
        "- graph 'g', node %c (scope Default/c-op): its type is float32[3], but Sqrt of these operands "
        "gives float32[2]; give it that type, or fix the operands\n"
        "    %a = Exp(%x) : float32[2]\n"
        "    %b = Neg(%a) : float32[2]\n"
        "  > %c = Sqrt(%b) : float32[3]"
    )


def test_all_problems_are_told_up_to_a_limit_the_gravest_first() -> None:
    g = Graph("g")
    x = g.add_input("x", F)
    for _ in range(30):
        g.create("Exp", [x], tensor("float32", 3))
    last = g.create("Exp", [x], F, name="last")
    g.result = last
    del x.uses[last]
    report = problems(g, limit=5)
    assert "graph 'g' is not valid: 31 problems" in report
    assert "%last: operand 0, %x (float32[2]), does not list the node as a user" in report.splitlines()[1]
    assert report.count("\n- ") == 5
    assert report.endswith("… and 26 more")


def test_wide_lines_are_cut() -> None:
    g = Graph("g")
    x = g.add_input("x", F)
    g.result = g.create("MakeTuple", [x] * 5000, F)
    assert max(map(len, problems(g).splitlines())) < 500


# -- size ------------------------------------------------------------------------------------------------------


def test_wide_nodes_and_repeated_operands() -> None:
    g = Graph("g")
    x = g.add_input("x", F)
    wide = g.create("MakeTuple", [x] * 64_000)
    token = g.create("UpdateState", [g.constant(MonadValue("umonad")), *[x, wide] * 1000])
    g.result = g.create("Depend", [g.create("AddN", [wide]), token])
    verify(g)
    wide._operands[63_999] = Constant("k", 1.0)
    assert "operand 63999, %k (float32), does not list the node as a user" in problems(g)

"""The reductions over ranks that a file brings itself."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.core.graph import Node
from boost_compile.passes import compile_program
from boost_compile.passes.step.exported_reductions import is_inverse, reduces_gradients, take_out_reductions

from tests.graphs import graph, node, program
from tests.passes.graphs import WEIGHTED


@pytest.mark.parametrize("number", ["1.0", "0.5", "0.125", "0.333333343", "0.3335", "1.52587891e-05"])
@pytest.mark.parametrize("operands", ["%x, float32[]<{}>", "float32[]<{}>, %x", "%x, float16[1]<{}>"])
def test_a_factor_that_makes_a_sum_over_ranks_a_mean(number: str, operands: str) -> None:
    """2^-16 is the smallest: of 65,536 ranks. What MindSpore computed in half precision may lie beside."""
    if number != "1.52587891e-05" or "float16" not in operands:
        assert is_inverse(node(graph(f"%m = Mul({operands.format(number)}) : float32[2]\nreturn %m"), "m"))


@pytest.mark.parametrize("number", ["0.0", "-0.5", "0.4", "0.3338", "2.0", "1.001", "1.5e-05"])
def test_other_factors(number: str) -> None:
    assert not is_inverse(node(graph(f"%m = Mul(%x, float32[]<{number}>)\nreturn %m"), "m"))


@pytest.mark.parametrize("operands", ["%x, %x", "%x, int32[]<1>", "%x, float32[2]<0.5, 0.5>"])
def test_a_product_with_something_else(operands: str) -> None:
    assert not is_inverse(node(graph(f"%m = Mul({operands}) : float32[2]\nreturn %m"), "m"))


WORLD = 'group = "hccl_world_group"'


def reducing(attributes: str = f"{{{WORLD}}}", cell: str = "Default/reducer") -> str:
    text = WEIGHTED.replace("%rate, %g,", "%rate, %to,")
    sums = f'%sum = AllReduce(%g) {attributes} scope("{cell}/AllReduce")\n'
    return text.replace("  %u =", f'  {sums}  %to = Mul(%sum, float32[]<0.25>) scope("Default/reducer/Mul")\n  %u =')


def test_reductions_of_the_file_and_those_of_a_pass() -> None:
    assert reduces_gradients(program(reducing()))
    assert not reduces_gradients(program(WEIGHTED))
    of = compile_program(program(WEIGHTED), "data-parallel{fusion=0}", reproducer_directory=None)
    assert "AllReduce" in {n.op.name for n in of.graphs["step"]}
    assert not reduces_gradients(of)


def test_a_mean_is_taken_out() -> None:
    g = graph(reducing())
    found = take_out_reductions(g)
    assert (found.number, found.mean, found.left_alone, found.kept) == (1, True, (), 0)
    assert node(g, "up").operand(2) is node(g, "g")


def test_what_waits_for_a_sum_does_not_hide_its_factor() -> None:
    found = take_out_reductions(graph(reducing().replace("UpdateState(umonad, %y)", "UpdateState(umonad, %y, %sum)")))
    assert (found.number, found.mean) == (1, True)


@pytest.mark.parametrize("text", [reducing(cell="Default/other"), reducing().replace("0.25", "0.4")])
def test_a_factor_of_another_cell_or_size_may_be_more_than_the_mean(text: str) -> None:
    """It stays, times the number of ranks."""
    g = graph(text)
    found = take_out_reductions(g)
    assert (found.number, found.mean, found.kept) == (1, True, 1)
    to = node(g, "to")
    assert to.operand(0) is node(g, "g")
    assert [v.op.name for v in to.operand(1).operands if isinstance(v, Node)] == ["AllReduce"]


@pytest.mark.parametrize("attributes", ['{group = "some"}', f'{{{WORLD}, op = "max"}}'])
def test_what_is_no_sum_over_all_ranks_is_refused(attributes: str) -> None:
    with pytest.raises(PassError, match="only sums over all ranks can be replaced"):
        take_out_reductions(graph(reducing(attributes)))

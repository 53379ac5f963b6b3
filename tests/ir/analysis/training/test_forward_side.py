"""What happens for every batch though autodiff did not mark it, and what only looks so."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training.forward_side import carried_operands
from boost_compile.ir.analysis.training.network import BACKWARD, FORWARD, network_parts

from tests.graphs import graph, node

STEP = """
state %w: float32[2]
state %s: float32[2]
state %t: float32[2]
state %rate: float32[]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %loss = ReduceSum(%y, (), false) @f
  %g = Mul(%x, %x) @b
BODY
  %u = UpdateState(umonad, %y, %g)
  %up = ApplyGradientDescent(%w, %rate, TO, %u) : float32[2]
  %end = UpdateState(%u, %up)
  %r = Depend(RESULT, %end)
  return %r
}"""


def forward(body: str, result: str = "%loss", to: str = "%g") -> set[str]:
    """The nodes that became forward without a mark."""
    g = graph(STEP.replace("BODY", body).replace("RESULT", result).replace("TO", to))
    parts = network_parts(g)
    assert parts[node(g, "g")] == BACKWARD
    return {n.name for n, part in parts.items() if part == FORWARD} - {"w0", "y", "loss"}


KEPT = """%old = Load(%s, umonad)
%sum = Add(%old, %y)
%us = UpdateState(umonad, %sum)
%write = Assign(%s, %sum, %us)
%tie = UpdateState(%us, %write)
%g1 = Depend(%g, %tie)"""


@pytest.mark.parametrize(
    ("body", "result", "wanted"),
    [
        ("%both = Add(%loss, %loss)", "%both", {"both"}),  # two losses
        ("%n = Neg(%y)\n%m = ReduceSum(%n, (), false)", "%m", {"n", "m"}),  # an accuracy
        ("%n = Neg(%g)", "%n", set()),  # of a gradient
        ("%n = Neg(%y)", "%loss", set()),  # of nothing that is asked for
        ("%c = Neg(float32[2]<1.0, 2.0>)", "%c", set()),  # of no input
        ("%l = Load(%rate, umonad)\n%d = Mul(%loss, %l)", "%d", {"d", "l"}),  # with state that nothing writes
        ("%l = Load(%w, umonad)\n%d = Mul(%y, %l)", "%d", set()),  # with state that the update writes
        ("%d = Depend(%y, %g)\n%n = Neg(%d)", "%n", {"d", "n"}),  # it waits for a gradient, and takes none
        ("%l = Mul(%y, %t)", "%l", {"l"}),  # a state as it stands, without a Load
    ],
)
def test_results_of_forward_values_alone(body: str, result: str, wanted: set[str]) -> None:
    assert forward(body, result) == wanted


def test_a_running_total_is_written_for_every_batch() -> None:
    assert forward(KEPT, to="%g1") == {"old", "sum", "write"}


@pytest.mark.parametrize(
    "body",
    [
        KEPT.replace("Add(%old, %y)", "Add(%old, %g)"),  # what is written depends on a gradient
        KEPT.replace("Add(%old, %y)", "Add(%old, %old)"),  # on no input of this batch
        KEPT.replace("Load(%s,", "Load(%w,"),  # on a state that the update writes
        KEPT.replace("Depend(%g, %tie)", "Add(%g, %again)").replace("%g1 =", "%again = Load(%s, %tie)\n%g1 ="),
        # the update reads it
        KEPT + "\n%w2 = Assign(%s, %g, %tie)\n%tie2 = UpdateState(%tie, %w2)\n%g2 = Depend(%g1, %tie2)",
        # the update writes it too
    ],
    ids=["gradient", "nothing", "weight", "read", "written"],
)
def test_state_that_belongs_to_the_update(body: str) -> None:
    assert forward(body, to="%g2" if "%g2" in body else "%g1") == set()


def test_a_state_read_by_one_that_is_not_adopted_is_not_either() -> None:
    """%t is written from %s and a gradient: it is the update's, which therefore reads %s."""
    end = "%tie2 = UpdateState(%tie, %w2)\n%g2 = Depend(%g1, %tie2)"
    more = f"\n%l = Load(%s, %tie)\n%mix = Mul(%l, %g)\n%w2 = Assign(%t, %mix, %tie)\n{end}"
    assert forward(KEPT + more, to="%g2") == set()
    alone = f"\n%z = Neg(%y)\n%w2 = Assign(%t, %z, %tie)\n{end}"
    assert forward(KEPT + alone, to="%g2") == {"old", "sum", "write", "z", "w2"}


COUNTED = """%n0 = Load(%t, umonad)
%n = Add(%n0, float32[2]<1.0, 1.0>)
%old = Load(%s, umonad)
%sum = Add(%old, %y)
%mean = Div(%sum, BY)
%us = UpdateState(umonad, %mean)
%write = Assign(%s, %mean, %us)
%count = Assign(%t, %n, %us)
%tie = UpdateState(%us, %write, %count)
%g1 = Depend(%g, %tie)"""


def test_states_that_read_each_other_are_one_class() -> None:
    """A mean is divided by a count, which takes nothing of the batch: both move with it, or, where the update reads the
    count, none does."""
    together = {"old", "sum", "mean", "write"}
    assert forward(COUNTED.replace("BY", "%n"), to="%g1") == together | {"n0", "n", "count"}
    assert forward(COUNTED.replace("BY", "float32[]<4.0>"), to="%g1") == together
    read = COUNTED.replace("Depend(%g, %tie)", "Mul(%g, %again)").replace("%g1 =", "%again = Load(%t, %tie)\n%g1 =")
    assert forward(read.replace("BY", "%n"), to="%g1") == set()
    assert forward(read.replace("BY", "float32[]<4.0>"), to="%g1") == together


def test_a_queue_and_its_pointer() -> None:
    queue = """%at = ReduceSum(%t, (), false)
%shift = Mul(%s, %at)
%next = Add(%shift, %y)
%write = Assign(%s, %next, umonad)
%u0 = UpdateState(umonad, %write)
%point = AssignAdd(%t, float32[2]<1.0, 1.0>, %u0)
%tie = UpdateState(%u0, %point)
%g1 = Depend(%g, %tie)"""
    assert forward(queue, to="%g1") == {"at", "shift", "next", "write", "point"}


def test_an_optimizer_is_never_forward() -> None:
    body = "%o = ApplyGradientDescent(%s, %rate, %y, umonad) : float32[2]\n%tie = UpdateState(umonad, %o)\n"
    assert forward(body + "%g1 = Depend(%g, %tie)", to="%g1") == set()


def test_what_a_depend_carries() -> None:
    g = graph("%n = Neg(%x)\n%d = Depend(%x, %n)\n%m = Mul(%d, %n)\nreturn %m")
    assert list(carried_operands(node(g, "d"))) == [g.inputs[0]]
    assert list(carried_operands(node(g, "m"))) == [node(g, "d"), node(g, "n")]


@pytest.mark.parametrize(
    ("loss", "written", "adopted"),
    [("%z", "%y", False), ("%z", "%x", True), ("%e", "%y", True)],
    ids=["the derivative", "another value", "not linear"],
)
def test_a_state_that_descends_is_no_statistic(loss: str, written: str, adopted: bool) -> None:
    """A loss that adds up the products of a state and a value has that value for a derivative by the state."""
    body = (
        f"%s0 = Load(%s, umonad) @f\n%z = Mul(%s0, %y) @f\n%e = Exp(%z) @f\n"
        f"%both = ReduceSum({loss}, (), false) @f\n%us = UpdateState(umonad, %s0)\n"
        f"%small = Mul({written}, float32[]<0.5>)\n%move = AssignSub(%s, %small, %us)\n%ut = UpdateState(%us, %move)\n"
        "%g1 = Depend(%g, %ut)"
    )
    body = body if loss == "%e" else body.replace("%e = Exp(%z) @f\n", "")
    assert ("move" in forward(body, "%both", "%g1")) == adopted

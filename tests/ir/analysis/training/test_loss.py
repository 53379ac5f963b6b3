"""Which result of a training graph is the loss."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training.anatomy import anatomy

from tests.graphs import graph

STEP = """
state %w: float32[2]
state %v: float32[2]
state %rate: float32[]
graph @step(%x: float32[2], %label: float32[2]) {
  %w0 = Load(%w, umonad) @f
  %v0 = Load(%v, umonad) @f
  %y = Mul(%w0, %x) @f
  %z = Mul(%y, %v0) @f
  %error = Sub(%z, %label) @f
  %square = Square(%error) @f
  %loss = ReduceSum(%square, (), false) @f
  %first = ReduceSum(%y, (), false) @f
  %hit = Equal(%z, %label) : bool[2] @f
  %sure = Cast(%hit, 43) : float32[2] @f
  %accuracy = ReduceSum(%sure, (), false) @f
  %count = Cast(%accuracy, 34) : int32[] @f
  %g = Mul(%error, %x) @b
  %h = Mul(%error, %y) @b
  %u = UpdateState(umonad, %y, %z)
  %a = ApplyGradientDescent(%w, %rate, %g, %u) : float32[2]
  %b = ApplyGradientDescent(%v, %rate, %h, %u) : float32[2]
  %end = UpdateState(%u, %a, %b)
  %result = RESULT
  %r = Depend(%result, %end)
  return %r
}"""


@pytest.mark.parametrize(
    ("result", "loss", "path"),
    [
        ("MakeTuple(%loss, %z)", "loss", (0,)),
        ("MakeTuple(%first, %loss)", "loss", (1,)),  # %first depends on one weight of two, and not on the labels
        ("MakeTuple(%z, %loss)", "loss", (1,)),  # a prediction does not know the labels
        ("MakeTuple(%accuracy, %loss)", "loss", (1,)),  # an accuracy does not vary with the weights
        ("MakeTuple(%count, %loss)", "loss", (1,)),
        ("MakeTuple(%loss, %square)", "loss", (0,)),  # equal in all: the first
        ("MakeTuple(%square, %loss)", "square", (0,)),
        ("MakeTuple(%z, %first)", "z", (0,)),  # none knows the labels: what depends on the most weights
        ("MakeTuple(%z, %g)", "z", (0,)),  # a loss that cannot be told would be a scalar
        ('MakeTuple("a note", %loss)', "loss", (1,)),
        ("MakeTuple(%count, %hit)", None, None),
        ("MakeTuple(%g, %count)", None, None),  # a gradient is no forward result
    ],
)
def test_the_result_that_depends_on_most(result: str, loss: str | None, path: tuple[int, ...] | None) -> None:
    found = anatomy(graph(STEP.replace("RESULT", result)))
    assert getattr(found.loss, "name", None) == loss
    assert found.loss_path == path


def test_an_only_result_is_no_tuple() -> None:
    found = anatomy(graph(STEP.replace("RESULT", "Depend(%loss, %count)")))
    assert getattr(found.loss, "name", None) == "loss"
    assert found.loss_path == ()


def test_a_prediction_is_not_taken_where_a_loss_may_be_computed_apart() -> None:
    """Beside the prediction stands a number that the update side computes, as the branches of an `if` do: better none
    than the wrong one."""
    text = STEP.replace("RESULT", "MakeTuple(%z, %apart)").replace(
        "  %result", "  %hs = ReduceSum(%h, (), false)\n  %apart = Neg(%hs)\n  %result"
    )
    assert anatomy(graph(text)).loss is None
    frozen = text.replace("%b = ApplyGradientDescent(%v, %rate, %h, %u) : float32[2]", "%b = Neg(%h)")
    assert anatomy(graph(frozen)).loss is None
    knows_all = anatomy(graph(text.replace("MakeTuple(%z,", "MakeTuple(%square,"))).loss
    assert getattr(knows_all, "name", None) == "square"
    with_state = text.replace("MakeTuple(%z, %apart)", "MakeTuple(%z, %rate0)").replace(
        "%apart =", "%rate0 = Load(%rate, umonad)\n%apart ="
    )
    assert getattr(anatomy(graph(with_state)).loss, "name", None) == "z"

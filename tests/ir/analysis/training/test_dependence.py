"""What of the update side follows from values of the batch that are no gradients."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.analysis.training.dependence import dependences

from tests.graphs import graph

STEP = """
state %w: float32[2]
state %s: float32[2]
state %rate: float32[]
graph @step(%x: float32[2], %size: float32[]) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %loss = ReduceSum(%y, (), false) @f
  %g = Mul(%x, %x) @b
  %u = UpdateState(umonad, %y, %g)
BODY
  %end = UpdateState(%u, %up)
  %r = Depend(%loss, %end)
  return %r
}"""


def found(body: str) -> dict[str, tuple[list[str], bool, bool]]:
    """By value: the states that follow from it, whether it is only tested, and whether gradients go in too."""
    depends = dependences(anatomy(graph(STEP.replace("BODY", body))))
    return {value.name: (list(d.states), d.tested, d.gradients) for value, d in depends.items()}


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ("%up = ApplyGradientDescent(%w, %rate, %g, %u) : float32[2]", {}),
        ("%up = ApplyGradientDescent(%w, %size, %g, %u) : float32[2]", {"size": (["w"], False, True)}),
        (
            "%p = Mul(%loss, %rate)\n%up = ApplyGradientDescent(%w, %p, %g, %u) : float32[2]",
            {"loss": (["w"], False, True)},
        ),
        (  # of what does not differ from batch to batch
            "%p = Mul(%w0, %w0)\n%d = Add(%g, %p)\n%up = ApplyGradientDescent(%w, %rate, %d, %u) : float32[2]", {},
        ),
        (
            "%ok = IsFinite(%loss)\n%p = Cast(%ok, 43) : float32[]\n"
            "%up = ApplyGradientDescent(%w, %p, %g, %u) : float32[2]",
            {"loss": (["w"], True, True)},
        ),
        (
            "%q = Mul(%loss, %rate)\n%a = Assign(%rate, %q, %u)\n%u1 = UpdateState(%u, %a)\n"
            "%up = ApplyGradientDescent(%w, %rate, %g, %u1) : float32[2]",
            {"loss": (["rate"], False, False)},
        ),
    ],
    ids=["gradients", "an input", "the loss", "a weight", "tested", "a rate"],
)  # fmt: skip
def test_what_updates_take_of_the_batch(body: str, wanted: dict[str, tuple[list[str], bool, bool]]) -> None:
    assert found(body) == wanted

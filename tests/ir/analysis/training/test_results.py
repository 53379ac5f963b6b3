"""Names of results, told by what they do."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training.results import default_names
from boost_compile.ir.rewrite.roles import assign_roles

from tests.graphs import graph, program

STEP = """
state %w: float32[2]
state %scale: float32[]
state %rate: float32[]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) @f
  %k = Load(%scale, umonad)
  %y = Mul(%w0, %x) @f
  %loss = ReduceSum(%y, (), false) @f
  %seed = Mul(%x, %k) @b
  %g = Mul(%seed, %x) @b
  %f = IsFinite(%g)
  %fine = ReduceAll(%f, (), false)
  %bad = LogicalNot(%fine)
  %true = RealDiv(%g, %k)
  %u = UpdateState(umonad, %y, %g, %true)
  %p = Partial(@update, %w, %rate, %true, %u)
  %q = Partial(@skip)
  %s = SWITCH : union<@update, @skip>
  %c = call(%s) : float32[]
  %v = UpdateState(%u, %c)
  %all = RESULT
  %r = Depend(%all, %v)
  return %r
  func @update(%weight: float32[2], %lr: float32[], %gr: float32[2], %t: umonad) {
    %up = ApplyGradientDescent(%weight, %lr, %gr, %t) : float32[2]
    %t2 = UpdateState(%t, %up)
    %z = Depend(float32[]<0.0>, %t2)
    return %z
  }
  func @skip() {
    return float32[]<0.0>
  }
}"""


def names(result: str, switch: str = "Switch(%bad, %q, %p)", text: str = STEP) -> tuple[str, ...]:
    of = program(text.replace("RESULT", result).replace("SWITCH", switch))
    step = of.graphs["step"]
    step.outputs = default_names(step.result.type)  # as a file gives them
    assign_roles(of)
    found = of.graphs["step"].outputs
    # Else the network reads it and nothing writes it, as a frozen weight.
    assert of.state["scale"].role == ("hyperparameter" if "loss_scale" in found else "weight")
    return found


@pytest.mark.parametrize(
    ("result", "wanted"),
    [
        ("MakeTuple(%loss, %bad, %k)", ("loss", "overflow", "loss_scale")),
        ("MakeTuple(%bad, %k, %loss)", ("overflow", "loss_scale", "loss")),
        ("MakeTuple(%loss, %fine, %k)", ("loss", "output1", "loss_scale")),  # true where it is fine
        ("MakeTuple(%loss, %x, %y)", ("loss", "output1", "output2")),
        ("MakeTuple(%loss, %bad, %bad)", ("loss", "overflow", "output2")),
        ("Depend(%loss, %k)", ("loss",)),
    ],
)
def test_names_by_what_results_do(result: str, wanted: tuple[str, ...]) -> None:
    assert names(result) == wanted


def test_a_flag_that_means_go() -> None:
    """The branches the other way round: the flag that skips is the negated one."""
    assert names("MakeTuple(%loss, %fine, %bad)", "Switch(%fine, %p, %q)") == ("loss", "output1", "output2")
    assert names("MakeTuple(%loss, %bad, %k)", "Switch(%fine, %p, %q)") == ("loss", "output1", "loss_scale")


def test_a_switch_on_a_constant_is_no_flag() -> None:
    assert names("MakeTuple(%loss, %bad, %k)", "Switch(true, %q, %p)") == ("loss", "output1", "loss_scale")


def test_a_state_that_forward_takes_too_is_no_loss_scale() -> None:
    scaled = "%k0 = Load(%scale, umonad) @f\n%y0 = Mul(%w0, %x) @f\n%y = Mul(%y0, %k0) @f"
    text = STEP.replace("%y = Mul(%w0, %x) @f", scaled)
    assert names("MakeTuple(%loss, %bad, %k)", text=text) == ("loss", "overflow", "output2")


def test_names_that_types_suggest() -> None:
    def of(types: str) -> tuple[str, ...]:
        return default_names(graph(f"graph @g(%t: {types}) {{\nreturn %t\n}}").result.type)

    assert of("(float32[], bool[], float32[])") == ("loss", "overflow", "loss_scale")
    assert of("(float32[], bool, float32)") == ("loss", "overflow", "loss_scale")
    assert of("(float32[], bool[1], float32[])") == ("loss", "output1", "output2")
    assert of("(float32[], float32[], float32[])") == ("loss", "output1", "output2")
    assert of("(int32[], bool[], float32[])") == ("loss", "output1", "output2")
    assert of("(float32[], bool[], int32[])") == ("loss", "output1", "output2")
    assert of("float32[2]") == ("loss",)
    assert of("(float32[], (float32[2], float32[]))") == ("loss", "output1", "output2")

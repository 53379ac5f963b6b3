"""By what an update multiplies its weight and its direction: the rate and the decay, whatever they are called."""

from __future__ import annotations

import inspect

import pytest
from boost_compile.ir.analysis.training import rates
from boost_compile.ir.core.graph import State
from boost_compile.ir.rewrite.roles import assign_roles
from boost_compile.ir.text import parse_program

GRAPH = inspect.cleandoc("""
    state %w: float32[2]
    state %m: float32[2]
    state %eta: float32[]<0.1>
    state %power: float32[]<0.9>
    state %list: float32[3]<0.3, 0.2, 0.1>
    state %step: int32[]<0>
    graph @step(%x: float32[2]) {
      %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
      %y = Mul(%w0, %x) : float32[2] primal {unique_id = "2"}
      %loss = ReduceSum(%y, (), false) : float32[] primal {unique_id = "3"}
      %ones = OnesLike(%y) : float32[2] primal {forward_unique_id = "3"}
      %g = Mul(%ones, %x) : float32[2] primal {forward_unique_id = "2"}
      %m0 = Load(%m, umonad)
      %e0 = Load(%eta, umonad)
      %p0 = Load(%power, umonad)
      %l0 = Load(%list, umonad)
      %s0 = Load(%step, umonad)
      %mean = Add(%m0, %g)
      %kept = Assign(%m, %mean, umonad) : float32[2]
      %moved = Assign(%power, %p0, umonad) : float32[]
      UPDATE
      %t = UpdateState(umonad, %kept, %moved, %new)
      %result = Depend(%loss, %t)
      return %result
    }
""")
BY_RATE = "%a = Mul(%mean, %e0)\n"
DECAY = "%d = Mul(%w0, float32[]<0.1>)\n"


def updates(update: str) -> tuple[rates.Updates, list]:
    program = assign_roles(parse_program(GRAPH.replace("UPDATE", update)))
    (graph,) = program.graphs.values()
    return rates.Updates(program, graph), [node for node in graph if node.name == "new"]


@pytest.mark.parametrize(
    ("update", "rate", "decays"),
    [
        (f"{BY_RATE} %new = AssignSub(%w, %a, umonad) : float32[2]", ["eta"], False),
        (f"{BY_RATE} %b = Sub(%w0, %a)\n %new = Assign(%w, %b, umonad) : float32[2]", ["eta"], False),
        (
            f"{DECAY} %b = Add(%mean, %d)\n %a = Mul(%b, %e0)\n %new = AssignSub(%w, %a, umonad) : float32[2]",
            ["eta"],
            True,
        ),
        (  # of averages of what was: only what follows from the gradient is a step
            f"{BY_RATE} %b = Sub(%m0, %a)\n %c = Mul(%b, float32[]<0.1>)\n %d = Mul(%m0, %p0)\n %k = Add(%c, %d)\n"
            "%new = Assign(%w, %k, umonad) : float32[2]",
            ["eta"],
            False,
        ),
        (  # w (1 - eta decay) - eta m: the rate stands in the decay, too
            "%c = Mul(%e0, float32[]<0.1>)\n %k = Sub(float32[]<1.0>, %c)\n %d = Mul(%w0, %k)\n"
            f"{BY_RATE} %b = Sub(%d, %a)\n %new = Assign(%w, %b, umonad) : float32[2]",
            ["eta"],
            True,
        ),
        (  # an element of a list
            "%r = Gather(%l0, %s0, 0, 0) : float32[]\n %a = Mul(%r, %mean)\n"
            "%new = AssignSub(%w, %a, umonad) : float32[2]",
            ["list"],
            False,
        ),
        ("%a = Div(%mean, %e0)\n %new = AssignSub(%w, %a, umonad) : float32[2]", [], False),
        ("%a = Mul(%mean, float32[]<0.1>)\n %new = AssignSub(%w, %a, umonad) : float32[2]", [], False),
        (f"{BY_RATE} %b = Mul(%a, %p0)\n %new = AssignSub(%w, %b, umonad) : float32[2]", ["eta", "power"], False),
    ],
)  # fmt: skip
def test_what_the_direction_is_multiplied_by(update: str, rate: list[str], decays: bool) -> None:
    asked, new = updates(update)
    found = {source if isinstance(source, State) else rates.list_of(source) for source, _ in asked.rates(new[0])}
    assert sorted(state.name for state in found if state is not None) == rate
    assert asked.decays("w", new) is decays

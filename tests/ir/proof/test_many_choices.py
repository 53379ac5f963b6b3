"""An update that chooses again and again, as nn.ASGD does for each weight: both branches go on with one function."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.proof.prover import prove

import boost_compile as bc
from tests.graphs import program as parsed

CHOICES = 24
START = """state %b: float32[2]<1.0, 2.0> role=weight
state %rate: float32[]<0.1>

graph @step(%x: float32[2]) -> (loss) {
  %l = Load(%b, umonad) : float32[2] @f1
  %p = Mul(%l, %x) : float32[2] @f2
  %loss = ReduceSum(%p, (), false, false) : float32[] @f3
  %one = OnesLike(%p) : float32[2] @b3
  %g = Mul(%one, %x) : float32[2] @b2
  %t = UpdateState(umonad, %l)
  %last = call(@go0, %b, %rate, %rate, %g, %t) : bool
  %u = UpdateState(%t, %last)
  %out = Depend(%loss, %u) : float32[]
  return %out
"""
GIVEN = "%b: float32[2]@b, %rate: float32[]@rate, %by: float32[], %g: float32[2], %t: umonad"
CHOICE = f"""
  func @go{{i}}({GIVEN}) {{{{
    const %limit = float32[]<{{i}}.0>
    %l{{i}} = Load(%b, %t) : float32[2]
    %n{{i}} = ReduceSum(%l{{i}}, (), false, false) : float32[]
    %c{{i}} = Greater(%n{{i}}, %limit) : bool[]
    %t{{i}} = UpdateState(%t, %l{{i}})
    %y{{i}} = Partial(@yes{{i}}, %b, %rate, %by, %g, %t{{i}})
    %m{{i}} = Partial(@no{{i}}, %b, %rate, %by, %g, %t{{i}})
    %s{{i}} = Switch(%c{{i}}, %y{{i}}, %m{{i}})
    %r{{i}} = call(%s{{i}}) : bool
    %v{{i}} = UpdateState(%t{{i}}, %r{{i}})
    %d{{i}} = Depend(%r{{i}}, %v{{i}}) : bool
    return %d{{i}}
  }}}}

  func @yes{{i}}({GIVEN}) {{{{
    %a{{i}} = ApplyGradientDescent(%b, %by, %g, %t) : float32[2]@b
    %w{{i}} = UpdateState(%t, %a{{i}})
    %k{{i}} = call(@go{{next}}, %b, %rate, %by, %g, %w{{i}}) : bool
    return %k{{i}}
  }}}}

  func @no{{i}}({GIVEN}) {{{{
    %e{{i}} = Mul(%by, %by) : float32[]
    %k{{i}} = call(@go{{next}}, %b, %rate, %e{{i}}, %g, %t) : bool
    return %k{{i}}
  }}}}
"""
END = f"""
  func @go{CHOICES}({GIVEN}) {{
    %z = Depend(true, %t) : bool
    return %z
  }}
}}
"""


def original() -> bc.Program:
    choices = "".join(CHOICE.format(i=i, next=i + 1) for i in range(CHOICES))
    return parsed(START + choices + END)


def part(program: bc.Program, name: str) -> Graph:
    return next(g for of in program.graphs.values() for g in of.all_graphs() if g.name.startswith(name))


def test_each_function_is_run_once() -> None:
    source = original()
    found = bc.prove(source, bc.compile(source, "gradient-accumulation{steps=2}"))
    assert found.proved, found


@pytest.mark.parametrize("fault", ["another rate", "other branch", "argument of the other branch", "other end"])
def test_what_branches_leave_is_kept_apart(fault: str) -> None:
    source = original()
    program = bc.compile(source, "gradient-accumulation{steps=2}")
    assert bc.prove(source, program).proved
    yes, no, go = (part(program, name) for name in ("yes7", "no7", "go7"))
    if fault == "another rate":
        update = next(n for n in yes if n.op.name == "ApplyGradientDescent")
        update.set_operand(1, yes.inputs[1])
    elif fault == "other branch":
        switch = next(n for n in go if n.op.name == "Switch")
        a, b = switch.operand(1), switch.operand(2)
        switch.set_operand(1, b)
        switch.set_operand(2, a)
    elif fault == "argument of the other branch":
        call = next(n for n in no if n.op.name == "call")
        call.set_operand(3, no.inputs[2])
    else:
        call, far = (next(n for n in part(program, name) if n.op.name == "call") for name in ("no7", "yes9"))
        call.set_operand(0, far.operand(0))
    assert not prove(source, program)[0].proved

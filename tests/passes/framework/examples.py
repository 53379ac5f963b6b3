"""A program, and passes that tests of the framework run on it."""

from __future__ import annotations

from boost_compile.ir.core.program import Program
from boost_compile.ir.core.report import PassResult
from boost_compile.ir.text import print_program
from boost_compile.passes import Pass, option

TEXT = """
state %w: float32[2]<1.0, 2.0> role=weight
state %big: float32[1000]<zeros> role=weight

graph @step(%x: float32[2]) {
  %read = Load(%w, umonad)
  %all = Load(%big, umonad)
  %y = Add(%x, %read)
  %result = call(@twice, %y) : float32[2]
  %kept = MakeTuple(%result, %all)
  return %kept

  func @twice(%p: float32[2]) {
    %sum = Add(%p, %p)
    return %sum
  }
}
"""


class Negate(Pass):
    """Negates what every Add gives."""

    name = "negate"
    times: int = option(1, help="how often", minimum=1)

    def run(self, program: Program) -> PassResult:
        result = self.result()
        for main in program.graphs.values():
            for graph in main.all_graphs():
                for node in [n for n in graph if n.op.name == "Add"]:
                    result.matched += 1
                    uses = list(node.use_sites())
                    with graph.inserting_after(node):
                        new = graph.create("Neg", [node], sources=[node])
                    for user, i in uses:
                        user.set_operand(i, new)
                    result.changed += 1
        return result


class Idle(Pass):
    """Has nothing to do, as a clean-up may."""

    name = "idle"
    may_match_nothing = True

    def run(self, program: Program) -> PassResult:
        return self.result()


def shown(program: Program) -> str:
    return print_program(program, annotations=False)

"""The times of nodes, for comparing plans."""

from __future__ import annotations

from boost_compile.ir.analysis.cost.times import PICOSECONDS, of_cycle, picoseconds
from boost_compile.ir.core.primitives import GPU
from boost_compile.ir.text import parse_program

BODY = """graph @step(%x: float32[8,8]) {
  %v = Reshape(%x, (64,)) : float32[64]
  %g = GeLU(%v) : float32[64]
  %s = Sign(%g) : float32[64]
  return %s
}
"""


def test_a_measured_primitive_counts_as_measured_on_cpu_alone() -> None:
    view, gelu, other = parse_program(BODY).graphs["step"]
    assert picoseconds([view]) == 0
    assert picoseconds([gelu]) == 64 * PICOSECONDS["GeLU"]
    assert picoseconds([gelu], GPU) == picoseconds([other]) == 64 * 350
    assert picoseconds([view, gelu, other]) == 64 * (PICOSECONDS["GeLU"] + 350)


def test_a_cycle_takes_as_long_as_its_graphs_each_as_often_as_it_runs() -> None:
    """Inside of functions too."""
    update = """graph @update(%x: float32[8,8]) {
  %c = call(@one, %x) : float32[8,8]
  return %c
  func @one(%a: float32[8,8]) {
    %s = Sign(%a)
    return %s
  }
}"""
    made = parse_program("program @p {\n  schedule @step * 3, @update\n}\n" + BODY + update)
    step = picoseconds(made.graphs["step"])
    assert of_cycle(made) == 3 * step + 64 * 350


def test_everything_in_the_table_takes_time() -> None:
    assert min(PICOSECONDS.values()) > 0

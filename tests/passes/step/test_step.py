"""What a pass that needs the step before it is split is given, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.passes import compile_program
from boost_compile.passes.step.step import the_step

from tests.graphs import program
from tests.passes.graphs import WEIGHTED


def test_one_graph_that_takes_one_micro_batch() -> None:
    of = program(WEIGHTED)
    assert the_step(of, "less-bn") is of.graphs["step"]


def test_a_split_program_is_refused() -> None:
    of = compile_program(program(WEIGHTED), "gradient-accumulation{steps=2}", reproducer_directory=None)
    says = "less-bn needs a program with one step graph; this one was compiled already by gradient-accumulation"
    with pytest.raises(PassError, match=says):
        the_step(of, "less-bn")


def test_a_program_of_several_graphs_is_refused_though_it_takes_one_micro_batch() -> None:
    of = program(WEIGHTED)
    of.graphs["more"] = of.graphs["step"].clone()[0]
    with pytest.raises(PassError, match="this one has step, more"):
        the_step(of, "less-bn")


def test_a_graph_that_runs_twice_a_cycle_is_refused() -> None:
    of = program(WEIGHTED)
    (entry,) = of.schedule.cycle
    of.schedule = replace(of.schedule, cycle=(replace(entry, repeat=2),))
    with pytest.raises(PassError, match=r"this one has step \(schedule: "):
        the_step(of, "less-bn")

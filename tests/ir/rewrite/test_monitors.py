"""Measurements that are taken out leave the graph that was there before them."""

from __future__ import annotations

from pathlib import Path

import pytest
from boost_compile.ir.core.names import MONITORED_CYCLES
from boost_compile.ir.rewrite.monitors import leave_out, measured_states
from boost_compile.ir.text import parse_program

import boost_compile as bc

TEXT = (Path(__file__).parents[2] / "passes" / "monitor.ir").read_text()


@pytest.mark.parametrize("every", [1, 3])
def test_what_remains(every: int) -> None:
    plain = parse_program(TEXT)
    monitored = bc.compile(plain, f"monitor{{every={every}}}")
    graph, measured = monitored.graphs["step"], measured_states(monitored)
    assert leave_out(graph, measured - {MONITORED_CYCLES})
    assert measured & graph.states.keys() == {MONITORED_CYCLES}
    assert leave_out(graph, measured)
    assert not leave_out(graph, measured)
    monitored.drop_state(measured)
    assert not bc.diff(plain, monitored, computation=True)

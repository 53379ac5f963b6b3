"""Gradients multiplied by the reciprocal of their divisor: the same bits where it is a power of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from boost_compile.ir.core.graph import Graph
from boost_compile.runtime.lowering import reciprocal
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower

import boost_compile as bc
from tests.networks import CASES


def divisions(graph: Graph) -> int:
    return sum(node.op.name == "RealDiv" for node in graph)


def multiplied(program: bc.Program, graph: str) -> Graph:
    return lower(program.graphs[graph], Context(program, "cpu"), [reciprocal]).graph


@pytest.mark.parametrize(
    ("pipeline", "graph"),
    [
        ("gradient-accumulation{steps=4}", "apply"),
        ("gradient-accumulation{steps=2,split=fused},loss-scale{mode=dynamic,init=1024}", "step"),
        ("loss-scale{mode=static,init=8}", "step"),
    ],
)
def test_by_a_power_of_two_the_bits_are_the_same(
    pipeline: str, graph: str, exported: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = bc.compile(bc.load(str(exported("mlp_adam"))), pipeline)
    assert divisions(program.graphs[graph]) >= 4
    assert divisions(program.graphs[graph]) - divisions(multiplied(program, graph)) >= 3
    ours = bc.Session(program)
    monkeypatch.setattr(reciprocal, "applies", lambda graph, context: False)
    divided = bc.Session(program)
    for batch in CASES["mlp_adam"].batches(2 * program.micro_batches()):
        for session in (ours, divided):
            session.step(*batch)
    for name, value in divided.state().items():
        assert value.tobytes() == ours.state()[name].tobytes(), name


@pytest.mark.parametrize(
    "pipeline",
    [
        "gradient-accumulation{steps=3}",
        "gradient-accumulation{steps=4},loss-scale{mode=static,init=1000}",
        "gradient-accumulation{steps=4},loss-scale{mode=dynamic,init=1000}",
        "gradient-accumulation{steps=4},loss-scale{mode=dynamic,init=1024,factor=3}",
        "gradient-accumulation{steps=4},overflow-check{policy=skip-micro}",
        "gradient-accumulation{steps=4,reduction=weighted,weight=loss}",
    ],
)
def test_what_may_be_another_number_divides(pipeline: str, exported: Any) -> None:
    program = bc.compile(bc.load(str(exported("mlp"))), pipeline)
    assert divisions(program.graphs["apply"]) >= 4
    assert multiplied(program, "apply") is program.graphs["apply"]


def test_a_short_cycle_rounds_once_more_at_most(exported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The step of plain descent is the gradient times the rate: one rounding of it more, and that of the sum."""
    program = bc.compile(bc.load(str(exported("mlp_sgd"))), "gradient-accumulation{steps=4}")
    assert multiplied(program, "apply") is not program.graphs["apply"]
    ours = bc.Session(program)
    monkeypatch.setattr(reciprocal, "applies", lambda graph, context: False)
    divided = bc.Session(program)
    before = ours.state()
    for session in (ours, divided):
        for batch in CASES["mlp_sgd"].batches(3):
            session.step(*batch)
        session.flush()
    for name, value in divided.state().items():
        if program.state[name].role == "weight":
            step = np.abs(value - before[name])
            allowed = 2 * np.finfo(np.float32).eps * step + np.spacing(np.abs(value))
            assert step.max() > 0
            assert (np.abs(ours.state()[name] - value) <= allowed).all(), name

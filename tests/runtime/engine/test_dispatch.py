"""Graphs that are called as functions: which, and that they compute the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from boost_compile.runtime.engine import dispatch, engine
from boost_compile.runtime.engine.cells import FunctionRunner, GraphRunner
from boost_compile.runtime.engine.dispatch import as_function

import boost_compile as bc
from tests.networks import CASES, export


def test_small_graphs_with_work_are_called(exported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch.os, "cpu_count", lambda: 2)
    graphs = {name: bc.load(str(exported(name))).graphs["step"] for name in ("lenet_bn", "mlp", "resnet18", "loop")}
    more = bc.compile(bc.load(str(exported("lenet_bn"))), "batch-size{size=32}").graphs["step"]
    assert as_function(more, "CPU")
    assert not any(as_function(graph, "CPU") for graph in graphs.values())
    assert not as_function(more, "Ascend")
    monkeypatch.setattr(dispatch.os, "cpu_count", lambda: 32)
    assert not as_function(more, "CPU")


@pytest.mark.parametrize("name", ["lenet_bn", "dropout"])
def test_a_graph_that_is_called_computes_the_same(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(CASES[name], batch_size=8)
    program = bc.compile(bc.load(str(export(case, tmp_path))), "gradient-accumulation{steps=2},overflow-check")
    sessions = []
    for called in (True, False):
        monkeypatch.setattr(engine, "as_function", lambda graph, device, called=called: called)
        sessions.append(bc.Session(program, seed=3))
    kinds = [{type(runner) for runner in session._engine._runners.values()} for session in sessions]
    assert kinds == [{FunctionRunner}, {GraphRunner}]
    for batch in case.batches(4):
        ours, plain = (session.step(*batch) for session in sessions)
        assert ours.loss == plain.loss
    states = [session.state() for session in sessions]
    for name_, value in states[1].items():
        assert value.tobytes() == states[0][name_].tobytes(), name_

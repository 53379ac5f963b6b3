"""What the objects of the API say of themselves where Python prints them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.analysis.compare.diff import diff
from boost_compile.ir.core.program import Program
from boost_compile.runtime.training.history import Cycle, Epoch, History
from boost_compile.tools.verification.report import FAILED, NOT_APPLICABLE, PASSED, Result, Verification

import boost_compile as bc


@pytest.fixture(scope="module")
def original(exported: Callable[[str], Path]) -> Program:
    return bc.load(exported("mlp"))


@pytest.fixture(scope="module")
def program(original: Program) -> Program:
    return bc.compile(original, "gradient-accumulation{steps=3}")


def shown(thing: object, *words: str) -> str:
    """Its ``repr``: one to ten lines, none longer than a few of a terminal's, which hold these words."""
    text = repr(thing)
    assert 1 <= len(text.splitlines()) <= 10, text
    assert max(map(len, text.splitlines())) < 240
    for word in words:
        assert word in text, text
    return text


def test_program_and_graph(original: Program, program: Program) -> None:
    shown(original, "Program 'mlp' for cpu", "step", "State: ", "weight 4")
    text = shown(program, "made by gradient-accumulation", "Schedule: accumulate x 3, apply", "accumulator 4")
    assert text.count("Graph '") == 2
    accumulate = program.graphs["accumulate"]
    assert shown(accumulate, "inputs0: float32[", "-> loss: float32[]") in text
    assert f"Graph 'accumulate': {accumulate.total_nodes()} nodes" in text


def test_a_program_of_many_graphs_names_some() -> None:
    from boost_compile.ir.text import parse_program

    graphs = "\n".join(f"graph @g{i}(%x: float32[2]) {{\n  %b{i} = Neg(%x)\n  return %b{i}\n}}" for i in range(9))
    shown(parse_program(f'program @"a\\nb" {{\n  schedule @g0\n}}\n{graphs}'), "… and 3 more graphs", "Program 'a\\nb'")


def test_difference(original: Program, program: Program) -> None:
    assert repr(diff(original, original)) == "No difference"
    shown(diff(original, program), "Difference: nodes added ", "by gradient-accumulation: ")


def test_proof(original: Program, program: Program) -> None:
    found = bc.prove(original, program)
    shown(found, "Proved, for all inputs: it trains as one batch of 3 times the size")
    assert found
    wrong = bc.prove(original, bc.compile(original, "adasum"))
    shown(wrong, "NOT proved: ", "no formula says how")
    assert not wrong
    page = wrong._repr_html_()
    assert page is not None
    assert "NOT proved" in page
    assert "no formula says how" in page


def test_session_and_history(program: Program) -> None:
    session = bc.Session(program)
    inputs = [np.zeros(v.type.shape, str(v.type.dtype)) for v in program.graphs["accumulate"].inputs]
    shown(session, "Session on CPU: 0 windows done", "Program 'mlp'")
    for _ in range(4):
        session.step(*inputs)
    shown(session, "1 window done, 1 of 3 micro-batches of the next")
    cycles = [Cycle(i + 1, 2.0 / (i + 1), 3, i != 2, i == 2) for i in range(4)]
    epochs = [Epoch(i + 1, 1.5, 12, 48, 0, 0.25, 0.875) for i in range(30)]
    text = shown(History(cycles, epochs), "History of 4 windows, 1 without an update: loss 2 at first, 0.5 at last")
    assert [line.split(":")[0] for line in text.splitlines()[1:]] == [f"  epoch {i}" for i in (1, 2, 27, 28, 29, 30)]
    shown(History(), "History of no window")


def test_verification() -> None:
    results = [Result(f"p{i}", PASSED) for i in range(20)] + [Result("n", NOT_APPLICABLE, "why")]
    found = Verification(tuple(results), "dead-code-elimination", 0, 2, "random", seconds=1.25)
    assert shown(found) == "Verified: 20 passed, 1 not applicable (random data, seed 0, 1.2 s)."
    wrong = tuple(Result(f"f{i}", FAILED, "state 'w' is off") for i in range(20))
    assert found
    assert not Verification(wrong, "", 0, 2, "random")
    shown(Verification(wrong, "", 0, 2, "random"), "NOT verified: 20 failed", "failed: f0: state 'w' is off", "14 more")

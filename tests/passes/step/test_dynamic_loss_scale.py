"""When a loss scale changes: tests/passes/test_by_execution.py runs the rule; here are its limits and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.core.program import Program
from boost_compile.passes import compile_program
from boost_compile.passes.step.dynamic_loss_scale import CLEAN, SCALE, scales_its_loss

from tests.execution import train
from tests.material import batches, material, values


def compiled(options: str, more: str = ",overflow-check") -> Program:
    return compile_program(material("mlp"), f"loss-scale{{{options}}}{more}", reproducer_directory=None)


@pytest.mark.parametrize(
    ("name", "pipeline", "wanted"),
    [
        ("mlp", "clip-gradients", False),
        ("mlp", "loss-scale{mode=static}", True),
        ("mlp", "group-loss-scale{groups=2}", True),
        ("mlp_loss_scale_dynamic", "legalize?", True),
    ],
)
def test_whether_a_program_scales_its_loss(name: str, pipeline: str, wanted: bool) -> None:
    assert scales_its_loss(compile_program(material(name), pipeline, reproducer_directory=None)) is wanted


def run(of: Program, cycles: str) -> tuple[float, float]:
    """The scale, and the clean cycles in a row, after cycles that are fine (.) or overflow (!)."""
    good = batches(material("mlp"), 1)[0]
    bad = [np.full_like(good[0], np.inf), *good[1:]]
    after = train(of, values(of), [bad if c == "!" else good for c in cycles])[1]
    return float(after[SCALE]), float(after[CLEAN])


@pytest.mark.parametrize(
    ("options", "cycles", "wanted"),
    [
        ("init=16,window=2", ".", (16, 1)),
        ("init=16,window=2", "..", (32, 0)),
        ("init=16,window=2", ".!", (8, 0)),
        ("init=16,window=2", ".!.", (8, 1)),
        ("init=16,window=1", ".", (32, 0)),
        ("init=16,window=2,max=16", "....", (16, 0)),
        ("init=16,window=2,max=24", "..", (24, 0)),
        ("init=16,min=8", "!!!", (8, 0)),
        ("init=16,min=12", "!", (12, 0)),
        ("init=16,window=1,factor=4", ".", (64, 0)),
        ("init=16,factor=4", "!", (4, 0)),
    ],
)
def test_the_rule(options: str, cycles: str, wanted: tuple[float, float]) -> None:
    assert run(compiled(options), cycles) == wanted


def test_the_rule_comes_with_the_second_pass() -> None:
    """A dynamic scale brings the check along; a check that is there already serves."""
    assert run(compiled("init=16,window=1", ""), "..!") == (32, 0)
    checked = compile_program(material("mlp"), "overflow-check", reproducer_directory=None)
    assert run(compile_program(checked, "loss-scale{init=16,window=1}", reproducer_directory=None), "..!") == (32, 0)


def test_a_static_scale_stands_still() -> None:
    of = compiled("mode=static,init=16")
    assert CLEAN not in of.state
    good = batches(material("mlp"), 1)
    assert train(of, values(of), good * 3)[1][SCALE] == 16


@pytest.mark.parametrize("second", ["loss-scale", "group-loss-scale{groups=2}"])
@pytest.mark.parametrize("first", ["loss-scale", "loss-scale{mode=static,init=2}", "group-loss-scale{groups=2}"])
def test_one_scale_a_program(first: str, second: str) -> None:
    once = compile_program(material("mlp"), first, reproducer_directory=None)
    with pytest.raises(PassError, match="scales its loss already"):
        compile_program(once, second, reproducer_directory=None)


@pytest.mark.parametrize("first", ["loss-scale", "group-loss-scale{groups=2}"])
@pytest.mark.parametrize("second", ["loss-scale", "group-loss-scale{groups=2}"])
def test_a_program_has_one_loss_scale(first: str, second: str) -> None:
    of = compile_program(material("mlp"), first, reproducer_directory=None)
    with pytest.raises(PassError, match="scales its loss already"):
        compile_program(of, second, reproducer_directory=None)

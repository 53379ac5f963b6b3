"""A BatchNorm that less-bn removes does nothing any more, and all else trains as before: by numpy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from boost_compile.ir.analysis.effects.state_access import state_behind
from boost_compile.ir.core.graph import Node
from boost_compile.ir.core.program import Program
from boost_compile.passes import compile_program
from boost_compile.passes.less_bn.less_bn import _fold_casts

from tests import execution
from tests.graphs import graph, node
from tests.material import batches, material, values

INNER = ["block.bn1", "block.bn2"]
STAYS = {
    "bn.gamma": "kept: not inside a residual block",
    "block.bn3.gamma": "kept: the last one in its branch of the residual block that ends at %{join}",
    "block.down.1.gamma": "kept: the last one in its branch of the residual block that ends at %{join}",
}


@contextmanager
def doing_nothing(layers: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside, the BatchNorms of these layers, and their gradients, give what they take."""

    def passes_on(node: Node, gamma: int) -> bool:
        state = state_behind(node.operand(gamma))
        return state is not None and state.name.removesuffix(".gamma") in layers

    def norm(node: Node, x: Any, *rest: Any) -> Any:
        return (x, *[None] * 4) if passes_on(node, 1) else execution._batch_norm(node, x, *rest)

    def gradient(node: Node, dy: Any, *rest: Any) -> Any:
        if passes_on(node, 2):
            return dy, np.zeros_like(rest[1]), np.zeros_like(rest[1])
        return execution._batch_norm_grad(node, dy, *rest)

    with monkeypatch.context() as patched:
        patched.setitem(execution.WRITES, "BatchNorm", norm)
        patched.setitem(execution.PURE_OF_NODE, "BatchNormGrad", gradient)
        yield


def compiled(source: Program, pipeline: str) -> Program:
    return compile_program(source, pipeline, reproducer_directory=None)


@pytest.mark.parametrize(
    ("name", "options", "gone"),
    [
        ("residual", "", INNER),
        ("residual_half", "", INNER),
        ("residual", "select=pattern-or-inner", [*INNER, "block.down.1"]),
        ("residual", "select=scope,scope=*/down-*", ["block.down.1"]),
        ("residual", "max_removed=1", INNER[:1]),
    ],
)
def test_all_else_trains_as_before(name: str, options: str, gone: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    source = material(name)
    program = compiled(source, f"less-bn{{{options}}}")
    removed = {f"{layer}." for layer in gone}
    assert source.state.keys() - program.state.keys() == {n for n in source.state if any(r in n for r in removed)}
    given, state = batches(source, 2), values(source)
    with doing_nothing(gone, monkeypatch):
        losses, wanted = execution.train(source, state, given)
    for order in execution.ORDERS:
        results, found = execution.train(program, state, given, order)
        assert results == losses
        for n in program.state:
            np.testing.assert_array_equal(found[n], wanted[n], err_msg=n)
    if name == "residual_half":  # nothing widens what it narrows again
        casts = [n for n in program.graphs["step"] if n.op.name == "Cast" and isinstance(n.operand(0), Node)]
        assert not [n for n in casts if n.operand(0).op.name == "Cast" and n.operand(0).operand(0).type == n.type]


def test_what_goes_and_what_stays_is_reported() -> None:
    source = material("residual")
    program = compiled(source, "less-bn")
    (report,) = program.reports
    (join,) = [n for n in source.graphs["step"] if n.op.name == "Add"]
    assert {m.site: m.reason for m in report.misses} == {k: v.format(join=join.name) for k, v in STAYS.items()}
    gone = [source.state[n] for n in source.state.keys() - program.state.keys()]
    assert report.statistics == {
        "BatchNorms": 5,
        "BatchNorms removed": 2,
        "removed": [f"{layer}.gamma" for layer in INNER],
        "parameters removed": 8,
        "state bytes removed": sum(v.nbytes for v in gone),
        "nodes before": source.graphs["step"].total_nodes(),
        "nodes after": program.graphs["step"].total_nodes(),
    }
    assert (report.matched, report.changed, report.summary) == (2, 2, "2 of 5 BatchNorms removed")
    few = compiled(source, "less-bn{max_removed=1}").reports[0]
    stays = {k: v.format(join=join.name) for k, v in STAYS.items()}
    assert {m.site: m.reason for m in few.misses} == stays | {"block.bn2.gamma": "kept: max_removed=1 others go"}
    pattern = compiled(source, "less-bn{select=pattern}").reports[0]
    kept = dict.fromkeys(("bn.gamma", "block.bn3.gamma"), "kept: boost.LessBN keeps it")
    assert {m.site: m.reason for m in pattern.misses} == kept
    scope = compiled(source, "less-bn{select=scope,scope=*/down-*}").reports[0]
    assert {m.reason for m in scope.misses} == {"kept: its scope does not match"}


def test_a_dry_run_changes_nothing() -> None:
    source = material("residual")
    program = compiled(source, "less-bn{dry_run=true}")
    (report,) = program.reports
    assert (report.matched, report.changed, report.summary) == (2, 0, "2 of 5 BatchNorms would go")
    assert program.state.keys() == source.state.keys()
    assert report.statistics["nodes after"] == source.graphs["step"].total_nodes()
    assert report.statistics["parameters removed"] == 8


@pytest.mark.parametrize(
    ("given", "between", "result", "folds"),
    [
        ("float16", "float32", "float16", True),
        ("float16", "float32", "bfloat16", False),
        ("float32", "float16", "float32", False),
        ("float16", "bfloat16", "float16", False),
    ],
)
def test_casts_that_cancel(given: str, between: str, result: str, folds: bool) -> None:
    text = f"graph @g(%x: {given}[2]) {{\n  %a = Cast(%x, 0) : {between}[2]\n  %b = Cast(%a, 0) : {result}[2]\n"
    here = graph(f"{text}  %c = Neg(%b)\n  return %c\n}}")
    _fold_casts(node(here, "b"))
    assert (node(here, "c").operand(0) is here.inputs[0]) == folds

"""Updates that always run, and change nothing where they are skipped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.core.program import Program
from boost_compile.ir.text import parse_program, print_program
from boost_compile.runtime.lowering import predication
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower

import boost_compile as bc
from tests.networks import CASES

UPDATES = {
    "Assign": "Assign({s[0]}, {g}, {u}) : float32[64]",
    "AssignAdd": "AssignAdd({s[0]}, {g}, {u}) : float32[64]",
    "AssignSub": "AssignSub({s[0]}, {g}, {u}) : float32[64]",
    "ApplyMomentum": "ApplyMomentum({s[0]}, {s[1]}, %rate, {g}, 0.9, {u}) {{use_nesterov = true}} : float32[64]",
    "Adam": "Adam({s[0]}, {s[1]}, {s[2]}, %rate, %rate, %rate, 0.9, 0.999, 1e-08, {g}, {u}) "
    "{{use_nesterov = true}} : (float32[64], float32[64], float32[64])",
    "AdamWeightDecay": "AdamWeightDecay({s[0]}, {s[1]}, {s[2]}, %rate, 0.9, 0.999, 1e-06, 0.01, {g}, false, {u})"
    " : (float32[64], float32[64], float32[64])",
}
"""Each primitive with three states, a gradient and a token."""


def conditional(
    updates: list[str],
    gradient: str = "Mul(%x, %k) : float32[64]",
    result: str = "%k",
    skip: str = "IsInf(%may)",
) -> Program:
    """A step that makes these updates of a gradient unless it is told to skip them."""
    states = [f"s{i}" for i in range(3 * len(updates))]
    lines, token = [], "%u"
    for i, update in enumerate(updates):
        mine = [f"%{name}" for name in states[3 * i : 3 * i + 3]]
        lines += [f"    %a{i} = {update.format(s=mine, g='%g', u=token)}", f"    %t{i} = UpdateState({token}, %a{i})"]
        token = f"%t{i}"
    formals = ", ".join([*(f"%{s}: float32[64]" for s in states), "%rate: float32[]", "%g: float32[64]", "%u: umonad"])
    arguments = ", ".join([*(f"%{s}" for s in states), "%rate", "%g", "umonad"])
    return parse_program(
        "\n".join(
            [
                *(f"state %{s}: float32[64] role=weight" for s in states),
                "graph @step(%x: float32[64], %k: float32[], %rate: float32[], %may: float32[]) -> (loss) {",
                f"  %skip = {skip}",
                f"  %g = {gradient}",
                f"  %no = Partial(@update, {arguments})",
                "  %yes = Partial(@stay)",
                "  %chosen = Switch(%skip, %yes, %no)",
                "  %done = call(%chosen) : float32[]",
                "  %after = UpdateState(umonad, %done)",
                f"  %r = Depend({result}, %after)",
                "  return %r",
                f"  func @update({formals}) {{",
                *lines,
                f"    %z = Depend(float32[]<0.0>, {token})",
                "    return %z",
                "  }",
                "  func @stay() {",
                "    return float32[]<0.0>",
                "  }",
                "}",
            ]
        )
    )


def predicated(program: Program, graph: str = "step") -> Graph:
    return lower(program.graphs[graph], Context(program, "cpu"), [predication]).graph


@pytest.mark.parametrize("scaled", ["Mul", "RealDiv", "Neg"])
def test_each_primitive_keeps_every_bit(scaled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a gradient of infinities and NaN too; and it updates as behind a Switch where it is not skipped. The powers of
    Adam's moments are one before the first update, where a count of updates makes them."""
    assert UPDATES.keys() == predication.STILL.keys()
    gradient_of = "Neg(%x)" if scaled == "Neg" else f"{scaled}(%x, %k)"
    program = conditional(list(UPDATES.values()), f"{gradient_of} : float32[64]")
    lowered = predicated(program)
    assert not lowered.functions
    assert sum(node.op.name.endswith("NoNan") for node in lowered) == 1
    assert any(node.op.name == "DivNoNan" for node in lowered) == (scaled == "RealDiv")
    session = bc.Session(program)
    monkeypatch.setattr(predication, "applies", lambda graph, context: False)
    behind_switch = bc.Session(program)
    rng = np.random.default_rng(0)
    rate, no, yes = np.float32(0.1), np.float32(0), np.float32(np.inf)
    for _ in range(3):
        gradient = rng.standard_normal(64).astype(np.float32)
        for each in (session, behind_switch):
            each.step(gradient, np.float32(0.5), rate, no)
    before = session.state()
    for name, value in behind_switch.state().items():
        assert value.tobytes() == before[name].tobytes(), name
    assert all(np.any(before[f"s{i}"]) for i in (0, 3, 6, 9, 10, 12, 13, 14, 15, 16, 17))
    gradient[::3], gradient[1::3] = np.inf, np.nan
    for scale in (np.float32(0.5), np.float32(np.nan), np.float32(np.inf)):
        session.step(gradient, scale, np.float32(1), yes)
    for name, value in session.state().items():
        assert value.tobytes() == before[name].tobytes(), name


MOMENTUM = UPDATES["ApplyMomentum"]


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (
            conditional([MOMENTUM, "ApplyAdagrad({s[0]}, {s[1]}, %rate, {g}, {u}) : (float32[64], float32[64])"]),
            "unknown",
        ),
        (conditional([MOMENTUM], result="%done"), "its result is used"),
        (conditional([MOMENTUM], skip="Greater(%may, %k)"), "skipped for another reason than an overflow"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_told_to_change_nothing_stays_behind_its_switch(program: Program, why: str) -> None:
    assert predicated(program) is program.graphs["step"], why


def test_it_stays_where_products_would_cost_more() -> None:
    """A pass over a big gradient takes longer than a Switch; one that is scaled has its product already."""
    for gradient, gone in (("Neg(%x) : float32[64]", False), ("Mul(%x, %k) : float32[64]", True)):
        big = parse_program(print_program(conditional([MOMENTUM], gradient)).replace("[64]", "[262144]"))
        assert (predicated(big) is not big.graphs["step"]) is gone


@pytest.mark.parametrize("pipeline", ["overflow-check", "overflow-check,loss-scale,clip-gradients{limit=0.01}"])
def test_a_step_without_a_switch_trains_as_one_with_it(
    exported: Any, pipeline: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "mlp_adam"
    program = bc.compile(bc.load(str(exported(name))), pipeline)
    ours = bc.Session(program)
    monkeypatch.setattr(predication, "applies", lambda graph, context: False)
    behind_switch = bc.Session(program)
    for i, (x, y) in enumerate(CASES[name].batches(5)):
        if i == 2:
            x[0, 0] = np.inf
        skipped = [bool(s.step(x, y).raw["overflow"].asnumpy()) for s in (ours, behind_switch)]
        assert skipped == [i == 2] * 2
    for key, value in behind_switch.state().items():
        assert value.tobytes() == ours.state()[key].tobytes(), key

"""Small states that are updated at once: the bits of updates one by one, and what has to stay as it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.text import parse_program
from boost_compile.ir.verify.verifier import verify
from boost_compile.runtime.lowering import joint_updates, packing
from boost_compile.runtime.lowering.arenas import ALIGNED
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import LOWERINGS, Lowered, lower

import boost_compile as bc
from tests.compare import assert_equal
from tests.networks import CASES

Exported = Callable[[str], Path]
SHAPES = {"a": (2, 3), "b": (16,), "c": (5,), "d": (4, 4), "e": (7,), "f": (3,)}
"""Weights, none of a multiple of eight elements but two: the rest of each is computed by other instructions."""


def lowered(program: bc.Program) -> dict[str, Lowered]:
    """As a session loads them: the last graph first."""
    context = Context(program, "cpu")
    return {name: lower(program.graphs[name], context) for name in reversed([*program.schedule.graphs()])}


def joined(program: bc.Program) -> dict[str, str]:
    return {name: dict(found.steps).get("joint-updates", "") for name, found in lowered(program).items()}


def one_by_one(program: bc.Program, monkeypatch: pytest.MonkeyPatch) -> bc.Session:
    """A session whose states are updated one by one."""
    with monkeypatch.context() as patch:
        patch.setattr(joint_updates, "applies", lambda graph, context: False)
        patch.setattr(packing, "kinds_of_updates", lambda graph, context: {})
        return bc.Session(program)


@pytest.mark.parametrize(
    ("name", "pipeline", "steps"),
    [
        ("lenet_bn", "effect-chain-minimization", {"step": "11 small updates made in 1 arena"}),
        ("gpt", "effect-chain-minimization", {"step": "37 small updates made in 2 arenas"}),
        (
            "gpt",
            "gradient-accumulation{steps=2}",
            {"accumulate": "37 small updates made in 2 arenas", "apply": "37 small updates made in 2 arenas"},
        ),
        (
            "lenet_bn",
            "gradient-accumulation{steps=2,split=fused},overflow-check,weight-average{kind=ema,decay=0.9}",
            {"accumulate": "11 small updates made in 1 arena", "step": "11 small updates made in 1 arena"},
        ),
        (
            "lenet_bn",
            "gradient-accumulation{steps=2},loss-scale{init=1024},overflow-check",
            {"accumulate": "11 small updates made in 1 arena", "apply": "11 small updates made in 1 arena"},
        ),
    ],
)
def test_the_bits_of_updates_one_by_one(
    exported: Exported, name: str, pipeline: str, steps: Mapping[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = bc.compile(bc.load(str(exported(name))), pipeline)
    found = joined(program)
    assert {graph: found[graph] for graph in steps} == steps
    ours, each = bc.Session(program), one_by_one(program, monkeypatch)
    for batch in CASES[name].batches(6):
        assert ours.step(*batch).loss == each.step(*batch).loss
    assert_equal(ours.state(), each.state())


def test_an_overflow_leaves_every_bit(exported: Exported, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that spoils a single gradient, as the others are joined with it."""
    program = bc.compile(bc.load(str(exported("lenet_bn"))), "overflow-check,loss-scale{init=1024}")
    ours, each = bc.Session(program), one_by_one(program, monkeypatch)
    batches = CASES["lenet_bn"].batches(4)
    spoiled = (np.full_like(batches[1][0], np.inf), *batches[1][1:])
    for batch in (batches[0], spoiled, *batches[2:]):
        ours.step(*batch), each.step(*batch)
    assert_equal(ours.state(), each.state())
    assert np.isfinite(ours.state()["conv1.weight"]).all()


def test_a_measured_row_is_the_row_that_updates(exported: Exported) -> None:
    """What is measured and scaled as one tensor is not taken apart for the update."""
    program = bc.compile(bc.load(str(exported("lenet_bn"))), "overflow-check,loss-scale,clip-gradients")
    graph = lowered(program)["step"].graph
    count = Counter(node.op.name for node in graph)
    assert (count["Concat"], count["ApplyMomentum"]) == (1, 1)
    assert count["Slice"] <= 1


# -- what stays as it is ----------------------------------------------------------------------------------------

TYPES = {name: f"float32[{','.join(map(str, shape))}]" for name, shape in SHAPES.items()}
HEAD = "".join(f"state %{n}: {t} role=weight\nstate %s{n}: {t} role=slot\n" for n, t in TYPES.items())
HEAD += "".join(f"state %{name}: float32[] role=hyperparameter\n" for name in ("rate", "other", "kept"))
INPUTS = ", ".join(f"%g{n}: {t}" for n, t in TYPES.items())
SUM_OF_C = "%l = Load(%c, %uc)\n%n = ReduceSum(%l, (), false, false) : float32[]\n"


def program_with(
    before: str = "",
    rates: Mapping[str, str] = {},
    gradients: Mapping[str, str] = {},
    behind: str = "",
    result: str = "%loss",
) -> bc.Program:
    """Six updates. ``behind`` stands behind that of c, takes its token %uc, and makes the next one, %v."""
    lines = [f"graph @step({INPUTS}) -> (loss) {{", "%loss = ReduceSum(%gb, (), false, false) : float32[]", before]
    token = "umonad"
    for n, kind in TYPES.items():
        of = (f"%{n}", f"%s{n}", f"%{rates.get(n, 'rate')}", f"%{gradients.get(n, 'g' + n)}", "%kept", token)
        lines.append(f"%p{n} = ApplyMomentum({', '.join(of)}) : {kind}@{n}\n%u{n} = UpdateState({token}, %p{n})")
        token = f"%u{n}"
        if n == "c" and behind:
            lines.append(behind)
            token = "%v"
    lines += [f"%r = Depend({result}, {token})", "return %r", "}"]
    return parse_program(HEAD + "\n".join(line for line in lines if line))


@pytest.mark.parametrize(
    ("given", "updates"),
    [
        ({}, 6),
        # Read behind its update: that of the others is late.
        ({"behind": SUM_OF_C + "%v = UpdateState(%uc, %l, %n)", "result": "%n"}, 5),
        # Returned: the caller may see it change, as it does here where nothing is joined.
        ({"before": "%l = Load(%c, umonad)", "result": "%l"}, 5),
        # Another rate for two: four are too few.
        ({"rates": {"a": "other", "b": "other"}}, 0),
        ({"rates": {"a": "other"}}, 5),
        # A rate that changes between the updates.
        ({"behind": "%x = Assign(%rate, float32[]<0.5>, %uc)\n%v = UpdateState(%uc, %x)"}, 0),
        # A gradient that is computed of a weight that was updated.
        ({"behind": SUM_OF_C + "%gg = Mul(%gf, %n) : float32[3]\n%v = UpdateState(%uc, %l, %n)",
          "gradients": {"f": "gg"}}, 0),
        # Something else writes it.
        ({"behind": "%x = AssignSub(%c, %gc, %uc)\n%v = UpdateState(%uc, %x)"}, 5),
        # One gradient for two weights is taken twice.
        ({"gradients": {"d": "square"}, "before": "%square = Reshape(%gb, (4, 4)) : float32[4,4]"}, 6),
    ],
)  # fmt: skip
def test_what_is_joined_and_that_it_is_right(
    given: Mapping[str, object], updates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = program_with(**given)  # type: ignore[arg-type]
    verify(program.graphs["step"])
    count = Counter(node.op.name for node in lowered(program)["step"].graph)
    assert count["ApplyMomentum"] == (7 - updates if updates else 6)
    rng = np.random.default_rng(0)
    ours, each = bc.Session(program), one_by_one(program, monkeypatch)
    start = {name: rng.standard_normal(v.shape).astype(np.float32) for name, v in program.state.items()}
    ours.load_state(start), each.load_state(start)
    for _ in range(3):
        batch = [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES.values()]
        mine, its = (session.step(*batch).raw["loss"].asnumpy() for session in (ours, each))
        assert given.get("result") == "%l" or mine.tobytes() == its.tobytes()
    assert_equal(ours.state(), each.state())


@pytest.mark.parametrize("target", ["gpu", "ascend"])
def test_other_targets(target: str) -> None:
    program = program_with()
    assert "joint-updates" not in dict(lower(program.graphs["step"], Context(program, target)).steps)


def test_memory_that_nobody_can_place() -> None:
    program = program_with()
    assert "joint-updates" not in dict(lower(program.graphs["step"], Context(program, "cpu", places=False)).steps)


def test_each_begins_at_a_line_of_the_cache() -> None:
    program = program_with()
    context = Context(program, "cpu")
    lower(program.graphs["step"], context)
    weights, slots = context.arenas.by_name.values()
    assert list(weights.begins) == [*SHAPES]
    assert list(slots.begins) == [f"s{n}" for n in SHAPES]
    assert [*weights.begins.values()] == [0, 16, 32, 48, 64, 80] == [*slots.begins.values()]
    assert weights.size == 96
    assert not any(begin % ALIGNED for begin in weights.begins.values())


def test_it_follows_what_measures_and_scales() -> None:
    order = [lowering.__name__.rpartition(".")[2] for lowering in LOWERINGS]
    assert (
        order.index("predication") < order.index("packing") < order.index("joint_updates") < order.index("finite_test")
    )

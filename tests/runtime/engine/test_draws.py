"""Random numbers that a session draws itself: distributed as MindSpore's, the same in every session, different in every
run, node and rank."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.core.attributes import scalar_tensor
from boost_compile.ir.core.errors import RuntimeFailure
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.core.primitives import make_op
from boost_compile.ir.core.program import Entry, Program, Schedule
from boost_compile.ir.core.types import TupleType, tensor
from boost_compile.ir.rewrite.effects.editing import Effects
from boost_compile.runtime.engine.draws import Draws
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower

import boost_compile as bc

SHAPE = (64, 50, 3, 3)
X = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)


def dropping(op: str, keep: float) -> Program:
    """Outputs: the loss (0), and x twice through dropout of its own, each with its mask. A weight is written, since a
    session steps programs that train."""
    graph = Graph("g")
    x = graph.add_input("x", tensor("float32", *SHAPE))
    mask = tensor("float32" if op == "Dropout" else "bool", *SHAPE)
    both = TupleType((tensor("float32", *SHAPE), mask))
    results = [graph.constant(scalar_tensor("float32", 0.0))]
    for _ in range(2):
        if op == "Dropout":
            operands = [x, *(graph.constant(value) for value in (keep, 1, 2))]
            node = graph.create(make_op(op, {"side_effect_hidden": True}), operands, both)
        else:
            node = graph.create(make_op(op, {"keep_prob": keep, "side_effect_hidden": True}), [x], both)
        for i, type_ in enumerate(both.elements):
            part = graph.create("TupleGetItem", [node, graph.constant(i)], type_)
            results.append(part)
    graph.result = graph.create("MakeTuple", results)
    graph.outputs = ("loss", "a", "mask_a", "b", "mask_b")
    program = Program({"g": graph}, {}, Schedule((Entry("g"),)), name="p")
    program.add_state("w", tensor("float32"), "weight")
    fx = Effects(graph)
    fx.append("Assign", [graph.state("w", tensor("float32")), graph.constant(scalar_tensor("float32", 1.0))])
    fx.commit()
    return program


def run(program: Program, seed: int | None, times: int = 2) -> list[dict[str, np.ndarray]]:
    session = bc.Session(program, seed=seed)
    return [{n: v.asnumpy() for n, v in session.step(X).raw.items()} for _ in range(times)]


@pytest.mark.parametrize("op", ["Dropout", "Dropout2D"])
def test_masks(op: str):
    keep = 0.7
    seen, again, other = (run(dropping(op, keep), seed) for seed in (1, 1, 2))
    for name in ("a", "mask_a", "b", "mask_b"):
        assert all(np.array_equal(x[name], y[name]) for x, y in zip(seen, again, strict=True))
    masks = [each[f"mask_{k}"] for each in (*seen, *other) for k in "ab"]
    drawn = [mask if op == "Dropout" else mask[:, :, 0, 0] for mask in masks]
    for i, mask in enumerate(drawn):
        assert set(np.unique(mask)) == {0, 1}
        deviation = (keep * (1 - keep) / mask.size) ** 0.5
        assert abs(mask.mean() - keep) < 5 * deviation
        for before in drawn[:i]:  # of another run, node or seed: they agree as often as chance has it
            agreed = keep**2 + (1 - keep) ** 2
            assert abs((mask == before).mean() - agreed) < 5 * (agreed * (1 - agreed) / mask.size) ** 0.5
    if op == "Dropout2D":
        assert all((mask == mask[:, :, :1, :1]).all() for mask in masks)
    for each in seen:
        for k in "ab":
            np.testing.assert_array_equal(each[k], X * each[f"mask_{k}"] * np.float32(1 / keep))


def test_what_is_kept_has_the_bits_of_the_kernel():
    for each in run(dropping("Dropout", 0.9), None):  # as MindSpore draws
        np.testing.assert_array_equal(each["a"], X * each["mask_a"] * np.float32(1 / 0.9))


def numbers(rank: int) -> tuple[Draws, Graph]:
    graph = Graph("g")
    x = graph.add_input("x", tensor("float32", 2))
    shape = graph.constant((200, 100))
    parts = [
        graph.create(
            make_op(op, {"seed": 1, "seed2": 2, "side_effect_hidden": True}), [shape], tensor("float32", 200, 100)
        )
        for op in ("StandardNormal", "UniformReal")
    ]
    graph.result = graph.create("MakeTuple", [x, *parts])
    program = Program({"g": graph}, {}, Schedule((Entry("g"),)), name="p")
    context = Context(program, "cpu", rank, rank + 1, seed=3)
    lowered = lower(graph, context).graph
    assert [value.name.split(".")[0] for value in lowered.inputs] == ["x", "drawn_0", "drawn_1"]
    draws = Draws(3, rank)
    draws.add("g", context.draws["g"])
    return draws, lowered


def test_numbers():
    (first, _), (second, _) = numbers(0), numbers(1)
    (normal, uniform), (later, _), (elsewhere, _) = ([t.asnumpy() for t in d.next("g")] for d in (first, first, second))
    assert abs(normal.mean()) < 5 / 20_000**0.5
    assert abs(normal.std() - 1) < 5 / 40_000**0.5
    assert abs(uniform.mean() - 0.5) < 5 * (1 / 12 / 20_000) ** 0.5
    assert 0 <= uniform.min() < 0.01 < 0.99 < uniform.max() < 1
    for other in (later, elsewhere):
        assert abs(np.corrcoef(normal.ravel(), other.ravel())[0, 1]) < 5 / 20_000**0.5
    assert first.runs == {"g": 2}
    assert second.check_text(first.to_text(), "x") == (3, {"g": 2})


@pytest.mark.parametrize("text", ["no", "[]", '{"seed": 1}', '{"seed": 1, "runs": {"g": -1}}', "[" * 100_000])
def test_a_damaged_note_is_one_error(text: str):
    with pytest.raises(RuntimeFailure, match="x: its note of the random numbers"):
        numbers(0)[0].check_text(text, "x")


def test_a_session_beside_another_goes_on_with_its_masks() -> None:
    program = dropping("Dropout", 0.5)
    alone = bc.Session(program, seed=1)
    expected = [alone.step(X).raw["mask_a"].asnumpy() for _ in range(2)]
    first = bc.Session(program, seed=1)
    found = [first.step(X).raw["mask_a"].asnumpy()]
    found.append(bc.Session(program, seed=1, beside=first).step(X).raw["mask_a"].asnumpy())
    assert all(np.array_equal(x, y) for x, y in zip(expected, found, strict=True))
    assert not np.array_equal(*found)

"""Training cells as people write them: each is exported, compiled, run, and compared with itself run by MindSpore.

N equal micro-batches must leave what one step of the cell leaves, bit for bit: sums of equal gradients are exact. What
is not finite must skip the update, and with it nothing else than natively.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import pytest
from boost_compile.tools import compile as compiling
from boost_compile.tools import run
from mindspore import nn

import boost_compile as bc
from tests.compare import assert_equal
from tests.networks import state_of
from tests.tools.support import shell

from .zoo import ACCEPTED, SHAPES, Batch, Export

PIPELINE = "gradient-accumulation{steps=2},clip-gradients{limit=1e6},overflow-check"
"""The limit is beyond every norm, so that clipping multiplies by one."""

SCALING = ("scale_sense", "current_iterator_step", "last_overflow_iterator_step")
"""What only a step that overflows shows: a cell that does not see it leaves these otherwise."""


def spoiled(batch: Batch) -> Batch:
    return (np.full_like(batch[0], np.nan), *batch[1:])


@cache
def natively(name: str, path: Path) -> tuple[dict[str, np.ndarray], list[Any]]:
    """The state of the cell itself after two batches, with one between them that is not finite if it checks by itself;
    and the losses of all three."""
    shape = SHAPES[name]
    cell = nn.GraphCell(ms.load(str(path))) if shape.by_file else shape.build()
    first, second = shape.batches(2)
    losses = []
    for batch in (first, spoiled(first), second):
        if batch[0] is first[0] or batch is second or shape.checks:
            result = cell(*map(ms.Tensor, batch))
            result = result if isinstance(result, (tuple, list)) else (result,)
            losses.append(None if shape.loss is None else float(result[shape.loss].asnumpy()))
        else:
            losses.append(None if shape.loss is None else float("nan"))
    return state_of(cell), losses


def check(name: str, cell_file: Export, passes: str) -> None:
    shape = SHAPES[name]
    program = bc.compile(bc.load(cell_file(name)), passes)
    alike = shape.like or name
    expected, losses = natively(alike, cell_file(alike))
    first, second = shape.batches(2)
    session = bc.Session(program)
    for batch, loss in zip((first, spoiled(first), second), losses, strict=True):
        once, again = session.step(*batch), session.step(*batch)
        for result in (once, again):
            assert result.loss == (None if loss is None else pytest.approx(loss, rel=1e-6, nan_ok=True)), result
        is_spoiled = batch is not first and batch is not second
        assert (again.overflow, again.skipped_cycles, again.updated) == (is_spoiled, int(is_spoiled), not is_spoiled)
    state = session.state()
    compared = [n for n in expected if n in state and (shape.checks or n not in SCALING)]
    assert_equal({n: state[n] for n in compared}, {n: expected[n] for n in compared})
    assert {"hidden.weight", "hidden.bias", "output.weight", "output.bias"} <= set(compared)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (k % 2)) for k, name in enumerate(ACCEPTED)]
)
def test_accumulated_clipped_and_checked_it_trains_as_by_itself(cell_file: Export, name: str) -> None:
    check(name, cell_file, PIPELINE)


@pytest.mark.parametrize("steps", [1, 2])
@pytest.mark.parametrize("name", ["no_loss_constants", "updated_constants"])
def test_a_step_that_returns_constants_is_taken(cell_file: Export, name: str, steps: int) -> None:
    """The file as it is, and split, where the graph that updates returns nothing else."""
    program = bc.load(cell_file(name))
    session = bc.Session(bc.compile(program, f"gradient-accumulation{{steps={steps}}}") if steps > 1 else program)
    expected, _ = natively(name, cell_file(name))
    for batch in SHAPES[name].batches(2):
        for _ in range(steps):
            session.step(*batch)
    state = session.state()
    assert_equal({n: state[n] for n in expected}, expected)
    assert expected["global_step"] == 2


@pytest.mark.parametrize("name", ["tutorial", "succeeded", "yolo", "no_loss"])
def test_fused(cell_file: Export, name: str) -> None:
    check(name, cell_file, PIPELINE.replace("steps=2", "steps=2,split=fused"))


def test_by_the_commands(
    cell_file: Export, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file with Ascend's status; one micro-batch of the first cycle is not finite."""
    monkeypatch.chdir(tmp_path)
    done = shell(capsys, compiling.command, cell_file("tutorial_status"), "--passes", PIPELINE, "-o", "out.boost")
    assert done.code == 0, done.err
    checked = next(r for r in bc.load("out.boost").reports if r.name == "overflow-check")
    assert checked.summary.endswith("by the check that the file brings")
    first, second = SHAPES["tutorial"].batches(2)
    rows = zip(first, spoiled(second), first, second, strict=True)
    np.savez("data.npz", *(np.concatenate(column) for column in rows))
    document = shell(capsys, run.command, "out.boost", "--data", "data.npz", "--no-shuffle", "--json").document
    assert (document["cycles"], document["skipped_updates"]) == (2, 1)


@pytest.mark.parametrize("name", ["nested", "yolo_gradients", "loss_last"])
def test_what_passes_add_stands_behind_all_results(cell_file: Export, name: str) -> None:
    """After the first step Momentum's slots are the gradients that it was given: clipped ones."""
    program = bc.compile(bc.load(cell_file(name)), "clip-gradients{limit=0.01,report_norm=true}")
    original = bc.Session(bc.load(cell_file(name)))
    session = bc.Session(program)
    batch = SHAPES[name].batches(1)[0]
    expected, found = original.step(*batch), session.step(*batch)
    assert expected.loss is not None
    assert set(found.outputs) == {*expected.outputs, "gradient_norm"}
    assert found.loss == expected.loss

    def norm(state: dict[str, np.ndarray]) -> float:
        return float(np.sqrt(sum((v**2).sum() for n, v in state.items() if n.startswith("moments."))))

    assert found.gradient_norm == pytest.approx(norm(original.state()), rel=1e-5)
    assert norm(session.state()) == pytest.approx(0.01, rel=1e-5)


@pytest.mark.parametrize("name", ["tutorial", "yolo_bare", "loss_last"])
def test_the_network_predicts(cell_file: Export, name: str) -> None:
    shape = SHAPES[name]
    x = shape.batches(1)[0][0]
    expected = shape.build().network.logits(ms.Tensor(x)).asnumpy()
    session = bc.Session(bc.compile(bc.load(cell_file(name)), "gradient-accumulation{steps=2}"))
    np.testing.assert_allclose(np.asarray(session.predict(x)), expected, rtol=1e-5)


@pytest.mark.parametrize("name", ["tutorial", "succeeded", "no_loss"])
def test_boost_verify_finds_the_same(cell_file: Export, name: str) -> None:
    original = bc.load(cell_file(name))
    found = bc.verify(original, bc.compile(original, "gradient-accumulation{steps=2},overflow-check"))
    assert found.verified, found
    assert {"overflow", "different micro-batches"} <= {r.name for r in found.results if r.status == "passed"}

"""What a graph leaves to the session: numbers that the host computes, with the bits of the device's kernels."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from boost_compile.ir.core.types import DType, TensorType
from boost_compile.ir.text import parse_program
from boost_compile.runtime.engine import engine
from boost_compile.runtime.engine.engine import Engine
from boost_compile.runtime.lowering.host_part import HostNumber, kernel

import boost_compile as bc
from tests.networks import CASES

SAFE = "overflow-check,loss-scale{init=1024,window=2},clip-gradients"
SPECIAL = np.array([0.0, -1.5, 1024.0, 3e38, np.inf, -np.inf, np.nan], np.float32)


@pytest.mark.parametrize("pipeline", [SAFE, f"gradient-accumulation{{steps=2}},{SAFE}"])
def test_a_session_trains_as_one_whose_graphs_compute_all(
    pipeline: str, exported: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, results too, with updates that are skipped and a scale that grows and shrinks."""
    program = bc.compile(bc.load(exported("mlp")), pipeline)
    batches = CASES["mlp"].batches(9)
    spoiled = (np.full_like(batches[4][0], np.inf), *batches[4][1:])
    written: list[bytes] = []
    shown: list[list[dict[str, Any]]] = []
    for addresses in (True, False):
        monkeypatch.setattr(engine, "_tells_addresses", lambda addresses=addresses: addresses)
        session = bc.Session(program)
        assert any(runner.part for runner in session._engine._runners.values()) == addresses
        results = [session.step(*(spoiled if i == 4 else batch)) for i, batch in enumerate(batches)]
        shown.append([result.outputs for result in results])
        path = tmp_path / f"{addresses}.safetensors"
        session.save(path)
        written.append(path.read_bytes())
    assert str(shown[0]) == str(shown[1])
    assert written[0] == written[1]
    scales = [outputs["loss_scale"] for outputs in shown[0] if "loss_scale" in outputs]
    assert max(scales) > 1024
    assert any(outputs.get("overflow") for outputs in shown[0])


def test_the_host_writes_where_the_state_is_now() -> None:
    import mindspore

    ran = Engine(
        parse_program("""
state %count: int32[1] role=counter
state %left: float32[] role=counter
graph @step(%x: float32[4]) -> (total, left, counted) {
  %total = ReduceSum(%x, (0,), false, false) : float32[]
  %l = Load(%left, umonad)
  %half = Mul(%l, float32[]<0.5>)
  %shown = TensorMove(%half)
  %read = MakeTuple(%l, %half)
  %u = UpdateState(umonad, %read)
  %a = Assign(%left, %half, %u)
  %v = UpdateState(%u, %a)
  %b = AssignAdd(%count, int32[1]<1>, %v)
  %w = UpdateState(%v, %b)
  %n = Load(%count, umonad)
  %more = Add(%n, int32[1]<1>)
  %counted = TensorMove(%more)
  %both = MakeTuple(%total, %shown, %counted)
  %r = Depend(%both, %w)
  return %r
}
"""),
        "CPU",
        None,
    )
    assert ran._runners["step"].part is not None

    def step() -> list[float]:
        total, left, counted = ran.run("step", (mindspore.Tensor(np.ones(4, np.float32)),))
        # as the graph would return it
        assert (counted.asnumpy().shape, counted.asnumpy().dtype) == ((1,), np.int32)
        assert (counted.tensor().shape, counted.tensor().dtype) == ((1,), mindspore.int32)
        return [total.asnumpy().item(), left.asnumpy().item()]

    ran.memory.write({"left": np.float32(8)})
    assert step() == [4.0, 4.0]
    first = ran.run("step", (mindspore.Tensor(np.ones(4, np.float32)),))[1]
    assert step() == [4.0, 1.0]
    assert first.asnumpy() == 2.0  # a result keeps its value
    ran.parameters["left"].set_data(mindspore.Tensor(np.float32(64)))
    assert step() == [4.0, 32.0]
    assert ran.memory.read("left") == 32.0
    assert ran.memory.read("count").tolist() == [4]
    assert ran.memory.read("count").dtype == np.int32


@pytest.mark.parametrize("name", ["Add", "Sub", "Mul", "Minimum", "Maximum", "Greater", "LessEqual"])
def test_the_host_has_the_bits_of_the_kernels(name: str) -> None:
    import mindspore
    from mindspore import ops

    compute = kernel(name, DType.BOOL if name in ("Greater", "LessEqual") else DType.FLOAT32)
    ours = [compute(a, b) for a, b in product(SPECIAL.tolist(), SPECIAL.tolist())]
    numbers = [mindspore.Tensor(number) for number in SPECIAL]
    theirs = np.array([getattr(ops, name)()(a, b).asnumpy() for a, b in product(numbers, numbers)])
    np.testing.assert_array_equal(np.array(ours, theirs.dtype), theirs, strict=True)
    assert all(np.isnan(a) or a == np.float32(a) for a in ours)


def test_what_has_no_place_in_a_type_overflows_as_its_memory_does() -> None:
    assert kernel("Add", DType.INT32)(2**31 - 1, 1) == -(2**31)
    assert kernel("Mul", DType.INT64)(2**62, 4) == 0
    assert kernel("Mul", DType.FLOAT32)(3e38, 2.0) == np.inf
    assert kernel("Add", DType.FLOAT32)(1.0, 2.0**-30) == 1.0
    assert kernel("Select", DType.FLOAT32)(True, 1.0, 2.0) == 1.0


def test_a_number_of_the_host_has_the_shape_and_type_of_its_result() -> None:
    number = HostNumber(3, TensorType(DType.INT64, (1, 1)))
    assert (number.item(), number.size) == (3, 1)
    assert number.asnumpy().tolist() == [[3]]
    assert number.asnumpy().dtype == np.int64
    assert (number.tensor().shape, str(number.tensor().dtype)) == ((1, 1), "Int64")

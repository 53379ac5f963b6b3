"""A recomputed program on MindSpore: every state has the bits that it has without, and the pool is smaller."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.program import Program
from boost_compile.ir.core.types import TensorType
from boost_compile.passes.recompute.budget import MARGIN, least

import boost_compile as bc
from tests.data_parallel_job import Run, write
from tests.networks import CASES, names
from tests.ranks import run_ranks

Exported = Callable[[str], Path]
CELLS = ("residual_in_place", "dropout", "gpt", "vit", "mlp_half_compute", "mlp_loss_scale_dynamic")
"""The first crosses BatchNorms and adds in place, the second crosses a Dropout."""
DRAWING = "mobilenet_v2_dropout"

EVERYWHERE = (
    "",
    "gradient-accumulation{steps=2,split=fused},clip-gradients?{by=global-norm,limit=0.05},loss-scale?{mode=dynamic}",
    "gradient-accumulation{steps=2},gradient-freeze?{groups=2,type=interval},overflow-check?",
)
"""Beside these every network of the zoo keeps its bits: without accumulation, and with both of its splits."""
BESIDE = (
    "clip-gradients{by=global-norm,limit=0.05}",
    "loss-scale{mode=dynamic,init=1024,factor=2,window=2}",
    "gradient-freeze{groups=2,type=interval}",
    "gradient-accumulation{steps=2,split=fused},clip-gradients{by=global-norm,limit=0.05},loss-scale{mode=dynamic}",
    "gradient-accumulation{steps=2},gradient-freeze{groups=2,type=interval},overflow-check",
)


def trained(program: Program, batches: list[tuple[np.ndarray, ...]]) -> dict[str, np.ndarray]:
    session = bc.Session(program, seed=7)
    for batch in batches:
        session.step(*batch)
    return {name: np.asarray(value) for name, value in session.state().items()}


@pytest.mark.parametrize("name", [*CELLS, pytest.param(DRAWING, marks=pytest.mark.slow)])
def test_every_state_has_the_same_bits(name: str, exported: Exported) -> None:
    source = bc.load(str(exported(name)))
    before = "gradient-accumulation{steps=2}" if name in ("gpt", "mlp_loss_scale_dynamic") else ""
    plain = bc.compile(source, before) if before else source
    batches = CASES[name].batches(6)
    wanted = trained(plain, batches)
    found = trained(bc.compile(source, f"{before},recompute".strip(",")), batches)
    assert {k for k in wanted if wanted[k].tobytes() != found[k].tobytes()} == set()


@pytest.mark.slow
@pytest.mark.parametrize("beside", EVERYWHERE)
@pytest.mark.parametrize("name", names(runs_on_cpu=True))
def test_every_network_has_the_same_bits(name: str, beside: str, exported: Exported) -> None:
    """After three cycles. What refuses to accumulate, or has nothing that can run again, is skipped with the reason."""
    source = bc.load(str(exported(name)))
    try:
        plain = bc.compile(source, beside) if beside else source
        recomputed = bc.compile(source, f"{beside},recompute".strip(","))
    except bc.Error as error:
        pytest.skip(str(error))
    batches = CASES[name].batches(6 if beside else 3)
    wanted, found = trained(plain, batches), trained(recomputed, batches)
    assert {k for k in wanted if wanted[k].tobytes() != found[k].tobytes()} == set()


@pytest.mark.slow
@pytest.mark.parametrize("beside", BESIDE)
@pytest.mark.parametrize(
    ("name", "size"),
    [("lenet_bn", 256), ("gpt", 1024), ("vit", 256), ("residual_in_place", 256), ("mobilenet_v2", 64)],
)
def test_every_state_has_the_same_bits_under_the_plan_of_a_budget(
    name: str, size: int, beside: str, exported: Exported
) -> None:
    """Halfway between nothing that runs again and all of it, in batches at which that is less."""
    source = bc.load(str(exported(name)))
    plain = bc.compile(source, f"batch-size{{size={size}}},{beside}")
    low, high = least(plain)[0].bytes, bc.memory(plain).total
    assert low < high
    found = bc.compile(plain, f"recompute{{budget={int((low + high) / 2 * (1 + MARGIN)) + 1}B}}")
    assert found.reports[-1].changed
    rng = np.random.default_rng(3)
    inputs = next(iter(plain.graphs.values())).inputs
    batches = [tuple(_random(rng, value.type) for value in inputs) for _ in range(4)]
    wanted, states = trained(plain, batches), trained(found, batches)
    assert {k for k in wanted if wanted[k].tobytes() != states[k].tobytes()} == set()


RANKS = (
    ("lenet_bn", 1, ""),
    ("gpt", 2, "gradient-accumulation{steps=2,split=fused},clip-gradients{limit=0.05},"),
    ("residual_in_place", 2, "gradient-accumulation{steps=2},overflow-check,loss-scale{mode=dynamic},"),
)


@pytest.mark.slow
def test_ranks_have_the_same_bits(exported: Exported, tmp_path: Path) -> None:
    runs = []
    for name, micro, before in RANKS:
        for key in ("plain", "again"):
            passes = f"{before}{'recompute,' * (key == 'again')}data-parallel"
            path = tmp_path / f"{key} {name}.boost"
            bc.compile(bc.load(str(exported(name))), passes).save(str(path))
            runs.append(Run(path.stem, name, str(path), micro=micro))
    write(runs, tmp_path / "runs.json")
    for values in run_ranks("tests.data_parallel_job", 2, str(tmp_path)):
        of_plain = {key: value for key, value in values.items() if key.startswith("plain ")}
        assert len(of_plain) > 3 * 3 * 10
        changed = {k for k in of_plain if of_plain[k].tobytes() != values[k.replace("plain", "again", 1)].tobytes()}
        assert changed == set()


def _random(rng: np.random.Generator, type_: TensorType) -> np.ndarray:
    if type_.dtype.is_float:
        return rng.standard_normal(type_.shape, np.float32)
    return rng.integers(0, 4, type_.shape).astype(type_.dtype.value)

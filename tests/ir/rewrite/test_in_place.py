"""In-place operations on computed tensors are no state: programs that hold them train like their twins without.

MindSpore trains the twins. (Twins, because MindSpore 2.10 itself trains wrongly where ``mask *= …`` starts from a
constant: it writes into the constant, and the next step starts from there.)
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.memory.emit import PURE
from mindspore import nn

import boost_compile as bc
from tests import native
from tests.boundary import slow
from tests.compare import assert_close
from tests.ir.rewrite import in_place_networks as networks
from tests.networks import Batch, Case, export
from tests.networks.mlp import momentum

State = dict[str, np.ndarray]
CLEAN_UPS = "common-subexpression-elimination,dead-code-elimination,effect-chain-minimization"


def batch(rng: np.random.Generator, size: int) -> Batch:
    return tuple(rng.standard_normal((size, 6)).astype(np.float32) for _ in range(2))  # type: ignore[return-value]


def case(network: type[nn.Cell], cell: type[nn.Cell] = nn.TrainOneStepCell) -> Case:
    return Case(f"{network.__name__}_{cell.__name__}", network, momentum, batch, wrap=cell)


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bc.Program]:
    folder = tmp_path_factory.mktemp("in_place")
    cases = {
        "forward": case(networks.InPlace),
        "forward twin": case(networks.WithValues),
        "update": case(networks.Network, networks.UpdatesInPlace),
        "update twin": case(networks.Network, networks.UpdatesWithValues),
    }
    return {name: bc.load(str(export(one, folder))) for name, one in cases.items()}


def train(source: bc.Program, pipeline: str) -> State:
    session = bc.Session(bc.compile(source, pipeline) if pipeline else source, device="CPU")
    for one in case(networks.Network).batches(4):
        session.step(*one)
    return session.state()


def primitives(program: bc.Program) -> set[str]:
    return {node.op.name for graph in program.graphs.values() for body in graph.all_graphs() for node in body}


@pytest.mark.parametrize(
    "pipeline",
    [
        "",
        f"gradient-accumulation{{steps=2}},{CLEAN_UPS}",
        *slow(CLEAN_UPS, "gradient-accumulation{steps=2,split=fused}"),
        "gradient-accumulation{steps=2,reduction=sum},overflow-check",
        "gradient-accumulation{steps=2},clip-gradients{limit=0.05},loss-scale{init=64}",
    ],
)
def test_in_place_operations_of_the_forward_part(sources: dict[str, bc.Program], pipeline: str) -> None:
    assert {"InplaceMul", "InplaceCopy", "InplaceFloorDivides"} <= primitives(sources["forward"])
    twin = case(networks.WithValues)
    initial = native.initial_state(twin)
    ours = train(sources["forward"], pipeline)
    if "clip" in pipeline:
        expected = train(sources["forward twin"], pipeline)
    elif "steps" in pipeline:
        reduction = "sum" if "sum" in pipeline else "mean"
        expected = native.train_accumulated(twin, twin.cycles(2, 2), reduction).states[-1]
    else:
        expected = native.train_steps(twin, twin.batches(4))[1]
    assert_close({n: ours[n] for n in initial}, {n: expected[n] for n in initial}, initial, 1e-5)


@pytest.mark.parametrize(
    "pipeline",
    [
        f"gradient-accumulation{{steps=2}},overflow-check,{CLEAN_UPS}",
        "gradient-accumulation{steps=2,split=fused,reduction=sum}",
        "clip-gradients{limit=0.05},loss-scale{init=64}",
        "tag-gradient-centralization,lower-gradient-centralization",
        *slow("gradient-freeze{groups=2}", "data-parallel"),
    ],
)
def test_in_place_operations_of_the_update_side(sources: dict[str, bc.Program], pipeline: str) -> None:
    """Passes find unscaling, norm and weight decay where they are computed in place."""
    assert {"InplaceMul", "InplaceDivs", "InplaceAddExt"} <= primitives(sources["update"])
    compiled = bc.compile(sources["update"], pipeline)
    assert not primitives(compiled) & PURE.keys()
    assert "in-place operations given a result of their own" in " ".join(r.summary for r in compiled.reports)
    ours, expected = train(sources["update"], pipeline), train(sources["update twin"], pipeline)
    assert ours.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)


def test_what_mindspore_makes_of_the_update_side(sources: dict[str, bc.Program]) -> None:
    one = case(networks.Network, networks.UpdatesInPlace)
    expected = native.train_steps(one, one.batches(4))[1]
    ours = train(sources["update"], CLEAN_UPS)
    for name, value in expected.items():
        np.testing.assert_array_equal(ours[name], value, err_msg=name)


def test_a_compiled_file_by_the_command(sources: dict[str, bc.Program], tmp_path: Path) -> None:
    """Plain MindSpore runs the file with the mask right: each step copies the constant that it writes."""
    import mindspore as ms

    path = tmp_path / "compiled.mindir"
    bc.compile(sources["forward"], CLEAN_UPS).save(str(path))
    graph = nn.GraphCell(ms.load(str(path)))
    twin = case(networks.WithValues)
    losses = [float(graph(*native.tensors(one)).asnumpy()) for one in twin.batches(4)]
    np.testing.assert_allclose(losses, native.train_steps(twin, twin.batches(4))[0], rtol=1e-5)


@pytest.mark.parametrize("cell", [networks.ClipsInPlace, networks.ClipsBehindIf])
def test_who_reads_behind_a_write_takes_what_was_written(cell: type[nn.Cell], tmp_path: Path) -> None:
    """Nobody takes the result of ``g.mul_(factor)``; the optimizer takes g."""
    one = case(networks.Network, cell)
    expected = native.train_steps(one, one.batches(4))[1]
    source = bc.load(str(export(one, tmp_path)))
    for pipeline in ("", "dead-code-elimination", "weight-average"):
        ours = train(source, pipeline)
        for name, value in expected.items():
            np.testing.assert_array_equal(ours[name], value, err_msg=f"{pipeline}: {name}")

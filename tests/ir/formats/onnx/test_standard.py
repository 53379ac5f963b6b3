"""The network of training graphs that MindSpore exported, as standard ONNX: what the native network computes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import onnx
import onnxruntime
import pytest
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.formats.onnx.standard import export_onnx
from boost_compile.ir.rewrite.evaluation import evaluation
from mindspore import nn, ops

import boost_compile as bc
from tests.networks import CASES, build, export
from tests.runtime.evaluation import evaluating
from tests.runtime.evaluation.evaluating import CONVOLUTIONS

ORDINARY = ("lenet_bn", "dropout")
NAMES = [
    *ORDINARY,
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("grouped_conv", "mobilenet_v2_dropout", "residual_in_place", "vit")
    ),
]


def backbone(cell: Any) -> Any:
    """The network inside a WithLossCell."""
    return getattr(cell, "backbone_network", cell)


@pytest.mark.parametrize("name", NAMES)
def test_computes_what_the_native_network_computes(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    program = bc.compile(bc.load(export(case, tmp_path)), "gradient-accumulation{steps=2}")
    exported = export_onnx(tmp_path / "network.onnx", evaluation(program))
    assert not exported.is_whole
    inputs = case.batches(1)[0]
    taken = dict(zip([v.name for v in program.graphs["accumulate"].inputs], inputs, strict=True))
    session = onnxruntime.InferenceSession(tmp_path / "network.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {n: taken[n] for n in exported.inputs})
    native = backbone(build(case).loss_network).set_train(False)
    expected = native(*(ms.Tensor(taken[n]) for n in exported.inputs)).asnumpy()
    np.testing.assert_allclose(found.reshape(expected.shape), expected, atol=1e-5, rtol=1e-5)


class AdaptivePools(nn.Cell):
    """Of 32 by 32 points: whole, in equal bins, and in bins of unequal sizes that overlap; without a batch too."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(1, 3, 3, pad_mode="same", weight_init="normal")
        self.whole = nn.AdaptiveAvgPool2d(1)
        self.equal = nn.AdaptiveAvgPool2d((4, 8))
        self.unequal = nn.AdaptiveAvgPool2d((5, 7))
        self.mixed = nn.AdaptiveAvgPool2d((None, 3))
        self.dense = nn.Dense(3 * (1 + 32 + 35 + 96 + 35), 10)

    def construct(self, x):
        x = self.convolution(x)
        alone = self.unequal(x.reshape((-1, 32, 32)))
        pools = (self.whole(x), self.equal(x), self.unequal(x), self.mixed(x), alone)
        return self.dense(ops.concat([pool.reshape((x.shape[0], -1)) for pool in pools], 1))


def test_adaptive_pools(tmp_path: Path) -> None:
    case = replace(CASES["lenet_bn"], name="adaptive_pools", network=AdaptivePools)
    exported = export_onnx(tmp_path / "network.onnx", evaluation(bc.load(export(case, tmp_path))))
    images, _ = case.batches(1)[0]
    session = onnxruntime.InferenceSession(tmp_path / "network.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {exported.inputs[0]: images})
    native = backbone(build(case).loss_network).set_train(False)
    np.testing.assert_allclose(found, native(ms.Tensor(images)).asnumpy(), atol=2e-6, rtol=1e-6)
    counts = Counter(node.op_type for node in onnx.load(tmp_path / "network.onnx").graph.node)
    assert (counts["GlobalAveragePool"], counts["AveragePool"]) == (1, 1)


PASSES = {
    "adasum": "adasum",
    "batch-size": "batch-size{size=6}",
    "clip-gradients": "clip-gradients",
    "common-subexpression-elimination": "common-subexpression-elimination",
    "data-parallel": "gradient-accumulation{steps=2},data-parallel",
    "dead-code-elimination": "dead-code-elimination",
    "dim-reduce": "",
    "effect-chain-minimization": "effect-chain-minimization",
    "freeze": "freeze{match=[stem.*]}",
    "gradient-accumulation": "gradient-accumulation{steps=2,split=fused}",
    "gradient-centralization": "gradient-centralization",
    "gradient-freeze": "gradient-freeze{groups=2,total_steps=20}",
    "group-loss-scale": "group-loss-scale{groups=2}",
    "legalize": "legalize{target=gpu}",
    "less-bn": "less-bn",
    "lora": "lora{match=[*.weight],rank=2}",
    "loss-scale": "loss-scale{mode=static,init=8}",
    "lower-gradient-centralization": "tag-gradient-centralization,lower-gradient-centralization",
    "mixed-precision": "mixed-precision",
    "monitor": "monitor{every=2}",
    "normalised-head": "normalised-head",
    "overflow-check": "gradient-accumulation{steps=2},overflow-check",
    "parameter-groups": "parameter-groups{match=[*.bias],weight_decay=0.1}",
    "patch-convolution": "",
    "recompute": "recompute?",
    "replace-optimizer": "replace-optimizer{to=adam}",
    "schedule": "schedule{total=4}",
    "shard-optimizer": "gradient-accumulation{steps=2},data-parallel,shard-optimizer{stage=2}",
    "tag-gradient-centralization": "tag-gradient-centralization",
    "weight-average": "weight-average",
}
"""By pass: a pipeline of it, or nothing where the network has no place for it."""
CHANGING = ("less-bn", "normalised-head")
"""Passes that make another network; `tests/runtime/evaluation/test_prediction.py` compares with that."""


def outputs_of(program: bc.Program, path: Path, images: np.ndarray) -> np.ndarray:
    export_onnx(path, evaluation(program).resized(None, runs=False))
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"inputs0": images})
    return np.asarray(found)


def test_batch_norm_behind_every_pass(tmp_path: Path) -> None:
    """The network of each compiled program, run by onnxruntime, gives what that of the source does."""
    assert set(PASSES) == set(bc.passes.REGISTRY), "every pass is tried here"
    source = bc.load(export(CONVOLUTIONS, tmp_path))
    images = evaluating.images(np.random.default_rng(1), 5)[0]
    expected = outputs_of(source, tmp_path / "source.onnx", images)
    for name, pipeline in PASSES.items():
        if not pipeline:
            continue
        program = bc.compile(source, pipeline)
        found = outputs_of(program, tmp_path / "network.onnx", images)
        norms = sum(n.op_type == "BatchNormalization" for n in onnx.load(tmp_path / "network.onnx").graph.node)
        assert norms == (2 if name == "less-bn" else 3), name
        if name in CHANGING:
            assert found.shape == expected.shape
        else:
            # float16 keeps eleven bits of each value.
            limit = 2**-11 if name == "mixed-precision" else 1e-5
            np.testing.assert_allclose(found, expected, rtol=1e-7, atol=limit, err_msg=name)


def test_what_has_no_standard_operator_is_listed_and_nothing_is_written(tmp_path: Path) -> None:
    program = bc.load(export(CASES["lstm"], tmp_path))
    with pytest.raises(PassError, match=r"1 node of the network cannot be written .*\n  LSTM %"):
        export_onnx(tmp_path / "network.onnx", evaluation(program))
    assert not (tmp_path / "network.onnx").exists()
    with pytest.raises(PassError, match="has no node 'nowhere'"):
        evaluation(program, "nowhere")

"""The network of training graphs that MindSpore exported, as standard ONNX: what the native network computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import onnxruntime
import pytest
from boost_compile.ir.errors import PassError
from boost_compile.ir.evaluation import evaluation
from boost_compile.ir.onnx.standard import export_onnx

import boost_compile as bc
from tests.networks import CASES, build, export

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


def test_what_has_no_standard_operator_is_listed_and_nothing_is_written(tmp_path: Path) -> None:
    program = bc.load(export(CASES["lstm"], tmp_path))
    with pytest.raises(PassError, match=r"1 nodes of the network cannot be written .*\n  LSTM %"):
        export_onnx(tmp_path / "network.onnx", evaluation(program))
    assert not (tmp_path / "network.onnx").exists()
    with pytest.raises(PassError, match="has no node 'nowhere'"):
        evaluation(program, "nowhere")

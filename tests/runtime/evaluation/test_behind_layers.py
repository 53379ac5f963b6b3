"""Inputs that act behind the last layer (a mask, an offset, weights of pooling) belong to the network: it predicts as
the live network does."""

from __future__ import annotations

from pathlib import Path

import mindspore as ms
import numpy as np
import onnxruntime
import pytest
from mindspore import nn

import boost_compile as bc
from tests.networks import Case
from tests.runtime.evaluation.evaluating import BEHIND_LAYERS, LossOfLast, by_hand

pytestmark = pytest.mark.filterwarnings("error::boost_compile.ir.rewrite.evaluation.LabelWarning")
CASES = pytest.mark.parametrize("case", BEHIND_LAYERS.values(), ids=BEHIND_LAYERS)


@CASES
def test_of_a_captured_network(case: Case, tmp_path: Path) -> None:
    """Its last input is the label: known in every form, after passes too."""
    ms.set_context(mode=ms.GRAPH_MODE)
    assert case.loss is not None
    network, data = case.network(), case.batch(np.random.default_rng(0), 12)
    optimizer = case.optimizer(network.trainable_params())
    captured = bc.capture(network, case.loss(), optimizer, *(array[:4] for array in data))
    session = bc.Session(bc.compile(captured, "gradient-accumulation{steps=3}"))
    session.fit(data, progress=False)
    inputs, label = data[:-1], data[-1]
    expected = network.set_train(False)(*map(ms.Tensor, inputs)).asnumpy()
    np.testing.assert_allclose(session.predict(*inputs), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(session.network()(*map(ms.Tensor, inputs)).asnumpy(), expected, rtol=1e-5, atol=1e-6)
    (metric, value), *_ = by_hand(expected, label).items()
    assert session.evaluate(data, metric) == {metric: pytest.approx(value, rel=1e-5)}
    if case.name != "masked":  # its MaskedFill has no standard operator
        session.export_onnx(tmp_path / "network.onnx")
        elsewhere = onnxruntime.InferenceSession(tmp_path / "network.onnx", providers=["CPUExecutionProvider"])
        (found,) = elsewhere.run(None, {f"inputs{i}": array[:4] for i, array in enumerate(inputs)})
        np.testing.assert_allclose(found, expected[:4], rtol=1e-5, atol=1e-5)
    for name in ("kept.boost", "kept.mindir", "kept.txt"):
        session.program.save(tmp_path / name)
        kept = bc.load(tmp_path / name)
        assert len(bc.evaluation_network(kept).graphs["network"].inputs) == len(inputs)


@CASES
def test_of_a_cell_of_ones_own(case: Case) -> None:
    """The cells that its nodes stand in tell the network from the loss."""
    ms.set_context(mode=ms.GRAPH_MODE)
    assert case.loss is not None
    network, data = case.network(), case.batch(np.random.default_rng(0), 4)
    cell = nn.TrainOneStepCell(LossOfLast(network, case.loss()), case.optimizer(network.trainable_params()))
    session = bc.Session(bc.capture(cell, *data))
    expected = network.set_train(False)(*map(ms.Tensor, data[:-1])).asnumpy()
    np.testing.assert_allclose(session.predict(*data[:-1]), expected, rtol=1e-5, atol=1e-6)
    (metric, value), *_ = by_hand(expected, data[-1]).items()
    assert session.evaluate(data, metric) == {metric: pytest.approx(value, rel=1e-5)}

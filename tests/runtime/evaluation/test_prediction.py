"""`session.predict`: what the native network gives in inference mode with the same weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
import onnxruntime
import pytest
from mindspore import nn
from mindspore.train import Model

import boost_compile as bc
from tests.networks import CASES, Case, build, export
from tests.networks.heads import HEADS, normalised_head
from tests.networks.mlp import MLP, classes, cross_entropy
from tests.runtime.evaluation import evaluating
from tests.runtime.evaluation.evaluating import CONVOLUTIONS, Convolutions, First, natively

Exported = Callable[[str], Path]


@pytest.fixture(scope="module")
def convolutions(tmp_path_factory: pytest.TempPathFactory) -> bc.Program:
    return bc.load(export(CONVOLUTIONS, tmp_path_factory.mktemp("convolutions")))


def trained(program: bc.Program, case: Case, steps: int = 3) -> bc.Session:
    session = bc.Session(program)
    for batch in case.batches(steps):
        session.step(*batch)
    return session


def with_head(network: nn.Cell, monkeypatch: pytest.MonkeyPatch) -> nn.Cell:
    monkeypatch.setitem(HEADS, "Convolutions", "output")
    return normalised_head(network)


PIPELINES = {
    "plain": "dead-code-elimination",
    "accumulation": "gradient-accumulation{steps=2}",
    "fused": "gradient-accumulation{steps=2,split=fused}",
    "overflow-check": "gradient-accumulation{steps=2},overflow-check",
    "loss-scale": "loss-scale{mode=dynamic},overflow-check",
    "clip-gradients": "clip-gradients{limit=0.1}",
    "gradient-freeze": "gradient-freeze{groups=2,total_steps=20,probability=0.3}",
    "centralization": "tag-gradient-centralization,lower-gradient-centralization",
    "less-bn": "less-bn",
    "normalised-head": "normalised-head",
    "both": "less-bn,normalised-head,gradient-accumulation{steps=2},overflow-check,clip-gradients{limit=1.0}",
}


ORDINARY = ("overflow-check", "gradient-freeze", "less-bn", "both")


@pytest.mark.parametrize("name", [n if n in ORDINARY else pytest.param(n, marks=pytest.mark.slow) for n in PIPELINES])
def test_every_pass(convolutions: bc.Program, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """Convolutions with BatchNorm and dropout, another number of samples than in training, and training goes on.
    The network as ONNX, run elsewhere, gives the same."""
    session = trained(bc.compile(convolutions, PIPELINES[name]), CONVOLUTIONS)
    network = Convolutions(inner=name not in ("less-bn", "both"))
    if name in ("normalised-head", "both"):
        network = with_head(network, monkeypatch)
    before = session.state()
    for size in (4, 7):
        images, _ = evaluating.images(np.random.default_rng(size), size)
        expected = natively(network, before, images)
        found = session.predict(images)
        assert isinstance(found, np.ndarray)
        np.testing.assert_allclose(found, expected, atol=1e-6, rtol=1e-6)
    session.export_onnx(tmp_path / "network.onnx")
    network = onnxruntime.InferenceSession(tmp_path / "network.onnx", providers=["CPUExecutionProvider"])
    (found_elsewhere,) = network.run(None, {"inputs0": images[:4]})
    np.testing.assert_allclose(found_elsewhere, found[:4], atol=1e-5)
    after = session.state()
    assert all(np.array_equal(after[k], before[k]) for k in before)
    for batch in CONVOLUTIONS.batches(4, seed=5):
        session.step(*batch)
    assert not np.allclose(session.predict(images), found, atol=1e-6)  # the weights of now, not of then


@pytest.mark.parametrize(
    "name", ["gpt_tied", "mlp_half_compute", "mlp_mixed", "two_inputs", "lstm", "branch_state", "loop_weights"]
)
def test_networks_of_other_kinds(exported: Exported, name: str) -> None:
    """A transformer, half precision, two inputs, a recurrent layer, a BatchNorm in a branch, a loop, each with another
    number of samples too; the loss in the network is left out natively."""
    case = CASES[name]
    session = trained(bc.load(exported(name)), case, 1)
    native: Any = build(case).loss_network
    if hasattr(native, "backbone_network"):
        native = native.backbone_network
    else:
        native.loss = First()
    inputs = case.batches(1, seed=9)[0]
    given = inputs if isinstance(native, type(build(case).loss_network)) else inputs[:-1]
    expected = natively(native, session.state(), *given)
    found = session.predict(*inputs[:-1])
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)
    more = session.predict(*(np.concatenate([array, array[:1]]) for array in inputs[:-1]))
    assert len(more) == len(found) * 5 // 4
    np.testing.assert_allclose(more[: len(found)], found, atol=1e-3 if "half" in name or "mixed" in name else 1e-6)


def test_several_heads_come_as_a_tuple(tmp_path: Path) -> None:
    case = Case("heads", evaluating.HeadsLoss, evaluating.momentum, evaluating.two_targets)
    session = trained(bc.load(export(case, tmp_path)), case)
    inputs = case.batches(1, seed=9)[0][:2]
    state = {k.removeprefix("network."): v for k, v in session.state().items()}
    found = session.predict(*inputs)
    assert isinstance(found, tuple)
    expected = natively(evaluating.Heads(), state, *inputs)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_state_that_the_forward_part_writes_stays(tmp_path: Path) -> None:
    case = Case("written", evaluating.WrittenState, evaluating.momentum, classes, cross_entropy)
    session = trained(bc.load(export(case, tmp_path)), case)
    (x, _), before = case.batches(1, seed=9)[0], session.state()
    expected = natively(evaluating.WrittenState(), before, x)
    for _ in range(2):  # the second as the first
        np.testing.assert_allclose(session.predict(x), expected, atol=1e-6)
    assert all(np.array_equal(v, before[k]) for k, v in session.state().items())


def test_a_graph_that_holds_the_batch_size_is_made_anew_for_another(tmp_path: Path) -> None:
    case = Case("positions", evaluating.Positions, evaluating.momentum, classes, cross_entropy)
    session = trained(bc.load(export(case, tmp_path)), case, 1)
    x, _ = case.batches(1)[0]
    np.testing.assert_allclose(session.predict(x), natively(evaluating.Positions(), session.state(), x), atol=1e-6)
    with pytest.raises(bc.Error, match=r"predict was given 3 samples and takes 4 only: .*\n.*"):
        session.predict(x[:3])


def test_the_network_as_a_cell(convolutions: bc.Program) -> None:
    """In Model.eval, and inside of a Cell that MindSpore compiles; over the session's own Parameters."""
    session = trained(convolutions, CONVOLUTIONS)
    network = session.network()
    assert {id(p) for p in network.get_parameters()} <= {id(p) for p in session.cell.get_parameters()}
    x, labels = evaluating.images(np.random.default_rng(3), 6)
    expected = session.predict(x)
    _, inside, _ = nn.WithEvalCell(network, cross_entropy())(ms.Tensor(x), ms.Tensor(labels))
    np.testing.assert_allclose(inside.asnumpy(), expected, atol=1e-6)

    from tests.runtime.training.support import dataset

    found = Model(network, cross_entropy(), metrics={"accuracy"}).eval(dataset(x, labels).batch(3))
    assert found["accuracy"] == pytest.approx((expected.argmax(1) == labels).mean())


def test_the_network_as_a_program(convolutions: bc.Program, tmp_path: Path) -> None:
    """By itself it predicts what the session does; its file runs without this project."""
    session = trained(bc.compile(convolutions, "gradient-accumulation{steps=2},less-bn"), CONVOLUTIONS)
    images, _ = evaluating.images(np.random.default_rng(3), 6)
    network = bc.evaluation_network(session.program, session.state(), batch=6)
    assert {v.role for v in network.state.values()} == {"weight", "statistic"}
    network.save(tmp_path / "network.mindir")
    found = nn.GraphCell(ms.load(str(tmp_path / "network.mindir")))(ms.Tensor(images)).asnumpy()
    expected = session.predict(images)
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(bc.Session(network).predict(images), expected, atol=1e-6)
    with pytest.raises(bc.Error, match=r"state 'stem.weight' is float32\[4,2,3,3\], and the given state lacks it"):
        bc.evaluation_network(session.program, {})


def test_another_node_as_the_result(exported: Exported) -> None:
    program = bc.load(exported("mlp"))
    session = bc.Session(program)
    node = next(n.name for n in program.graphs["step"] if n.op.name == "ReLU")
    (x, _) = CASES["mlp"].batches(1)[0]
    weight, bias = session.state()["hidden.weight"], session.state()["hidden.bias"]
    expected = np.maximum(x @ weight.T + bias, 0)
    np.testing.assert_allclose(session.network(node)(ms.Tensor(x)).asnumpy(), expected, atol=1e-5)
    with pytest.raises(bc.Error, match="graph 'step' has no node 'nowhere'"):
        session.network("nowhere")


def test_inputs_that_do_not_fit(exported: Exported) -> None:
    session = bc.Session(bc.load(exported("two_inputs")))
    left, right, labels = CASES["two_inputs"].batches(1)[0]
    with pytest.raises(bc.Error, match="takes 2 inputs"):
        session.predict(left, right, labels)
    with pytest.raises(bc.Error, match="different numbers of samples: inputs0 4, inputs1 3"):
        session.predict(left, right[:3])


def test_one_sample_trained_and_a_dynamic_batch(tmp_path: Path, exported: Exported) -> None:
    case = replace(CASES["mlp"], name="one", batch_size=1)
    session = bc.Session(bc.load(export(case, tmp_path)))
    x, _ = CASES["mlp"].batches(1)[0]
    expected = natively(MLP(), session.state(), x)
    np.testing.assert_allclose(session.predict(x), expected, atol=1e-6)
    dynamic = bc.Session(bc.load(exported("mlp_dynamic_batch")))
    np.testing.assert_allclose(dynamic.predict(x), natively(MLP(), dynamic.state(), x), atol=1e-6)

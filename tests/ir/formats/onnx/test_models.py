"""Networks that torch exported (make_models.py): computed as torch does, trained as torch does, and written back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import boost_compile as bc
from tests.forward import Results

MODELS = Path(__file__).parent / "models"
NAMES = sorted(path.stem for path in MODELS.glob("*.onnx"))
ORDINARY = ("convolutions_exported", "encoder_exported")
TOLERANCE = 1e-5
RATE = 1.0


def stored(name: str) -> dict[str, np.ndarray]:
    with np.load(MODELS / f"{name}.npz") as file:
        return dict(file)


def run(path: Path, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: x})[0]


def cross_entropy(logits: np.ndarray, label: np.ndarray) -> float:
    shifted = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(label)), label]))


CASES = [n if n in ORDINARY else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]


@pytest.mark.parametrize("name", CASES)
def test_computes_what_torch_computes(name: str, tmp_path: Path) -> None:
    data = stored(name)
    program = bc.load(MODELS / f"{name}.onnx")
    (found,) = Results(program)(data["input.0"])
    np.testing.assert_allclose(found, data["output"], atol=TOLERANCE, rtol=TOLERANCE)
    program.save(str(tmp_path / "program.boost"))
    (again,) = Results(bc.load(tmp_path / "program.boost"))(data["input.0"])
    assert np.array_equal(again, found)
    # And written as ONNX again, it is still that network.
    from boost_compile.ir.formats.onnx.standard import export_onnx
    from boost_compile.ir.rewrite.evaluation import evaluation

    exported = export_onnx(tmp_path / "again.onnx", evaluation(program))
    assert exported.is_whole
    np.testing.assert_allclose(
        run(tmp_path / "again.onnx", data["input.0"]), data["output"], atol=TOLERANCE, rtol=TOLERANCE
    )


@pytest.mark.parametrize("name", CASES)
def test_trains_as_torch_trains(name: str, tmp_path: Path) -> None:
    """The first step's gradients, read off plain SGD; then accumulation, and the trained network as ONNX."""
    data = stored(name)
    x, label = data["input.0"], data["label"]
    gradients = {key[9:].replace("::", "__"): value for key, value in data.items() if key.startswith("gradient.")}
    training = bc.differentiate(
        bc.load(MODELS / f"{name}.onnx"), f"sgd{{lr={RATE}}}", loss="softmax-cross-entropy"
    )  # fmt: skip
    session = bc.Session(training)
    before = session.state()
    assert session.step(x, label).loss == pytest.approx(float(data["loss"]), abs=TOLERANCE)
    after = session.state()
    trained = {n for n, v in training.state.items() if v.trainable}
    assert trained == set(gradients)
    for weight, gradient in gradients.items():
        moved = (before[weight] - after[weight]) / RATE
        # A weight minus a gradient and back: to the rounding of the weight.
        np.testing.assert_allclose(moved, gradient, atol=2e-6 * max(1, np.abs(before[weight]).max()), rtol=1e-4)

    accumulating = bc.compile(
        bc.differentiate(bc.load(MODELS / f"{name}.onnx"), "sgd{lr=0.1}", loss="softmax-cross-entropy"),
        "gradient-accumulation{steps=2}",
    )
    session = bc.Session(accumulating)
    losses = [session.step(half, chosen).loss for _ in range(10) for half, chosen in ((x, label), (x, label))]
    assert losses[-1] < 0.98 * losses[0]
    path = tmp_path / "trained.onnx"
    said = session.export_onnx(path)
    assert "without label; without loss" in said
    assert cross_entropy(run(path, x), label) == pytest.approx(session.step(x, label).loss, abs=TOLERANCE)

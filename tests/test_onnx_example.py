"""examples/onnx_digits: the committed model trains, and what is written executes elsewhere with the same result."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import boost_compile as bc

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_an_onnx_model_is_trained_and_written_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES / "onnx_digits")
    import digits
    import train

    data = digits.load()
    images, labels = data.train_images[:400], data.train_labels[:400]
    session = bc.Session(train.compiled())
    session.export_onnx(tmp_path / "untrained.onnx")
    session.fit((images, labels), epochs=3, progress=False)
    session.export_onnx(tmp_path / "trained.onnx")
    # Ten classes: guessing gets a tenth right.
    assert train.accuracy(tmp_path / "untrained.onnx", data.test_images[:500], data.test_labels[:500]) < 0.3
    assert train.accuracy(tmp_path / "trained.onnx", data.test_images[:500], data.test_labels[:500]) > 0.6
    # What the written model says of a batch is what the loss of the next step is taken of.
    batch, label = images[: train.BATCH], labels[: train.BATCH]
    logits = train.execute(tmp_path / "trained.onnx", batch).astype(np.float64)
    logits -= logits.max(axis=1, keepdims=True)
    loss = np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(label)), label])
    assert session.step(batch, label).loss == pytest.approx(loss, abs=1e-5)

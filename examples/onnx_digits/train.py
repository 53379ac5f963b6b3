"""An ONNX model that torch made, trained on handwritten digits with gradient accumulation, and written as ONNX again.

    python train.py            # all 4,000 digits, 5 epochs

Nothing here needs torch: digits.onnx was made by make_model.py. The trained model is executed by onnxruntime where it
is installed, else by the reference evaluator of the onnx package.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

import boost_compile as bc

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))
import digits  # noqa: E402

BATCH = 20


def compiled(steps: int = 2) -> bc.Program:
    """The model with a loss, its backward part, momentum and accumulation."""
    forward = bc.load(FOLDER / "digits.onnx", dimensions={"batch": BATCH})
    training = bc.differentiate(forward, "momentum{lr=0.02,momentum=0.9}", loss="softmax-cross-entropy")
    return bc.compile(training, f"gradient-accumulation{{steps={steps}}}")


def execute(path: Path, images: np.ndarray) -> np.ndarray:
    """What an ONNX model computes of all images, batch by batch."""
    run: Any
    try:
        import onnxruntime

        run = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run
    except ImportError:
        from onnx.reference import ReferenceEvaluator

        run = ReferenceEvaluator(path).run
    return np.concatenate([run(None, {"images": images[i : i + BATCH]})[0] for i in range(0, len(images), BATCH)])


def accuracy(path: Path, images: np.ndarray, labels: np.ndarray) -> float:
    return float((execute(path, images).argmax(axis=1) == labels).mean())


def train(output: Path, epochs: int, limit: int | None = None) -> float:
    """Trains on the first ``limit`` digits and writes the network to ``output``; the share of held-out digits that the
    written model gets right."""
    data = digits.load()
    session = bc.Session(compiled())
    session.fit((data.train_images[:limit], data.train_labels[:limit]), epochs=epochs, progress=False)
    print(session.export_onnx(output))
    return accuracy(output, data.test_images, data.test_labels)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--limit", type=int, help="how many of the digits to train on [all]")
    parser.add_argument("-o", "--output", type=Path, default=Path("trained.onnx"))
    options = parser.parse_args()
    print(f"{100 * train(options.output, options.epochs, options.limit):.1f} % of the held-out digits are right")

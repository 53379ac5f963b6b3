"""Writes digits.onnx: a small convolutional network as torch exports it, untrained. Needs torch, which the project does
not depend on; the file stands beside this script.

    python make_model.py
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn


def main() -> None:
    torch.manual_seed(1)
    network = nn.Sequential(
        nn.Conv2d(1, 6, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 40),
        nn.ReLU(),
        nn.Linear(40, 10),
    )
    torch.onnx.export(
        network.eval(),
        (torch.zeros(2, 1, 32, 32),),
        str(Path(__file__).parent / "digits.onnx"),
        input_names=["images"],
        output_names=["logits"],
        dynamic_axes={"images": {0: "batch"}, "logits": {0: "batch"}},
        opset_version=17,
        dynamo=False,
    )


if __name__ == "__main__":
    main()

"""Writes models/: networks that torch exports as ONNX, and what torch computes for them. Needs torch and onnxscript,
which the project does not depend on:

    python tests/ir/formats/onnx/make_models.py

For each network NAME.onnx and NAME.npz: `input.I`, `label`, `output`, `loss` (the mean cross entropy), and `gradient.W`
for each initializer W of the model, in the layout that the model has it in.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn

FOLDER = Path(__file__).parent / "models"
CLASSES = 5


class Convolutions(nn.Module):
    """Convolutions, plain, strided, grouped and transposed, with BatchNorm, pools and a residual connection."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=4)
        self.norm2 = nn.BatchNorm2d(8)
        self.up = nn.ConvTranspose2d(8, 6, 3, stride=2, padding=1, output_padding=1)
        self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.mean = nn.AvgPool2d(2)
        self.head = nn.Linear(6, CLASSES)
        for norm in (self.norm1, self.norm2):
            nn.init.uniform_(norm.running_mean, -0.5, 0.5)
            nn.init.uniform_(norm.running_var, 0.5, 1.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Behind an activation, so that exporting does not fold them into the convolution.
        x = self.pool(self.norm1(torch.relu(self.first(x))))
        x = x + self.norm2(torch.nn.functional.silu(self.second(x)))
        x = self.mean(torch.nn.functional.leaky_relu(self.up(x), 0.1))
        return self.head(x.mean((2, 3)))


class Encoder(nn.Module):
    """A transformer encoder over token numbers, with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(20, 16)
        self.positions = nn.Parameter(torch.randn(1, 6, 16) * 0.1)
        layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.encoder(self.tokens(x) + self.positions)
        return self.head(x[:, 0])


class Recurrent(nn.Module):
    """A bidirectional LSTM and a GRU behind it."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(7, 6, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(12, 6, batch_first=True)
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, _ = self.lstm(x)
        _, last = self.gru(x)
        return self.head(last[0])


def gates(array: np.ndarray, order: tuple[int, ...]) -> np.ndarray:
    """The gates along the first axis in another order."""
    parts = np.split(array, len(order))
    return np.concatenate([parts[i] for i in order])


def layouts(module: nn.Module, of: Callable[[torch.Tensor], np.ndarray]) -> list[np.ndarray]:
    """`of` every parameter, in all layouts in which an exporter may write it."""
    found = []
    for parameter in module.parameters():
        array = of(parameter)
        found += [array, array.T]
    for cell, order in ((nn.LSTM, (0, 3, 1, 2)), (nn.GRU, (1, 0, 2))):
        for child in (m for m in module.modules() if isinstance(m, cell)):
            ways = ["", "_reverse"] if child.bidirectional else [""]

            def stacked(name: str, order: tuple[int, ...] = order, child: nn.Module = child, ways: list[str] = ways):
                return np.stack([gates(of(getattr(child, f"{name}_l0{way}")), order) for way in ways])

            found += [stacked("weight_ih"), stacked("weight_hh")]
            found.append(np.concatenate([stacked("bias_ih"), stacked("bias_hh")], axis=1))
    return found


def make(name: str, module: nn.Module, x: torch.Tensor, dynamo: bool) -> None:
    module.eval()
    for parameter in module.parameters():  # an exporter writes equal ones, such as all biases at first, only once
        nn.init.normal_(parameter, parameter.mean().item(), 0.2)
    path = FOLDER / f"{name}.onnx"
    torch.onnx.export(
        module, (x,), str(path), input_names=["x"], output_names=["y"], opset_version=18, dynamo=dynamo,
        external_data=False,
    )  # fmt: skip
    model = onnx.load(path)
    del model.metadata_props[:]
    for node in model.graph.node:  # stack traces and folders of the machine
        del node.metadata_props[:]
        node.doc_string = ""
    for info in [*model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer]:
        del info.metadata_props[:]
    onnx.save(model, path)
    label = torch.arange(len(x)) % CLASSES
    output = module(x)
    loss = nn.functional.cross_entropy(output, label)
    loss.backward()
    values = layouts(module, lambda p: p.detach().numpy())
    gradients = layouts(module, lambda p: p.grad.numpy())
    stored = {
        "input.0": x.numpy(),
        "label": label.numpy().astype(np.int32),
        "output": output.detach().numpy(),
        "loss": loss.detach().numpy(),
    }
    missing = []
    for initializer in model.graph.initializer:
        array = numpy_helper.to_array(initializer)
        if array.dtype != np.float32 or not array.shape:
            continue
        same = [
            g for v, g in zip(values, gradients, strict=True) if v.shape == array.shape and np.array_equal(v, array)
        ]
        if same:
            stored[f"gradient.{initializer.name}"] = same[0]
        else:
            missing.append(initializer.name)
    np.savez_compressed(FOLDER / f"{name}.npz", **stored)
    print(name, path.stat().st_size, {n.op_type for n in model.graph.node}, "without gradient:", missing)


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for case, network, data in (
        ("convolutions", Convolutions, lambda: torch.randn(4, 3, 12, 12)),
        ("encoder", Encoder, lambda: torch.randint(0, 20, (4, 6))),
        ("recurrent", Recurrent, lambda: torch.randn(4, 5, 7)),
    ):
        for is_new in (True, False):
            torch.manual_seed(1)
            make(f"{case}_{'exported' if is_new else 'traced'}", network(), data(), is_new)

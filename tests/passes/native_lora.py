"""LoRA as one writes it in MindSpore: dense layers in a Cell with two small ones beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import mindspore as ms
import numpy as np
from mindspore import nn

from tests.networks import Case


class Adapter(nn.Cell):
    """A dense layer with an adapter: y + alpha / rank · B(A(x))."""

    def __init__(self, dense: nn.Dense, a: np.ndarray, b: np.ndarray, alpha: float) -> None:
        super().__init__()
        (rank, inputs), outputs = a.shape, b.shape[0]
        self.dense = dense
        self.down = nn.Dense(inputs, rank, weight_init=ms.Tensor(a), has_bias=False)
        self.up = nn.Dense(rank, outputs, weight_init=ms.Tensor(b), has_bias=False)
        self.scale = alpha / rank
        if dense.get_flags().get("fp16"):
            self.to_float(ms.float16)

    def construct(self, x):
        return self.dense(x) + self.up(self.down(x)) * self.scale


def none(name: str) -> bool:
    return False


def with_adapters(
    case: Case, state: Mapping[str, Any], layers: list[str], alpha: float, train: Callable[[str], bool] = none
) -> Case:
    """The case with an adapter beside each of its dense ``layers``, whose matrices start as ``state`` says. What else
    ``train`` does not name stands still."""

    def network() -> nn.Cell:
        made = case.network()
        names = {id(p): p.name for p in made.get_parameters()}
        cells = dict(made.cells_and_names())
        for layer in layers:
            parent, dense = cells[layer.rpartition(".")[0]], cells[layer]
            adapter = Adapter(dense, state[f"{layer}.lora_A.weight"], state[f"{layer}.lora_B.weight"], alpha)
            for old in [key for key, cell in parent._cells.items() if cell is dense]:
                parent._cells[old] = adapter
            if isinstance(parent, nn.SequentialCell):
                parent.cell_list = list(parent._cells.values())
            names[id(adapter.down.weight)] = f"{layer}.lora_A.weight"
            names[id(adapter.up.weight)] = f"{layer}.lora_B.weight"
        for parameter in made.get_parameters():
            parameter.name = names[id(parameter)]
            parameter.requires_grad = "lora_" in parameter.name or train(parameter.name)
        return made

    return replace(case, name=f"{case.name}_lora", network=network)

"""A case of the zoo: a network, its loss, its optimizer and its data; built and exported the same every time."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Before MindSpore is imported: without it oneDNN's convolutions are some 60 times slower in MindSpore 2.9 and 2.10.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")

import mindspore as ms
import numpy as np
from mindspore import nn

SEED = 1
Batch = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Case:
    """A training cell that can be built again and again with the same initial state.

    `network()` returns the model, `loss()` its loss; without a loss the network returns the loss itself.
    `optimizer(parameters)` gets `network.trainable_params()`; `batch(rng, size)` returns the inputs as numpy arrays.
    `runs_on_cpu` is False where MindSpore exports the cell but has no CPU kernel for one of its primitives.
    """

    name: str
    network: Callable[[], nn.Cell]
    optimizer: Callable[[list[ms.Parameter]], nn.Cell]
    batch: Callable[[np.random.Generator, int], Batch]
    loss: Callable[[], nn.Cell] | None = None
    wrap: Callable[[nn.Cell, nn.Cell], nn.Cell] = nn.TrainOneStepCell
    batch_size: int = 4
    dynamic_batch: bool = False
    runs_on_cpu: bool = True
    tags: frozenset[str] = field(default_factory=frozenset)

    def batches(self, count: int, seed: int = SEED) -> list[Batch]:
        """`count` different batches; the same for the same seed."""
        rng = np.random.default_rng(seed)
        return [self.batch(rng, self.batch_size) for _ in range(count)]

    def cycles(self, count: int, micro_batches: int, seed: int = SEED) -> list[list[Batch]]:
        """`count` cycles of `micro_batches` different batches each."""
        flat = self.batches(count * micro_batches, seed)
        return [flat[i * micro_batches : (i + 1) * micro_batches] for i in range(count)]


@dataclass(frozen=True)
class Built:
    """The cells of a case, built and not yet run."""

    loss_network: nn.Cell
    optimizer: nn.Cell
    train_step: nn.Cell


def seed_everything() -> None:
    """Makes the next network's initial values, and the seeds of its random primitives, those of every other build."""
    ms.set_seed(SEED)
    np.random.seed(SEED)


def build(case: Case, device: str = "CPU") -> Built:
    """Builds the training cell of a case for graph mode on a device, always from the same seed."""
    ms.set_context(mode=ms.GRAPH_MODE, device_target=device)
    seed_everything()
    network = case.network()
    loss_network = network if case.loss is None else nn.WithLossCell(network, case.loss())
    optimizer = case.optimizer(network.trainable_params())
    train_step = case.wrap(loss_network, optimizer)
    train_step.set_train()
    return Built(loss_network, optimizer, train_step)


def state_of(cell: nn.Cell) -> dict[str, np.ndarray]:
    """Name -> a copy of the value, for every parameter of a cell."""
    return {parameter.name: parameter.asnumpy().copy() for parameter in cell.get_parameters()}


def symbolic(batch: Batch) -> list[ms.Tensor]:
    """Tensors without values whose first dimension is open: what an export with a dynamic batch takes."""
    return [ms.Tensor(shape=[None, *array.shape[1:]], dtype=ms.Tensor(array).dtype) for array in batch]


def export(case: Case, folder: Path, device: str = "CPU") -> Path:
    """Writes the training cell of a case, as a device exports it, to `folder/NAME.mindir` and returns that path."""
    step = build(case, device).train_step
    inputs: list[Any] = [ms.Tensor(array) for array in case.batches(1)[0]]
    if case.dynamic_batch:
        inputs = symbolic(case.batches(1)[0])
    path = folder / f"{case.name}.mindir"
    ms.export(step, *inputs, file_name=str(path), file_format="MINDIR")
    return path

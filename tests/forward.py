"""Forward graphs of the zoo's networks, exported natively, and modules decompiled from them."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import mindspore as ms
import numpy as np
from boost_compile.ir.core.program import Program
from boost_compile.ir.formats.python.decompile import decompile
from boost_compile.runtime.data.inputs import to_tensors
from boost_compile.runtime.engine.engine import Engine, flat_outputs
from mindspore import nn

from tests.networks import CASES
from tests.networks.case import build, seed_everything


class Probabilities(nn.Cell):
    """A network whose results lie between 0 and 1."""

    def __init__(self, network: nn.Cell) -> None:
        super().__init__(auto_prefix=False)
        self.network = network
        self.sigmoid = nn.Sigmoid()

    def construct(self, x):
        return self.sigmoid(self.network(x))


def with_loss(name: str, folder: Path) -> Path:
    """The network of a case with its loss, as it trains."""
    case = CASES[name]
    network = build(case).loss_network
    return export(network.set_train(True), case.batches(1)[0], folder / f"{name}.mindir")


def without_loss(name: str, folder: Path, training: bool) -> Path:
    """The network of a case alone, in training or in inference mode; its last input was the loss's."""
    case = CASES[name]
    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    seed_everything()
    return export(case.network().set_train(training), case.batches(1)[0][:-1], folder / f"{name}.mindir")


def export(cell: Any, batch: tuple, path: Path) -> Path:
    ms.export(cell, *map(ms.Tensor, batch), file_name=str(path), file_format="MINDIR")
    return path


class Results:
    """Runs a program of one graph on arrays, as it stands: a session runs training programs only."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.engine = Engine(program, "CPU", None)

    def __call__(self, *inputs: Any) -> list[np.ndarray]:
        (graph,) = self.program.graphs.values()
        values = flat_outputs(graph, self.engine.run(graph.name, to_tensors(graph, inputs))).values()
        return [np.array(value.asnumpy()) for value in values]


def imported(program: Program, folder: Path) -> Any:
    """The module that a program is as Python."""
    name = f"decompiled_{len(sys.modules)}"
    spec = importlib.util.spec_from_file_location(name, decompile(program).write(folder, name))
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


__all__ = ["Probabilities", "export", "imported", "with_loss", "without_loss"]

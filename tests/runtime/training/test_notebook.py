"""A notebook that trains a live network, run by a real kernel: what its reader sees."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.waiting import PATIENCE

nbclient = pytest.importorskip("nbclient")
nbformat = pytest.importorskip("nbformat")
pytest.importorskip("ipykernel")

CELLS = [
    """%%writefile network.py
from mindspore import nn

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Dense(8, 16)
        self.output = nn.Dense(16, 4)

    def construct(self, x):
        return self.output(nn.ReLU()(self.hidden(x)))
""",
    """import numpy as np
from mindspore import nn
import boost_compile as bc
from network import Net

rng = np.random.default_rng(0)
x, y = rng.standard_normal((40, 8)).astype(np.float32), rng.integers(0, 4, 40).astype(np.int32)
network = Net()
loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
optimizer = nn.Momentum(network.trainable_params(), 0.1, 0.9)
program = bc.compile(network, "gradient-accumulation{steps=2}", loss, optimizer, x[:4], y[:4])
""",
    """before = network.output.weight.asnumpy().copy()
session = bc.Session(program)
history = session.fit((x, y), epochs=2, evaluate=lambda s: "<b>fine</b>")""",
    """session.fit((x, y), progress=False)
print("trained:", not np.array_equal(before, network.output.weight.asnumpy()))""",
    # The kernel keeps what is typed in files, where MindSpore finds it.
    """class Typed(nn.Cell):
    def __init__(self):
        super().__init__()
        self.output = nn.Dense(8, 4)

    def construct(self, x):
        return self.output(x)

typed = Typed()
print("captured:", bc.capture(typed, loss, nn.SGD(typed.trainable_params(), 0.1), x[:4], y[:4]).name)""",
    "session",
    """import os, signal

class Interrupt(bc.Callback):
    def on_step(self, session, number, result):
        if number == 3:
            os.kill(os.getpid(), signal.SIGINT)

session.fit((x, y), epochs=9, progress=False, callbacks=[Interrupt()])""",
    """history = session.fit((x, y), epochs=9, resume=True, progress=False)
session""",
]


def outputs(notebook: Any, cell: int, kind: str) -> list[Any]:
    return [output for output in notebook.cells[cell].outputs if output.output_type == kind]


def test_a_notebook_shows_the_training_and_trains_its_network(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    resources = {"metadata": {"path": str(tmp_path)}}
    limits = {"timeout": int(PATIENCE), "startup_timeout": int(PATIENCE), "allow_error_names": ["KeyboardInterrupt"]}
    nbclient.NotebookClient(notebook, kernel_name="python3", resources=resources, **limits).execute()

    (shown,) = outputs(notebook, 2, "display_data")  # one output, however often it was written anew
    lines = shown.data["text/plain"].splitlines()
    assert [line.split("  ")[0] for line in lines] == ["epoch 1/2", "epoch 2/2", "epoch 2/2"]
    assert "micro-batch 20/20" in lines[-1]
    assert "window 10" in lines[-1]
    page = shown.data["text/html"]
    assert '<progress value="20" max="20"' in page
    assert "&lt;b&gt;fine" in page, "what the user's function returns is text"
    assert "widget" not in str(notebook).lower()

    assert not outputs(notebook, 3, "display_data")
    assert [output.text for output in outputs(notebook, 3, "stream")] == ["trained: True\n"]
    assert outputs(notebook, 4, "stream")[-1].text == "captured: Typed\n"
    (result,) = outputs(notebook, 5, "execute_result")
    # 2 + 1 epochs of 5 cycles; two weights, two biases, their slots, learning rate, momentum and step count.
    stand = "Session on CPU: 15 windows done; trains a live network, 11 Parameters in place"
    assert stand in result.data["text/plain"]
    assert stand in result.data["text/html"]

    (interrupted,) = outputs(notebook, 6, "error")
    assert interrupted.evalue.startswith("fit was interrupted after micro-batch ")
    (result,) = outputs(notebook, 7, "execute_result")
    assert "Session on CPU: 60 windows done; trains a live network" in result.data["text/plain"]

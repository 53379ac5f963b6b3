"""boost-verify judges by the file as MindSpore runs it: what boost-compile reads otherwise is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import mindspore
import numpy as np
import pytest
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.formats.mindir.reader import Reader
from boost_compile.ir.rewrite.effects.editing import Effects
from boost_compile.tools.verification.report import NOT_APPLICABLE, PASSED
from boost_compile.tools.verify import command
from mindspore import nn

import boost_compile as bc

from .support import shell

CLEAN_UP = "dead-code-elimination?"


def test_a_write_that_the_reader_loses_is_found(
    exported: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is missing in the original as boost-compile has it, and in the program alike. No pass is to blame."""
    real = Reader.read

    def read(self: Reader) -> Graph:
        graph = real(self)
        if not self.state:  # a graph of a program
            return graph
        fx = Effects(graph)
        fx.drop(fx.writes()[-1:])
        fx.commit()
        return graph

    monkeypatch.setattr(Reader, "read", read)
    file, program = exported("mlp"), tmp_path / "a.boost"
    bc.compile(str(file), CLEAN_UP, allow_no_match=True).save(str(program))
    done = shell(capsys, command, file, program)
    assert done.code == 1
    said = done.out
    assert said.startswith("NOT verified (boost-compile reads the file otherwise than MindSpore runs it): ")
    found = bc.verify(str(file), str(program))
    assert [r.name for r in found.failures] == ["untouched file"]
    assert found.guilty is None


def test_a_captured_cell_is_judged_by_its_export() -> None:
    """Whose file is gone by then. An original that was changed since is another one, and the verdict says so."""
    mindspore.set_seed(2)
    network = nn.Dense(6, 3)
    cell = nn.TrainOneStepCell(nn.WithLossCell(network, nn.MSELoss()), nn.Adam(network.trainable_params(), 0.01))
    x, y = np.zeros((4, 6), np.float32), np.zeros((4, 3), np.float32)
    original = bc.capture(cell, x, y)
    found = bc.verify(original, bc.compile(original, CLEAN_UP, allow_no_match=True))
    assert found.verified
    assert found.result("untouched file").status == PASSED
    assert found.reference == ""
    step = original.graphs["step"]
    next(n for n in step if n.op.name == "Adam").set_attribute("use_nesterov", True)
    found = bc.verify(original, bc.compile(original, CLEAN_UP, allow_no_match=True))
    assert found.result("untouched file").status == NOT_APPLICABLE
    assert "the original was changed after it was read): " in found.verdict()


def test_a_file_without_kernels_is_legalized_and_the_verdict_says_so(exported: Callable[[str], Path]) -> None:
    original = bc.load(exported("scaled_gpu"))
    program = bc.compile(original, CLEAN_UP, allow_no_match=True)
    found = bc.verify(original, program)
    assert found.verified
    assert "the reference is the legalized file, because the file holds " in repr(found)
    assert "Trusted: what pass legalize made of the original." in repr(bc.prove(original, program))

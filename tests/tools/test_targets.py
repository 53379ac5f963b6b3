"""Devices at the commands: boost-inspect --targets, and boost-run --check-device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from boost_compile.tools import inspect, run

from tests.passes.graphs import LAMB

from .support import assert_one_error, shell

MIXED = """
graph @net(%x: float16[2,3], %labels: int32[2], %h: float32[2]) {
  %loss = SparseSoftmaxCrossEntropyWithLogits(%x, %labels) {is_grad = false, sens = 1.0} : float16[]
  %state = LSTM(%h, %h, %h, %h) : (float32[2], float32[2], float32[2], float32[2], float32[2])
  %r = MakeTuple(%loss, %state)
  return %r
}
"""

LSTM = """
graph @net(%x: float32[5,4,6], %h: float32[1,4,8], %w: float32[480,1,1]) {
  %r = LSTM(%x, %h, %h, %w) {LAYER} : (float32[5,4,8], float32[1,4,8], float32[1,4,8], float32[5], float32[5])
  return %r
}
""".replace("LAYER", "input_size = 6, hidden_size = 8, num_layers = 1, has_bias = true, bidirectional = false")
"""As a CPU exports it, the forward part alone."""


@pytest.fixture
def lamb(tmp_path: Path) -> Path:
    (tmp_path / "lamb.ir").write_text(LAMB)
    return tmp_path / "lamb.ir"


def test_the_targets_of_a_program(lamb: Path, tmp_path: Path, capsys: Any) -> None:
    shown = shell(capsys, inspect.command, lamb, "--targets")
    assert shown.code == 0
    ascend, cpu, gpu, source = shown.out.splitlines()
    assert (ascend, gpu) == ("ascend: has kernels for all of it", "gpu:    has kernels for all of it")
    assert cpu.startswith("cpu:    cannot run it. MindSpore has no cpu kernel for Lamb (node %new, graph 'step')")
    assert source == "By the kernels that MindSpore 2.10.0 lists; nothing was run."
    (tmp_path / "mixed.ir").write_text(MIXED)
    ascend, cpu, gpu, _ = shell(capsys, inspect.command, tmp_path / "mixed.ir", "--targets").out.splitlines()
    assert ascend == "ascend: has kernels for all of it; MindSpore runs LSTM on the CPU instead"
    assert cpu == "cpu:    has kernels for all of it"
    replaced = "which replaces SparseSoftmaxCrossEntropyWithLogits"
    assert gpu == f"gpu:    has kernels after boost-compile --target gpu, {replaced}"


def test_an_lstm_of_another_device_is_refused(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "lstm.ir").write_text(LSTM)
    _, cpu, gpu, _ = shell(capsys, inspect.command, tmp_path / "lstm.ir", "--targets").out.splitlines()
    assert cpu == "cpu:    has kernels for all of it"
    told = "MindSpore has no gpu kernel for LSTM with weights that are packed for another device (node %r, graph 'net')"
    assert gpu.startswith(f"gpu:    cannot run it. {told}")
    assert gpu.endswith("export the training cell there. Or compile for ascend and cpu, which have it.")


def test_the_targets_as_json(lamb: Path, capsys: Any) -> None:
    found = {
        entry["target"]: entry
        for entry in shell(capsys, inspect.command, lamb, "--targets", "--format", "json").document
    }
    assert {name: entry["runs"] for name, entry in found.items()} == {"ascend": True, "cpu": False, "gpu": True}
    assert found["cpu"]["lacks"] == {"Lamb": 1}
    assert not found["cpu"]["replaced"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "text"], "--targets goes with --format summary or json"),
        (["--scope", "x*"], "--targets looks at the whole program"),
        (["--doctor"], "two questions"),
    ],
)
def test_what_does_not_go_with_targets(lamb: Path, capsys: Any, options: list[str], message: str) -> None:
    assert_one_error(shell(capsys, inspect.command, lamb, "--targets", *options), "boost-inspect", message)


@pytest.mark.mindspore
def test_a_device_that_can_be_used(capsys: Any) -> None:
    found = shell(capsys, run.command, "--check-device", "cpu")
    assert (found.code, found.err) == (0, "")
    assert found.out.splitlines()[1:] == [
        "device: MindSpore runs on CPU",
        "add: as numpy computes it",
        "matmul: as numpy computes it",
        "CPU can be used",
    ]
    assert shell(capsys, run.command, "--check-device", "CPU", "--json").document["usable"]


def test_a_device_that_lacks_its_software(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    found = shell(capsys, run.command, "--check-device", "Ascend")
    assert found.code == 1
    assert "CANN: ASCEND_HOME_PATH is not set. Install CANN 8.2, 8.3, 8.5, 9.0 or 9.1, and run" in found.out
    assert found.out.endswith("Ascend cannot be used\n")


@pytest.mark.mindspore
def test_a_device_that_lacks_a_kernel_of_the_program(lamb: Path, capsys: Any) -> None:
    found = shell(capsys, run.command, lamb, "--check-device", "CPU", "--json")
    assert found.code == 1
    assert [f["found"] for f in found.document["findings"] if f["remedy"]] == ["CPU has no kernel for Lamb"]


def test_without_a_device_to_check_a_program_is_needed(capsys: Any) -> None:
    assert_one_error(shell(capsys, run.command), "boost-run", "Missing argument 'PROGRAM'")

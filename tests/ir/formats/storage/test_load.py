"""Loading finishes its work: state has its roles and results their names, whatever held the program."""

from __future__ import annotations

from pathlib import Path

import pytest
from boost_compile.ir.core.errors import FormatError, OptionError
from boost_compile.ir.formats.storage.load import load, load_text
from boost_compile.ir.formats.storage.save import save
from boost_compile.ir.text import parse_program

STEP = """
state %w: float32[2]
state %moment: float32[2]
state %rate: float32[]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) : float32[2] primal {unique_id = "1"}
  %y = Mul(%w0, %x) : float32[2] primal {unique_id = "2"}
  %loss = ReduceSum(%y, (), false, false) : float32[] primal {unique_id = "3"}
  %g = Mul(%x, %x) : float32[2] primal {forward_unique_id = "2"}
  %new = ApplyMomentum(%w, %moment, %rate, %g, float32[]<0.9>, umonad) : float32[2]
  %t = UpdateState(umonad, %new)
  %result = Depend(%loss, %t)
  return %result
}
"""


@pytest.mark.parametrize("name", ["step.ir", "step.mindir", "step.boost"])
def test_roles_and_names_are_assigned(name: str, tmp_path: Path) -> None:
    save(parse_program(STEP), tmp_path / name)
    program = load(tmp_path / name)
    assert {v.name: v.role for v in program.state.values()} == {
        "w": "weight", "moment": "slot", "rate": "hyperparameter",
    }  # fmt: skip
    assert (program.state["w"].trainable, program.state["moment"].weight) == (True, "w")


def test_roles_that_a_file_gives_stay() -> None:
    program = load_text(STEP.replace("%rate: float32[]", "%rate: float32[] role=fixed").encode(), "text")
    assert {v.name: v.role for v in program.state.values()} == {"w": "unknown", "moment": "unknown", "rate": "fixed"}


def test_text_that_is_not_utf8_is_named() -> None:
    with pytest.raises(FormatError, match=r"standard input: .*not UTF-8"):
        load_text(b"graph \xff", "standard input")


@pytest.mark.parametrize("name", ["step.ir", "step.mindir", "step.boost"])
def test_sizes_are_for_models_that_leave_them_open(name: str, tmp_path: Path) -> None:
    save(parse_program(STEP), tmp_path / name)
    with pytest.raises(OptionError, match="sizes can be given for what an ONNX model leaves open"):
        load(tmp_path / name, {"batch": 8})
    with pytest.raises(OptionError, match="standard input"):
        load_text(STEP.encode(), "standard input", {"batch": 8})

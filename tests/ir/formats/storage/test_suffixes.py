"""What a suffix means is the same at every door: load, save, ``-o`` and ``--emit``."""

from __future__ import annotations

from pathlib import Path

import pytest
from boost_compile.ir.core.errors import OptionError
from boost_compile.ir.formats.storage.load import load
from boost_compile.ir.formats.storage.save import save
from boost_compile.ir.formats.storage.suffixes import form_of, form_to_write, suffix_for
from boost_compile.ir.text import parse_program

from tests.equality import structurally_equal

TEXT = """
state %w: float32[2] role=weight
graph @step(%x: float32[2]) -> (loss) {
  %read = Load(%w, umonad) : float32[2]
  %y = Add(%x, %read) : float32[2]
  return %y
}
"""


@pytest.mark.parametrize("name", ["a.boost", "a", "a.mindir", "a.ir", "a.txt", "a.IR", "a.Boost", "a.MINDIR"])
def test_what_is_saved_under_a_name_is_loaded_from_it(name: str, tmp_path: Path) -> None:
    program = parse_program(TEXT)
    save(program, tmp_path / name)
    assert (tmp_path / name).is_dir() == (form_of(name) == "program")
    (before,), (after,) = program.graphs.values(), load(tmp_path / name).graphs.values()
    assert structurally_equal(before, after) is None


@pytest.mark.parametrize("name", ["a.onnx", "a.ckpt"])
def test_other_suffixes_are_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"\.boost .*\.mindir .*\.ir or \.txt"):
        save(parse_program(TEXT), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_form_is_written_under_its_own_suffix() -> None:
    suffixes = {form: suffix_for(form) for form in ("program", "mindir", "text")}
    assert suffixes == {"program": ".boost", "mindir": ".mindir", "text": ".ir"}
    assert all(form_to_write(f"a{suffix}") == form for form, suffix in suffixes.items())

"""Dumps around passes, differences, and the bisect limit."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
import pytest
from boost_compile.ir.core.errors import OptionError
from boost_compile.ir.core.program import Program
from boost_compile.ir.text import parse_program
from boost_compile.passes import compile_program
from boost_compile.passes.framework.instrumentation import Instrumentation

from tests.passes.framework.examples import shown


def compiled(program: Program, passes: str, **options: Any) -> tuple[Program, str]:
    """The result, and what was written to the stream."""
    stream = io.StringIO()
    return compile_program(
        program, passes, instrumentation=Instrumentation(stream=stream, **options)
    ), stream.getvalue()


def headers(text: str) -> list[str]:
    return re.findall(r"^// -----// (.*) //----- //$", text, re.MULTILINE)


def test_dumps_are_silent_unless_asked(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    compile_program(program, "negate,idle")
    assert capsys.readouterr() == ("", "")


def test_dumps_go_to_stderr(program: Program, capsys: pytest.CaptureFixture[str]) -> None:
    compile_program(program, "negate", instrumentation=Instrumentation(print_ir_after=True))
    out, err = capsys.readouterr()
    assert out == ""
    assert headers(err) == ["IR Dump After negate"]


def test_dumps_are_written_before_a_pass_may_crash(program: Program) -> None:
    """Also where the stream keeps what it is given until it is full."""
    written = io.BytesIO()
    stream = io.TextIOWrapper(written)
    compile_program(program, "negate", instrumentation=Instrumentation(print_ir_before=True, stream=stream))
    assert headers(written.getvalue().decode()) == ["IR Dump Before negate"]


def test_dumps_around_every_pass(program: Program) -> None:
    _, text = compiled(program, "negate,idle", print_ir_before=True, print_ir_after=True)
    kinds = ["IR Dump Before negate", "IR Dump After negate", "IR Dump Before idle", "IR Dump After idle"]
    assert headers(text) == kinds
    dumps = re.split(r"^// -----// .*\n", text, flags=re.MULTILINE)[1:]
    assert ["Neg" in d for d in dumps] == [False, True, True, True]


@pytest.mark.parametrize("selection", ["negate", ["negate"], ("negate",)])
def test_dumps_around_one_pass(program: Program, selection: Any) -> None:
    _, text = compiled(program, "idle,negate,idle", print_ir_before=selection)
    assert headers(text) == ["IR Dump Before negate"]


def test_what_dumps_show() -> None:
    """Scopes unless they are not wanted; never large data."""
    body = '%y = Neg(%x) scope("Default/layer")\n  %z = Add(%y, %w)\n  return %z'
    source = parse_program(f"state %w: float32[4000]<zeros>\ngraph @g(%x: float32[4000]) {{\n  {body}\n}}")
    source = source.with_values({"w": np.full(4000, 0.125, "float32")})
    _, text = compiled(source, "negate", print_ir_before=True)
    assert "Default/layer" in text
    assert len(text) < 4000
    _, text = compiled(source, "negate", print_ir_before=True, annotations=False)
    assert "Default/layer" not in text


def test_a_dump_reads_back(program: Program) -> None:
    # All data of this program is small enough to stand in the dump, but for the zeros, which are spelled as such.
    result, text = compiled(program, "negate", print_ir_after=True)
    assert shown(parse_program(text)) == shown(result).replace('  pipeline "negate{times=1}"\n', "")


def test_diffs(program: Program) -> None:
    _, text = compiled(program, "negate,idle", print_ir_diff=True)
    assert headers(text) == ["IR Difference After negate", "IR Difference After idle"]
    changed, same = re.split(r"^// -----// .*\n", text, flags=re.MULTILINE)[1:]
    assert same.strip() == "(no change)"
    added = [line for line in changed.splitlines() if line.lstrip().startswith("+ ")]
    assert sum("= Neg(" in line for line in added) == 2
    assert "by negate" in changed


def test_dumping_around_a_pass_that_is_not_there(program: Program) -> None:
    with pytest.raises(OptionError, match="did you mean 'negate'"):
        compiled(program, "negate", print_ir_after="negat")


def test_bisect_limit(program: Program) -> None:
    result, text = compiled(program, "negate,idle,negate", opt_bisect_limit=2)
    assert text.splitlines() == [
        "BISECT: running pass (1) negate",
        "BISECT: running pass (2) idle",
        "BISECT: NOT running pass (3) negate",
    ]
    assert result.pipeline == "negate{times=1},idle"
    assert shown(result).count("= Neg(") == 2
    nothing, _ = compiled(program, "negate", opt_bisect_limit=0)
    assert shown(nothing) == shown(program)


def test_a_negative_bisect_limit_is_an_error(program: Program) -> None:
    with pytest.raises(OptionError, match="at least 0"):
        compiled(program, "negate", opt_bisect_limit=-1)

"""Arithmetic without lists of places: the same bits, and nothing kept."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.text import parse_program
from boost_compile.runtime.engine.footprint import footprint
from boost_compile.runtime.lowering.context import Context
from boost_compile.runtime.lowering.lower import lower

import boost_compile as bc

TEXT = """
state %seen: float32[] role=counter
graph @step(%x: {big}, %y: {small}) -> (result) {{
  %z = {node} : {big}
  %count = AssignAdd(%seen, float32[]<1.0>, umonad)
  %u = UpdateState(umonad, %count)
  %r = Depend(%z, %u)
  return %r
}}
"""
CASES = [
    ("Add(%x, %y)", "float32[256,512]", "float32[512]"),
    ("Sub(%y, %x)", "float32[256,512]", "float32[256,1]"),
    ("Mul(%x, %y)", "float32[8,4,64,64]", "float32[64,64]"),
    ("RealDiv(%x, %y)", "float32[256,512]", "float32[256,1]"),
    ("Div(%x, %y)", "float32[256,512]", "float32[256,512]"),
    ("Div(%x, %y)", "float32[256,512]", "float32[1,512]"),
    ("Div(%x, %y)", "float16[256,512]", "float16[256,512]"),
    ("Divs(%x, 3.0)", "float32[256,512]", "float32[]"),
    ("Divs(%x, 3)", "float32[256,512]", "float32[]"),
    ("Add(%x, %y)", "float16[256,512]", "float16[256,512]"),
    ("Sub(%y, %x)", "float16[256,512]", "float16[256,1]"),
    ("Mul(%x, %y)", "float16[256,512]", "float16[]"),
    ("Muls(%x, 0.1)", "float16[256,512]", "float16[]"),
    ("SoftmaxBackward(%x, %y, 1)", "float32[256,512]", "float32[256,512]"),
    ("SoftmaxBackward(%x, %y, -1)", "float16[4,8,64,64]", "float16[4,8,64,64]"),
]


def values(kind: str) -> np.ndarray:
    name, _, shape = kind.rstrip("]").partition("[")
    sizes = tuple(int(n) for n in shape.split(",") if n)
    return (np.random.default_rng(len(kind)).standard_normal(sizes) * 3).astype(name)


@pytest.mark.parametrize(("node", "big", "small"), CASES, ids=lambda text: text)
def test_the_same_bits_and_nothing_kept(node: str, big: str, small: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = parse_program(TEXT.format(node=node, big=big, small=small))
    given = (values(big), values(small))
    found = bc.Session(program).step(*given).raw["result"].asnumpy()
    assert "broadcasting" in dict(lower(program.graphs["step"], Context(program, "cpu")).steps)
    assert footprint(program, 2).kernels == 0
    monkeypatch.setattr("boost_compile.ir.rewrite.cpu.broadcasting.applies", lambda graph, context: False)
    kept = 48 if node.startswith("Softmax") and "16" in big else 16
    assert footprint(program, 2).kernels == kept * given[0].size
    wanted = bc.Session(program.copy()).step(*given).raw["result"].asnumpy()
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("node", "big", "small"),
    [
        ("Add(%x, %y)", "float32[16,16]", "float32[16]"),  # small
        ("Add(%x, %y)", "float32[16,64,16,16]", "float32[64,1,1]"),  # along axes on both sides
        ("Div(%x, %y)", "int32[256,512]", "int32[256,512]"),  # rounds otherwise
        ("SoftmaxBackward(%x, %y, 0)", "float32[256,512]", "float32[256,512]"),  # over the first axis
        ("RealDiv(%x, %y)", "float16[256,512]", "float16[256,512]"),  # keeps nothing
    ],
)
def test_what_is_left(node: str, big: str, small: str) -> None:
    program = parse_program(TEXT.format(node=node, big=big, small=small))
    assert "broadcasting" not in dict(lower(program.graphs["step"], Context(program, "cpu")).steps)

"""Which results share memory with an operand, asked of MindSpore: a state is read through each primitive, overwritten
in the order that the rebuilt chain demands, and the reader must have got the value from before.

The reader also takes the result of a few matrix products, so that without the order it would run after the write.
"""

from __future__ import annotations

import ast
from pathlib import Path

import numpy as np
import pytest
from boost_compile.ir.core.primitives import BINDING, PASSING, PRIMITIVES, VIEWS
from boost_compile.ir.text import parse_program

import boost_compile as bc

ROOT = Path(__file__).parents[3]
SHAPE, SIZE = "float32[2,3]", 300
BEFORE = np.arange(1, 7, dtype=np.float32).reshape(2, 3)
FORMS = {
    "StopGradient": "%v = StopGradient(%old) : float32[2,3]",
    "Identity": "%v = Identity(%old) : float32[2,3]",
    "Contiguous": "%v = Contiguous(%old) : float32[2,3]",
    "Reshape": "%v = Reshape(%old, (3, 2)) : float32[3,2]",
    "ExpandDims": "%v = ExpandDims(%old, 0) : float32[1,2,3]",
    "Squeeze": "%v = Squeeze(%old, ()) : float32[2,3]",
    "Flatten": "%v = Flatten(%old) : float32[2,3]",
    "Chunk": "%t = Chunk(%old, 1, 1) : (float32[2,3])\n%v = TupleGetItem(%t, 0)",
    "ChunkView": "%t = ChunkView(%old, 1, 1) : (float32[2,3])\n%v = TupleGetItem(%t, 0)",
    "BroadcastToView": "%v = BroadcastToView(%old, (2, 3)) : float32[2,3]",
    "DiagonalView": "%v = DiagonalView(%old, 0, 0, 1) : float32[2]",
    "ExpandDimsView": "%v = ExpandDimsView(%old, 0) : float32[1,2,3]",
    "NarrowView": "%v = NarrowView(%old, 0, 0, 2) : float32[2,3]",
    "SelectExtView": "%v = SelectExtView(%old, 0, 1) : float32[3]",
    "SliceExtView": "%v = SliceExtView(%old, 0, 0, 2, 1) : float32[2,3]",
    "SplitTensorView": "%t = SplitTensorView(%old, 1, 1) : (float32[2,1], float32[2,1], float32[2,1])\n"
    "%v = TupleGetItem(%t, 1)",
    "SplitWithSizeView": "%t = SplitWithSizeView(%old, (1, 1), 0) : (float32[1,3], float32[1,3])\n"
    "%v = TupleGetItem(%t, 1)",
    "TransposeView": "%v = TransposeView(%old, (1, 0)) : float32[3,2]",
    "TransposeExtView": "%v = TransposeExtView(%old, 0, 1) : float32[3,2]",
    "UnstackExtView": "%t = UnstackExtView(%old, 0) : (float32[3], float32[3])\n%v = TupleGetItem(%t, 1)",
    "ViewAs": "%v = ViewAs(%old, %x) : float32[2,3]",
}
"""Every view that MindSpore runs on a CPU."""
COPIES = {
    "Transpose": "%v = Transpose(%old, (1, 0)) : float32[3,2]",
    "Transpose of nothing": "%v = Transpose(%old, (0, 1)) : float32[2,3]",
    "Cast to its own type": "%v = Cast(%old, 43) : float32[2,3]",
    "Mul by one": "%v = Mul(%old, float32[]<1.0>) : float32[2,3]",
    "Add of zero": "%v = Add(%old, float32[]<0.0>) : float32[2,3]",
    "Tile by one": "%v = Tile(%old, (1, 1)) : float32[2,3]",
    "AddN of one": "%t = MakeTuple(%old)\n%v = AddN(%t) : float32[2,3]",
    "Concat of one": "%t = MakeTuple(%old)\n%v = Concat(%t, 0) : float32[2,3]",
    "Stack of one": "%t = MakeTuple(%old)\n%v = Stack(%t) {axis = 0} : float32[1,2,3]",
    "BroadcastTo": "%v = BroadcastTo(%old, (2, 3)) : float32[2,3]",
    "Split": "%t = Split(%old, 1, 1) : (float32[2,3])\n%v = TupleGetItem(%t, 0)",
    "Slice": "%v = Slice(%old, (0, 0), (2, 3)) : float32[2,3]",
    "StridedSlice": "%v = StridedSlice(%old, (0, 0), (2, 3), (1, 1), 0, 0, 0, 0, 0) : float32[2,3]",
    "FlattenExt": "%v = FlattenExt(%old, 0, -1) : float32[6]",
    "TensorMove": "%v = TensorMove(%old) : float32[2,3]",
}
"""Neighbours that one might take for views, or that MindSpore leaves out where they change nothing."""
NO_CPU_KERNEL = {"AsStrided", "ImagView", "Narrow", "RealView", "SelectView", "View"} | {"ViewDtype"}


def reading(form: str) -> bc.Program:
    """A graph in which the form reads a state that is then overwritten."""
    numbers = ", ".join(f"{x:.1f}" for x in BEFORE.ravel())
    product = f"MatMul(%big, %big, false, false) : float32[{SIZE},{SIZE}]"
    return parse_program(f"""
        state %s: {SHAPE}<{numbers}> role=weight
        graph @step(%x: {SHAPE}, %big: float32[{SIZE},{SIZE}]) {{
          %m1 = {product}
          %m2 = {product.replace("%big,", "%m1,", 1)}
          %m3 = {product.replace("%big,", "%m2,", 1)}
          %late = ReduceSum(%m3, (0, 1), false, false) : float32[]
          %old = Load(%s, umonad)
          {form}
          %used = Sub(%late, %v)
          %u1 = UpdateState(umonad, %old, %used)
          %w = Assign(%s, %x, %u1)
          %u2 = UpdateState(%u1, %w)
          %r = Depend(%used, %u2)
          return %r
        }}
    """)


def read(form: str) -> np.ndarray:
    """What the reader gets after the chain was rebuilt."""
    session = bc.Session(bc.compile(reading(form), "effect-chain-minimization"), device="CPU")
    result = session.step(np.full((2, 3), 9, np.float32), np.zeros((SIZE, SIZE), np.float32))
    assert (session.state()["s"] == 9).all()
    [value] = result.outputs.values()
    return -np.asarray(value)


VALUES = {
    "DiagonalView": np.diagonal(BEFORE),
    "Reshape": BEFORE.reshape(3, 2),
    "FlattenExt": BEFORE.ravel(),
    "SplitTensorView": BEFORE[:, 1:2],
    "SplitWithSizeView": BEFORE[1:],
    **dict.fromkeys(("TransposeView", "TransposeExtView", "Transpose"), BEFORE.T),
    **dict.fromkeys(("ExpandDims", "ExpandDimsView", "Stack of one"), BEFORE[None]),
    **dict.fromkeys(("SelectExtView", "UnstackExtView"), BEFORE[1]),
}
"""What the forms compute of the old value, by numpy; the others pass it on."""


@pytest.mark.mindspore
@pytest.mark.parametrize("forms", [FORMS, pytest.param(COPIES, marks=pytest.mark.slow)], ids=["views", "copies"])
def test_a_write_waits_for_readers_through_every_primitive(forms: dict[str, str]) -> None:
    wrong = {}
    for name, form in forms.items():
        value = read(form)
        if not np.array_equal(value, VALUES.get(name, BEFORE)):
            wrong[name] = value.tolist()
    assert not wrong, "readers that a write overtook"


def test_every_view_is_tried() -> None:
    """The table holds no view that the test above leaves out, but for those that MindSpore runs on no CPU."""
    assert FORMS.keys() | NO_CPU_KERNEL == VIEWS - PASSING - BINDING - {"Load"}
    assert not any(PRIMITIVES[name].writes for name in VIEWS & PRIMITIVES.keys())


RESHAPES = {"Reshape", "ExpandDims", "Squeeze", "Flatten"}


def test_no_other_table_says_what_a_view_is() -> None:
    """A second list of views would disagree with this one some day. Tables of other facts hold views among others (what
    is linear), or those that keep the order of elements (reshapes)."""
    for path in sorted(ROOT.glob("*/**/*.py")):
        if path.relative_to(ROOT).parts[0] not in ("ir", "passes", "runtime", "tools") or path.name == "views.py":
            continue
        for table in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(table, (ast.Set, ast.List, ast.Tuple)):
                names = {e.value for e in table.elts if isinstance(e, ast.Constant)}
                views = names & (VIEWS - PASSING - BINDING - RESHAPES - {"Load"})
                where = f"{path.relative_to(ROOT)}:{table.lineno}"
                assert len(views) < 4 or 2 * len(views) < len(names), f"{where} lists views: use ir/core/views.py"


def test_seeds_stand_in_one_place() -> None:
    holding = [
        path.relative_to(ROOT).as_posix()
        for part in ("ir", "passes", "runtime", "tools")
        for path in sorted((ROOT / part).glob("**/*.py"))
        if '"seed2"' in path.read_text(encoding="utf-8")
    ]
    assert holding == ["ir/rewrite/seeds.py"]

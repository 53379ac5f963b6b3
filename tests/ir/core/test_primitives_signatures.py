"""The table of primitives held against the classes of MindSpore, in both directions: read, not imported."""

from __future__ import annotations

import ast
import mmap
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from boost_compile.ir.core.primitives import PRIMITIVES, Family

SPEC = find_spec("mindspore")
pytestmark = [pytest.mark.mindspore, pytest.mark.skipif(SPEC is None, reason="MindSpore is not installed")]


@dataclass
class Class:
    """What the source of a primitive's class says. ``written``: operands that its signature marks; None: it has no
    signature."""

    written: tuple[int, ...] | None = None
    labels: set[str] = field(default_factory=set)
    arguments: set[str] = field(default_factory=set)
    bases: list[str] = field(default_factory=list)


@cache
def classes() -> dict[str, Class]:
    assert SPEC is not None
    assert SPEC.origin is not None
    root = Path(SPEC.origin).parent / "ops"
    found: dict[str, Class] = {}
    for path in [*sorted(root.glob("operations/**/*.py")), *sorted(root.glob("auto_generate/*.py"))]:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                _read(node, found.setdefault(node.name, Class()))
    return found


def _read(node: ast.ClassDef, into: Class) -> None:
    into.bases += [ast.unparse(base).rpartition(".")[2] for base in node.bases]
    for part in node.body:
        match part:
            case ast.Assign(targets=[ast.Name("__mindspore_signature__")], value=ast.Tuple(elts=marks)):
                at = tuple(i for i, mark in enumerate(marks) if "RW_WRITE" in ast.unparse(mark))
                into.written = into.written or at
            case ast.FunctionDef(name="__init__" | "__call__"):
                into.arguments |= {a.arg.lower() for a in part.args.args}
    for call in ast.walk(node):
        match call:
            case ast.Call(func=ast.Attribute(attr="add_prim_attr"), args=[ast.Constant(str(label)), *_]):
                into.labels.add(label)


def _signature(name: str) -> tuple[int, ...] | None:
    """Its own, or that of a class that it comes from."""
    known = classes().get(name)
    if known is None or known.written is not None:
        return known and known.written
    return next((w for base in known.bases if base != name and (w := _signature(base)) is not None), None)


def _primitives() -> Iterator[str]:
    return (name for name in classes() if not name.startswith("_"))


UNSIGNED = {
    *("AdamNoUpdateParam", "ApplyCenteredRMSProp", "ApplyRMSProp", "FusedAdaFactor", "FusedAdaFactorWithGlobalNorm"),
    *("Lamb", "SGD", "ScatterNonAliasingAdd", "SyncBatchNorm"),
}
"""Primitives without a signature, whose documentation says what they write."""
OTHERWISE = {
    "BatchNorm": "marks gamma and beta, which no kernel writes (test_primitives_run.py)",
    "InstanceNorm": "marks gamma and beta; its documentation names the statistics alone",
}
"""Where the table says something else than a signature."""


def test_the_table_knows_every_write_that_a_signature_marks() -> None:
    marked = {name: at for name in _primitives() if (at := _signature(name))}
    assert len(marked) > 100
    assert not sorted(marked.keys() - PRIMITIVES.keys()), "primitives that write in place, and the table lacks"
    differ = {name for name, at in marked.items() if PRIMITIVES[name].writes != at}
    assert differ == OTHERWISE.keys()


def test_what_the_table_has_written_is_marked() -> None:
    """Or the class has no signature: what is written is told by running it then (test_primitives_run.py)."""
    written = {name for name, facts in PRIMITIVES.items() if facts.writes}
    assert not {name for name in written if _signature(name) == ()}
    assert {name for name in written if _signature(name) is None} == UNSIGNED


STRUCTURE = (Family.ORDER, Family.TUPLE, Family.CLOSURE)
CERTAIN = {
    "Generator": "hands out seeds",
    "InsertGemV2InBackward": "copies its operand",
    "SpeedFusionAttentionGrad": "takes the seed of its forward part",
}
"""Primitives with a seed that give the same result each time."""


def test_the_table_knows_everything_that_takes_a_seed() -> None:
    drawing = {
        name
        for name in _primitives()
        if "side_effect_hidden" in classes()[name].labels
        or any(argument.startswith("seed") for argument in classes()[name].arguments)
    }
    assert len(drawing) > 40
    assert drawing - {name for name, facts in PRIMITIVES.items() if facts.random} == CERTAIN.keys()


def test_the_table_knows_everything_that_communicates() -> None:
    """Those that name the group of their ranks; a number is the group of a convolution."""
    joining = {name for name in _primitives() if name.startswith(("DistComm", "InnerComm"))}
    joining |= {"AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AlltoAll", "AlltoAllV", "AllGatherV", "Reduce"}
    assert joining <= {name for name, facts in PRIMITIVES.items() if facts.family is Family.COLLECTIVE}


def test_every_primitive_of_the_table_exists() -> None:
    """As a class, or by name in MindSpore's libraries."""
    assert SPEC is not None
    assert SPEC.origin is not None
    missing = [name for name, facts in PRIMITIVES.items() if name not in classes() and facts.family not in STRUCTURE]
    for library in ("core", "ops", "frontend"):
        path = Path(SPEC.origin).parent / "lib" / f"libmindspore_{library}.so"
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
            missing = [name for name in missing if text.find(b"\0" + name.encode() + b"\0") < 0]
    assert not missing

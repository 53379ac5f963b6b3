"""Primitives are interned by bits; the op table says what passes may do with them."""

from __future__ import annotations

import gc
import math
import struct
from typing import Any

import pytest
from boost_compile.ir.core.attributes import MonadValue, Number, Opaque, TensorValue, bits, type_of
from boost_compile.ir.core.data import BytesData, ZeroData
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.core.op import CALL, Op
from boost_compile.ir.core.predicates import has_token, is_effect, is_pure, is_random, written_operands
from boost_compile.ir.core.primitives import facts, make_op
from boost_compile.ir.core.types import NONE, STRING, UMONAD, DType, ScalarType, TupleType, tensor

NAN = math.nan
OTHER_NAN = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
F = tensor("float32", 2)

DIFFERENT: list[Any] = [
    0.0, -0.0, NAN, OTHER_NAN, math.inf, 1, True, 1.0, "1", b"1", None, False, 0, "", b"", (), [], (1,), [1], (True,),
    ((1,),), Number(DType.INT32, 1), Number(DType.INT64, 1), Number(DType.FLOAT64, 1.0), Number(DType.FLOAT64, 0.0),
    Number(DType.FLOAT64, -0.0), Number(DType.FLOAT64, NAN), MonadValue("umonad"), MonadValue("iomonad"), Opaque(b""),
    Opaque(b"\0"), TensorValue(F, ZeroData(8)), TensorValue(tensor("int32", 2), ZeroData(8)),
    TensorValue(tensor("float32", 1, 2), ZeroData(8)), TensorValue(F, BytesData(bytes(7) + b"\x80")),
]  # fmt: skip


def test_attributes_are_told_apart_by_bits() -> None:
    assert len({bits(v) for v in DIFFERENT}) == len(DIFFERENT)
    ops = [Op("P", {"k": v}) for v in DIFFERENT]
    assert len({id(op) for op in ops}) == len(DIFFERENT)
    assert len({op.key for op in ops}) == len(DIFFERENT)


@pytest.mark.parametrize("value", DIFFERENT, ids=repr)
def test_equal_bits_are_one_primitive(value: Any) -> None:
    assert Op("P", {"k": value}) is Op("P", {"k": value})


def test_a_nan_equals_itself_however_it_came_about() -> None:
    assert Op("P", {"k": NAN}) is Op("P", {"k": struct.unpack("<d", struct.pack("<d", NAN))[0]})
    assert Op("P", {"k": (NAN,)}) is Op("P", {"k": (float("nan"),)})


def test_tensors_compare_by_content_however_they_are_held() -> None:
    for size in (8, 4096):
        t = tensor("uint8", size)
        zeros, same, other = ZeroData(size), BytesData(bytes(size)), BytesData(bytes(size - 1) + b"\1")
        assert Op("P", {"k": TensorValue(t, zeros)}) is Op("P", {"k": TensorValue(t, same)})
        assert Op("P", {"k": TensorValue(t, zeros)}) is not Op("P", {"k": TensorValue(t, other)})


def test_what_tells_primitives_apart() -> None:
    op = Op("P", {"a": 1, "b": 2}, "name", 1)
    assert Op("P", {"a": 1, "b": 2}, "name", 1) is op
    for other in (
        Op("Q", {"a": 1, "b": 2}, "name", 1),
        Op("P", {"a": 1, "b": 3}, "name", 1),
        Op("P", {"a": 1}, "name", 1),
    ):
        assert other.key != op.key
    # What a file records beside is kept, but two such primitives compute the same.
    for other in (
        Op("P", {"b": 2, "a": 1}, "name", 1),
        Op("P", {"a": 1, "b": 2}, "", 1),
        Op("P", {"a": 1, "b": 2}, "name", 2),
    ):
        assert other is not op
        assert other.key == op.key
    assert list(Op("P", {"b": 2, "a": 1}).attributes) == ["b", "a"]


def test_primitives_do_not_change() -> None:
    given = {"a": 1}
    op = Op("P", given)
    given["a"] = 2
    assert op.attributes == {"a": 1}
    with pytest.raises(TypeError):
        op.attributes["a"] = 2  # type: ignore[index]


def test_setting_an_attribute_spares_the_other_nodes() -> None:
    g = Graph("g")
    x = g.add_input("x", F)
    a, b = (g.create(Op("P", {"k": 1}, "name", 1), [x], F) for _ in range(2))
    assert a.op is b.op
    a.set_attribute("k", True)
    assert a.attributes["k"] is True
    assert b.attributes["k"] is not True
    assert (a.op.instance, a.op.kind) == ("name", 1)


def test_unused_primitives_are_not_kept_alive() -> None:
    Op("OnlyHere", {"k": 123456})
    gc.collect()
    assert not [key for key in Op._interned if key[0] == "OnlyHere"]


def test_make_op_follows_the_table() -> None:
    assert make_op("Assign").attributes == {"side_effect_mem": True}
    assert make_op("Assign", {"side_effect_mem": False, "k": 1}).attributes == {"side_effect_mem": False, "k": 1}
    assert (make_op("Assign").kind, make_op("AddN").kind, make_op("NeverHeardOf").kind) == (2, 1, 2)
    assert make_op("call") is CALL


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (True, ScalarType(DType.BOOL)),
        (1, ScalarType(DType.INT64)),
        (1.0, ScalarType(DType.FLOAT32)),
        ("a", STRING),
        (b"a", STRING),
        (None, NONE),
        ((1, True), TupleType((ScalarType(DType.INT64), ScalarType(DType.BOOL)))),
        ([1], TupleType((ScalarType(DType.INT64),), is_list=True)),
        (Number(DType.UINT8, 1), ScalarType(DType.UINT8)),
        (TensorValue(F, ZeroData(8)), F),
        (MonadValue("umonad"), UMONAD),
    ],
)
def test_types_of_constants(value: Any, type_: Any) -> None:
    assert type_of(value) == type_


def test_effects_purity_and_writes() -> None:
    g = Graph("g")
    x, w = g.add_input("x", F), g.state("w", F)
    u = g.constant(MonadValue("umonad"))
    load = g.create("Load", [w, u])
    add = g.create("Add", [x, load])
    assign = g.create("Assign", [w, add, u])
    momentum = g.create("ApplyMomentum", [w, w, x, add, x, u], F)
    dropout = g.create("Dropout", [x], F)
    hidden = g.create(Op("Draw", {"side_effect_hidden": True}), [x], F)
    unlisted = g.create(Op("Custom", {"side_effect_mem": True}), [x, w, u], F)
    token = g.create("UpdateState", [u, assign])
    depend = g.create("Depend", [x, token])
    partial = g.create("Partial", [g.reference(g.add_function("f")), w, u])
    call = g.create(CALL, [partial], F)
    everything = {load, add, assign, momentum, dropout, hidden, unlisted, token, depend, partial, call}
    assert {n for n in everything if is_effect(n)} == {assign, momentum, unlisted, call}
    assert {n for n in everything if is_random(n)} == {dropout, hidden}
    assert {n for n in everything if has_token(n)} == {load, assign, momentum, unlisted, depend, partial}
    assert {n for n in everything if is_pure(n)} == {add, depend, partial}
    writes = {n: written_operands(n) for n in everything if written_operands(n)}
    assert writes == {assign: (0,), momentum: (0, 1), unlisted: (1,)}
    assert facts(momentum.op).gradient == 3

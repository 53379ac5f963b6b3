"""Attributes and types through their encodings, by bits."""

from __future__ import annotations

import struct

import pytest
from boost_compile.ir.core.attributes import MonadValue, Number, Opaque, TensorValue, bits
from boost_compile.ir.core.data import BytesData
from boost_compile.ir.core.errors import VerifyError
from boost_compile.ir.core.types import (
    IOMONAD,
    NONE,
    STRING,
    UMONAD,
    UNKNOWN,
    DType,
    FunctionType,
    OpaqueType,
    ScalarType,
    TensorType,
    TupleType,
    tensor,
)
from boost_compile.ir.formats.mindir import schema as s
from boost_compile.ir.formats.mindir.codec import decode_type, decode_value, encode_type, encode_value
from google.protobuf.internal import api_implementation
from hypothesis import given
from hypothesis import strategies as st

K = s.AttributeKind

int64 = st.integers(-(2**63), 2**63 - 1)
floats = st.floats(width=32, allow_nan=False)
scalars = st.one_of(
    st.booleans(),
    int64,
    floats,
    st.text(),
    st.none(),
    st.just(b"\xff\xfe"),
    st.builds(Number, st.just(DType.FLOAT64), st.floats(allow_nan=False)),
    st.builds(Number, st.sampled_from([DType.INT8, DType.INT32, DType.UINT16]), st.integers(0, 100)),
    st.builds(Number, st.just(DType.UINT64), st.integers(0, 2**64 - 1)),
    st.sampled_from([MonadValue("umonad"), MonadValue("iomonad")]),
    st.binary(max_size=12).map(lambda b: TensorValue(tensor("uint8", len(b)), BytesData(b))),
)
values = st.recursive(scalars, lambda v: st.lists(v, max_size=3) | st.lists(v, max_size=3).map(tuple), max_leaves=6)
shapes = st.lists(st.integers(-2, 2**40), max_size=3).map(tuple)
tensors = st.builds(TensorType, st.sampled_from(list(DType)), shapes, st.sampled_from(["", "w"]), shapes, shapes)
types = st.recursive(
    st.one_of(
        tensors,
        st.builds(ScalarType, st.sampled_from(list(DType))),
        st.sampled_from([UMONAD, IOMONAD, NONE, STRING]),
        st.just(FunctionType(("f",))),
        st.just(FunctionType(("f", "✓g"), union=True)),
    ),
    lambda t: st.builds(TupleType, st.lists(t, max_size=3).map(tuple), st.booleans(), st.sampled_from([None, 0, 1])),
    max_leaves=5,
)


@given(values)
def test_values_come_back_bit_for_bit(value):
    again = decode_value(s.AttributeProto.FromString(encode_value("a", value)))
    assert bits(again) == bits(value)


@given(types)
def test_types_come_back(type_):
    assert decode_type(s.AttributeProto.FromString(encode_type(type_, "shape"))) == type_


def test_a_float_nan_keeps_its_payload():
    message = s.AttributeProto(name="a", type=K["FLOAT"])
    message.f = struct.unpack("<f", b"\x01\x02\xc0\x7f")[0]
    parsed = s.AttributeProto.FromString(message.SerializeToString())
    kept = parsed.SerializeToString()
    # protobuf's pure Python form, which MindSpore 2.8 needs, drops the payload when it parses; every other keeps it.
    assert kept == message.SerializeToString() or api_implementation.Type() == "python"
    assert encode_value("a", decode_value(parsed)) == kept


@pytest.mark.parametrize(
    "message",
    [
        s.AttributeProto(name="a", type=K["BOOL"], i=2),
        s.AttributeProto(name="a", type=K["INT64"]),
        s.AttributeProto(name="a", type=K["INT64"], i=1, ints=[2, 3]),
        s.AttributeProto(name="a", type=K["SYMBOL"], s=b"x"),
        s.AttributeProto(name="a", type=K["CSR_TENSOR"]),
        s.AttributeProto(name="a", type=K["TENSORS"], tensors=[s.TensorProto(data_type=K["FLOAT"])]),
        s.AttributeProto(name="a", type=K["TENSORS"], tensors=[s.TensorProto(data_type=1, dims=[3], raw_data=b"1")]),
        s.AttributeProto(name="a", type=K["TUPLE"], values=[s.AttributeProto(name="key", type=K["INT64"], ints=[1])]),
        s.AttributeProto(name="a", type=K["STRING"], s=b"x", doc_string="a note"),
    ],
)
def test_what_has_no_counterpart_is_carried_through(message):
    encoded = message.SerializeToString(deterministic=True)
    value = decode_value(s.AttributeProto.FromString(encoded))
    assert isinstance(value, Opaque)
    assert encode_value("a", value) == encoded


def test_fields_of_a_newer_schema_are_carried_through():
    encoded = s.AttributeProto(name="a", type=K["INT64"], i=1).SerializeToString() + b"\xfa\x3e\x01x"
    value = decode_value(s.AttributeProto.FromString(encoded))
    assert encode_value("a", value) == encoded


@pytest.mark.parametrize(
    "message",
    [
        s.AttributeProto(name="shape", type=K["SCALAR"], tensors=[s.TensorProto(data_type=K["FLOAT"], dims=[1])]),
        s.AttributeProto(name="shape", type=K["TENSORS"], tensors=[s.TensorProto(data_type=77, dims=[1])]),
        s.AttributeProto(name="shape", type=K["TENSORS"], tensors=[s.TensorProto(data_type=1)] * 2),
        s.AttributeProto(name="shape", type=K["DICT"]),
        s.AttributeProto(name="shape", type=K["FUNCGRAPHCLOSURE"], s=b"\xff"),
    ],
)
def test_types_without_counterpart_are_carried_through(message):
    encoded = message.SerializeToString(deterministic=True)
    type_ = decode_type(s.AttributeProto.FromString(encoded))
    assert isinstance(type_, OpaqueType)
    assert encode_type(type_, "shape") == encoded


def test_what_cannot_be_written_says_so():
    with pytest.raises(VerifyError, match="64 bits"):
        encode_value("a", 2**63)
    with pytest.raises(VerifyError, match="not an attribute value"):
        encode_value("a", {1: 2})
    with pytest.raises(VerifyError, match="cannot be written"):
        encode_type(TupleType((UNKNOWN,)), "shape")

"""The wire-format scanner: payloads are cut out exactly, and nothing malformed passes."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.errors import FormatError
from boost_compile.ir.files.protobuf import delimited, fields, varint
from boost_compile.ir.formats.mindir import schema as s
from boost_compile.ir.formats.mindir.wire import HERE, elide
from hypothesis import given
from hypothesis import strategies as st


@given(st.integers(0, 2**64 - 1))
def test_varint_is_what_protobuf_writes(value):
    message = s.TensorProto(uint64_data=[value]).SerializeToString()
    assert message == b"\x58" + varint(value)


def test_payloads_become_places_and_the_rest_stays():
    payload = bytes(range(256)) * 100
    node = s.NodeProto(output=["c"], name="c", op_type="Constant", domain="scope")
    a = node.attribute.add(name="value", type=s.AttributeKind["TUPLE"])
    inner = a.values.add(type=s.AttributeKind["TENSORS"])
    inner.tensors.add(name="value0", dims=[256, 100], data_type=s.AttributeKind["UINT8"], raw_data=payload)
    node.input.append("after")
    encoded = b"\xff" * 7 + node.SerializeToString()

    short = s.NodeProto.FromString(elide(memoryview(encoded), 7, len(encoded), "node"))

    tensor = short.attribute[0].values[0].tensors[0]
    place = tensor.external_data
    assert encoded[place.offset : place.offset + place.length] == payload
    assert place.location == HERE
    tensor.ClearField("external_data")
    tensor.raw_data = payload
    assert short == node


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\x80", "ends inside a number"),
        (b"\x0a\xff", "ends inside a number"),
        (b"\x0a\x05ab", "past the end"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", "past the end"),
        (b"\x08" + b"\xff" * 11, "longer than 64 bits"),
        (b"\x09abc", "ends inside a number"),
        (b"\x0dabc", "ends inside a number"),
        (b"\x0b", "wire type 3"),
        (b"\x0f", "wire type 7"),
        (b"\x00\x00", "field number 0"),
    ],
)
def test_malformed_data_is_refused(data, says):
    with pytest.raises(FormatError, match=says):
        list(fields(memoryview(data), 0, len(data)))


def test_absurd_nesting_is_refused():
    attribute = bytes(0) + delimited(s.ATTRIBUTE_STRING, bytes(2000))
    for _ in range(5000):
        attribute = delimited(s.ATTRIBUTE_VALUES, attribute)
    node = delimited(s.NODE_ATTRIBUTE, attribute)
    with pytest.raises(FormatError, match="nested more than"):
        elide(memoryview(node), 0, len(node), "node")


def test_a_file_cannot_claim_places_in_itself():
    tensor = s.TensorProto(dims=[4])
    tensor.external_data.location = ""
    tensor.external_data.offset = 0
    tensor.external_data.length = 16
    encoded = tensor.SerializeToString()
    with pytest.raises(FormatError, match="without a location"):
        elide(memoryview(encoded), 0, len(encoded), "tensor")


@given(st.binary(max_size=200))
def test_any_bytes_are_either_walked_or_refused(data):
    try:
        spans = [(a, b) for _, _, a, _, b in fields(memoryview(data), 0, len(data))]
    except FormatError:
        return
    assert [a for a, _ in spans[1:]] == [b for _, b in spans[:-1]]
    assert not spans or (spans[0][0], spans[-1][1]) == (0, len(data))

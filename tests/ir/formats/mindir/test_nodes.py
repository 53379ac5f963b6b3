"""Taking nodes apart by hand gives what protobuf gives, for every message that protobuf reads."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.data import MappedFile
from boost_compile.ir.core.errors import FormatError
from boost_compile.ir.files.protobuf import VARINT, delimited, tag, varint
from boost_compile.ir.formats.mindir import schema as s
from boost_compile.ir.formats.mindir.decoder import Decoder
from boost_compile.ir.formats.mindir.nodes import RawNode, raw_node
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

FIELD = st.one_of(
    st.tuples(st.integers(1, 9), st.sampled_from([0, 1, 5, 127, 128, 300, 16_383, 16_384])).map(
        lambda f: delimited(f[0], b"") if f[0] in (5, 8, 9) else delimited(f[0], b"x" * f[1])
    ),
    st.text(max_size=4).map(
        lambda t: delimited(s.NODE_PRIMAL, s.AttributeProto(name="unique_id", s=t.encode(), type=8).SerializeToString())
    ),
    st.sampled_from([tag(12, VARINT) + varint(300), delimited(40, b"unknown"), tag(1, VARINT) + b"\x05"]),
)


def expected(message: bytes) -> RawNode:
    proto = s.NodeProto.FromString(message)
    groups = (proto.attribute, proto.node_attr, proto.primal_attr)
    attributes, marks, primal = ([a.SerializeToString() for a in group] for group in groups)
    strings = [n.encode() for n in proto.input], [n.encode() for n in proto.output]
    return (*strings, proto.op_type.encode(), proto.domain.encode(), attributes, marks, primal)


@given(st.lists(FIELD, max_size=8), st.integers(0, 3))
def test_as_protobuf_reads_it(fields: list[bytes], before: int) -> None:
    message = b"".join(fields)
    view = memoryview(b"\xff" * before + message + b"\xff")
    assert raw_node(view, before, before + len(message)) == expected(message)


@given(st.lists(FIELD, min_size=1, max_size=4), st.data())
def test_cut_short(fields: list[bytes], data: st.DataObject) -> None:
    message = b"".join(fields)
    end = data.draw(st.integers(0, len(message) - 1))
    try:
        wanted = expected(message[:end])
    except DecodeError:
        with pytest.raises(FormatError, match="byte"):
            raw_node(memoryview(message), 0, end)
    else:
        assert raw_node(memoryview(message), 0, end) == wanted


STRING = s.AttributeKind["STRING"]


@pytest.mark.parametrize(
    "attributes",
    [
        [{"name": "a", "s": b"1", "type": STRING}, {"name": "b", "s": b"", "type": STRING}],
        [{"name": "", "s": b"1", "type": STRING}],
        [{"name": "n" * 127, "s": b"s" * 127, "type": STRING}],
        [{"name": "n" * 128, "s": b"s", "type": STRING}],
        [{"name": "n", "s": b"s" * 128, "type": STRING}],
        [{"name": "n", "s": b"s" * 133, "type": STRING}],
        [{"name": "n", "s": b"\xff", "type": STRING}],
        [{"name": "n", "s": b"*", "type": STRING, "i": 1}],
        [{"name": "n", "type": STRING}],
        [{"name": "n", "i": 5, "type": s.AttributeKind["INT64"]}],
        [{"name": "n", "s": b"s"}],
        [{"s": b"s", "type": STRING}],
    ],
)
def test_primal_marks_as_any_attributes(attributes: list[dict[str, object]]) -> None:
    decoder = Decoder(MappedFile("unused"))
    encoded = [s.AttributeProto(**a).SerializeToString() for a in attributes]
    assert decoder.primal(encoded, "node", False) == decoder.encoded(encoded, "node", False)


@given(st.binary(max_size=12))
def test_primal_marks_of_any_bytes(encoded: bytes) -> None:
    decoder = Decoder(MappedFile("unused"))
    try:
        wanted = decoder.encoded([encoded], "node", False)
    except (DecodeError, FormatError):
        with pytest.raises((DecodeError, FormatError)):
            decoder.primal([encoded], "node", False)
    else:
        assert decoder.primal([encoded], "node", False) == wanted


def test_two_primal_marks_of_one_name() -> None:
    one = s.AttributeProto(name="a", s=b"1", type=STRING).SerializeToString()
    with pytest.raises(FormatError, match="two attributes named 'a'"):
        Decoder(MappedFile("unused")).primal([one, one], "node", False)

"""Attribute values and types to and from MindIR's ``AttributeProto``.

Lossless by construction: what is decoded is encoded again, and when the bytes differ the encoding itself is kept
(:class:`~..attributes.Opaque`, :class:`~..types.OpaqueType`). Encodings: as MindSpore 2.10 exports them
(``mindspore/ccsrc/include/common/utils/mindir_exporter``): a scalar of a tuple stands in the plural fields of its
inner attribute (``ints``, ``floats``), one that stands alone in the singular ones (``i``, ``f``).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ...core.attributes import Attribute, MonadValue, Number, Opaque, TensorValue
from ...core.data import BytesData, Data
from ...core.errors import FormatError, VerifyError
from ...core.types import (
    IOMONAD,
    MAX_RANK,
    NONE,
    STRING,
    UMONAD,
    UNKNOWN,
    DType,
    FunctionType,
    OpaqueType,
    ScalarType,
    SimpleType,
    TensorType,
    TupleType,
    Type,
)
from .schema import AttributeKind, AttributeProto, ValueInfoProto

K = AttributeKind
DTYPES = {
    K["FLOAT"]: DType.FLOAT32, K["UINT8"]: DType.UINT8, K["INT8"]: DType.INT8, K["UINT16"]: DType.UINT16,
    K["INT16"]: DType.INT16, K["INT32"]: DType.INT32, K["INT64"]: DType.INT64, K["STRING"]: DType.STRING,
    K["BOOL"]: DType.BOOL, K["FLOAT16"]: DType.FLOAT16, K["DOUBLE"]: DType.FLOAT64, K["UINT32"]: DType.UINT32,
    K["UINT64"]: DType.UINT64, K["COMPLEX64"]: DType.COMPLEX64, K["COMPLEX128"]: DType.COMPLEX128,
    K["BFLOAT16"]: DType.BFLOAT16,
}  # fmt: skip
"""``TensorProto.DataType`` to element types; scalar attributes use the same numbers."""
NUMBERS = {dtype: number for number, dtype in DTYPES.items()}
INTEGERS = {K[k]: DTYPES[K[k]] for k in ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")}
SIMPLE = {K["STRING"]: STRING, K["NONE"]: NONE, K["UMONAD"]: UMONAD, K["IOMONAD"]: IOMONAD}
SIMPLE_KINDS = {t: k for k, t in SIMPLE.items()}
TENSOR_NAME = "value0"
"""The name that the exporter gives every constant tensor."""

Payload = Callable[[Any, Data], None]
Load = Callable[[Any], Data]


class _Undecodable(Exception):
    """This encoding has no counterpart here; it is carried through as it is."""


def inline(proto: Any, data: Data) -> None:
    """Puts the bytes of a tensor into its message (a copy: for small tensors)."""
    proto.raw_data = bytes(data.view())


def inline_load(proto: Any) -> Data:
    """The bytes of a tensor out of its message."""
    if proto.HasField("external_data"):
        raise FormatError("a constant with data outside of the file, which only parameters may have")
    return BytesData(proto.raw_data)


# -- types -----------------------------------------------------------------------------------------------------------


def tensor_type(proto: Any) -> TensorType:
    dtype = DTYPES.get(proto.data_type)
    if dtype is None or max(len(proto.dims), len(proto.min_dims), len(proto.max_dims)) > MAX_RANK:
        raise _Undecodable
    ref = proto.ref_key
    if not isinstance(ref, str):
        raise _Undecodable
    return TensorType(dtype, tuple(proto.dims), ref, tuple(proto.min_dims), tuple(proto.max_dims))


def put_tensor_type(proto: Any, type_: TensorType) -> None:
    proto.dims.extend(type_.shape)
    proto.data_type = NUMBERS[type_.dtype]
    if type_.ref:
        proto.ref_key = type_.ref
    proto.min_dims.extend(type_.min_shape)
    proto.max_dims.extend(type_.max_shape)


def _type(a: Any) -> Type:
    kind = a.type
    if kind == K["TENSORS"]:
        if len(a.tensors) != 1:
            raise _Undecodable
        return tensor_type(a.tensors[0])
    if kind == K["SCALAR"]:
        if len(a.tensors) != 1:
            raise _Undecodable
        return ScalarType(tensor_type(a.tensors[0]).dtype)
    if kind in (K["TUPLE"], K["LIST"]):
        dynamic = a.seq_info.is_dyn_len if a.HasField("seq_info") else None
        return TupleType(tuple(_type(v) for v in a.values), kind == K["LIST"], dynamic)
    if kind == K["FUNCGRAPHCLOSURE"]:
        return FunctionType((_utf8(a.s),))
    if kind == K["UNIONFUNCCLOSURE"]:
        return FunctionType(tuple(_utf8(v.s) for v in a.values), union=True)
    simple = SIMPLE.get(kind)
    if simple is None:
        raise _Undecodable
    return simple


def _put_type(a: Any, type_: Type) -> None:
    if isinstance(type_, TensorType):
        a.type = K["TENSORS"]
        put_tensor_type(a.tensors.add(), type_)
    elif isinstance(type_, ScalarType):
        a.type = K["SCALAR"]
        a.tensors.add(dims=[0], data_type=NUMBERS[type_.dtype])
    elif isinstance(type_, TupleType):
        a.type = K["LIST"] if type_.is_list else K["TUPLE"]
        for element in type_.elements:
            _put_type(a.values.add(), element)
        if type_.dynamic is not None:
            a.seq_info.is_dyn_len = type_.dynamic
    elif isinstance(type_, FunctionType) and not type_.union and len(type_.functions) == 1:
        a.type = K["FUNCGRAPHCLOSURE"]
        a.s = type_.functions[0].encode()
    elif isinstance(type_, FunctionType):
        a.type = K["UNIONFUNCCLOSURE"]
        for name in type_.functions:
            a.values.add(type=K["FUNCGRAPHCLOSURE"], s=name.encode())
    elif isinstance(type_, OpaqueType):
        _put_opaque(a, type_.encoded)
    elif type_ in SIMPLE_KINDS:
        a.type = SIMPLE_KINDS[type_]
    else:
        raise VerifyError(f"type '{type_}' cannot be written to MindIR: give the value a known type")


def _put_opaque(a: Any, encoded: bytes) -> None:
    """All but the name."""
    name = a.name
    a.ParseFromString(encoded)
    a.ClearField("name")
    if name:
        a.name = name


def _utf8(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _Undecodable from None


def decode_type(a: Any) -> Type:
    """The type that an attribute (its name aside) encodes."""
    a.ClearField("name")
    encoded = a.SerializeToString(deterministic=True)
    try:
        type_ = _type(a)
    except _Undecodable:
        return OpaqueType(encoded)
    return type_ if encode_type(type_, "") == encoded else OpaqueType(encoded)


@cache
def encode_type(type_: Type, name: str) -> bytes:
    """The serialized attribute ``name`` (such as "shape") for a type."""
    a = AttributeProto(name=name) if name else AttributeProto()
    _put_type(a, type_)
    return bytes(a.SerializeToString(deterministic=True))


def encode_value_info(name: str, type_: Type) -> bytes:
    """The serialized ValueInfoProto of a graph's input or output."""
    info = ValueInfoProto(name=name)
    if isinstance(type_, TensorType):
        put_tensor_type(info.tensor.add(), type_)
    else:
        info.denotation = _denotation(type_)
        if type_ != UNKNOWN:
            info.attr_info.ParseFromString(encode_type(type_, ""))
    return bytes(info.SerializeToString(deterministic=True))


def _denotation(type_: Type) -> str:
    """MindSpore's name of the type; its loader reads it to tell effect tokens."""
    if isinstance(type_, TupleType):
        return "List" if type_.is_list else "Tuple"
    if isinstance(type_, ScalarType):
        kind = type_.dtype.rstrip("0123456789")
        return {"uint": "UInt", "bfloat": "BFloat"}.get(kind, kind.capitalize())
    if isinstance(type_, FunctionType):
        return "Function"
    if isinstance(type_, SimpleType):
        return {UMONAD: "UMonadType", IOMONAD: "IOMonadType"}.get(
            type_, {"string": "String", "none": "TypeNone"}.get(type_.kind, "")
        )
    return ""


# -- values ----------------------------------------------------------------------------------------------------------


def _value(a: Any, nested: bool, load: Load) -> Attribute:
    kind = a.type
    if kind == K["STRING"]:
        raw = (a.strings[0] if a.strings else b"") if nested else a.s
        try:
            return raw.decode()
        except UnicodeDecodeError:
            return raw
    if kind == K["BOOL"]:
        return bool((a.ints[0] if a.ints else 0) if nested else a.i)
    if kind in INTEGERS:
        number = (a.ints[0] if a.ints else 0) if nested else a.i
        dtype = INTEGERS[kind]
        if dtype is DType.INT64:
            return number
        return Number(dtype, number + 2**64 if dtype is DType.UINT64 and number < 0 else number)
    if kind == K["FLOAT"]:
        return (a.floats[0] if a.floats else 0.0) if nested else a.f
    if kind == K["DOUBLE"]:
        return Number(DType.FLOAT64, (a.doubles[0] if a.doubles else 0.0) if nested else a.d)
    if kind in (K["TUPLE"], K["LIST"]):
        elements = [_value(v, True, load) for v in a.values]
        return elements if kind == K["LIST"] else tuple(elements)
    if kind == K["TENSORS"]:
        if len(a.tensors) != 1 or a.tensors[0].name != TENSOR_NAME:
            raise _Undecodable
        type_ = tensor_type(a.tensors[0])
        data = load(a.tensors[0])
        if data.nbytes != type_.nbytes or type_.dtype is DType.STRING or min(type_.shape, default=0) < 0:
            raise _Undecodable
        return TensorValue(type_, data)
    if kind == K["NONE"]:
        return None
    if kind in (K["UMONAD"], K["IOMONAD"]):
        return MonadValue(SIMPLE[kind].kind)
    raise _Undecodable


def _put_value(a: Any, value: Attribute, nested: bool, payload: Payload) -> None:
    if isinstance(value, bool):
        _put_number(a, K["BOOL"], int(value), nested, "i")
    elif isinstance(value, int):
        _put_number(a, K["INT64"], value, nested, "i")
    elif isinstance(value, float):
        _put_number(a, K["FLOAT"], value, nested, "f")
    elif isinstance(value, (str, bytes)):
        _put_number(a, K["STRING"], value.encode() if isinstance(value, str) else value, nested, "s")
    elif value is None:
        a.type = K["NONE"]
    elif isinstance(value, (tuple, list)):
        a.type = K["LIST"] if isinstance(value, list) else K["TUPLE"]
        for element in value:
            _put_value(a.values.add(), element, True, payload)
    elif isinstance(value, Number):
        number = value.value
        if isinstance(number, int) and number >= 2**63:
            number -= 2**64
        _put_number(a, NUMBERS[value.dtype], number, nested, "d" if value.dtype is DType.FLOAT64 else "i")
    elif isinstance(value, TensorValue):
        a.type = K["TENSORS"]
        tensor = a.tensors.add(name=TENSOR_NAME)
        put_tensor_type(tensor, value.type)
        payload(tensor, value.data)
    elif isinstance(value, MonadValue):
        a.type = K["UMONAD"] if value.kind == "umonad" else K["IOMONAD"]
    elif isinstance(value, Opaque):
        _put_opaque(a, value.encoded)
    else:
        raise VerifyError(f"not an attribute value: {value!r}")


_PLURAL = {"i": "ints", "f": "floats", "d": "doubles", "s": "strings"}


def _put_number(a: Any, kind: int, value: Any, nested: bool, field: str) -> None:
    a.type = kind
    try:
        if nested:
            getattr(a, _PLURAL[field]).append(value)
        else:
            setattr(a, field, value)
    except ValueError:
        raise VerifyError(f"the number {value} does not fit into 64 bits") from None
    except TypeError:
        raise VerifyError(f"{value!r} is no value of the type that its attribute has") from None


def decode_value(a: Any, load: Load = inline_load, payload: Payload = inline) -> Attribute | None:
    """The value that an attribute (its name aside) encodes; :class:`Opaque` if decoding would lose anything.

    ``load`` gives the bytes of a constant tensor, ``payload`` puts them back for the comparison.
    """
    a.ClearField("name")
    encoded = a.SerializeToString(deterministic=True)
    try:
        value = _value(a, False, load)
    except _Undecodable:
        return Opaque(encoded)
    again = AttributeProto()
    _put_value(again, value, False, payload)
    return value if again.SerializeToString(deterministic=True) == encoded else Opaque(encoded)


def encode_value(name: str, value: Attribute) -> bytes:
    """The serialized attribute ``name`` for a value."""
    a = AttributeProto(name=name)
    _put_value(a, value, False, inline)
    return bytes(a.SerializeToString(deterministic=True))

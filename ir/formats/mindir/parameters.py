"""One parameter of a MindIR: its type, where its bytes lie, and the exporter's notes about it."""

from __future__ import annotations

from typing import Any

from ...core.data import AbsentData, BytesData, Data, MappedData, MappedFile
from ...core.errors import FormatError
from ...core.program import StateVariable
from ...core.types import MAX_RANK, DType, TensorType
from ...core.wording import counted
from .codec import DTYPES
from .external import DataFiles
from .parts import text
from .wire import HERE

FLOAT64 = 17
"""The second number that the schema has for float64."""


def read_parameter(proto: Any, name: str, file: MappedFile, data_files: DataFiles) -> StateVariable:
    """The state variable of a TensorProto whose payload was cut out (it lies in ``file``) unless it is small.

    The exporter's notes (``ref_key``, ``compression_type``, ``quant_params``) go to ``info``.
    """
    what = f"parameter '{name}'"
    dtype = DType.FLOAT64 if proto.data_type == FLOAT64 else DTYPES.get(proto.data_type)
    if dtype is None or dtype is DType.STRING:
        raise FormatError(
            f"{what} has element type {proto.data_type}, which is not supported: export without quantization"
        )
    if proto.compression_type:
        raise FormatError(f"{what} is compressed, which is not supported: export without compression")
    if max(len(proto.dims), len(proto.min_dims), len(proto.max_dims)) > MAX_RANK:
        raise FormatError(
            f"{what} has {counted(len(proto.dims), 'dimension')}, more than {MAX_RANK}; the file is damaged"
        )
    type_ = TensorType(dtype, tuple(proto.dims), "", tuple(proto.min_dims), tuple(proto.max_dims))
    if min(type_.shape, default=0) < 0:
        raise FormatError(f"{what} has the shape {list(type_.shape)}: a parameter's dimensions are fixed")
    data: Data
    if not proto.HasField("external_data"):
        absent = type_.nbytes and not proto.HasField("raw_data")
        data = AbsentData(name, type_.nbytes) if absent else BytesData(proto.raw_data)
    elif proto.HasField("raw_data"):
        raise FormatError(f"{what} has data both inside and outside of the file")
    else:
        place = proto.external_data
        if not place.location:
            raise FormatError(f"{what}: external data without a location")
        if place.location == HERE:
            data = MappedData(file, place.offset, place.length)
        else:
            data = data_files.data(what, text(place.location, what), place.offset, place.length)
    if data.nbytes != type_.nbytes:
        raise FormatError(f"{what} is {type_} ({type_.nbytes} bytes) but has {data.nbytes} bytes of data")
    variable = StateVariable(name, type_, data)
    if proto.HasField("ref_key"):
        variable.info["ref_key"] = text(proto.ref_key, what)
    if proto.HasField("compression_type"):
        variable.info["compression_type"] = proto.compression_type
    if proto.quant_params:
        from google.protobuf import json_format

        variable.info["quant_params"] = [
            json_format.MessageToDict(q, preserving_proto_field_name=True) for q in proto.quant_params
        ]
    return variable

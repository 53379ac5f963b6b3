"""The protobuf schema of MindIR, as a table.

Source: ``mindspore/train/mind_ir_pb2.py`` of MindSpore 2.8 to 2.10, whose schemas are equal (package ``mind_ir``,
proto2); names, numbers and types are the same. The message classes live in a descriptor pool of our own, so they
neither need MindSpore's module nor clash with it when both are loaded in one process.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_ENUMS = {
    "AttributeType": (
        0,
        "UNDEFINED FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64 COMPLEX64 "
        "COMPLEX128 BFLOAT16 TENSOR GRAPH TENSORS TUPLE LIST DICT UMONAD IOMONAD NONE PRIMITIVECLOSURE "
        "FUNCGRAPHCLOSURE PARTIALCLOSURE UNIONFUNCCLOSURE CSR_TENSOR COO_TENSOR ROW_TENSOR CLASS_TYPE NAME_SPACE "
        "SYMBOL TYPE_NULL MAP_TENSOR FUNCTOR SCALAR SCALAR_GRAPH_HOLDER",
    ),
    "FunctorType": (1, "SHAPE_CALC_FUNCTOR ANY_FUNCTOR"),
    "CompressionType": (0, "NO_COMPRESSION INDEXING SPARSE FSE BIT_PACKING FSE_INT FSE_INFER"),
    "PrimType": (1, "PRIMITIVE PRIMITIVE_FUNCTION"),
}

# message: field number type, …  (* repeated, ! required)
_MESSAGES = """
ModelProto: ir_version 1 string, producer_name 2 string, producer_version 3 string, domain 4 string,
  model_version 5 string, doc_string 6 string, graph 7 GraphProto, functions 8 GraphProto*,
  preprocessor 9 PreprocessorProto, little_endian 10 bool, parallel 11 ParallelProto, primitives 12 PrimitiveProto*,
  mind_ir_version 13 int64, user_info 14 UserInfoEntry*
UserInfoEntry: key 1 string, value 2 string
GraphProto: node 1 NodeProto*, name 2 string, parameter 3 TensorProto*, doc_string 4 string, input 5 ValueInfoProto*,
  output 6 ValueInfoProto*, bprop_hash 7 string, attribute 8 AttributeProto*, bprop_filepath 9 string,
  map_parameter 10 MapTensorProto*
NodeProto: input 1 string*, output 2 string*, name 3 string, op_type 4 string, attribute 5 AttributeProto*,
  doc_string 6 string, domain 7 string, node_attr 8 AttributeProto*, primal_attr 9 AttributeProto*
PrimitiveProto: name 1 string, op_type 2 string, attribute 3 AttributeProto*,
  instance_name 4 string, prim_type 5 PrimType
ValueInfoProto: name 1 string, tensor 2 TensorProto*, doc_string 3 string, denotation 4 string,
  attr_info 5 AttributeProto
AttributeProto: name 1 string, f 2 float, i 3 int64, d 4 double, s 5 bytes, t 6 TensorProto, g 7 GraphProto,
  floats 8 float*, doubles 9 double*, ints 10 int64*, strings 11 bytes*, tensors 12 TensorProto*, graphs 13 GraphProto*,
  doc_string 14 string, ref_attr_name 15 string, type 16 AttributeType, values 17 AttributeProto*,
  seq_info 18 SeqInfoProto, functor 19 FunctorProto, graph_holder 20 ScalarGraphHolderProto
SeqInfoProto: is_dyn_len 1 bool, tuple_elem_item 2 AttributeProto
FunctorProto: type 1 FunctorType, name 2 string, values 3 AttributeProto*
TensorProto: dims 1 int64*, data_type 2 int32, float_data 3 float*, int32_data 4 int32*, string_data 5 bytes*,
  int64_data 6 int64*, name 7 string, doc_string 8 string, raw_data 9 bytes, double_data 10 double*,
  uint64_data 11 uint64*, external_data 12 ExternalDataProto, ref_key 13 string, min_dims 14 int64*, max_dims 15 int64*,
  compression_type 16 CompressionType, quant_params 17 QuantParamProto*
ExternalDataProto: location 1 string, offset 2 int64, length 3 int64
QuantParamProto: quant_algo_name 1 string!, attribute 2 AttributeProto*
MapTensorProto: name 1 string!, default_value 2 AttributeProto!, key_tensor 3 TensorProto!, value_tensor 4 TensorProto!,
  status_tensor 5 TensorProto!
PreprocessorProto: op 1 PreprocessOpProto*
PreprocessOpProto: input_columns 1 string, output_columns 2 string, project_columns 3 string, op_type 4 string,
  operations 5 string, offload 6 bool
ParallelProto: layout 1 LayoutProto*
LayoutProto: name 1 string, device_arrangement_int 2 int64*, tensor_map_int 3 int64*, slice_shape_int 4 int64*,
  field_size 5 int64, uniform_split 6 bool, opt_shard_group 7 string, pipeline_shared 8 bool, is_send 9 bool,
  peer_rank 10 int64, sr_tag 11 int64, opt_shard_slice_shape_int 12 int64*
ScalarNodeProto: scalar_op_type 1 int64, in_index 2 int64*, value 3 int64*
ScalarGraphHolderProto: scalar_node 1 ScalarNodeProto*, input_shape_index 2 uint64*
"""


def _build() -> dict[str, Any]:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="mind_ir.proto", package="mind_ir", syntax="proto2")
    for enum, (first, names) in _ENUMS.items():
        enumeration = file.enum_type.add(name=enum)
        for value, name in enumerate(names.split(), first):
            # Values of a top-level enum share the package's name space: qualified, so that enums do not clash.
            enumeration.value.add(name=f"{enum}_{name}", number=value)
    messages: list[str] = []
    for line in _MESSAGES.strip().replace("\n  ", " ").splitlines():
        message, _, fields = line.partition(": ")
        messages.append(message)
        described = file.message_type.add(name=message)
        for entry in fields.split(", "):
            name, number, kind = entry.split()
            label = {"*": kinds.LABEL_REPEATED, "!": kinds.LABEL_REQUIRED}.get(kind[-1], kinds.LABEL_OPTIONAL)
            kind = kind.rstrip("*!")
            field = described.field.add(name=name, number=int(number), label=label)
            if kind in _ENUMS:
                field.type, field.type_name = kinds.TYPE_ENUM, f".mind_ir.{kind}"
            elif kind[0].isupper():
                field.type, field.type_name = kinds.TYPE_MESSAGE, f".mind_ir.{kind}"
            else:
                field.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    described_as = {m: pool.FindMessageTypeByName(f"mind_ir.{m}") for m in messages}
    if hasattr(message_factory, "GetMessageClass"):
        return {m: message_factory.GetMessageClass(d) for m, d in described_as.items()}
    # protobuf 3.20, the newest that MindSpore 2.8 and 2.9 run on as they come.
    factory = message_factory.MessageFactory(pool)
    return {m: factory.GetPrototype(d) for m, d in described_as.items()}


_CLASSES = _build()
ModelProto = _CLASSES["ModelProto"]
GraphProto = _CLASSES["GraphProto"]
NodeProto = _CLASSES["NodeProto"]
PrimitiveProto = _CLASSES["PrimitiveProto"]
ValueInfoProto = _CLASSES["ValueInfoProto"]
AttributeProto = _CLASSES["AttributeProto"]
TensorProto = _CLASSES["TensorProto"]

AttributeKind: dict[str, int] = {name: n for n, name in enumerate(_ENUMS["AttributeType"][1].split())}
"""Numbers of the attribute types, which for element types double as the data types of tensors."""

# Field numbers that the scanner and the writer need.
MODEL_GRAPH, MODEL_FUNCTIONS, MODEL_PRIMITIVES = 7, 8, 12
GRAPH_NODE, GRAPH_NAME, GRAPH_PARAMETER, GRAPH_DOC, GRAPH_INPUT, GRAPH_OUTPUT = 1, 2, 3, 4, 5, 6
GRAPH_BPROP_HASH, GRAPH_ATTRIBUTE, GRAPH_BPROP_PATH, GRAPH_MAP_PARAMETER = 7, 8, 9, 10
NODE_INPUT, NODE_OUTPUT, NODE_NAME, NODE_OP, NODE_ATTRIBUTE = 1, 2, 3, 4, 5
NODE_DOMAIN, NODE_MARKS, NODE_PRIMAL = 7, 8, 9
ATTRIBUTE_NAME, ATTRIBUTE_STRING, ATTRIBUTE_T, ATTRIBUTE_TENSORS, ATTRIBUTE_TYPE, ATTRIBUTE_VALUES = 1, 5, 6, 12, 16, 17
TENSOR_RAW, TENSOR_EXTERNAL = 9, 12
EXTERNAL_LOCATION, EXTERNAL_OFFSET, EXTERNAL_LENGTH = 1, 2, 3
MODEL_FIELDS, GRAPH_FIELDS, NODE_FIELDS = 14, 10, 9

"""The table of ir/formats/mindir/schema.py against the schema that MindSpore ships."""

from __future__ import annotations

import pytest
from boost_compile.ir.formats.mindir import schema

from tests.ir.protos import mind_ir


@pytest.mark.mindspore
def test_messages_and_enums_equal_those_of_mindspore():
    ours, theirs = _shape(schema.ModelProto.DESCRIPTOR), _shape(mind_ir().ModelProto.DESCRIPTOR)
    assert len(ours) > 15
    assert ours == theirs


def _shape(root):
    """Every message reachable from `root`, by its own name: field -> (number, type, label, referred name or values)."""
    messages, todo = {}, [root]
    while todo:
        message = todo.pop()
        if message.name in messages:
            continue
        fields = messages[message.name] = {}
        for f in message.fields:
            referred = None
            if f.message_type is not None:
                todo.append(f.message_type)
                referred = f.message_type.name
            elif f.enum_type is not None:
                prefix = f.enum_type.name + "_"
                referred = {v.name.removeprefix(prefix): v.number for v in f.enum_type.values}
            fields[f.name] = (f.number, f.type, *_label(f), referred)
    return messages


def _label(field):
    """Whether it is repeated, whether it is required: protobuf 3.20 says so by a number, newer ones by properties."""
    if hasattr(field, "is_repeated"):
        return field.is_repeated, field.is_required
    return field.label == field.LABEL_REPEATED, field.label == field.LABEL_REQUIRED


@pytest.mark.mindspore
def test_both_schemas_live_in_one_process():
    ours = schema.NodeProto(name="n", op_type="Constant").SerializeToString()
    assert mind_ir().NodeProto.FromString(ours).op_type == "Constant"

"""Casts as MindSpore encodes them."""

from __future__ import annotations

import pytest
from boost_compile.ir.builders.cast import cast
from boost_compile.ir.core.errors import VerifyError
from boost_compile.ir.core.graph import Constant, Node
from boost_compile.ir.core.types import DType

from tests.graphs import graph


def test_a_cast_to_its_own_type_is_none() -> None:
    g = graph("return %x")
    assert cast(g, g.inputs[0], DType.FLOAT32) is g.inputs[0]


def test_the_number_of_the_type() -> None:
    g = graph("return %x")
    found = cast(g, g.inputs[0], DType.FLOAT16, scope="s")
    assert isinstance(found, Node)
    code = found.operand(1)
    assert isinstance(code, Constant)
    assert (found.op.name, code.value, str(found.type), found.scope) == ("Cast", 42, "float16[2]", "s")


def test_no_cast_to_text() -> None:
    g = graph("return %x")
    with pytest.raises(VerifyError, match="no cast to string"):
        cast(g, g.inputs[0], DType.STRING)

"""Random values, types, graphs and programs: everything that the IR can hold, for properties of the text form."""

from __future__ import annotations

import math
import struct
from typing import Any

from boost_compile.ir.core.attributes import MonadValue, Number, Opaque, TensorValue
from boost_compile.ir.core.data import BytesData, ZeroData
from boost_compile.ir.core.graph import Constant, Graph, Origin, Value
from boost_compile.ir.core.op import CALL, Op
from boost_compile.ir.core.program import ROLES, Entry, Program, Schedule, StateVariable
from boost_compile.ir.core.types import (
    SIMPLE_TYPES,
    UMONAD,
    UNKNOWN,
    DType,
    FunctionType,
    OpaqueType,
    ScalarType,
    TensorType,
    TupleType,
)
from hypothesis import strategies as st

# Any text that UTF-8 can hold, with the characters that matter to the text form more often than chance would give.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.text('a:"\\%@ ,(){}\n▸✓/-.', max_size=8)
names = st.from_regex(r"[A-Za-z0-9_.$/:-]{1,6}", fullmatch=True) | texts
any_bits = st.binary(min_size=8, max_size=8).map(lambda b: struct.unpack("<d", b)[0])
floats = (
    st.floats()
    | st.floats(width=32)
    | any_bits
    | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 5e-324, 1e-45, 3.4028234663852886e38, 1e39, 0.1, 1.0])
)
ints = st.integers(-(2**63), 2**63 - 1)
dims = st.integers(-1, 4)
NUMBER_TYPES = [d for d in DType if d not in (DType.STRING, DType.COMPLEX64, DType.COMPLEX128)]


def shapes(dim: st.SearchStrategy[int] = dims) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(dim, max_size=3).map(tuple)


static = shapes(st.integers(0, 4))
tensors = st.builds(
    TensorType,
    st.sampled_from(DType),
    shapes() | st.just((-2,)),
    st.just("") | names,
    st.just(()) | shapes(),
    st.just(()) | shapes(),
)
types = st.recursive(
    tensors
    | st.builds(ScalarType, st.sampled_from(NUMBER_TYPES))
    | st.sampled_from(list(SIMPLE_TYPES.values()))
    | st.builds(FunctionType, st.lists(names, max_size=3).map(tuple), st.booleans())
    | st.builds(OpaqueType, st.binary(max_size=6)),
    lambda inner: st.builds(
        TupleType, st.lists(inner, max_size=3).map(tuple), st.booleans(), st.sampled_from([None, False, True])
    ),
    max_leaves=5,
)


@st.composite
def tensor_values(draw: st.DrawFn, dtypes: Any = tuple(DType)) -> TensorValue:
    """Constant tensors: random bytes (any NaN, any bool), zeros, and now and then bytes that do not fit the type."""
    type_ = TensorType(draw(st.sampled_from(dtypes)), draw(static))
    size = type_.nbytes if draw(st.integers(0, 9)) else draw(st.integers(0, 100))
    data = draw(st.just(ZeroData(size)) | st.binary(min_size=size, max_size=size).map(BytesData))
    return TensorValue(type_, data)


scalars = (
    st.booleans()
    | ints
    | floats
    | texts
    | st.binary(max_size=6)
    | st.none()
    | st.builds(Number, st.sampled_from(NUMBER_TYPES), ints | floats | st.booleans())
    | tensor_values()
    | st.sampled_from([MonadValue("umonad"), MonadValue("iomonad")])
    | st.builds(Opaque, st.binary(max_size=6))
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple), max_leaves=6
)
mappings = st.dictionaries(names, values, max_size=3)
notes = st.dictionaries(names, values | mappings, max_size=3)
ops = st.builds(
    Op,
    st.sampled_from(["Mul", "Assign", "Depend", "BatchNorm", "MatMul", "Tanh", "call", "Re shape"]),
    mappings | st.sampled_from([{"side_effect_mem": True}, {"a": 1, "side_effect_mem": True}, {"side_effect_mem": 1}]),
    st.just("") | texts,
    st.integers(0, 2),
)
string_lists = st.lists(texts, max_size=2).map(tuple)
origins = st.none() | st.builds(Origin, string_lists, string_lists)


@st.composite
def graphs(draw: st.DrawFn, states: dict[str, TensorType]) -> Graph:
    """Graphs of random nodes over their own values, with functions; well-formed, but not meaningful."""
    graph = Graph(draw(names))
    functions = [graph.add_function(draw(names)) for _ in range(draw(st.integers(0, 2)))]
    for part in (graph, *functions):
        pool: list[Value] = [part.reference(f) for f in functions]
        taken = set(states)
        for name in draw(st.lists(names, max_size=3)):
            if name not in taken:
                taken.add(name)
                pool.append(part.add_input(name, draw(types)))
        if part is graph:
            pool += [part.state(n, t) for n, t in states.items() if draw(st.booleans())]
        for value in draw(st.lists(values, min_size=1, max_size=3)):
            constant = Constant(draw(names), value)
            pool.append(constant if draw(st.booleans()) else part.constant(value))
        for _ in range(draw(st.integers(0, 4))):
            operands = draw(st.lists(st.sampled_from(pool), max_size=4))
            node = part.create(
                draw(ops | st.just(CALL)), operands, draw(types), scope=draw(st.just("") | texts), name=draw(names)
            )
            node.marks, node.primal, node.origin = draw(mappings), draw(mappings), draw(origins)
            pool.append(node)
        part.result = draw(st.sampled_from(pool))
        part.outputs = draw(st.lists(names, max_size=2).map(tuple))
        part.attributes, part.info = draw(mappings), draw(notes)
    return graph


@st.composite
def programs(draw: st.DrawFn) -> Program:
    state = {}
    for name in draw(st.lists(names, max_size=3, unique=True)):
        value = draw(tensor_values())
        state[name] = StateVariable(
            name,
            value.type,
            value.data,
            draw(st.sampled_from(ROLES)),
            draw(st.none() | st.booleans()),
            draw(notes),
        )
    graph = draw(graphs({n: v.type for n, v in state.items()}))
    other = Graph(graph.name + "'")
    other.result = other.create("UpdateState", [other.constant(MonadValue("umonad"))], UMONAD)
    other.create("Unknown", [], UNKNOWN)
    entries = (Entry(graph.name, draw(st.integers(0, 9))), Entry(other.name))
    return Program(
        graphs={graph.name: graph, other.name: other},
        state=state,
        schedule=Schedule(entries, draw(st.none() | names), draw(st.none() | names)),
        name=draw(names),
        target=draw(st.sampled_from(["cpu", "gpu", "ascend"])),
        metadata=draw(notes),
        source=draw(st.dictionaries(names, texts, max_size=2)),
        pipeline=draw(texts),
    )

"""Forward graphs written as Python, looked at without MindSpore: what a file can and cannot put into the source."""

from __future__ import annotations

import ast

import pytest
from boost_compile.ir.core.attributes import Opaque
from boost_compile.ir.core.errors import Error, PassError
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.core.op import Op
from boost_compile.ir.core.program import Entry, Program, Schedule
from boost_compile.ir.core.types import tensor
from boost_compile.ir.formats.python.check import BEGIN, UnsafeSource, check_source
from boost_compile.ir.formats.python.decompile import decompile
from boost_compile.ir.formats.python.source import prelude
from boost_compile.ir.formats.storage.load import load
from boost_compile.ir.text import parse_graph

from tests.ir.formats.python.corpus import CORPUS, network


def shape(source: str) -> str:
    """The syntax tree with all identifiers and literals made equal."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        for field in ("id", "name", "arg", "attr", "value"):
            if isinstance(getattr(node, field, None), (str, bytes, int, float)):
                setattr(node, field, 0)
    return ast.dump(tree)


def named(source: str) -> set[str]:
    """Every identifier of the classes."""
    fixed = len(ast.parse(prelude()).body)
    found = set()
    for statement in ast.parse(source).body[fixed:]:
        for node in ast.walk(statement):
            found |= {
                getattr(node, f) for f in ("id", "name", "arg", "attr") if isinstance(getattr(node, f, None), str)
            }
    return found


@pytest.mark.parametrize("text", CORPUS, ids=ascii)
def test_what_a_file_calls_its_parts_stands_in_literals_only(text: str) -> None:
    source = decompile(network(text)).source
    assert shape(source) == shape(decompile(network("weight")).source)
    assert all(name.isascii() and (name == "__init__" or "__" not in name) for name in named(source))
    literals = {n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant)}
    assert {text, f"My{text}"} <= literals


def test_text_and_file_hold_the_same_hostile_names(tmp_path) -> None:
    """Through the MindIR writer and reader too, where they take such a name."""
    taken = 0
    for i, text in enumerate(CORPUS):
        path = tmp_path / f"{i}.mindir"
        try:
            network(text).save(str(path))
            read = load(path)
        except Error:
            continue
        assert shape(decompile(read).source) == shape(decompile(network(text)).source)
        taken += 1
    assert taken > len(CORPUS) / 2


def cell(field: str = "1", statement: str = "return x", arguments: str = "self, x", more: str = "") -> str:
    return f"{prelude()}{BEGIN}        self.x = {field}\n\n    def construct({arguments}):\n        {statement}\n{more}"


FIELDS = (
    "eval('1')", "ms.load('x')", "nn", "(lambda: 1)()", "[y for y in (1,)]", "f'{nn}'", "state", "b'x'", "__import__",
    "primitive.__globals__", "primitive(**{})", "primitive(*())", "(x := 1)", "1 if 1 else 2", "prefix + 'a'",
    "load()", "State('x')", "primitive('A', x=1)", "prefix.x + 'a'", "primitive", "state[1]",
    "tensor(eval('1'))", "ms.context",
)  # fmt: skip
STATEMENTS = (
    "return eval('x')", "return x.asnumpy()", "return self.x.y", "return self.__class__", "import os",
    "global x", "return nn", "return self.x(y=1)", "del x", "return unknown", "return f'{x}'",
    "return x + x", "return (lambda: 1)()", "return self.x(*x)", "for i in x: pass", "with x: pass", "raise x",
    "x[0] = 1", "yield x", "nn.x = 1", "if eval('1'): return x", "while x.y: return x",
)  # fmt: skip


def test_a_plain_cell_passes() -> None:
    check_source(cell(), prelude())


@pytest.mark.parametrize(
    "source",
    [
        *(cell(field=field) for field in FIELDS),
        *(cell(statement=statement) for statement in STATEMENTS),
        *(cell(arguments=arguments) for arguments in ("x", "self, x=load()", "self, x: load()", "self, *x")),
        cell(more="import os\n"),
        cell(more="class A(nn.Cell):\n    pass\n"),
        cell(more="    x = load()\n"),
        cell(more="    def __del__(self):\n        return 1\n"),
        cell().replace("class Network(nn.Cell):", "@primitive\nclass Network(nn.Cell):"),
        cell().replace("class Network(nn.Cell):", "class Network(nn.Cell, metaclass=type):"),
        cell().replace("import json", "import os"),
    ],
)
def test_source_of_any_other_kind_is_refused(source: str) -> None:
    with pytest.raises(UnsafeSource):
        check_source(source, prelude())


def dense(graph: Graph, x, name: str, size: int):
    weight = graph.state(f"{name}.weight", tensor("float32", size, x.type.shape[1]))
    scope = f"Default/{name}-Dense/MatMul-op0"
    transposed = [graph.constant(False), graph.constant(True)]
    return graph.create(Op("MatMul", kind=2), [x, weight, *transposed], tensor("float32", 2, size), scope=scope)


def test_each_node_has_a_line() -> None:
    graph = Graph("step")
    x = graph.add_input("x", tensor("float32", 2, 4))
    for name, size, by in (("first", 8, (2, 8)), ("second", 6, (2, 6)), ("third", 5, (2, 5))):
        x = dense(graph, x, name, size)
        x = graph.create(
            Op("Reshape", kind=2), [x, graph.constant(by)], x.type, scope=f"Default/{name}-Dense/Reshape-op0"
        )
    graph.result = x
    program = Program({"step": graph}, {}, Schedule((Entry("step"),)))
    for state in graph.states.values():
        program.add_state(state.name, state.type, "unknown")
    source = decompile(program).source
    classes = [n for n in ast.parse(source[len(prelude()) :]).body if isinstance(n, ast.ClassDef)]
    assert [c.name for c in classes] == ["Network"]
    assert "self.weight_2 = state['second.weight']" in source
    lines = [line.strip() for line in source[source.index("def construct(self, x)") :].splitlines()]
    assert lines[1:] == [
        "mat_mul = self.mat_mul(x, self.weight)",
        "reshape = self.reshape(mat_mul, (2, 8))",
        "mat_mul_2 = self.mat_mul(reshape, self.weight_2)",
        "reshape_2 = self.reshape(mat_mul_2, (2, 6))",
        "mat_mul_3 = self.mat_mul(reshape_2, self.weight_3)",
        "reshape_3 = self.reshape(mat_mul_3, (2, 5))",
        "return reshape_3",
    ]


@pytest.mark.parametrize("name", ["PyExecute", "Custom", "PyFunc"])
def test_primitives_that_run_code_of_the_file_are_refused(name: str) -> None:
    program = network("a")
    graph = program.graphs["step"]
    graph.result = graph.create(Op(name, kind=1), [graph.result], graph.result.type)
    with pytest.raises(PassError, match="runs code"):
        decompile(program)


def test_what_python_has_no_value_for_is_refused_with_its_node() -> None:
    program = network("a")
    graph = program.graphs["step"]
    graph.result = graph.create(
        Op("Some", {"odd": Opaque(b"x")}, kind=1), [graph.result], graph.result.type, name="here"
    )
    with pytest.raises(PassError, match=r"%here.*odd"):
        decompile(program)


def test_nested_values_do_not_exhaust_the_stack() -> None:
    program = network("a")
    graph = program.graphs["step"]
    value = graph.inputs[0]
    for _ in range(3000):
        value = graph.create(Op("MakeTuple", kind=1), [value], graph.result.type)
    graph.result = value
    check_source(decompile(program).source, prelude())
    deep: tuple = ()
    for _ in range(100):
        deep = (deep,)
    graph.result = graph.create(Op("Some", {"deep": deep}, kind=1), [value], value.type)
    with pytest.raises(PassError, match="nested"):
        decompile(program)


def construct(text: str) -> list[str]:
    """The lines of `construct` for a graph as text."""
    graph = parse_graph(text)
    program = Program({"step": graph}, {}, Schedule((Entry("step"),)))
    for state in graph.states.values():
        program.add_state(state.name, state.type, "unknown")
    source = decompile(program).source
    return [line[8:] for line in source[source.index("def construct(self") :].splitlines()[1:]]


BRANCH = """graph @step(%x: float32[2], %go: bool[]) {
  %p = Partial(@yes, %x)
  %q = Partial(@no, %x)
  %s = Switch(%go, %p, %q)
  %r = call(%s) : float32[2]
  %y = Neg(%r)
  return %y
  func @yes(%a: float32[2]) {
    %b = Exp(%a)
    return %b
  }
  func @no(%a: float32[2]) {
    return %a
  }
}"""
LOOP = """graph @step(%x: float32[2], %n: int32[]) {
  %w = state %w: float32[2]
  %r = call(@head, %n, %x, %w) : float32[2]
  return %r
  func @head(%i: int32[], %v: float32[2], %w: float32[2]) {
    %c = Less(%i, %i) : bool[]
    %b = Partial(@body, %i, %v, %w)
    %e = Partial(@after, %v, %w)
    %s = Switch(%c, %b, %e)
    %r = call(%s) : float32[2]
    return %r
  }
  func @body(%i: int32[], %v: float32[2], %w: float32[2]) {
    %j = Neg(%i)
    %u = Add(%v, %w)
    %r = call(@head, %j, %u, %w) : float32[2]
    return %r
  }
  func @after(%v: float32[2], %w: float32[2]) {
    %y = Mul(%v, %w)
    return %y
  }
}""".replace("  %w = state %w", "  state %w")


def test_functions_are_written_out_where_they_are_called() -> None:
    assert construct(BRANCH) == [
        "if go:",
        "    exp = self.exp(x)",
        "    chosen = exp",
        "else:",
        "    chosen = x",
        "neg = self.neg(chosen)",
        "return neg",
    ]
    assert construct(LOOP) == [
        "i = n",
        "v = x",
        "less = self.less(i, i)",
        "while less:",
        "    neg = self.neg(i)",
        "    add = self.add(v, self.w)",
        "    i, v = neg, add",
        "    less = self.less(i, i)",
        "mul = self.mul(v, self.w)",
        "return mul",
    ]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("Switch(%c, %b, %e)", "Switch(%c, %e, %b)", "not as a loop that goes on while its condition holds"),
        ("call(@head, %j, %u, %w)", "call(@head, %j, %u, %u)", "goes on with another state"),
        (
            "%r = call(@head, %j, %u, %w) : float32[2]\n    return %r",
            "%r = call(@head, %j, %u, %w) : float32[2]\n    %z = Neg(%r)\n    return %z",
            "more than 40 deep",
        ),
        (
            "%r = call(@head, %j, %u, %w) : float32[2]\n    return %r\n  }",
            "%p = Partial(@more, %j, %u, %w)\n    %q = Partial(@after, %u, %w)\n"
            "    %t = Less(%j, %i) : bool[]\n    %s = Switch(%t, %p, %q)\n"
            "    %r = call(%s) : float32[2]\n    return %r\n  }\n"
            "  func @more(%i: int32[], %v: float32[2], %w: float32[2]) {\n"
            "    %r = call(@head, %i, %v, %w) : float32[2]\n    return %r\n  }",
            "one of its branches leaves a loop",
        ),
    ],
)
def test_loops_that_python_has_no_form_for_are_refused(old: str, new: str, says: str) -> None:
    assert old in LOOP
    with pytest.raises(PassError, match=says):
        construct(LOOP.replace(old, new))


def test_functions_that_would_grow_out_of_all_proportion_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("boost_compile.ir.formats.python.source._MOST_LINES", 3)
    with pytest.raises(PassError, match="written out where they are called, take more than 3 lines"):
        construct(BRANCH)

"""The text form: what is printed reads back to the same; what people write by hand is understood or explained."""

from __future__ import annotations

import math
import re
import struct
from pathlib import Path
from typing import Any

import pytest
from boost_compile.ir.analysis.compare.equal import same
from boost_compile.ir.core.attributes import Number, TensorValue, bits
from boost_compile.ir.core.data import BytesData, ZeroData
from boost_compile.ir.core.errors import Error, FormatError
from boost_compile.ir.core.graph import Constant, Graph, Input, Origin
from boost_compile.ir.core.op import CALL, Op
from boost_compile.ir.core.program import Entry, Program, Schedule
from boost_compile.ir.core.types import UMONAD, DType, TensorType, Type, tensor
from boost_compile.ir.formats.mindir.reader import read_mindir
from boost_compile.ir.text import parse_graph, parse_program, print_graph, print_program
from boost_compile.ir.text.literals import LiteralScanner
from boost_compile.ir.text.spelling import Resources, Spelling
from hypothesis import given, settings

from tests.equality import programs_equal, structurally_equal
from tests.ir import strategies

UPDATE = """
state %w: float32[2] role=weight
graph @step(%x: float32[2]) -> (loss) {
  %a = AssignAdd(%w, %x, umonad)
  %u = UpdateState(umonad, %a)
  %r = Depend(%x, %u)
  return %r
}
"""


def read_value(text: str) -> Any:
    scanner = LiteralScanner(text)
    value = scanner.value()
    assert scanner.at_end(), text[scanner.pos :]
    return value


def through_text(value: Any) -> Any:
    resources = Resources()
    scanner = LiteralScanner(Spelling(resources).value(value) + "\n" + "\n".join(resources.lines()))
    if resources.data:
        scanner.load_resources(scanner.text.index("\nresources {"))
    return scanner.value()


# -- round trips -----------------------------------------------------------------------------------------------


@given(strategies.values)
def test_values_round_trip_by_bits(value: Any) -> None:
    assert bits(through_text(value)) == bits(value)


@given(strategies.types)
def test_types_round_trip(type_: Type) -> None:
    scanner = LiteralScanner(str(type_))
    assert scanner.type() == type_
    assert scanner.at_end()


@settings(max_examples=50)
@given(strategies.programs())
def test_programs_round_trip(program: Program) -> None:
    text = print_program(program)
    read = parse_program(text)
    assert programs_equal(program, read) is None
    assert print_program(read) == text


def in_parts(text: str) -> str:
    """The same text with a comment behind each line, so that no line is read in one piece."""
    return text.replace("\n", "  // its end\n")


@settings(max_examples=50)
@given(strategies.programs())
def test_a_line_reads_the_same_in_one_piece_and_in_parts(program: Program) -> None:
    text = print_program(program)
    assert print_program(parse_program(in_parts(text))) == text == print_program(parse_program(text))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%y = Neg(%x) : float32[2]xyz", "found 'xyz'"),
        ("%y = Neg(%x, %z) : float32[2]", "%z is not defined"),
        ("%first = Neg(%x) : float32[2]", "%first is defined twice"),
        ('%y = Neg(%x) : float32[2] marks {a = "1", a = "2"}', "'a' is given twice"),
        ('%y = Neg(%x) : float32[2] primal {a = }', "expected a value"),
        ('%y = Neg(%x) : float99[2] scope("s")', "unknown element type"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_told_the_same_in_one_piece_and_in_parts(line: str, message: str) -> None:
    text = f"graph @g(%x: float32[2]) {{\n  %first = Neg(%x) : float32[2]\n  {line}\n  return %first\n}}\n"
    told = []
    for written in (text, in_parts(text)):
        with pytest.raises(FormatError) as error:
            parse_graph(written)
        told.append(str(error.value).partition("\n")[0])
    assert message in told[0]
    assert told[0] == told[1]


@settings(max_examples=50)
@given(strategies.programs())
def test_display_form_is_readable_again(program: Program) -> None:
    text = print_program(program, annotations=False, resources=False)
    read = parse_program(text)
    graph = program.graphs[next(iter(program.graphs))]
    assert [len(g) for g in read.graphs[graph.name].all_graphs()] == [len(g) for g in graph.all_graphs()]
    assert print_program(read, annotations=False, resources=False) == text


@pytest.mark.parametrize("case", ["mlp", "mlp_loss_scale_dynamic", "dropout", "loop", "printing"])
def test_exported_files_round_trip(case: str, exported: Any) -> None:
    program = read_mindir(exported(case))
    text = print_program(program)
    read = parse_program(text)
    assert programs_equal(program, read) is None
    assert print_program(read) == text


# -- numbers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (struct.unpack("<f", struct.pack("<f", 0.1))[0], "0.1"),
        (0.1, "0.1d"),
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e-45, "1e-45d"),
        (struct.unpack("<f", b"\x01\0\0\0")[0], "1.4013e-45"),
        (3.4028234663852886e38, "3.4028235e+38"),
        (1e39, "1e+39d"),
        (16777216.0, "16777216.0"),
        (math.nan, "nan"),
        (struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0], "nan<0x7ff8000000000001>"),
        (-math.inf, "-inf"),
        (True, "true"),
        (1, "1"),
        (Number(DType.INT32, 1), "int32<1>"),
        (Number(DType.FLOAT64, 0.1), "float64<0.1>"),
        ((1,), "(1,)"),
        ((), "()"),
        ("▸\n\u200b", '"▸\\n\\u200b"'),
        (b'\0"a', 'b"\\x00\\"a"'),
    ],
)
def test_spelling(value: Any, text: str) -> None:
    assert Spelling(Resources()).value(value) == text
    assert bits(read_value(text)) == bits(value)


@pytest.mark.parametrize(
    ("type_", "raw", "text"),
    [
        (tensor("float32"), struct.pack("<f", 0.1), "float32[]<0.1>"),
        (tensor("float16", 2), struct.pack("<2e", 0.1, -0.0), "float16[2]<0.1, -0.0>"),
        (tensor("float64", 1), struct.pack("<d", 0.1), "float64[1]<0.1>"),
        (tensor("float32", 1), b"\x01\0\x80\x7f", "float32[1]<0x0100807f>"),
        (tensor("float32", 1), b"\0\0\xc0\x7f", "float32[1]<nan>"),
        (tensor("bfloat16", 1), b"\x80\x3f", "bfloat16[1]<0x803f>"),
        (tensor("bool", 2), b"\0\1", "bool[2]<false, true>"),
        (tensor("bool", 1), b"\2", "bool[1]<0x02>"),
        (tensor("int8", 8), bytes(8), "int8[8]<0, 0, 0, 0, 0, 0, 0, 0>"),
        (tensor("int32", 8), bytes(32), "int32[8]<zeros>"),
        (tensor("int32", 0), b"", "int32[0]<0x>"),
        (tensor("int32", 2), b"\1\0\0\0", "int32[2]<0x01000000>"),
    ],
)
def test_spelling_of_tensors(type_: TensorType, raw: bytes, text: str) -> None:
    assert Spelling(Resources()).value(TensorValue(type_, BytesData(raw))) == text
    read = read_value(text)
    assert read.type == type_
    assert bytes(read.data.view()) == raw


def test_equal_big_data_is_written_once() -> None:
    g = Graph("g")
    big = TensorValue(tensor("int32", 100), BytesData(b"\1" * 400))
    twin = TensorValue(tensor("int32", 4, 25), BytesData(b"\1" * 400))
    g.result = g.create("MakeTuple", [g.constant(big), g.constant(twin)])
    text = print_graph(g)
    first, second = re.findall(r"= int32\[[0-9,]+\]<sha256:([0-9a-f]+)>", text)
    assert first == second
    assert len(text[text.index("resources {") :].splitlines()) == 3
    assert structurally_equal(parse_graph(text), g) is None


def test_zeros_are_not_written_out() -> None:
    program = parse_program("state %w: float32[1000000]\ngraph @g() {\n  return 1\n}\n")
    text = print_program(program)
    assert "state %w: float32[1000000]<zeros>" in text
    assert len(text) < 200
    program.state["w"].data = BytesData(bytes(4_000_000))
    assert print_program(program) == text
    program.state["w"].data = BytesData(bytes(3_999_999) + b"\x80")
    assert "zeros" not in print_program(program)


# -- names -----------------------------------------------------------------------------------------------------


def test_clashing_names_are_made_unique_in_order() -> None:
    g = Graph("g")
    x = g.add_input("x", tensor("float32"))
    a = g.create("Exp", [x], name="a")
    b = g.create("Exp", [a], name="a")
    c = g.create("Exp", [b], name="a_1")
    d = g.create("Exp", [c], name="x")
    g.result = d
    body = [line.strip() for line in print_graph(g, annotations=False).splitlines()[1:5]]
    assert body == [
        "%a = Exp(%x) : float32[]",
        "%a_2 = Exp(%a) : float32[]",
        "%a_1 = Exp(%a_2) : float32[]",
        "%x_1 = Exp(%a_1) : float32[]",
    ]


def test_names_are_quoted_only_where_needed() -> None:
    g = Graph("▸g")
    x = g.add_input("a.b/c-d$e:1", tensor("float32"))
    y = g.create("Exp", [x], name="ends:")
    z = g.create("Exp", [y], name='q"')
    g.result = g.create("Exp", [z], name="a//b")
    text = print_graph(g, annotations=False)
    assert 'graph @"▸g"(%a.b/c-d$e:1: float32[])' in text
    assert '%"ends:" = Exp(%a.b/c-d$e:1)' in text
    assert '%"q\\"" = Exp(%"ends:")' in text
    assert '%"a//b" = Exp(%"q\\"")' in text
    assert structurally_equal(parse_graph(text), g) is None


# -- the printed form ------------------------------------------------------------------------------------------


def test_display_form_leaves_notes_out() -> None:
    g = Graph("g")
    g.attributes, g.info = {"training": True}, {"hash": "x"}
    op = Op("MatMul", {"input_names": ["x"], "transpose": True}, "matmul", 1)
    node = g.create(op, [g.add_input("x", tensor("float32"))], tensor("float32"), scope="Default/a", name="y")
    node.marks, node.primal, node.origin = {"m": 1}, {"p": 1}, Origin(("s",), ("pass",))
    g.result = node
    assert print_graph(g, annotations=False) == (
        "graph @g(%x: float32[]) {\n  %y = MatMul(%x) {transpose = true} : float32[]\n  return %y\n}\n"
    )
    full = print_graph(g)
    for part in (
        "attributes {training = true}",
        'info {hash = "x"}',
        'input_names = ["x"]',
        'instance("matmul")',
        "kind(1)",
    ):
        assert part in full
    for part in ('scope("Default/a")', "marks {m = 1}", "primal {p = 1}", 'origin("s"; "pass")'):
        assert part in full


def test_attributes_of_the_op_table_are_left_out() -> None:
    program = parse_program(UPDATE)
    graph = program.graphs["step"]
    assign = next(iter(graph))
    assert assign.op.attributes == {"side_effect_mem": True}
    assert "side_effect" not in print_graph(graph)
    assign.op = Op("AssignAdd", {}, kind=2)
    assert "AssignAdd(%w, %x, %const.1) {} exact" in print_graph(graph)
    assign.op = Op("AssignAdd", {"a": 1, "side_effect_mem": True}, kind=2)
    assert "{a = 1, side_effect_mem = true} exact" in print_graph(graph)
    assert list(next(iter(parse_graph(print_graph(graph)))).op.attributes) == ["a", "side_effect_mem"]


def test_a_call_reads_as_the_call_primitive() -> None:
    g = parse_graph(
        "graph @g(%x: int32[]) {\n %r = call(@f, %x) : int32[]\n return %r\n func @f(%x: int32[]) {\n return %x\n }\n}"
    )
    assert next(iter(g)).op is CALL
    assert CALL is parse_graph(print_graph(g)).result.op  # type: ignore[attr-defined]


def test_functions_keep_their_order_whoever_mentions_them_first() -> None:
    text = (
        "graph @g() {\n  %a = Partial(@c)\n  return %a\n\n"
        "  func @b() {\n    %r = call(@c) : int64\n    return %r\n  }\n\n"
        "  func @c() {\n    return 1\n  }\n}\n"
    )
    g = parse_graph(text)
    assert list(g.functions) == ["b", "c"]
    assert print_graph(g, annotations=False) == text


def test_elided_constants_are_told_apart_by_hash() -> None:
    g = Graph("g")
    big = [TensorValue(tensor("uint8", 300), BytesData(bytes([i]) * 300)) for i in (1, 2, 1)]
    g.result = g.create("MakeTuple", [Constant(str(i), v) for i, v in enumerate(big)])
    text = print_graph(g, annotations=False, resources=False)
    assert text.count("uint8[300]<elided 300 sha256:") == 3
    read = parse_graph(text)
    first, second, third = (bits(v.value) for v in next(iter(read)).operands)  # type: ignore[attr-defined]
    assert first == third != second


def test_elided_data_fails_only_when_needed() -> None:
    program = parse_program("state %w: float32[100]\ngraph @g() {\n  return %w\n}\n")
    program.state["w"].data = BytesData(b"\1" * 400)
    text = print_program(program, annotations=False, resources=False)
    assert "state %w: float32[100]<elided 400>" in text
    read = parse_program(text)
    assert read.state["w"].data.nbytes == 400
    with pytest.raises(FormatError, match="elides 400 bytes of data: print it with resources"):
        _ = read.state["w"].initial


# -- hand-written text -----------------------------------------------------------------------------------------


def test_what_hand_written_text_may_leave_out() -> None:
    program = parse_program(UPDATE)
    graph = program.graphs["step"]
    assert program.schedule == Schedule((Entry("step"),))
    assert isinstance(program.state["w"].data, ZeroData)
    a, u, r = graph
    assert (a.type, u.type, r.type) == (TensorType(DType.FLOAT32, (2,), "w"), UMONAD, tensor("float32", 2))
    assert a.operand(0) is graph.state("w")
    assert a.operand(2) is u.operand(0)
    assert a.op.kind == 2
    assert graph.constant(a.operand(2).value) is a.operand(2)  # type: ignore[attr-defined]


def test_line_ends_and_comments() -> None:
    dos = UPDATE.replace("\n", " // comment\r\n").replace("(%w,", "(\n  // inside\n %w,")
    assert programs_equal(parse_program(dos), parse_program(UPDATE)) is None


GRAPH = "graph @g(%x: float32[2,3], %c: bool[]) {{\n{}\n  return %x\n}}\n"


@pytest.mark.parametrize(
    ("line", "row", "column", "message"),
    [
        ("  %a = Add(%x, %y)", 2, 16, "%y is not defined in graph @g (known: c, x)"),
        ("  %a = Add(%x, %x)\n  %b = Exp(%aa)", 3, 12, "%aa is not defined in graph @g (did you mean 'a'?)"),
        ("  %a = Add(%x, %b)\n  %b = Exp(%x)", 2, 16, "%b is used before its definition on line 3"),
        ("  %a = Add(%x %x)", 2, 15, "expected ',' or ')' after an operand, found '%'"),
        ("  %a = Add(%x, %x", 3, 3, "expected ',' or ')' after an operand, found 'return'"),
        ("  %a = Conv(%x)", 2, 8, "the type of Conv has to be written: expected ': type'"),
        ("  %a = Add(%x, %c)", 2, 8, "Add of float32 and bool: insert a Cast"),
        ("  %a = Add(%x)", 2, 8, "Add cannot take these operands: (%x: float32[2,3])"),
        ("  %a = Exp(%x) : float23[2]", 2, 18, "unknown element type 'float23' (known: bool, int8"),
        ("  %a = Exp(%x) : float32[2,,]", 2, 18, "is no shape"),
        ("  %a = Exp(%x) : %x", 2, 18, "expected a type"),
        ("  %a = Exp(%x) : float32[2] scoop", 2, 29, "expected the end of the line, found 'scoop'"),
        ("  %a = Exp(%x) %b = Exp(%x)", 2, 16, "expected the end of the line, found '%'"),
        ("  %x = Exp(%x)", 2, 3, "%x is defined twice in graph @g"),
        ("  %a = Exp(%x) {k = }", 2, 21, "expected a value"),
        ("  %a = Exp(%x) {k = 1, k = 2}", 2, 24, "'k' is given twice"),
        ("  %a = Exp(%x) {k = (1)}", 2, 21, "a tuple of one value is written with a comma"),
        ("  %a = Exp(%x) {k = 1e39}", 2, 21, "1e39 does not fit a float32 (write 1e39d for a float64)"),
        ('  %a = Exp(%x) {k = "abc}', 2, 21, "this string does not end on its line"),
        ('  %a = Exp(%x) {k = "a\\q"}', 2, 25, "unknown escape '\\q'"),
        ("  const %k = int32[2]<1, 2, 3>", 2, 23, "3 elements for a tensor of type int32[2], which has 2"),
        ("  const %k = int8[1]<300>", 2, 22, "an element does not fit int8"),
        (
            "  const %k = float32[100]<sha256:0123456789abcdef>",
            2,
            27,
            "the resource section holds no sha256:0123456789abcdef",
        ),
        ("  state %w = 1", 2, 12, "expected ':' and the type of state %w, found '='"),
        ("  %p = Partial(@f)", 2, 16, "no function @f in graph @g"),
        ("  nonsense", 2, 3, "expected '%name = …', 'const', 'state', 'return', 'func' or '}', found 'nonsense'"),
        ("  return %x", 3, 3, "graph @g returns twice"),
    ],
)
def test_errors_point_at_the_place(line: str, row: int, column: int, message: str) -> None:
    text = GRAPH.format(line)
    with pytest.raises(FormatError) as caught:
        parse_graph(text, "file.ir")
    first, shown, caret = str(caught.value).splitlines()
    assert message in first
    assert first.startswith(f"file.ir:{row}:{column}: ")
    assert shown == "  " + text.splitlines()[row - 1]
    assert caret == "  " + " " * (column - 1) + "^"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected 'program', 'state' or 'graph', found the end of the text"),
        ("graph @g() {\n}", "graph @g has no 'return %value'"),
        ("graph @g() {\n  return 1", "expected '%name = …'"),
        ("graph @g() {\n  return 1\n}\ngraph @g() {\n  return 1\n}", "graph @g is defined twice"),
        ("graph @g() {\n  return 1\n}\nstate %w: int32[]", "state declarations stand before the graphs"),
        ("program @p {\n  shedule @g\n}", "no such line in a program's header: 'shedule' (did you mean 'schedule'?)"),
        ("state %w: int64\n", "state is a tensor, not int64"),
        ("state %w: int32[]\nstate %w: int32[]\n", "state %w is declared twice"),
        ("state %w: int32[] role=wait\n", "no such role: 'wait'"),
        ('graph @g() {\n  return 1\n}\nresources {\n  sha256:0123456789abcdef "AAAA"\n}', "do not have that hash"),
        ('graph @g() {\n  return 1\n}\nresources {\n  sha256:0123456789abcdef "A"\n}', "this is no base64 text"),
        ('graph @g() {\n  return 1\n}\nresources {\n  sha256:0123456789abcdef "AA!AA"\n}', "this is no base64 text"),
        ("graph @g() {\n  return " + "1" * 4001 + "\n}", "a number of 4001 digits"),
        ("graph @g() {\n  return 1\n}\nresources {\n}\nmore", "expected the end of the text"),
        (
            "state %w: int32[]\ngraph @g() {\n return 1\n func @f() {\n return %w\n }\n}",
            "%w is program state, which a function cannot use directly: pass it in through Partial",
        ),
    ],
)
def test_errors_of_programs(text: str, message: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_program(text)
    assert message in str(caught.value)


def test_hostile_nesting_is_an_error() -> None:
    for deep in ("(" * 100_000, "[" * 100_000, "{a=" * 100_000):
        with pytest.raises(FormatError, match="nested more than 64 deep"):
            parse_graph(f"graph @g() {{\n  const %k = {deep}")
    with pytest.raises(FormatError, match="nested more than 64 deep"):
        parse_graph(f"graph @g(%x: {'(' * 100_000}")


def test_long_lines_are_shown_in_part() -> None:
    operands = ", ".join(["%x"] * 5000)
    with pytest.raises(FormatError) as caught:
        parse_graph(GRAPH.format(f"  %a = MakeTuple({operands}, %nowhere)"))
    assert max(map(len, str(caught.value).splitlines())) < 250
    assert "%nowhere" in str(caught.value).splitlines()[1]


def test_damaged_text_gives_errors_of_ours_only() -> None:
    """Every prefix and many one-character changes of a text either parse or raise an Error."""
    text = print_program(parse_program(UPDATE))
    for i in range(len(text)):
        for damaged in (text[:i], text[:i] + text[i + 1 :], text[:i] + "(" + text[i + 1 :], text[:i] + "9" + text[i:]):
            try:
                parse_program(damaged)
            except Error:
                continue


# -- width -----------------------------------------------------------------------------------------------------


def test_wide_nodes_round_trip() -> None:
    g = Graph("g")
    x = g.add_input("x", tensor("float32"))
    wide = g.create("MakeTuple", [x] * 64_000)
    g.result = g.create("AddN", [wide])
    read = parse_graph(print_graph(g))
    assert structurally_equal(g, read) is None
    assert next(iter(read)).num_operands == 64_000


# -- equality --------------------------------------------------------------------------------------------------


def changed(text: str) -> Graph:
    return parse_graph(text)


BASE = """graph @g(%x: float32[2], %y: float32[2]) -> (out) {
  %a = Add(%x, %y) : float32[2] scope("s")
  %b = Mul(%a, float32[]<0.0>) {k = 1} : float32[2] marks {m = 1} primal {p = 1} origin("s"; "p")
  %r = call(@f, %b) : float32[2]
  return %r

  func @f(%v: float32[2]) {
    return %v
  }
}
"""


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ("Add(%x, %y)", "Add(%y, %x)", "node 0, %a: operand 0: %x ≠ %y"),
        ("Add(%x, %y)", "Add(%x, %y, %y)", "node 0, %a: number of operands: 2 ≠ 3"),
        ("Add(%x", "Sub(%x", "node 0, %a: primitive: 'Add' ≠ 'Sub'"),
        ('scope("s")', "", "node 0, %a: scope: 's' ≠ ''"),
        ("<0.0>", "<-0.0>", "node 1, %b: operand 1: constant"),
        ("k = 1", "k = true", "node 1, %b: attributes: {'k': 1} ≠ {'k': True}"),
        ("} : float32[2] marks", "} : float32[2] kind(1) marks", "node 1, %b: kind: 2 ≠ 1"),
        ("m = 1", "m = 2", "node 1, %b: marks: {'m': 1} ≠ {'m': 2}"),
        ("p = 1", "p = 2", "node 1, %b: primal: {'p': 1} ≠ {'p': 2}"),
        ('"s"; "p"', '"s"', "node 1, %b: origin"),
        ("@f, %b) : float32[2]", "@f, %b) : float32[?]", "node 2, %r: type: float32[2] ≠ float32[?]"),
        ("return %r", "return %b", "result: %r ≠ %b"),
        ("(out)", "(in)", "outputs [0]: 'out' ≠ 'in'"),
        ("%y: float32[2]", "%y: float32[3]", "inputs: %y: float32[2] ≠ %y: float32[3]"),
        ("return %v", "return 1", "function 'f': result: %v ≠ constant 1"),
        ("@f", "@h", "functions [0]: 'f' ≠ 'h'"),
        ("  return %r", "  %z = Exp(%x)\n  return %r", "number of nodes: 3 ≠ 4"),
        ("{\n  %a", "{\n  attributes {q = 1}\n  %a", "attributes: {} ≠ {'q': 1}"),
        ("{\n  %a", "{\n  info {q = 1}\n  %a", "info: {} ≠ {'q': 1}"),
        ("{\n  %a", "{\n  state %w: int32[]\n  %a", "states: [] ≠ ['w']"),
    ],
)
def test_differences_are_found_and_told(old: str, new: str, difference: str) -> None:
    base, other = parse_graph(BASE), BASE.replace(old, new)
    assert other != BASE
    found = structurally_equal(base, parse_graph(other))
    assert found is not None
    assert found.startswith(difference)
    assert "\n" not in found


def test_names_of_nodes_do_not_matter() -> None:
    assert structurally_equal(parse_graph(BASE), parse_graph(BASE.replace("%a", "%n"))) is None


def test_one_constant_may_be_two() -> None:
    g, h = Graph("g"), Graph("g")
    g.result = g.create("MakeTuple", [g.constant(1.5), g.constant(1.5)])
    h.result = h.create("MakeTuple", [Constant("a", 1.5), Constant("b", 1.5)])
    assert structurally_equal(g, h) is None
    assert structurally_equal(h, g) is None


def test_programs_differ_by_state_bytes_and_schedule() -> None:
    a, b = parse_program(UPDATE), parse_program(UPDATE)
    b.state["w"].data = BytesData(struct.pack("<2f", 0.0, -0.0))
    assert programs_equal(a, b) == "state 'w': the initial values differ"
    c = parse_program(UPDATE)
    c.schedule = Schedule((Entry("step", 2),))
    assert str(programs_equal(a, c)).startswith("schedule")


def test_same_is_by_bits() -> None:
    nan = struct.unpack("<d", struct.pack("<Q", 0x7FF8000000000001))[0]
    assert same({"a": [math.nan]}, {"a": [math.nan]})
    assert not same(math.nan, nan)
    assert not same(0.0, -0.0)
    assert not same(1, True)
    assert not same((1,), [1])
    assert same(Number(DType.FLOAT64, math.nan), Number(DType.FLOAT64, math.nan))


def test_an_input_is_no_state_of_the_same_name(tmp_path: Path) -> None:
    g, h = Graph("g"), Graph("g")
    x = g.add_input("x", tensor("float32"))
    g.result = x
    h.add_input("x", tensor("float32"))
    h.result = Constant("x", 1.0)
    assert isinstance(g.result, Input)
    assert str(structurally_equal(g, h)).startswith("result")

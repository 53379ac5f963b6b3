"""One broken graph for every rule of the verifier; and that sound graphs, exported ones too, pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from boost_compile.ir.attributes import MonadValue
from boost_compile.ir.data import ZeroData
from boost_compile.ir.errors import VerifyError
from boost_compile.ir.graph import Graph
from boost_compile.ir.mindir.reader import read_mindir
from boost_compile.ir.program import Entry, Program, Schedule, StateVariable
from boost_compile.ir.text import parse_graph, parse_program
from boost_compile.ir.types import UNKNOWN, TensorType, tensor
from boost_compile.ir.values import Constant, GraphRef, Input, Node, Op, State
from boost_compile.ir.verify import verify

F = tensor("float32", 2)


def problems(subject: Program | Graph, limit: int = 20) -> str:
    with pytest.raises(VerifyError) as caught:
        verify(subject, limit)
    return str(caught.value)


def only(subject: Program | Graph) -> str:
    """The report, which must tell of one problem alone: a rule that drags others along hides what is wrong."""
    report = problems(subject)
    assert ": 1 problem\n" in report, report
    return report


def nodes(graph: Graph) -> dict[str, Node]:
    return {n.name: n for n in graph}


def chain() -> tuple[Graph, Node, Node, Node]:
    g = Graph("g")
    x = g.add_input("x", F)
    a = g.create("Exp", [x], name="a", scope="Default/a-op")
    b = g.create("Neg", [a], name="b", scope="Default/b-op")
    c = g.create("Sqrt", [b], name="c", scope="Default/c-op")
    g.result = c
    return g, a, b, c


UPDATE = """
state %w: float32[2] role=weight
state %m: float32[2] role=slot
graph @step(%x: float32[2]) -> (loss) {
  %l = Load(%w, umonad)
  %y = Mul(%x, %l)
  %a = AssignAdd(%w, %x, umonad)
  %u = UpdateState(umonad, %a, %l)
  %r = Depend(%y, %u)
  return %r
}
"""

SWITCH = """
state %w: float32[2] role=weight
graph @step(%x: float32[2], %go: bool[]) -> (loss) {
  %yes = Partial(@yes, %w, %x, umonad)
  %no = Partial(@no)
  %s = Switch(%go, %yes, %no)
  %r = call(%s) : float32[2]
  %u = UpdateState(umonad, %r)
  %d = Depend(%r, %u)
  return %d
  func @yes(%w: float32[2], %x: float32[2], %u: umonad) {
    %a = AssignAdd(%w, %x, %u)
    %v = UpdateState(%u, %a)
    %d = Depend(%x, %v)
    return %d
  }
  func @no() {
    return float32[2]<zeros>
  }
}
"""


def edited(text: str, old: str, new: str) -> Program:
    assert text.count(old) >= 1
    return parse_program(text.replace(old, new))


# -- what is sound ---------------------------------------------------------------------------------------------


def test_sound_graphs_pass() -> None:
    verify(chain()[0])
    verify(parse_program(UPDATE))
    verify(parse_program(SWITCH))
    verify(parse_program(SWITCH).graphs["step"])
    verify(parse_program(SWITCH).graphs["step"].functions["yes"])


@pytest.mark.parametrize(
    "case", ["mlp", "mlp_loss_scale_dynamic", "mlp_rprop", "lenet_bn", "gpt_tied", "lstm", "loop", "branch", "printing"]
)
def test_exported_graphs_pass(case: str, exported: Callable[[str], Any]) -> None:
    verify(read_mindir(exported(case)))


def test_a_state_may_be_read_without_a_load() -> None:
    verify(edited(UPDATE, "Mul(%x, %l)", "Mul(%x, %w)"))


def test_a_batch_norm_that_is_not_training_writes_nothing() -> None:
    text = """
graph @g(%x: float32[1,2,3,3], %s: float32[2]) {{
  %y = BatchNorm(%x, %s, %s, %s, %s, {}, 1e-5, 0.9, "NCHW") {} exact : (float32[1,2,3,3], float32[2])
  return %y
}}"""
    verify(parse_graph(text.format("false", "{}")))
    report = problems(parse_graph(text.format("true", "{side_effect_mem = true}")))
    assert "BatchNorm writes operand 3, %s (float32[2]), in place, which is not state" in report
    assert "BatchNorm writes operand 4" in report


# -- the report ------------------------------------------------------------------------------------------------


def test_a_problem_names_its_place_and_shows_it() -> None:
    g, _a, _b, c = chain()
    c.type = tensor("float32", 3)
    assert problems(g) == (
        "graph 'g' is not valid: 1 problem\n"
        "- graph 'g', node %c (scope Default/c-op): its type is float32[3], but Sqrt of these operands "
        "gives float32[2]; give it that type, or fix the operands\n"
        "    %a = Exp(%x) : float32[2]\n"
        "    %b = Neg(%a) : float32[2]\n"
        "  > %c = Sqrt(%b) : float32[3]"
    )


def test_all_problems_are_told_up_to_a_limit_the_gravest_first() -> None:
    g = Graph("g")
    x = g.add_input("x", F)
    for _ in range(30):
        g.create("Exp", [x], tensor("float32", 3))
    last = g.create("Exp", [x], F, name="last")
    g.result = last
    del x.uses[last]
    report = problems(g, limit=5)
    assert "graph 'g' is not valid: 31 problems" in report
    assert "%last: operand 0, %x (float32[2]), does not list the node as a user" in report.splitlines()[1]
    assert report.count("\n- ") == 5
    assert report.endswith("… and 26 more")


def test_wide_lines_are_cut() -> None:
    g = Graph("g")
    x = g.add_input("x", F)
    g.result = g.create("MakeTuple", [x] * 5000, F)
    assert max(map(len, problems(g).splitlines())) < 500


# -- lists and use-lists ---------------------------------------------------------------------------------------


def test_use_that_a_value_does_not_list() -> None:
    g, a, _b, _ = chain()
    a.uses.clear()
    assert "node %b (scope Default/b-op): operand 0, %a (float32[2]), does not list the node as a user" in only(g)


def test_use_listed_at_the_wrong_place() -> None:
    g, a, b, _ = chain()
    a.uses[b] = 1
    assert "%b (scope Default/b-op): operand 0, %a (float32[2]), does not list the node as a user" in problems(g)
    a.uses[b] = {0, 1}
    assert "%a (float32[2]) lists operand 1 of %b as a use, which it is not" in only(g)


def test_use_by_a_node_that_is_gone() -> None:
    g, a, _b, _c = chain()
    stray = Node("stray", F, Op("Exp"))
    stray.set_operands([a])
    assert "%a (float32[2]) lists operand 0 of %stray as a use, which it is not" in only(g)


def test_operands_set_behind_the_use_lists() -> None:
    g, a, _b, c = chain()
    c._operands[0] = a
    report = problems(g)
    assert "%c (scope Default/c-op): operand 0, %a (float32[2]), does not list the node as a user" in report


def test_a_use_by_the_return_counts() -> None:
    g, _a, _b, c = chain()
    c.uses.clear()
    report = only(g)
    assert "graph 'g', its result: operand 0, %c (float32[2]), does not list the node as a user" in report
    assert report.endswith("  > return %c")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda g, a, b, c: setattr(b, "_prev", None), "%b does not point back to the node before it"),
        (lambda g, a, b, c: setattr(g, "_count", 5), "its list holds 3 nodes, its count is 5, or its end is wrong"),
        (lambda g, a, b, c: setattr(g, "_last", b), "its end is wrong"),
        (lambda g, a, b, c: setattr(b, "graph", None), "%b stands in the list but belongs to no graph (it was erased)"),
        (lambda g, a, b, c: setattr(b, "graph", Graph("h")), "%b stands in the list but belongs to graph 'h'"),
    ],
)
def test_broken_list(damage: Callable[..., None], message: str) -> None:
    g, a, b, c = chain()
    damage(g, a, b, c)
    report = only(g)
    assert "the list of nodes is broken: " in report
    assert message in report


def test_circular_list_ends() -> None:
    g, a, _b, c = chain()
    c._next, a._prev = a, c
    g._first = a
    assert "the list of nodes is broken" in only(g)


# -- definitions -----------------------------------------------------------------------------------------------


def test_use_before_definition() -> None:
    g, a, _b, _c = chain()
    g.move(a, None)
    report = only(g)
    assert (
        "node %b (scope Default/b-op): operand 0, <%a = Exp(%x): float32[2]>, is used before its definition" in report
    )
    assert "call graph.sort()" in report
    g.sort()
    verify(g)


def test_a_node_that_uses_itself() -> None:
    g, a, _, _ = chain()
    a.set_operand(0, a)
    assert "operand 0, <%a = Exp(%a): float32[2]>, is used before its definition" in only(g)


def test_operand_that_was_erased() -> None:
    g, _a, b, _c = chain()
    g._unlink(b)
    report = problems(g)
    assert (
        "%c (scope Default/c-op): operand 0, <%b = Neg(%a): float32[2]>, stands in no graph (it was erased)" in report
    )


def test_operand_of_another_graph() -> None:
    _g, a, _b, _c = chain()
    h, *_ = chain()
    h.name = "h"
    next(iter(h)).set_operand(0, a)
    report = problems(h)
    assert "belongs to graph 'g'; a graph uses only its own values" in report


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Input("q", F), "<Input %q: float32[2]>, belongs to another graph"),
        (State("q", F), "<State %q: float32[2]>, is not among the graph's states; refer to state with graph.state"),
    ],
)
def test_foreign_inputs_and_states(value: Any, message: str) -> None:
    g, a, *_ = chain()
    a.set_operand(0, value)
    assert message in problems(g)


def test_operand_that_is_no_value() -> None:
    g, a, *_ = chain()
    a._operands[0] = 3.0  # type: ignore[call-overload]
    assert "operand 0, 3.0, is no value; give it an input" in problems(g)


def test_free_variables_of_functions() -> None:
    program = parse_program(SWITCH)
    step = program.graphs["step"]
    yes = step.functions["yes"]
    nodes(yes)["a"].set_operand(1, step.inputs[0])
    assert "function 'yes', node %a: operand 1, <Input %x: float32[2]>, belongs to" in problems(program)
    program = parse_program(SWITCH)
    step = program.graphs["step"]
    nodes(step.functions["yes"])["a"].set_operand(0, step.state("w"))
    report = problems(program)
    assert "is state, which a function cannot use directly; pass it in through Partial" in report


def test_result_missing_or_foreign() -> None:
    g = Graph("g")
    assert "graph 'g': it has no result; set graph.result" in only(g)
    g.result = Graph("h").add_input("x", F)
    assert "graph 'g', its result: <Input %x: float32[2]> belongs to another graph" in problems(g)


def test_functions_are_resolvable() -> None:
    program = parse_program(SWITCH)
    step = program.graphs["step"]
    stranger = Graph("yes", step)
    nodes(step)["yes"].set_operand(0, step.reference(stranger))
    assert "is no function of graph 'step'; make it with add_function" in problems(program)
    nodes(step)["yes"].set_operand(0, GraphRef(step.functions["yes"], F))
    assert "has no function type" in problems(program)


# -- types -----------------------------------------------------------------------------------------------------


def test_unknown_types_only_on_nodes_of_the_file() -> None:
    g = Graph("g")
    x = g.add_input("x", F)
    g.result = g.create("Mystery", [x], UNKNOWN)
    verify(g)
    g.editor = "my-pass"
    g.result = g.create("Mystery", [g.result], UNKNOWN)
    assert "its type is not known, though pass 'my-pass' made it; give the type to graph.create" in only(g)
    g.result.type = None  # type: ignore[assignment]
    assert "its type is None; give it a type of ir.types" in only(g)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("%a = Add(%x, %x) : float16[2]", "its type is float16[2], but Add of these operands gives float32[2]"),
        ("%a = Add(%x, %h) : float16[2]", "Add of float32 and float16: insert a Cast"),
        ("%a = Add(%h, %f) : float16[2]", "Add of float16 and bfloat16: insert a Cast"),
        ("%a = Add(%x, %z) : float32[2]", "shapes [2] and [3] do not broadcast"),
        ("%a = Equal(%x, %x) : float32[2]", "its type is float32[2], but Equal of these operands gives bool[2]"),
        ("%a = MakeTuple(%x, %z) : (float32[2], float32[2])", "gives (float32[2], float32[3])!"),
        ("%a = TupleGetItem(%t, 2) : float32[2]", "not a tuple and a constant index inside it"),
        ("%a = TupleGetItem(%t, -3) : float32[2]", "not a tuple and a constant index inside it"),
        ("%a = TupleGetItem(%x, 0) : float32[2]", "not a tuple and a constant index inside it"),
        (
            "%a = TupleGetItem(%t, 1) : float32[3]",
            "its type is float32[3], but TupleGetItem of these operands gives float32[2]",
        ),
        ("%a = TupleGetItem(%t) : float32[2]", "TupleGetItem cannot take these operands"),
        ("%a = Neg(%x) : (float32[2])", "its type is (float32[2]), but Neg of these operands gives float32[2]"),
        (
            "%a = ReduceSum(%x, 0, true) : float32[]",
            "its type is float32[], but ReduceSum of these operands gives float32[1]",
        ),
    ],
)
def test_types_agree_with_the_rules(line: str, message: str) -> None:
    g = parse_graph(
        "graph @g(%x: float32[2], %h: float16[2], %z: float32[3], %t: (float32[3], float32[2]), %f: bfloat16[2]) {\n"
        f"  {line}\n  return %a\n}}"
    )
    assert message in only(g)


@pytest.mark.parametrize(
    "line",
    [
        "%a = Add(%x, %d) : float32[2]",
        "%a = Add(%d, %d) : float32[-2]",
        "%a = Neg(%x) : float32[2]@w",
        "%a = Neg(%s) : float32[]",
        "%a = MakeTuple(%x, %x) : (float32[2], float32[?])",
        "%a = Add(%x, %q) : float32[2]",
        "%a = TupleGetItem(%t, -1) : float32[2]",
        "%a = Foo(%x) : int8[7]",
        # Files hold arithmetic on two element types, and the engine casts: LogSigmoid's Mul by an int32 constant.
        "%a = Mul(%x, %h) : float32[2]",
        "%a = Mul(%n, %h) : float16[2]",
        "%a = Mul(%b, %n) : int32[2]",
        "%a = Greater(%x, %n) : bool[2]",
    ],
)
def test_types_that_agree(line: str) -> None:
    verify(
        parse_graph(
            "graph @g(%x: float32[2], %d: float32[?], %s: float32, %q: unknown, %t: (float32[3], float32[2]), "
            "%h: float16[2], %n: int32[], %b: bool[2]) {\n"
            f"  {line}\n  return %a\n}}"
        )
    )


def test_passes_insert_their_casts() -> None:
    """What a file may hold, a pass may not make."""
    g = Graph("g")
    x, h = g.add_input("x", F), g.add_input("h", tensor("float16", 2))
    g.editor = "my-pass"
    g.result = g.create("Mul", [x, h], F)
    assert "Mul of float32 and float16: insert a Cast" in only(g)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("%go: bool[]", "%go: bool[2]", "the condition, %go (bool[2]), is not one bool; reduce it with ReduceAll"),
        ("%go: bool[]", "%go: int32[]", "the condition, %go (int32[]), is not one bool"),
        ("Switch(%go, %yes, %no)", "Switch(%go, %x, %no) : union<@yes, @no>", "is no function"),
        ("Switch(%go, %yes, %no)", "Switch(%go, %yes, %no, %no)", "Switch takes 3 operands, not 4"),
        (
            "Switch(%go, %yes, %no)",
            "Switch(%go, %yes, %no) : bool[]",
            "its type is bool[], but Switch of these operands",
        ),
    ],
)
def test_switch(old: str, new: str, message: str) -> None:
    assert message in problems(edited(SWITCH, old, new))


# -- calls -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@yes, %w, %x, umonad)", "@yes, %w, %x, %x, umonad)", "function 'yes' takes 3 arguments, 4 are given"),
        ("@yes, %w, %x, umonad)", "@yes, %w, %x)", "function 'yes' takes 3 arguments, the call reaches it with 2"),
        (
            "@yes, %w, %x, umonad)",
            "@yes, %w, %go, umonad)",
            "argument 1 of function 'yes', %x (float32[2]), is given %go (bool[])",
        ),
        ("@yes, %w, %x, umonad)", "@yes, %w, umonad, %x)", "stands after an effect token"),
        ("call(%s)", "call(%s, %x)", "function 'no' takes 0 arguments, 1 are given"),
        (
            "call(%s) : float32[2]",
            "call(%s) : float32[3]",
            "its type is float32[3], but function 'yes' returns float32[2]",
        ),
        ("Partial(@no)", "Partial(%x) : fn<@no>", "the first operand of Partial is no function"),
        ("call(%s)", "call()", "a call of nothing; the first operand is the function"),
    ],
)
def test_calls(old: str, new: str, message: str) -> None:
    assert message in problems(edited(SWITCH, old, new))


def test_direct_calls_and_bound_arguments_together() -> None:
    text = """graph @g(%x: float32[2], %n: int32[]) {{
  %p = Partial(@f, %x)
  %r = {}
  return %r
  func @f(%a: float32[2], %b: int32[]) {{
    return %b
  }}
}}"""
    verify(parse_graph(text.format("call(%p, %n) : int32[]")))
    verify(parse_graph(text.format("call(@f, %x, %n) : int32[]")))
    assert "argument 1 of function 'f', %b (int32[]), is given %x" in only(
        parse_graph(text.format("call(%p, %x) : int32[]"))
    )
    assert "argument 0 of function 'f'" in only(parse_graph(text.format("call(@f, %n, %n) : int32[]")))
    assert "the call reaches it with 1" in only(parse_graph(text.format("call(@f, %x) : int32[]")))


def test_recursion_needs_a_switch() -> None:
    text = """graph @g(%x: float32[2], %c: bool[]) {{
  %r = call(@f, %x, %c) : float32[2]
  return %r
  func @f(%x: float32[2], %c: bool[]) {{
    %y = Exp(%x)
    {}
    return %r
  }}
  func @h(%x: float32[2], %c: bool[]) {{
    %r = call(@f, %x, %c) : float32[2]
    return %r
  }}
}}"""
    direct = parse_graph(text.format("%r = call(@f, %y, %c) : float32[2]"))
    assert "function 'f', node %r: function 'f' calls itself without a Switch, so it never ends" in only(direct)
    mutual = parse_graph(text.format("%r = call(@h, %y, %c) : float32[2]"))
    assert "calls itself without a Switch" in only(mutual)
    switched = "%p = Partial(@h, %y, %c)\n%q = Partial(@f, %x, %c)\n%s = Switch(%c, %p, %q)\n%r = call(%s) : float32[2]"
    verify(parse_graph(text.format(switched)))


# -- effects ---------------------------------------------------------------------------------------------------


LOAD = "Load(%w, umonad)"
WRITE = "AssignAdd(%w, %x, umonad)"
TOKEN = "UpdateState(umonad, %a, %l)"
NOT_STATE = "(float32[2]), in place, which is not state"
LOST = "its effect would silently not happen: nothing ties it to the result"
PRINT = '%p = Print("x", iomonad) {side_effect_io = true} : int32[]'


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (LOAD, "Load(%w)", "Load takes what it reads and a token; give it both"),
        (LOAD, "Load(%w, %x)", "Load takes what it reads and a token"),
        (TOKEN, "UpdateState(%a, umonad)", "the first operand of UpdateState is not a token"),
        (TOKEN, TOKEN + " : float32[2]", "its type is float32[2], but UpdateState"),
        (WRITE, "AssignAdd(%w, umonad, %x)", "operand 2, %x (float32[2]), stands after an effect token"),
        (WRITE, "AssignAdd(%w, %x)", "AssignAdd writes in place but has no token, so its moment is undefined"),
        (WRITE, "AssignAdd(%l, %x, umonad)", "AssignAdd writes operand 0, %l " + NOT_STATE),
        (WRITE, "AssignAdd(%x, %x, umonad)", "AssignAdd writes operand 0, %x " + NOT_STATE),
        (
            WRITE,
            "ApplyMomentum(%w, %l, 0.1, %x, 0.9, umonad) : float32[2]",
            "ApplyMomentum writes operand 1, %l " + NOT_STATE,
        ),
        (TOKEN, "UpdateState(umonad, %l)", "node %a: " + LOST),
        ("Depend(%y, %u)", "Exp(%y)", "node %a: " + LOST),
        (WRITE, WRITE + "\n  " + PRINT, "node %p: " + LOST),
    ],
)
def test_effects(old: str, new: str, message: str) -> None:
    assert message in problems(edited(UPDATE, old, new))


def test_the_result_of_a_write_stands_for_the_state() -> None:
    verify(
        edited(
            UPDATE,
            "  %u = UpdateState(umonad, %a, %l)\n",
            "  %t = UpdateState(umonad, %a, %l)\n  %b = Assign(%a, %x, %t)\n  %u = UpdateState(%t, %b)\n",
        )
    )


def test_writes_through_function_inputs_reach_state() -> None:
    report = problems(edited(SWITCH, "Partial(@yes, %w, %x, umonad)", "Partial(@yes, %x, %x, umonad)"))
    assert "node %r: input %w of the function is written in place (by %a)" in report
    assert "but is given %x (float32[2]), which is not state" in report
    nested = SWITCH.replace("%a = AssignAdd(%w, %x, %u)", "%a = call(@inner, %w, %x, %u) : float32[2]").replace(
        "  func @no()",
        "  func @inner(%v: float32[2], %x: float32[2], %u: umonad) {\n    %a = AssignAdd(%v, %x, %u)\n"
        "    %t = UpdateState(%u, %a)\n    %d = Depend(%x, %t)\n    return %d\n  }\n  func @no()",
    )
    verify(parse_program(nested))
    report = only(parse_program(nested.replace("Partial(@yes, %w, %x, umonad)", "Partial(@yes, %x, %x, umonad)")))
    assert "input %w of the function is written in place" in report


def test_a_lost_call_is_a_lost_effect_only_if_it_has_one() -> None:
    lost = SWITCH.replace("  %u = UpdateState(umonad, %r)\n  %d = Depend(%r, %u)\n  return %d\n", "  return %x\n", 1)
    assert "node %r: its effect would silently not happen" in only(parse_program(lost))
    pure = lost.replace(
        "    %a = AssignAdd(%w, %x, %u)\n    %v = UpdateState(%u, %a)\n    %d = Depend(%x, %v)\n    return %d\n",
        "    return %x\n",
    )
    verify(parse_program(pure))


# -- the program -----------------------------------------------------------------------------------------------


def accumulated() -> Program:
    return parse_program("""
program @p {
  schedule @step * 3, @apply; flush @apply; count %n
}
state %n: int32[] role=counter
graph @step(%x: float32[2]) -> (loss) {
  return %x
}
graph @apply() {
  return 1
}
graph @other(%x: float32[3]) {
  return %x
}
""")


@pytest.mark.parametrize(
    ("schedule", "message"),
    [
        (Schedule(()), "the schedule is empty; a cycle runs at least one graph"),
        (Schedule((Entry("step", 0),)), "the schedule runs graph 'step' 0 times; repeats are 1 or more"),
        (Schedule((Entry("stop"),)), "the schedule names graph 'stop', which the program does not have"),
        (Schedule((Entry("step"),), flush="stop"), "the schedule names graph 'stop'"),
        (Schedule((Entry("step"),), flush="step"), "graph 'step', which ends a short cycle, takes inputs"),
        (Schedule((Entry("step"),), count="m"), "the schedule counts in state 'm', which the program does not have"),
        (
            Schedule((Entry("step"), Entry("other"))),
            "graphs 'step' and 'other' of the schedule take different inputs: (%x: float32[2]) and (%x: float32[3])",
        ),
    ],
)
def test_schedule(schedule: Schedule, message: str) -> None:
    program = accumulated()
    verify(program)
    program.schedule = schedule
    assert message in only(program)


def test_the_count_is_one_number() -> None:
    program = accumulated()
    program.state["n"] = StateVariable("n", tensor("int32", 2), ZeroData(8))
    assert "the schedule counts in state 'n', which is int32[2]; a count is one number" in only(program)


def test_names_of_outputs_match_the_result() -> None:
    report = only(edited(UPDATE, "(loss)", "(loss, overflow)"))
    assert "it names 2 outputs (loss, overflow), but its result, of type float32[2], holds 1" in report
    pair = UPDATE.replace("return %r", "%t = MakeTuple(%r, %r)\n  return %t")
    assert "it names 1 outputs (loss), but its result" in only(parse_program(pair))
    verify(parse_program(pair.replace("(loss)", "(loss, other)")))


def test_names_of_inputs_are_unique() -> None:
    g, *_ = chain()
    g.add_input("x", F)
    assert "graph 'g': two of its inputs and states are named 'x'; rename the input" in only(g)


def test_states_are_the_programs() -> None:
    program = parse_program(UPDATE)
    graph = program.graphs["step"]
    program.state["w"].type = tensor("float32", 3)
    program.state["w"].data = ZeroData(12)
    assert "it takes state 'w' for float32[2], but the program has float32[3]; use one type" in only(program)
    del program.state["w"]
    assert "it uses state 'w', which the program does not have; declare it with program.add_state" in only(program)
    program = parse_program(UPDATE)
    graph = program.graphs["step"]
    graph.states["w"].name = "v"
    assert "its state 'w' calls itself 'v'" in only(program)


def test_state_variables() -> None:
    program = parse_program(UPDATE)
    program.state["m"].data = ZeroData(4)
    assert "state 'm' is float32[2], 8 bytes, but its initial value has 4; give it data of that size" in only(program)
    program.state["m"] = StateVariable("m", TensorType(F.dtype, (-1,)), ZeroData(4))
    assert "state 'm' is of type float32[?]; state has fixed dimensions" in only(program)
    program.state["m"] = StateVariable("m", F, ZeroData(8), role="ballast")
    assert "state 'm' has the role 'ballast'; roles are weight, slot" in only(program)
    program.state["m"] = StateVariable("n", F, ZeroData(8))
    assert "state 'n' stands under the name 'm'" in only(program)


def test_graphs_stand_under_their_names() -> None:
    program = parse_program(UPDATE)
    program.graphs["step"].name = "other"
    assert "graph 'other' stands under the name 'step'; rename one of the two" in only(program)


# -- size ------------------------------------------------------------------------------------------------------


def test_wide_nodes_and_repeated_operands() -> None:
    g = Graph("g")
    x = g.add_input("x", F)
    wide = g.create("MakeTuple", [x] * 64_000)
    token = g.create("UpdateState", [g.constant(MonadValue("umonad")), *[x, wide] * 1000])
    g.result = g.create("Depend", [g.create("AddN", [wide]), token])
    verify(g)
    wide._operands[63_999] = Constant("k", 1.0)
    assert "operand 63999, %k (float32), does not list the node as a user" in problems(g)

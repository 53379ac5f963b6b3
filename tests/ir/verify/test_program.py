"""One broken program for every rule of schedules, state and signatures."""

from __future__ import annotations

import pytest
from boost_compile.ir.core.data import ZeroData
from boost_compile.ir.core.program import Entry, Program, Schedule, StateVariable
from boost_compile.ir.core.types import TensorType, tensor
from boost_compile.ir.text import parse_program
from boost_compile.ir.verify.verifier import verify

from tests.ir.broken import UPDATE, F, chain, edited, only


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
        (Schedule((Entry("step"),), flush="step"), "graph 'step', which ends a short window, takes inputs"),
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
    assert "it names 1 output (loss), but its result" in only(parse_program(pair))
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

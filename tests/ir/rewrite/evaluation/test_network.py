"""The network of a training program computes what the step computes up to there, writes nothing, and holds no more."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.core.data import from_numpy
from boost_compile.ir.core.errors import OptionError, PassError
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.core.primitives import facts
from boost_compile.ir.core.types import TensorType, TupleType, holds_function
from boost_compile.ir.core.walk import without_order
from boost_compile.ir.rewrite.evaluation.network import evaluation, loss_node
from boost_compile.ir.rewrite.evaluation.weights import check_weights, network_of, values_of
from boost_compile.ir.verify.verifier import verify

from tests.execution import Arrays, run_graph
from tests.graphs import node, program, results
from tests.material import material, values

NAMES = ("branch", "loop", "mlp", "mlp_half_compute", "gated_update", "lenet_bn", "residual")


def inputs_of(graph: Graph) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    types = [v.type for v in graph.inputs if isinstance(v.type, TensorType)]
    return [rng.standard_normal(t.shape).astype(t.dtype.value) for t in types]


@pytest.mark.parametrize("name", NAMES)
def test_it_computes_what_the_step_computes(name: str) -> None:
    """In every order that its tokens allow, with BatchNorms that take their statistics as they are."""
    step = material(name)
    (source,) = step.graphs.values()
    network = evaluation(step)
    graph = network.graph
    verify(graph)
    assert (network.is_whole, network.drawing) == (False, ())
    assert "backward part" in str(network)
    assert f"without {', '.join(network.left_out)}; without loss" in str(network)
    assert set(network.inputs) | set(network.left_out) == {v.name for v in source.inputs}
    assert set(network.program.state) == set(graph.states) < set(step.state)
    # No function hands on a closure of the backward part.
    for function in graph.functions.values():
        result = without_order(function.result)
        assert not isinstance(result.type, TupleType) or not any(map(holds_function, result.type.elements))
    rested, twin = source.clone()
    (end,) = (value for value in source if f"%{value.name} (" in network.ends_at[0])
    rested.result = twin[end]
    for norm in rested.all_nodes():
        at = facts(norm.op).training
        if at is not None:
            norm.set_operand(at, norm.home.constant(False))
    state = values(step)
    given = dict(zip((v.name for v in source.inputs), inputs_of(source), strict=True))
    wanted = run_graph(rested, list(given.values()), {n: v.copy() for n, v in state.items()})
    held: Arrays = {n: state[n] for n in graph.states}
    for found, after in results(graph, [given[n] for n in network.inputs], held):
        np.testing.assert_array_equal(found, wanted)
        assert all(after[n].tobytes() == held[n].tobytes() for n in held)


LAYER = """
state %w: float32[2] role=weight
state %seen: float32[2] role=statistic
state %rate: float32[] role=hyperparameter
graph @step(%x: float32[2], %label: float32[2]) -> (loss) {
  %w0 = Load(%w, umonad) @f1
  BODY
  %d = Sub(%y, %label) @f8
  %loss = ReduceSum(%d, (), false, false) @f9
  %dd = OnesLike(%d) @b9
  %dw = Mul(%dd, %x) @b2
  %t = UpdateState(umonad, %w0)
  %up = ApplyGradientDescent(%w, %rate, %dw, %t) : float32[2]
  %end = UpdateState(%t, %up)
  %r = Depend(%loss, %end)
  return %r
}"""
WRITTEN = {
    "assigned": ("Assign(%seen, %p, umonad)", [6.0, 20.0]),
    "added": ("AssignAdd(%seen, %p, umonad)", [11.0, 30.0]),
    "taken away": ("AssignSub(%seen, %p, umonad)", [5.0, 10.0]),
}


@pytest.mark.parametrize(("write", "expected"), WRITTEN.values(), ids=WRITTEN)
def test_what_is_written_and_then_read_is_passed_on(write: str, expected: list[float]) -> None:
    body = f"%p = Mul(%w0, %x) @f2\n  %s = {write} : float32[2] @f3\n  %u = UpdateState(umonad, %s)\n"
    body += "  %again = Load(%seen, %u) @f4\n  %y = Add(%again, %p) @f5"
    made = program(LAYER.replace("BODY", body))
    graph = evaluation(made).graph
    assert not [n for n in graph if n.op.name.startswith("Assign")]
    state = {"w": np.float32([1, 2]), "seen": np.float32([5, 10])}
    for found, after in results(graph, [np.float32([3, 5])], {n: state[n] for n in graph.states}):
        np.testing.assert_array_equal(found, np.float32(expected))
        assert after.get("seen", state["seen"]).tolist() == [5, 10]
    assert ("seen" in graph.states) == ("Assign(" not in write)


def test_the_result_of_a_write_is_what_was_written() -> None:
    body = "%p = Mul(%w0, %x) @f2\n  %s = AssignAdd(%seen, %p, umonad) : float32[2] @f3\n  %y = Add(%s, %p) @f4"
    graph = evaluation(program(LAYER.replace("BODY", body))).graph
    state = {"w": np.float32([1, 2]), "seen": np.float32([5, 10])}
    for found, after in results(graph, [np.float32([3, 5])], state):
        np.testing.assert_array_equal(found, np.float32([11, 30]))
        assert after["seen"].tolist() == [5, 10]


ENDS = {
    "a label that is counted on": ("%y = Mul(%w0, %x) @f2\n  %l = Mul(%label, float32[]<2.0>) @f3", "%label", "%l"),
    "data that are their own labels": ("%y = Mul(%w0, %x) @f2", "%label", "%x"),
    "a function of the output, beside it": (
        "%y = Mul(%w0, %x) @f2\n  %s = Exp(%y) @f3", "%loss = ReduceSum(%d",
        "%q = Mul(%d, %s) @f4\n  %loss = ReduceSum(%q",
    ),
    "a penalty on the weight": (
        "%y = Mul(%w0, %x) @f2\n  %q = Square(%w0) @f3\n  %n = ReduceSum(%q, (), false, false) @f4",
        "%dd = ", "%both = Add(%loss, %n) @f5\n  %dd = ",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("body", "old", "new"), ENDS.values(), ids=ENDS)
def test_the_network_ends_where_the_loss_begins(body: str, old: str, new: str) -> None:
    head, rest = LAYER.split("BODY")
    rest = rest.replace(old, new, 1)
    if "%both" in rest:
        rest = rest.replace("Depend(%loss,", "Depend(%both,")
    network = evaluation(program(head + body + rest))
    assert (network.ends_at, network.inputs) == (("%y",), ("x",))


ROWS = """
state %w: float32[3,2] role=weight
state %average.w: float32[3,2] role=average weight=%w
graph @net(%x: float32[4,2], %scale: float32[3]) -> (logits) {
  %w0 = Load(%w, umonad)
  %y = MatMul(%x, %w0, false, true) : float32[4,3]
  %z = Mul(%y, %scale)
  return %z
}"""


def test_another_number_of_samples() -> None:
    network = evaluation(program(ROWS))
    same, seven, any_ = (network.resized(size, ["x"]) for size in (4, 7, None))
    assert [n.batch for n in (same, seven, any_)] == ["4 samples", "7 samples", "any number of samples"]
    shapes = [[str(v.type) for v in (*n.graph.inputs, n.graph.result)] for n in (same, seven, any_)]
    assert shapes == [[f"float32[{k},2]", "float32[3]", f"float32[{k},3]"] for k in ("4", "7", "?")]
    assert seven.per_sample == any_.per_sample == {"x", "logits"}
    assert any_.resized(None).batch == "any number of samples"
    assert "1 weight; 7 samples" in str(seven)
    assert [str(v.type) for v in network.graph.inputs] == ["float32[4,2]", "float32[3]"]


def test_the_weights_that_are_asked_for() -> None:
    rows = program(ROWS)
    for which in ("trained", "average"):
        check_weights(rows, which)
    with pytest.raises(OptionError, match="no weights are called 'best': give one of trained"):
        check_weights(rows, "best")
    for which in ("average", "merged"):
        with pytest.raises(PassError):
            check_weights(PLAIN, which)
    given = {"w": np.full((3, 2), 2, np.float32), "average.w": np.full((3, 2), 7, np.float32)}
    held = {
        which: network_of(rows, which, None, given, "here").program.state["w"].initial.max()
        for which in ("trained", "average")
    }
    assert held == {"trained": 2, "average": 7}
    assert values_of(rows, "trained", given) == given
    assert values_of(rows, "average", given)["w"].max() == 7
    rows.state["average.w"].data = from_numpy(given["average.w"])[1]
    assert network_of(rows, "average").program.state["w"].initial.max() == 7
    assert network_of(rows, "trained", "y", batch=7).batch == "7 samples"
    assert network_of(rows, "trained", batch="any").batch == "any number of samples"


def test_a_write_that_the_output_needs_and_cannot_do_without_is_refused() -> None:
    body = "%p = Mul(%w0, %x) @f2\n  %s = ScatterAdd(%seen, %i, %p, umonad) : float32[2] @f3\n  %y = Add(%s, %p) @f4"
    body = "%i = Cast(%x, 34) : int32[2] @f7\n  " + body
    with pytest.raises(PassError, match=r"cannot be evaluated without changing state 'seen': .*ScatterAdd.* writes it"):
        evaluation(program(LAYER.replace("BODY", body)))


DROPOUTS = {
    "a pair": "%o = Dropout(%p) {keep_prob = 0.5} : (float32[2], float32[2]) @f3\n  %y = TupleGetItem(%o, 0) @f4",
    "a mask": "%m = DropoutGenMask((2,), float32[]<0.5>) : uint8[16] @f3\n"
    "  %y = DropoutDoMask(%p, %m, float32[]<0.5>) : float32[2] @f4",
}


@pytest.mark.parametrize("dropout", DROPOUTS.values(), ids=DROPOUTS)
def test_dropouts_pass_on_what_they_get(dropout: str) -> None:
    network = evaluation(program(LAYER.replace("BODY", f"%p = Mul(%w0, %x) @f2\n  {dropout}")))
    assert [n.op.name for n in network.graph] == ["Load", "Mul"]
    assert network.drawing == ()


def test_what_still_draws_is_named() -> None:
    body = "%p = Mul(%w0, %x) @f2\n  %q = StandardNormal((2,)) : float32[2] @f3\n  %y = Add(%p, %q) @f4"
    network = evaluation(program(LAYER.replace("BODY", body)))
    assert network.drawing == ("StandardNormal",)
    assert str(network).endswith("; still draws at random: StandardNormal")


PLAIN = program(LAYER.replace("BODY", "%y = Mul(%w0, %x) @f2"))
ALONE = """
state %w: float32[2] role=weight
graph @net(%x: float32[2], %unused: float32[2]) -> (logits) {
  %w0 = Load(%w, umonad)
  %y = Mul(%w0, %x)
  return %y
}"""


def test_a_node_may_be_named_as_the_end() -> None:
    assert loss_node(PLAIN) == "loss"
    assert evaluation(PLAIN).ends_at == ("%y",)
    assert evaluation(PLAIN, "d").ends_at == ("%d",)
    assert evaluation(PLAIN, "d").left_out == ()
    assert evaluation(PLAIN, "loss").outputs == ("loss",)
    with pytest.raises(PassError, match=r"graph 'step' has no node 'lost'.*did you mean 'loss'"):
        evaluation(PLAIN, "lost")


def test_a_network_without_a_backward_part_is_taken_whole() -> None:
    alone = program(ALONE)
    network = evaluation(alone)
    assert network.is_whole
    assert (network.inputs, network.outputs, network.left_out) == (("x", "unused"), ("logits",), ())
    assert str(network) == "the whole graph: x, unused -> logits, 1 weight"
    assert loss_node(alone) is None
    part = evaluation(alone, "w0")
    assert (part.is_whole, part.outputs, part.inputs) == (False, ("w0",), ())
    assert evaluation(alone, "logits").outputs == ("logits",)


def test_other_values_must_be_there_and_fit() -> None:
    network = evaluation(program(ALONE))
    with pytest.raises(PassError, match=r"state 'w' is float32\[2\], and here lacks it"):
        network.with_values({}, "here")
    for wrong in (np.zeros(3, np.float32), np.zeros(2, np.float64)):
        with pytest.raises(PassError, match=rf"and here has {wrong.dtype}\[{len(wrong)}\] for it"):
            network.with_values({"w": wrong}, "here")
    half = evaluation(program(ALONE.replace("float32", "bfloat16")))
    given = half.with_values({"w": np.float32([1.0, -2.5]), "other": np.zeros(1)}, "here")
    assert bytes(given.program.state["w"].data.view()) == np.uint16([0x3F80, 0xC020]).tobytes()
    assert node(given.graph, "y").operand(1).name == "x"

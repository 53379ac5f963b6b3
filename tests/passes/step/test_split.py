"""Where a training graph is cut: what crosses from the network to the update side, and what refuses to."""

from __future__ import annotations

import pytest
from boost_compile.ir.analysis.training.anatomy import anatomy
from boost_compile.ir.core.errors import PassError
from boost_compile.ir.core.graph import Constant, Graph, Node
from boost_compile.ir.rewrite.effects.editing import Effects
from boost_compile.passes.step.split import (
    Cut,
    clone_update_side,
    drop_update_side,
    find_cut,
    pack,
    split_outputs,
)

from tests.graphs import graph, node
from tests.material import material

STEP = """
state %w: float32[2]
state %mean: float32[2]
state %rate: float32[]
state %tick: int32[1]
graph @step(%x: float32[2], %k: float32[]) -> (loss) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %loss = ReduceSum(%y, (), false) @f
  %seed = OnesLike(%y) @b
  %g = Mul(%seed, %x) @b
BODY
  %u = UpdateState(umonad, %y)
  %up = ApplyGradientDescent(%w, %rate, TO, %u) : float32[2]
  %end = UpdateState(%u, %up)
  %r = Depend(%loss, %end)
  return %r
}"""


def step(body: str = "", to: str = "%g") -> Graph:
    return graph(STEP.replace("BODY", body).replace("TO", to))


def cut(body: str = "", to: str = "%g") -> Cut:
    return find_cut(anatomy(step(body, to)))


def crossing(found: Cut) -> tuple[dict[str, set[tuple[str, int]]], dict[str, set[tuple[str, int]]]]:
    """Names of gradients and of what else is carried, each with its users."""
    gradients, carried = (
        {c.value.name: {(u.name, i) for u, i in c.uses} for c in crossings}
        for crossings in (found.gradients, found.carried)
    )
    return gradients, carried


def test_the_gradient_crosses() -> None:
    found = cut()
    assert crossing(found) == ({"g": {("up", 2)}}, {})
    (gradient,) = found.gradients
    assert (gradient.weight, gradient.part) == ("w", 0)
    assert found.order_only == []
    assert [(name, value.name) for name, value in found.outputs.network] == [("loss", "loss")]
    assert found.outputs.update == []


def test_summands_of_a_gradient_are_numbered() -> None:
    found = cut("%g2 = Neg(%g) @b\n%p = MakeTuple(%g2, %g)\n%to = AddN(%p)", "%to")
    assert [(c.value.name, c.weight, c.part) for c in found.gradients] == [("g2", "w", 0), ("g", "w", 1)]


def test_a_loss_or_an_input_that_the_update_side_takes_is_carried() -> None:
    found = cut("%s = Mul(%g, %loss)\n%to = Mul(%s, %k)", "%to")
    assert crossing(found) == ({"g": {("s", 0)}}, {"loss": {("s", 1)}, "k": {("to", 1)}})


def test_what_depends_on_no_micro_batch_is_not_carried() -> None:
    """The update side loads the weight again for its decay, though forward has loaded it."""
    found = cut("%d = Mul(%w0, float32[]<0.1>) @f\n%p = MakeTuple(%g, %d)\n%to = AddN(%p)", "%to")
    assert crossing(found) == ({"g": {("p", 0)}}, {})


def test_a_load_of_a_statistic_that_forward_writes_is_carried() -> None:
    body = "%st = Assign(%mean, %y, umonad) : float32[2] @f\n%t = UpdateState(umonad, %st)\n%m = Load(%mean, %t) @f\n"
    found = cut(body + "%to = Mul(%g, %m)", "%to")
    assert crossing(found)[1] == {"m": {("to", 1)}}


def test_a_random_value_is_carried() -> None:
    found = cut("%draw = UniformReal((2,)) {seed = 1, seed2 = 2} : float32[2] @f\n%to = Mul(%g, %draw)", "%to")
    assert crossing(found)[1] == {"draw": {("to", 1)}}


def test_what_merely_waits_carries_no_value() -> None:
    found = cut(
        "%to = Depend(%rate0, %y)\n".replace("%to", "%late").replace("%rate0", "%g") + "%to = Neg(%late)", "%to"
    )
    assert [n.name for n in found.order_only] == ["late"]
    assert crossing(found) == ({"g": {("late", 0)}}, {})


def test_what_no_update_needs_does_not_cross() -> None:
    assert crossing(cut("%idle = Neg(%g)\n%more = Mul(%idle, %loss)")) == ({"g": {("up", 2)}}, {})


@pytest.mark.parametrize(
    ("body", "to", "says"),
    [
        (
            "%h = Exp(%g) @b\n%big = ReduceSum(%h, (), false) @b\n%to = Mul(%g, %big)",
            "%to",
            "the gradient of no weight",
        ),
        (
            "%a = AssignAdd(%mean, %g, umonad)\n%ua = UpdateState(umonad, %a)\n"
            "%m = Load(%mean, %ua) @f\n%n = Neg(%m) @f\n"
            "%q = Mul(%n, %x) @f\n%h = Mul(%q, %g) @b\n%to = Add(%h, %g)",
            "%to",
            "the network uses state 'mean' .* after the same step has updated it",
        ),
        (
            "%m = Load(%mean, umonad)\n%to = Mul(%g, %m)\n%uu = UpdateState(umonad, %to)\n"
            "%st = Assign(%mean, %y, %uu) : float32[2] @f\n%t = UpdateState(%uu, %st)\n%late = Depend(%to, %t)",
            "%late",
            "the update side reads state 'mean' .* before the network writes it",
        ),
    ],
    ids=["no gradient", "updated before", "read before"],
)
def test_what_cannot_be_cut(body: str, to: str, says: str) -> None:
    with pytest.raises(PassError, match=says):
        cut(body, to)


def test_results_by_side() -> None:
    text = (
        STEP.replace("BODY", "%norm = ReduceSum(%g, (), false)").replace("TO", "%g").replace("(loss)", "(loss, norm)")
    )
    g = graph(text.replace("%r = Depend(%loss, %end)", "%pair = MakeTuple(%loss, %norm)\n%r = Depend(%pair, %end)"))
    found = split_outputs(anatomy(g))
    assert [(name, value.name) for name, value in found.network] == [("loss", "loss")]
    assert [(name, value.name) for name, value in found.update] == [("norm", "norm")]


def test_results_without_names() -> None:
    text = STEP.replace("BODY", "%norm = ReduceSum(%g, (), false)").replace("TO", "%g").replace(" -> (loss)", "")
    g = graph(text.replace("%r = Depend(%loss, %end)", "%pair = MakeTuple(%loss, %norm, %y)\n%r = Depend(%pair, %end)"))
    found = split_outputs(anatomy(g))
    assert [name for name, _ in found.network] == ["loss", "output2"]
    assert [name for name, _ in found.update] == ["output1"]


def test_each_half_drops_the_effects_of_the_other() -> None:
    body = (
        "%st = Assign(%mean, %y, umonad) : float32[2] @f\n%t = AssignAdd(%tick, int32[1]<1>, umonad)\n"
        "%tt = UpdateState(umonad, %st, %t)\n%kept = Depend(%g, %tt)"
    )
    source = step(body, "%kept")
    found = anatomy(source)
    copy, twin = clone_update_side(found, find_cut(found), "update")
    update = Effects(copy, listed=found.effects.of_clone(copy, twin))
    assert {e.node.name for e in update.writes()} == {"t", "up"}
    assert all(e.node.graph is copy for e in update.list)
    assert node(source, "st") not in twin or twin[node(source, "st")].graph is None  # type: ignore[attr-defined]
    network = Effects(source)
    drop_update_side(network, found.parts)
    assert {e.node.name for e in network.writes()} == {"st"}


def test_the_update_side_is_copied_without_what_it_does_not_need() -> None:
    """It computes itself what is the same in every step."""
    body = "%k0 = Load(%mean, umonad) : float32[2] @f\n%kept = Mul(%g, %k0)"
    source = step(body, "%kept")
    found = anatomy(source)
    cut = find_cut(found)
    update, twin = clone_update_side(found, cut, "update")
    names = {n.name for n in update}
    assert {"k0", "kept", "up"} <= names
    assert not {"g", "y", "loss"} & names
    g, kept = twin[node(source, "g")], node(update, "kept")
    assert kept.operands[0] is g
    assert isinstance(g, Node)
    assert (g.operands, g.graph) == ((), None)
    assert isinstance(node(update, "up").operands[-1], Constant)  # the token: it waits for nothing of the network
    assert not update.inputs
    assert not update.has_result


def test_packing_results() -> None:
    g = step()
    loss, y = node(g, "loss"), node(g, "y")
    assert pack(g, [("loss", loss)]) is loss
    assert g.outputs == ("loss",)
    both = pack(g, [("loss", loss), ("y", y)])
    assert isinstance(both, Node)
    assert (both.op.name, both.operands) == ("MakeTuple", (loss, y))
    assert g.outputs == ("loss", "y")
    one = pack(g, [("pair", both)])  # a tuple is one result, not its elements
    assert isinstance(one, Node)
    assert one.operands == (both,)
    nothing = pack(g, [])
    assert str(nothing.type) == "float32[]"
    assert g.outputs == ()


@pytest.mark.parametrize("name", ["mlp", "mlp_adam_decay", "lenet_bn", "branch", "loop", "clip_global_norm"])
def test_nothing_but_gradients_crosses_in_exported_graphs(name: str) -> None:
    found = find_cut(anatomy(material(name).graphs["step"]))
    program = material(name)
    assert sorted(c.weight for c in found.gradients) == sorted(n for n, v in program.state.items() if v.trainable)
    assert found.carried == []


def test_a_gradient_of_two_weights_crosses_once() -> None:
    """The two biases of a recurrent cell have one gradient."""
    found = find_cut(anatomy(material("lstm").graphs["step"]))
    weights = {c.weight for c in found.gradients}
    assert len(weights & {"lstm.bias_ih_l0", "lstm.bias_hh_l0"}) == 1
    assert weights >= {"lstm.weight_ih_l0", "lstm.weight_hh_l0", "head.weight", "head.bias"}

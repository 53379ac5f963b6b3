"""What each part of a training graph is for, on exported graphs and on small ones whose answer can be seen."""

from __future__ import annotations

import numpy as np
import pytest
from boost_compile.ir.analysis.training.anatomy import TrainingAnatomy, anatomy
from boost_compile.ir.analysis.training.network import BACKWARD, FORWARD, OPTIMIZER, OTHER
from boost_compile.ir.core.errors import AnatomyError
from boost_compile.ir.core.graph import Graph
from boost_compile.ir.core.types import TensorType

from tests.execution import initial, run_graph
from tests.graphs import graph, node
from tests.material import batches, material, values

MATERIAL = (
    *("mlp", "mlp_adam_decay", "mlp_half_compute", "lenet_bn", "lstm", "branch", "loop", "mlp_loss_scale_dynamic"),
    *("clip_global_norm", "gated_update", "hand_momentum", "meters"),
)
SLOTS = ("moments.", "moment1.", "moment2.", "adam_m.", "adam_v.", "velocity.")


@pytest.mark.parametrize("name", MATERIAL)
def test_roles_are_those_that_mindspore_names(name: str) -> None:
    """MindSpore calls a slot after its weight, statistics `moving_…`, and gives hyperparameters plain names."""
    program = material(name)
    for state, variable in program.state.items():
        prefix = next((p for p in SLOTS if state.startswith(p)), None)
        if prefix is not None:
            assert (variable.role, variable.weight) == ("slot", state.removeprefix(prefix))
        elif ".moving_" in state or state in ("total", "smooth"):
            assert variable.role == "statistic"
        elif "." in state:
            assert (variable.role, variable.trainable) == ("weight", True)
        else:
            assert variable.role == "hyperparameter", state


@pytest.mark.parametrize("name", MATERIAL)
def test_every_weight_has_one_gradient_of_its_shape_and_updates_that_write_it(name: str) -> None:
    program = material(name)
    found = anatomy(program.graphs["step"])
    assert {info.name for info in found.weights} == {n for n, v in program.state.items() if v.trainable}
    for info in found.weights:
        (gradient,) = info.gradient
        assert found.part(gradient) == BACKWARD
        assert isinstance(gradient.type, TensorType)
        assert gradient.type.shape == program.state[info.name].shape
        (update,) = info.updates
        assert update.operand(0).name == info.name or update.graph is not found.graph
        assert found.part(update) == OPTIMIZER
        assert found.weight(info.name) is info
        assert all(program.state[slot].weight == info.name for slot in info.slots)
    assert found.loss is not None
    assert found.loss.name.startswith("equiv_")
    assert found.loss.op.name == "SparseSoftmaxCrossEntropyWithLogits"
    assert found.loss_path == (() if len(program.graphs["step"].outputs) == 1 else (0,))


@pytest.mark.parametrize("name", ["mlp", "branch", "loop", "meters", "gated_update"])
def test_the_gradient_is_what_the_first_update_moves_the_slot_by(name: str) -> None:
    """Momentum from an empty slot stores the gradient itself."""
    program = material(name)
    step = program.graphs["step"]
    state = values(program) | {n: np.zeros(v.shape, v.dtype) for n, v in program.state.items() if v.role == "slot"}
    (batch,) = batches(program, 1)
    after = {n: initial(program, n, state) for n in program.state}
    run_graph(step, batch, after)
    for info in anatomy(step).weights:
        probe, mapping = step.clone()
        twin = mapping[info.gradient[0]]
        probe.result = twin
        before = {n: initial(program, n, state) for n in program.state}
        if twin.graph is probe:  # type: ignore[attr-defined]
            np.testing.assert_array_equal(run_graph(probe, batch, before), after[info.slots[0]])


STEP = """
state %w: float32[2]
state %m: float32[2]
state %rate: float32[]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %loss = ReduceSum(%y, (), false) @f
  %seed = OnesLike(%y) @b
  %g = Mul(%seed, %x) @b
BODY
  %u = UpdateState(umonad, %y)
  %up = UPDATE
  %end = UpdateState(%u, %up)
  %r = Depend(%loss, %end)
  return %r
}"""
MOMENTUM = "ApplyMomentum(%w, %m, %rate, %to, %rate, %u) : float32[2]"


def step(body: str = "", update: str = MOMENTUM, extra: str = "") -> Graph:
    if "%to" in update and "%to =" not in body:
        update = update.replace("%to", "%g")
    return graph(extra + STEP.replace("BODY", body).replace("UPDATE", update))


def gradient(found: TrainingAnatomy, weight: str = "w") -> list[str]:
    return [g.name for g in found.weight(weight).gradient]


def test_a_plain_step() -> None:
    found = anatomy(step())
    assert gradient(found) == ["g"]
    assert [u.name for u in found.weight("w").updates] == ["up"]
    assert found.weight("w").slots == ("m",)
    assert found.roles == {"w": "weight", "m": "slot", "rate": "hyperparameter"}
    g = found.graph
    parts = {n.name: found.part(n) for n in g}
    assert parts["w0"] == parts["y"] == parts["loss"] == FORWARD
    assert parts["seed"] == parts["g"] == BACKWARD
    assert parts["up"] == OPTIMIZER
    assert parts["u"] == parts["r"] == OTHER
    assert found.loss is node(g, "loss")
    with pytest.raises(AnatomyError, match="'m' is no trained weight of graph 'step'"):
        found.weight("m")


@pytest.mark.parametrize(
    "body",
    [
        "%to = Mul(%g, float32[]<0.5>)",
        "%d = Mul(%w0, float32[]<0.1>)\n%p = MakeTuple(%g, %d)\n%to = AddN(%p)",
        "%to = RealDiv(%g, %rate)",
        "%c = Cast(%g, 42) : float16[2]\n%to = Cast(%c, 43) : float32[2]",
        "%s = Square(%g)\n%n = ReduceSum(%s, (), false)\n%to = RealDiv(%g, %n)",
        "%o = OnesLike(%g)\n%q = GreaterEqual(%g, %o) : bool[2]\n%to = Select(%q, %o, %g)",
        "%to = AllReduce(%g)",
        "%e = Reshape(%g, (1, 2)) : float32[1,2]\n%to = Reshape(%e, (2,)) : float32[2]",
        "%to = Depend(%g, %y)",
        "%to = Sign(%g) : float32[2]",
    ],
    ids=["scaled", "decayed", "divided", "cast", "normed", "selected", "reduced", "reshaped", "waiting", "sign"],
)
def test_the_gradient_is_found_behind_what_is_made_of_it(body: str) -> None:
    assert gradient(anatomy(step(body))) == ["g"]


def test_a_sum_on_the_update_side_has_two_gradients_in_order() -> None:
    found = anatomy(step("%g2 = Neg(%g) @b\n%pair = MakeTuple(%g2, %g)\n%to = AddN(%pair)"))
    assert gradient(found) == ["g2", "g"]


def test_a_divisor_is_no_gradient() -> None:
    """RealDiv carries on what is divided, not what it is divided by."""
    found = anatomy(step("%h = Neg(%g) @b\n%to = RealDiv(%g, %h)"))
    assert gradient(found) == ["g"]


def test_a_condition_is_no_gradient() -> None:
    found = anatomy(step("%h = Neg(%g) @b\n%c = Cast(%h, 30) : bool[2]\n%z = ZerosLike(%x)\n%to = Select(%c, %z, %g)"))
    assert gradient(found) == ["g"]


def test_other_shapes_and_types_carry_no_gradient() -> None:
    found = anatomy(step("%h = ReduceSum(%g, (), false) @b\n%i = Cast(%g, 34) : int32[2] @b\n%to = Mul(%g, %h)"))
    assert gradient(found) == ["g"]


HAND = """%old = Load(%m, umonad)
  %scaled = Mul(%old, float32[]<0.9>)
  %new = Add(%scaled, %g)
  %uu = UpdateState(umonad, %scaled)
  %kept = Assign(%m, %new, %uu)
  %after = UpdateState(%uu, %kept)
  %again = Load(%m, %after)
  %move = Mul(%again, %rate0)"""


def test_an_optimizer_written_by_hand() -> None:
    """The weight moves by its slot, which was written from the gradient first: the gradient is behind it."""
    found = anatomy(step("%rate0 = Load(%rate, umonad)\n" + HAND, "AssignSub(%w, %move, %after)"))
    assert gradient(found) == ["g"]
    assert found.weight("w").slots == ("m",)
    assert [u.name for u in found.weight("w").updates] == ["up"]


def test_a_slot_read_before_it_is_written_leads_to_no_gradient() -> None:
    """The weight moves by what the slot held before: no gradient of this step is behind that update."""
    late = HAND.replace("%again = Load(%m, %after)", "").replace(
        "%uu = UpdateState(umonad, %scaled)", "%again = Load(%m, umonad)\n  %uu = UpdateState(umonad, %scaled, %again)"
    )
    with pytest.raises(AnatomyError, match="but none from a gradient"):
        anatomy(step("%rate0 = Load(%rate, umonad)\n" + late, "AssignSub(%w, %move, %after)").clone()[0])


def test_a_state_that_the_updates_of_two_weights_write_is_a_slot_of_neither() -> None:
    found = anatomy(
        step(
            "%v0 = Load(%v, umonad) @f\n%z = Mul(%v0, %x) @f\n%h = Mul(%seed, %y) @b\n"
            "%s1 = ApplyMomentum(%v, %m, %rate, %h, %rate, umonad) : float32[2]",
            extra="state %v: float32[2]\n",
        )
    )
    assert (gradient(found, "v"), gradient(found, "w")) == (["h"], ["g"])
    assert found.weight("v").slots == found.weight("w").slots == ()
    assert found.roles["m"] == "hyperparameter"


def test_a_frozen_weight_is_read_and_never_written() -> None:
    found = anatomy(step("%f0 = Load(%f, umonad) @f\n%z = Mul(%f0, %x) @f", extra="state %f: float32[2]\n"))
    assert found.roles["f"] == "weight"
    assert [info.name for info in found.weights] == ["w"]


def test_statistics_are_written_by_the_network() -> None:
    found = anatomy(step("%k = Assign(%f, %y, umonad) : float32[2] @f", extra="state %f: float32[2]\n"))
    assert found.roles["f"] == "statistic"


def test_what_nothing_reads_is_a_hyperparameter() -> None:
    body = "%t = AssignAdd(%tick, int32[1]<1>, umonad)\n%tt = UpdateState(umonad, %t)\n%d = Depend(%g, %tt)"
    found = anatomy(step(body, extra="state %tick: int32[1]\n"))
    assert found.roles["tick"] == "hyperparameter"


def test_a_weight_without_a_gradient_takes_a_constant() -> None:
    """The loss does not depend on it: the exporter put zeros in the place of its gradient. It is a weight all the same,
    known by its optimizer."""
    found = anatomy(
        step(
            "%other = ApplyMomentum(%v, %m2, %rate, float32[2]<zeros>, %rate, umonad) : float32[2]\n"
            "%o = UpdateState(umonad, %other)\n%d = Depend(%loss, %o)",
            extra="state %v: float32[2]\nstate %m2: float32[2]\n",
        )
    )
    info = found.weight("v")
    assert info.gradient == ()
    assert [str(value.type) for value in info.fixed] == ["float32[2]"]
    assert info.slots == ("m2",)
    assert found.roles["v"] == "weight"
    assert found.roles["m2"] == "slot"


def test_a_weight_that_follows_another_is_not_accumulated_in_it() -> None:
    """%v is updated from %w, which two writes change by its gradient; the network reads %w."""
    found = anatomy(
        step(
            "%w1 = Load(%w, umonad)\n%ug = UpdateState(umonad, %g)\n%wd = Depend(%w1, %ug)\n"
            "%s1 = ApplyMomentum(%v, %m2, %rate, %wd, %rate, umonad) : float32[2]\n"
            "%us = UpdateState(umonad, %s1)\n%s2 = AssignSub(%w, %g, %us) : float32[2]",
            extra="state %v: float32[2]\nstate %m2: float32[2]\n",
        )
    )
    assert (gradient(found, "v"), gradient(found, "w")) == ([], ["g"])


def test_an_optimizer_that_leaves_the_weight_to_an_assignment() -> None:
    """AdamNoUpdateParam writes slots, and gives what the weight is to move by."""
    found = anatomy(
        step(
            "%delta = AdamNoUpdateParam(%m, %v, 0.9, 0.9, %rate, 0.9, 0.9, 0.1, %g, umonad) : float32[2]",
            "AssignAdd(%w, %delta, %u)",
            extra="state %v: float32[2]\n",
        )
    )
    assert [(info.name, set(info.slots)) for info in found.weights] == [("w", {"m", "v"})]
    assert gradient(found) == ["g"]


UNMARKED = STEP.replace(" @b", "").replace(" @f", "").replace("UPDATE", MOMENTUM)
REFUSED = {
    "a forward graph": (
        "graph @step(%x: float32[2]) {\n%y = Neg(%x)\nreturn %y\n}",
        "'step' is a forward graph: it holds no backward part",
    ),
    "no optimizer": (
        STEP.replace("BODY", "").replace("%up = UPDATE\n", "%up = Neg(%g)\n"),
        "'step' computes gradients but updates no state: no optimizer",
    ),
    "no gradient": (
        STEP.replace("BODY", "").replace("UPDATE", "AssignAdd(%rate, float32[]<1.0>, %u)"),
        r"updates state \(rate\), but none from a gradient",
    ),
    "an optimizer without backward": (
        UNMARKED.replace("BODY", "").replace("%to", "%g"),
        "updates 'w' .* but holds no backward part: what it updates from is %g ",
    ),
    "an optimizer behind another write": (
        UNMARKED.replace("BODY", "%k = AssignAdd(%m, %x, umonad)\n%kk = UpdateState(umonad, %k)\n%c = Depend(%x, %kk)")
        .replace("%to", "%c"),
        "updates 'w' .* but holds no backward part",
    ),
    "an optimizer that takes what the cell makes of a forward value": (
        STEP.replace("BODY", "%to = Exp(%y)").replace("UPDATE", MOMENTUM),
        r"weight 'w': its update by %up \(ApplyMomentum\) takes no gradient that MindSpore derived from the loss",
    ),
    "an optimizer that takes part of a longer tensor": (
        STEP.replace(
            "BODY", "%p = MakeTuple(%g, %g)\n%all = Concat(%p, 0) : float32[4]\n"
            "%part = Slice(%all, (0,), (2,)) : float32[2]"
        ).replace("UPDATE", MOMENTUM).replace("%to", "%part"),
        r"weight 'w': its update by %up \(ApplyMomentum\) takes what the cell makes of gradients in other shapes",
    ),
    "an optimizer of an input": (
        UNMARKED.replace("BODY", "%c = Cast(%x, 43) : float32[2]").replace("%to", "%c"),
        "what it updates from is the input 'x', no gradient",
    ),
    "an optimizer inside a function": (
        """
state %w: float32[2]
state %rate: float32[]
graph @step(%x: float32[2]) {
  %c = call(@move, %w, %rate, %x, umonad) : float32[2]
  %u = UpdateState(umonad, %c)
  %r = Depend(%x, %u)
  return %r
  func @move(%p: float32[2], %q: float32[], %given: float32[2], %t: umonad) {
    %up = ApplyGradientDescent(%p, %q, %given, %t) : float32[2]
    %t2 = UpdateState(%t, %up)
    %done = Depend(%up, %t2)
    return %done
  }
}""",
        "updates 'w' .* what it updates from is the input 'x', no gradient",
    ),
    "an optimizer of a state": (
        UNMARKED.replace("BODY", "%c = Load(%m, umonad)").replace("%to", "%c"),
        "what it updates from is the state 'm', no gradient",
    ),
    "an optimizer of a constant": (
        UNMARKED.replace("BODY", "").replace("%to", "float32[2]<1.0, 2.0>"),
        "what it updates from is a constant of the file, no gradient",
    ),
    "an own accumulation": (
        "state %acc: float32[2]\n" + STEP.replace(
            "BODY",
            "%sum = Load(%acc, umonad)\n%add = AssignAdd(%acc, %g, umonad)\n%t1 = UpdateState(umonad, %add)\n"
            "%clear = Assign(%acc, %x, %t1)\n%t2 = UpdateState(%t1, %clear)\n%to = Depend(%sum, %t2)",
        ).replace("UPDATE", MOMENTUM),
        "accumulates already",
    ),
    "a gradient of two weights": (
        "state %v: float32[2]\nstate %m2: float32[2]\n" + STEP.replace(
            "BODY",
            "%h = Neg(%g) @b\n%to = Add(%g, %h)\n%v0 = Load(%v, umonad) @f\n%z = Mul(%v0, %x) @f\n%third = Exp(%g) @b\n"
            "%both = Add(%h, %third)\n%s1 = ApplyMomentum(%v, %m2, %rate, %both, %rate, umonad) : float32[2]",
        ).replace("UPDATE", MOMENTUM),
        "weights 'v' and 'w' both seem to use gradient|weights 'w' and 'v' both seem to use gradient",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "says"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_training_graph_is_refused(text: str, says: str) -> None:
    with pytest.raises(AnatomyError, match=says):
        anatomy(graph(text))


def test_a_gradient_that_another_weight_owns_alone_is_not_shared() -> None:
    """The update of %w adds the gradient of %v (a penalty over both); %v has no other candidate."""
    found = anatomy(
        graph(
            "state %v: float32[2]\nstate %m2: float32[2]\n" + STEP.replace(
                "BODY",
                "%h = Neg(%g) @b\n%to = Add(%g, %h)\n%v0 = Load(%v, umonad) @f\n%z = Mul(%v0, %x) @f\n"
                "%s1 = ApplyMomentum(%v, %m2, %rate, %h, %rate, umonad) : float32[2]",
            ).replace("UPDATE", MOMENTUM)
        )
    )  # fmt: skip
    assert gradient(found, "v") == ["h"]
    assert gradient(found, "w") == ["g"]


def test_an_optimizer_in_a_branch() -> None:
    """The calls that lead to updates are the update side, and the gradient crosses into the function."""
    g = graph("""
state %w: float32[2]
state %m: float32[2]
state %rate: float32[]
graph @step(%x: float32[2], %no: bool[]) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %loss = ReduceSum(%y, (), false) @f
  %g = Mul(%x, %x) @b
  %half = Mul(%g, float32[]<0.5>)
  %u = UpdateState(umonad, %y)
  %p = Partial(@update, %w, %m, %rate, %half, %u)
  %q = Partial(@nothing)
  %s = Switch(%no, %q, %p) : union<@update, @nothing>
  %c = call(%s) : float32[]
  %v = UpdateState(%u, %c)
  %r = Depend(%loss, %v)
  return %r
  func @update(%weight: float32[2]@w, %slot: float32[2]@m, %lr: float32[]@rate, %gr: float32[2], %t: umonad) {
    %up = ApplyMomentum(%weight, %slot, %lr, %gr, %lr, %t) : float32[2]
    %t2 = UpdateState(%t, %up)
    %z = Depend(float32[]<0.0>, %t2)
    return %z
  }
  func @nothing() {
    return float32[]<0.0>
  }
}""")
    found = anatomy(g)
    assert gradient(found) == ["g"]
    assert [u.name for u in found.weight("w").updates] == ["up"]
    assert found.weight("w").slots == ("m",)
    parts = {n.name: found.part(n) for body in g.all_graphs() for n in body}
    assert parts["c"] == parts["s"] == parts["p"] == parts["half"] == parts["up"] == OPTIMIZER


def test_a_running_average_of_a_weight_is_its_slot() -> None:
    """Its update takes the weight itself, after the step."""
    text = STEP.replace("BODY", "").replace("UPDATE", MOMENTUM.replace("%to", "%g"))
    average = """%now = Load(%w, %end)
  %share = Mul(%now, float32[]<0.1>)
  %u2 = UpdateState(%end, %share)
  %kept = Assign(%average, %share, %u2)
  %end2 = UpdateState(%u2, %kept)
  %r = Depend(%loss, %end2)"""
    found = anatomy(graph("state %average: float32[2]\n" + text.replace("%r = Depend(%loss, %end)", average)))
    assert set(found.weight("w").slots) == {"m", "average"}
    assert found.roles["average"] == "slot"


def test_calls_that_lead_to_updates_through_others() -> None:
    """The main graph calls @outer, which calls @inner, which updates: all of it is the update side."""
    g = graph("""
state %w: float32[2]
state %rate: float32[]
graph @step(%x: float32[2]) {
  %w0 = Load(%w, umonad) @f
  %y = Mul(%w0, %x) @f
  %loss = ReduceSum(%y, (), false) @f
  %g = Mul(%x, %x) @b
  %half = Mul(%g, float32[]<0.5>)
  %u = UpdateState(umonad, %y)
  %c = call(@outer, %w, %rate, %half, %u) : float32[]
  %end = UpdateState(%u, %c)
  %r = Depend(%loss, %end)
  return %r
  func @outer(%a: float32[2], %lr: float32[], %d: float32[2], %t: umonad) {
    %n = Neg(%d)
    %i = call(@inner, %a, %lr, %n, %t) : float32[]
    %t2 = UpdateState(%t, %i)
    %z = Depend(float32[]<0.0>, %t2)
    return %z
  }
  func @inner(%a: float32[2], %lr: float32[], %d: float32[2], %t: umonad) {
    %up = ApplyGradientDescent(%a, %lr, %d, %t) : float32[2]
    %t2 = UpdateState(%t, %up)
    %z = Depend(float32[]<0.0>, %t2)
    return %z
  }
}""")
    found = anatomy(g)
    assert gradient(found) == ["g"]
    parts = {n.name: found.part(n) for body in g.all_graphs() for n in body}
    assert {parts[name] for name in ("c", "half", "i", "n", "up")} == {OPTIMIZER}
    assert parts["y"] == FORWARD
